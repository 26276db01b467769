# SPDX-License-Identifier: MIT
"""Arrays to files, in whole or not at all.

A file is made beside the one it is to replace, and takes its place when it is complete:
whoever opens the name finds the old one or the new one, also after a crash.

A format is a list of *pieces*, buffers to be written one behind the other. They are made
before anything is written, so that all that can be wrong with a state is known while the
caller still waits; writing them needs no Python but a loop around write(), without the GIL.

Of several that are written at once to one name the one that was begun last stays, whichever
is ready first: those that find a later one there give way to it. They are threads and forked
processes of this one (_saving.py), so the number of that one is in memory that all have.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from . import _cowshed, _family
from ._arrays import _is_tensor, _numpy

if TYPE_CHECKING:
    from ._types import Format, Path

_MOST = 64 << 20  # bytes a write, so that others get at the file's lock


def save(path: Path, x: Any, *, format: Format | None = None,
         sync: bool = False) -> None:
    """Writes an array, a tensor or a dict of them to a file, atomically.

    .npy: one array. .safetensors: a dict, also nested (names are joined by "."), whose numbers
    and strings go to the header's __metadata__ as JSON. .npz: a dict of arrays, as
    numpy.savez(). .pt, .pth: anything, as torch.save(). format: one of these without the dot,
    if the name doesn't tell. sync: on the disk when this returns. Of a symbolic link the file that
    it names is replaced. What is no regular file (a pipe, a device), and what a descriptor's name
    stands for (/dev/stdout), is written to as by open(path, "wb"), and not atomically.

    Bytes are written as they lie: for those of one moment, while others write, save a
    snapshot(). The GIL is not held while bytes are written, but by NumPy and PyTorch for
    their own formats. Of what save_async() writes to one path at once the last that was begun
    stays; threads that save() to one path take a lock. ValueError: the format can't hold this;
    OSError as from write(). The old file is as it was then, but where only the folder could not
    be synced.
    """
    plan(path, x, format).write(sync)


def plan(path, x, format=None):
    """What save() would do, done but for the writing: a Plan."""
    path = os.path.abspath(os.fsdecode(path))
    format = format or os.path.splitext(path)[1].removeprefix(".")
    if format == "npy":
        return Plan(path, _npy(x))
    if format == "safetensors":
        return Plan(path, _safetensors(x))
    if format == "npz":
        arrays = {name: _as_numpy(name, value) for name, value in _flat(x)}
        _check_npz(arrays)
        return Plan(path, (), lambda file: _npz(file, arrays))
    if format in ("pt", "pth", "torch"):
        import torch

        return Plan(path, (), lambda file: torch.save(x, file))
    raise ValueError(f"format {format!r} of {path}: there are npy, npz, safetensors and pt")


class _Order:
    """Who was begun later than whom, of those that write to a name."""

    def __init__(self):
        storage = _family.alias_storage(128)
        self.numbers = itertools.count(1)
        self._there = memoryview(storage)[64:72].cast("Q")  # the number of the file that is there
        self._lock = _cowshed.Lock(storage, 0, True)  # is let go of when its owner is killed
        self.forget()

    def forget(self):
        """Whoever held it, or waited, is not in this process."""
        self._thread, self._depth = threading.RLock(), 0

    def replace(self, number, beside, path):
        """Gives the file its name, if no later one has it. Returns whether it did."""
        with self._thread:
            if self._depth:  # the handler of a signal, in the middle of this
                return self._replace(number, beside, path)
            with self._lock:
                self._depth = 1
                try:
                    return self._replace(number, beside, path)
                finally:
                    self._depth = 0

    def _replace(self, number, beside, path):
        # No handler comes between this comparison and the call.
        if self._there[0] > number:
            return False
        os.replace(beside, path)
        if self._there[0] < number:
            self._there[0] = number
        return True


_orders = weakref.WeakValueDictionary()  # path -> _Order, while somebody writes there
_lock = threading.RLock()


class Plan:
    """A file that can be written now: pieces, or a function that writes to a file object."""

    def __init__(self, path, pieces, writer=None):
        self.path, self.pieces, self.writer = path, pieces, writer
        self.target = os.path.realpath(path)  # a symbolic link stays one
        # Known before it is there, for those who remove it in the name of somebody killed.
        self.beside = os.path.join(os.path.dirname(self.target), f".cowshed-{os.urandom(8).hex()}")
        self.order = _orders.get(self.target)
        self.number = next(self.order.numbers) if self.order else 0

    def begin(self):
        """It is written while the program goes on: maybe others are, to the same name."""
        with _lock:
            if self.order is None:
                try:
                    self.order = _orders.setdefault(self.target, _Order())
                except OSError:  # no memory can be shared here: whoever is ready last stays
                    return
                self.number = next(self.order.numbers)

    def write(self, sync=False):
        """Writes it. The old file is as it was if this raises, but where only the folder could
        not be synced."""
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None:
            if not stat.S_ISREG(mode) or _is_descriptor(self.path):
                self._write_there(sync)
                return
            mode &= 0o777
        # Before anything is changed: some folders may be written and not read.
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
                    if error.errno != errno.EINVAL:  # a pipe has no disk
                        raise
        finally:
            os.close(fd)

    def _replace(self, mode, sync):
        # At no moment may more people read it than the file that is there.
        fd = os.open(self.beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                     0o666 if mode is None else 0o600)
        try:
            try:
                if mode is not None:
                    os.fchmod(fd, mode)
                self._write(fd)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            if self.order is None:
                os.replace(self.beside, self.target)
            elif not self.order.replace(self.number, self.beside, self.target):
                self.remove()
        except BaseException:
            self.remove()
            raise

    def _write(self, fd):
        if self.writer:
            with os.fdopen(os.dup(fd), "wb") as file:
                regular = stat.S_ISREG(os.fstat(fd).st_mode)
                self.writer(file if regular else _Stream(file))
            return
        for piece in self.pieces:
            view = memoryview(_bytes_of(piece))
            while view:
                view = view[os.write(fd, view[:_MOST]) :]

    def remove(self):
        """Removes what a writer left that could not do so itself."""
        try:
            os.unlink(self.beside)
        except FileNotFoundError:
            pass


class _Stream:
    """A file of no position: a device may name one that means nothing, as /dev/null does."""

    def __init__(self, file):
        self.write, self.flush = file.write, file.flush


def _is_descriptor(path):
    """Does a path lead to a file by a number in /proc? Its name is none to be replaced then."""
    for _ in range(40):  # as many links as the kernel follows
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
    _orders.clear()  # what is begun here is of another program


os.register_at_fork(after_in_child=_after_fork)


# ---- Bytes ---------------------------------------------------------------------------------


def _bytes_of(piece):
    """A piece as a buffer of bytes. One whose elements don't lie in order is copied."""
    if isinstance(piece, bytes):
        return piece
    numpy = _numpy()
    return numpy.ascontiguousarray(piece).reshape(-1).view(numpy.uint8)


