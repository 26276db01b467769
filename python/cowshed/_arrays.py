# SPDX-License-Identifier: MIT
"""NumPy arrays on storages, and what can be done with any array that lies in one."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _cowshed, _family
from ._regions import enter, owner_of, region_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray
    from torch import Tensor

    from ._types import Order, Shape, Tensors

# Below this a copy is cheaper than pages of one's own (core/storage/clone.c has the same).
SMALL = 384 << 10


def _numpy():
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            "this makes NumPy arrays: install numpy (cowshed.torch makes tensors)"
        ) from error
    return numpy


def new_storage(nbytes, *, zero=False, shared=None):
    """A writable storage for an array: shared or not, None: as the sharing mode says."""
    if shared is None:
        shared = _family.get_sharing_mode() == "alias"
    if shared:
        return _family.alias_storage(max(nbytes, 1))
    return _cowshed.new(nbytes, zero=zero)


def array_on(storage, dtype, shape, offset=0, strides=None):
    """A NumPy array of bytes of a storage, which lives as long as the array does."""
    numpy = _numpy()
    enter(storage)
    return numpy.ndarray(shape, dtype, storage, offset, strides)


def empty(shape: Shape, dtype: DTypeLike = "float64", order: Order = "C", *,
          shared: bool | None = None) -> NDArray[Any]:
    """As numpy.empty(), on a storage of its own.

    shared: other processes that get it write the same memory. None: if the sharing mode is
    "alias". Takes some microseconds, whatever the size; pages come when they are touched.
    """
    return _make(shape, dtype, order, False, shared)


def zeros(shape: Shape, dtype: DTypeLike = "float64", order: Order = "C", *,
          shared: bool | None = None) -> NDArray[Any]:
    """As numpy.zeros(), on a storage of its own. See empty()."""
    return _make(shape, dtype, order, True, shared)


def full(shape: Shape, value: ArrayLike, dtype: DTypeLike | None = None, order: Order = "C", *,
         shared: bool | None = None) -> NDArray[Any]:
    """As numpy.full(), on a storage of its own. See empty()."""
    numpy = _numpy()
    if dtype is None:
        dtype = numpy.asarray(value).dtype
    result = empty(shape, dtype, order, shared=shared)
    result[...] = value
    return result


def array(x: Any, dtype: DTypeLike | None = None, order: Literal["C", "F", "K"] = "K", *,
          shared: bool | None = None) -> NDArray[Any]:
    """A copy of an array-like, a tensor or a buffer, on a storage of its own. See empty().

    For a copy that costs nothing, of what lies in a storage already: clone().
    """
    source = _numpy().asarray(x, dtype)
    if order == "K":
        order = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
    result = empty(source.shape, source.dtype, order, shared=shared)
    result[...] = source
    return result


def _make(shape, dtype, order, zero, shared):
    numpy = _numpy()
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise ValueError("Python objects can't lie in a storage: use a dtype of plain bytes")
    if order not in ("C", "F"):
        raise ValueError(f"order {order!r}: there are 'C' and 'F'")
    shape = sizes(shape)
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    if nbytes < 0 or any(size < 0 for size in shape):
        raise ValueError(f"negative sizes: {shape}")
    storage = new_storage(nbytes, zero=zero, shared=shared)
    enter(storage)
    return numpy.ndarray(shape, dtype, storage, order=order)


def sizes(shape):
    """A shape as a tuple of Python's integers: those of NumPy overflow when multiplied."""
    shape = shape if hasattr(shape, "__iter__") else (shape,)
    return tuple(operator.index(size) for size in shape)


def _is_tensor(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _on(storage, x, offset):
    """What `x` is, on another storage, where its lowest byte is at `offset`."""
    numpy = _numpy()
    # The first element is not the lowest one if a stride is negative.
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
            f"not {type(x).__name__}; for dicts and lists of them: snapshot()"
        )
    if isinstance(x, numpy.ma.MaskedArray):
        raise TypeError(f"{name}(): a masked array is two arrays: use its .data and .mask")
    if x.dtype.hasobject:
        raise TypeError(f"{name}(): an array of Python objects has no bytes to share")


@overload
def clone(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def clone(x: NDArray[Any]) -> NDArray[Any]: ...
@overload
def clone(x: Tensor) -> Tensor: ...


def clone(x: Any) -> Any:
    """The same bytes, written by nobody else: an array, tensor or Storage like `x`.

    Copies nothing if `x` lies in a storage of its own that was hardly written since its last
    clone, whatever its size: pages are copied when either side writes them first. Copied at
    once are small arrays, shared ones, mapped files, what was mostly rewritten since a clone
    (stats()["fallbacks"]["rewritten"] counts these), and memory of somebody else ("foreign").
    A clone is never shared with other processes, also if `x` is.
    """
    if isinstance(x, _cowshed.Storage):
        return x.clone()
    if _is_tensor(x):
        from . import torch

        return torch.clone(x)
    _check_array(x, "clone")
    region = region_of(x)
    if region is None:
        return _copy(x)
    if region.nbytes < SMALL:
        return array(x, shared=False)
    if region.storage.kind != "own":
        return _copy(x)  # and not the whole file, or what others write
    if x.nbytes > region.nbytes:
        return _copy(x)  # elements that lie on each other: each is written alone in a copy
    return _on(region.storage.clone(), x, region.offset)


def _copy(x):
    """An eager copy, which the engine counts as one of foreign memory."""
    numpy = _numpy()
    if x.nbytes == 0:
        return _make(x.shape, x.dtype, "C", False, False)
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = numpy.ascontiguousarray(x)
    order = "C" if x.flags.c_contiguous else "F"
    # As bytes: dates, for one, have no buffers.
    storage = _cowshed.clone_foreign((x if order == "C" else x.T).reshape(-1).view("u1"))
    enter(storage)
    return numpy.ndarray(x.shape, x.dtype, storage, order=order)


@overload
def share(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def share(x: NDArray[Any]) -> NDArray[Any]: ...
@overload
def share(x: Tensors) -> Tensors: ...


def share(x: Any) -> Any:
    """An array, tensor or Storage with the bytes of `x` that several processes write.

    `x` itself if it is shared already. Else its bytes are copied once: `x` stays as it is, and
    the array that comes back is the one to write and to send. (A tensor is changed in place,
    as Tensor.share_memory_() does.)
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
    _check_array(x, "share")
    if is_shared(x):
        return x
    return array(x, shared=True)


def is_shared(x: object) -> bool:
    """Do other processes that have `x` write the same memory?"""
    if _is_tensor(x):
        from . import torch

        return torch.is_shared(x)
    region = region_of(x)
    storage = region.storage if region else owner_of(x)
    return storage is not None and storage.kind == "alias"


@overload
def freeze(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def freeze(x: NDArray[Any]) -> NDArray[Any]: ...
@overload
def freeze(x: Tensor) -> Tensor: ...


def freeze(x: Any) -> Any:
    """The bytes of `x`, read-only for ever: an array, tensor or Storage like `x`.

    To be sent any number of times: nothing is copied any more, on either side, and receivers
    may trust that it does not change. Copies once, but for large arrays that lie in a storage
    of their own and were not written since they were sent; these stay writable through `x`,
    page by page.
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

    if storage.readonly and storage.kind == "own":  # a file is written by others
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
