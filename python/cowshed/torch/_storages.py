# SPDX-License-Identifier: MIT
"""PyTorch's storages on ours.

A PyTorch storage (`UntypedStorage`) is an address, a size and whom to tell when it is not
needed any more. One that lies in a storage of the engine keeps it alive, and there is one
for each region: tensors that are made of the same region twice, here or by two messages,
are views of one PyTorch storage, so that all that PyTorch knows of aliasing is right.

To share memory in place is to put another address into a PyTorch storage that tensors
view already: PyTorch can do so since 2.12 (`_swap_data_ptr_`). With an older one the
tensors at hand are moved to another storage, one by one.
"""

import ctypes
import os
import threading

import torch
from torch.multiprocessing.reductions import SharedCache, StorageWeakRef

from .. import _family, _files, _regions

CAN_SWAP = hasattr(torch.UntypedStorage, "_swap_data_ptr_")

# (address, nbytes) -> a weak reference to the PyTorch storage there.
_known = SharedCache()
_lock = threading.RLock()  # the handler of a signal may come while its thread has it
_moves = 0

# PyTorch's own, also while install() is in force.
torch_is_shared = torch.UntypedStorage.is_shared


def untyped(storage, offset=0, nbytes=None):
    """The PyTorch storage on `nbytes` bytes of a writable storage (None: to its end)."""
    if nbytes is None:
        nbytes = storage.nbytes - offset
    if nbytes == 0:
        return torch.UntypedStorage(0)
    address = storage.address + offset
    key = address, nbytes
    known = _known.get(key)
    if known is not None:
        found = torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        # Who resized or swapped it has moved it elsewhere.
        if found is not None and found.data_ptr() == address and found.nbytes() == nbytes:
            return found
    result = _fresh(storage, offset, nbytes).untyped_storage()
    _known[key] = StorageWeakRef(result)
    return result


def fresh(storage, offset, nbytes, dtype):
    """A tensor of one dimension on bytes of a writable storage that no tensor views yet."""
    t = _fresh(storage, offset, nbytes, dtype)
    _known[storage.address + offset, nbytes] = StorageWeakRef(t.untyped_storage())
    return t


def _fresh(storage, offset, nbytes, dtype=torch.uint8):
    _regions.enter(storage, offset)
    return torch.frombuffer(storage, dtype=dtype, count=nbytes // dtype.itemsize, offset=offset)


def region(whole):
    """Where the bytes of a PyTorch storage lie (a Region), or None: in foreign memory."""
    if whole.device.type != "cpu":
        return None
    nbytes = whole.nbytes()
    return _regions.at(whole.data_ptr(), nbytes) if nbytes else None


def is_shared(whole):
    """Is it memory that several processes write: ours, a file's, or PyTorch's own?"""
    place = region(whole)
    if place is not None:
        return place.storage.kind == "alias" or _files.is_written(place.storage)
    return torch_is_shared(whole)


def sendable(place):
    """The region itself, or None: its bytes are to be copied, since a private mapping of a
    file is nobody else's. RuntimeError: all who have it write the file, which can't be opened
    over there. A copy would part from it unnoticed."""
    if place is None or place.storage.kind != "file":
        return place
    if not _files.is_written(place.storage):
        return None
    if _files.describe(place.storage) is None:
        raise RuntimeError('a tensor of a file that is mapped "r+" is sent as that file, and its '
                           "name means none or another one meanwhile: send cowshed.clone(t)")
    return place


def new_shared(nbytes):
    """A PyTorch storage of zeros that several processes write."""
    return untyped(_family.alias_storage(nbytes)) if nbytes else torch.UntypedStorage(0)


def share(whole, tensors=(), place=None):
    """Moves a PyTorch storage into shared memory, with all that view it.

    Copies its bytes once, without the GIL. One thread at a time does; who writes it meanwhile
    is on his own, as with PyTorch. What is shared already stays where it is, and so do the bytes
    of a file that is mapped "r+". `tensors`: some that view it, which is what is moved where
    PyTorch can't swap the memory of a storage. place(nbytes): a Region of shared memory for it.
    Returns the storage that they are on.
    """
    global _moves
    with _lock:
        while True:
            moves = _moves
            if whole.nbytes() == 0 or is_shared(whole):
                return whole
            if whole.device.type != "cpu":
                raise RuntimeError(f"memory of {whole.device} can't be shared by cowshed")
            nbytes = whole.nbytes()
            new = _fresh(*(place(nbytes) if place else (_family.alias_storage(nbytes), 0, nbytes)))
            new = new.untyped_storage()
            copy_bytes(new, whole)
            # A handler moved one meanwhile, maybe this. None comes between this and the swap.
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
    """As target.copy_(source), without the GIL, and without threads: forked children whose
    parent used those of PyTorch would wait for them for ever."""
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes())


def as_bytes(whole):
    """A tensor of all bytes of a PyTorch storage."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(whole, 0, (whole.nbytes(),), (1,))


def buffer(whole, first, end):
    """A memoryview of bytes of a PyTorch storage, which it does not keep alive."""
    array = (ctypes.c_char * (end - first)).from_address(whole.data_ptr() + first)
    return memoryview(array).cast("B")


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
