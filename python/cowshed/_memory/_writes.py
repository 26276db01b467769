# SPDX-License-Identifier: MIT
"""What clones and snapshots are for: clone(x, writes=...), snapshot(state, writes=...).

A clone that is rewritten in full costs a page fault and a copy for each 4 KiB. To copy it at once,
in bulk, costs a fraction of that. A clone of which little is written costs nothing if it is not
copied. "auto", the default of clone(), learns which of the two it is, for each place of the program
that clones:

    the first clone       It is copied at once, which is never slower than an eager copy. It is not
                          if it would take most of the memory that the system has left.
    each later one        If more than an eighth was written of the last clone that is known of, it
                          is copied at once. Else it is not copied.

How much was written is asked when the clone is freed, or when the place clones again:

    of one that was not copied      The pages that it has of its own tell.
    of one that was copied          Its pages tell nothing: all are its own. So some words of it are
                                    remembered, spread over all of it, and compared. That costs
                                    microseconds, and no page fault.

Words can err: a program may write one word in each page, or write what was there. Then a clone that
is not copied tells otherwise, and the place needs more clones in a row that look unwritten, four
times as many each time, before it leaves the copy out again.

Beside a snapshot it is the state that is rewritten. So its arrays are what is copied at once, by a
write intent, and what is looked at: at the next snapshot. Each storage is learned for itself, at
each place. The first snapshot is not copied, but looked at. If pages of an eighth of a storage were
written since it was last copied, it is copied once more: each snapshot would copy them again.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import weakref

from .. import _cowshed
from ._intents import range_of_tensor
from ._regions import SMALL, bounds_of, is_tensor, region_of

_MOST = 1 / 8  # a clone is copied at once if more than that is written: faults cost so much more
_SITES = 10000  # places, and storages at places, that are remembered
_SAMPLE = 64  # of a copied clone, which tell how much of it was written
_LARGE = 256 << 20  # bytes of a first clone, from which on the system is asked for its memory

_WORDS = "some", "all", "auto"
#: What clone() does if the program does not say.
default = os.environ.get("COWSHED_WRITES", "auto")
if default not in _WORDS:
    raise ImportError(f"COWSHED_WRITES is {default!r}: set it to some, all or auto")

_sites = {}


class _Site:
    """A place of the program that clones, or takes snapshots of one storage."""

    def __init__(self, part):
        self._clones = 0
        self._part = part  # how much was written of the last one looked at; None: none was
        self._written = None  # what the state had written when the last snapshot was taken
        self._watched = None  # the last clone, if it was not looked at yet
        self._calm, self._needed = 0, 1  # copied clones that looked unwritten; how many are enough

    def copies_clone(self, nbytes):
        """Whether the next clone is copied at once."""
        watch, self._watched = self._watched, None
        if watch is not None:
            watch.look()
        if self._part is None:
            return nbytes < _LARGE or 2 * nbytes < _available()
        return self._part > _MOST

    def watch(self, new, region, low, copied):
        """Looks at a clone when it is freed, or when the next one is made at this place."""
        watch = _Watch(self, region.storage, low, new.nbytes, copied)
        # Other tensors on the same PyTorch storage may outlive this one.
        owner = new.untyped_storage() if is_tensor(new) else new
        self._watched = watch
        # The region is a reference that will be gone.
        references = sys.getrefcount(watch.storage) - 1
        weakref.finalize(owner, watch.end, references).atexit = False

    def learn(self, part, copied):
        """So much was written of a clone."""
        if part > _MOST:
            if not copied and self._calm:
                self._needed = min(4 * self._needed, 1 << 20)
            self._calm = 0
            self._part = part
        elif not copied:
            self._calm = 0
            self._part = part
        else:
            self._calm += 1
            if self._calm >= self._needed:
                self._part = part

    def copies(self):
        """Whether the state is copied at once beside the next snapshot."""
        self._clones += 1
        n = self._clones
        looks = n >= 4 and n & (n - 1) == 0 and n.bit_length() % 2 == 1  # a power of 4
        return not looks and (self._part is None or self._part > _MOST)

    def copies_state(self, storage):
        """Whether the state in a storage is copied beside the snapshot that is now taken."""
        now, own = _written_bytes(storage)
        if self._written is not None:
            # Less: another place took a snapshot meanwhile, and copied pages went with it.
            self._part = min(max(now - self._written, 0) / storage.nbytes, 1)
        self._written = None
        return self.copies() or own / storage.nbytes > _MOST

    def begin(self, storage):
        """The snapshot was taken, and nothing is copied beside it."""
        self._written, _ = _written_bytes(storage)


class _Watch:
    """A clone whose writes are looked at, once. It holds the storage until then."""

    def __init__(self, site, storage, offset, nbytes, copied):
        self.storage = storage
        self._site, self._nbytes, self._words = site, nbytes, None
        if copied:
            step = nbytes / _SAMPLE
            # Not at multiples of a power of two, where rows of matrices begin.
            self._at = [offset + int((i + i * 0.618 % 1) * step) // 8 * 8 for i in range(_SAMPLE)]
            self._words = self._read(storage)

    def _read(self, storage):
        with memoryview(storage) as view:
            return [bytes(view[at : at + 8]) for at in self._at]

    def look(self):
        """Tells the place how much of the clone is written so far."""
        storage, self.storage = self.storage, None
        if storage is None:
            return
        if self._words is not None:
            changed = sum(map(operator.ne, self._read(storage), self._words))
            self._site.learn(changed / _SAMPLE, True)
            return
        info = storage.info()
        if info["sharers"] > 1:  # else it has taken its source's pages over
            self._site.learn(info["bytes_own"] / self._nbytes, False)

    def end(self, references):
        """The clone is about to be freed. references: to its storage, while it alone had it."""
        # If views of it are left, the program may go on writing, so nothing is known yet.
        if self.storage is not None and sys.getrefcount(self.storage) > references:
            self.storage = None
        self.look()


def _available():
    """Bytes of memory that the system can give without swapping."""
    try:
        with open("/proc/meminfo", "rb") as lines:
            for line in lines:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 0


def _written_bytes(storage):
    """(bytes of the pages written one by one so far, those of them that are still copies)"""
    info = storage.info()
    own = info["bytes_own"] if info["frozen"] else 0
    return info["bytes_written_back"] + own, own


def check(writes):
    if writes not in _WORDS:
        raise ValueError(f"writes is {writes!r}: pass 'some', 'all' or 'auto'")


def of_snapshot(storages, writes, depth):
    """Before a snapshot of these storages: (those whose state is to be copied beside it, what to
    call once it is taken)."""
    place = _place(depth + 1) if writes == "auto" else None
    if place is None:
        return storages if writes == "all" else [], []
    sites = [(_site((*place, x.address, x.nbytes), 0), x) for x in storages]
    copied = [x for site, x in sites if site.copies_state(x)]
    ids = {x.id for x in copied}
    return copied, [functools.partial(site.begin, x) for site, x in sites if x.id not in ids]


def clone(make, x, writes, depth):
    """make(x), copied at once or not. depth: of the frame that clones, above this one."""
    if writes == "all":
        new = make(x)
        _own(_memory(new))
        return new
    site = _site_of(x, depth + 1)
    new = make(x)
    if site is not None:
        memory, region = _memory(new), region_of(new)
        if memory is not None and region is not None and memory[1]:
            copies = site.copies_clone(memory[1])
            if copies:
                _own(memory)
            site.watch(new, region, memory[0] - region.storage.address, copies)
    return new


def _site_of(x, depth):
    """The place that clones, if it has a choice: a clone that need not be a copy."""
    if isinstance(x, _cowshed.Storage):
        return None
    region = region_of(x)
    if region is None or region.storage.kind != "own" or region.nbytes < SMALL:
        return None
    place = _place(depth + 1)
    return None if place is None else _site(place, None)


def _place(depth):
    """The line of the program that called, or None."""
    try:
        frame = sys._getframe(depth + 1)
    except ValueError:  # C code called it
        return None
    return frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lineno


def _site(place, part):
    if len(_sites) >= _SITES:
        _sites.clear()
    return _sites.setdefault(place, _Site(part))


def _memory(new):
    """(address, nbytes) of a clone. None: it is not contiguous, or small."""
    if isinstance(new, _cowshed.Storage):
        return new.address, new.nbytes
    # The bytes between the elements are the clone's, too.
    return range_of_tensor(new) if is_tensor(new) else bounds_of(new)


def _own(memory):
    if memory is not None and memory[1]:
        _cowshed.write_intent([memory], False)
