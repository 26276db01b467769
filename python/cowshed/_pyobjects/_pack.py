# SPDX-License-Identifier: MIT
"""pack(): a read-only sequence of objects in one frozen storage.

Objects can't be shared between processes, but their bytes can. A `Packed` has the pickles of its
elements in one storage. It makes an element when it is asked for, and keeps none. Processes that
have it share the storage, in whichever way they were started.

    0       b"cowpack\\1", kind, number of elements n, place of the index, size, checksum; 64 bytes
    64      the elements, one after the other
    index   n + 1 places where the elements begin and the last one ends; n checksums

Numbers have 8 bytes each, and no index. A string is UTF-8. Other elements are *records*. A record
is a pickle, whose first byte is 0x80; or a table of buffers, a pickle and the buffers:

    0           1, number of buffers b (7 bytes), size of the pickle
    16          for each buffer its place in the storage and its size
    16 + 16b    the pickle, and behind it the buffers, aligned

The arrays of an element are views of its buffers.

The checksums are those of strings and records, without the buffers. They are compared where a
file may have changed since it was written. A peer that is trusted with pickles needs none.
(_records.py writes all that.)
"""

from __future__ import annotations

import operator
import os
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .. import _cowshed
from .._memory._names import keep
from . import _pickle
from ._records import HEADER, INTEGERS, RECORDS, STRINGS, TABLE, check_header, compact, wrong

if TYPE_CHECKING:
    from .._memory._types import Path

__name__ = keep(__name__)

T = TypeVar("T", covariant=True)

_loads = pickle.loads
_peek = _cowshed.peek
_peek_element = _cowshed.peek_element


