# SPDX-License-Identifier: MIT
"""Tensors on storages: making, cloning, sharing and freezing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .. import _cowshed
from .._memory import _ndarrays, _regions, _writable, _writes
from .._memory._ndarrays import TINY
from .._memory._regions import SMALL
from . import _storages

if TYPE_CHECKING:
    from .._memory._types import Writes

Size = int | Sequence[int]
_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


def check(t, what):
    """TypeError for an argument without bytes in the memory of the CPU."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{what}() takes a torch.Tensor, not {type(t).__name__}")
    if t.layout != torch.strided or t.is_nested:
        kind = "nested" if t.is_nested else t.layout
        raise TypeError(f"{what}() got a {kind} tensor, which consists of several tensors: pass "
                        "its parts (values(), indices() ...)")
    if t.device.type != "cpu" or t.untyped_storage().device.type != "cpu":
        raise TypeError(f"{what}() got a tensor on {t.device}, but storages are in the CPU's "
                        "memory: pass t.cpu()")


def _keys(t):
    """The dispatch keys of a tensor. PyTorch answers this in one call."""
    return torch._C._dispatch_keys(t).raw_repr()


with torch.inference_mode(False):  # the program may import this in inference mode
    _PLAIN_KEYS = _keys(torch.empty(0, device="cpu"))
_PLAIN_TYPES = torch.Tensor, torch.nn.Parameter, torch.nn.Buffer
_STRIDED = torch.strided
# Elements that are neither conjugate nor quantized.
_REAL = frozenset(dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
                  and not dtype.is_complex and "q" not in str(dtype))


def is_plain(t):
    """Whether a tensor is dense, on the CPU, of a type of PyTorch, and its bytes are its values.

    False for some tensors that are, too, such as inference tensors.
    """
    return type(t) in _PLAIN_TYPES and _keys(t) == _PLAIN_KEYS


def build(whole, dtype, offset, size, stride, quantizer=None):
    """A tensor on a PyTorch storage. offset and stride: in elements. quantizer: of quantizer()."""
    if quantizer is None:
        t = torch.empty(0, dtype=dtype, device="cpu")
    elif quantizer[0] == torch.per_tensor_affine:
        t = torch._empty_affine_quantized(0, dtype=dtype, device="cpu", scale=quantizer[1],
                                          zero_point=quantizer[2])
    else:
        _, scales, zero_points, axis = quantizer
        t = torch._empty_per_channel_affine_quantized(
            size, scales=scales, zero_points=zero_points, axis=axis, dtype=dtype, device="cpu")
    return t.set_(whole, offset, size, stride)


def like(t, whole, offset):
    """A detached tensor with all properties of `t`, on another PyTorch storage."""
    result = build(whole, t.dtype, offset, t.size(), t.stride(),
                   quantizer(t) if t.is_quantized else None)
    if t.is_conj() or t.is_neg():
        torch._utils.set_tensor_metadata(result, torch._utils.get_tensor_metadata(t))
    if type(t) not in _PLAIN_TYPES:
        result = result.as_subclass(type(t))
    return result


def quantizer(t):
    """The parameters of a quantized tensor, with which build() makes such a tensor."""
    scheme = t.qscheme()
    if scheme == torch.per_tensor_affine:
        return scheme, t.q_scale(), t.q_zero_point()
    return scheme, t.q_per_channel_scales(), t.q_per_channel_zero_points(), t.q_per_channel_axis()


def span(t):
    """(first, end): the bytes of its PyTorch storage that a tensor can reach; `end` excluded."""
    if t.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.size(), t.stride()))
    first = t.storage_offset()
    return first * t.element_size(), (first + last + 1) * t.element_size()


# ---- Making ------------------------------------------------------------------------------


