# SPDX-License-Identifier: MIT
"""Writing the storage of a Packed. Its form is in _pack.py.

The elements are pickled one by one into a memfd, which is sealed in the end. So neither their
number nor their size has to be known before, and nothing is copied twice. On a system that denies
memfds the bytes are collected in memory.

A list or tuple of strings, of floats or of integers is stored as such, which reads several times
faster than pickles do. The kind is that of the first element; if a later one is of another type,
all that was written is written again as pickles.
"""

import array
import errno
import fcntl
import os
import pickle
import struct
import sys
import types
import zlib

from .. import _cowshed
from .._memory import _ndarrays, _reducers
from .._memory._regions import is_tensor

__name__ = "cowshed._packing"  # whose name the functions of this file have in pickles

MAGIC = b"cowpack\1"
HEADER = struct.Struct("<8sQQQQI20x")  # magic, kind, elements, place of the index, size, checksum
TABLE = struct.Struct("<QQ")
RECORDS, STRINGS, INTEGERS, FLOATS = range(4)

_PIECE = 1 << 20  # bytes that are collected for one write
_LOOK = 256  # elements between two looks at the clock
_NOEXEC_SEAL = 8  # os.MFD_NOEXEC_SEAL of Python 3.14; older kernels refuse it
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


# ---- The header ----------------------------------------------------------------------------


def wrong(where, what):
    return ValueError(f"{where}: {what}. Pack the objects again, and save() the result")


def header(kind, count, index, size):
    """The header of a pack."""
    head = HEADER.pack(MAGIC, kind, count, index, size, 0)
    return HEADER.pack(MAGIC, kind, count, index, size, zlib.crc32(head))


def check_header(head, nbytes, where):
    """(kind, count, place of the index) of a header. ValueError: `nbytes` bytes can't have it."""
    if head[:7] != MAGIC[:7]:
        raise wrong(where, "it is no file of Packed.save()")
    if len(head) < HEADER.size:
        raise wrong(where, "it ends in its header")
    magic, kind, count, index, size, _ = HEADER.unpack(head)
    if magic != MAGIC:
        raise wrong(where, f"it has version {magic[7]} of the format, and this cowshed knows 1")
    if head != header(kind, count, index, size) or kind > FLOATS:
        raise wrong(where, "its header is damaged")
    ends = index if kind >= INTEGERS else index + 12 * count + 8
    if ends != nbytes or size != nbytes:
        raise wrong(where, f"it has {nbytes} bytes, and its header says {size}: it was cut off, "
                           "or written to")
    return kind, count, index


# ---- Elements ------------------------------------------------------------------------------


def is_ndarray(x):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ndarray)


class _Pickler(pickle.Pickler):
    """Takes arrays apart so that their bytes are buffers, also those that pickle would copy."""

    def reducer_override(self, x):
        if is_ndarray(x):
            if type(x) is sys.modules["numpy"].ndarray and x.size and not _has_buffer(x):
                flat = x.reshape(-1).view("u1")
                return rebuild_array, (pickle.PickleBuffer(flat), x.dtype, x.shape)
            if type(x).__reduce__ is _array_reduce() and not x.dtype.hasobject and not (
                    x.flags.c_contiguous or x.flags.f_contiguous):
                return x.copy().__reduce_ex__(5)
        elif is_tensor(x) and type(x) is sys.modules["torch"].Tensor:
            if _ndarrays.of_torch().is_plain(x) and not x.requires_grad and x.numel():
                torch = sys.modules["torch"]
                view = x.contiguous().reshape(-1).view(torch.uint8).numpy()
                name = str(x.dtype).removeprefix("torch.")
                return rebuild_tensor, (pickle.PickleBuffer(view), name, tuple(x.size()))
        return NotImplemented


def _has_buffer(x):
    """Whether an array gives its bytes as a buffer: dates and times don't."""
    if x.dtype.kind not in "mMV" or x.dtype.hasobject:
        return True
    try:
        memoryview(x)
    except ValueError:
        return False
    return True


def rebuild_array(buffer, dtype, shape):
    """An array of an element that gave no buffer."""
    import numpy

    return numpy.frombuffer(buffer, dtype).reshape(shape)


def _array_reduce():
    return sys.modules["numpy"].ndarray.__reduce__


def rebuild_tensor(buffer, dtype, size):
    """A tensor of an element: a copy, since PyTorch has no read-only tensors."""
    import torch

    return torch.frombuffer(bytearray(buffer), dtype=getattr(torch, dtype)).reshape(size)


