# SPDX-License-Identifier: MIT
"""Saving while the program goes on: in a thread, or in a forked process.

What can be wrong with a state is found before anything is begun (_save.plan()). What is left
is writing, and the end of it, which Saving.wait() tells: of a thread its exception; of a
process the exception that it sends through a pipe, or the signal that ended it.

Other threads may fork at any moment, and their children have the child's end of the pipe, too,
as long as they live. So its end is not what is waited for alone: what is said is one write of at
most PIPE_BUF bytes, and the child's own end is a descriptor (pidfd).

The child of a program with threads must not wait for any lock that one of those had. This one
writes pieces that were made before the fork, tells how that went, and ends without running
anything of its parent's. What it could not remove because it was killed the parent removes.
"""

import atexit
import gc
import io
import itertools
import os
import select
import signal
import threading
import time
import warnings

from . import _save

_lock = threading.RLock()  # the handler of a signal may come while its thread has it
_running = []  # processes whose end nobody has seen


class Saving:
    """A file that is being written."""

    def __init__(self, plan):
        self.path: str = plan.path
        #: What went wrong, when it is done; else None.
        self.error: BaseException | None = None
        self._plan = plan
        self._owner = os.getpid()

    def done(self) -> bool:
        """Is it written, or failed? Never waits."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> str:
        """Waits until it is written; returns the path. Raises what went wrong, as often as it
        is asked; TimeoutError after `timeout` seconds: it goes on then."""
        if not self._ended(timeout):
            raise TimeoutError(f"{self.path} is not yet written after {timeout} s")
        if self.error is not None:
            raise self.error
        return self.path

    def __repr__(self):
        if os.getpid() != self._owner:
            return f"<cowshed.Saving of {self.path!r}: of another process>"
        how = "being written" if not self.done() else "failed" if self.error else "written"
        return f"<cowshed.Saving of {self.path!r}: {how}>"

    def _check_owner(self):
        if os.getpid() != self._owner:
            raise RuntimeError("it was begun by another process, which is the one to wait for it")


class _Thread(Saving):
    def __init__(self, plan, sync):
        super().__init__(plan)
        self._thread = threading.Thread(target=self._run, args=(sync,), name="cowshed-save")
        self._thread.start()

    def _run(self, sync):
        try:
            self._plan.write(sync)
        except BaseException as error:
            self.error = error
        finally:
            self._plan = None  # and with it the snapshot's memory

    def _ended(self, timeout):
        self._check_owner()
        self._thread.join(timeout)
        return not self._thread.is_alive()


class _Process(Saving):
    def __init__(self, plan, sync):
        super().__init__(plan)
        self._waiting = threading.Lock()
        self._said = bytearray(select.PIPE_BUF)  # and zeros
        self._status = None
        pipe, child = os.pipe()
        # Of numbers that are closed a file knows so itself, whatever interrupts whom.
        self._pipe = io.FileIO(pipe)
        os.set_blocking(pipe, False)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        born = []
        try:
            # A handler that raises would send the child back into the program.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            _fork(born)
            if born == [0]:
                _child(plan, sync, child, mask)
            self._is_born(born[0])
        except BaseException:
            # Mostly of a handler, since another thread took the signal.
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
        # The parent needs nothing but the name to remove.
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
            return True
        finally:
            self._waiting.release()

    def _ready(self, timeout):
        """Waits until the child said how it went, or is gone. (Not by select(), which knows no
        descriptors from 1024 on.)"""
        if self._pipe.closed or self._said[0]:
            return True  # whoever began to reap it was interrupted
        poll = select.poll()
        for file in self._pipe, self._process:
            if file is not None:
                poll.register(file, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _reap(self):
        """Any step of it may be interrupted, and is done again by the next call."""
        if not self._pipe.closed:
            # None: it said nothing, and somebody else has its end.
            self._pipe.readinto(self._said)
        said = bytes(self._said).rstrip(b"\0")
        try:
            status = os.waitpid(self._pid, 0)[1]
        except ChildProcessError:
            status = 0 if said else -1  # somebody else waits for all children
        self._close()
        if said != b"done":
            self._plan.remove()
            self.error = _error(self.path, said, status)
        self._plan.order = None
        with _lock:
            if self in _running:
                _running.remove(self)
        self._status = status

    def _close(self):
        self._pipe.close()
        if self._process is not None:
            self._process.close()


def start(path, state, format, sync, process) -> Saving:
    plan = _save.plan(path, state, format)
    for saving in list(_running):  # nobody need wait: those that ended leave nothing behind
        saving._ended(0)
    plan.begin()
    return (_Process if process else _Thread)(plan, sync)


def _pidfd(pid):
    try:
        return io.FileIO(os.pidfd_open(pid))
    except OSError:  # it was waited for already, or the system has none: the pipe tells
        return None


def _fork(born):
    """Its number goes to `born`. Of the two calls both are C, so that no handler comes between."""
    with warnings.catch_warnings():
        # Of a child that goes on with Python as if nothing was; see above.
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        born.extend(itertools.starmap(os.fork, ((),)))


def _child(plan, sync, pipe, mask):
    """Never returns, whatever happens. No signal is handled before _quiet()."""
    code = 1
    try:
        gc.disable()  # nothing of the parent's is to be finalized here
        _quiet()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        said = _write(plan, sync)
        os.write(pipe, said[: select.PIPE_BUF])
        code = 0 if said == b"done" else 1
    finally:
        os._exit(code)


def _quiet():
    """Ctrl-C is for the program, which waits for this one or does not; so is all that it handles
    itself, but for the request to end."""
    for number in signal.valid_signals():
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        elif number == signal.SIGINT or callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)


def _write(plan, sync):
    """What there is to say of it."""
    try:
        plan.write(sync)
        return b"done"
    except BaseException as error:
        number = getattr(error, "errno", None) or 0
        return f"{number}\n{type(error).__name__}: {error}".encode(errors="replace")


def _error(path, said, status):
    number, _, text = said.decode(errors="replace").partition("\n")
    if text:
        return OSError(int(number), os.strerror(int(number)), path) if int(number) else \
            RuntimeError(f"{path} was not written: {text}")
    if status > 0 and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return ChildProcessError(f"{path} was not written: its process was ended by {name}")
    return ChildProcessError(f"{path} was not written: its process ended")


@atexit.register
def _wait_for_all():
    """Threads are waited for by the interpreter; processes here."""
    for saving in list(_running):
        saving._ended(None)


def _after_fork():
    global _lock
    _lock = threading.RLock()
    for saving in _running:
        saving._close()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)
