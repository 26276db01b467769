# SPDX-License-Identifier: MIT
"""Pickles whose large buffers travel beside them, as storages.

    data, parcels = dumps(x)             for Channel.send()
    x = loads(data, storages)            from Channel.receive()

A message is a pickle and a list of storages. In the pickle a persistent id stands for a storage:
its place in the list. Another one stands for a Region, a part of a storage. Other objects are
made of these. An array is `rebuild_array(region, dtype, shape, ...)`. So two views of one storage
arrive as two views of one storage, and a storage that is sent twice arrives as one.

Bytes that lie in a storage are sent as that storage. Other bytes are copied once, into memory
from which they can be sent; in clone mode small buffers stay in the pickle. If a message uses
less than a quarter of a storage, the bytes in use are copied. So a row of a matrix does not keep
the matrix alive in the receiver.

Only load pickles of programs that you trust: loads() runs code that they name, as pickle.loads().
"""

import collections
import copyreg
import io
import pickle
import threading
from multiprocessing.reduction import ForkingPickler

from .. import _cowshed
from .._memory import _family, _reducers
from .._memory._names import keep
from .._memory._ndarrays import _numpy as numpy
from .._memory._ndarrays import new_storage
from .._memory._regions import Region, enter, region_of

__name__ = keep(__name__)

SMALL = _cowshed.LARGE  # in bytes; below it a copy costs less than a handle
PARCELS = 900  # of 1024 that a message holds
PACK = 1 << 20  # buffers beyond PARCELS are packed into storages of this size

_KINDS = {bytes: 0, bytearray: 1, pickle.PickleBuffer: 2}

_current = threading.local()


def current():
    """The message that this thread is making, for reducers; or None."""
    return getattr(_current, "message", None)


def clones():
    """The clones of storages that were made for the message that this thread is reading.

    Rebuilders use them, so one storage in a message stays one storage. A clone of an earlier
    message is not reused: the receiver may have written it.
    """
    reader = getattr(_current, "reader", None)
    return reader.clones if reader is not None else {}


