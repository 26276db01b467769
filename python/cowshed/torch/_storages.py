# SPDX-License-Identifier: MIT
"""PyTorch storages on storages of the engine.

A PyTorch storage (`UntypedStorage`) is an address, a size and a deleter. If it lies in a storage
of the engine it keeps that alive. There is one PyTorch storage for each region. Tensors that are
made twice of one region, here or by two messages, view one PyTorch storage, so PyTorch's own checks
for aliasing are right.

share() moves memory in place: it puts another address into a PyTorch storage that tensors view
already. PyTorch can do so from 2.12 on (`_swap_data_ptr_`). With an older version the tensors that
the caller passes are moved to another PyTorch storage, one by one.
"""

import ctypes
import os
import threading

import torch
from torch.multiprocessing.reductions import SharedCache, StorageWeakRef

from .. import _cowshed
from .._memory import _family, _regions
from .._states import _files

CAN_SWAP = hasattr(torch.UntypedStorage, "_swap_data_ptr_")

# is_lazy(), in one call.
is_lazy = getattr(torch._C, "_is_cow_tensor", lambda t: False)

# (address, nbytes) -> a weak reference to the PyTorch storage there.
_known = SharedCache()
_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_moves = 0  # how often share() has moved a storage

# PyTorch's own function, also while install() is in force.
torch_is_shared = torch.UntypedStorage.is_shared


def untyped(storage, offset=0, nbytes=None):
    """The PyTorch storage on a part of a writable storage. Sizes in bytes; None: to its end."""
    if nbytes is None:
        nbytes = storage.nbytes - offset
    if nbytes == 0:
        return torch.UntypedStorage(0)
    address = storage.address + offset
    key = address, nbytes
    known = _known.get(key)
    if known is not None:
        found = torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        # A resize or a swap has moved such a storage elsewhere. A lazy clone will be.
        if found is not None and found.nbytes() == nbytes and \
                not is_lazy(as_bytes(found)) and found.data_ptr() == address:
            return found
    result = _fresh(storage, offset, nbytes).untyped_storage()
    _known[key] = StorageWeakRef(result)
    return result


def fresh(storage, offset, nbytes, dtype):
    """A one-dimensional tensor on bytes of a writable storage that no tensor views yet."""
    t = _fresh(storage, offset, nbytes, dtype)
    _known[storage.address + offset, nbytes] = StorageWeakRef(t.untyped_storage())
    return t


def _fresh(storage, offset, nbytes, dtype=torch.uint8):
    _regions.enter(storage, offset)
    return torch.frombuffer(storage, dtype=dtype, count=nbytes // dtype.itemsize, offset=offset)


def region(whole, tensor=None):
    """The Region of a PyTorch storage. None: it lies in foreign memory, or has no bytes.

    tensor: one that views it, if the caller has one. With it a call takes half the time.
    """
    if whole.device.type != "cpu":
        return None
    nbytes = whole.nbytes()
    if not nbytes or is_lazy(as_bytes(whole) if tensor is None else tensor):
        return None
    return _regions.at(whole.data_ptr(), nbytes)


def is_shared(whole):
    """Whether several processes write it: memory of the engine, a file, or memory of PyTorch."""
    if whole.device.type == "cpu" and is_lazy(as_bytes(whole)):
        return False  # a write to it copies it first
    place = region(whole)
    if place is not None:
        return place.storage.kind == "alias" or _files.is_written(place.storage)
    return torch_is_shared(whole)


def sendable(place):
    """The region itself, or None: the caller copies its bytes.

    None: it is a private mapping of a file, which other processes can't have. RuntimeError: it is
    a file that several processes write, and the receiver could not open it. A copy would silently
    differ from the file after the next write.
    """
    if place is None or place.storage.kind != "file":
        return place
    if not _files.is_written(place.storage):
        return None
    if _files.describe(place.storage) is None:
        raise RuntimeError('a tensor of a file mapped "r+" is sent as the file, but the name does '
                           "not lead to it any more: send cowshed.clone(t)")
    return place


def new_shared(nbytes):
    """A PyTorch storage of zeros that several processes write."""
    return untyped(_family.alias_storage(nbytes)) if nbytes else torch.UntypedStorage(0)


def share(whole, tensors=(), place=None):
    """Moves a PyTorch storage into shared memory, with all tensors that view it.

    Copies its bytes once, without the GIL. One thread at a time runs this. A write of another
    thread during the copy may be lost, as with PyTorch. Memory that is shared already stays where
    it is, and so does a file that is mapped "r+".

    tensors: views of the storage, which are moved if PyTorch can't swap the memory of a storage.
    place(nbytes): returns a Region of shared memory. Returns the PyTorch storage after the move.
    """
    global _moves
    with _lock:
        while True:
            moves = _moves
            if whole.nbytes() == 0 or is_shared(whole):
                return whole
            if whole.device.type != "cpu":
                raise RuntimeError(f"the memory is on {whole.device}, and cowshed shares memory of "
                                   "the CPU only: share t.cpu() instead")
            nbytes = whole.nbytes()
            new = _fresh(*(place(nbytes) if place else (_family.alias_storage(nbytes), 0, nbytes)))
            new = new.untyped_storage()
            copy_bytes(new, whole)
            # A signal handler may have moved a storage meanwhile, maybe this one. No handler runs
            # between this comparison and the swap.
            if moves != _moves:
                continue
            if CAN_SWAP:
                whole._swap_data_ptr_(new)
            else:
                _move(tensors, new)
                whole = new
            _moves += 1
            _known[whole.data_ptr(), nbytes] = StorageWeakRef(whole)
            return whole


def _move(tensors, new):
    with torch.no_grad():
        for tensor in tensors:
            plain = tensor.data
            plain.set_(new, tensor.storage_offset(), tensor.size(), tensor.stride())
            tensor.data = plain


def copy_bytes(target, source):
    """As target.copy_(source), but without the GIL and without threads.

    A forked child whose parent has used PyTorch's threads would wait for them for ever.
    """
    address = _regions.address_of_tensor(as_bytes(source))
    _cowshed.check_file(address, source.nbytes())
    ctypes.memmove(target.data_ptr(), address, source.nbytes())


def as_bytes(whole):
    """A tensor of all bytes of a PyTorch storage."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(whole, 0, (whole.nbytes(),), (1,))


def buffer(whole, first, end):
    """A memoryview of bytes of a PyTorch storage, for reading. It does not keep it alive."""
    address = _regions.address_of_tensor(as_bytes(whole))
    array = (ctypes.c_char * (end - first)).from_address(address + first)
    return memoryview(array).cast("B")


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
