# SPDX-License-Identifier: MIT
"""Arrow tables that all processes of this user read from the same memory.

    import cowshed.arrow

    cowshed.arrow.publish("rides", table)     # in one process: writes the table once
    table = cowshed.arrow.open("rides")       # in another one: maps it

A published table lies in one sealed storage, in Arrow's file format. No process can change it. Its
name is that of an item at the user's broker (`cowshed broker`), which is started at the first
publish(). The table that open() returns consists of views of the storage, and keeps it alive.

Messages of cowshed.multiprocessing carry such a table as a handle. Of a slice or some columns of it
the large buffers travel by handle. A table in other memory is written once for each message,
without what a slice leaves out.

buffer() and storage() turn storages into Arrow's buffers, and back.

This module needs pyarrow.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

try:
    import pyarrow
    import pyarrow.ipc
except ImportError as _error:
    raise ImportError("cowshed.arrow needs pyarrow 15 or newer, and it can't be imported "
                      f"({_error}): pip install pyarrow") from _error

from . import _cowshed
from ._memory import _ndarrays, _reducers, _regions
from ._memory._regions import _inside, enter, region_of
from ._pyobjects import _records
from .multiprocessing import _strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["buffer", "names", "open", "publish", "storage", "unpublish"]

_MAGIC = b"ARROW1"

_whole = {}  # id of a table that is all of a storage -> a weak reference to it, and the storage


# ---- Buffers -------------------------------------------------------------------------------


def buffer(x: _cowshed.Storage | NDArray[Any]) -> pyarrow.Buffer:
    """An Arrow buffer on the bytes of a Storage or of a NumPy array, which it keeps alive.

    Copies nothing, unless the array lies in no storage: such an array is copied once. The buffer
    sees later writes to `x`, which Arrow's users do not expect: freeze(x) first if there are any.
    It is mutable if `x` can be written. Any thread may call it.

    TypeError: `x` is neither, or has Python objects. ValueError: an array with gaps.
    """
    if isinstance(x, _cowshed.Storage):
        enter(x)
        return pyarrow.py_buffer(x)
    _ndarrays._check_array(x, "buffer")
    if not x.nbytes:
        return pyarrow.py_buffer(b"")
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        raise ValueError("buffer() got an array with gaps between its elements: pass "
                         "cowshed.array(x), or numpy.ascontiguousarray(x)")
    if region_of(x) is None:
        x = _ndarrays._copy(x)
    # As bytes, since arrays of dates have no buffer.
    return pyarrow.py_buffer((x if x.flags.c_contiguous else x.T).reshape(-1).view("u1"))


def storage(x: Any) -> _cowshed.Storage:
    """The storage in which an Arrow buffer lies, or any other contiguous buffer.

    The buffer may be a part of it: `x.address - storage(x).address` is the offset in bytes. A
    column of open() lies in the storage of the whole table, which is read-only. A buffer that is
    no storage's, as those of Arrow's own memory, is copied once, into a storage of its size.

    TypeError: `x` is no buffer; of an array or a table take one of its buffers().
    """
    if isinstance(x, _cowshed.Storage):
        return x
    try:
        address, nbytes, _ = _cowshed.address_of(x)
    except (TypeError, BufferError, ValueError):
        raise TypeError(f"storage() takes a pyarrow.Buffer, not {type(x).__name__}: pass one of "
                        "the buffers() of a column's chunks") from None
    if not nbytes:
        return _cowshed.new(0)
    # The table of storages comes first: it has the very objects that buffer() was given.
    region = _inside(address, nbytes) or region_of(x)
    return region.storage if region is not None else _cowshed.clone_foreign(x)


# ---- Tables under names --------------------------------------------------------------------


def publish(name: str, data: Any, *, lasting: bool = False) -> pyarrow.Table:
    """Writes a table into one sealed storage, and gives it a name for open().

    name: 1 to 63 bytes. data: a Table, RecordBatch or RecordBatchReader, or what Arrow makes a
    table of: a DataFrame of pandas or polars, a relation of DuckDB, a dict of arrays. lasting:
    False, and the name goes with this process; True, and it stays until unpublish().

    Returns the table as open() gives it; what `data` held may then be freed. Writes all bytes
    once. A column keeps its chunks, and what a slice leaves out is not written. A reader is read to
    its end first. Any thread may call it. A child of fork() has the table, but does not hold the
    name.

    The broker is one process of this user. If it is killed, tables that are open stay. This
    process gives the next broker the table again at its next call here.

    FileExistsError: the name is taken; unpublish() it first, or use a new one. TypeError: Arrow
    makes no table of `data`. ValueError: a name of another length, or dictionaries that the format
    can't hold. MemoryError, OSError: no memory, or no broker. After an error there is no new name.
    """
    _check_name(name, "publish")
    made = _write(_table(data))
    flags = 0 if lasting else _cowshed.EPHEMERAL
    try:
        _strategy.broker().put(made, name, _cowshed.SEALED, 0o600, flags)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "the name is taken: unpublish() it first, or publish "
                              "under a new one", name) from None
    return _read(made, name)


def open(name: str) -> pyarrow.Table:
    """The table that a process published under a name. It is read-only, and keeps its memory.

    Copies nothing, and takes about as long for any size: the columns are views of the published
    storage. It stays valid when the name, the publisher or the broker is gone. Also opens Arrow
    files that `cowshed publish` gave the broker. Any thread may call it; after fork() both
    processes have the table.

    The publisher is trusted: Arrow checks the structure of the bytes, and
    `table.validate(full=True)` the rest. A broker gives tables of other users only if it was
    started with --others.

    FileNotFoundError: there is no such name, or no broker.
    ValueError: what has the name is no Arrow table, or memory that others may write. OSError: the
    broker does not answer.
    """
    _check_name(name, "open")
    try:
        found = _strategy.broker(start=False).get(name)
    except FileNotFoundError:
        raise _missing(name) from None
    return _read(found, name)


def unpublish(name: str) -> None:
    """Removes a name. Processes that opened the table keep it; its memory goes with the last one.

    FileNotFoundError: there is no such name, or no broker. PermissionError: it is another user's.
    """
    _check_name(name, "unpublish")
    try:
        _strategy.broker(start=False).drop(name)
    except FileNotFoundError:
        raise _missing(name) from None


def names() -> list[str]:
    """The names of all published tables of this user, sorted. [] if there is no broker.

    Maps each sealed item of the broker for a moment, to see whether it is an Arrow table.
    """
    try:
        at = _strategy.broker(start=False)
        items = at.list()
    except FileNotFoundError:
        return []
    found = []
    for item in items:
        is_table = item["name"] and item["mode"] == _cowshed.SEALED and (
            item["nbytes"] > len(_MAGIC) and not item["flags"] & _cowshed.ONCE)
        try:
            if is_table and memoryview(at.get(item["name"]))[: len(_MAGIC)] == _MAGIC:
                found.append(item["name"])
        except (FileNotFoundError, PermissionError):
            continue  # unpublished meanwhile, or another user's
    return sorted(found)


def _check_name(name, function):
    if not isinstance(name, str):
        raise TypeError(f"{function}() takes a name first, not {type(name).__name__}: pass a str")


def _missing(name):
    return FileNotFoundError(errno.ENOENT, "no table has this name: it was never published, or "
                             "its publisher has ended (publish(..., lasting=True) keeps it)", name)


def _table(data):
    if isinstance(data, pyarrow.Table):
        return data
    if isinstance(data, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([data])
    what = type(data).__name__
    if isinstance(data, (pyarrow.RecordBatchReader, pyarrow.ipc.RecordBatchFileReader)):
        try:
            return data.read_all()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"this {what} can't be read to its end: {error}. Open its file again, "
                             "and publish the new reader") from error
    if not (isinstance(data, dict) or hasattr(data, "__arrow_c_stream__")
            or hasattr(data, "__arrow_c_array__") or _is_frame(data)):
        raise TypeError(f"publish() takes an Arrow table or a data frame, not {what}: pass "
                        "pyarrow.table({'x': ...})")
    try:
        return pyarrow.table(data)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"Arrow can't make a table of this {what}: {error}. Pass columns of one "
                        "type each: numbers of the machine's byte order, strings, dates, or lists "
                        "and structs of these") from error


def _is_frame(x):
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


class _File(io.RawIOBase):
    """A memfd that Arrow writes to. A write through a mapping would pay for page faults."""

    def __init__(self, fd):
        self.fd, self.size = fd, 0

    def writable(self):
        return True

    def write(self, data):
        view = memoryview(data).cast("B")
        nbytes = view.nbytes
        while view:  # the kernel takes less than 2 GiB at once
            view = view[os.write(self.fd, view) :]
        self.size += nbytes
        return nbytes

    def tell(self):
        return self.size


def _write(table):
    """A sealed storage with a table, in Arrow's file format."""
    fd = _records._memfd()
    if fd is None:  # the system denies memfds
        with pyarrow.BufferOutputStream() as sink:
            _write_to(sink, table)
            return _reducers.rebuild_bytes(sink.getvalue(), True)
    try:
        file = _File(fd)
        with pyarrow.PythonFile(file, mode="w") as sink:
            _write_to(sink, table)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _records._SEALS)
        return _cowshed.import_fd(fd, 0, file.size, _cowshed.SEALED)
    finally:
        os.close(fd)