class Packed(Sequence[T]):
    """A read-only sequence of objects in one frozen storage. pack() and Packed.open() make it.

    An element is made anew at each access: `x[3] is x[3]` is False, and changing the element does
    not change the sequence. NumPy arrays in it are read-only views of the storage, which they keep
    alive. A slice is a view, which copies nothing. Any thread may read it.

    cowshed.multiprocessing sends it as a handle of less than 1 KiB. A plain pickle has all of its
    bytes; that of a slice has the bytes of the slice.
    """

    __slots__ = ("_storage", "_range", "_kind", "_data", "_starts", "_sums", "_path", "_index",
                 "__weakref__")

    # ---- Making ------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Packed[Any]:
        """Maps a file of save(), and reads its header only.

        Reading an element runs code that the file names, as pickle.load() does: open only files
        that you trust. ValueError: it is not such a file, or damaged. An element that is damaged
        raises ValueError when it is read. OSError: as from open().
        """
        from .._states import _files

        path = os.path.abspath(os.fsdecode(path))
        fd = _files._open(path, "r")
        try:
            facts = os.fstat(fd)
            head = os.pread(fd, HEADER.size, 0)
            check_header(head, facts.st_size, path)
            return _attach(_files._map(fd, path, "r", facts))
        finally:
            os.close(fd)

    def __reduce__(self):
        storage, where = self._storage, self._range
        if _pickle.current() is None and not self._is_whole():
            storage = compact(self)
            where = range(len(where))
        return _rebuild, (storage, where.start, where.stop, where.step)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    # ---- Reading -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> Packed[T]: ...

    def __getitem__(self, i):
        try:
            at = self._range[i]
        except IndexError:
            raise IndexError(f"index {operator.index(i)} is out of range: the sequence has "
                             f"{len(self)} elements") from None
        except TypeError:
            raise TypeError(f"an index is {type(i).__name__}: pass an integer or a slice") from None
        if type(at) is range:
            return _view(self, at)
        kind = self._kind
        if kind >= INTEGERS:
            return self._data[at] if self._path is None else self._number(at)
        record = self._record(at)
        if kind == STRINGS:
            return str(record, "utf-8", "surrogatepass")
        if record[0] == 0x80:
            return _loads(record)
        body, buffers = self._split(at, record)
        return _loads(body, buffers=buffers)

    def __iter__(self) -> Iterator[T]:
        return map(self.__getitem__, range(len(self._range)))

    def _split(self, at, record):
        """(pickle, buffers) of a record that has a table of buffers."""
        count, size = TABLE.unpack_from(record)
        low = TABLE.size * ((count >> 8) + 1)
        data, end = self._data, len(self._data)
        places = list(TABLE.iter_unpack(record[TABLE.size : low]))
        if low + size > len(record) or any(first + nbytes > end for first, nbytes in places):
            raise self._damaged(f"element {at}")
        if self._path is not None:
            self._look(at, places)
        return (record[low : low + size],
                [data[first : first + nbytes] for first, nbytes in places])

    def _look(self, at, places):
        """Whether the file still has the buffers of an element: at their last bytes."""
        try:
            for first, nbytes in places:
                _peek(self._data, max(first + nbytes - 1, first), first + nbytes)
        except OSError:
            raise self._shorter(at) from None

    def _record(self, at):
        """The bytes of a record or string; of a record with buffers without them."""
        if self._path is None:
            starts = self._starts
            return self._data[starts[at] : starts[at + 1]]
        # Of a file: a copy, which has its checksum. Touching the file itself would be a SIGBUS if
        # it became shorter.
        try:
            record = _peek_element(self._index, at)
        except OSError:
            raise self._shorter(at) from None
        if record is None:
            raise self._damaged(f"element {at}")
        return record

    def _number(self, at):
        try:
            part = _peek(self._data, 8 * at, 8 * at + 8)
        except OSError:
            raise self._shorter(at) from None
        return memoryview(part).cast(self._data.format)[0]

    def _shorter(self, at):
        return wrong(self._path, f"it became shorter while it was open, and element {at} is gone")

    def _damaged(self, what):
        return wrong(self._path or "the storage", f"{what} is damaged")

    # ---- As a whole --------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """The size of the storage in bytes, also for a slice of it."""
        return self._storage.nbytes

    def save(self, path: Path, *, sync: bool = False) -> None:
        """Writes it to a file, atomically, for Packed.open(). Of a slice: its elements only.

        sync: True returns when the bytes are on the disk. OSError: as from write(); the old file
        is unchanged.
        """
        from .._states import _save

        storage = self._storage if self._is_whole() else compact(self)
        path = os.path.abspath(os.fsdecode(path))
        _save.Plan(path, [memoryview(storage)]).write(sync)

    def __eq__(self, other: object) -> bool:
        """Whether both have equal elements in the same order. `other`: a Packed, a list or a tuple.

        Elements with equal bytes are equal. Others are compared by `==`, as those of lists are.
        """
        if self is other:
            return True
        if not isinstance(other, (Packed, list, tuple)):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, Packed):
            if self._storage is other._storage and self._range == other._range:
                return True
            return all(self._parts(i) == other._parts(j) or self[n] == other[n]
                       for n, (i, j) in enumerate(zip(self._range, other._range)))
        return all(x == y for x, y in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<cowshed.Packed of {len(self)} elements, {self.nbytes} bytes>"

    def _is_whole(self):
        count = len(self._data) if self._kind >= INTEGERS else len(self._sums)
        return self._range == range(count)

    def _parts(self, at):
        """All that tells an element. Elements are equal if their parts are."""
        if self._kind >= INTEGERS:
            return self[self._range.index(at)]
        record = self._record(at)
        if self._kind == STRINGS or record[0] == 0x80:
            return self._kind == STRINGS, record
        body, buffers = self._split(at, record)
        return body, *buffers


def _attach(storage, where=None):
    """The Packed on a storage."""
    whole = memoryview(storage).toreadonly()
    path = None
    if storage.kind == "file":
        from .._states import _files

        mapped = _files._mapped.get(storage)  # None: shared memory that is mapped privately
        path = mapped.path if mapped is not None else None
    head = _peek(whole, 0, min(HEADER.size, len(whole)))
    kind, count, index = check_header(head, len(whole), path or "the pack")
    self = Packed.__new__(Packed)
    self._storage, self._kind, self._path = storage, kind, path
    self._range = range(count) if where is None else where
    self._starts = self._sums = self._index = None
    if kind >= INTEGERS:
        self._data = whole[HEADER.size : index].cast("q" if kind == INTEGERS else "d")
    else:
        self._data = whole[:index]
        self._starts = whole[index : index + 8 * count + 8].cast("Q")
        self._sums = whole[index + 8 * count + 8 :].cast("I")
        if path is not None:
            self._index = _cowshed.pack_index(self._data, self._starts, self._sums, kind == RECORDS)
    return self


def _view(packed, where):
    """The elements `where`, a range, of the storage of a Packed."""
    self = Packed.__new__(Packed)
    for name in Packed.__slots__[:-1]:
        setattr(self, name, getattr(packed, name))
    self._range = where
    return self


def _rebuild(storage, start, stop, step):
    return _attach(storage, range(start, stop, step))
