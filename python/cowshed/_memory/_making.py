# SPDX-License-Identifier: MIT
"""Making NumPy arrays on storages, by the names of NumPy: empty(), zeros(), arange() and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ._names import keep
from ._ndarrays import _make, _numpy, array, sizes, typed

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._types import Array, Of, Order, OrderLike, Scalar, Shape

__name__ = keep(__name__)


@overload
def empty(shape: Shape, dtype: None = ..., order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[float64]: ...
@overload
def empty(shape: Shape, dtype: Of[Scalar], order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def empty(shape: Shape, dtype: DTypeLike, order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[Any]: ...


def empty(shape: Shape, dtype: Any = None, order: Order = "C", *,
          shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.empty(), on a storage of its own. (Below 4 KiB: on the heap.)

    shape: a size or a sequence of sizes. dtype: None means float64. order: "C" or "F". shared: True
    if processes that get the array shall write the same memory; None means True in the sharing
    mode "alias".

    Takes microseconds for any size: the kernel gives the pages when they are touched.
    ValueError: a dtype of Python objects, a negative size, more bytes than any memory has, or
    another order. MemoryError: the address space is too small.
    """
    return _make(shape, dtype, order, False, shared)


@overload
def zeros(shape: Shape, dtype: None = ..., order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[float64]: ...
@overload
def zeros(shape: Shape, dtype: Of[Scalar], order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def zeros(shape: Shape, dtype: DTypeLike, order: Order = ..., *,
          shared: bool | None = ...) -> NDArray[Any]: ...


def zeros(shape: Shape, dtype: Any = None, order: Order = "C", *,
          shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.zeros(), on a storage of its own. Arguments and errors: see empty()."""
    return _make(shape, dtype, order, True, shared)


@overload
def ones(shape: Shape, dtype: None = ..., order: Order = ..., *,
         shared: bool | None = ...) -> NDArray[float64]: ...
@overload
def ones(shape: Shape, dtype: Of[Scalar], order: Order = ..., *,
         shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def ones(shape: Shape, dtype: DTypeLike, order: Order = ..., *,
         shared: bool | None = ...) -> NDArray[Any]: ...


def ones(shape: Shape, dtype: Any = None, order: Order = "C", *,
         shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.ones(), on a storage of its own. See empty(). Writes all bytes."""
    result = _make(shape, dtype, order, False, shared)
    result[...] = 1
    return result


@overload
def full(shape: Shape, value: ArrayLike, dtype: Of[Scalar], order: Order = ..., *,
         shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def full(shape: Shape, value: ArrayLike, dtype: DTypeLike | None = ..., order: Order = ..., *,
         shared: bool | None = ...) -> NDArray[Any]: ...


def full(shape: Shape, value: ArrayLike, dtype: Any = None, order: Order = "C", *,
         shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.full(), on a storage of its own. Arguments and errors: see empty().

    value: a number, or an array that is broadcast to the shape. Writes all bytes.
    """
    numpy = _numpy()
    if dtype is None:
        dtype = numpy.asarray(value).dtype
    result = _make(shape, dtype, order, False, shared)
    result[...] = value
    return result


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None, *,
           shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.arange(), on a storage of its own. See empty(). Writes all bytes."""
    numpy = _numpy()
    if stop is None:
        start, stop = 0, start
    return array(numpy.arange(start, stop, step, dtype), shared=shared)


@overload
def empty_like(x: Array, dtype: None = ..., order: OrderLike = ..., subok: bool = ...,
               shape: None = ..., *, shared: bool | None = ...) -> Array: ...
@overload
def empty_like(x: Any, dtype: Of[Scalar], order: OrderLike = ..., subok: bool = ...,
               shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def empty_like(x: Any, dtype: DTypeLike | None = ..., order: OrderLike = ..., subok: bool = ...,
               shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Any]: ...


def empty_like(x: Any, dtype: Any = None, order: OrderLike = "K", subok: bool = True,
               shape: Shape | None = None, *, shared: bool | None = None) -> Any:
    """An array as of numpy.empty_like(), on a storage of its own. See empty().

    order: "K" keeps the order of the dimensions in memory. subok: whether a subclass is kept.
    """
    return _like(x, dtype, order, subok, shape, shared, False)


@overload
def zeros_like(x: Array, dtype: None = ..., order: OrderLike = ..., subok: bool = ...,
               shape: None = ..., *, shared: bool | None = ...) -> Array: ...
@overload
def zeros_like(x: Any, dtype: Of[Scalar], order: OrderLike = ..., subok: bool = ...,
               shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def zeros_like(x: Any, dtype: DTypeLike | None = ..., order: OrderLike = ..., subok: bool = ...,
               shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Any]: ...


def zeros_like(x: Any, dtype: Any = None, order: OrderLike = "K", subok: bool = True,
               shape: Shape | None = None, *, shared: bool | None = None) -> Any:
    """An array as of numpy.zeros_like(), on a storage of its own. See empty_like()."""
    return _like(x, dtype, order, subok, shape, shared, True)


@overload
def ones_like(x: Array, dtype: None = ..., order: OrderLike = ..., subok: bool = ...,
              shape: None = ..., *, shared: bool | None = ...) -> Array: ...
@overload
def ones_like(x: Any, dtype: Of[Scalar], order: OrderLike = ..., subok: bool = ...,
              shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Scalar]: ...
@overload
def ones_like(x: Any, dtype: DTypeLike | None = ..., order: OrderLike = ..., subok: bool = ...,
              shape: Shape | None = ..., *, shared: bool | None = ...) -> NDArray[Any]: ...


def ones_like(x: Any, dtype: Any = None, order: OrderLike = "K", subok: bool = True,
              shape: Shape | None = None, *, shared: bool | None = None) -> Any:
    """An array as of numpy.ones_like(), on a storage of its own. See empty_like()."""
    result = _like(x, dtype, order, subok, shape, shared, False)
    result[...] = 1
    return result


def full_like(x: Any, value: ArrayLike, dtype: DTypeLike | None = None, order: OrderLike = "K",
              subok: bool = True, shape: Shape | None = None, *,
              shared: bool | None = None) -> NDArray[Any]:
    """An array as of numpy.full_like(), on a storage of its own. See empty_like()."""
    result = _like(x, dtype, order, subok, shape, shared, False)
    result[...] = value
    return result


def _like(x, dtype, order, subok, shape, shared, zero):
    numpy = _numpy()
    # NumPy decides on shape, dtype and order of dimensions. The pages of its array stay untouched.
    like = numpy.empty_like(x, dtype, order, subok, None if shape is None else sizes(shape))
    axes = sorted(range(like.ndim), key=lambda axis: -like.strides[axis])
    plain = _make([like.shape[axis] for axis in axes], like.dtype, "C", zero, shared)
    result = plain.transpose(sorted(range(like.ndim), key=axes.__getitem__))
    return typed(result, like)
