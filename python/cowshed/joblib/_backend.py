# SPDX-License-Identifier: MIT
"""The backend: joblib's LokyBackend, with an executor of this package.

The executor is kept for later calls, with its template, as loky's is. It is made anew if it is
broken, because a worker was killed, or if other variables of the environment are wanted.
"""

import os
import sys
import threading

from joblib._parallel_backends import FallbackToBackend, LokyBackend, SequentialBackend
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from joblib.externals.loky.reusable_executor import _ReusablePoolExecutor

from ..multiprocessing.templates import Template
from . import _queues

# Modules that the template imports if the program has imported them: what most tasks need.
PRELOADED = ("numpy", "scipy.sparse", "pandas", "sklearn.ensemble", "sklearn.pipeline", "sklearn")
# What joblib passes for its memmaps in temporary files.
_IGNORED = {"context", "context_id", "max_nbytes", "mmap_mode", "temp_folder", "verbose"}
_KNOWN = {"initializer", "initargs"}


class Backend(LokyBackend):
    """The backend "cowshed" of joblib: see joblib.parallel_config()."""

    def configure(self, n_jobs=1, parallel=None, prefer=None, require=None,
                  idle_worker_timeout=None, **options):
        """Gets the executor ready; returns the number of workers."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        options = {**self.backend_kwargs, **options}
        given = options.pop("idle_worker_timeout", 300)
        unknown = set(options) - _IGNORED - _KNOWN
        if unknown:
            raise TypeError(f"the backend 'cowshed' has no option {', '.join(sorted(unknown))}: "
                            "pass idle_worker_timeout, initializer or initargs")
        self._workers = executor(
            n_jobs, given if idle_worker_timeout is None else idle_worker_timeout,
            self._prepare_worker_env(n_jobs=n_jobs), options.get("initializer"),
            tuple(options.get("initargs", ())))
        self.parallel = parallel
        return n_jobs

    def compute_batch_size(self):
        """How many tasks a worker gets at once. Tasks of one batch have one copy of an array that
        they share, so tasks with large arrays are sent one by one."""
        if self._workers is not None and self._workers.copies.are_large(self.parallel._id):
            return 1
        return super().compute_batch_size()

    def start_call(self):
        """A call begins."""
        self._workers.copies.begin(self.parallel._id)

    def stop_call(self):
        """A call ends. The workers stay, copies of its arrays go."""
        if self._workers is not None:
            self._workers.copies.end(self.parallel._id)

    def terminate(self):
        """The end of the last call."""
        if self._workers is not None:
            self._workers.copies.forget(self.parallel._id)
        self._workers = None
        self.reset_batch_stats()

    _workers = None


class Executor(_ReusablePoolExecutor):
    """loky's executor, with queues that send by handle, and processes of a template."""

    def _setup_queues(self, job_reducers, result_reducers):
        self.copies = self._temp_folder_manager = _queues.Copies()
        super()._setup_queues(job_reducers, result_reducers)
        for queue in self._call_queue, self._result_queue:
            queue.close()
        self._call_queue = _queues.CallQueue(
            self.queue_size, self._context, self.copies,
            pending_work_items=self._pending_work_items,
            running_work_items=self._running_work_items,
            thread_wakeup=self._executor_manager_thread_wakeup, shutdown_lock=self._shutdown_lock)
        self._result_queue = _queues.SimpleQueue(ctx=self._context)

    def submit(self, fn, *args, **kwargs):
        """As Executor.submit(). (That of the base class may choose loky's own executor.)"""
        with self._submit_resize_lock:
            return ProcessPoolExecutor.submit(self, fn, *args, **kwargs)

    def terminate(self, kill_workers=False):
        """Ends the workers; joblib asks for that after an error."""
        self.shutdown(kill_workers=kill_workers)


# ---- The one that is kept ----------------------------------------------------------------

_lock = threading.RLock()
_template = _executor = _key = None


def executor(workers, timeout, env, initializer, initargs):
    """The executor of this process, ready for so many workers."""
    global _executor, _key
    with _lock:
        template = _template_of(env)
        key = template, timeout, initializer, initargs
        old = _executor
        if old is not None and (old._flags.broken or old._flags.shutdown or key != _key
                                or old.queue_size < workers):
            _executor = None
            old.shutdown(wait=True)
        if _executor is None:
            _executor = Executor(_lock, max_workers=workers, context=template, timeout=timeout,
                                 initializer=initializer, initargs=initargs)
            _key = key
        else:
            _executor._resize(workers)
        return _executor


def _template_of(env):
    global _template
    modules = [name for name in PRELOADED if name in sys.modules]
    wanted = env, modules
    if _template is None or not _template[0].is_alive() or _template[1] != wanted:
        old, _template = _template, None
        made = Template(_preload, (modules,), main=False, env=env, name="the template of joblib's "
                        "workers", threads="ignore")
        _template = made, wanted
        if old is not None and _executor is not None:
            _executor.shutdown(wait=True)
            old[0].close()
    return _template[0]


def _preload(modules):
    import importlib

    importlib.import_module("joblib")
    importlib.import_module(_queues.__name__)
    for name in modules:
        importlib.import_module(name)


def _after_fork():
    global _lock, _template, _executor, _key
    _lock = threading.RLock()
    _template = _executor = _key = None


os.register_at_fork(after_in_child=_after_fork)
