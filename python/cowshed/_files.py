# SPDX-License-Identifier: MIT
"""Files as arrays: .npy, .safetensors and raw bytes, mapped and not read.

A file is mapped once, as a whole, as a storage of kind "file"; arrays are views of it.
What is in the page cache is there once for all processes, and what nobody touches is not
read at all.

A file that comes from elsewhere may say anything. Whatever its header claims is checked
against the file before an array is made, and what is wrong is a ValueError, nothing else.
What can't be checked is the future: bytes that somebody takes from under a mapping (by
making the file shorter) are a SIGBUS at the next touch. For files that others may write
there is `load=True`.

Other processes are sent a *description* of the file instead of its bytes, and open it
themselves (describe(), reopen()). That is right only while the file is the same one, and
while this process wrote nothing to its private copy; else the bytes are sent. A file that is
replaced before it is received (as save() does) is still found, by a descriptor that the sender
keeps as long as it has the storage, of the last 64 that it sent. If that is closed by then, or
somebody wrote to the file itself, it is an OSError where it is received, and the message is
lost.
"""

from __future__ import annotations

import ast
import operator
import os
import stat
import weakref
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _cowshed
from ._arrays import _make, _numpy, array_on, sizes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ._types import Order, Path, Shape

_MODES = ("r", "c", "r+")
_NPY = b"\x93NUMPY"
_NPY_HEADER_MOST = 1 << 16  # what the field of version 1 can say


class Description(NamedTuple):
    """A mapped file, as another process on this machine can find it."""

    path: str
    mode: str
    device: int
    inode: int
    file_bytes: int
    mtime_ns: int
    holder: tuple[int, int] | None = None  # a process that has it open, and as which number

    def key(self):
        """It, whoever says so."""
        return self[:6]


class _Held:
    """A descriptor of a mapped file. Closes it, unless the program did: then the number may be
    another file's."""

    def __init__(self, fd):
        self.fd, self.facts = fd, os.fstat(fd)

    def __del__(self):
        try:
            if os.path.samestat(os.fstat(self.fd), self.facts):
                os.close(self.fd)
        except OSError:
            pass


_HELD_MOST = 64  # descriptors are not ours alone

_held = weakref.WeakKeyDictionary()  # storage -> _Held, of those that were sent last
_mapped = weakref.WeakKeyDictionary()  # storage -> Description
_reopened = weakref.WeakValueDictionary()  # Description.key() -> storage, of those all may share


def open(path: Path, mode: Literal["r", "c", "r+"] = "c", *,
         format: Literal["npy", "safetensors", "raw"] | None = None,
         dtype: DTypeLike | None = None, shape: Shape | None = None, offset: int = 0,
         order: Order = "C", framework: Literal["numpy", "torch"] = "numpy",
         load: bool = False) -> Any:
    """What is in a file, without reading it: an array, or a mapping of names to arrays.

    path: a .npy file gives an array; a .safetensors file a `Tensors`, which is a read-only
    dict that makes its arrays when they are asked for. With a dtype: any file, whose bytes
    from `offset` on are an array of this `shape` (None: all there are, in one dimension).
    format: "npy", "safetensors" or "raw", if the name doesn't tell.

    mode: "r", read-only. "c", the default: writes are this process's own, copied page by
    page, and never reach the file. "r+": writes are the file's, as all see it.

    framework: "numpy" or "torch", what the arrays of a .safetensors file are. (Tensors whose bytes
    are not aligned are copies: PyTorch knows no others. Also with "r+", whose writes they don't
    bring to the file.)

    load: reads the file now, to memory of the engine. Then it does not matter what becomes of
    the file, and clones cost nothing (those of a mapping are copies). Not with "r+".

    Without `load` it reads a header, and nothing else before it is touched. ValueError: the file
    is not what it should be, or says what can't be; OSError as from open(). A file that is made
    shorter while it is mapped is a SIGBUS when bytes are touched that are no more there.
    """
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r}: there are 'r', 'c' and 'r+'")
    if framework not in ("numpy", "torch"):
        raise ValueError(f"framework {framework!r}: there are 'numpy' and 'torch'")
    if load and mode == "r+":
        raise ValueError("what is loaded has no file any more: mode 'r' or 'c'")
    if load and framework == "torch":
        mode = "c"  # PyTorch has no read-only tensors: these are nobody else's
    path, offset = os.path.abspath(os.fsdecode(path)), operator.index(offset)
    fd = _open(path, mode)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{path}: not a regular file")
        source = _Source(path, fd, facts, mode, load)
        format = format or _format_of(path, fd, dtype)
        if format == "raw":
            return _raw(source, dtype, shape, offset, order)
        if dtype is not None or shape is not None or offset:
            raise ValueError(f"a {format} file says itself what its dtype and shape are")
        if format == "npy":
            return _npy(source)
        if format == "safetensors":
            from ._safetensors import read

            return read(source, framework)
        raise ValueError(f"format {format!r}: there are 'npy', 'safetensors' and 'raw'")
    finally:
        os.close(fd)


