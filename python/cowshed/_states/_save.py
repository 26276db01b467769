# SPDX-License-Identifier: MIT
"""Saving arrays to files atomically.

The new file is written beside the old one, and is renamed over it when it is complete. A program
that opens the name finds the old file or the new one, also after a crash.

A format gives a list of *pieces*, buffers that are written one after the other. They are made
before the first write, so errors in a state are raised while the caller still waits. Writing
them is a loop around write(), which runs without the GIL.

Several saves may write to one name at once. Then the file of the save that began last stays. If an
earlier save is ready later, it finds that file and removes its own. The saves are threads and
forked processes of this process (_saving.py). The number of the latest file lies in memory that
all of them share.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .. import _cowshed
from .._memory import _family
from .._memory._names import keep
from .._memory._ndarrays import _numpy, check_file
from .._memory._regions import is_tensor
from . import _direct, _pace, _streams

if TYPE_CHECKING:
    from .._memory._types import Format, Path

__name__ = keep(__name__)


def save(path: Path, x: Any, *, format: Format | None = None,
         sync: bool = False) -> None:
    """Writes an array, a tensor or a dict of them to a file, atomically.

    .npy            one array
    .safetensors    a dict, also a nested one: names are joined by ".". Numbers and strings go to
                    the header's __metadata__ as JSON.
    .npz            a dict of arrays, also a nested one, as numpy.savez() writes it
    .pt, .pth       any object, as torch.save() writes it

    format: one of these without the dot, if the name does not tell. sync: True returns when the
    bytes are on the disk.

    If the path is a symbolic link, the file that it names is replaced. A pipe, a device, or the
    name of a descriptor (/dev/stdout) is written as by open(path, "wb"), and not atomically.

    The bytes are written as they are at the time of each write(). If other threads write the
    arrays meanwhile, save a snapshot(). The GIL is released while bytes are written; NumPy and
    PyTorch hold it for .npz and .pt. If several save_async() write to one path, the file of the
    last one stays. If several threads save() to one path, the last rename decides: use a lock.

    ValueError: the format can't hold the state. OSError: as from write(). After an error the old
    file is unchanged, except if only the sync of the folder failed.
    """
    plan(path, x, format).write(sync)


def plan(path, x, format=None):
    """Everything that save() does before it writes. Returns a Plan; errors as of save()."""
    path = os.path.abspath(os.fsdecode(path))
    format = format_of(path, format)
    if format == "npy":
        return Plan(path, _npy(x))
    if format == "safetensors":
        return Plan(path, _safetensors(x))
    if format == "npz":
        arrays = {name: _as_numpy(name, value) for name, value in _flat(x)}
        _check_npz(arrays)
        total = sum(array.nbytes for array in arrays.values())
        return Plan(path, (), lambda file: _npz(file, arrays), total)
    from .._memory._copier import held_bytes

    return Plan(path, (), lambda file: _pt(file, x), held_bytes(x))


def format_of(path, format=None):
    """The format of a file. ValueError: it is unknown."""
    format = format or os.path.splitext(path)[1].removeprefix(".")
    if format not in ("npy", "safetensors", "npz", "pt", "pth", "torch"):
        raise ValueError(f"format {format!r} of {path} is unknown: pass format='npy', 'npz', "
                         "'safetensors' or 'pt'")
    return format


class _Order:
    """The order of the saves to one name: numbers, and the number of the file that is there.

    It lies in memory that forked children share, with a lock for all of them.
    """

    def __init__(self):
        storage = _family.alias_storage(128)
        self._there = memoryview(storage)[64:72].cast("Q")  # the number of the file that is there
        self._lock = _cowshed.Lock(storage, 0, True)  # released by the kernel if its owner dies
        self.forget()

    def forget(self):
        """In a forked child: makes a new lock for threads. The holders are in the parent."""
        self._thread, self._depth = threading.RLock(), 0

    def replace(self, number, beside, path):
        """Renames the file, unless a later one has the name. Returns whether it did."""
        with self._thread:
            if self._depth:  # a signal handler that runs during this function
                return self._replace(number, beside, path)
            with self._lock:
                self._depth = 1
                try:
                    return self._replace(number, beside, path)
                finally:
                    self._depth = 0

    def _replace(self, number, beside, path):
        # No signal handler runs between this comparison and the call.
        if self._there[0] > number:
            return False
        os.replace(beside, path)
        if self._there[0] < number:
            self._there[0] = number
        return True


_orders = weakref.WeakValueDictionary()  # path -> _Order, while a save to it runs
_lock = threading.RLock()


class Plan:
    """A file that is ready to be written: pieces, or a function that writes to a file object."""

    def __init__(self, path, pieces, writer=None, total=None):
        self.path, self.pieces, self.writer = path, pieces, writer
        self.total = sum(_size(piece) for piece in pieces) if total is None else total
        self.pace = _pace.Pace(self.total)
        self.target = os.path.realpath(path)  # a symbolic link stays one
        # Chosen before the file exists: the parent of a killed writer removes the file.
        self.beside = os.path.join(os.path.dirname(self.target), f".cowshed-{os.urandom(8).hex()}")
        self.order = _orders.get(self.target)
        self.number = _cowshed.next_number() if self.order else 0

    def begin(self):
        """Gives a save in the background its number among the saves to the same name."""
        with _lock:
            if self.order is None:
                try:
                    self.order = _orders.setdefault(self.target, _Order())
                except OSError:  # no memory can be shared: the last rename decides
                    return
                self.number = _cowshed.next_number()

    def write(self, sync=False):
        """Writes the file. After an exception the old file is unchanged, except if only the sync
        of the folder failed. An OSError has the name of the file."""
        try:
            self._write_any(sync)
        except OSError as error:
            if error.filename in (None, self.beside):
                error.filename = self.path
            raise

    def _write_any(self, sync):
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None:
            if not stat.S_ISREG(mode) or _is_descriptor(self.path):
                self._write_there(sync)
                return
            mode &= 0o777
        # Opened before anything is changed: a folder may be writable but not readable.
        folder = os.open(os.path.dirname(self.target), os.O_RDONLY | os.O_DIRECTORY) \
            if sync else None
        try:
            self._replace(mode, sync)
            if folder is not None:
                os.fsync(folder)
        finally:
            if folder is not None:
                os.close(folder)

    def _write_there(self, sync):
        fd = os.open(self.path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            self._write(fd)
            if sync:
                try:
                    os.fsync(fd)
                except OSError as error:
                    if error.errno != errno.EINVAL:  # EINVAL: a pipe can't be synced
                        raise
        finally:
            os.close(fd)

    def _replace(self, mode, sync):
        # At no time may more users read the new file than the old one.
        fd = os.open(self.beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                     0o666 if mode is None else 0o600)
        try:
            try:
                if mode is not None:
                    os.fchmod(fd, mode)
                self._write_new(fd)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            self.pace.before()
            if self.order is None:
                os.replace(self.beside, self.target)
            elif not self.order.replace(self.number, self.beside, self.target):
                self.remove()
        except BaseException:
            self.remove()
            raise

    def _write_new(self, fd):
        """Writes a new file, which nothing else has open."""
        file = _direct.Writer(fd, self.beside, self.pace)
        try:
            if self.writer:
                _streams.Stream(file).run(self.writer)
            for piece in self.pieces:
                file.write(_bytes_of(piece))
            file.close()
        finally:
            file.abandon()

    def _write(self, fd):
        file = _streams.There(fd, self.pace)
        if self.writer:
            _streams.Stream(file).run(self.writer)
        for piece in self.pieces:
            file.write(_bytes_of(piece))
        file.flush()

    def remove(self):
        """Removes the unfinished file, also for a writer that was killed."""
        try:
            os.unlink(self.beside)
        except FileNotFoundError:
            pass


def _is_descriptor(path):
    """Whether a path leads to a descriptor in /proc, whose name can't be replaced."""
    for _ in range(40):  # the kernel follows 40 links, too
        folder = os.path.realpath(os.path.dirname(path))
        if folder.startswith("/proc/") and folder.endswith("/fd"):
            return True
        try:
            path = os.path.join(folder, os.readlink(path))
        except OSError:
            return False
    return False