def _raw(x):
    """A tensor as an array of the same bits. Who writes it may be a forked child, in which
    PyTorch's threads are missing and NumPy misses nothing."""
    torch = sys.modules["torch"]
    same = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (x if x.dtype.is_complex else x.view(same[x.dtype.itemsize])).numpy()


def _little(array):
    """With the byte order that .safetensors has."""
    dtype = array.dtype.newbyteorder("<")
    return array if dtype == array.dtype else array.astype(dtype)


def _is_array(x):
    numpy = sys.modules.get("numpy")
    return _is_tensor(x) or (numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)))


def _plain(name, x):
    """A tensor whose bytes are what they are: on the CPU, dense, without bits that say else."""
    torch = sys.modules["torch"]
    if x.layout != torch.strided or x.is_quantized or x.is_meta:
        raise ValueError(f"{name}: {x.layout} tensors are for torch.save() (.pt)")
    return x.detach().cpu().resolve_conj().resolve_neg()


def _as_numpy(name, x):
    numpy = _numpy()
    if _is_tensor(x):
        try:
            return _plain(name, x).numpy()
        except TypeError:
            raise ValueError(f"{name}: NumPy has no {x.dtype}; .safetensors and .pt do") from None
    if isinstance(x, numpy.ma.MaskedArray):
        raise ValueError(f"{name}: a masked array is two arrays: use its .data and .mask; "
                         ".pt and pickle hold it")
    array = numpy.asarray(x)
    if array.dtype.hasobject:
        raise ValueError(f"{name}: Python objects are no bytes; .pt and pickle hold them")
    return array