def _write_to(sink, table):
    # A file has one dictionary for each column; that of a stream may change.
    options = pyarrow.ipc.IpcWriteOptions(unify_dictionaries=True)
    try:
        with pyarrow.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise ValueError(f"the table does not fit into an Arrow file: {error}. Cast a column with "
                         "dictionaries to a larger index type, or to the type of its values"
                         ) from error


def _read(found, name):
    """The table in a storage, as views of it."""
    if found.kind == "alias":
        raise ValueError(f"{name!r} is memory that other processes may write, so a table in it "
                         "could change: put it there by cowshed.arrow.publish()")
    enter(found)
    whole = pyarrow.py_buffer(memoryview(found).toreadonly())
    if whole[: len(_MAGIC)].to_pybytes() != _MAGIC:
        raise ValueError(f"{name!r} is no Arrow table: put it there by cowshed.arrow.publish()")
    try:
        table = pyarrow.ipc.open_file(whole).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{name!r} begins as an Arrow table, but is damaged: {error}. Publish it "
                         "again") from error
    key = id(table)
    _whole[key] = weakref.ref(table, lambda _: _whole.pop(key, None)), found
    return table


# ---- Messages ------------------------------------------------------------------------------


def _reduce_table(table):
    known = _whole.get(id(table))
    if known is not None and known[0]() is table and known[1].readonly:
        return _receive, (known[1],)
    # Arrow pickles parts of a published table, whose buffers travel by handle, and small tables.
    # Of a slice it pickles the whole buffers, once for each chunk. So other tables are written.
    if table.get_total_buffer_size() < _regions.SMALL or _lies_in_storages(table):
        return NotImplemented
    try:
        return _receive, (_write(table),)
    except ValueError:  # dictionaries that a file can't hold
        return NotImplemented


def _lies_in_storages(table):
    return all(region_of(part) is not None for column in table.columns for chunk in column.chunks
               for part in chunk.buffers() if part is not None and part.size >= _cowshed.LARGE)


def _receive(found):
    return _read(found, "the table of this message")


_reducers.register(pyarrow.Table, _reduce_table)