def _after_fork():
    global _lock
    _lock = threading.RLock()
    for order in list(_orders.values()):
        order.forget()
    _orders.clear()  # saves of the child have an order of their own


os.register_at_fork(after_in_child=_after_fork)


# ---- Bytes ---------------------------------------------------------------------------------


def _size(piece):
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


def _bytes_of(piece):
    """A piece as a buffer of bytes. Copies an array that is not contiguous."""
    if isinstance(piece, (bytes, memoryview)):
        return piece
    numpy = _numpy()
    check_file(piece)
    return numpy.ascontiguousarray(piece).reshape(-1).view(numpy.uint8)


def _raw(x):
    """A tensor as a NumPy array of the same bits.

    The writer may be a forked child. PyTorch's threads are missing there, and NumPy needs none.
    """
    torch = sys.modules["torch"]
    same = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (x if x.dtype.is_complex else x.view(same[x.dtype.itemsize])).numpy()


def _little(array):
    """The array in little-endian byte order, as .safetensors has it."""
    dtype = array.dtype.newbyteorder("<")
    return array if dtype == array.dtype else array.astype(dtype)


def _is_array(x):
    numpy = sys.modules.get("numpy")
    return is_tensor(x) or (numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)))


def _plain(name, x):
    """A dense tensor on the CPU whose bytes are its values (no conjugate or negative bit)."""
    torch = sys.modules["torch"]
    if x.layout != torch.strided or x.is_quantized or x.is_meta:
        kind = "quantized" if x.is_quantized else "meta" if x.is_meta else x.layout
        raise ValueError(f"{name} is a tensor without plain bytes ({kind}): save it as .pt")
    return x.detach().cpu().resolve_conj().resolve_neg()


