# SPDX-License-Identifier: MIT
"""The broker of this host, and how two processes find out that they share one.

An address does not tell: containers of one machine have different addresses, and port forwarding
gives different machines the same one. A test does: can one process get a token that the other
process has put? So each process puts a token when it begins, its *probe*. It tells the probe to
its peers in the handshake of Dask's connections. A process that finds the probe at its own broker
can send handles to that peer. If it does not find it (another machine, container or user, or no
broker), it sends the peer bytes by Dask's own transport.

Only processes that unpack their messages tell a probe. A scheduler passes messages on, perhaps to
another host, so it tells none.
"""

import os
import stat
import tempfile
import threading
import time

import dask.config

from .. import _cowshed

VERSION = 1
NEGATIVE = 10  # seconds until a probe that was not found is looked for again

# After a failure, connecting to a broker and starting one is tried again after so many seconds.
AGAIN = 2

_lock = threading.Lock()
_broker = None
_failed = 0.0
_probe = None
_peers = {}  # probe -> True, or the time at which to look for it again


def _program():
    """The command of this package, or "cowshed", which is looked up in PATH."""
    ours = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    return ours if os.access(ours, os.X_OK) else "cowshed"


def _private(folder):
    """Whether it is a folder that no other user can write. Makes it if it does not exist."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & 0o022
    )


def address():
    """The address of this user's broker.

    That is "cowshed.broker" of Dask's configuration, or a path in a folder that no other user can
    write. It is a path, so containers with separate networks and a common folder share a broker.
    PermissionError: there is no such folder.
    """
    given = dask.config.get("cowshed.broker", None)
    if given:
        return given
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    for folder in (
        os.path.join(runtime, "cowshed"),
        os.path.join(tempfile.gettempdir(), f"cowshed-{os.geteuid()}"),
    ):
        if _private(folder):
            return os.path.join(folder, "dask")
    raise PermissionError(
        f"neither {runtime}/cowshed nor {folder} is a folder that only this user can write: "
        'set XDG_RUNTIME_DIR, or "cowshed.broker" in Dask\'s configuration'
    )


def broker():
    """The connection to this host's broker, which is started if there is none.

    None: there is none, and it can't be started. The first call blocks for milliseconds.
    """
    global _broker, _failed
    with _lock:
        if _broker is None and time.monotonic() >= _failed:
            try:
                _broker = _cowshed.Broker(address(), _program(), _cowshed.START, 2000)
            except OSError:
                _failed = time.monotonic() + AGAIN
        return _broker


def announcement():
    """What to tell a peer, as a dict for msgpack. None: this process has no broker."""
    global _probe
    at = broker()
    if at is None:
        return None
    with _lock:
        if _probe is None:
            try:
                _probe = at.put(b"cowshed")["token"]
            except OSError:
                return None
        return {"version": VERSION, "boot": _boot(), "probe": _probe}


def _boot():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def reaches(said):
    """Whether handles can be sent to the process with this announcement()."""
    if not isinstance(said, dict) or said.get("version") != VERSION or said.get("boot") != _boot():
        return False
    probe = said["probe"]
    known = _peers.get(probe)
    if known is True or (known is not None and time.monotonic() < known):
        return known is True
    at = broker()
    if at is None:
        return False
    try:
        at.get(probe)
    except OSError:
        if len(_peers) > 10000:
            _peers.clear()
        _peers[probe] = time.monotonic() + NEGATIVE
        return False
    _peers[probe] = True
    return True


def forget():
    """Closes the connection. The broker then drops what this process has put."""
    global _broker, _probe, _failed
    with _lock:
        _broker = _probe = None
        _failed = 0.0
        _peers.clear()


def _after_fork():
    global _lock
    _lock = threading.Lock()
    forget()


os.register_at_fork(after_in_child=_after_fork)
