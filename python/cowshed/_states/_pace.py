# SPDX-License-Identifier: MIT
"""The pace of a saver: how far it is, how fast it may write, and whether it shall stop.

A saver works beside a program that needs processors and memory, too. It asks its pace before each
piece, and tells it what it has written. The numbers lie in memory that a forked saver shares with
the process that began it, so that process sees them.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import zlib
from typing import NamedTuple

from .._memory._names import keep

__name__ = keep(__name__)

_DONE, _STARTED, _STOP, _ENDED = range(4)
_STEP = 0.1  # seconds between looks whether it shall stop


class Progress(NamedTuple):
    """How far a saving is."""

    #: Bytes that are written.
    done: int
    #: Bytes of the whole file. While .npz and .pt are written: of their arrays and tensors.
    total: int
    #: Seconds since the first piece.
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes in a second so far; 0 before the first piece."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that are left at this rate; None before the first piece is written."""
        return max(self.total - self.done, 0) / self.rate if self.rate > 0 else None


class Stopped(Exception):
    """What a saver raises that was asked to stop."""


class Pace:
    """What a saver asks.

    total: bytes of the file. rate: bytes in a second at most. nice: 0 to 19, is added to the nice
    value of the saver (nice(2)). checksum: "crc32", or a name of hashlib. ValueError: one of them
    makes no sense.
    """

    def __init__(self, total=0, rate=None, nice=0, checksum=None):
        if rate is not None and not rate > 0:
            raise ValueError(f"rate is {rate!r}: pass bytes in a second, more than 0")
        if not isinstance(nice, int) or not 0 <= nice <= 19:
            raise ValueError(f"nice is {nice!r}: pass 0 to 19")
        self.total, self._nice = total, nice
        self._rate = None if rate is None or rate > 1e15 else float(rate)
        self._next = 0.0  # no piece goes before that, by time.monotonic()
        self._sum = _summer(checksum)
        self._complete = False
        self._seen = memoryview(bytearray(32)).cast("Q")

    def share(self):
        """Puts the numbers where a child that is forked from now on shares them.

        The kernel's own memory will do: no other process needs it. OSError: there is none left.
        """
        self._seen = memoryview(mmap.mmap(-1, 32)).cast("Q")

    def unshare(self):
        """Keeps the numbers, and frees what the child shared. The child has ended."""
        self._seen = memoryview(bytearray(self._seen)).cast("Q")

    # ---- For the saver -----------------------------------------------------------------------

    def begin(self):
        """Called by the saver's thread or process, which does nothing else."""
        self._seen[_STARTED] = time.monotonic_ns()
        if self._nice:
            try:
                # On Linux the number of a thread stands for that thread alone.
                who = os.PRIO_PROCESS, threading.get_native_id()
                os.setpriority(*who, min(os.getpriority(*who) + self._nice, 19))
            except OSError:
                pass

    def end(self):
        """Called by the saver, and again by the program, since the saver may have been killed."""
        if not self._seen[_ENDED]:
            self._seen[_ENDED] = time.monotonic_ns()

    def most(self, nbytes):
        """So many of these bytes in one piece: not more than the rate allows in a moment."""
        return nbytes if self._rate is None else min(nbytes, max(int(self._rate * _STEP), 65536))

    def before(self):
        """Called before a piece, and before the file gets its name. It may sleep, or raise."""
        while True:
            if self._seen[_STOP]:
                raise Stopped
            wait = self._next - time.monotonic()
            if wait <= 0:
                return
            time.sleep(min(wait, _STEP))

    def wrote(self, view):
        """Called with each piece that was written, from the first byte of the file to the last."""
        self._seen[_DONE] += view.nbytes
        if self._rate is not None:  # after a pause no more than one piece comes at once
            self._next = max(self._next, time.monotonic() - _STEP) + view.nbytes / self._rate
        if self._sum is not None:
            self._sum.update(view)

    # ---- For the program ---------------------------------------------------------------------

    def checksum(self):
        """ "crc32:0123abcd", or None if nobody asked for it."""
        return None if self._sum is None else f"{self._sum.name}:{self._sum.hexdigest()}"

    def complete(self):
        """The file is written, so its size is known."""
        self._complete = True

    def stop(self):
        self._seen[_STOP] = 1

    def stopped(self):
        return self._seen[_STOP] != 0

    def progress(self):
        done = self._seen[_DONE]
        total = done if self._complete else max(self.total, done)
        return Progress(done, total, self._seconds())

    def _seconds(self):
        started = self._seen[_STARTED]
        ended = self._seen[_ENDED] or time.monotonic_ns()
        return (ended - started) / 1e9 if started else 0.0


def cancelled():
    """The exception of a saving that was cancelled."""
    from concurrent.futures import CancelledError

    return CancelledError("the saving was cancelled")


def bar(progress, name, width=78):
    """A line for a terminal: name, bar, bytes, rate and time left."""
    part = progress.done / progress.total if progress.total else 0.0
    left = "" if progress.left is None else f", {progress.left:.0f} s left"
    tail = f" {part:4.0%} of {_bytes(progress.total)}, {_bytes(progress.rate)}/s{left}"
    room = max(width - len(tail) - 3, 20)
    name = name if len(name) <= room // 2 else "..." + name[3 - room // 2 :]
    cells = room - len(name)
    full = int(part * cells)
    return f"{name} [{'#' * full}{' ' * (cells - full)}]{tail}"


def _bytes(n):
    for unit in "B", "KiB", "MiB":
        if n < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def _summer(name):
    if name is None:
        return None
    if name == "crc32":
        return _Crc32()
    import hashlib

    try:
        result = hashlib.new(name)
        result.hexdigest()
    except (ValueError, TypeError):
        raise ValueError(f"checksum {name!r} is unknown: pass 'crc32' or a name of hashlib, as "
                         "'sha256'") from None
    return result


class _Crc32:
    name = "crc32"

    def __init__(self):
        self._value = 0

    def update(self, view):
        self._value = zlib.crc32(view, self._value)

    def hexdigest(self):
        return f"{self._value:08x}"
