# SPDX-License-Identifier: MIT
"""A state of this moment, to be looked at and saved while the program goes on.

A state is what training keeps: dicts, lists and tuples of arrays, tensors and plain values.
Three kinds of bytes are in it:

    in a storage of the engine      its storage is cloned, once for all arrays in it
    ... which was rewritten         the engine shares pages that lie in its files; who writes
    since an earlier clone          a cloned page gets one that does not. Those are copied; all of
                                    a storage is if it is most of it
    small, foreign, mapped, shared  copied; small ones together, so that a thousand of them
    with other processes            are one piece of memory

Snapshot.copied_bytes says how many were copied. Where everything is rewritten between two
snapshots, checkpoint() is the better way: a forked process has the bytes of the moment. But
a mapped file, and what is shared with other processes, is shared with that one, too: such
bytes are copied before the fork, whoever mapped them.
"""

from __future__ import annotations

import bisect
import copy
import sys
from typing import TYPE_CHECKING, Any

from . import _cowshed, _saving
from ._arrays import SMALL, _is_tensor, array_on
from ._regions import region_of

if TYPE_CHECKING:
    from ._types import Format, Path

_CHUNK = 8 << 20
_ALIGNED = 64
_KEPT = (type(None), bool, int, float, complex, str, bytes, range, type, type(Ellipsis))


class Snapshot:
    """The bytes of a state as they were when it was made. See snapshot()."""

    def __init__(self, state: Any):
        copier = _Copier()
        copier.clone_all(state)
        #: Like the state it was made of, on memory of its own. NumPy arrays are read-only.
        self.state: Any = copier.take(state)
        #: Bytes that cost no copy, and bytes that were copied in the call.
        self.cloned_bytes: int = copier.cloned
        self.copied_bytes: int = copier.copied

    def __repr__(self) -> str:
        return f"<cowshed.Snapshot: {self.cloned_bytes} bytes cloned, {self.copied_bytes} copied>"

    def save(self, path: Path, *, format: Format | None = None,
             sync: bool = False) -> None:
        """Writes it to a file, atomically; formats as of cowshed.save()."""
        from ._save import save

        save(path, self.state, format=format, sync=sync)

    def save_async(self, path: Path, *, format: Format | None = None, sync: bool = False,
                   process: bool = False) -> _saving.Saving:
        """Begins to write it, in a thread or in a forked process, which its end is waited for
        with Saving.wait(). At the end of the program that is done, too.

        ValueError at once if the format can't hold it; what goes wrong later is wait()'s. A
        process that is killed or runs out of memory is an error of wait(), and no more.
        """
        return _saving.start(path, self.state, format, sync, process)


def snapshot(state: Any) -> Snapshot:
    """A state of this moment: arrays and tensors are cloned, the rest is copied.

    state: dicts, lists and tuples (nested as one likes) of arrays, tensors and plain values;
    other objects are copied by copy.deepcopy(). What is one array there is one here, and views
    of one memory stay so. Tensors come back detached, as plain tensors; those of other devices
    on the CPU.

    Call it where nobody writes the state: arrays are cloned one after the other. Takes a
    clone of each storage, and a copy of the bytes that can't be cloned (see this module). It
    costs later: each page that is written first while the snapshot lives is copied then, and
    takes memory once more.
    """
    return Snapshot(state)


def checkpoint(state: Any, path: Path, *, format: Format | None = None,
               sync: bool = False) -> _saving.Saving:
    """Writes the state of this moment to a file, by a forked process. Returns after the fork.

    To a fork the memory of others is like ours, and how often it was done does not matter: the
    pause is what fork() takes. Only what is mapped from a file or shared with other processes is
    copied before, since the child would see what is written to it; and so is what lies on other
    devices. It costs later, as a snapshot does: each page that is written first beside the saving
    is copied then, and takes memory once more. The state must fit the format. Objects that are
    neither arrays nor tensors nor dicts, lists and tuples of these (.pt holds them) are not looked
    into: shared memory of theirs is written as it is then. The child does nothing but write and
    end, so other threads don't matter; with npz and pt it runs NumPy's and PyTorch's code.
    """
    return _saving.start(path, _for_fork(state), format, sync, True)


