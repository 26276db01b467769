# SPDX-License-Identifier: MIT
"""pack(): what it takes, and the bar that shows how far it is. _records.py writes the storage."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from .. import _cowshed
from .._memory._names import keep
from .._memory._parts import is_frame
from .._memory._regions import is_tensor
from .._states import _pace
from ._pack import Packed, _attach
from ._records import Writer, compact, is_ndarray
from ._records import rebuild_array as rebuild_array  # packs name them in this file
from ._records import rebuild_tensor as rebuild_tensor

__name__ = keep(__name__)

T = TypeVar("T")

_SHOW = 0.2  # seconds between two states of the bar


def pack(sequence: Iterable[T], *, show: bool = False) -> Packed[T]:
    """A read-only sequence with the elements of `sequence`, in one frozen storage.

    It is for lists of Python objects that many processes read, with any start method: see Packed.
    Elements are pickled one by one. So an object that is in two of them becomes two. The buffers
    of NumPy arrays lie aligned in the storage, and come out as read-only views of it. PyTorch's
    tensors come out as copies, since PyTorch has no read-only tensors.

    sequence: a list, a tuple, any iterable; a generator is used up. show: True shows a bar on a
    terminal meanwhile. Changes nothing of the elements.

    TypeError: an element can't be pickled, the error names it; or `sequence` has no order, or is
    an array of numbers (freeze() it), or a data frame. MemoryError, OSError: no memory. After an
    error the sequence is as it was, and nothing is left in memory.
    """
    if isinstance(sequence, Packed):
        return sequence if sequence._is_whole() else _attach(compact(sequence))
    _check(sequence)
    with Writer(_Bar(sequence) if show else None) as writer:
        return _attach(writer.write_all(sequence))


def _check(sequence):
    kind = type(sequence).__name__
    rows = _rows_of(sequence)
    if rows:
        raise TypeError(f"pack() takes a sequence, and iterating over a {kind} gives its columns, "
                        f"or their names: pass {rows} for its rows, or send the {kind} itself by "
                        "cowshed.multiprocessing")
    if isinstance(sequence, (Mapping, Set)):
        instead = "list(x.items())" if isinstance(sequence, Mapping) else "list(x)"
        raise TypeError(f"pack() takes a sequence, not {kind}, which has no order: pass {instead}")
    if isinstance(sequence, (str, bytes, bytearray, memoryview, _cowshed.Storage)) or not (
            isinstance(sequence, Iterable) or hasattr(type(sequence), "__getitem__")):
        raise TypeError(f"pack() takes a sequence of objects, not {kind}: pass a list")
    if is_ndarray(sequence) and not sequence.dtype.hasobject or is_tensor(sequence):
        raise TypeError(f"pack() takes objects, and this {kind} has numbers: freeze() makes it "
                        "read-only, and processes share it")


def _rows_of(x):
    """The expression for the rows of a table `x`, whose iterator gives columns, or their names."""
    if is_frame(x):  # a series gives its values
        return "list(x.itertuples(index=False, name=None))" if hasattr(x, "columns") else None
    for module, name, rows in (("polars", "DataFrame", "x.rows()"),
                               ("pyarrow", "Table", "x.to_pylist()")):
        if isinstance(x, getattr(sys.modules.get(module), name, ())):
            return rows
    return None


# ---- The bar -------------------------------------------------------------------------------


class _Bar:
    """A bar on a terminal. The size of all elements is guessed from those that are written."""

    def __init__(self, sequence):
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._count = operator.length_hint(sequence)
        self._begun = self._next = time.monotonic()
        self._drawn = False

    def look(self, i, nbytes):
        now = time.monotonic()
        if self._on and now >= self._next + _SHOW:
            total = nbytes * max(self._count, i) // i
            bar = _pace.bar(_pace.Progress(nbytes, total, now - self._begun), "packing")
            sys.stderr.write("\r" + bar)
            sys.stderr.flush()
            self._next, self._drawn = now, True

    def close(self):
        if self._drawn:
            sys.stderr.write("\n")
