# SPDX-License-Identifier: MIT
"""Saving while the program goes on: in a thread, or in a forked process.

_save.plan() finds errors in the state before the thread or process begins. Later errors come
from writing, and Saving.wait() raises them. A thread keeps its exception. A process sends its
exception through a pipe, or a signal ends it.

Other threads may fork at any time. Their children inherit the child's end of the pipe and keep
it open as long as they live. So end of file on the pipe does not come when the child ends. The
child therefore reports with one write of at most PIPE_BUF bytes. The parent also waits for a
pidfd, which tells that the child has ended.

The child of a program with threads must not wait for a lock that another thread held at the
fork. This child writes pieces that were made before the fork, reports, and ends; it runs none of
its parent's other code. If the child is killed, the parent removes the unfinished file.
"""

import atexit
import gc
import io
import itertools
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings

from .._memory._names import keep
from . import _pace, _save
from ._outcome import Outcome
from ._pace import Progress

__name__ = keep(__name__)

_WRITTEN, _CANCELLED = b"done ", b"cancelled"  # reports of a child
_SHOW = 0.2  # seconds between two states of a bar

_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_running = []  # processes that no call has waited for yet


class Saving(Outcome):
    """A file that a thread or a forked process writes. Any thread may call its methods.

    It has the methods of concurrent.futures.Future, and `await saving` waits in asyncio. An error
    that no call has asked for is printed when the Saving is freed, or at exit, as an exception that
    nothing catches is. The exit status stays what it is: a program that is to end with another one
    calls wait(), which raises. The logger "cowshed" gets each failure.

    It belongs to the process that began it: in a forked child the methods raise RuntimeError.
    """

    def __init__(self, plan):
        super().__init__()
        self.path: str = plan.path
        self._plan, self._pace = plan, plan.pace

    def done(self) -> bool:
        """Whether the saving has ended, also with an error. Never waits."""
        return self._ended(0)

    def progress(self) -> Progress:
        """How far it is: bytes that are written, of how many, and the rate. Never waits."""
        self._check_owner()
        return self._pace.progress()

    @property
    def checksum(self) -> str | None:
        """The checksum of the file, as "crc32:0123abcd", once it is written. None: nobody asked
        for one, or the file is not written."""
        return self._checksum() if self.done() and self._error is None else None

    def cancel(self) -> bool:
        """Asks the saver to stop. Does not wait. Returns False if it has ended already.

        It stops at the next piece of at most 64 MiB. Then wait() raises
        concurrent.futures.CancelledError, the old file is unchanged, and the new one is removed.
        If the file is complete by then, it gets its name, and wait() returns as ever. A pipe, a
        device or a descriptor keeps what was written. A saver that waits for the reader of a pipe
        goes on waiting.
        """
        if self.done():
            return False
        self._pace.stop()
        return True

    def wait(self, timeout: float | None = None, *, show: bool = False) -> str:
        """Waits until the file is written; returns its path.

        timeout: seconds; None waits for ever. show: True shows a bar meanwhile, if standard error
        is a terminal. Raises the exception of a failed saving, at each call. TimeoutError: the
        time is over; the saving goes on, and may be waited for again.
        """
        return self._result(self._shown(timeout) if show else self._ended(timeout), timeout)

    def _shown(self, timeout):
        """Waits, and shows a bar."""
        if sys.stderr is None or not sys.stderr.isatty():
            return self._ended(timeout)
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while not (ended := self._ended(max(0, min(_SHOW, until - time.monotonic())))):
            sys.stderr.write("\r" + _pace.bar(self.progress(), self.path))
            sys.stderr.flush()
            if time.monotonic() >= until:
                break
        sys.stderr.write("\r" + _pace.bar(self.progress(), self.path) + "\n")
        return ended

    def __repr__(self):
        if os.getpid() != self._owner:
            return f"<cowshed.Saving of {self.path!r}: of another process>"
        how = "being written" if not self.done() else "failed" if self._error else "written"
        return f"<cowshed.Saving of {self.path!r}: {how}>"


class _Thread(Saving):
    def __init__(self, plan, sync):
        super().__init__(plan)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sync,), name="cowshed-save")
        self._thread.start()

    def _run(self, sync):
        try:
            self._pace.begin()
            self._plan.write(sync)
            self._pace.complete()
        except BaseException as error:
            # Its frames hold the memory of the snapshot.
            traceback.clear_frames(error.__traceback__)
            # A format may have made another exception of it.
            stopped = self._pace.stopped() and not isinstance(error, OSError)
            self._error = _pace.cancelled() if stopped else error
        finally:
            self._pace.end()
            self._plan = None  # frees the memory of the snapshot
            self._over.set()
            self._settle()
            del self  # the traceback of the error has this frame

    def _ended(self, timeout):
        self._check_owner()
        return self._over.wait(timeout)

    def _checksum(self):
        return self._pace.checksum()


