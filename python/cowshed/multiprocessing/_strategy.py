# SPDX-License-Identifier: MIT
"""Sharing strategies: how storages get to other processes.

fd      as descriptors, in the message itself. Nothing is left when the processes are gone.
broker  as names of what a server keeps (`cowshed broker`), which is started when it is first
        needed. Whoever sends so must live until it was received. What several processes
        write goes as descriptors all the same.
"""

import os
import stat
import tempfile
from typing import Literal

from .. import _cowshed

Strategy = Literal["fd", "broker"]

_STRATEGIES = {"fd": _cowshed.FD, "broker": _cowshed.BROKER}

_broker = None
_address = None
_name = "fd"


def get_all_sharing_strategies() -> set[str]:
    """{"fd", "broker"}"""
    return set(_STRATEGIES)


def get_sharing_strategy() -> Strategy:
    """How this process sends from now on: "fd" (the default) or "broker"."""
    return _name


def set_sharing_strategy(new_strategy: Strategy) -> None:
    """How this process, and those that it starts, send from now on: "fd" or "broker".

    broker: connects to the user's broker, and starts one if there is none; it ends when nobody
    needs it any more. Processes that were started before receive what is sent by it once they
    have called this, too.
    """
    global _name, _broker, _address
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"sharing strategy {new_strategy!r}: there are 'fd' and 'broker'")
    if new_strategy == "broker" and _broker is None:
        _address = _address or _find_address()
        _broker = _cowshed.Broker(_address, _program(), _cowshed.START)
    _cowshed.set_strategy(_STRATEGIES[new_strategy], _broker)
    _name = new_strategy


def _find_address():
    """The user's broker's, where sockets of a session lie; or in a folder of his own."""
    user = os.geteuid()
    for folder in os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}":
        if folder and _is_private(folder):
            return os.path.join(folder, "cowshed", "broker")
    folder = os.path.join(tempfile.gettempdir(), f"cowshed-{user}")
    os.makedirs(folder, 0o700, exist_ok=True)
    what = os.lstat(folder)
    if what.st_uid != user or what.st_mode & 0o77 or not stat.S_ISDIR(what.st_mode):
        raise PermissionError(f"{folder} is not this user's alone: no place for a broker")
    return os.path.join(folder, "broker")


def _is_private(folder):
    """Is it a folder of this user's, which nobody else may write?"""
    try:
        what = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(what.st_mode) and what.st_uid == os.geteuid() and not what.st_mode & 0o022


def _program():
    """The command that is installed with this package."""
    path = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    return path if os.access(path, os.X_OK) else None


def inherited():
    """For children: the strategy, and where the broker is, if there is one."""
    return _name, _address if _broker is not None else None


def inherit(settings):
    """In a child: as its parent."""
    global _address
    name, address = settings
    if address:
        _address = address
        set_sharing_strategy("broker")
    set_sharing_strategy(name)
