# SPDX-License-Identifier: MIT
"""Dask's workers of one host send arrays as handles, not as bytes.

    import cowshed.dask
    cowshed.dask.install()                    # before the cluster is made

    cluster = LocalCluster()                  # all the rest as ever
    client = Client(cluster)

or, for a cluster that runs already, `cowshed.dask.install(client)`; or for workers that are
started by hand `dask worker --preload cowshed.dask ...`; or without any code
`DASK_DISTRIBUTED__WORKER__PRELOAD=cowshed.dask`.

Large buffers of whatever a worker sends to another worker (or, with `direct_to_workers`, to a
client) of the same host then lie at a broker, `cowshed broker`, which is started when it is
needed; the message has tokens for them, and the receiver maps them. What goes to another
host, or by way of a scheduler, travels as it always did, and so does everything if there is
no broker. What arrives is the receiver's: it may write it, and nobody else sees that.

With install() before the cluster is made the workers also get their memory from cowshed
(its shim): arrays of 4 MiB and more are then sent without being copied even once, and
slices of them, too. Others are copied once, into memory that is mapped by all receivers.

Nothing is left by a worker that dies: what it put is dropped with its connection.

Configuration (Dask's): "cowshed.broker", the socket's path or "@name".
"""

import os
import threading
from typing import TYPE_CHECKING, Any

import dask.config
from distributed.comm import core as comms
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import register_serialization_family
from distributed.protocol.serialize import families

from .. import _cowshed
from . import _host, _shelf, _slices, _wire

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["install", "stats", "uninstall"]

_FAMILIES = ("dask", "pickle")

_lock = threading.Lock()
_shelf_here = None
_own = {}  # family -> what was registered for it
_own_handshake = None


def _shelf_of():
    """This process's shelf; None: no broker."""
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
    # Who passes messages on can't answer for who unpacks them.
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
    """In this process: what it sends, and what it says of itself."""
    global _own_handshake
    with _lock:
        if _own_handshake is not None:
            return
        # Blocks that are born from now on can be sent as they lie.
        _cowshed.set_option("share", "yes")
        for family in _FAMILIES:
            _own.setdefault(family, families[family])  # of an earlier install() the loads are ours
            _wrap(family, *_own[family][:2])
        register_serialization_family(
            "cowshed", lambda x, context=None: _wire.any_dumps(_shelf_of, x, context),
            _wire.any_loads,
        )
        _own_handshake = comms.Comm.handshake_info
        comms.Comm.handshake_info = _handshake_info


class _Plugin(WorkerPlugin):
    """Installs in workers that run already, and in those that come."""

    name = "cowshed"

    def setup(self, worker):
        dask_setup(worker)


def dask_setup(worker):
    """What Dask calls in a worker that has this module as a preload."""
    if not hasattr(worker, "rpc"):
        return
    _install_here()
    _slices.install()
    worker.rpc.collect()  # connections that are idle said nothing of a broker


def _shim():
    return os.path.join(os.path.dirname(_cowshed.__file__), "lib", "libcowshed-preload.so")


def _configure(shim):
    """What processes started from now on are told: by nannies, with Dask's configuration."""
    preload = list(dask.config.get("distributed.worker.preload", None) or [])
    if __name__ not in preload:
        dask.config.set({"distributed.worker.preload": [*preload, __name__]})
    environ = dict(dask.config.get("distributed.nanny.pre-spawn-environ", None) or {})
    loaded = environ.get("LD_PRELOAD", os.environ.get("LD_PRELOAD", ""))
    if shim and _shim() not in loaded.split(":") and os.path.exists(_shim()):
        environ["LD_PRELOAD"] = f"{_shim()}:{loaded}".rstrip(":")
        dask.config.set({"distributed.nanny.pre-spawn-environ": environ})


def install(client: "Client | None" = None, *, shim: bool = True) -> Any:
    """Sends by handle in this process and in the workers: of clusters that are made from now
    on by this process, or of `client`'s cluster.

    shim: new workers get their memory from cowshed. (Those of a running cluster can't.) A client
    on the workers' host is made to fetch results from them directly, unless it was told
    otherwise. Idempotent. Threads: any. A forked child starts anew by itself.
    """
    _install_here()
    if client is None:
        _configure(shim)
        return None
    if client.direct_to_workers is None:
        client.direct_to_workers = True
    return client.register_plugin(_Plugin())


def uninstall() -> None:
    """This process sends as it did before. What it has sent stays as long as it would have;
    what it was sent can still be read."""
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
    """What this process sent by handle, as a dict: messages, storages given without a copy,
    bytes copied and bytes in all; and what still waits for readers."""
    shelf = _shelf_here
    if shelf is None:
        return {}
    return {**shelf.counters, **shelf.pending()}


def _close():
    """As if nothing had been sent: for tests."""
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
