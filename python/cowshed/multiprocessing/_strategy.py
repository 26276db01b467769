# SPDX-License-Identifier: MIT
"""Sharing strategies: how storages get to other processes.

fd      As descriptors, in the message itself. Nothing is left when the processes have ended.
broker  As tokens of storages that a server keeps (`cowshed broker`). It is started at its first
        use. The sender must live until the message is received. Memory that several processes
        write is sent as descriptors all the same.
"""

import errno
import os
import stat
import tempfile
import threading
from typing import Literal

from .. import _cowshed

Strategy = Literal["fd", "broker"]

_STRATEGIES = {"fd": _cowshed.FD, "broker": _cowshed.BROKER}

_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_broker = None
_address = None
_tokens = False  # was "broker" ever this process's strategy?
_name = "fd"


def get_all_sharing_strategies() -> set[str]:
    """The strategies that exist: {"fd", "broker"}."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> Strategy:
    """How this process sends storages: "fd" (the default) or "broker"."""
    return _name


def set_sharing_strategy(new_strategy: Strategy) -> None:
    """Sets how this process, and processes that it starts later, send storages.

    fd: as descriptors. broker: connects to the user's broker, and starts one if there is none; it
    ends when no process uses it. A process that was started before the call must call this, too,
    to receive what is sent by the broker.

    ValueError: another strategy. OSError: there is no broker and it can't be started.
    """
    global _name, _tokens
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"sharing strategy {new_strategy!r} does not exist: pass 'fd' or "
                         "'broker'")
    wanted = broker() if new_strategy == "broker" else None
    _cowshed.set_strategy(_STRATEGIES[new_strategy], wanted)
    _tokens |= wanted is not None
    _name = new_strategy


def broker(start=True):
    """The connection of this process to the user's broker.

    start: starts a broker if there is none, else FileNotFoundError. OSError: it can't be started,
    or does not answer.
    """
    global _broker, _address
    with _lock:
        if _broker is None:
            _address = _address or _find_address()
            if not start:
                try:
                    _cowshed.Broker(_address)
                except (ConnectionRefusedError, ConnectionResetError, FileNotFoundError) as error:
                    raise FileNotFoundError(errno.ENOENT, "there is no broker") from error
            made = _cowshed.Broker(_address, program(), _cowshed.START)
            _broker = _broker or made  # a signal handler may have made one meanwhile
        return _broker


def _find_address():
    """The address of the user's broker: in the session's runtime folder, or in a folder of the
    user beside other temporary files. PermissionError: that one belongs to another user, too."""
    user = os.geteuid()
    for folder in os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}":
        if folder and _is_private(folder):
            return os.path.join(folder, "cowshed", "broker")
    folder = os.path.join(tempfile.gettempdir(), f"cowshed-{user}")
    os.makedirs(folder, 0o700, exist_ok=True)
    what = os.lstat(folder)
    if what.st_uid != user or what.st_mode & 0o77 or not stat.S_ISDIR(what.st_mode):
        raise PermissionError(f"{folder} is not a folder of this user alone (mode 700): remove it, "
                              "or set XDG_RUNTIME_DIR")
    return os.path.join(folder, "broker")


def _is_private(folder):
    """Whether it is a folder of this user that no other user can write."""
    try:
        what = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(what.st_mode) and what.st_uid == os.geteuid() and not what.st_mode & 0o022


def program():
    """The command that is installed with this package, or None."""
    path = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    return path if os.access(path, os.X_OK) else None


def inherited():
    """For children: (the strategy, the address of the broker or None, does it send tokens?)."""
    return _name, _address, _tokens


def inherit(settings):
    """In a child: sets the strategy of the parent. settings: of inherited()."""
    global _address
    name, address, tokens = settings
    _address = address or _address
    if tokens:
        set_sharing_strategy("broker")
    set_sharing_strategy(name)


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
