# SPDX-License-Identifier: MIT
"""Writing a large file past the page cache.

A saver beside a training loop competes with it for processors and memory. write() copies each byte
into the page cache, and the kernel writes it to the disk later. Past the page cache (O_DIRECT) the
disk reads the bytes from the memory of the program, and the saver sleeps.

The kernel wants multiples of the block size: the place in the file, the address, and the number of
bytes. What is not aligned goes through a buffer that is. The end of the file is written as usual.
"""

import ctypes
import errno
import mmap
import os

from .. import _cowshed
from ._pace import Pace

BLOCK = 4096
_BUFFER = 4 << 20
_PIECE = 16 << 20  # in one call
_REFUSED = errno.EINVAL, errno.EOPNOTSUPP


class Writer:
    """A file that is written once, from its start to its end, through `fd`.

    path: a name of the same file, which is opened a second time for O_DIRECT; None writes all
    through the page cache. So does a file system without O_DIRECT, and a file of less than 4 MiB.
    pace: is asked before each piece, and told what was written (_pace.py).
    """

    def __init__(self, fd, path=None, pace=None):
        self._fd, self._path = fd, path
        self._pace = pace or Pace()
        self._direct = None
        self._buffer, self._used = None, 0
        #: How many bytes of the file are written.
        self.done = 0

    def write(self, data):
        view = memoryview(data).cast("B")
        size = view.nbytes
        _cowshed.check_file(*_cowshed.address_of(view)[:2])
        while view:
            if not self._used and view.nbytes >= _BUFFER:
                n = self._piece(view)
            else:
                n = self._fill(view)
            view = view[n:]
        return size

    def flush(self):
        """Nothing: the bytes go to the file when there are enough of them, or at the end."""

    def close(self):
        """Writes what is left."""
        try:
            if self._used:
                rest = memoryview(self._buffer)[: self._used]
                while rest:
                    rest = rest[self._put(self._fd, rest) :]
                self._used = 0
        finally:
            self._end_direct()

    def abandon(self):
        """Forgets what is left."""
        self._used = 0
        self._end_direct()

    def _end_direct(self):
        self._path = None
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    def _piece(self, view):
        """Writes a piece from where it lies, or begins to fill the buffer."""
        if not self._begin() or self.done % BLOCK or _cowshed.address_of(view)[0] % BLOCK:
            return self._fill(view)
        return self._put(self._direct, view[: min(view.nbytes, _PIECE) // BLOCK * BLOCK])

    def _fill(self, view):
        if self._buffer is None:
            self._buffer = mmap.mmap(-1, _BUFFER)
            self._address = _cowshed.address_of(self._buffer)[0]
        n = min(view.nbytes, _BUFFER - self._used)
        if n < 65536:
            self._buffer[self._used : self._used + n] = view[:n]
        else:  # without the GIL
            ctypes.memmove(self._address + self._used, _cowshed.address_of(view)[0], n)
        self._used += n
        if self._used == _BUFFER:
            whole = memoryview(self._buffer)
            fits = self._begin() and self.done % BLOCK == 0
            while whole:
                whole = whole[self._put(self._direct if fits else self._fd, whole) :]
                fits = fits and self._direct is not None and self.done % BLOCK == 0
            self._used = 0
        return n

    def _begin(self):
        if self._direct is None and self._path is not None:
            try:
                self._direct = os.open(self._path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
            except OSError:  # no O_DIRECT, no descriptor left, a file that its owner may not write
                self._path = None
        return self._direct is not None

    def _put(self, fd, view):
        self._pace.before()
        most = self._pace.most(view.nbytes)
        if most < view.nbytes:
            view = view[: max(most // BLOCK * BLOCK, BLOCK)]
        try:
            n = os.pwrite(fd, view, self.done)
        except OSError as error:
            if fd == self._fd or error.errno not in _REFUSED:
                raise
            self._end_direct()  # it was opened, but this file or this memory is refused
            return 0
        self.done += n
        self._pace.wrote(view[:n])
        return n
