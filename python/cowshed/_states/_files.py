# SPDX-License-Identifier: MIT
"""Files as arrays: .npy, .npz, .safetensors, .pt and raw bytes, mapped and not read.

A file is mapped once, as a whole, as a storage of kind "file". Arrays are views of it. All
processes share the pages of the page cache. The kernel reads a page from the disk when a
process first touches it.

The header of a file may be damaged or hostile. Each value in it is checked against the file
before an array is made, and each error is a ValueError. A later change can't be checked: if
another program makes the file shorter, the next touch of a missing byte is a SIGBUS. Copies look
before (python/_cowshed/guard.c), and raise OSError. Use `load=True` for files that other programs
may write.

A message to another process has a *description* of the file instead of its bytes, and the
receiver opens the file itself (describe(), reopen()). That is correct only while the file is the
same, and while this process has written nothing to its private copy. Else the bytes are sent.

A file may be replaced before the message is received, as save() does. The receiver then finds
the old file by a descriptor of the sender. The sender keeps such a descriptor as long as it has
the storage, for the last 64 storages that it sent. If the descriptor is closed, or a program
wrote to the file itself, the receiver gets an OSError, and the message is lost.
"""

from __future__ import annotations

import ast
import operator
import os
import stat
import weakref
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import _cowshed
from .._memory._mappings import own_pages, watch
from .._memory._names import keep
from .._memory._ndarrays import _make, _numpy, array_on, size_of, sizes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from .._memory._types import Order, Path, Shape

__name__ = keep(__name__)

_MODES = ("r", "c", "r+")
_NPY = b"\x93NUMPY"
_NPY_HEADER_MOST = 1 << 16  # the length field of version 1 has 16 bits
_DAMAGED = "Write the file again: it is damaged, or has another format"


class Description(NamedTuple):
    """A mapped file, as another process on this machine can find it. Sizes are in bytes."""

    path: str
    mode: str
    device: int
    inode: int
    file_bytes: int
    mtime_ns: int
    holder: tuple[int, int] | None = None  # a process that has it open, and the descriptor there

    def key(self):
        """All but the holder: equal for descriptions of one file from several processes."""
        return self[:6]


class _Held:
    """A descriptor of a mapped file, which it owns and closes.

    It does not close a number that means another file, because the program closed ours.
    """

    def __init__(self, fd):
        self.fd, self.facts = fd, os.fstat(fd)

    def __del__(self):
        try:
            if os.path.samestat(os.fstat(self.fd), self.facts):
                os.close(self.fd)
        except OSError:
            pass


_ENDINGS = {"safetensors": ".safetensors", "npz": ".npz", "pt": (".pt", ".pth")}

_HELD_MOST = 64  # the program needs descriptors, too

_held = weakref.WeakKeyDictionary()  # storage -> _Held, for the storages that were sent last
_mapped = weakref.WeakKeyDictionary()  # storage -> Description
_reopened = weakref.WeakValueDictionary()  # Description.key() -> storage, not for mode "c"


def open(path: Path, mode: Literal["r", "c", "r+"] = "c", *,
         format: Literal["npy", "npz", "safetensors", "pt", "raw"] | None = None,
         dtype: DTypeLike | None = None, shape: Shape | None = None, offset: int = 0,
         order: Order = "C", framework: Literal["numpy", "torch"] = "numpy",
         load: bool = False) -> Any:
    """Maps a file: returns an array, or a mapping of names to arrays.

    path: a .npy file gives an array. A .safetensors file gives a `Tensors`, a read-only mapping
    that makes an array when it is asked for. A .npz file gives a dict of arrays; those that are
    compressed are read, and are no part of the file. A .pt file gives what torch.save() was given,
    if that is tensors and plain values. With a dtype, the bytes of any file from `offset` on
    give an array of this `shape`; None takes all bytes, in one dimension. format: "npy", "npz",
    "safetensors", "pt" or "raw", if the name does not tell.

    mode: "r" is read-only. With "c", the default, writes are private to this process: the kernel
    copies the page, and the file stays as it is. With "r+" writes go to the file.

    framework: "numpy" or "torch", for the arrays of a .safetensors or .npz file. PyTorch has no
    unaligned tensors, so a tensor with unaligned bytes is a copy. Writes to such a copy do not
    reach the file, also with "r+".

    load: True reads the whole file into memory of the engine. Later changes of the file do not
    matter then, and clones share pages; clones of a mapping are copies. Not with "r+".

    Without `load` only the header is read; the kernel reads other pages when they are touched. If
    another program makes a mapped file shorter, the next touch of a missing byte ends the process
    by SIGBUS, and a line on stderr names the file. clone(), array() and messages raise OSError
    (ENODATA) then. In the last page that is left, missing bytes are zeros.

    ValueError: an argument or the header is wrong. OSError: as from open().
    """
    _check_options(mode, framework, load)
    if load and framework == "torch":
        mode = "c"  # PyTorch has no read-only tensors, and these bytes are private
    path, offset = os.path.abspath(os.fsdecode(path)), operator.index(offset)
    fd = _open(path, mode)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{path} is not a regular file: pass the name of one")
        source = _Source(path, fd, facts, mode, load)
        format = format or _format_of(path, fd, dtype)
        if format == "raw":
            return _raw(source, dtype, shape, offset, order)
        if dtype is not None or shape is not None or offset:
            raise ValueError(f"{path} is a {format} file, whose header has the dtype and shape: "
                             "leave out dtype, shape and offset")
        return _formatted(source, format, framework)
    finally:
        os.close(fd)


