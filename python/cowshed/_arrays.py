# SPDX-License-Identifier: MIT
"""NumPy arrays on storages: making, cloning, sharing and freezing them."""

from __future__ import annotations

import errno
import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, overload

from . import _cowshed, _family, _writes
from ._regions import enter, owner_of, region_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from torch import Tensor

    from ._types import (
        Array,
        Modules,
        Of,
        OrderLike,
        Scalar,
        Tensors,
        Training,
        Writes,
    )

# Below this size a copy costs less than cloning pages (core/storage/clone.c has the same limit).
SMALL = 384 << 10
# Below this size an array lies on the heap. A storage of its own would take a page, and a clone of
# it ten times the time of a copy. Nothing is lost: small arrays are copied and sent as bytes.
TINY = 4096

_NO_ROOM = errno.ENOMEM, errno.EFBIG, errno.EOVERFLOW, errno.EINVAL


def _numpy():
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            f"this function needs NumPy (tested: 2.4), and it can't be imported ({error}): pip "
            "install numpy, or use cowshed.torch"
        ) from error
    return numpy


def new_storage(nbytes, *, zero=False, shared=None):
    """A writable storage for an array. shared: None does as the sharing mode says."""
    if not is_private(shared):
        return _family.alias_storage(max(nbytes, 1))
    return _cowshed.new(nbytes, zero=zero)


def array_on(storage, dtype, shape, offset=0, strides=None):
    """A NumPy array on the bytes of a storage. The array keeps the storage alive.

    offset and strides: in bytes.
    """
    numpy = _numpy()
    enter(storage)
    return numpy.ndarray(shape, dtype, storage, offset, strides)


@overload
def array(x: Array, dtype: None = ..., order: OrderLike = ..., *,
          shared: bool | None = ...) -> Array: ...
@overload
def array(x: Any, dtype: Of[Scalar], order: OrderLike = ..., *,
          shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def array(x: Any, dtype: DTypeLike | None = ..., order: OrderLike = ..., *,
          shared: bool | None = ...) -> NDArray[Any]: ...


def array(x: Any, dtype: Any = None, order: OrderLike = "K", *,
          shared: bool | None = None) -> NDArray[Any]:
    """A copy of an array-like, a tensor or a buffer, on a storage of its own. See empty().

    order: "K" keeps "F" of an array that is "F" and not "C"; all others become "C". Copies all
    bytes; clone() copies none of an array that lies in a storage already.
    """
    numpy = _numpy()
    check_file(x)  # before a conversion reads it
    source = numpy.asarray(x, dtype)
    check_file(source)
    if order == "K":
        order = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
    result = _make(source.shape, source.dtype, order, False, shared)
    result[...] = source
    return result


def check_file(x):
    """OSError (ENODATA): the file of an array, which is mapped, became shorter."""
    region = region_of(x)
    if region is not None and region.storage.kind == "file":
        _cowshed.check_file(region.storage.address + region.offset, region.nbytes)


def _make(shape, dtype, order, zero, shared):
    numpy = _numpy()
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} has Python objects, which can't lie in a storage: use a "
                         "dtype of numbers or plain bytes")
    if order not in ("C", "F"):
        raise ValueError(f"order is {order!r}: pass 'C' or 'F'")
    shape = sizes(shape)
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    if nbytes < 0 or any(size < 0 for size in shape):
        raise ValueError(f"shape {shape} has a negative size: pass sizes of 0 or more")
    if nbytes > sys.maxsize:
        raise ValueError(f"array is too big: shape {shape} of {dtype} has {nbytes} bytes")
    if nbytes < TINY and is_private(shared):
        return (numpy.zeros if zero else numpy.empty)(shape, dtype, order)
    try:
        storage = new_storage(nbytes, zero=zero, shared=shared)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_ROOM:
            raise
        raise MemoryError(f"Unable to allocate {nbytes} bytes for an array with shape {shape} and "
                          f"data type {dtype}") from error
    enter(storage)
    return numpy.ndarray(shape, dtype, storage, order=order)


def is_private(shared):
    """Whether an array is not to be shared. shared: see new_storage()."""
    return not shared if shared is not None else _family.get_sharing_mode() != "alias"


def sizes(shape):
    """A shape as a tuple of Python's integers. (A product of NumPy's integers can overflow.)"""
    shape = shape if hasattr(shape, "__iter__") else (shape,)
    return tuple(operator.index(size) for size in shape)


