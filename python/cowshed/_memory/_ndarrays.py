# SPDX-License-Identifier: MIT
"""NumPy arrays on storages: making and copying them."""

from __future__ import annotations

import errno
import operator
import os
import sys
from typing import TYPE_CHECKING, Any, overload

from .. import _cowshed
from . import _family
from ._regions import enter, region_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from ._types import Array, Of, OrderLike, Scalar

__name__ = "cowshed._arrays"  # whose name the functions of this file have in pickles

#: Returns the module that makes, clones and shares tensors. cowshed/__init__.py sets it.
of_torch: Any = None
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


def size_of(dtype, shape):
    """The size of a shape in bytes. None: 2**62 or more.

    A size of 0 counts as 1 for that limit, so the other sizes of an empty shape are checked, too.
    """
    count = 1
    for size in shape:
        count *= max(size, 1)
        if count * max(dtype.itemsize, 1) >= 1 << 62:
            return None
    return 0 if 0 in shape else count * dtype.itemsize


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


# {type: makes a copy on the heap of an array of that type, or returns None if it is not tiny}
tiny = {}


def tiny_of(x):
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


def _freeze(storage):
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