class Writer:
    """Writes the elements, and then the index. A context manager: it frees what is not finished."""

    def __init__(self, bar):
        self.kind = RECORDS
        self._bar = bar
        self._out = _Out()
        self._out.write(bytes(HEADER.size))
        self._starts, self._sums = array.array("Q"), array.array("I")
        self._pieces, self._buffers = [], []
        # What the pickler writes is appended to the pieces.
        self._pickler = _Pickler(types.SimpleNamespace(write=self._pieces.append), 5,
                                 buffer_callback=self._buffers.append)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._out.close()
        if self._bar is not None:
            self._bar.close()

    def write_all(self, sequence):
        """Writes the elements of an iterable; returns the storage."""
        if type(sequence) in (list, tuple):
            sequence = tuple(sequence)  # other threads may change a list
            kinds = set(map(type, sequence))
            if kinds == {float} or kinds == {int}:
                try:
                    return self.write_numbers(array.array("d" if float in kinds else "q", sequence))
                except OverflowError:
                    pass  # an integer of more than 64 bits
            if kinds == {str}:
                self.kind = STRINGS
        add = self._add_string if self.kind == STRINGS else self._add_object
        for i, x in enumerate(sequence):
            add(i, x)
            if self._bar is not None and i % _LOOK == 0:
                self._bar.look(i + 1, self._out.size)
        return self.finish()

    def write_numbers(self, numbers):
        """Writes an array of integers or floats; returns the storage."""
        self.kind = FLOATS if numbers.typecode == "d" else INTEGERS
        self._out.write(memoryview(numbers).cast("B"))
        return self._out.finish(self.kind, len(numbers), self._out.size)

    def _add_string(self, i, x):
        self.add(x.encode("utf-8", "surrogatepass"))

    def _add_object(self, i, x):
        try:
            self._pickler.dump(x)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise TypeError(
                f"element {i} of type {type(x).__name__} can't be pickled "
                f"({type(error).__name__}: {error}). Pack what it is made of, as its path or its "
                "numbers, and make the object where it is used") from error
        self._pickler.clear_memo()
        pieces, buffers = self._pieces, self._buffers
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if buffers:
            self.add_record(body, [buffer.raw() for buffer in buffers])
            buffers.clear()
        else:
            self.add(body)

    def add(self, record):
        """Adds a record without buffers."""
        self._starts.append(self._out.size)
        self._sums.append(zlib.crc32(record))
        self._out.write(record)

    def add_record(self, body, buffers):
        """Adds a record with buffers, which are written behind it."""
        at = self._out.size + TABLE.size * (len(buffers) + 1) + len(body)
        head = [TABLE.pack(1 | len(buffers) << 8, len(body))]
        for buffer in buffers:
            at += -at % _alignment(buffer.nbytes)
            head.append(TABLE.pack(at, buffer.nbytes))
            at += buffer.nbytes
        self.add(b"".join([*head, body]))
        for buffer in buffers:
            self._out.align(_alignment(buffer.nbytes))
            self._out.write(buffer)

    def finish(self):
        """Writes the index; returns the storage."""
        self._starts.append(self._out.size)
        self._out.align(8)
        index = self._out.size
        self._out.write(memoryview(self._starts).cast("B"))
        self._out.write(memoryview(self._sums).cast("B"))
        return self._out.finish(self.kind, len(self._sums), index)


def _alignment(nbytes):
    return 64 if nbytes >= 512 else 16


def compact(packed):
    """A storage with the elements of a Packed, which may be a slice."""
    with Writer(None) as writer:
        if packed._kind >= INTEGERS:
            return writer.write_numbers(array.array(packed._data.format, packed))
        writer.kind = packed._kind
        for at in packed._range:
            record = packed._record(at)
            if packed._kind == RECORDS and record[0] != 0x80:
                body, buffers = packed._split(at, record)
                writer.add_record(body, buffers)
            else:
                writer.add(record)
        return writer.finish()


# ---- Bytes ---------------------------------------------------------------------------------


class _Out:
    """A memfd that grows; or a list of bytes, if the system denies memfds."""

    def __init__(self):
        self.size = 0
        self._small, self._parts = bytearray(), []
        self._fd = _memfd()

    def write(self, data):
        self.size += len(data)
        if len(data) < _PIECE:
            self._small += data
            if len(self._small) < _PIECE:
                return
            data = b""
        self._flush()
        if data:
            self._put(data)

    def align(self, n):
        self.write(bytes(-self.size % n))

    def _flush(self):
        small, self._small = self._small, bytearray()
        if small:
            self._put(small)

    def _put(self, data):
        _cowshed.check_file(*_cowshed.address_of(data)[:2])
        if self._fd is None:
            self._parts.append(bytes(data))
            return
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def finish(self, kind, count, index):
        """Writes the header; returns the frozen storage."""
        self._flush()
        head = header(kind, count, index, self.size)
        if self._fd is None:
            self._parts[0] = head + self._parts[0][len(head) :]
            return _reducers.rebuild_bytes(b"".join(self._parts), True)
        os.pwrite(self._fd, head, 0)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        return _cowshed.import_fd(self._fd, 0, self.size, _cowshed.SEALED)

    def close(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _memfd():
    """A new memfd, or None."""
    for flags in _NOEXEC_SEAL, 0:
        try:
            return os.memfd_create("cowshed-pack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
    return None
