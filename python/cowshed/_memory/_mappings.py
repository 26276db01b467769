# SPDX-License-Identifier: MIT
"""The file behind an address: which mapping has it, and a descriptor of the mapped file.

The kernel tells device, inode, offset and name of each mapping: by an ioctl of /proc/self/maps
since Linux 6.11, else by its text. open_file() then looks for the file, in this order:

1. By the name. The file there may be another one, so device and inode are compared.
2. By the descriptors of this process: a memfd has no name, and a file may be unlinked.
3. By /proc/self/map_files, which the kernel opens for privileged processes only.
4. By the descriptors of other processes of this user. The store of Ray has unlinked the files that
   its workers map, and they have closed their descriptors. The store itself has one.

The mapping keeps the inode alive. So a file with the same device and inode is the same file.
"""

import bisect
import fcntl
import mmap
import os
import stat
import struct
import time
import weakref
from typing import NamedTuple

from .. import _cowshed
from . import _regions

PAGE = mmap.PAGESIZE

_QUERY = struct.Struct("=9Q4I2Q")  # struct procmap_query of linux/fs.h
_PROCMAP_QUERY = 0xC0000000 | _QUERY.size << 16 | ord("f") << 8 | 17
_VMA_SHARED = 8
_PATH_MOST = 4096 + len(" (deleted)") + 1
_LENDERS_MOST = 64

_lenders = {}  # (device, inode) -> (process, descriptor there): where the file was found last


class Mapping(NamedTuple):
    """A mapping of this process. `offset`: in the file, of the byte at `start`."""

    start: int
    end: int
    offset: int
    device: int
    inode: int
    is_shared: bool
    name: bytes

    def file(self):
        """(device, inode); None: no file is mapped."""
        return (self.device, self.inode) if self.inode else None


def covering(low, high):
    """The mappings of the addresses from `low` up to `high`. None: not all of them are mapped.

    OSError: /proc is missing.
    """
    found = []
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        look = _by_query(maps) or _by_text(maps)
        while low < high:
            mapping = look(low)
            if mapping is None:
                return None
            found.append(mapping)
            low = mapping.end
    return found


def _by_query(maps):
    """A function that asks the kernel for the mapping of an address. None: it can't be asked."""
    name = bytearray(_PATH_MOST)
    where = _cowshed.address_of(name)[0]

    def look(address):
        question = bytearray(_QUERY.pack(_QUERY.size, 0, address, *[0] * 8, len(name), 0, where, 0))
        try:
            fcntl.ioctl(maps, _PROCMAP_QUERY, question)
        except FileNotFoundError:
            return None
        answer = _QUERY.unpack(question)
        start, end, flags, _, offset, inode, major, minor, length = answer[3:12]
        return Mapping(start, end, offset, os.makedev(major, minor), inode,
                       bool(flags & _VMA_SHARED), bytes(name[: max(length - 1, 0)]))

    try:
        look(where)
    except OSError:  # an older kernel
        return None
    return look


def _by_text(maps):
    """A function that finds the mapping of an address in the text of /proc/self/maps."""
    parts = []
    while part := maps.read(1 << 18):
        parts.append(part)
    lines = b"".join(parts).splitlines()
    starts = [int(line[: line.index(b"-")], 16) for line in lines]

    def look(address):
        i = bisect.bisect_right(starts, address) - 1
        if i < 0:
            return None
        mapping = _parse(lines[i])
        return mapping if address < mapping.end else None

    return look


def _parse(line):
    addresses, access, offset, device, inode, *name = line.split(maxsplit=5)
    start, end = addresses.split(b"-")
    major, minor = device.split(b":")
    return Mapping(int(start, 16), int(end, 16), int(offset, 16),
                   os.makedev(int(major, 16), int(minor, 16)), int(inode), access[3:4] == b"s",
                   name[0].replace(b"\\012", b"\n") if name else b"")


def open_file(mapping, seconds):
    """A descriptor of the mapped file, for reading; the caller closes it. None: there is none.

    seconds: how long it may look through the descriptors of other processes.
    """
    for find in _by_name, _by_own_descriptor, _by_map_files:
        fd = find(mapping)
        if fd is not None:
            return fd
    return _by_other_process(mapping, time.monotonic() + seconds)


