# SPDX-License-Identifier: MIT
"""How a saving ends: its result or its error, for those that ask, and for those that never do.

An Outcome has the methods of concurrent.futures.Future, and can be awaited. A subclass writes the
file, and calls _settle() once when it has ended.

A save that fails while nobody waits for it must not go unnoticed. Two things report it:

* The logger "cowshed" gets each failure as it happens, if the program has set up handlers.
* A failure that no call has asked for is given to sys.excepthook(): when its Saving is freed, or
  at exit. By default that prints a traceback, as of any exception that nothing catches.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

_log = logging.getLogger("cowshed")
_living: weakref.WeakSet[Outcome] = weakref.WeakSet()  # those that have ended with an error


class Outcome:
    """The result of work that another thread or process does. See the head of this file."""

    #: What the work makes: a path.
    path: str

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._asked = False  # a call has told the program of the error
        self._settled = False
        self._callbacks: list[Callable[[Self], object]] = []
        self._settling = threading.RLock()  # a signal handler may run in the thread that has it
        self._owner = os.getpid()

    # ---- For the program ---------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """The exception, once the saving has failed; else None."""
        self._asked = self._asked or self._error is not None
        return self._error

    def result(self, timeout: float | None = None) -> str:
        """As wait(): the path, or the exception of the saving."""
        return self._result(self._ended(timeout), timeout)

    def _result(self, ended: bool, timeout: float | None) -> str:
        self._check_ended(ended, timeout)
        error = self.error
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # the traceback has this frame
        return self.path

    def _check_ended(self, ended: bool, timeout: float | None) -> None:
        if not ended:
            raise TimeoutError(f"{self.path} is not written after {timeout} s: wait() again, or "
                               "without a timeout")

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits, and returns the exception of the saving, or None. Timeouts: see wait().

        concurrent.futures.CancelledError is raised, as concurrent.futures.Future does it.
        """
        self._check_ended(self._ended(timeout), timeout)
        error = self.error
        if isinstance(error, CancelledError):
            raise error
        return error

    def running(self) -> bool:
        """Whether the saving has not ended. Never waits."""
        return not self._ended(0)

    def cancelled(self) -> bool:
        """Whether cancel() has stopped it. Never waits."""
        return self._ended(0) and isinstance(self._error, CancelledError)

    def add_done_callback(self, function: Callable[[Self], object]) -> None:
        """Calls function(saving) when the saving has ended; now, if it has.

        Another thread calls it, one function after the other. What a function raises goes to the
        logger "cowshed".
        """
        self._check_owner()
        with self._settling:
            settled = self._settled
            if not settled:
                self._callbacks.append(function)
        if settled:
            self._call(function)
        else:
            self._watch()

    def future(self) -> Future[str]:
        """A concurrent.futures.Future with the same result, for code that takes no other type.

        It can't be cancelled: cancel() of the saving can.
        """
        future: Future[str] = Future()
        future.set_running_or_notify_cancel()

        def settle(ended: Outcome) -> None:
            error = ended.error
            if error is None:
                future.set_result(ended.path)
            else:
                future.set_exception(error)

        self.add_done_callback(settle)
        return future

    def __await__(self) -> Generator[Any, None, str]:
        """`await saving` in a coroutine of asyncio: as result(), while the event loop goes on.

        If the task is cancelled meanwhile, the saving goes on.
        """
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    # ---- For subclasses ----------------------------------------------------------------------

    def _ended(self, timeout: float | None) -> bool:
        """Waits so many seconds, or for ever (None). Returns whether it has ended."""
        raise NotImplementedError

    def _watch(self) -> None:
        """Sees to it that _settle() is called when it ends, though no call waits for it."""

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(f"process {self._owner} began to save {self.path}: wait for it in "
                               "that process")

    def _settle(self) -> None:
        """It has ended, and _error is as it will be. A second call does nothing."""
        with self._settling:
            if self._settled:
                return
            self._settled = True
            callbacks, self._callbacks = self._callbacks, []
        if self._error is not None and not isinstance(self._error, CancelledError):
            _living.add(self)
            if _log.hasHandlers():
                # As text: a handler may keep the record, and the frames of an exception.
                _log.error("%s was not written: %s", self.path, str(self._error))
        for function in callbacks:
            self._call(function)

    def _call(self, function: Callable[[Self], object]) -> None:
        try:
            function(self)
        except Exception:
            _log.exception("a callback of the saving of %s failed", self.path)

    def _report(self) -> None:
        """Reports an error that no call has asked for, once."""
        error, asked, self._asked = self._error, self._asked, True
        if error is None or asked or isinstance(error, CancelledError) \
                or os.getpid() != self._owner:
            return
        error.add_note(f"{self.path} was not written, and the program has not asked: call wait()")
        sys.excepthook(type(error), error, error.__traceback__)

    def __del__(self) -> None:
        if getattr(self, "_error", None) is not None:
            self._report()


@atexit.register
def _report_all() -> None:
    """Reports what still lives at exit. The savings have ended (_saving.py waits for them)."""
    for outcome in list(_living):
        outcome._report()
