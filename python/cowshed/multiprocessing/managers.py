# SPDX-License-Identifier: MIT
"""Managers: multiprocessing.managers, whose proxies send and return arrays by handle."""

from multiprocessing import managers as _standard
from multiprocessing.managers import (
    AutoProxy,
    BaseProxy,
    DictProxy,
    ListProxy,
    NamespaceProxy,
    SharedMemoryManager,
    Token,
    ValueProxy,
)

from .connection import Client, Listener

__all__ = [
    "AutoProxy",
    "BaseManager",
    "BaseProxy",
    "DictProxy",
    "ListProxy",
    "NamespaceProxy",
    "SharedMemoryManager",
    "SyncManager",
    "Token",
    "ValueProxy",
]

SERIALIZER = "cowshed"
_standard.listener_client[SERIALIZER] = (Listener, Client)


class BaseManager(_standard.BaseManager):
    """A manager over connections of this package: see multiprocessing.managers."""

    def __init__(self, address=None, authkey=None, serializer=SERIALIZER, ctx=None, **options):
        if ctx is None:
            from ._contexts import default

            ctx = default.get_context()
        super().__init__(address, authkey, serializer, ctx, **options)


class SyncManager(BaseManager, _standard.SyncManager):
    """The manager of Manager(): lists, dicts, queues and locks in a process of their own."""


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
