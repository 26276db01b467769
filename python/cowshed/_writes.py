# SPDX-License-Identifier: MIT
"""What a clone is for: clone(x, writes=...).

A clone that is rewritten in full costs a page fault and a copy for each 4 KiB. To copy it at once,
in bulk, costs a fraction of that. A clone of which little is written costs nothing if it is not
copied. "auto" learns which of the two it is, for each place of the program that clones:

    the first clone                 It is copied at once, which is never slower than an eager copy.
    the 4th, 16th, 64th, ...        It is not copied. When it is freed, the pages that it has of its
                                    own tell how much of it was written.
    after a look                    If more than an eighth was written, clones are copied at once,
                                    until the next look. Else they are not copied, and each one is
                                    looked at.
"""

from __future__ import annotations

import sys
import weakref

from . import _arrays, _cowshed
from ._regions import region_of

_MOST = 1 / 8  # a clone is copied at once if more than that is written: faults cost so much more
_SITES = 1000  # places that are remembered

_sites = {}


class _Site:
    """A place of the program that clones."""

    def __init__(self):
        self._clones = 0
        self._part = None  # how much of the last clone that was looked at was written

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


def clone(make, x, writes, depth):
    """make(x), copied at once or not. depth: of the frame that clones, above this one."""
    if writes not in ("some", "all", "auto"):
        raise ValueError(f"writes is {writes!r}: pass 'some', 'all' or 'auto'")
    site = _site(depth + 1) if writes == "auto" and not isinstance(x, _cowshed.Storage) else None
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


def _site(depth):
    try:
        frame = sys._getframe(depth + 1)
    except ValueError:  # C code called it
        return None
    if len(_sites) >= _SITES:
        _sites.clear()
    place = frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lineno
    return _sites.setdefault(place, _Site())


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
