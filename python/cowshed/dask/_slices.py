# SPDX-License-Identifier: MIT
"""Slices of a rechunk, which need no copies.

A rechunk cuts blocks into slices, sends these, and copies them together into new blocks.
Dask copies a slice of at most half a block when it is cut, so that it does not keep the
whole block in being. But here a slice is sent as it lies (_wire.py), and none outlives the
rechunk: the copy would be the first of two, each into memory that must be cleared before.

So a worker's own `dask.array.chunk.getitem` leaves the copy out if all of that holds: the
task is one of a rechunk, and the block is one that the engine gives. All else is Dask's.
"""

import functools
import sys

from distributed.utils import key_split
from distributed.worker import thread_state

from . import _wire

_own = None


def _getitem(block, index):
    if key_split(getattr(thread_state, "key", None)) == "rechunk-split":
        try:
            found = block[index]
        except IndexError:
            return _own(block, index)  # which says it in its own words
        if _wire.lies_well(found):
            return found
    return _own(block, index)


def _replace(old, new):
    """Wherever dask.array has it by name: a function that is pickled must be the one that its
    module has."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dask.array.") and getattr(module, "getitem", None) is old:
            module.getitem = new


def install():
    """For a worker. Idempotent; nothing is done without dask.array."""
    global _own
    try:
        from dask.array.chunk import getitem
    except ImportError:
        return
    if _own is None:
        _own = getitem
        _replace(getitem, functools.wraps(getitem)(_getitem))


def uninstall():
    global _own
    if _own is not None:
        _replace(sys.modules["dask.array.chunk"].getitem, _own)
        _own = None
