# SPDX-License-Identifier: MIT
"""Cloning, sharing and freezing arrays, and objects that consist of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .. import _cowshed
from . import _family, _ndarrays, _parts, _writes
from ._names import keep
from ._ndarrays import _check_array, _copy, _freeze, _on, array, copy_small, typed
from ._regions import SMALL, is_tensor, owner_of, region_of

if TYPE_CHECKING:
    from torch import Tensor

    from ._types import Array, Modules, Tensors, Training, Writes

__name__ = keep(__name__)


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
    copy = _ndarrays.tiny.get(type(x)) or _ndarrays.tiny_of(x)
    if copy is not None:
        new = copy(x)
        if new is not None:
            return new
    if writes != "some" and not (is_tensor(x) and x.nbytes < SMALL):
        return _writes.clone(_clone, x, writes, 1)
    return _clone(x)


def _is_whole(x):
    """Whether it is an object of PyTorch or pandas that clone() takes."""
    return _parts.is_module(x) or _parts.is_frame(x) or _parts.is_training(x)


def _is_ndarray(x):
    return isinstance(x, _ndarrays._numpy().ndarray)


def _clone(x):
    if isinstance(x, _cowshed.Storage):
        return x.clone()
    if is_tensor(x):
        return _ndarrays.of_torch().clone_some(x)
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
    if is_tensor(x):
        return _ndarrays.of_torch().share(x)
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
    if is_tensor(x):
        return _ndarrays.of_torch().is_shared(x)
    if _parts.is_module(x):
        from . import _whole

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
    if is_tensor(x):
        return _ndarrays.of_torch().freeze(x)
    _check_array(x, "freeze")
    region = region_of(x)
    if region is None or 2 * region.nbytes < region.storage.nbytes:
        x = _copy(x)
        region = region_of(x)
    if region is None:
        x.flags.writeable = False  # no bytes
        return x
    return _on(_freeze(region.storage), x, region.offset)