def _open(path, mode):
    # Not to wait for the other end of a pipe, nor to become the master of a terminal.
    flags = os.O_RDWR if mode == "r+" else os.O_RDONLY
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _format_of(path, fd, dtype):
    if dtype is not None:
        return "raw"
    if os.pread(fd, len(_NPY), 0) == _NPY:
        return "npy"
    if path.endswith(".safetensors"):
        return "safetensors"
    raise ValueError(f"{path}: neither .npy nor .safetensors; for raw bytes say their dtype=")


# ---- The bytes -----------------------------------------------------------------------------


class _Source:
    """An open file, for those who read its header; storage() is asked for once at most."""

    def __init__(self, path, fd, facts, mode, load):
        self.path, self.fd, self.facts, self.mode, self.load = path, fd, facts, mode, load
        self.file_bytes = facts.st_size

    def read(self, offset, nbytes):
        """These bytes, which the file has to have."""
        parts = []
        while nbytes:
            part = os.pread(self.fd, min(nbytes, 1 << 30), offset)
            if not part:
                raise self.wrong("it ends before its header does")
            parts.append(part)
            offset, nbytes = offset + len(part), nbytes - len(part)
        return b"".join(parts)

    def wrong(self, what):
        return ValueError(f"{self.path}: {what}")

    def storage(self):
        if self.load:
            return _cowshed.load(self.fd, 0, self.file_bytes, readonly=self.mode == "r")
        return _map(self.fd, self.path, self.mode, self.facts)

    def array(self, dtype, shape, offset, order):
        """All of the file that is one array."""
        nbytes = size_of(dtype, shape)
        if nbytes is None or nbytes > self.file_bytes - offset:
            raise self.wrong(f"shape {_short(shape)} of {dtype} is more than there is in "
                             f"{self.file_bytes} bytes from {offset} on")
        if nbytes == 0:
            result = _shaped(self, lambda: _make(shape, dtype, order, False, False))
            result.flags.writeable = self.mode != "r"
            return result
        strides = None if order == "C" else _fortran(dtype, shape)
        return _shaped(self, lambda: array_on(self.storage(), dtype, shape, offset, strides))


def _shaped(source, make):
    try:
        return make()
    except (ValueError, TypeError, OverflowError) as error:
        raise source.wrong(f"no array has this shape ({error})") from error


def _short(shape):
    text = str(tuple(shape)[:8])
    return text if len(text) < 200 else f"({len(shape)} sizes)"


def _fortran(dtype, shape):
    strides, step = [], dtype.itemsize
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)


def size_of(dtype, shape):
    """Bytes of a shape, or None if nothing is so large. Also the elements are so few."""
    count = 1
    for size in shape:
        count *= max(size, 1)
        if count * max(dtype.itemsize, 1) >= 1 << 62:
            return None
    return 0 if 0 in shape else count * dtype.itemsize


def _map(fd, path, mode, facts):
    flags = _cowshed.FILE_SHARED if mode == "r+" else 0
    storage = _cowshed.open_file(fd, 0, facts.st_size, flags, readonly=mode == "r")
    _mapped[storage] = Description(path, mode, facts.st_dev, facts.st_ino, facts.st_size,
                                   facts.st_mtime_ns)
    return storage


# ---- Formats ---------------------------------------------------------------------------------


def _raw(source, dtype, shape, offset, order):
    dtype = _numpy().dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"{dtype}: a dtype of plain bytes is needed")
    if not 0 <= offset <= source.file_bytes:
        raise source.wrong(f"offset {offset} is not in its {source.file_bytes} bytes")
    if order not in ("C", "F"):
        raise ValueError(f"order {order!r}: there are 'C' and 'F'")
    if shape is None:
        count, rest = divmod(source.file_bytes - offset, dtype.itemsize)
        if rest:
            raise source.wrong(f"{rest} bytes are left of elements of {dtype.itemsize}; "
                               "say a shape")
        shape = (count,)
    shape = sizes(shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"negative sizes: {shape}")
    return source.array(dtype, shape, offset, order)


def _npy(source):
    start = source.read(0, 8)
    if start[:6] != _NPY:
        raise source.wrong("it does not begin as .npy does")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise source.wrong(f"version {version} of .npy is not known")
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(source.read(8, width), "little")
    if length > _NPY_HEADER_MOST:
        raise source.wrong(f"a header of {length} bytes")
    header = source.read(8 + width, length)
    dtype, fortran, shape = _npy_header(source, header, version)
    return source.array(dtype, shape, 8 + width + length, "F" if fortran else "C")


