# SPDX-License-Identifier: MIT
"""Slices of a rechunk, cut without a copy.

A rechunk cuts blocks into slices, sends the slices, and copies them into new blocks. Dask copies
a slice of at most half a block when it is cut, so that it does not keep the whole block alive.
Here that copy is needless. A slice is sent without a copy (_wire.py), and no slice outlives the
rechunk. Each copy would also go into memory that the kernel must clear before.

So a worker has another `dask.array.chunk.getitem`. It leaves out the copy if the task belongs to
a rechunk, and the block can be sent without a copy. All other calls are Dask's.
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
            return _own(block, index)  # raises Dask's own error
        if _wire.lies_well(found):
            return found
    return _own(block, index)


def _replace(old, new):
    """Replaces `getitem` in all modules of dask.array.

    Pickle accepts a function only if its module has the same function under its name.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("dask.array.") and getattr(module, "getitem", None) is old:
            module.getitem = new


def install():
    """Installs the replacement in a worker. Does nothing a second time, or without dask.array."""
    global _own
    try:
        from dask.array.chunk import getitem
    except ImportError:
        return
    if _own is None:
        _own = getitem
        _replace(getitem, functools.wraps(getitem)(_getitem))


def uninstall():
    """Takes install() back."""
    global _own
    if _own is not None:
        _replace(sys.modules["dask.array.chunk"].getitem, _own)
        _own = None
