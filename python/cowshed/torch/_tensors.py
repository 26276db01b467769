# SPDX-License-Identifier: MIT
"""Tensors on storages: made, cloned, shared, frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from .. import _arrays, _cowshed, _regions
from . import _storages


Size = int | Sequence[int]
_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


def check(t, what):
    """Refuses what has no bytes in the CPU's memory, and says what to do."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{what}() takes a torch.Tensor, not {type(t).__name__}")
    if t.layout != torch.strided or t.is_nested:
        raise TypeError(f"{what}(): a {t.layout} tensor is several tensors, and has no bytes of "
                        "its own: pass its parts (values(), indices() ...)")
    if t.device.type != "cpu" or t.untyped_storage().device.type != "cpu":
        raise TypeError(f"{what}(): the tensor is on {t.device}, and storages are in the CPU's "
                        "memory: pass t.cpu()")


def _keys(t):
    """What PyTorch dispatches a tensor's operations by, in one question."""
    return torch._C._dispatch_keys(t).raw_repr()


with torch.inference_mode(False):  # whoever imports this may be in one
    _PLAIN_KEYS = _keys(torch.empty(0, device="cpu"))
_PLAIN_TYPES = torch.Tensor, torch.nn.Parameter, torch.nn.Buffer


def is_plain(t):
    """Dense, in the CPU's memory, of PyTorch's own type, neither quantized, nor conjugated, ...?

    False for some that are, too, such as those of an inference.
    """
    return type(t) in _PLAIN_TYPES and _keys(t) == _PLAIN_KEYS


def build(whole, dtype, offset, size, stride, quantizer=None):
    """A tensor of a PyTorch storage; offset and stride in elements. quantizer: see below."""
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
    """What `t` is, detached, on another PyTorch storage."""
    result = build(whole, t.dtype, offset, t.size(), t.stride(),
                   quantizer(t) if t.is_quantized else None)
    if t.is_conj() or t.is_neg():
        torch._utils.set_tensor_metadata(result, torch._utils.get_tensor_metadata(t))
    if type(t) not in _PLAIN_TYPES:
        result = result.as_subclass(type(t))
    return result


def quantizer(t):
    """Of a quantized tensor: what PyTorch needs to make it again."""
    scheme = t.qscheme()
    if scheme == torch.per_tensor_affine:
        return scheme, t.q_scale(), t.q_zero_point()
    return scheme, t.q_per_channel_scales(), t.q_per_channel_zero_points(), t.q_per_channel_axis()


def span(t):
    """(first, end): the bytes of its PyTorch storage that a tensor can reach."""
    if t.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.size(), t.stride()))
    first = t.storage_offset()
    return first * t.element_size(), (first + last + 1) * t.element_size()


# ---- Making ------------------------------------------------------------------------------


