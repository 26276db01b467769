# SPDX-License-Identifier: MIT
"""Contexts: the standard ones, which make queues, pipes and managers of ours."""

from multiprocessing import context as _standard

from . import _process


class Makes:
    """What a context of ours makes differently."""

    def Pipe(self, duplex=True):
        """Two connected connections."""
        from ._connection import Pipe

        return Pipe(duplex)

    def Queue(self, maxsize=0):
        """A queue, filled by a thread in the background."""
        from .queues import Queue

        return Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        """A queue that knows when all that was put was done."""
        from .queues import JoinableQueue

        return JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        """A pipe with locks."""
        from .queues import SimpleQueue

        return SimpleQueue(ctx=self.get_context())

    def Manager(self):
        """A manager whose proxies send arrays by handle."""
        from .managers import SyncManager

        manager = SyncManager(ctx=self.get_context())
        manager.start()
        return manager

    def get_context(self, method=None):
        """The context of a start method; None: this one."""
        if method is None:
            return self
        if method not in _contexts:
            raise ValueError(f"cannot find context for {method!r}")
        context = _contexts[method]
        context._check_available()
        return context


class Process(_process.Arguments, _standard.Process):
    """A process that is started as the default context says."""

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
    """The context of the module's own functions: that of set_start_method()."""

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
# Which one is the default depends on the version of Python.
default = DefaultContext(_contexts[_standard._default_context._default_context._name])


def started():
    """The start method for children to go on with."""
    return default.get_start_method(allow_none=True)


def inherit(method):
    """In a child: the start method is the parent's."""
    if method is not None:
        default.set_start_method(method, force=True)
