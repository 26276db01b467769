# SPDX-License-Identifier: MIT
"""concurrent.futures.ProcessPoolExecutor(mp_context=...) with a context of ours.

An executor makes its queue of results by its context, and so of ours, but its queue of calls
by a class of its own. Told a context of ours, that class makes objects of a subclass, which
has our queue among its bases; in any other context it is what it was.
"""

from concurrent.futures import process as _standard

from . import _contexts
from .queues import Queue

_SafeQueue = _standard._SafeQueue


class SafeQueue(_SafeQueue, Queue):
    """The queue of calls of an executor, over connections of ours."""


def _new(cls, *args, ctx=None, **options):
    if cls is _SafeQueue and isinstance(ctx, _contexts.Makes):
        cls = SafeQueue
    return object.__new__(cls)


_SafeQueue.__new__ = _new
