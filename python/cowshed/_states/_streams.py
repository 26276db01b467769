# SPDX-License-Identifier: MIT
"""Files that save() writes from front to back, for formats that want a file object."""

import os
import traceback

from .. import _cowshed

_SMALL = 64 << 10  # bytes that are collected for one write
_MOST = 64 << 20  # bytes in one write, so that other writers get the lock of the file


class There:
    """A pipe, a device, or a descriptor, written where it stands."""

    def __init__(self, fd, pace):
        self._fd, self._pace, self._small = fd, pace, bytearray()

    def write(self, data):
        view = memoryview(data).cast("B")
        _cowshed.check_file(*_cowshed.address_of(view)[:2])
        if view.nbytes < _SMALL:
            self._small += view
            if len(self._small) >= _SMALL:
                self.flush()
        else:
            self.flush()
            self._out(view)
        return view.nbytes

    def flush(self):
        small, self._small = self._small, bytearray()
        self._out(memoryview(small))

    def _out(self, view):
        while view:
            self._pace.before()
            n = os.write(self._fd, view[: self._pace.most(min(view.nbytes, _MOST))])
            self._pace.wrote(view[:n])
            view = view[n:]


class Stream:
    """A file without a position: a device such as /dev/null reports one that means nothing.

    Code of PyTorch and of zipfile raises other errors after one of write(), while it closes its
    archive. So the first one is kept, later calls raise it again, and run() raises it, too.
    """

    def __init__(self, file):
        self._file, self._error = file, None

    def run(self, writer):
        """Calls writer(self). Raises the error of the file, if it had one. Nothing can be written
        afterwards."""
        first = None
        try:
            writer(self)
        except BaseException as error:
            first = self._error
            if first is None or first is error:
                raise
            traceback.clear_frames(error.__traceback__)  # they hold the memory that is saved
            raise first from None
        else:
            first = self._error
            if first is not None:
                raise first
        finally:
            # The frames of the error hold this stream, and would hold the memory with it.
            self._file = self._error = first = None

    def write(self, data):
        return self._do("write", data)

    def flush(self):
        return self._do("flush")

    def _do(self, call, *args):
        if self._error is not None:
            raise self._error
        if self._file is None:
            raise ValueError("the file is written")
        try:
            return getattr(self._file, call)(*args)
        except BaseException as error:
            self._error = error
            raise