def _is_tensor(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def typed(result, x):
    """The array with the type of `x`, as x.copy() gives it: a matrix stays one.

    What else a subclass keeps is copied by its __array_finalize__(), NumPy's hook for that. Of a
    numpy.memmap it is a plain array, since the memory is no file's any more. TypeError: the type
    can't be kept, and a plain array would compute something else.
    """
    kind, numpy = type(x), _numpy()
    if kind is numpy.ndarray or issubclass(kind, numpy.memmap):
        return result
    try:
        new = result.view(kind)
        if new.__array_finalize__ is not None:
            new.__array_finalize__(x)
    except Exception as error:
        raise TypeError(f"{kind.__name__} is a subclass of numpy.ndarray that can't be kept "
                        f"({error}): pass numpy.asarray(x)") from error
    if type(new) is not kind or new.shape != x.shape or new.dtype != x.dtype:
        raise TypeError(f"{kind.__name__} is a subclass of numpy.ndarray that can't be kept, since "
                        "view() changes it: pass numpy.asarray(x)")
    return new


@functools.cache  # an import statement takes as long as a small clone
def _of_torch():
    from .torch import _tensors

    return _tensors


def _is_ndarray(x):
    return isinstance(x, _numpy().ndarray)


def _on(storage, x, offset):
    """An array with the shape, dtype and strides of `x`, whose lowest byte is at `offset`."""
    return typed(_plain_on(storage, x, offset), x)


def _plain_on(storage, x, offset):
    numpy = _numpy()
    # With a negative stride the first element does not have the lowest address.
    for size, stride in zip(x.shape, x.strides):
        if stride < 0:
            offset -= (size - 1) * stride
    enter(storage)
    return numpy.ndarray(x.shape, x.dtype, storage, offset, x.strides)


def _check_array(x, name):
    numpy = _numpy()
    if not isinstance(x, numpy.ndarray):
        raise TypeError(
            f"{name}() takes a NumPy array, a PyTorch tensor or a Storage, "
            f"not {type(x).__name__}. For dicts and lists of arrays use snapshot()"
        )
    # NumPy imports the module at its first use, which takes 50 ms. Without it no array is masked.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise TypeError(f"{name}() got a masked array, which consists of two arrays: pass its "
                        ".data and its .mask")
    if x.dtype.hasobject:
        raise TypeError(f"{name}() got an array of Python objects ({x.dtype}): pass an array of "
                        "numbers or plain bytes")


@overload
def clone(x: _cowshed.Storage, *, writes: Writes = ...) -> _cowshed.Storage: ...
@overload
def clone(x: Array, *, writes: Writes = ...) -> Array: ...
@overload
def clone(x: Tensor, *, writes: Writes = ...) -> Tensor: ...
@overload
def clone(x: Modules, *, writes: Writes = ...) -> Modules: ...
@overload
def clone(x: Training, *, writes: Writes = ...) -> Training: ...


def clone(x: Any, *, writes: Writes | None = None) -> Any:
    """A copy of `x` that shares its pages: an array, tensor or Storage like `x`.

    Copies nothing, for any size, if `x` lies in a storage and little of the storage was written
    since its last clone, and if clones of this place of the program are not mostly rewritten. The
    kernel copies a page when either side writes it first.

    These are copied at once: arrays below 384 KiB, shared arrays, mapped files, foreign memory
    (which the engine did not allocate), and storages that were mostly rewritten since a clone.
    stats()["fallbacks"] counts the last two as "foreign" and "rewritten".

    writes: how much of the clone will be written. "some": little, so nothing is copied now. "all"
    copies all of it now, by all processors and into huge pages, several times as fast as page by
    page. "auto", the default, learns for each place of the program which of the two pays. The
    first clone of a place is copied, if memory allows; a Storage is cloned as "some". The
    environment variable COWSHED_WRITES has another default.

    `x` may also be a module of PyTorch, or a data frame or a series of pandas. Then all large parts
    are cloned as "some", and the rest is a copy: parameters stay parameters, with `requires_grad`
    but without gradients; columns of Python objects become other objects.

    An optimizer of PyTorch is cloned together with its module, in a tuple: model, optimizer =
    cowshed.clone((model, optimizer)). The new optimizer changes the parameters of the new module.
    Its state is cloned, and hooks of the optimizer are left out, as by copy.deepcopy(). The tuple
    may also have schedulers, and more modules and optimizers.

    A clone has the type of `x`, as numpy.ndarray.copy() keeps it: a matrix stays a matrix. Of a
    numpy.memmap it is a plain array, since its memory is no file's.

    A clone is private to this process, also if `x` is shared. Bytes that another thread wrote
    before the call are in the clone; bytes that it writes during the call may be. TypeError: `x`
    is none of these, or has Python objects. ValueError: other `writes`.
    """
    if writes is None:
        writes = _writes.default
    else:
        _writes.check(writes)
    copy = tiny.get(type(x)) or _tiny_of(x)
    if copy is not None:
        new = copy(x)
        if new is not None:
            return new
    if writes != "some" and not (_is_tensor(x) and x.nbytes < SMALL):
        return _writes.clone(_clone, x, writes, 1)
    return _clone(x)


# {type: makes a copy on the heap of an array of that type, or returns None if it is not tiny}
tiny = {}