# ---- Formats --------------------------------------------------------------------------------


def _npy(x):
    import io

    if isinstance(x, (dict, list, tuple)):
        raise ValueError(".npy holds one array; for several: .safetensors, .npz or .pt")
    array = _as_numpy("the array", x)
    header = io.BytesIO()
    formats = _numpy().lib.format
    # The version that can hold it, as NumPy chooses it.
    said = formats.header_data_from_array_1_0(array)
    for write in formats.write_array_header_1_0, formats.write_array_header_2_0:
        try:
            write(header, said)
            break
        except (ValueError, UnicodeEncodeError):
            header = io.BytesIO()
    if not header.tell():
        raise ValueError("this dtype needs version 3 of .npy: use numpy.save()")
    return [header.getvalue(), array.T if said["fortran_order"] else array]


def _check_npz(arrays):
    for name in arrays:
        name.encode()  # ValueError: half of a character
        if "\0" in name:
            raise ValueError(f"{name!r}: no name in .npz has a zero")


def _npz(file, arrays):
    """As numpy.savez(), which takes some names for arguments of its own."""
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as out:
                _numpy().lib.format.write_array(out, array, allow_pickle=False)


def _safetensors(state):
    from . import _safetensors as format

    if not isinstance(state, dict):
        raise ValueError(".safetensors holds a dict of arrays; for one: .npy")
    entries, pieces, metadata = [], [], {}
    for name, value in _flat(state):
        if not _is_array(value):
            metadata[name] = _json(name, value)
            continue
        if name == "__metadata__":
            raise ValueError("a tensor can't be called __metadata__")
        value = _plain(name, value) if _is_tensor(value) else _little(_as_numpy(name, value))
        kind = format.kind_of(value.dtype)
        if kind is None:
            raise ValueError(f"{name}: .safetensors has no {value.dtype}")
        # Largest elements first, so that all are aligned.
        entries.append((-value.dtype.itemsize, len(pieces), name, kind, value.shape, value.nbytes))
        pieces.append(_raw(value) if _is_tensor(value) else value)
    order = sorted(entries, key=lambda entry: entry[:2])
    head = format.header([entry[2:] for entry in order], metadata)
    return [head, *(pieces[entry[1]] for entry in order)]


def _json(name, value):
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: .safetensors holds arrays, numbers and strings, no "
                         f"{type(value).__name__}; .pt holds anything") from None


def _flat(state):
    """(name, value) of all leaves of nested dicts, lists and tuples."""
    if not isinstance(state, dict):
        raise ValueError("a dict is needed, of names and arrays")
    seen = set()
    for name, value in _leaves("", state, []):
        if name in seen:
            raise ValueError(f"two values are called {name!r}")
        seen.add(name)
        yield name, value


def _leaves(prefix, x, above):
    # What is empty has a name, too; only the whole has none.
    if not isinstance(x, (dict, list, tuple)) or (prefix and not x):
        yield prefix.removesuffix("."), x
        return
    if len(above) > 200 or any(x is outer for outer in above):
        raise ValueError(f"{prefix[:80]}: it contains itself, or is nested too deeply; "
                         ".pt holds it")
    above.append(x)
    for key, value in x.items() if isinstance(x, dict) else enumerate(x):
        yield from _leaves(f"{prefix}{key}.", value, above)
    above.pop()
