# SPDX-License-Identifier: MIT
"""What clones and snapshots are for: clone(x, writes=...), snapshot(state, writes=...).

A clone that is rewritten in full costs a page fault and a copy for each 4 KiB. To copy it at once,
in bulk, costs a fraction of that. A clone of which little is written costs nothing if it is not
copied. "auto" learns which of the two it is, for each place of the program that clones:

    the first clone                 It is copied at once, which is never slower than an eager copy.
    the 4th, 16th, 64th, ...        It is not copied. When it is freed, the pages that it has of its
                                    own tell how much of it was written.
    after a look                    If more than an eighth was written, clones are copied at once,
                                    until the next look. Else they are not copied, and each one is
                                    looked at.

Beside a snapshot it is the state that is rewritten. So its arrays are what is copied at once, by a
write intent, and what is looked at: at the next snapshot. Each storage is learned for itself, at
each place. The first snapshot is not copied, but looked at. If pages of an eighth of a storage were
written since it was last copied, it is copied once more: each snapshot would copy them again.
"""

from __future__ import annotations

import functools
import sys
import weakref

from . import _arrays, _cowshed
from ._regions import region_of

_MOST = 1 / 8  # a clone is copied at once if more than that is written: faults cost so much more
_SITES = 10000  # places, and storages at places, that are remembered

_sites = {}


class _Site:
    """A place of the program that clones, or takes snapshots of one storage."""

    def __init__(self, part):
        self._clones = 0
        self._part = part  # how much was written of the last one looked at; None: none was
        self._written = None  # what the state had written when the last snapshot was taken

    def copies(self):
        """Whether the next clone is copied at once."""
        self._clones += 1
        n = self._clones
        looks = n >= 4 and n & (n - 1) == 0 and n.bit_length() % 2 == 1  # a power of 4
        return not looks and (self._part is None or self._part > _MOST)

    def learn(self, storage, nbytes):
        """A clone of so many bytes, which was not copied, is about to be freed."""
        info = storage.info()
        if info["sharers"] > 1:  # else it has taken its source's pages over
            self._part = info["bytes_own"] / nbytes

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


def _written_bytes(storage):
    """(bytes of the pages written one by one so far, those of them that are still copies)"""
    info = storage.info()
    own = info["bytes_own"] if info["frozen"] else 0
    return info["bytes_written_back"] + own, own


def check(writes):
    if writes not in ("some", "all", "auto"):
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
    check(writes)
    learns = writes == "auto" and not isinstance(x, _cowshed.Storage)
    place = _place(depth + 1) if learns else None
    site = None if place is None else _site(place, None)
    new = make(x)
    if writes == "all" or (site is not None and site.copies()):
        _own(new)
    elif site is not None:
        region = region_of(new)
        if region is not None and new.nbytes:
            # Other tensors on the same PyTorch storage may outlive this one.
            owner = new.untyped_storage() if _arrays._is_tensor(new) else new
            weakref.finalize(owner, site.learn, region.storage, new.nbytes).atexit = False
    return new


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


def _own(new):
    from ._intents import range_of_tensor
    from ._snapshot import _bounds

    if isinstance(new, _cowshed.Storage):
        memory = new.address, new.nbytes
    else:
        # The bytes between the elements are the clone's, too.
        memory = range_of_tensor(new) if _arrays._is_tensor(new) else _bounds(new)
    if memory is not None and memory[1]:
        _cowshed.write_intent([memory], False)
