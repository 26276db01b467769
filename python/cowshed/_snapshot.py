# SPDX-License-Identifier: MIT
"""Snapshots and checkpoints: a state of this moment, read and saved while the program goes on.

A state is what training keeps: dicts, lists and tuples of arrays, tensors and plain values. A
snapshot treats its bytes in three ways:

    in a storage of the engine      The storage is cloned, once for all arrays in it.
    in a storage that was written   The engine can share only pages that lie in its files. A write
    beside an earlier clone         to a cloned page makes a page that does not. These pages are
                                    copied; if they are most of a storage, all of it is.
    small, foreign, mapped, or      The bytes are copied. Small ones are copied together, so a
    shared with other processes     thousand of them are one piece of memory.

Snapshot.copied_bytes tells how many bytes were copied. If a program rewrites all of the state
between two snapshots, checkpoint() is the better way: a forked process has the bytes of the
moment. But mapped files and memory of several processes stay shared with the forked process. So
checkpoint() copies such bytes before the fork, also if the program mapped them itself.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import weakref
from typing import TYPE_CHECKING, Any

from . import _cowshed, _saving, _whole, _writes
from ._arrays import SMALL, _is_tensor, array_on, check_file
from ._regions import address_of_tensor, region_of

if TYPE_CHECKING:
    from ._types import Format, Path, Writes

_CHUNK = 8 << 20  # of memory for small arrays, at most ...
_CHUNK_LEAST = 64 << 10  # ... and at least: a snapshot of few of them makes no large memory
_ALIGNED = 64
_KEPT = (type(None), bool, int, float, complex, str, bytes, range, type, type(Ellipsis))


class Snapshot:
    """The bytes of a state at the moment of the call. See snapshot().

    It frees its memory when the program has no reference to it or to arrays of its state.
    """

    def __init__(self, state: Any, *, limit: int | None = None, writes: Writes = "some",
                 _depth: int = 0):
        _writes.check(writes)
        copier = Copier(limit)
        copier.clone_all(state, writes, _depth + 1)
        #: Like the state of the program, on memory of its own. NumPy arrays are read-only.
        self.state: Any = copier.take(state)
        #: How many bytes were cloned without a copy.
        self.cloned_bytes: int = copier.cloned
        #: How many bytes the call copied.
        self.copied_bytes: int = copier.copied

    def __repr__(self) -> str:
        return f"<cowshed.Snapshot: {self.cloned_bytes} bytes cloned, {self.copied_bytes} copied>"

    def save(self, path: Path, *, format: Format | None = None,
             sync: bool = False) -> None:
        """Writes the state to a file, atomically. Formats and errors: see cowshed.save()."""
        from ._save import save

        save(path, self.state, format=format, sync=sync)

    def save_async(self, path: Path, *, format: Format | None = None, sync: bool = False,
                   process: bool = False, rate: float | None = None, nice: int = 0,
                   checksum: str | None = None) -> _saving.Saving:
        """Begins to write the state to a file, in a thread or (`process`) in a forked process.

        rate: bytes in a second at most; None: as fast as it can. nice: 1 to 19 gives the processors
        to others first (nice(2)). checksum: "crc32", or a name of hashlib as "sha256";
        Saving.checksum has it afterwards.

        Saving.wait() waits for the end. At its own end the program waits, too. ValueError: the
        format can't hold the state. Later errors are raised by wait(), also if the process is
        killed or runs out of memory; then the program goes on and the old file stays.
        """
        return _saving.start(path, self.state, format, sync, process, rate, nice, checksum)


def snapshot(state: Any, *, limit: int | None = None, writes: Writes = "some") -> Snapshot:
    """A state of this moment: arrays and tensors are cloned, and all else is copied.

    state: dicts, lists and tuples, nested to any depth, of arrays, tensors and plain values.
    copy.deepcopy() copies other objects. An array that occurs twice in the state occurs twice in
    the snapshot, and views of one memory stay views of one memory. Tensors are detached plain
    tensors; those of other devices become tensors on the CPU.

    Call it while no thread writes the state, because arrays are cloned one after the other. The
    call takes one clone of each storage, and a copy of the bytes that can't be cloned (see the
    head of this module). In other objects, as in a module, the tensors are cloned, too. An
    optimizer in the state has the parameters of the module in the state. While the
    snapshot lives, the kernel copies each page of the state at its first write, and the page takes
    memory twice.

    limit: so many bytes may belong to all snapshots that live, with this one: those that it would
    clone and those that it would copy, also the arrays in other objects. MemoryError: it would be
    exceeded; nothing was cloned or copied.

    writes: how much of the state will be rewritten while the snapshot lives, without a write
    intent. "some": as above. "all" copies the state's own bytes now, as write_intent(state) does
    after the call: by all processors and into huge pages, several times as fast as page by page.
    "auto" learns which of the two pays, for each storage and each place of the program that calls.
    With these two, what another thread writes to the state during the call may be lost.
    ValueError: other `writes`.
    """
    return Snapshot(state, limit=limit, writes=writes, _depth=1)


def checkpoint(state: Any, path: Path, *, format: Format | None = None, sync: bool = False,
               rate: float | None = None, nice: int = 0,
               checksum: str | None = None) -> _saving.Saving:
    """Writes the state of this moment to a file, in a forked process. Returns after the fork.

    state, path and format: see cowshed.save(). sync: True writes to the disk before the file gets
    its name. rate, nice, checksum: see Snapshot.save_async(). Saving.wait() waits for the end and
    raises errors of the child. ValueError: the format can't hold the state.

    The call takes as long as fork(), also for memory that the engine did not allocate, and at each
    repetition. Before the fork it copies mapped files and memory that is shared with other
    processes, since the child would see later writes to them. It also copies memory of other
    devices. While the child writes, the kernel copies each page of the state at its first write,
    and the page takes memory twice.

    Only arrays, tensors, and dicts, lists and tuples of these are searched for shared memory. In
    other objects, which .pt can hold, shared memory is written as it is when the child writes it.
    The child only writes and ends, so a program with threads may call this. For .npz and .pt the
    child runs code of NumPy and PyTorch.
    """
    from ._for_fork import for_fork

    return _saving.start(path, for_fork(state), format, sync, True, rate, nice, checksum)


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
        if isinstance(x, _KEPT):
            return x
        known = self._done.get(id(x))
        if known is None:
            known = self._done[id(x)] = (self._new(x), x)
        return known[0]

    def _new(self, x):
        if _is_tensor(x):
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
        for part in _whole.parts(x):
            if part is x:
                continue
            if _is_cloned_in_objects(part):
                memo[id(part)] = self._part(part)
            else:
                self.copied += _held(part, self._copied)
        if id(x) not in memo and _whole.is_array(x):
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
            result = array_on(storage, x.dtype, x.shape, offset + _address(x) - low, x.strides)
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


def leaves(state):
    """Yields the objects in dicts, lists and tuples, each one once, without plain values."""
    left, seen = [state], {id(state)}
    while left:
        x = left.pop()
        if not isinstance(x, (dict, list, tuple)):
            yield x
            continue
        for value in x.values() if isinstance(x, dict) else x:
            if not isinstance(value, _KEPT) and id(value) not in seen:
                seen.add(id(value))
                left.append(value)


def _parts_of(state):
    """Yields (x, False) for what leaves() yields, and (x, True) for arrays and tensors in objects
    that are copied."""
    for x in leaves(state):
        if _whole.is_array(x):
            yield x, False
        else:
            yield from ((part, True) for part in _whole.parts(x))


def _is_cloned_in_objects(x):
    """Whether it is a tensor that can be cloned where copy.deepcopy() would copy it."""
    if not _is_tensor(x):
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
    if not arrays:
        return 0
    from ._intents import write_intent

    return write_intent(arrays)


def _region_cloned(x):
    """The region of an array or tensor whose storage can be cloned, or None."""
    numpy = sys.modules.get("numpy")
    if _is_tensor(x):
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
        if not _is_tensor(x):
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


def _address(x):
    return x.__array_interface__["data"][0]


def bounds_of(x):
    import numpy

    # NumPy 2 has moved byte_bounds() to numpy.lib.array_utils.
    low, high = getattr(numpy.lib, "array_utils", numpy).byte_bounds(x)
    return low, high - low
