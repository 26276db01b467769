# SPDX-License-Identifier: MIT
"""Sharing strategies: how storages get to other processes.

fd      as descriptors, in the message itself. Nothing is left when the processes are gone.
broker  as names of what a server keeps (`cowshed broker`), which is started when it is first
        needed. For what is received much later, or by many, than it is sent.
"""

import os

from .. import _cowshed

_STRATEGIES = {"fd": _cowshed.FD, "broker": _cowshed.BROKER}

_broker = None
_name = "fd"


def get_all_sharing_strategies():
    """{"fd", "broker"}"""
    return set(_STRATEGIES)


def get_sharing_strategy():
    """How this process sends from now on: "fd" (the default) or "broker"."""
    return _name


def set_sharing_strategy(new_strategy):
    """How this process, and those that it starts, send from now on: "fd" or "broker".

    broker: connects to the user's broker, and starts one if there is none; it ends when nobody
    needs it any more. Processes that were started before receive what is sent by it once they
    have called this, too.
    """
    global _name, _broker
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"sharing strategy {new_strategy!r}: there are 'fd' and 'broker'")
    if new_strategy == "broker" and _broker is None:
        _broker = _cowshed.Broker(program=_program(), flags=_cowshed.START)
    _cowshed.set_strategy(_STRATEGIES[new_strategy], _broker)
    _name = new_strategy


def _program():
    """The command that is installed with this package."""
    path = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    return path if os.access(path, os.X_OK) else None


def inherited():
    """For children: the strategy, and whether there is a broker."""
    return _name, _broker is not None


def inherit(settings):
    """In a child: as its parent."""
    name, broker = settings
    if broker:
        set_sharing_strategy("broker")
    set_sharing_strategy(name)
