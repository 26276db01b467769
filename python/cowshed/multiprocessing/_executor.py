# SPDX-License-Identifier: MIT
"""concurrent.futures.ProcessPoolExecutor(mp_context=...) with a context of this package.

An executor makes its queue of results by its context, so that is a queue of this package. It
makes its queue of calls by a class of its own, `_SafeQueue`. With a context of this package that
class makes objects of a subclass, which also has our Queue as a base. With any other context it
is unchanged.
"""

from concurrent.futures import process as _standard

from .queues import Queue

_SafeQueue = _standard._SafeQueue


class SafeQueue(_SafeQueue, Queue):
    """The queue of calls of an executor, over connections of this package."""


def _new(cls, *args, ctx=None, **options):
    if cls is _SafeQueue and getattr(ctx, "_is_of_cowshed", False):
        cls = SafeQueue
    return object.__new__(cls)


_SafeQueue.__new__ = _new