def _tiny_of(x):
    """Enters NumPy's arrays into the table, once there is NumPy. PyTorch's enter themselves."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(x) is numpy.ndarray:
        tiny[numpy.ndarray] = _copy_tiny
        return _copy_tiny
    return None


def _copy_tiny(x):
    if x.nbytes >= TINY or x.dtype.hasobject:
        return None
    if x.base is not None:
        check_file(x)
    begin = _cowshed.begin_site()
    result = x.copy("A")
    if begin:
        _cowshed.note_site(begin, 0, result.nbytes)
    return result


def _is_whole(x):
    """Whether it is an object of PyTorch or pandas that clone() takes."""
    from . import _whole

    return _whole.is_module(x) or _whole.is_frame(x) or _whole.is_training(x)


def _clone(x):
    if isinstance(x, _cowshed.Storage):
        return x.clone()
    if _is_tensor(x):
        return _of_torch().clone_some(x)
    if not _is_ndarray(x) and _is_whole(x):
        from . import _whole

        return _whole.clone(x)
    _check_array(x, "clone")
    region = region_of(x)
    if region is None:
        return _copy(x)
    if region.nbytes < SMALL:
        return copy_small(x)
    if region.storage.kind != "own":
        return _copy(x)  # only the part: not the whole file or shared memory
    if x.nbytes > region.nbytes:
        return _copy(x)  # elements overlap; in a copy each one has its own bytes
    return _on(region.storage.clone(), x, region.offset)


def copy_small(x):
    """A copy that the engine has no part in. Its call site is counted here."""
    begin = _cowshed.begin_site()
    result = typed(array(x, shared=False), x)
    _cowshed.note_site(begin, 0, result.nbytes)
    return result


def _copy(x):
    """An eager copy. The engine counts it as a clone of foreign memory."""
    numpy = _numpy()
    return typed(_plain_copy(numpy, x), x)


def _plain_copy(numpy, x):
    x = x.view(numpy.ndarray)  # the code below means elements, whatever a subclass does
    if x.nbytes == 0:
        return _make(x.shape, x.dtype, "C", False, False)
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        check_file(x)
        x = numpy.ascontiguousarray(x)
    order = "C" if x.flags.c_contiguous else "F"
    # As bytes, since arrays of dates have no buffer.
    storage = _cowshed.clone_foreign((x if order == "C" else x.T).reshape(-1).view("u1"))
    enter(storage)
    return numpy.ndarray(x.shape, x.dtype, storage, order=order)


@overload
def share(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def share(x: Array) -> Array: ...
@overload
def share(x: Tensors) -> Tensors: ...
@overload
def share(x: Modules) -> Modules: ...


def share(x: Any) -> Any:
    """An array, tensor or Storage with the bytes of `x` that several processes can write.

    A module of PyTorch is moved in place, too: all of its parameters and buffers.

    Returns `x` itself if it is shared already. Else copies its bytes once, and `x` stays as it
    is: write and send the array that is returned. A tensor is moved in place, as by
    Tensor.share_memory_(). The memory is freed when the last array on it is gone, in any process.
    TypeError: as clone(), and for an optimizer: share its module, and make an optimizer in each
    process.
    """
    if isinstance(x, _cowshed.Storage):
        if x.kind == "alias":
            return x
        storage = _family.alias_storage(x.nbytes)
        memoryview(storage)[:] = x
        return storage
    if _is_tensor(x):
        from . import torch

        return torch.share(x)
    if not _is_ndarray(x) and _is_whole(x):
        from . import _whole

        return _whole.share(x)
    _check_array(x, "share")
    if is_shared(x):
        return x
    return typed(array(x, shared=True), x)


def is_shared(x: object) -> bool:
    """Whether other processes that have `x` write the same memory. Copies nothing.

    Of a module of PyTorch: whether that is so for all of its parameters and buffers.
    """
    if _is_tensor(x):
        from . import torch

        return torch.is_shared(x)
    from . import _whole

    if _whole.is_module(x):
        return _whole.is_shared(x)
    region = region_of(x)
    storage = region.storage if region else owner_of(x)
    return storage is not None and storage.kind == "alias"


@overload
def freeze(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def freeze(x: Array) -> Array: ...
@overload
def freeze(x: Tensor) -> Tensor: ...


def freeze(x: Any) -> Any:
    """The bytes of `x`, read-only for ever: an array, tensor or Storage like `x`.

    Sending a frozen array copies nothing, on either side and any number of times. The kernel
    seals its memory, so receivers can rely on its bytes. freeze() itself copies the bytes once.
    It copies nothing for a large array in a storage of its own that was not written since it
    was sent. `x` stays writable: a write to it copies a page. TypeError: as clone().
    """
    if isinstance(x, _cowshed.Storage):
        return _freeze(x)
    if _is_tensor(x):
        from . import torch

        return torch.freeze(x)
    _check_array(x, "freeze")
    region = region_of(x)
    if region is None or 2 * region.nbytes < region.storage.nbytes:
        x = _copy(x)
        region = region_of(x)
    if region is None:
        x.flags.writeable = False  # no bytes
        return x
    return _on(_freeze(region.storage), x, region.offset)


def _freeze(storage):
    import os

    if storage.readonly and storage.kind == "own":  # other programs can write a file
        return storage
    if not storage.nbytes:
        return storage.clone(readonly=True)
    if storage.kind != "own":
        storage = storage.clone()
    fd, offset = storage.export(_cowshed.SEALED)
    try:
        return _cowshed.import_fd(fd, offset, storage.nbytes, _cowshed.SEALED)
    finally:
        os.close(fd)