def _check_options(mode, framework, load):
    if mode not in _MODES:
        raise ValueError(f"mode is {mode!r}: pass 'r', 'c' or 'r+'")
    if framework not in ("numpy", "torch"):
        raise ValueError(f"framework is {framework!r}: pass 'numpy' or 'torch'")
    if load and mode == "r+":
        raise ValueError("mode is 'r+', but load=True keeps no file to write to: pass 'r' or 'c'")


def _formatted(source, format, framework):
    if format == "npy":
        return _npy(source)
    if format == "safetensors":
        from ._safetensors import read

        return read(source, framework)
    if format == "npz":
        from ._archives import npz

        return npz(source, framework, _npy)
    if format == "pt":
        from ._archives import pt

        return pt(source)
    raise ValueError(f"format is {format!r}: pass 'npy', 'npz', 'safetensors', 'pt' or 'raw'")


def _open(path, mode):
    # Without waiting for the other end of a pipe, and without a new controlling terminal.
    flags = os.O_RDWR if mode == "r+" else os.O_RDONLY
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _format_of(path, fd, dtype):
    if dtype is not None:
        return "raw"
    if os.pread(fd, len(_NPY), 0) == _NPY:
        return "npy"
    for format, endings in _ENDINGS.items():
        if path.endswith(endings):
            return format
    raise ValueError(f"{path} is neither .npy, .npz, .safetensors nor .pt: for raw bytes pass "
                     "dtype=")


# ---- The bytes -----------------------------------------------------------------------------


class _Source:
    """An open file, for the functions that read its header. All arrays lie in one storage."""

    def __init__(self, path, fd, facts, mode, load):
        self.path, self.fd, self.facts, self.mode, self.load = path, fd, facts, mode, load
        self.file_bytes = facts.st_size
        self._storage = None

    def read(self, offset, nbytes):
        """Reads these bytes. ValueError if the file ends before."""
        parts = []
        while nbytes:
            part = os.pread(self.fd, min(nbytes, 1 << 30), offset)
            if not part:
                raise self.wrong(f"it ends in its header, after {self.file_bytes} bytes")
            parts.append(part)
            offset, nbytes = offset + len(part), nbytes - len(part)
        return b"".join(parts)

    def wrong(self, what, instead=_DAMAGED):
        """A ValueError that says what is wrong with the file, and what to do instead."""
        return ValueError(f"{self.path}: {what}. {instead}")

    def storage(self):
        """The storage with the file: loaded or mapped."""
        if self._storage is None:
            self._storage = _cowshed.load(self.fd, 0, self.file_bytes, readonly=self.mode == "r") \
                if self.load else _map(self.fd, self.path, self.mode, self.facts)
        return self._storage

    def array(self, dtype, shape, offset, order, instead=_DAMAGED, end=None):
        """An array on the bytes from `offset` on. ValueError if the file, or its part that ends at
        `end`, has too few."""
        nbytes = size_of(dtype, shape)
        end = self.file_bytes if end is None else min(end, self.file_bytes)
        if nbytes is None or nbytes > end - offset:
            raise self.wrong(f"shape {_short(shape)} of {dtype} at byte {offset} does not fit into "
                             f"its {end} bytes", instead)
        strides = None if order == "C" else _fortran(dtype, shape)
        try:
            if nbytes:
                return array_on(self.storage(), dtype, shape, offset, strides)
            result = _make(shape, dtype, order, False, False)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.wrong(f"NumPy can't make an array of this shape ({error})",
                             instead) from error
        result.flags.writeable = self.mode != "r"
        return result


def _short(shape):
    text = str(tuple(shape)[:8])
    return text if len(text) < 200 else f"({len(shape)} sizes)"


def _fortran(dtype, shape):
    strides, step = [], dtype.itemsize
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)


def _map(fd, path, mode, facts):
    flags = _cowshed.FILE_SHARED if mode == "r+" else 0
    storage = _cowshed.open_file(fd, 0, facts.st_size, flags, readonly=mode == "r")
    watch(storage, path)
    _mapped[storage] = Description(path, mode, facts.st_dev, facts.st_ino, facts.st_size,
                                   facts.st_mtime_ns)
    return storage


# ---- Formats ---------------------------------------------------------------------------------


