# SPDX-License-Identifier: MIT
"""The copy of a state that a snapshot has, and the copy of an object that clone() makes.

The head of _states/_snapshot.py says what is cloned and what is copied.
"""

import contextlib
import copy
import sys
import weakref

from .. import _cowshed
from . import _parts, _writes
from ._intents import write_intent
from ._ndarrays import array_on, check_file
from ._parts import KEPT, leaves
from ._regions import (SMALL, address_of_array, address_of_tensor, bounds_of, is_tensor,
                       region_of)

_CHUNK = 8 << 20  # of memory for small arrays, at most ...
_CHUNK_LEAST = 64 << 10  # ... and at least: a snapshot of few of them makes no large memory
_ALIGNED = 64

_living = weakref.WeakSet()  # the storages of all snapshots


def _check(more, limit):
    """MemoryError: with so many bytes more the snapshots would have more than the limit."""
    while True:
        try:
            there = sum(storage.nbytes for storage in _living)
            break
        except RuntimeError:  # another thread took a snapshot meanwhile
            pass
    if there + more > limit:
        raise MemoryError(f"snapshots have {there} bytes, this one needs {more} more, and the "
                          f"limit is {limit}: free one, wait for its saving, or raise the limit")


class Copier:
    """One snapshot while it is made, with the objects and storages that are cloned already."""

    def __init__(self, limit=None):
        self.cloned = self.copied = 0
        self._limit = limit
        self._done = {}  # id of an object -> (what it became, the object)
        self._bytes = {}  # id of a storage -> its clone, or (address, size) -> (storage, offset)
        self._keep = []  # keeps the storages alive, and so their ids unique
        self._parts = {}  # id of a tensor in an object -> (its clone, the tensor)
        self._copied = set()  # of _held()
        self._flats = {}  # (storage, offset, size) -> a tensor of bytes
        self._chunk, self._used = None, 0
        self._small = 0  # bytes of small arrays that are not copied yet

    def take(self, x):
        """The object of the snapshot for an object of the state."""
        if isinstance(x, KEPT):
            return x
        known = self._done.get(id(x))
        if known is None:
            known = self._done[id(x)] = (self._new(x), x)
        return known[0]

    def _new(self, x):
        if is_tensor(x):
            return self._tensor(x)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(x, numpy.generic) and not isinstance(x, numpy.void):
            return x  # a record (numpy.void) is a view of its array, and may change
        if numpy is not None and type(x) is numpy.ndarray and not x.dtype.hasobject:
            return self._array(numpy, x)
        if isinstance(x, (dict, list)):
            result = copy.copy(x)  # keeps subclasses and their attributes
            self._done[id(x)] = (result, x)
            for key, value in x.items() if isinstance(x, dict) else enumerate(x):
                result[key] = self.take(value)
            return result
        if isinstance(x, tuple):
            values = [self.take(value) for value in x]
            return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)
        return self._object(x)

    def _object(self, x):
        """A deep copy of any other object. The tensors in it are cloned."""
        memo = {}
        for part in _parts.parts(x):
            if part is x:
                continue
            if _is_cloned_in_objects(part):
                memo[id(part)] = self._part(part)
            else:
                self.copied += _held(part, self._copied)
        if id(x) not in memo and _parts.is_array(x):
            self.copied += _held(x, self._copied)
        return copy.deepcopy(x, memo)

    def _part(self, x):
        """The tensor of an object, for the copy of the object: with its type, to be trained."""
        if id(x) not in self._parts:
            new = Copier._tensor(self, x)
            torch = sys.modules["torch"]
            if type(x) is torch.nn.Parameter:
                new = torch.nn.Parameter(new, x.requires_grad)
            else:
                new.requires_grad_(x.requires_grad)
            self._parts[id(x)] = new, x
        return self._parts[id(x)][0]

    def _array(self, numpy, x):
        if x.nbytes == 0:
            result = x.copy()
        else:
            root = x
            while type(root.base) is numpy.ndarray:
                root = root.base
            # Views of one array stay views of one, unless it has more than 4 times their bytes.
            if not (root.flags.c_contiguous or root.flags.f_contiguous) or root.dtype.hasobject \
                    or root.nbytes > 4 * x.nbytes:
                root = x
            low, nbytes = bounds_of(root)
            storage, offset = self._memory(region_of(x), low, nbytes)
            offset += address_of_array(x) - low
            result = array_on(storage, x.dtype, x.shape, offset, x.strides)
        result.flags.writeable = False
        return result

    def _tensor(self, x):
        torch = sys.modules["torch"]
        x = x.detach()
        if not _is_plain(torch, x):
            result = x.cpu() if x.device.type not in ("cpu", "meta") else x.clone()
            self.copied += result.nbytes if result.layout == torch.strided else 0
            return result
        whole = x.untyped_storage()
        if not whole.nbytes():
            return torch.empty_like(x)
        low = address_of_tensor(x)
        storage, offset = self._memory(region_of(x), low, whole.nbytes())
        flat = self._flat_tensor(torch, storage, offset, whole.nbytes())
        return torch.empty(0, dtype=x.dtype, device="cpu").set_(
            flat.untyped_storage(), x.storage_offset(), x.shape, x.stride())

    def _flat_tensor(self, torch, storage, offset, nbytes):
        """One PyTorch storage for all tensors of these bytes."""
        key = (storage.id, offset, nbytes)
        if key not in self._flats:
            self._flats[key] = torch.frombuffer(
                storage, dtype=torch.uint8, offset=offset, count=nbytes)
        return self._flats[key]

    # ---- Memory --------------------------------------------------------------------------

    def _memory(self, region, low, nbytes):
        """(storage, offset) with the current bytes at address `low`."""
        clone = self._bytes.get(region.storage.id) if region is not None else None
        if clone is not None:
            # The clone has the bytes before `low`, too, so views of an array stay in one storage.
            offset = low - region.storage.address
            if 0 <= offset and offset + nbytes <= clone.nbytes:
                return clone, offset
        key = (low, nbytes)
        if key not in self._bytes:
            self._bytes[key] = self._copy(low, nbytes)
            self.copied += nbytes
        return self._bytes[key]

    def clone_all(self, state, writes, depth):
        """Clones all storages that take() will ask for, in one call."""
        storages, copied, seen, arrays = {}, 0, set(), []
        for x, inside in _parts_of(state):
            placed = not inside or _is_cloned_in_objects(x)
            region = _region_cloned(x) if placed else None
            if region is not None:
                storages[region.storage.id] = region.storage
                arrays.append((region.storage.id, x))
            else:
                nbytes = _held(x, seen)
                copied += nbytes
                self._small += _aligned(nbytes) if nbytes < SMALL and placed else 0
        self._keep = list(storages.values())
        if self._limit is not None:
            _check(sum(storage.nbytes for storage in self._keep) + copied, self._limit)
        rewritten, then = _writes.of_snapshot(self._keep, writes, depth + 1)
        ids = {storage.id for storage in rewritten}
        rewritten = [x for key, x in arrays if key in ids]
        # What was written by page goes back to where it was, else the clones would be copies.
        before = _intend(rewritten)
        clones, self.copied = _cowshed.clone_all(self._keep)
        self.cloned = sum(storage.nbytes for storage in self._keep) - self.copied
        self._bytes.update(zip(storages, clones))
        _living.update(clones)
        self.copied += before + _intend(rewritten)
        for call in then:
            call()

    def _copy(self, low, nbytes):
        source = _at(low, nbytes)
        if nbytes >= SMALL:
            new = _cowshed.clone_foreign(source)
            _living.add(new)
            return new, 0
        if self._chunk is None or self._used + nbytes > self._chunk.nbytes:
            room = min(max(self._small, _CHUNK_LEAST), _CHUNK)
            self._chunk, self._used = _cowshed.new(max(room, nbytes)), 0
            _living.add(self._chunk)
        offset = self._used
        memoryview(self._chunk)[offset : offset + nbytes] = source
        self._used += _aligned(nbytes)
        self._small -= _aligned(nbytes)
        return self._chunk, offset