def _npy_header(source, header, version):
    # Python's parser, and NumPy's descriptions of types, fail in many ways.
    try:
        said = ast.literal_eval(header.decode("utf-8" if version == (3, 0) else "latin-1"))
    except Exception as error:
        raise source.wrong(f"its header is no dict ({type(error).__name__})") from error
    if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
        raise source.wrong("its header must have descr, fortran_order and shape")
    fortran, shape = said["fortran_order"], said["shape"]
    if type(fortran) is not bool:
        raise source.wrong("fortran_order must be True or False")
    if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
        raise source.wrong("its shape is no tuple of sizes")
    try:
        dtype = _numpy().lib.format.descr_to_dtype(said["descr"])
    except Exception as error:
        raise source.wrong(f"NumPy knows no such dtype ({error})") from error
    if dtype.hasobject:
        raise source.wrong("it has Python objects, which are programs: not opened here")
    if dtype.subdtype:
        raise source.wrong(f"its elements are arrays ({dtype}), which no array has")
    return dtype, fortran, shape


# ---- For other processes --------------------------------------------------------------------


def is_written(storage):
    """Is it a file that is mapped "r+", whose bytes all who have it write in place?"""
    said = _mapped.get(storage) if storage.kind == "file" else None
    return said is not None and said.mode == "r+"


def describe(storage) -> Description | None:
    """How another process on this machine gets the bytes of a mapped file by itself.

    None: it can't, and has to be sent the bytes. So it is if this is no mapping of ours, if the
    name means another file meanwhile or the file was written, or if this process wrote
    to its private copy.
    """
    said = _mapped.get(storage)
    if said is None:
        return None
    try:
        if _differs(said, os.stat(said.path)):
            return None
    except OSError:
        return None
    if said.mode == "c" and _was_written(storage):
        return None
    held = _held.get(storage) or _hold(storage, said)
    return said._replace(holder=(os.getpid(), held.fd)) if held else said


def _hold(storage, said):
    try:
        held = _Held(_open(said.path, "r"))
    except OSError:  # no descriptors left: it goes by its name alone
        return None
    if _differs(said, held.facts):
        return None
    while len(_held) >= _HELD_MOST:
        try:
            del _held[next(iter(_held))]
        except (KeyError, RuntimeError, StopIteration):  # another thread was there
            pass
    return _held.setdefault(storage, held)


def reopen(description):
    """The storage of a description. OSError that says so if the file is not the same."""
    description = Description(*description)
    shared = description.mode != "c"
    storage = _reopened.get(description.key()) if shared else None
    if storage is not None:
        return storage
    fd = _open_same(description)
    try:
        storage = _map(fd, description.path, description.mode, os.fstat(fd))
    finally:
        os.close(fd)
    if shared:
        _reopened[description.key()] = storage
    return storage


def _open_same(said):
    """A descriptor of the file that is meant: by its name, else as its holder has it."""
    error = None
    names = [said.path]
    if said.holder:
        names.append("/proc/%d/fd/%d" % said.holder)
    for name in names:
        try:
            # Before it is opened, too: the number may be a device's by now.
            if name == said.path or not _differs(said, os.stat(name)):
                fd = _open(name, said.mode)
                what = _differs(said, os.fstat(fd))
                if not what:
                    return fd
                os.close(fd)
                error = error or OSError(_ESTALE, f"{what} since it was sent", said.path)
        except OSError as failed:
            error = error or failed
    raise error


_ESTALE = 116


def _differs(said, facts):
    if (facts.st_dev, facts.st_ino) != (said.device, said.inode):
        return "the name means another file"
    if said.mode == "r+":  # is written all the time
        return "the file was made shorter" if facts.st_size < said.file_bytes else None
    if (facts.st_size, facts.st_mtime_ns) != (said.file_bytes, said.mtime_ns):
        return "the file was written"
    return None


_PAGE = os.sysconf("SC_PAGESIZE")
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


def _was_written(storage):
    """Has a private mapping pages of its own? Yes, if that can't be told."""
    numpy = _numpy()
    first = storage.address // _PAGE
    left = -(-storage.nbytes // _PAGE)
    try:
        with os.fdopen(os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC), "rb",
                       buffering=0) as pages:
            pages.seek(first * 8)
            while left:
                entries = numpy.frombuffer(pages.read(min(left, 1 << 17) * 8), "=u8")
                if not len(entries):
                    return True
                here = (entries & numpy.uint64(_PRESENT | _SWAPPED)) != 0
                if (here & ((entries & numpy.uint64(_OF_FILE)) == 0)).any():
                    return True
                left -= len(entries)
    except OSError:
        return True
    return False