def _raw(source, dtype, shape, offset, order):
    dtype = _numpy().dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"dtype {dtype} has Python objects or no bytes: pass a dtype of plain "
                         "bytes, such as 'f4'")
    if not 0 <= offset <= source.file_bytes:
        raise source.wrong(f"offset is {offset}",
                           f"Pass 0 to {source.file_bytes}, the size of the file")
    if order not in ("C", "F"):
        raise ValueError(f"order is {order!r}: pass 'C' or 'F'")
    if shape is None:
        count, rest = divmod(source.file_bytes - offset, dtype.itemsize)
        if rest:
            raise source.wrong(f"elements of {dtype.itemsize} bytes leave a rest of {rest} bytes",
                               "Pass a shape, or another offset")
        shape = (count,)
    shape = sizes(shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {shape} has a negative size: pass sizes of 0 or more")
    return source.array(dtype, shape, offset, order, "Pass a shape that fits")


def _npy(source, at=0, end=None):
    """The array of a .npy file that begins at byte `at`, and ends before `end`."""
    start = source.read(at, 8)
    if start[:6] != _NPY:
        raise source.wrong(f"it begins with {start[:6]!r}, but a .npy file with {_NPY!r}")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise source.wrong(f"it has version {version} of .npy, but only 1.0, 2.0 and 3.0 exist")
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(source.read(at + 8, width), "little")
    if length > _NPY_HEADER_MOST:
        raise source.wrong(f"its header has {length} bytes, more than {_NPY_HEADER_MOST}")
    header = source.read(at + 8 + width, length)
    dtype, fortran, shape = _npy_header(source, header, version)
    return source.array(dtype, shape, at + 8 + width + length, "F" if fortran else "C", end=end)


def _npy_header(source, header, version):
    # Python's parser and NumPy's dtypes raise many kinds of exceptions.
    try:
        said = ast.literal_eval(header.decode("utf-8" if version == (3, 0) else "latin-1"))
    except Exception as error:
        raise source.wrong(f"its header is not a dict ({type(error).__name__})") from error
    if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
        raise source.wrong("its header is not a dict of descr, fortran_order and shape")
    fortran, shape = said["fortran_order"], said["shape"]
    if type(fortran) is not bool:
        raise source.wrong(f"fortran_order is {_brief(fortran)}, not True or False")
    if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
        raise source.wrong(f"its shape is {_brief(shape)}, not a tuple of sizes")
    try:
        dtype = _numpy().lib.format.descr_to_dtype(said["descr"])
    except Exception as error:
        raise source.wrong(f"NumPy does not know its dtype ({error})") from error
    if dtype.hasobject:
        raise source.wrong(f"its dtype {dtype} has Python objects, and reading them can run code",
                           "If you trust the file, use numpy.load(path, allow_pickle=True)")
    if dtype.subdtype:
        raise source.wrong(f"its dtype {dtype} has arrays as elements, which no array can have")
    return dtype, fortran, shape


def _brief(value):
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:80] + "..."


# ---- For other processes --------------------------------------------------------------------


def is_written(storage):
    """Whether it is a file that is mapped "r+": all processes that map it write the same bytes."""
    said = _mapped.get(storage) if storage.kind == "file" else None
    return said is not None and said.mode == "r+"


def describe(storage) -> Description | None:
    """How another process on this machine can open a mapped file itself.

    None: it can't, and needs the bytes. open() has not mapped the storage, or the file was written,
    or another file has its name. Or this process wrote to its private copy.
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
    except OSError:  # no descriptor is free: the receiver has the name only
        return None
    if _differs(said, held.facts):
        return None
    while len(_held) >= _HELD_MOST:
        try:
            del _held[next(iter(_held))]
        except (KeyError, RuntimeError, StopIteration):  # another thread changed it meanwhile
            pass
    return _held.setdefault(storage, held)


def reopen(description):
    """The storage of a description, mapped in this process.

    OSError: the file can't be opened, or (ESTALE) is not the same any more.
    """
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
    """A descriptor of the described file: opened by its name, else by the holder's descriptor."""
    error = None
    names = [said.path]
    if said.holder:
        names.append("/proc/%d/fd/%d" % said.holder)
    for name in names:
        try:
            # Checked before it is opened, too: the number may mean a device meanwhile.
            if name == said.path or not _differs(said, os.stat(name)):
                fd = _open(name, said.mode)
                what = _differs(said, os.fstat(fd))
                if not what:
                    return fd
                os.close(fd)
                error = error or OSError(_ESTALE, f"{what} since it was sent; send it again",
                                         said.path)
        except OSError as failed:
            error = error or failed
    raise error


_ESTALE = 116


def _differs(said, facts):
    if (facts.st_dev, facts.st_ino) != (said.device, said.inode):
        return "another file has the name"
    if said.mode == "r+":  # such files are written all the time
        return "the file was made shorter" if facts.st_size < said.file_bytes else None
    if (facts.st_size, facts.st_mtime_ns) != (said.file_bytes, said.mtime_ns):
        return "the file was written"
    return None


def _was_written(storage):
    """Whether a private mapping has pages of its own. True if /proc/self/pagemap can't be read."""
    try:
        return any(True for _ in own_pages(storage.address, storage.nbytes))
    except OSError:
        return True