def empty(*size: Size, dtype: torch.dtype | None = None,
          memory_format: torch.memory_format = torch.contiguous_format,
          requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """As torch.empty(), on a storage of its own.

    shared: other processes that get it write the same memory. None: if the sharing mode is
    "alias". Takes some microseconds, whatever the size; pages come when they are touched.
    """
    return _make(size, dtype, memory_format, requires_grad, shared, False)


def zeros(*size: Size, dtype: torch.dtype | None = None,
          memory_format: torch.memory_format = torch.contiguous_format,
          requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """As torch.zeros(), on a storage of its own. See empty()."""
    return _make(size, dtype, memory_format, requires_grad, shared, True)


def full(size: Size, fill_value: complex, *, dtype: torch.dtype | None = None,
         memory_format: torch.memory_format = torch.contiguous_format,
         requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """As torch.full(), on a storage of its own. See empty()."""
    if dtype is None:
        dtype = torch.full((), fill_value).dtype
    result = _make((size,), dtype, memory_format, False, shared, False)
    return result.fill_(fill_value).requires_grad_(requires_grad)


def empty_like(t: torch.Tensor, *, dtype: torch.dtype | None = None,
               memory_format: torch.memory_format = torch.preserve_format,
               requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """As torch.empty_like(), on a storage of its own. See empty()."""
    shape = torch.empty_like(t, dtype=dtype, device="meta", memory_format=memory_format)
    return _on_new(shape, requires_grad, shared, False)


def zeros_like(t: torch.Tensor, *, dtype: torch.dtype | None = None,
               memory_format: torch.memory_format = torch.preserve_format,
               requires_grad: bool = False, shared: bool | None = None) -> torch.Tensor:
    """As torch.zeros_like(), on a storage of its own. See empty()."""
    shape = torch.empty_like(t, dtype=dtype, device="meta", memory_format=memory_format)
    return _on_new(shape, requires_grad, shared, True)


def tensor(data: Any, *, dtype: torch.dtype | None = None, requires_grad: bool = False,
           shared: bool | None = None) -> torch.Tensor:
    """As torch.tensor(), on a storage of its own: a copy of data, arrays and tensors too.

    For a copy that costs nothing, of what lies in a storage already: clone().
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
    """A tensor laid out as the one on the meta device is."""
    nbytes = shape.untyped_storage().nbytes()
    storage = _arrays.new_storage(nbytes, zero=zero, shared=shared)
    result = build(_storages.untyped(storage, 0, nbytes), shape.dtype, 0, shape.size(),
                   shape.stride())
    return result.requires_grad_(requires_grad)


def from_storage(storage: _cowshed.Storage, dtype: torch.dtype = torch.uint8,
                 size: Size | None = None, stride: Sequence[int] | None = None,
                 offset: int = 0) -> torch.Tensor:
    """A tensor of bytes of a storage, which lives as long as the tensor does.

    size: None: one dimension, as long as it gets. stride: in elements; None: contiguous.
    offset: in bytes, a multiple of the dtype's size. PyTorch knows no read-only tensors: on a
    read-only storage each gets a clone, whose pages are copied when they are written.
    """
    if not isinstance(storage, _cowshed.Storage):
        raise TypeError(f"from_storage() takes a Storage, not {type(storage).__name__}")
    itemsize = dtype.itemsize
    if offset % itemsize or not 0 <= offset <= storage.nbytes:
        raise ValueError(f"offset {offset}: a multiple of {itemsize} in a storage of "
                         f"{storage.nbytes} bytes")
    if size is None:
        size = ((storage.nbytes - offset) // itemsize,)
    shape = torch.empty(size, dtype=dtype, device="meta")
    if stride is not None:
        shape = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    if offset + shape.untyped_storage().nbytes() > storage.nbytes:
        raise ValueError(f"a tensor of size {tuple(shape.size())} and stride {shape.stride()} at "
                         f"{offset} ends after the storage of {storage.nbytes} bytes")
    whole = _storages.untyped(storage.clone() if storage.readonly else storage)
    return build(whole, dtype, offset // itemsize, shape.size(),
                 shape.stride())


# ---- What can be done with those that are there ------------------------------------------


def storage_of(t: torch.Tensor) -> _cowshed.Storage | None:
    """The Storage in which a tensor lies, or None: foreign memory, or another device."""
    return _regions.storage_of(t)


def clone(t: torch.Tensor) -> torch.Tensor:
    """The same bytes, written by nobody else: size, stride, dtype and type as those of `t`.

    Takes some microseconds if `t` lies in a storage of its own that was hardly written since
    its last clone: the whole storage is cloned, and pages are copied when either side writes
    them. All else is copied at once, as cowshed.clone() says; of what is shared or mapped from
    a file that is what `t` spans, from its lowest byte to its highest, and no more. Never shared
    with other processes. The result is a leaf without history, as of t.detach(), and a
    Parameter's is a plain tensor. (torch.clone() and torch._lazy_clone() are differentiable,
    which this is not. It does not need PyTorch's own copy-on-write either, whose clones are
    copied whole by whoever asks for their data_ptr().)
    """
    plain = is_plain(t)
    if not plain:
        check(t, "clone")
    whole = t.untyped_storage()
    # The code of each question to PyTorch has to come from memory after a large tensor was
    # written, so a few questions are a good part of the clone.
    if plain and t.nbytes == whole.nbytes() >= _arrays.SMALL:
        place = _storages.region(whole)
        if place is not None and _by_storage(place.storage, place.nbytes):
            new = _storages.fresh(place.storage.clone(), place.offset, place.nbytes, t.dtype)
            return new.set_(new.untyped_storage(), t.storage_offset(), t.size(), t.stride())
    first, end = span(t)
    place = _storages.region(whole) if end > first else None
    large = end - first >= _arrays.SMALL
    if place is not None and large and _by_storage(place.storage, end - first):
        new = place.storage.clone()
        return like(t, _storages.untyped(new, place.offset, whole.nbytes()), t.storage_offset())
    return _copy(t, first, end, place is None or large)


def _by_storage(storage, nbytes):
    """Is it the storage that is cloned for these bytes of it? That shares the pages of one's own,
    whatever its size; but it copies all of what others write or a file has."""
    return storage.kind == "own" or nbytes == storage.nbytes


def _copy(t, first, end, foreign):
    """The bytes that a tensor can reach, copied now."""
    if end == first:
        new = _cowshed.new(0)
    elif foreign:
        new = _cowshed.clone_foreign(_storages.buffer(t.untyped_storage(), first, end))
    else:
        new = _cowshed.new(end - first)
    target = _storages.untyped(new)
    if end > first and not foreign:
        _storages.as_bytes(target).copy_(_storages.as_bytes(t.untyped_storage())[first:end])
    return like(t, target, 0)


def share(t: _Tensor) -> _Tensor:
    """As Tensor.share_memory_(): the same tensor, in memory that several processes write.

    Nothing happens if it is shared already. Else its bytes are copied once, and all tensors
    that view the same PyTorch storage are in shared memory from then on. Before PyTorch 2.12
    that is true of `t` alone: share a tensor before you make views of it there. A tensor of a
    file that is mapped "r+" is shared as it is: by all who map the file. Tensors of other
    devices are left to PyTorch, sparse and nested ones are shared piece by piece.
    """
    for part in parts(t):
        if part.device.type != "cpu":
            part.share_memory_()
        else:
            check(part, "share")
            _storages.share(part.untyped_storage(), [part])
    return t


def is_shared(t: torch.Tensor) -> bool:
    """Do other processes that have `t` write the same memory?"""
    return all(_is_shared(part) for part in parts(t))


def _is_shared(t):
    if t.device.type != "cpu":
        return t.is_shared()
    return _storages.is_shared(t.untyped_storage())


def parts(t):
    """The strided tensors of which a tensor consists."""
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
    """The bytes of `t` as they are now, for sending them any number of times.

    A tensor like `t` on pages that never change: nothing is copied any more by clones of it
    and by sending it. PyTorch knows no read-only tensors: who writes it gets pages of his own.
    Copies once, but for tensors that lie in a storage of their own.
    """
    check(t, "freeze")
    first, end = span(t)
    if end == first:
        return clone(t)
    whole = t.untyped_storage()
    place = _storages.region(whole)
    # Of what is shared or mapped all that is taken would be copied.
    if place is None or place.storage.kind != "own" or 2 * (end - first) < place.storage.nbytes:
        t = _copy(t, first, end, place is None)
        whole, place = t.untyped_storage(), _storages.region(t.untyped_storage())
    new = _arrays._freeze(place.storage).clone()
    return like(t, _storages.untyped(new, place.offset, whole.nbytes()), t.storage_offset())
