# SPDX-License-Identifier: MIT
"""Tensors and PyTorch storages in messages.

A tensor is sent as the region of the storage that it can reach, and the place of the region in its
PyTorch storage. So tensors that view one PyTorch storage do so in the receiver, too.

As an alias, the tensor itself moves to shared memory before it is sent, as in PyTorch. That moves
the whole PyTorch storage, once: other views of a matrix must see writes to a row that was sent.

As a clone, a tensor in foreign memory is copied once, with its whole PyTorch storage. If it
reaches less than a quarter of a large PyTorch storage, of which the message has nothing so far, it
is copied alone. So sending a row does not copy the matrix. But two such rows do not view one
storage in the receiver.

A tensor of a file that is mapped "r+" is sent as the file, in both modes. The receiver opens the
file itself, and all processes write the same bytes. A tensor of a file in another mode is copied,
as foreign memory is.

As in PyTorch, some tensors are refused and some attributes are dropped. PyTorch's own reducers
take apart tensors of several parts (sparse, nested) and tensors of other devices; their parts come
back to the reducers of this file.
"""

import ctypes
import sys

import torch
from torch.multiprocessing import reductions
from torch.utils.hooks import warn_if_has_hooks

from .. import _cowshed
from .._memory import _family, _reducers, _regions
from .._memory._regions import Region
from .._pyobjects import _pickle
from . import _storages, _tensors

# True while install() is in force: tensors are aliases in both sharing modes.
always_alias = False


def wants_alias(message):
    """Whether tensors of this message are sent as aliases."""
    return always_alias or message.mode == _cowshed.ALIAS


# ---- Tensors -----------------------------------------------------------------------------


def reduce_tensor(t):
    """The reducer for exactly Tensor and Parameter. Subclasses have reducers of their own."""
    kind = type(t)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return NotImplemented
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            f"a tensor of size {tuple(t.size())} requires_grad and is not a leaf, and its history "
            "can't be sent. Send t.detach(), or compute the tensor in the receiver"
        )
    if getattr(t, "has_names", bool)():
        raise RuntimeError(f"a tensor with named dimensions {t.names} can't be sent: send "
                           "t.rename(None), and the names separately")
    if t.layout != torch.strided or t.is_nested or t.device.type != "cpu":
        return reductions.reduce_tensor(t)
    warn_if_has_hooks(t)
    message = _pickle.current()
    small = _small_alone(t, message.mode)
    if small is not None:
        return small
    whole = t.untyped_storage()
    if whole.device.type != "cpu":
        return NotImplemented
    first, end = _tensors.span(t)
    place, whole = _placed(whole, message, t) if end > first else (None, whole)
    more = _more(t, kind)
    if place is not None:
        region = Region(place.storage, place.offset + first, end - first)
        return rebuild_tensor, (region, t.dtype, tuple(t.size()), t.stride(), first,
                                whole.nbytes(), *more)
    if end == first:
        return rebuild_from, (torch.UntypedStorage(0), t.dtype, 0, tuple(t.size()), t.stride(),
                              *more)
    sent = message.memo.setdefault("torch storages", set())
    if 4 * (end - first) < whole.nbytes() >= _pickle.SMALL and whole._cdata not in sent:
        part = _storages.buffer(whole, first, end)
        nbytes = end - first
        if nbytes < _pickle.SMALL:
            part = _Bytes(bytes(part))
            return rebuild_from, (part, t.dtype, 0, tuple(t.size()), t.stride(), *more)
        return rebuild_tensor, (message.place(part), t.dtype, tuple(t.size()), t.stride(), 0,
                                nbytes, *more)
    sent.add(whole._cdata)
    return rebuild_from, (whole, t.dtype, t.storage_offset(), tuple(t.size()), t.stride(), *more)


def _references(whole):
    """The reference counts of a PyTorch storage and of its Python object."""
    return torch._C._storage_Use_Count(whole._cdata), sys.getrefcount(whole)


def _references_of_one():
    t = torch.empty(1, device="cpu")
    whole = t.untyped_storage()
    return _references(whole)


# The counts for a PyTorch storage with one tensor. None: this PyTorch does not tell them.
_ALONE = None
if hasattr(torch._C, "_storage_Use_Count"):
    _ALONE = _references_of_one()
_NAMES = {d: name for name, d in sorted(vars(torch).items()) if isinstance(d, torch.dtype)}


def is_small(t):
    """Whether a tensor is sent in microseconds, with its whole PyTorch storage."""
    return (t.layout == torch.strided and t.device.type == "cpu" and not t.requires_grad
            and not t.is_nested and t.untyped_storage().nbytes() < _pickle.SMALL)


def _small_alone(t, mode):
    """How to send a tensor that is all of a small PyTorch storage, or None.

    If no other tensor views the storage, the bytes are sent as those of a small array. The
    receiver needs a common storage only for several views.
    """
    if (mode == _cowshed.ALIAS or always_alias or not _ALONE
            or type(t) is not torch.Tensor or t.layout != torch.strided or t.device.type != "cpu"
            or t.requires_grad or t.is_nested or t.is_quantized or t.is_conj() or t.is_neg()
            or getattr(t, "has_names", bool)() or t._backward_hooks):
        return None
    whole = t.untyped_storage()
    nbytes = whole.nbytes()
    if not (0 < nbytes < _pickle.SMALL and _references(whole) == _ALONE and t.is_contiguous()
            and t.nbytes == nbytes and _storages.region(whole, t) is None):
        return None
    return rebuild_small, (ctypes.string_at(_regions.address_of_tensor(t), nbytes), _NAMES[t.dtype],
                           tuple(t.size()))