class Message:
    """The storages of a message that is being pickled.

    mode: what receivers get, CLONE or ALIAS. memo: a dict for reducers, for this message only.
    """

    def __init__(self, mode):
        self.mode = mode
        self.memo = {}
        self.has_files = False
        self._files = {}  # id of a storage -> its description or None, and the storage
        self._rows = []  # [storage, lowest and highest byte in use, mode]
        self._index = {}  # id of a storage -> its row
        self._pack = None
        self._packed = 0
        self._kept = []  # keeps objects of _bytes alive, and so their ids unique
        self._bytes = {}  # id of a buffer -> its persistent id

    def add(self, storage, low, high, shared=True):
        """Adds a storage of which the message uses the bytes from `low` to `high`.

        Returns its place in the list. shared: what receivers get in alias mode of a storage that
        is not an alias. True: they share a copy of the bytes in use. False: they get a clone.
        """
        i = self._index.get(id(storage))
        if i is None:
            i = self._index[id(storage)] = len(self._rows)
            if storage.kind == "alias":
                mode = _cowshed.ALIAS
            elif storage.readonly:
                mode = _cowshed.SEALED
            else:
                mode = self.mode if shared and storage.kind == "own" else _cowshed.CLONE
            self._rows.append([storage, low, high, mode])
            return i
        row = self._rows[i]
        row[1] = min(row[1], low)
        row[2] = max(row[2], high)
        return i

    def place(self, buffer):
        """A Region with a copy of a contiguous buffer, in memory from which it can be sent."""
        nbytes = memoryview(buffer).nbytes
        if nbytes > PACK or len(self._rows) < PARCELS:
            return Region(self._copied(buffer), 0, nbytes)
        if self._pack is None or self._packed + nbytes > self._pack.nbytes:
            self._pack = new_storage(PACK, shared=self.mode == _cowshed.ALIAS)
            self._packed = 0
        at = self._packed
        self._packed += nbytes + -nbytes % 64
        with memoryview(self._pack) as whole:
            whole[at : at + nbytes] = memoryview(buffer).cast("B")
        return Region(self._pack, at, nbytes)

    def _copied(self, buffer):
        _cowshed.check_file(*_cowshed.address_of(buffer)[:2])
        group = _family.group()
        if group is not None:
            return group.copy(buffer, self.mode)
        if self.mode == _cowshed.ALIAS:
            storage = _family.alias_storage(memoryview(buffer).nbytes)
            with memoryview(storage) as whole:
                whole[:] = memoryview(buffer).cast("B")
            return storage
        return _cowshed.clone_foreign(buffer)

    def persistent_id(self, x):
        """The persistent id of a storage, a region or a long buffer."""
        kind = type(x)
        if kind is _cowshed.Storage:
            region = Region(x, 0, x.nbytes)
            file = self._file(region)
            return file[:2] if file else self.add(x, 0, x.nbytes)
        if kind is Region:
            return self._file(x) or self._region(x)
        return self._buffer(x, kind)

    def _region(self, region):
        storage, offset, nbytes = region
        return (self.add(storage, offset, offset + nbytes), offset, nbytes)

    def _file(self, region):
        """The persistent id of a file that the receiver can open itself; else None."""
        if region.storage.kind != "file":
            return None
        key = id(region.storage)
        if key not in self._files:
            from .._states import _files

            # Asked once for all views of a file, so they stay views of one storage. The answer
            # could change if a program writes the file meanwhile.
            self._files[key] = _files.describe(region.storage), region.storage
        what = self._files[key][0]
        if what is None:
            _cowshed.check_file(region.storage.address + region.offset, region.nbytes)
            return None
        self.has_files = True
        return (what, key, region.offset, region.nbytes, "file")

    def _buffer(self, x, kind):
        pid = self._bytes.get(id(x))
        if pid is not None:
            return pid
        readonly = False
        if kind is pickle.PickleBuffer:
            try:
                view = x.raw()
            except BufferError:
                return None  # pickle itself raises the error
            readonly = view.readonly
            region = region_of(view)
            if view.nbytes < SMALL and not self._wanted(region):
                return None
        else:
            view, region = x, region_of(x)
        if region is None or region.storage.kind == "file":
            region = self.place(view)
        storage, offset, nbytes = region
        i = self.add(storage, offset, offset + nbytes, kind is pickle.PickleBuffer)
        pid = (i, offset, nbytes, _KINDS[kind] + readonly)
        self._kept.append(x)
        self._bytes[id(x)] = pid
        return pid

    def _wanted(self, region):
        """Whether a small buffer travels by handle."""
        return self.mode == _cowshed.ALIAS or (region and region.storage.kind == "alias")

    def finish(self):
        """(shifts, parcels). shifts: place of a storage -> what to subtract from its offsets."""
        shifts, parcels = {}, []
        for i, (storage, low, high, mode) in enumerate(self._rows):
            copied = mode == _cowshed.ALIAS and storage.kind == "own"
            if copied or (mode == _cowshed.CLONE and 4 * (high - low) < storage.nbytes):
                low -= low % 64
                with memoryview(storage) as whole, whole[low:high] as part:
                    storage = self._copied(part)
                if low:
                    shifts[i] = low
            parcel = (storage, 0, storage.nbytes, mode)
            # Aliases lie in the group's memory, which is never sent by a broker.
            parcels.append((*parcel, _cowshed.FD) if mode == _cowshed.ALIAS else parcel)
        return shifts, parcels


# ForkingPickler() makes such a map for each of its objects. Other libraries add to both dicts.
_dispatch = collections.ChainMap(ForkingPickler._extra_reducers, copyreg.dispatch_table)


class Pickler(ForkingPickler):
    """Writes a pickle to `file`, and adds the storages beside it to `message`."""

    def __init__(self, file, message):
        pickle.Pickler.__init__(self, file, 5)
        self.dispatch_table = _dispatch
        self.message = message
        self.persistent_id = _cowshed.picker(message.persistent_id, Region, pickle.PickleBuffer)

    def reducer_override(self, x):
        """Calls the reducer of the object's type, if there is one."""
        kind = type(x)
        reduce = _reducers.find(kind)
        if reduce is not None:
            return reduce(x)
        if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
            _reducers.register(kind, _reduce_array, _is_small_array, _small_alone)
            return _reduce_array(x)
        return NotImplemented


class Unpickler(pickle.Unpickler):
    """Reads a pickle with the storages that came with it."""

    def __init__(self, file, storages, shifts):
        super().__init__(file)
        self.storages = storages
        self.shifts = shifts
        self.bytes = {}
        self.files = {}
        self.clones = {}

    def persistent_load(self, pid):
        """The object for a persistent id of Message.persistent_id()."""
        if type(pid) is int:
            return self.storages[pid]
        if len(pid) == 2:
            return self._file(*pid)
        if pid[-1] == "file":
            what, key, offset, nbytes, _ = pid
            return Region(self._file(what, key), offset, nbytes)
        i, offset, nbytes, *kind = pid
        region = Region(self.storages[i], offset - self.shifts.get(i, 0), nbytes)
        if not kind:
            return region
        if pid not in self.bytes:
            self.bytes[pid] = self._buffer(region, kind[0])
        return self.bytes[pid]

    def _file(self, what, key):
        """The storage of a file: one here for each one of the sender."""
        if key not in self.files:
            from .._states import _files

            self.files[key] = _files.reopen(what)
        return self.files[key]

    def _buffer(self, region, kind):
        storage, offset, nbytes = region
        enter(storage)
        view = memoryview(storage)[offset : offset + nbytes]
        if kind == 2:
            return view
        if kind == 3:
            return view.toreadonly()
        with view:
            return bytearray(view) if kind else bytes(view)