def _as_numpy(name, x):
    numpy = _numpy()
    if is_tensor(x):
        try:
            return _plain(name, x).numpy()
        except TypeError:
            raise ValueError(f"{name} is {x.dtype}, which NumPy does not have: save it as "
                             ".safetensors or .pt") from None
    if isinstance(x, numpy.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array, which consists of two arrays: save its .data "
                         "and .mask, or use .pt")
    array = numpy.asarray(x)
    if array.dtype.hasobject:
        raise ValueError(f"{name} has Python objects ({type(x).__name__}), which are no plain "
                         "bytes: save it as .pt")
    return array


# ---- Formats --------------------------------------------------------------------------------


def _npy(x):
    import io

    if isinstance(x, (dict, list, tuple)):
        raise ValueError(f".npy holds one array, not a {type(x).__name__}: use .safetensors, .npz "
                         "or .pt")
    array = _as_numpy("the array", x)
    header = io.BytesIO()
    formats = _numpy().lib.format
    # The first version that can hold the header, as NumPy chooses it.
    said = formats.header_data_from_array_1_0(array)
    for write in formats.write_array_header_1_0, formats.write_array_header_2_0:
        try:
            write(header, said)
            break
        except (ValueError, UnicodeEncodeError):
            header = io.BytesIO()
    if not header.tell():
        raise ValueError(f"dtype {str(array.dtype)[:80]} needs version 3 of .npy: use numpy.save()")
    return [header.getvalue(), array.T if said["fortran_order"] else array]


def _pt(file, x):
    """Writes what torch.save() writes, with the bytes of large tensors at multiples of a page.

    They can be written from where they lie then (_direct.py). The setting is of this thread.
    """
    import torch

    from .._memory._copier import check_files

    check_files(x)
    try:
        from torch.utils.serialization import config

        patch = config.patch("save.storage_alignment", _direct.BLOCK)
    except (ImportError, AttributeError):  # an older PyTorch: all goes through a buffer
        patch = contextlib.nullcontext()
    with patch:
        torch.save(x, file)


def _check_npz(arrays):
    for name in arrays:
        name.encode()  # ValueError: an unpaired surrogate
        if "\0" in name:
            raise ValueError(f"the name {name!r} has a zero character, which .npz can't hold: "
                             "rename it")


def _npz(file, arrays):
    """Writes what numpy.savez() writes. (That function takes some names as its own arguments.)"""
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            check_file(array)
            with archive.open(name + ".npy", "w", force_zip64=True) as out:
                _numpy().lib.format.write_array(out, array, allow_pickle=False)


def _safetensors(state):
    from . import _safetensors as format

    if not isinstance(state, dict):
        raise ValueError(f".safetensors holds a dict of arrays, not a {type(state).__name__}: for "
                         "one array use .npy")
    entries, pieces, metadata = [], [], {}
    for name, value in _flat(state):
        if not _is_array(value):
            metadata[name] = _json(name, value)
            continue
        if name == "__metadata__":
            raise ValueError(".safetensors needs the name '__metadata__' for itself: rename the "
                             "array")
        value = _plain(name, value) if is_tensor(value) else _little(_as_numpy(name, value))
        kind = format.kind_of(value.dtype)
        if kind is None:
            raise ValueError(f"{name} is {value.dtype}, which .safetensors does not have: convert "
                             "it, or use .npz or .pt")
        # First those of whole pages, which can be written from where they lie (_direct.py). Then
        # the largest elements first: so all are aligned.
        whole = value.nbytes >= 1 << 20 and value.nbytes % 4096 == 0
        entries.append(((not whole, -value.dtype.itemsize), len(pieces), name, kind, value.shape,
                        value.nbytes))
        pieces.append(_raw(value) if is_tensor(value) else value)
    order = sorted(entries, key=lambda entry: entry[:2])
    head = format.header([entry[2:] for entry in order], metadata)
    return [head, *(pieces[entry[1]] for entry in order)]


def _json(name, value):
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is a {type(value).__name__}, but .safetensors holds arrays, "
                         "numbers and strings: use .pt") from None


def _flat(state):
    """Yields (name, value) of all leaves of nested dicts, lists and tuples."""
    if not isinstance(state, dict):
        raise ValueError(f"the state is a {type(state).__name__}: pass a dict of names and arrays")
    seen = set()
    for name, value in _leaves("", state, []):
        if name in seen:
            raise ValueError(f"two values have the joined name {name!r}: rename one of them")
        seen.add(name)
        yield name, value


def _leaves(prefix, x, above):
    # An empty dict or list is a leaf, too, unless it is the state itself.
    if not isinstance(x, (dict, list, tuple)) or (prefix and not x):
        yield prefix.removesuffix("."), x
        return
    if len(above) > 200 or any(x is outer for outer in above):
        raise ValueError(f"{prefix.removesuffix('.')[:80]} contains itself, or is nested more than "
                         "200 deep: use .pt")
    above.append(x)
    for key, value in x.items() if isinstance(x, dict) else enumerate(x):
        yield from _leaves(f"{prefix}{key}.", value, above)
    above.pop()
