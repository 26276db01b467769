# SPDX-License-Identifier: MIT
"""Queues that send arrays by handle, and stay usable when one of their processes dies.

They are the queues of multiprocessing, over connections of this package. The kernel releases
their locks when the owner dies (_cowshed.Lock), and a message is in the queue as a whole or not
at all. So a process that is killed while it puts or gets neither locks out the others nor leaves
half a message.

In multiprocessing, Queue.put() leaves an object to the thread that feeds the queue. That costs
more than sending it, because the threads wait for the GIL. So put() itself sends an object that is
small and pickled without code of the program (`_reducers.is_plain`). It does so only if no object
waits before it and no lock has to be waited for.
"""

import collections
import copyreg
import functools
import operator
import time
import types
from multiprocessing import queues as _standard
from queue import Empty, Full

from .. import _cowshed
from .._memory import _family, _reducers
from .._pyobjects import _pickle
from . import _connection
from ._rebound import subclass

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]


class _Packets:
    """The pickler of the standard library's code: it makes and loads Packets."""

    @staticmethod
    def dumps(x):
        if type(x) is _connection.Packet:  # pickled by a put() that could not send it
            return x
        return _connection.Packet(*_pickle.dumps(x))

    @staticmethod
    def loads(packet):
        return packet.load()


def Lock():
    """A lock for several processes. The kernel releases it if its owner dies."""
    return _cowshed.Lock(_family.alias_storage(64), new=True)


def _reduce_lock(lock):
    return _cowshed.Lock, (lock.storage,)


copyreg.pickle(_cowshed.Lock, _reduce_lock)


class _Locks:
    """A context with the locks of this package."""

    def __init__(self, ctx):
        self._ctx = ctx

    def Lock(self):
        return Lock()

    def __getattr__(self, name):
        return getattr(self._ctx, name)


def _pipe(duplex=True):
    return _connection.pair(duplex, _connection.QueueEnd)


_append = collections.deque.append
_do = collections.deque  # _do(iterator, 0) consumes the iterator and keeps nothing


class _Buffer(collections.deque):
    """The objects for the feeding thread, which takes one when it has sent the one before."""

    # How many objects. put() changes the first under its lock; the thread changes the others.
    _appended = _taken = _sent = 0

    def append(self, x):
        super().append(x)
        self._appended += 1

    def popleft(self):
        self._sent = self._taken
        x = super().popleft()
        self._taken += 1
        return x

    def is_done(self):
        """Whether all objects that were appended are sent."""
        return self._sent == self._appended


_namespace = dict(vars(_standard))
_namespace["collections"] = types.SimpleNamespace(deque=_Buffer)
_namespace["connection"] = types.SimpleNamespace(Pipe=_pipe)
_namespace["_ForkingPickler"] = _Packets


def _queue_init(self, maxsize=0, *, ctx):
    _queue_standard_init(self, maxsize, ctx=_Locks(ctx))


def _simple_init(self, *, ctx):
    _simple_standard_init(self, ctx=_Locks(ctx))


def _put(self, obj, block=True, timeout=None):
    if self._closed:
        raise ValueError(f"Queue {self!r} is closed")
    message = _Message(obj)
    # A signal handler may raise after any call, but not inside extend(), which is C. So `place`
    # tells what was acquired.
    place = []
    try:
        place.extend(map(self._sem.acquire, (block,), (timeout,)))
        if not place[0]:
            raise Full
        if self._counts or self._thread is None or not _reducers.is_plain(obj) \
                or not _send(self, message, block):
            _leave(self, message)
    except BaseException:  # mostly raised by a signal handler
        if message.is_gone():
            _leave(self, message)
        elif place == [True]:
            self._sem.release()
        raise


class _Message:
    """The object that put() got, or its Packet. `left`: whether it was left to the thread."""

    __slots__ = ("x", "left")

    def __init__(self, x):
        self.x = x
        self.left = False

    def is_gone(self):
        """Whether put() can't take it back: the thread or the channel has it."""
        return self.left or (type(self.x) is _connection.Packet and self.x.taken)


def _send(self, message, wait):
    """Sends the message without waiting; returns whether it did.

    If not, the caller leaves it to the thread, which also handles errors.
    """
    if not self._buffer.is_done():
        return False
    had = []
    try:
        had.extend(map(self._wlock.acquire, (False,)))
        if not had[0]:
            return False
        message.x = _Packets.dumps(message.x)
        return self._writer.try_send_packet(message.x, wait)
    except Exception:
        return False
    finally:
        if had == [True]:
            self._wlock.release()


def _leave(self, message):
    # Takes the Condition's lock, not the Condition. The Condition is Python code, and a signal
    # handler that raises inside it could leave it locked.
    with self._notempty._lock:
        if self._thread is None:
            self._start_thread()
        if not message.left:
            steps = [functools.partial(_append, self._buffer, message.x)]
            if self._counts:  # before another process can receive it and call task_done()
                steps.insert(0, self._unfinished_tasks.release)
            steps = map(operator.call, steps)
            # All of the last line is C. A signal handler may raise after it, but not between these
            # lines. So the message is counted exactly if it is in the queue.
            message.left = True
            self._buffer._appended += 1
            _do(steps, 0)
        self._notempty.notify()


def _get(self, block=True, timeout=None):
    if self._closed:
        raise ValueError(f"Queue {self!r} is closed")
    if block and timeout is None:
        with self._rlock:
            packet = _receive(self, None)
    else:
        until = time.monotonic() + (timeout if block else 0)
        if not self._rlock.acquire(block, timeout):
            raise Empty
        try:
            packet = _receive(self, until)
        finally:
            self._rlock.release()
    return packet.load()


def _receive(self, until):
    packet = None
    while packet is None:
        if until is not None and not self._poll(max(until - time.monotonic(), 0)):
            raise Empty
        packet = self._reader.recv_packet_or_rest()
        # Also for the rest of a message: the process that died with its beginning did not give
        # the place in the queue back.
        self._sem.release()
    return packet


Queue = subclass(_standard.Queue, _namespace, __name__)
_queue_standard_init, Queue.__init__ = Queue.__init__, _queue_init
for _name, _method in ("put", _put), ("get", _get):
    _method.__doc__ = getattr(_standard.Queue, _name).__doc__
    _method.__qualname__, _method.__name__ = f"Queue.{_name}", _name
    setattr(Queue, _name, _method)
Queue._counts = False
# Its put() is Queue's, and also counts unfinished objects. It leaves every object to the thread.
JoinableQueue = subclass(_standard.JoinableQueue, _namespace, __name__, Queue, put=_put,
                         _counts=True)
SimpleQueue = subclass(_standard.SimpleQueue, _namespace, __name__)
_simple_standard_init, SimpleQueue.__init__ = SimpleQueue.__init__, _simple_init


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
