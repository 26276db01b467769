# SPDX-License-Identifier: MIT
"""What the contexts of this package make in place of the standard ones: queues, pipes, managers."""

import sys

__name__ = "cowshed.multiprocessing._contexts"  # whose name its methods have in pickles

contexts = {}  # the name of a start method -> a function that returns its context: _contexts.py


class Makes:
    """The objects that contexts of this package make in place of the standard ones."""

    _is_of_cowshed = True  # for _executor.py

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
        if method not in contexts:
            raise ValueError(f"cannot find context for {method!r}: pass 'fork', 'spawn', "
                             "'forkserver' or 'template'")
        context = contexts[method]()
        context._check_available()
        return context
