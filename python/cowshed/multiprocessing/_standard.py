# SPDX-License-Identifier: MIT
"""The standard library's multiprocessing, made to send arrays by handle.

All of multiprocessing, concurrent.futures and what stands on them pickle by ForkingPickler, which
asks a table of reducers. install() enters NumPy's arrays and storages in that table, as
torch.multiprocessing does it for tensors. So the code of others sends them by handle, with every
start method, and needs no change.

A handle is a descriptor. The standard library has a way to send one in a pickle: a child that is
being spawned inherits it, and any other receiver fetches it from a thread of the sender
(multiprocessing.resource_sharer). So the sender has to live until then: a process waits at its
end, while its parent lives, until its descriptors are fetched. Each is fetched once.
"""

from __future__ import annotations

import os
import pickle
import time
from multiprocessing import process, reduction, resource_sharer, util
from multiprocessing.context import get_spawning_popen

from .. import _cowshed
from .._memory import _family, _reducers
from .._memory._ndarrays import _copy, _numpy
from .._memory._regions import Region, region_of
from .._pyobjects import _pickle

LEAST = 1 << 20  # bytes; a handle costs as much as so many bytes in a pipe
_INHERITED = 100  # descriptors that a spawned child gets; the server of "forkserver" takes 256
_PATIENCE = 10  # seconds that a process waits at its end

_installed = False
_pid = None  # of the process that waits at its end


def install():
    """See cowshed.multiprocessing.install()."""
    global _installed
    numpy = _numpy()
    _family.lone = True
    reduction.ForkingPickler.register(numpy.ndarray, _reduce_array)
    reduction.ForkingPickler.register(_cowshed.Storage, _reduce_storage)
    _installed = True


def uninstall():
    """Takes install() back."""
    global _installed
    if _installed:
        for kind in _numpy().ndarray, _cowshed.Storage:
            reduction.ForkingPickler._extra_reducers.pop(kind, None)
        _family.lone = _installed = False


def is_installed():
    return _installed


# ---- Sending -------------------------------------------------------------------------------


def _reduce_array(x):
    if _pickle.current() is not None or x.dtype.hasobject or not x.nbytes:
        return x.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    region = region_of(x)
    kind = region.storage.kind if region is not None else None
    if kind != "alias" and (x.nbytes < LEAST or _is_full()):
        return x.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    # A column of a matrix uses few of the bytes that it spans, and a file may become shorter.
    if kind == "file" or region is None or kind == "own" and region.nbytes > 4 * x.nbytes:
        x, region = _copied(x)
    handle = _handle(region)
    strides = None if x.flags.c_contiguous else x.strides
    return rebuild_array, (handle, _pickle._dtype(x), x.shape, strides, _pickle._low(x),
                           not x.flags.writeable)


def _reduce_storage(storage):
    if storage.kind == "file" or storage.kind == "own" and (storage.nbytes < LEAST or _is_full()):
        return _reducers._reduce_storage(storage)
    return rebuild_storage, (_handle(Region(storage, 0, storage.nbytes)),)


def _copied(x):
    """A copy of an array in a storage that can be sent, and its region."""
    writeable = x.flags.writeable
    new = _copy(x)
    new.flags.writeable = writeable
    return new, region_of(new)


def _is_full():
    """Whether the child that is being spawned gets many descriptors already."""
    popen = get_spawning_popen()
    return popen is not None and len(getattr(popen, "_fds", ())) >= _INHERITED


def _handle(region):
    """(descriptor, offset of the storage, its size, mode, offset and size of the region)."""
    storage, offset, nbytes = region
    mode = _cowshed.CLONE
    if storage.kind == "alias":
        mode = _cowshed.ALIAS
    elif storage.readonly:
        mode = _cowshed.SEALED
    elif 4 * nbytes < storage.nbytes:
        with memoryview(storage) as whole, whole[offset : offset + nbytes] as part:
            storage, offset = _cowshed.clone_foreign(part), 0
    try:
        fd, at = storage.export(mode)
    except OSError as error:
        if mode != _cowshed.ALIAS:
            raise
        raise RuntimeError(
            "this array was shared before cowshed.multiprocessing.install(), in memory that only "
            f"cowshed.multiprocessing sends ({error.strerror}): call install() first") from error
    try:
        descriptor = reduction.DupFd(fd)
        _wait_at_the_end()
        return descriptor, at, storage.nbytes, mode, offset, nbytes
    finally:
        os.close(fd)


# ---- Receiving -----------------------------------------------------------------------------


def _storage_of(handle):
    descriptor, at, size, mode, offset, nbytes = handle
    if not _installed:
        install()  # what this process sends back goes the same way
    try:
        fd = descriptor.detach()
    except (ConnectionError, FileNotFoundError, EOFError) as error:
        raise RuntimeError("an array can't be received, since the process that sent it has ended: "
                           "let it live until its arrays are received") from error
    try:
        return Region(_cowshed.import_fd(fd, at, size, mode), offset, nbytes)
    finally:
        os.close(fd)


def rebuild_array(handle, dtype, shape, strides, low, readonly):
    """The array of a message."""
    return _pickle.rebuild_array(_storage_of(handle), dtype, shape, strides, low, readonly)


def rebuild_storage(handle):
    """The storage of a message."""
    return _storage_of(handle).storage


# ---- The end of the sender -----------------------------------------------------------------


def _wait_at_the_end():
    global _pid
    if _pid != os.getpid() and get_spawning_popen() is None:
        _pid = os.getpid()
        listener = resource_sharer._resource_sharer._listener
        if listener is not None:
            # Its socket lies in a folder that is removed in the end (-100). Its own step (0) would
            # remove it before queues have written what they have.
            listener._listener._unlink.cancel()
        # After the threads of queues have written what they have (-5).
        util.Finalize(None, _wait, args=(_pid, os.getppid()), exitpriority=-20)


def _wait(pid, parent):
    """Waits until all descriptors are fetched, or nobody is left who would fetch them."""
    if os.getpid() != pid or process.parent_process() is None:
        return  # the program itself ends: nobody asks it any more
    until = time.monotonic() + _PATIENCE
    while resource_sharer._resource_sharer._cache and os.getppid() == parent \
            and time.monotonic() < until:
        time.sleep(0.001)
