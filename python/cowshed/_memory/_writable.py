# SPDX-License-Identifier: MIT
"""Private, writable copies of arrays that lie in files or in shared memory, made page by page.

The file behind the array is mapped once more, MAP_PRIVATE. The kernel copies a page at its first
write. Arrays in memory of this process are cloned by the engine, which does the same.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, overload

from .. import _cowshed
from . import _arrays, _mappings, _ndarrays
from ._names import keep
from ._regions import SMALL, is_tensor, region_of

if TYPE_CHECKING:
    from torch import Tensor

    from ._types import Array

__name__ = keep(__name__)

_COPIES_A_SECOND = 4e9  # bytes; the search for a file takes no longer than a copy
_SHORTER = errno.ENODATA, errno.ESTALE


@overload
def writable(x: _cowshed.Storage) -> _cowshed.Storage: ...
@overload
def writable(x: memoryview) -> memoryview: ...
@overload
def writable(x: Array) -> Array: ...
@overload
def writable(x: Tensor) -> Tensor: ...


def writable(x: Any) -> Any:
    """The bytes of `x`, to be written by this process alone: an array, tensor or buffer like `x`.

    Copies nothing, for any size, if `x` lies in a file or in shared memory: a numpy.memmap of any
    mode, an array of joblib, of multiprocessing.shared_memory, of ray.get(), of a memory map of
    pyarrow, or of cowshed. The kernel copies a page when it is first written through the result.
    Neither `x` nor the file changes. The result has the type, shape, dtype and strides of `x`. Of
    a numpy.memmap it is a plain array.

    The pages that were not written stay those of the file. So if another program writes the file,
    the result may change there, too; clone() copies at once instead. If the file becomes shorter,
    its missing bytes are gone from the result, too, also those that were written: the next touch
    is a SIGBUS, and a line on stderr names the file. `x` is held alive, except where its
    memory is a mmap object (numpy.memmap, SharedMemory) or a storage: there the mapping of the
    file, or the storage, is enough, and SharedMemory.close() works.

    These are copied at once, as by clone(): arrays below 384 KiB, arrays whose elements overlap,
    memory that is no file's, and files that this process can't open (unlinked, and no process of
    this user has a descriptor). stats()["fallbacks"]["foreign"] counts all but the first.

    After fork() each process has its own result. A message has its bytes, as of a clone. TypeError:
    `x` is no array, tensor, memoryview or Storage, has Python objects, or is a memoryview of a
    format that memoryview.cast() does not know. OSError (ENODATA): the file was made shorter than
    `x`.
    """
    if isinstance(x, _cowshed.Storage):
        return _storage(x)
    if isinstance(x, memoryview):
        return _buffer(x)
    if is_tensor(x):
        return _ndarrays.of_torch().writable(x)
    if _is_buffer(x):
        raise TypeError(f"writable() got a {type(x).__name__}: pass memoryview(x), or an array on "
                        "it")
    _ndarrays._check_array(x, "writable")
    region = region_of(x)
    if region is not None and region.storage.kind == "own":
        return _arrays._clone(x)
    if x.nbytes < SMALL:
        return _ndarrays.copy_small(x)
    low, high = _bounds(x)
    storage = private(low, high - low, x) if x.nbytes <= high - low else None
    return _ndarrays._copy(x) if storage is None else _ndarrays._on(storage, x, 0)


def _is_buffer(x):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return False
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _bounds(x):
    low = high = x.__array_interface__["data"][0]
    for size, stride in zip(x.shape, x.strides):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + x.itemsize


def _storage(x):
    storage = None
    if x.kind != "own" and x.nbytes >= SMALL:
        storage = private(x.address, x.nbytes, x)
    return x.clone() if storage is None else storage


def _buffer(x):
    if not x.c_contiguous:
        raise TypeError("writable() got a memoryview with gaps: pass a contiguous one, or an array")
    try:
        empty = memoryview(bytearray()).cast(x.format)
    except ValueError:  # no cast() can give a view this format
        raise TypeError(f"writable() got a memoryview of format {x.format!r}: pass an array on it, "
                        "as numpy.asarray(x)") from None
    if not x.nbytes:
        return empty
    region = region_of(x)
    if region is not None and region.storage.kind == "own":
        part = memoryview(region.storage.clone())[region.offset : region.offset + x.nbytes]
    elif x.nbytes < SMALL:
        part = memoryview(bytearray(x.cast("B")))
    else:
        storage = private(_cowshed.address_of(x)[0], x.nbytes, x)
        part = memoryview(_cowshed.clone_foreign(x) if storage is None else storage)
    return part.cast(x.format, x.shape) if (x.format, x.ndim) != ("B", 1) else part


def private(address, nbytes, x, readonly=False):
    """A storage with these bytes, on a private mapping of the file that has them. None: no file
    has them, or it can't be opened.

    x: the object that has the bytes. readonly: of the storage. OSError (ENODATA): the file ends
    before them.
    """
    begin = _cowshed.begin_site()
    try:
        mappings = _mappings.covering(address, address + nbytes)
    except OSError:  # no /proc
        return None
    if not mappings or not _is_one_file(mappings):
        return None
    fd = _mappings.open_file(mappings[0], nbytes / _COPIES_A_SECOND)
    if fd is None:
        return None
    try:
        offset = mappings[0].offset + address - mappings[0].start
        left = os.fstat(fd).st_size - offset
        if left < nbytes <= left + -left % _mappings.PAGE:
            return None  # the last page has bytes beyond the end of the file
        storage = _cowshed.open_file(fd, offset, nbytes, readonly=readonly)
    except OSError as error:
        if error.errno in _SHORTER:
            raise OSError(error.errno, "the file was made shorter than the array that is mapped "
                          "from it: open it again") from error
        return None
    finally:
        os.close(fd)
    if not all(mapping.is_shared for mapping in mappings) and not _copy_own(storage, address):
        return None
    _mappings.watch(storage, mappings[0].name or b"a file without a name")
    held = _owner(x)
    if held is not None:
        weakref.finalize(storage, _let_go, held).atexit = False
    _cowshed.note_site(begin, nbytes, 0)
    return storage


def _is_one_file(mappings):
    """Whether the mappings are those of one run of bytes of one file."""
    first = mappings[0]
    return first.inode != 0 and all(
        (m.device, m.inode, m.offset - m.start) ==
        (first.device, first.inode, first.offset - first.start) for m in mappings)


def _copy_own(storage, address):
    """Copies the pages that were written to a private mapping, and so are not in its file.

    Returns whether it could find them.
    """
    import ctypes

    end = address + storage.nbytes
    try:
        runs = list(_mappings.own_pages(address, storage.nbytes))
    except (ImportError, OSError):
        return False
    with memoryview(storage) as target:
        for first, last in runs:
            low = max(first * _mappings.PAGE, address)
            high = min(last * _mappings.PAGE, end)
            source = (ctypes.c_char * (high - low)).from_address(low)
            target[low - address : high - address] = memoryview(source).cast("B")
    return True


def _owner(x):
    """What keeps the bytes of `x` as they are. None: the mapping of their file does."""
    end = x
    while isinstance(end, memoryview) or getattr(end, "base", None) is not None:
        end = end.obj if isinstance(end, memoryview) else end.base
    if isinstance(end, mmap.mmap):
        return None
    return end if isinstance(end, _cowshed.Storage) else x


def _let_go(x):
    """Called when the private mapping of the bytes of `x` is gone; holds `x` until then."""
