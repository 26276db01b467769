# SPDX-License-Identifier: MIT
"""Managers: multiprocessing.managers, whose proxies send and return arrays by handle."""

import contextlib
import functools
from multiprocessing import managers as _standard
from multiprocessing.managers import (
    AutoProxy,
    BaseProxy,
    DictProxy,
    ListProxy,
    NamespaceProxy,
    Token,
    ValueProxy,
)

from . import _process, _rebound, shared_memory
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
            ctx = _process.default.get_context()
        super().__init__(address, authkey, serializer, ctx, **options)


class SyncManager(BaseManager, _standard.SyncManager):
    """The manager of Manager(): lists, dicts, queues and locks in a process of their own."""


class _Blocks:
    """The blocks that a SharedMemoryManager gave. Its process holds their names, and no memory."""

    def __init__(self, name):
        self.shared_memory_context_name = name
        self._blocks = {}

    @property
    def segment_names(self):
        return list(self._blocks)

    def register_segment(self, name):
        block = shared_memory.SharedMemory(name)
        with contextlib.suppress(AttributeError):  # one of /dev/shm
            block._block.put()
        block.close()
        self._blocks[name] = block

    def destroy_segment(self, name):
        self._blocks.pop(name).unlink()

    def unlink(self):
        for name in self.segment_names:
            with contextlib.suppress(FileNotFoundError):  # the program has unlinked it
                self.destroy_segment(name)


class _SharedMemoryServer(_standard.SharedMemoryServer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shared_memory_context = _Blocks(self.shared_memory_context.shared_memory_context_name)


# SharedMemoryManager(address, ...) of the standard library begins with the resource tracker.
SharedMemoryManager = _rebound.subclass(
    _standard.SharedMemoryManager, {**vars(_standard), "shared_memory": shared_memory}, __name__,
    BaseManager, _Server=_SharedMemoryServer,
    __init__=functools.wraps(BaseManager.__init__)(
        lambda self, *args, **kwargs: BaseManager.__init__(self, *args, **kwargs)))


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
