# SPDX-License-Identifier: MIT
"""Pools: multiprocessing.pool, in contexts whose queues send arrays by handle."""

from multiprocessing import pool as _standard
from multiprocessing.pool import (
    AsyncResult,
    IMapIterator,
    IMapUnorderedIterator,
    MapResult,
    MaybeEncodingError,
    ThreadPool,
)

from . import _process

__all__ = [
    "AsyncResult",
    "IMapIterator",
    "IMapUnorderedIterator",
    "MapResult",
    "MaybeEncodingError",
    "Pool",
    "ThreadPool",
]


class Pool(_standard.Pool):
    """A pool of worker processes: see multiprocessing.pool.Pool."""

    def __init__(
        self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None
    ):
        if context is None:
            context = _process.default.get_context()
        super().__init__(processes, initializer, initargs, maxtasksperchild, context)


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
