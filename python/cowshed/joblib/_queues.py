# SPDX-License-Identifier: MIT
"""The queues of the executor: those of cowshed.multiprocessing, with cloudpickle's pickler.

loky pickles with cloudpickle, which also sends functions and classes of the main module. The
pickler here does that, and puts buffers beside the pickle as that of cowshed does.
"""

import collections
import copyreg
import pickle
import threading
import weakref
from multiprocessing.reduction import ForkingPickler

from joblib.externals.loky import process_executor as _loky

from .. import _cowshed
from .._memory import _mappings, _ndarrays, _regions
from .._pyobjects import _pickle
from .._states import _files
from ..multiprocessing import _connection, queues
from ..multiprocessing._rebound import subclass

try:
    from cloudpickle import Pickler as _Base
except ImportError:  # loky does without it, too
    from pickle import Pickler as _Base


class Copies:
    """Copies of the arrays of each call of Parallel, by where the arrays lie and what they are.

    joblib calls set_current_context() in the thread that pickles, before it pickles a task.
    """

    def __init__(self):
        self._calls = {}  # id of a call -> its copies
        self._current = None
        self._large = set()  # calls with arrays that travel by handle
        self._lock = threading.Lock()

    def begin(self, call):
        """A call begins."""
        with self._lock:
            self._calls[call] = {}

    def of_file(self, x):
        """An array like a numpy.memmap. The worker maps the file itself, and writes it privately.

        If the file is not there any more, or the memmap may have private changes: a copy.
        """
        array = _mapped(x) if x.nbytes >= _pickle.SMALL else None
        if array is None:
            plain = x.view(type(x).__mro__[1])
            array = self.of(plain)
            if array is not plain:
                array.flags.writeable = True
            return array
        with self._lock:
            self._large.add(self._current)
        return array

    def end(self, call):
        """Drops the copies of a call. Tasks of it that are still pickled get none."""
        with self._lock:
            self._calls.pop(call, {}).clear()  # the references in it lead back to it

    def are_large(self, call):
        """Whether a task of the call, or of one before by the same Parallel, had an array that
        travels by handle."""
        return call in self._large

    def forget(self, call):
        """The Parallel is done."""
        self.end(call)
        self._large.discard(call)

    def set_current_context(self, call):
        """The tasks that are pickled from here on are those of this call."""
        self._current = call

    def of(self, x):
        """An array like `x` in a storage; x itself if it lies in one, or is small."""
        import numpy

        if x.nbytes < _pickle.SMALL or x.dtype.hasobject:
            return x
        with self._lock:
            copies = self._calls.get(self._current)
            if copies is not None:
                self._large.add(self._current)
        if copies is None or _regions.region_of(x) is not None \
                or not (x.flags.c_contiguous or x.flags.f_contiguous):
            return x
        key = x.ctypes.data, x.shape, x.strides, x.dtype
        base = x
        while isinstance(base.base, numpy.ndarray):
            base = base.base
        held, copy = copies.get(key, (None, None))
        if copy is None or held() is not base:
            copy = _ndarrays.array(x, shared=False)
            # As long as the memory lives, its address is not another one's. The copy goes with it.
            copies[key] = weakref.ref(base, lambda gone: _drop(copies, key, gone)), copy
        copy = copy.view()
        copy.flags.writeable = x.flags.writeable
        return copy


def _drop(copies, key, gone):
    if copies.get(key, (None,))[0] is gone:
        del copies[key]


def _mapped(x):
    """A private mapping of the file of a numpy.memmap, as an array like it; or None."""
    if x.filename is None or x.mode == "c" or any(step < 0 for step in x.strides):
        return None
    low = x.ctypes.data
    span = sum((n - 1) * step for n, step in zip(x.shape, x.strides)) + x.itemsize
    try:
        storage = _regions.region_of(_files.open(x.filename, dtype="u1")).storage
        mapping, ours = (_mappings.covering(at, at + 1)[0] for at in (low, storage.address))
    except (OSError, TypeError, ValueError):
        return None
    offset = mapping.offset + low - mapping.start
    # The name may be another file's by now.
    if mapping.file() is None or mapping.file() != ours.file() or storage.nbytes < offset + span:
        return None
    return _ndarrays.array_on(storage, x.dtype, x.shape, offset, x.strides)


class Pickler(_Base):
    """Writes a pickle to `file`, and adds the storages beside it to `message`."""

    # C code reads it when a pickler is made.
    dispatch_table = collections.ChainMap(
        ForkingPickler._extra_reducers, getattr(_Base, "_dispatch_table", {}),
        copyreg.dispatch_table)
    _reduce = _pickle.Pickler.reducer_override

    def __init__(self, file, message, copies=None):
        super().__init__(file, protocol=5)
        self.copies = copies
        self.message = message
        self.persistent_id = _cowshed.picker(message.persistent_id, _regions.Region,
                                             pickle.PickleBuffer)

    def reducer_override(self, x):
        """What cowshed does with an array, or cloudpickle with a function or a class."""
        kind = type(x)
        if kind.__module__ == "numpy" and self.copies is not None:
            if kind.__name__ == "memmap":
                x = self.copies.of_file(x)
            elif kind.__name__ == "ndarray":
                x = self.copies.of(x)
        reduced = self._reduce(x)
        if reduced is NotImplemented and hasattr(_Base, "reducer_override"):
            return super().reducer_override(x)
        return reduced


class _Call:
    """What is put into the queue of calls, with the copies of its arrays."""

    __slots__ = ("item", "copies")

    def __init__(self, item, copies):
        self.item = item
        self.copies = copies


class _Packets:
    """The pickler of the standard library's code. It makes and loads Packets."""

    loads = staticmethod(_connection.Packet.load)

    @staticmethod
    def dumps(x):
        if type(x) is _connection.Packet:  # pickled by a put() that could not send it
            return x
        copies = None
        if type(x) is _Call:
            x, copies = x.item, x.copies
        # Workers may write their arrays: each gets its own.
        return _connection.Packet(*_pickle.dumps(
            x, _cowshed.CLONE, lambda file, message: Pickler(file, message, copies)))


def _names():
    return {**vars(queues), **queues._namespace, "_ForkingPickler": _Packets}


Queue = subclass(queues.Queue, _names(), __name__)
SimpleQueue = subclass(queues.SimpleQueue, _names(), __name__)


class CallQueue(Queue):
    """The queue of calls, in place of loky's _SafeQueue. more: its attributes."""

    def __init__(self, maxsize, ctx, copies, **more):
        super().__init__(maxsize, ctx=ctx)
        self._ignore_epipe = True
        self._copies = copies
        vars(self).update(more)

    def put(self, item, block=True, timeout=None):
        """As Queue.put()."""
        if item is not None:
            item = _Call(item, self._copies)
        super().put(item, block, timeout)

    def _on_queue_feeder_error(self, error, call):
        item = getattr(call, "item", call)
        _loky._SafeQueue._on_queue_feeder_error(self, error, item)
