# SPDX-License-Identifier: MIT
"""Queues whose arrays travel by handle, and which survive the death of those who use them.

The queues of multiprocessing, over connections of ours. Their locks die with their owners
(_cowshed.Lock), and a message is in the queue or not: a process that is killed while it puts or
gets neither locks the others out nor leaves half a message.
"""

import copyreg
import types
from multiprocessing import queues as _standard
from queue import Empty, Full

from .. import _cowshed, _family, _pickle
from . import _connection
from ._rebound import subclass

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]


class _Packets:
    """What pickles and unpickles in the standard library's code."""

    @staticmethod
    def dumps(x):
        return _connection.Packet(*_pickle.dumps(x))

    @staticmethod
    def loads(packet):
        return packet.load()


def Lock():
    """A lock for several processes, which the kernel opens if its owner dies."""
    return _cowshed.Lock(_family.alias_storage(64), new=True)


def _reduce_lock(lock):
    return _cowshed.Lock, (lock.storage,)


copyreg.pickle(_cowshed.Lock, _reduce_lock)


class _Locks:
    """A context, whose locks are ours."""

    def __init__(self, ctx):
        self._ctx = ctx

    def Lock(self):
        return Lock()

    def __getattr__(self, name):
        return getattr(self._ctx, name)


def _pipe(duplex=True):
    return _connection.pair(duplex, _connection.QueueEnd)


_namespace = dict(vars(_standard))
_namespace["connection"] = types.SimpleNamespace(Pipe=_pipe)
_namespace["_ForkingPickler"] = _Packets


def _queue_init(self, maxsize=0, *, ctx):
    _queue_standard_init(self, maxsize, ctx=_Locks(ctx))


def _simple_init(self, *, ctx):
    _simple_standard_init(self, ctx=_Locks(ctx))


Queue = subclass(_standard.Queue, _namespace, __name__)
_queue_standard_init, Queue.__init__ = Queue.__init__, _queue_init
JoinableQueue = subclass(_standard.JoinableQueue, _namespace, __name__, Queue)
SimpleQueue = subclass(_standard.SimpleQueue, _namespace, __name__)
_simple_standard_init, SimpleQueue.__init__ = SimpleQueue.__init__, _simple_init


def __getattr__(name):
    return getattr(_standard, name)