def _open(path):
    # Without waiting for the other end of a pipe, and without a new controlling terminal.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _is(facts, mapping):
    return (facts.st_dev, facts.st_ino) == mapping.file() and stat.S_ISREG(facts.st_mode)


def _checked(path, mapping, is_same):
    """A descriptor of the file at a path, if it is the mapped one; else None."""
    try:
        # Looked at before it is opened, too: opening a device can do something.
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or not facts.st_size:
            return None
        fd = _open(path)
    except OSError:
        return None
    try:
        same = is_same(fd, mapping)
    except (OSError, ValueError):
        same = False
    if same:
        return fd
    os.close(fd)
    return None


def _has_inode(fd, mapping):
    return _is(os.fstat(fd), mapping)


def _maps_as(fd, mapping):
    """Whether a descriptor leads to the mapped file.

    Some file systems (overlayfs, btrfs) tell stat() another device than /proc/self/maps. So this
    maps a page of the file, and looks how that mapping is described.
    """
    if _has_inode(fd, mapping):
        return True
    length = min(os.fstat(fd).st_size, PAGE)
    with mmap.mmap(fd, length, mmap.MAP_PRIVATE, mmap.PROT_READ) as page:
        address = _cowshed.address_of(page)[0]
        found = covering(address, address + 1)
    return bool(found) and found[0].file() == mapping.file()


def _by_name(mapping):
    if not mapping.name.startswith(b"/"):
        return None
    return _checked(mapping.name, mapping, _maps_as)


def _by_own_descriptor(mapping):
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not _is(os.fstat(number), mapping):
                continue
            # Another thread may close the number meanwhile. So what is looked at is a copy.
            fd = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 0)
        except OSError:
            continue
        try:
            if _has_inode(fd, mapping) and _is_readable(fd):
                return fd
            found = _checked(f"/proc/self/fd/{fd}", mapping, _has_inode)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if found is not None:
            return found
    return None


def _is_readable(fd):
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_PATH


def _by_map_files(mapping):
    return _checked(f"/proc/self/map_files/{mapping.start:x}-{mapping.end:x}", mapping, _maps_as)


def _by_other_process(mapping, until):
    key = mapping.file()
    if key in _lenders:
        fd = _checked("/proc/%d/fd/%d" % _lenders[key], mapping, _has_inode)
        if fd is not None:
            return fd
        _lenders.pop(key, None)
    for process in filter(str.isdigit, os.listdir("/proc")):
        folder = f"/proc/{process}/fd"
        try:
            for number in os.listdir(folder):
                if time.monotonic() > until:
                    return None
                fd = _checked_number(folder, number, mapping)
                if fd is not None:
                    if len(_lenders) >= _LENDERS_MOST:
                        _lenders.clear()
                    _lenders[key] = int(process), int(number)
                    return fd
        except OSError:  # another user's, or it has ended
            continue
    return None


def _checked_number(folder, number, mapping):
    path = f"{folder}/{number}"
    try:
        if not _is(os.stat(path), mapping):
            return None
    except OSError:
        return None
    return _checked(path, mapping, _has_inode)


# ---- Pages that a private mapping has of its own -----------------------------------------

_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


def own_pages(address, nbytes):
    """Yields (first, end), page numbers: runs of pages that a private mapping does not share with
    its file, because they were written.

    OSError: /proc/self/pagemap can't be read.
    """
    import numpy

    first = address // PAGE
    end = -(-(address + nbytes) // PAGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        pages.seek(first * 8)
        while first < end:
            entries = numpy.frombuffer(pages.read(min(end - first, 1 << 17) * 8), "=u8")
            if not len(entries):
                raise OSError("/proc/self/pagemap ends before the mapping")
            here = (entries & numpy.uint64(_PRESENT | _SWAPPED)) != 0
            own = here & ((entries & numpy.uint64(_OF_FILE)) == 0)
            edges = numpy.flatnonzero(numpy.diff(own, prepend=False, append=False))
            yield from ((first + int(a), first + int(b)) for a, b in edges.reshape(-1, 2))
            first += len(entries)


def watch(storage, path):
    """Makes it an error that names the file, where it can, if the file of a mapping becomes
    shorter."""
    _regions.has_files = True
    _cowshed.name_file(storage.address, storage.nbytes, os.fsencode(path))
    weakref.finalize(storage, _cowshed.forget_file, storage.address).atexit = False