class _Copier:
    """One snapshot while it is made: what has been cloned already."""

    def __init__(self):
        self.cloned = self.copied = 0
        self._done = {}  # id of an object -> (what it became, the object)
        self._bytes = {}  # which memory -> (storage, offset)
        self._keep = []  # what ids are of
        self._flats = {}  # (storage, offset, size) -> a tensor of bytes
        self._chunk, self._used = None, 0

    def take(self, x):
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
            return x  # (a record is a view of its array, which may be written)
        if numpy is not None and type(x) is numpy.ndarray and not x.dtype.hasobject:
            return self._array(numpy, x)
        if isinstance(x, (dict, list)):
            result = copy.copy(x)  # also of subclasses, with what else they know
            self._done[id(x)] = (result, x)
            for key, value in x.items() if isinstance(x, dict) else enumerate(x):
                result[key] = self.take(value)
            return result
        if isinstance(x, tuple):
            values = [self.take(value) for value in x]
            return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)
        return copy.deepcopy(x)

    def _array(self, numpy, x):
        if x.nbytes == 0:
            result = x.copy()
        else:
            root = x
            while type(root.base) is numpy.ndarray:
                root = root.base
            # Views of one array stay so, unless that would keep much more than they are.
            if not (root.flags.c_contiguous or root.flags.f_contiguous) or root.dtype.hasobject \
                    or root.nbytes > 4 * x.nbytes:
                root = x
            low, nbytes = _bounds(root)
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
        low = whole.data_ptr()
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
        """(storage, offset) of the bytes at address `low`, as they are now."""
        clone = self._bytes.get(region.storage.id) if region is not None else None
        if clone is not None:
            # What lies before `low` is there, too: views of an array end up where it does.
            offset = low - region.storage.address
            if 0 <= offset and offset + nbytes <= clone.nbytes:
                return clone, offset
        key = (low, nbytes)
        if key not in self._bytes:
            self._bytes[key] = self._copy(low, nbytes)
            self.copied += nbytes
        return self._bytes[key]

    def clone_all(self, state):
        """Clones what take() will ask for, in one call."""
        storages = {}
        for x in _leaves(state):
            region = _region_cloned(x)
            if region is not None:
                storages[region.storage.id] = region.storage
        self._keep = list(storages.values())
        clones, self.copied = _cowshed.clone_all(self._keep)
        self.cloned = sum(storage.nbytes for storage in self._keep) - self.copied
        self._bytes.update(zip(storages, clones))

    def _copy(self, low, nbytes):
        source = _at(low, nbytes)
        if nbytes >= SMALL:
            return _cowshed.clone_foreign(source), 0
        if self._chunk is None or self._used + nbytes > self._chunk.nbytes:
            self._chunk, self._used = _cowshed.new(_CHUNK), 0
        offset = self._used
        memoryview(self._chunk)[offset : offset + nbytes] = source
        self._used += -(-nbytes // _ALIGNED) * _ALIGNED
        return self._chunk, offset


class _ForFork(_Copier):
    """A state for a child of fork(): that has all memory as it is now, but for what is mapped
    from files. All shared memory is such. Those arrays and tensors are copied; all else
    stays what it is."""

    def __init__(self):
        super().__init__()
        self._mapped = None

    def is_shared(self, x):
        """May somebody else write what the child will see of it?"""
        numpy = sys.modules.get("numpy")
        if _is_tensor(x):
            if x.device.type != "cpu":
                return False
            try:
                whole = x.untyped_storage()
                low, nbytes = whole.data_ptr(), whole.nbytes()
            except (RuntimeError, NotImplementedError):
                return True  # of several tensors, or of none that is told
        elif numpy is not None and isinstance(x, numpy.ndarray):
            if isinstance(x, numpy.ma.MaskedArray) and self.is_shared(x.mask):
                return True
            low, nbytes = _bounds(x)
        else:
            return numpy is not None and isinstance(x, numpy.void)
        region = region_of(x) if nbytes else None
        if region is not None:
            return region.storage.kind != "own"
        return bool(nbytes) and self._is_mapped(low, low + nbytes)

    def _is_mapped(self, low, high):
        if self._mapped is None:
            self._mapped = _mapped_files()
        i = bisect.bisect_right(self._mapped, low, key=lambda bounds: bounds[1])
        return i < len(self._mapped) and self._mapped[i][0] < high

    def _new(self, x):
        if isinstance(x, (dict, list, tuple)) or self.is_shared(x):
            return super()._new(x)
        return x

    def _tensor(self, x):
        result = super()._tensor(x)
        torch = sys.modules["torch"]
        if type(x) is torch.nn.Parameter:
            return torch.nn.Parameter(result, x.requires_grad)
        return result.requires_grad_(x.requires_grad)


def _for_fork(state):
    """The state, or one like it whose bytes nobody but a child of fork() will have."""
    copier = _ForFork()
    if any(copier.is_shared(x) for x in _leaves(state)):
        return copier.take(state)
    return state


def _mapped_files():
    """[(first, end)] of the addresses that are mapped from files, in order. All, if the system
    does not say."""
    result = []
    try:
        with open("/proc/self/maps", "rb") as lines:
            for line in lines:
                addresses, _, _, _, inode, *_ = line.split(None, 5)
                if inode != b"0":
                    first, end = addresses.split(b"-")
                    result.append((int(first, 16), int(end, 16)))
    except OSError:
        return [(0, 1 << 64)]
    return result


def _leaves(state):
    """What is in dicts, lists and tuples, all but plain values, each once."""
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


def _is_plain(torch, x):
    """Does a tensor lie in memory of the CPU as its numbers are?"""
    return x.device.type == "cpu" and x.layout == torch.strided and not x.is_quantized \
        and not x.is_conj() and not x.is_neg() and type(x) in (torch.Tensor, torch.nn.Parameter)


def _region_cloned(x):
    """The region of an array or tensor whose storage is to be cloned, or None."""
    numpy = sys.modules.get("numpy")
    if _is_tensor(x):
        if not _is_plain(sys.modules["torch"], x):
            return None
    elif numpy is None or type(x) is not numpy.ndarray:
        return None
    region = region_of(x)
    ours = region is not None and region.storage.kind == "own" and region.nbytes >= SMALL
    return region if ours else None


def _at(address, nbytes):
    """Memory that the state keeps alive, as a buffer."""
    import ctypes

    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


def _address(x):
    return x.__array_interface__["data"][0]


def _bounds(x):
    import numpy

    # NumPy 2 has it elsewhere.
    low, high = getattr(numpy.lib, "array_utils", numpy).byte_bounds(x)
    return low, high - low