def dumps(x, mode=None, pickler=Pickler):
    """(data, parcels): a pickle of any object, and the storages that travel beside it.

    mode: ALIAS or CLONE; None is the sharing mode. The parcels are for Channel.send(). Their order
    is part of the message. pickler(file, message): makes the pickler. Raises the exceptions of
    pickle.dumps().
    """
    if mode is None:
        mode = _family.mode_number()
    alone = _reducers.dumps_alone(x, mode)
    if alone is not None:
        return alone, []
    message = Message(mode)
    before = current()
    _current.message = message
    file = io.BytesIO()
    try:
        pickler(file, message).dump(x)
    finally:
        _current.message = before
    shifts, parcels = message.finish() if message._rows else ({}, [])
    # A message with files and no parcels is marked, too, since plain pickle can't load it. See
    # Packet.load().
    if shifts or (message.has_files and not parcels):
        return b"\x01" + pickle.dumps(shifts) + file.getvalue(), parcels
    return file.getbuffer(), parcels


def loads(data, storages=()):
    """The object of a message. storages: in the order of the parcels of dumps()."""
    with memoryview(data) as view:
        shifted = view[:1] == b"\x01"
        file = io.BytesIO(view[1:] if shifted else view)
    shifts = pickle.load(file) if shifted else {}
    before = getattr(_current, "reader", None)
    reader = _current.reader = Unpickler(file, storages, shifts)
    try:
        return reader.load()
    finally:
        _current.reader = before


# ---- NumPy ------------------------------------------------------------------------------


def _reduce_array(x):
    if type(x) is not numpy().ndarray or x.dtype.hasobject or not x.nbytes:
        return NotImplemented
    message = current()
    alias = message.mode == _cowshed.ALIAS
    small = x.nbytes < SMALL
    if small and not alias and x.base is None:
        return _reduce_small(x)
    region = region_of(x)
    if region is not None and region.storage.kind == "own" and not alias:
        # A column of a matrix uses few of the bytes that it spans: it is copied.
        if small or region.nbytes > 4 * x.nbytes:
            region = None
    if region is None:
        if small and not alias:
            return _reduce_small(x)
        return _reduce_foreign(x, message)
    low = _low(x)
    strides = None if x.flags.c_contiguous else x.strides
    return rebuild_array, (region, _dtype(x), x.shape, strides, low, not x.flags.writeable)


def _is_small_array(x):
    return x.nbytes < SMALL and x.base is None and not x.dtype.hasobject


def _small_alone(x, mode):
    if mode == _cowshed.ALIAS or not _is_small_array(x) or not x.nbytes:
        return None
    taken = _reduce_small(x)
    return taken if taken is not NotImplemented else None


def _low(x):
    """Bytes from the lowest byte to the first element: not 0 if a stride is negative."""
    return -sum((n - 1) * step for n, step in zip(x.shape, x.strides) if step < 0)


def _dtype(x):
    return x.dtype.str if x.dtype.isbuiltin == 1 else x.dtype


def _reduce_small(x):
    """Does what NumPy's own reducer does, in a quarter of the time."""
    if not x.flags.c_contiguous or x.dtype.isbuiltin != 1 or not x.flags.writeable:
        return NotImplemented
    return rebuild_small, (x.dtype.str, x.shape, bytearray(x.tobytes()))


def rebuild_small(dtype, shape, data):
    """An array on bytes of its own."""
    return numpy().ndarray(shape, dtype, data)


def _reduce_foreign(x, message):
    dtype, readonly = _dtype(x), not x.flags.writeable
    strides, shape = None, x.shape
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        strides, x = x.strides, x.T
    elif not x.flags.c_contiguous:
        x = numpy().ascontiguousarray(x)
    # As bytes, since arrays of dates have no buffer.
    region = message.place(x.reshape(-1).view("u1"))
    return rebuild_array, (region, dtype, shape, strides, 0, readonly)


def rebuild_array(region, dtype, shape, strides, low, readonly):
    """The NumPy array of a message, on a region. low: see _low()."""
    storage, offset, _ = region
    enter(storage)
    x = numpy().ndarray(shape, dtype, storage, offset + low, strides)
    if readonly:
        x.flags.writeable = False
    return x