class _Process(Saving):
    def __init__(self, plan, sync):
        super().__init__(plan)
        self._waiting = threading.Lock()
        self._watcher = None
        self._said = bytearray(select.PIPE_BUF)  # and zeros
        self._status = self._sum = None
        plan.pace.share()
        pipe, child = os.pipe()
        # A file object knows whether it is closed, also after an interrupted close().
        self._pipe = io.FileIO(pipe)
        os.set_blocking(pipe, False)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        born = []
        try:
            # A signal handler that raises would send the child back into the program.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            _fork(born)
            if born == [0]:
                _child(plan, sync, child, mask)
            self._is_born(born[0])
        except BaseException:
            # Mostly the exception of a signal handler: another thread took the signal.
            if born == [0]:
                os._exit(1)
            if born:
                self._is_born(born[0])
            else:
                self._pipe.close()
            raise
        finally:
            os.close(child)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _is_born(self, pid):
        self._pid, self._process = pid, _pidfd(pid)
        # The parent needs only the name of the file that it may have to remove.
        self._plan.pieces, self._plan.writer = (), None
        with _lock:
            if self not in _running:
                _running.append(self)

    def _ended(self, timeout):
        self._check_owner()
        until = None if timeout is None else time.monotonic() + timeout
        if not self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            if self._status is None:
                left = None if until is None else max(0, until - time.monotonic())
                if not self._ready(left):
                    return False
                self._reap()
        finally:
            self._waiting.release()
        self._settle()
        return True

    def _watch(self):
        with self._settling:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._ended, args=(None,),
                                                 name="cowshed-watch")
                self._watcher.start()

    def _ready(self, timeout):
        """Waits until the child has reported or ended. Returns whether it has.

        It uses poll(), since select() does not take descriptors from 1024 on.
        """
        if self._pipe.closed or self._said[0]:
            return True  # an earlier call began to reap it and was interrupted
        poll = select.poll()
        for file in self._pipe, self._process:
            if file is not None:
                poll.register(file, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _reap(self):
        """Reads the report and waits for the child. The next call repeats interrupted steps."""
        if not self._pipe.closed:
            # readinto() returns None if there is no report and another process has the end.
            self._pipe.readinto(self._said)
        said = bytes(self._said).rstrip(b"\0")
        try:
            status = os.waitpid(self._pid, 0)[1]
        except ChildProcessError:
            status = 0 if said else -1  # the program itself has waited for all children
        self._close()
        if said.startswith(_WRITTEN):
            self._sum = said.removeprefix(_WRITTEN).decode() or None
            self._pace.complete()
        else:
            self._plan.remove()
            self._error = _error(self.path, said, status)
        self._plan.order = None
        self._pace.end()
        self._pace.unshare()
        with _lock:
            if self in _running:
                _running.remove(self)
        self._status = status

    def _checksum(self):
        return self._sum

    def _close(self):
        self._pipe.close()
        if self._process is not None:
            self._process.close()


def start(path, state, format, sync, process, rate=None, nice=0, checksum=None) -> Saving:
    """Begins to save a state, in a forked process or a thread. ValueError: as save()."""
    plan = _save.plan(path, state, format)
    plan.pace = _pace.Pace(plan.total, rate, nice, checksum)
    for saving in list(_running):  # reaps the processes that have ended
        saving._ended(0)
    plan.begin()
    return (_Process if process else _Thread)(plan, sync)


def _pidfd(pid):
    try:
        return io.FileIO(os.pidfd_open(pid))
    except OSError:  # it was reaped already, or the kernel has no pidfds: the pipe is enough
        return None


def _fork(born):
    """Forks, and appends what fork() returns to `born`.

    Both steps are C, so no signal handler runs between them.
    """
    with warnings.catch_warnings():
        # Python warns of children that go on with Python code; see the head of this file.
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        born.extend(itertools.starmap(os.fork, ((),)))


def _child(plan, sync, pipe, mask):
    """What the child does. Never returns. No signal is handled before _quiet()."""
    code = 1
    try:
        gc.disable()  # no finalizer of the parent's objects may run here
        _quiet()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        said = _write(plan, sync)
        os.write(pipe, said[: select.PIPE_BUF])
        code = 0 if said.startswith(_WRITTEN) else 1
    finally:
        os._exit(code)


def _quiet():
    """Ignores Ctrl-C and all signals that the program handles: they are meant for the program.

    SIGTERM ends the child.
    """
    for number in signal.valid_signals():
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        elif number == signal.SIGINT or callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)


def _write(plan, sync):
    """Writes the file. Returns the report: what _WRITTEN says and the checksum, or the error."""
    try:
        plan.pace.begin()
        plan.write(sync)
        return _WRITTEN + (plan.pace.checksum() or "").encode()
    except BaseException as error:
        if plan.pace.stopped() and not isinstance(error, OSError):
            return _CANCELLED
        number = getattr(error, "errno", None) or 0
        return f"{number}\n{type(error).__name__}: {error}".encode(errors="replace")
    finally:
        plan.pace.end()


def _error(path, said, status):
    if said == _CANCELLED:
        return _pace.cancelled()
    number, _, text = said.decode(errors="replace").partition("\n")
    if text:
        return OSError(int(number), os.strerror(int(number)), path) if int(number) else \
            RuntimeError(f"{path} was not written: {text}")
    if status > 0 and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return ChildProcessError(f"{path} was not written, since {name} ended the saving process: "
                                 "save again")
    return ChildProcessError(f"{path} was not written, since the saving process ended without a "
                             "report: save again")


@atexit.register
def _wait_for_all():
    """Waits for the processes at exit. (The interpreter waits for the threads.)"""
    for saving in list(_running):
        saving._ended(None)


def _after_fork():
    global _lock
    _lock = threading.RLock()
    for saving in _running:
        saving._close()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)
