# SPDX-License-Identifier: MIT
"""Ray: what ray.get() gives can be written, and no other process sees it.

    import cowshed.ray, ray

    ray.init(runtime_env={"worker_process_setup_hook": "cowshed.ray.install"})    # the workers
    cowshed.ray.install()                                                         # this process

Ray keeps large objects in a store in shared memory, and maps it read-only for NumPy. With
install() the buffers of an object are mapped once more, private to this process. The kernel
copies a page when it is first written. That holds for ray.get(), for arguments of tasks and
actors, and for all that consists of such buffers: arrays, data frames, Arrow tables, tensors.

The store keeps an object as long as one of its arrays lives here, as without this module. Objects
travel between machines by Ray's own transport.

A `cowshed.Storage`, and what consists of storages, as `cowshed.pack()`, is copied once by
ray.put(): into Ray's store. Without this module Ray makes three copies.

Ray is imported at install().
"""

from __future__ import annotations

import os
import pickle
import threading

from . import _cowshed
from ._memory import _reducers, _regions, _writable
from ._memory._regions import enter, region_of

__all__ = ["install", "is_installed", "stats", "uninstall"]

# An object with more large buffers than this has one mapping for all of them.
_MAPPINGS = 8

_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_own = None  # Ray's function that takes a stored object apart
_below = None  # the same after uninstall(), if another function had taken _unpack's place
_counters = {"objects": 0, "private": 0, "copied": 0, "bytes": 0}


def install() -> None:
    """Makes what this process gets from Ray's store writable, privately and page by page.

    The driver calls it before or after ray.init(). For workers name it in the runtime_env:
    {"worker_process_setup_hook": "cowshed.ray.install"}. Each process decides for itself, and all
    read the same objects.

    ray.get() of an object maps each of its large buffers, up to 8, or all of them at once. Buffers
    below 384 KiB are copied at once. So are those in a store whose file this process can't open:
    stats() counts them. Arrays that were read-only when they were put are writable, too. Memory
    that is written is this process's, and not the store's.

    A second call changes nothing. Any thread may call it. A child of fork() is installed, too.

    ImportError: Ray is missing. RuntimeError: this version of Ray is made in another way; nothing
    was changed.
    """
    global _below, _own
    try:
        import ray
        from ray import cloudpickle
        from ray._private import serialization
    except ImportError as error:
        raise ImportError("cowshed.ray needs ray 2.60 or newer, and it can't be imported "
                          f"({error}): pip install ray") from error
    with _lock:
        if _own is not None:
            return
        own = getattr(serialization, "unpack_pickle5_buffers", None)
        dispatch = getattr(cloudpickle.CloudPickler, "dispatch", None)
        if not callable(own) or not hasattr(dispatch, "pop"):
            raise RuntimeError(f"cowshed.ray does not know how ray {ray.__version__} reads objects "
                               "from its store: use ray 2.60, or cowshed.writable(x) on each array")
        if _below is None or own is _below:
            serialization.unpack_pickle5_buffers = _unpack
        else:  # _unpack is there still, under a function of somebody else
            own = _below
        _own, _below = own, None
        dispatch[_cowshed.Storage] = _reduce_storage


def uninstall() -> None:
    """Takes install() back for this process. What it has got from the store stays writable."""
    global _below, _own
    with _lock:
        if _own is None:
            return
        from ray import cloudpickle
        from ray._private import serialization

        if serialization.unpack_pickle5_buffers is _unpack:
            serialization.unpack_pickle5_buffers = _own
        else:
            _below = _own
        cloudpickle.CloudPickler.dispatch.pop(_cowshed.Storage, None)
        _own = None


def is_installed() -> bool:
    """Whether install() is in force in this process."""
    return _own is not None


def stats() -> dict[str, int]:
    """What this process has got from Ray since it started, as a dict.

    objects     objects with buffers
    private     buffers that are private mappings of the store
    copied      buffers that were copied at once: small ones, and those whose file can't be opened
    bytes       bytes of the private mappings
    """
    with _lock:
        return dict(_counters)


def _count(name, number=1):
    with _lock:
        _counters[name] += number


def _after_fork():
    global _lock
    _lock = threading.RLock()  # a signal handler may run in the thread that holds it


os.register_at_fork(after_in_child=_after_fork)


# ---- Getting -------------------------------------------------------------------------------


def _unpack(data):
    """In place of Ray's function: (the pickle, its buffers), and the buffers can be written."""
    own, below = _own, _below
    if own is None and below is not None:  # somebody's function in its place calls it
        return below(data)
    if own is None:  # a thread that looked the function up before uninstall()
        from ray._private import serialization

        return serialization.unpack_pickle5_buffers(data)
    body, buffers = own(data)
    return (body, _private(buffers)) if buffers else (body, buffers)


def _private(buffers):
    views = [memoryview(buffer) for buffer in buffers]
    large = [view for view in views if view.c_contiguous and view.nbytes >= _regions.SMALL]
    whole = _map(large) if len(large) > _MAPPINGS else None
    _count("objects")
    # No memoryview can have the strides of a buffer that is not contiguous.
    return [_writable_view(view, whole) if view.c_contiguous else buffer
            for view, buffer in zip(views, buffers)]


def _map(views):
    """A storage with all bytes from the first to the last one of `views`; or None."""
    bounds = [_cowshed.address_of(view)[:2] for view in views]
    low = min(address for address, _ in bounds)
    high = max(address + nbytes for address, nbytes in bounds)
    storage = _writable.private(low, high - low, views[0])
    if storage is not None:
        _count("bytes", storage.nbytes)
        enter(storage)
        return storage, low
    return None


def _writable_view(view, whole):
    """A memoryview like `view` that can be written."""
    part = None
    if view.nbytes >= _regions.SMALL:
        found = whole or _map([view])
        if found is not None:
            storage, low = found
            at = _cowshed.address_of(view)[0] - low
            part = memoryview(storage)[at : at + view.nbytes]
    _count("copied" if part is None else "private")
    if part is None:
        large = view.nbytes >= _regions.SMALL
        part = memoryview(_cowshed.clone_foreign(view) if large else bytearray(view))
    try:
        return part.cast(view.format, view.shape)
    except (TypeError, ValueError):  # a format that only NumPy knows, or no elements
        return part


# ---- Putting -------------------------------------------------------------------------------


def _reduce_storage(storage):
    # The buffer travels beside the pickle, so Ray copies it into its store and nowhere else.
    return _rebuild, (pickle.PickleBuffer(storage), bool(storage.readonly))


def _rebuild(buffer, readonly):
    """The Storage of an object of Ray's: the private mapping itself, if there is one."""
    with memoryview(buffer) as view:
        region = region_of(view) if view.nbytes else None
        if region is None or region.nbytes != region.storage.nbytes:
            return _reducers.rebuild_bytes(view.cast("B"), readonly)
        if not readonly:
            return region.storage
        # This mapping is held by the new one, and with it the object in Ray's store.
        storage = _writable.private(region.storage.address, view.nbytes, view, readonly=True)
        return storage or _reducers.rebuild_bytes(view.cast("B"), True)
