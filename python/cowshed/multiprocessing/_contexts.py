# SPDX-License-Identifier: MIT
"""Contexts: the standard ones, but with the queues, pipes and managers of this package."""

import sys
from multiprocessing import context as _standard

from . import _process


class Makes:
    """The objects that contexts of this package make in place of the standard ones."""

    def Pipe(self, duplex=True):
        """Two connected connections. Not duplex: the first receives, the second sends."""
        from ._connection import Pipe

        return Pipe(duplex)

    def Queue(self, maxsize=0):
        """A queue, which a thread fills in the background. maxsize: in objects; 0: no limit."""
        from .queues import Queue

        return Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        """A queue with task_done() and join(): join() waits until all objects are done."""
        from .queues import JoinableQueue

        return JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        """A queue without a thread: a pipe with locks."""
        from .queues import SimpleQueue

        return SimpleQueue(ctx=self.get_context())

    def Manager(self):
        """A started manager, in a process of its own, whose proxies send arrays by handle."""
        from .managers import SyncManager

        manager = SyncManager(ctx=self.get_context())
        manager.start()
        return manager

    def get_start_method(self, allow_none=False):
        """The name of the start method. allow_none: None if it is not fixed yet."""
        # An executor asks for it before it makes its queues. Others do without those modules,
        # whose import takes a fifth of the start of a worker.
        if "concurrent.futures.process" in sys.modules:
            from . import _executor  # noqa: F401
        return super().get_start_method(allow_none)

    def get_context(self, method=None):
        """The context of a start method; None is this context. ValueError: no such method.

        "template" is the method that the standard library does not have: see templates.py.
        """
        if method is None:
            return self
        if method == "template":
            from .templates import context

            return context
        if method not in _contexts:
            raise ValueError(f"cannot find context for {method!r}: pass 'fork', 'spawn', "
                             "'forkserver' or 'template'")
        context = _contexts[method]
        context._check_available()
        return context


class Process(_process.Arguments, _standard.Process):
    """A process that is started by the start method of the default context."""

    @staticmethod
    def _Popen(process_obj):
        return default.get_context().Process._Popen(process_obj)


class ForkContext(Makes, _standard.ForkContext):
    Process = _process.ForkProcess


class SpawnContext(Makes, _standard.SpawnContext):
    Process = _process.SpawnProcess


class ForkServerContext(Makes, _standard.ForkServerContext):
    Process = _process.ForkServerProcess


class DefaultContext(Makes, _standard.DefaultContext):
    """The context of the module's own functions: set_start_method() chooses its method."""

    Process = Process

    def get_context(self, method=None):
        if method is not None:
            return super().get_context(method)
        if self._actual_context is None:
            self._actual_context = self._default_context
        return self._actual_context


_contexts = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}
# The default method depends on the version of Python.
default = DefaultContext(_contexts[_standard._default_context._default_context._name])


def started():
    """The start method that was set or used, for children; None: none yet."""
    return default.get_start_method(allow_none=True)


def inherit(method):
    """In a child: sets the start method of the parent."""
    if method is not None:
        default.set_start_method(method, force=True)