def _parts_of(state):
    """Yields (x, False) for what leaves() yields, and (x, True) for arrays and tensors in objects
    that are copied."""
    for x in leaves(state):
        if _parts.is_array(x):
            yield x, False
        else:
            yield from ((part, True) for part in _parts.parts(x))


def _is_cloned_in_objects(x):
    """Whether it is a tensor that can be cloned where copy.deepcopy() would copy it."""
    if not is_tensor(x):
        return False
    torch = sys.modules["torch"]
    return _is_plain(torch, x) and x.is_leaf and (type(x) is torch.nn.Parameter or x.grad is None)


def copy_of(x):
    """The copy of one object that a snapshot has of it, to be written."""
    copier = Copier()
    copier.clone_all(x, "some", 0)
    return copier._object(x)  # one deep copy, also of a tuple: its objects may refer to each other


def _is_plain(torch, x):
    """Whether a tensor is dense, on the CPU, and its bytes are its values."""
    return x.device.type == "cpu" and x.layout == torch.strided and not x.is_quantized \
        and not x.is_conj() and not x.is_neg() and type(x) in (torch.Tensor, torch.nn.Parameter)


def _intend(arrays):
    """A write intent for arrays, if there are any. Returns the bytes that were copied."""
    return write_intent(arrays) if arrays else 0


def _region_cloned(x):
    """The region of an array or tensor whose storage can be cloned, or None."""
    numpy = sys.modules.get("numpy")
    if is_tensor(x):
        if not _is_plain(sys.modules["torch"], x):
            return None
    elif numpy is None or type(x) is not numpy.ndarray:
        return None
    region = region_of(x)
    ours = region is not None and region.storage.kind == "own" and region.nbytes >= SMALL
    return region if ours else None


def held_bytes(state):
    """The bytes of memory that the arrays and tensors of a state hold."""
    seen = set()
    return sum(_held(x, seen) for x in leaves(state))


def check_files(state):
    """OSError (ENODATA): a file that has an array or tensor of a state became shorter."""
    for x in leaves(state):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a tensor without memory
            check_file(x)


def _held(x, seen):
    """The bytes of one. The memory of several tensors counts once: its address is in `seen` then.

    0: it is something else, or does not tell (a sparse tensor, or one without memory).
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)):
        return x.nbytes
    try:
        if not is_tensor(x):
            return 0
        whole = x.untyped_storage()
        address, nbytes = address_of_tensor(x), whole.nbytes()
    except (RuntimeError, NotImplementedError):
        return 0
    if address in seen:
        return 0
    seen.add(address)
    return nbytes


def _aligned(nbytes):
    return -(-nbytes // _ALIGNED) * _ALIGNED


def _at(address, nbytes):
    """Memory that the state keeps alive, as a buffer of bytes."""
    import ctypes

    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
