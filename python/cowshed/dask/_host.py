# SPDX-License-Identifier: MIT
"""Who is on this host: the broker, and how two processes find that they share one.

An address says little: containers of one machine have different ones, and port
forwarding gives different machines the same. What counts is whether a token that one
process puts can be got by the other. So each process puts one when it begins, its
*probe*, and tells it to all whom it connects to, in the handshake of Dask's connections.
Who finds the probe at its own broker can send handles there; who does not (another
machine, another container, another user, no broker) never will be sent one, and gets
bytes by Dask's own transport.

Told only by those who unpack what they are sent. A scheduler passes messages on, perhaps
to another host, and tells no probe.
"""

import os
import stat
import tempfile
import threading
import time

import dask.config

from .. import _cowshed

VERSION = 1
NEGATIVE = 10  # seconds for which it is believed that a probe is not here

# What a broker that went is not to cost: connecting and starting another is tried again
# after so many seconds.
AGAIN = 2

_lock = threading.Lock()
_broker = None
_failed = 0.0
_probe = None
_peers = {}  # probe -> found here, or when it was not


def _program():
    """The command of this package, or the one in PATH."""
    ours = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    return ours if os.access(ours, os.X_OK) else "cowshed"


def _private(folder):
    """Is it a folder that nobody else may write? Made if it is not there."""
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
    """Where the broker of this user listens: "cowshed.broker" of Dask's configuration, or in
    a folder that is nobody else's. A path, so that containers with a network of their own
    but a common folder share one."""
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
        "no folder for a broker's socket that is this user's alone: set XDG_RUNTIME_DIR, or "
        '"cowshed.broker" in Dask\'s configuration'
    )


def broker():
    """The connection to this host's broker, which is started if there is none; None: it can't
    be had. Blocks for milliseconds at first."""
    global _broker, _failed
    with _lock:
        if _broker is None and time.monotonic() >= _failed:
            try:
                _broker = _cowshed.Broker(address(), _program(), _cowshed.START, 2000)
            except OSError:
                _failed = time.monotonic() + AGAIN
        return _broker


def announcement():
    """What to tell a peer, as a dict that msgpack knows; None: this process has no broker."""
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
    """Is the process that said so (its announcement()) one that handles can be sent to?"""
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
    """Closes the connection. What was put is gone with it."""
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