def rebuild_small(data, dtype, size):
    """A tensor with these bytes, in memory of PyTorch."""
    t = torch.empty(size, dtype=getattr(torch, dtype), device="cpu")
    ctypes.memmove(t.data_ptr(), data, len(data))
    return t


def _placed(whole, message, tensor=None):
    """(the region of a PyTorch storage or None, the PyTorch storage).

    In alias mode it is moved to shared memory first.
    """
    if wants_alias(message):
        whole = _storages.share(whole, () if tensor is None else (tensor,),
                                lambda nbytes: _alias(message, nbytes))
    return _storages.sendable(_storages.region(whole)), whole


def _alias(message, nbytes):
    """A region of shared memory. If a message has many, they are packed into few storages."""
    if len(message._rows) < _pickle.PARCELS or nbytes > _pickle.PACK:
        return Region(_family.alias_storage(nbytes), 0, nbytes)
    pack, used = message.memo.get("torch", (None, _pickle.PACK))
    if used + nbytes > _pickle.PACK:
        pack, used = _family.alias_storage(_pickle.PACK), 0
    message.memo["torch"] = pack, used + nbytes + -nbytes % 64
    return Region(pack, used, nbytes)


def _more(t, kind):
    """The rarer attributes: (is it a Parameter, requires_grad, conj and neg, quantizer), or ()."""
    parameter = kind is torch.nn.Parameter
    bits = tuple(torch._utils.get_tensor_metadata(t))
    quantizer = _tensors.quantizer(t) if t.is_quantized else None
    if not parameter and not t.requires_grad and not bits and quantizer is None:
        return ()
    return parameter, t.requires_grad, bits, quantizer


def _writable(storage):
    """The storage itself; or, for a readonly storage, its clone for this message."""
    if not storage.readonly:
        return storage
    clones = _pickle.clones()
    if storage not in clones:
        clones[storage] = storage.clone()
    return clones[storage]


def rebuild_tensor(region, dtype, size, stride, first, nbytes, *more):
    """A tensor on a region, which begins at byte `first` of the sender's PyTorch storage."""
    storage, offset, _ = region
    if offset < first or offset - first + nbytes > storage.nbytes:
        # The message has only a part of the storage, and elements may begin at any byte of it.
        rest = offset % dtype.itemsize
        first, nbytes = offset - rest, storage.nbytes - rest
    whole = _storages.untyped(_writable(storage), offset - first, nbytes)
    return rebuild_from(whole, dtype, first // dtype.itemsize, size, stride, *more)


def rebuild_from(whole, dtype, offset, size, stride, parameter=False, requires_grad=False,
                 bits=(), quantizer=None):
    """A tensor on a PyTorch storage. offset and stride: in elements."""
    t = _tensors.build(whole, dtype, offset, size, stride, quantizer)
    if bits:
        torch._utils.set_tensor_metadata(t, dict.fromkeys(bits, True))
    if parameter:
        return torch.nn.Parameter(t, requires_grad)
    return t.requires_grad_() if requires_grad else t


# ---- Storages ----------------------------------------------------------------------------


class _Bytes:
    """A small PyTorch storage that no other tensor views."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return rebuild_bytes, (self.data,)


def reduce_storage(whole):
    """The reducer for UntypedStorage."""
    kind = whole.device.type
    if kind != "cpu":
        return reductions.reduce_storage(whole)
    nbytes = whole.nbytes()
    if nbytes == 0:
        return torch.UntypedStorage, (0,)
    message = _pickle.current()
    place, whole = _placed(whole, message)
    if place is not None:
        return rebuild_storage, (Region(place.storage, place.offset, nbytes),)
    if wants_alias(message) and whole.filename is not None:
        return torch.UntypedStorage.from_file, (whole.filename, True, nbytes)
    if wants_alias(message) and _storages.torch_is_shared(whole):
        return reductions.reduce_storage(whole)
    part = _storages.buffer(whole, 0, nbytes)
    if nbytes < _pickle.SMALL:
        return rebuild_bytes, (bytes(part),)
    return rebuild_storage, (message.place(part),)


def rebuild_storage(region):
    """The PyTorch storage on a region."""
    storage, offset, nbytes = region
    return _storages.untyped(_writable(storage), offset, nbytes)


def rebuild_bytes(data):
    """A PyTorch storage with these bytes, in memory of PyTorch."""
    whole = torch.UntypedStorage(len(data))
    _storages.buffer(whole, 0, len(data))[:] = data
    return whole


def _reduce_typed(typed):
    if type(typed) is torch.storage.TypedStorage:
        return reductions.reduce_typed_storage(typed)
    return reductions.reduce_typed_storage_child(typed)


_reducers.register(torch.Tensor, reduce_tensor, is_small, _small_alone)
_reducers.register(torch.UntypedStorage, reduce_storage)
_reducers.register(torch.storage.TypedStorage, _reduce_typed)
_reducers.register(torch.storage._LegacyStorage, _reduce_typed)
