# SPDX-License-Identifier: MIT
"""A multiprocessing.pool.Pool that fails when its workers can't be replaced.

The standard library's pool starts a new worker for each one that ended, in a thread. If that
raises, because the template died, its thread ends and the results are waited for for ever. Here
they raise the error.
"""

import threading
from multiprocessing import ProcessError
from multiprocessing import pool as _standard

from ._rebound import subclass


def _handle_workers(cls, cache, taskqueue, *args):
    try:
        _standard.Pool._handle_workers.__func__(cls, cache, taskqueue, *args)
    except (ProcessError, OSError) as error:
        threading.current_thread().failed = True  # before a caller learns of it
        while cache:
            for job in list(cache.values()):
                _fail(job, error)
        taskqueue.put(None)  # ends the thread that hands out tasks


def _check_running(self):
    _standard.Pool._check_running(self)
    if getattr(self._worker_handler, "failed", False):
        raise ProcessError("the pool has no workers, and can't start new ones. If its template has "
                           "ended, make another one and a new pool.")


def _fail(job, error):
    """Gives a result that is waited for the error. It then leaves the cache of the pool."""
    if isinstance(job, _standard.IMapIterator):
        with job._cond:
            job._length = job._index + 1
    elif isinstance(job, _standard.MapResult):
        job._number_left = 1
    job._set(getattr(job, "_index", 0), (False, error))
    job._cache.pop(job._job, None)


# The code of the standard library names Pool where it could ask for the class.
Pool = subclass(_standard.Pool, dict(vars(_standard)), __name__,
                _handle_workers=classmethod(_handle_workers), _check_running=_check_running)