def empty(*size: Size, dtype: torch.dtype | None = None,
          memory_format: torch.memory_format = torch.contiguous_format,
          requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.empty(), on a storage of its own, in the memory of the CPU.

    shared: True if processes that get the tensor shall write the same memory; None means True in
    the sharing mode "alias". Takes microseconds for any size: the kernel gives the pages when they
    are touched. MemoryError: the address space is too small.
    """
    return _make(size, dtype, memory_format, requires_grad, shared, False)


def zeros(*size: Size, dtype: torch.dtype | None = None,
          memory_format: torch.memory_format = torch.contiguous_format,
          requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.zeros(), on a storage of its own. See empty()."""
    return _make(size, dtype, memory_format, requires_grad, shared, True)


def full(size: Size, fill_value: complex, *, dtype: torch.dtype | None = None,
         memory_format: torch.memory_format = torch.contiguous_format,
         requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.full(), on a storage of its own. See empty(). Writes all bytes."""
    if dtype is None:
        dtype = torch.full((), fill_value).dtype
    result = _make((size,), dtype, memory_format, False, shared, False)
    return result.fill_(fill_value).requires_grad_(requires_grad)


def empty_like(t: torch.Tensor, *, dtype: torch.dtype | None = None,
               memory_format: torch.memory_format = torch.preserve_format,
               requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.empty_like(), on a storage of its own. See empty()."""
    shape = torch.empty_like(t, dtype=dtype, device="meta", memory_format=memory_format)
    return _on_new(shape, requires_grad, shared, False)


def zeros_like(t: torch.Tensor, *, dtype: torch.dtype | None = None,
               memory_format: torch.memory_format = torch.preserve_format,
               requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.zeros_like(), on a storage of its own. See empty()."""
    shape = torch.empty_like(t, dtype=dtype, device="meta", memory_format=memory_format)
    return _on_new(shape, requires_grad, shared, True)


def tensor(data: Any, *, dtype: torch.dtype | None = None, requires_grad: bool = False,
           shared: bool | None = None) -> torch.Tensor:
    """A tensor as of torch.tensor(), on a storage of its own: a copy of `data`. See empty().

    data: numbers, lists, arrays or tensors. Copies all bytes; clone() copies none of a tensor that
    lies in a storage already.
    """
    if not isinstance(data, torch.Tensor):
        data = torch.as_tensor(data, device="cpu")
    source = data.detach()
    result = empty_like(source, dtype=dtype, shared=shared)
    return result.copy_(source).requires_grad_(requires_grad)


def _make(size, dtype, memory_format, requires_grad, shared, zero):
    size = size or ((),)
    shape = torch.empty(*size, dtype=dtype, device="meta", memory_format=memory_format)
    return _on_new(shape, requires_grad, shared, zero)


def _on_new(shape, requires_grad, shared, zero):
    """A tensor with the layout of `shape`, a tensor on the meta device."""
    nbytes = shape.untyped_storage().nbytes()
    storage = _ndarrays.new_storage(nbytes, zero=zero, shared=shared)
    result = build(_storages.untyped(storage, 0, nbytes), shape.dtype, 0, shape.size(),
                   shape.stride())
    return result.requires_grad_(requires_grad)


def from_storage(storage: _cowshed.Storage, dtype: torch.dtype = torch.uint8,
                 size: Size | None = None, stride: Sequence[int] | None = None,
                 offset: int = 0) -> torch.Tensor:
    """A tensor on the bytes of a storage. The tensor keeps the storage alive.

    size: None takes all bytes, in one dimension. stride: in elements; None: contiguous. offset:
    in bytes, a multiple of the dtype's size. PyTorch has no read-only tensors: for a read-only
    storage each call clones the storage, and the kernel copies a page at its first write.

    TypeError: not a Storage. ValueError: the tensor does not fit into the storage.
    """
    if not isinstance(storage, _cowshed.Storage):
        raise TypeError(f"from_storage() takes a Storage, not {type(storage).__name__}")
    itemsize = dtype.itemsize
    if offset % itemsize or not 0 <= offset <= storage.nbytes:
        raise ValueError(f"offset is {offset}: pass a multiple of {itemsize} from 0 to the size of "
                         f"the storage, {storage.nbytes}")
    if size is None:
        size = ((storage.nbytes - offset) // itemsize,)
    shape = torch.empty(size, dtype=dtype, device="meta")
    if stride is not None:
        shape = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    if offset + shape.untyped_storage().nbytes() > storage.nbytes:
        raise ValueError(f"size {tuple(shape.size())}, stride {shape.stride()} and offset {offset} "
                         f"exceed the storage of {storage.nbytes} bytes: pass smaller ones")
    whole = _storages.untyped(storage.clone() if storage.readonly else storage)
    return build(whole, dtype, offset // itemsize, shape.size(),
                 shape.stride())


# ---- Cloning, sharing and freezing -------------------------------------------------------


def storage_of(t: torch.Tensor) -> _cowshed.Storage | None:
    """The Storage in which a tensor lies. None: foreign memory, another device, or no bytes."""
    return _regions.storage_of(t)


def clone(t: torch.Tensor, *, writes: Writes | None = None) -> torch.Tensor:
    """A copy of `t` that shares its pages, with the size, stride, dtype and type of `t`.

    Takes microseconds for any size, if `t` lies in a storage and little of the storage was written
    since its last clone. It clones the whole storage; the kernel copies a page when either side
    writes it first. Other tensors are copied at once, as cowshed.clone() says. Of shared memory or
    a mapped file it copies only what `t` spans, from its lowest byte to its highest.

    writes: see cowshed.clone().

    The clone is private to this process. It is a leaf without history, as of t.detach(); the clone
    of a Parameter is a plain tensor. (Unlike torch.clone() and torch._lazy_clone() it is not
    differentiable. It does not use PyTorch's own copy-on-write, in which a call of data_ptr()
    copies the whole clone.) TypeError: a sparse or nested tensor, or one of another device.
    ValueError: other `writes`.
    """
    writes = _writes.default if writes is None else writes
    _writes.check(writes)
    new = copy_tiny(t)
    if new is not None:
        return new
    if writes != "some" and not (is_plain(t) and t.nbytes < SMALL):
        check(t, "clone")
        return _writes.clone(clone_some, t, writes, 1)
    return clone_some(t)


def clone_some(t):
    """clone(t), of which little will be written."""
    new = copy_tiny(t)
    if new is not None:
        return new
    plain = is_plain(t)
    if not plain:
        check(t, "clone")
    whole = t.untyped_storage()
    # After a write to a large tensor the code of PyTorch is no longer in the CPU's caches. So the
    # calls of PyTorch are a good part of the time of a clone, and this path makes few.
    if plain and t.nbytes == whole.nbytes() >= SMALL:
        place = _storages.region(whole, t)
        if place is not None and _by_storage(place.storage, place.nbytes):
            new = _storages.fresh(place.storage.clone(), place.offset, place.nbytes, t.dtype)
            return new.set_(new.untyped_storage(), t.storage_offset(), t.size(), t.stride())
    first, end = span(t)
    place = _storages.region(whole, t) if end > first else None
    large = end - first >= SMALL
    if place is not None and large and _by_storage(place.storage, end - first):
        new = place.storage.clone()
        return like(t, _storages.untyped(new, place.offset, whole.nbytes()), t.storage_offset())
    return _copy(t, first, end, place is None or large)


def copy_tiny(t):
    """A copy of a tensor that lies on PyTorch's heap (TINY). None: clone() takes another way.

    PyTorch makes the copy. Each line costs a good part of the time that PyTorch needs for it, so
    the lines ask in the cheapest way. A complex tensor asks is_plain(), as it may be conjugate.
    """
    if type(t) not in _PLAIN_TYPES or not t.is_cpu or t.layout is not _STRIDED or t.is_nested \
            or t.nbytes >= TINY or not (t.dtype in _REAL and not t.is_neg() or is_plain(t)):
        return None
    begin = _cowshed.begin_site()
    if t.requires_grad:
        t = t.detach()
    if _regions.has_files:
        _check_file(t)
    new = t.clone()
    if not t.is_contiguous() and new.stride() != t.stride():
        # PyTorch has left out what lies between the elements, or where they overlap.
        low, high = span(t)
        if high - low >= TINY:
            return None
        step = t.itemsize
        new = t.as_strided(((high - low) // step,), (1,), low // step).clone()
        new = build(new.untyped_storage(), t.dtype, 0, t.size(), t.stride())
    if begin:
        _cowshed.note_site(begin, 0, new.nbytes)
    return new


_ndarrays.tiny.update(dict.fromkeys(_PLAIN_TYPES, copy_tiny))


def _check_file(t):
    """OSError (ENODATA): the file of a tensor became shorter."""
    if not _storages.is_lazy(t):
        try:
            address = t.data_ptr()
        except RuntimeError:  # a tensor of tensors, as in vmap()
            return
        first, end = span(t)
        _cowshed.check_file(address, end - first)


def _by_storage(storage, nbytes):
    """Whether the whole storage is cloned for `nbytes` bytes of it.

    Cloning shares the pages of a storage of this process, of any size. But it copies all bytes of
    an alias or a file, so for these only if all bytes are asked for.
    """
    return storage.kind == "own" or nbytes == storage.nbytes


def _copy(t, first, end, foreign):
    """An eager copy of the bytes that a tensor can reach."""
    if end == first:
        new = _cowshed.new(0)
    elif foreign:
        new = _cowshed.clone_foreign(_storages.buffer(t.untyped_storage(), first, end))
    else:
        new = _cowshed.new(end - first)
    target = _storages.untyped(new)
    if end > first and not foreign:
        _cowshed.check_file(t.untyped_storage().data_ptr() + first, end - first)
        _storages.as_bytes(target).copy_(_storages.as_bytes(t.untyped_storage())[first:end])
    return like(t, target, 0)


def writable(t: torch.Tensor) -> torch.Tensor:
    """The bytes of `t`, to be written by this process alone: see cowshed.writable().

    Copies nothing of a large tensor that lies in a file or in shared memory. TypeError: as clone().
    """
    check(t, "writable")
    first, end = span(t)
    whole = t.untyped_storage()
    place = _storages.region(whole, t) if end > first else None
    if place is not None and place.storage.kind == "own":
        return clone_some(t)
    if end - first < SMALL:
        return _copy(t, first, end, False)
    new = _writable.private(_regions.address_of_tensor(t) + first, end - first, whole)
    if new is None:
        return _copy(t, first, end, True)
    return like(t, _storages.untyped(new), 0)


def share(t: _Tensor) -> _Tensor:
    """Moves a tensor to memory that several processes write, as Tensor.share_memory_() does.

    Returns `t`. Does nothing if it is shared already. Else copies its bytes once, and moves all
    tensors that view the same PyTorch storage. Before PyTorch 2.12 it moves `t` only: there, share
    a tensor before you make views of it.

    A tensor of a file that is mapped "r+" is shared already, by all processes that map the file.
    Tensors of other devices are left to PyTorch. Of sparse and nested tensors each part is moved.
    """
    for part in parts(t):
        if part.device.type != "cpu":
            part.share_memory_()
        else:
            check(part, "share")
            _storages.share(part.untyped_storage(), [part])
    return t


def is_shared(t: torch.Tensor) -> bool:
    """Whether other processes that have `t` write the same memory. Copies nothing."""
    return all(_is_shared(part) for part in parts(t))


def _is_shared(t):
    if t.device.type != "cpu":
        return t.is_shared()
    return _storages.is_shared(t.untyped_storage())


def parts(t):
    """The strided tensors that a tensor consists of."""
    if t.layout == torch.sparse_coo:
        return [t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    if t.is_nested and t.layout == torch.strided:
        return [t.values()]
    return [t]


def freeze(t: torch.Tensor) -> torch.Tensor:
    """A tensor like `t`, with its bytes of this moment, on pages that never change.

    Cloning it and sending it copy nothing, any number of times. PyTorch has no read-only tensors:
    the kernel copies a page at its first write. freeze() copies the bytes once; it copies nothing
    for a tensor in a storage of its own. TypeError: as clone().
    """
    check(t, "freeze")
    first, end = span(t)
    if end == first:
        return clone_some(t)
    whole = t.untyped_storage()
    place = _storages.region(whole, t)
    # Freezing an alias, a file, or a storage of which `t` is less than half copies bytes anyway.
    # So copy only the bytes of `t`.
    if place is None or place.storage.kind != "own" or 2 * (end - first) < place.storage.nbytes:
        t = _copy(t, first, end, place is None)
        whole, place = t.untyped_storage(), _storages.region(t.untyped_storage(), t)
    new = _ndarrays._freeze(place.storage).clone()
    return like(t, _storages.untyped(new, place.offset, whole.nbytes()), t.storage_offset())
