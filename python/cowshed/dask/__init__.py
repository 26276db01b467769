# SPDX-License-Identifier: MIT
"""Dask's workers on one host send arrays as handles, not as bytes.

    import cowshed.dask
    cowshed.dask.install()                    # before the cluster is made

    cluster = LocalCluster()                  # the rest does not change
    client = Client(cluster)

There are three other ways to install it:

    cowshed.dask.install(client)                              a cluster that runs already
    dask worker --preload cowshed.dask ...                    workers that are started by hand
    DASK_DISTRIBUTED__WORKER__PRELOAD=cowshed.dask            without code

A worker then puts large buffers of a message into a broker, `cowshed broker`, which is started at
its first use. The message has tokens for the buffers, and the receiver maps them. That holds for
messages to another worker on the same host, and with `direct_to_workers` to a client there.
Messages to another host, messages through a scheduler, and all messages if there is no broker
travel as without this module. The receiver may write its arrays; no other process sees that.

If install() is called before the cluster is made, the workers also get their memory from cowshed
(its shim). Arrays of 4 MiB and more, and slices of them, are then sent without a copy. Other
arrays are copied once, into memory that all receivers map.

The broker drops what a worker put when the worker dies.

The entry "cowshed.broker" of Dask's configuration sets the broker's socket: a path or "@name".
"""

import os
import threading
from typing import TYPE_CHECKING, Any

try:
    import dask.config
    from distributed.comm import core as comms
    from distributed.diagnostics.plugin import WorkerPlugin
    from distributed.protocol import register_serialization_family
    from distributed.protocol.serialize import families
except ImportError as _error:
    raise ImportError("cowshed.dask needs dask and distributed (tested: 2026.8), and they can't be "
                      f"imported ({_error}): pip install dask distributed") from _error

from .. import _cowshed
from . import _host, _shelf, _slices, _wire

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["install", "stats", "uninstall"]

_FAMILIES = ("dask", "pickle")

_lock = threading.Lock()
_shelf_here = None
_own = {}  # family -> the functions that were registered for it
_own_handshake = None


def _shelf_of():
    """The shelf of this process, made at the first call. None: there is no broker."""
    global _shelf_here
    if _shelf_here is None:
        at = _host.broker()
        if at is None:
            return None
        with _lock:
            if _shelf_here is None:
                try:
                    _shelf_here = _shelf.Shelf(at)
                except OSError:
                    return None
    return _shelf_here


def _handshake_info(comm):
    info = _own_handshake(comm)
    # A process that passes messages on does not know whether their receiver is on this host.
    if comm.deserialize:
        said = _host.announcement()
        if said is not None:
            info[_wire.KEY] = said
    return info


def _wrap(family, own_dumps, own_loads):
    def dumps(x, context=None):
        return _wire.dumps(own_dumps, _shelf_of, x, context)

    def loads(header, frames):
        return _wire.loads(own_loads, header, frames)

    register_serialization_family(family, dumps, loads)


def _install_here():
    """Installs in this process: the serialization of messages, and the handshake."""
    global _own_handshake
    with _lock:
        if _own_handshake is not None:
            return
        # From now on the engine makes blocks in memory from which they can be sent.
        _cowshed.set_option("share", "yes")
        for family in _FAMILIES:
            # After uninstall() the registered loads() is ours, so the first entry stays.
            _own.setdefault(family, families[family])
            _wrap(family, *_own[family][:2])
        register_serialization_family(
            "cowshed", lambda x, context=None: _wire.any_dumps(_shelf_of, x, context),
            _wire.any_loads,
        )
        _own_handshake = comms.Comm.handshake_info
        comms.Comm.handshake_info = _handshake_info


class _Plugin(WorkerPlugin):
    """Installs in workers that run already, and in workers that start later."""

    name = "cowshed"

    def setup(self, worker):
        dask_setup(worker)


def dask_setup(worker):
    """Dask calls this function in a worker that preloads this module."""
    if not hasattr(worker, "rpc"):
        return
    _install_here()
    _slices.install()
    worker.rpc.collect()  # closes idle connections, whose handshake did not have a probe


def _shim():
    return os.path.join(os.path.dirname(_cowshed.__file__), "lib", "libcowshed-preload.so")


def _configure(shim):
    """Sets Dask's configuration, which nannies pass to the workers that they start."""
    preload = list(dask.config.get("distributed.worker.preload", None) or [])
    if __name__ not in preload:
        dask.config.set({"distributed.worker.preload": [*preload, __name__]})
    environ = dict(dask.config.get("distributed.nanny.pre-spawn-environ", None) or {})
    loaded = environ.get("LD_PRELOAD", os.environ.get("LD_PRELOAD", ""))
    if shim and _shim() not in loaded.split(":") and os.path.exists(_shim()):
        environ["LD_PRELOAD"] = f"{_shim()}:{loaded}".rstrip(":")
        dask.config.set({"distributed.nanny.pre-spawn-environ": environ})


def install(client: "Client | None" = None, *, shim: bool = True) -> Any:
    """Makes this process and the workers send by handle.

    client: None installs in the workers of clusters that this process makes later. Else it
    installs in the workers of the client's cluster, and the client fetches results from them
    directly, unless its `direct_to_workers` is set already.

    shim: True gives new workers memory of cowshed. Workers that run already keep their memory.

    Returns None, or what Client.register_plugin() returns. A second call changes nothing. Any
    thread may call it. A forked child connects to the broker anew at its first message.
    """
    _install_here()
    if client is None:
        _configure(shim)
        return None
    if client.direct_to_workers is None:
        client.direct_to_workers = True
    return client.register_plugin(_Plugin())


def uninstall() -> None:
    """Takes install() back for this process.

    Messages that it sent before stay readable as long as without this call. It can still read
    messages that other processes sent by handle.
    """
    global _own_handshake
    with _lock:
        if _own_handshake is None:
            return
        for family in _FAMILIES:
            own_dumps = _own[family][0]
            loads = families[family][1]
            register_serialization_family(family, own_dumps, loads)
        comms.Comm.handshake_info = _own_handshake
        _own_handshake = None
        _slices.uninstall()


def stats() -> dict[str, int]:
    """The counters of what this process sent by handle, as a dict; {} if it has sent nothing.

    messages           messages sent by handle
    given              storages put without a copy
    copied, bytes      bytes that were copied, and bytes of all handles
    expired            messages that were given up unread
    objects            arrays that are watched
    unread             messages that were not read yet
    waiting_bytes      bytes of copies and of dead objects in unread messages
    lingering_bytes    bytes kept for a second reader
    """
    shelf = _shelf_here
    if shelf is None:
        return {}
    return {**shelf.counters, **shelf.pending()}


def _close():
    """For tests: uninstalls, and drops all that was sent."""
    global _shelf_here
    uninstall()
    with _lock:
        shelf, _shelf_here = _shelf_here, None
    if shelf is not None:
        shelf.close()
    _shelf.forget()
    _host.forget()


def _after_fork():
    global _lock, _shelf_here
    _lock = threading.Lock()
    _shelf_here = None


os.register_at_fork(after_in_child=_after_fork)
