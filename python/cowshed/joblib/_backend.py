# SPDX-License-Identifier: MIT
"""The backend: joblib's LokyBackend, with an executor of this package.

The executor is kept for later calls, with its template, as loky's is. It is made anew if it is
broken, because a worker was killed, and for another number of workers. The template is kept unless
other variables of the environment are wanted, or the program has imported more modules.
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
        """As Executor.submit(). If another thread's call has replaced the executor meanwhile, the
        new one takes the task."""
        with self._submit_resize_lock:
            replaced = self._flags.shutdown and self._flags.broken is None and _executor is not None
            return ProcessPoolExecutor.submit(_executor if replaced else self, fn, *args, **kwargs)

    def terminate(self, kill_workers=False):
        """Ends the workers; joblib asks for that after an error."""
        self.shutdown(kill_workers=kill_workers)


# ---- The one that is kept ----------------------------------------------------------------

_lock = threading.RLock()
_template = _executor = _key = None


def executor(workers, timeout, env, initializer, initargs):
    """The executor of this process, with so many workers at most."""
    global _executor, _key
    old = None, None
    with _lock:
        template, old_template = _template_of(env)
        key = template, workers, timeout, initializer, initargs
        if _executor is None or _executor._flags.broken or _executor._flags.shutdown \
                or key != _key:
            old = _executor, old_template
            _executor = Executor(_lock, max_workers=workers, context=template, timeout=timeout,
                                 initializer=initializer, initargs=initargs)
            _key = key
        found = _executor
    # Without the lock: the tasks of another thread's call may submit more tasks.
    if old[0] is not None:
        old[0].shutdown(wait=True)
    if old[1] is not None:
        old[1].close()
    return found


def _template_of(env):
    """(template, the one that it replaces or None)."""
    global _template
    modules = [name for name in PRELOADED if name in sys.modules]
    wanted = env, modules
    if _template is not None and _template[0].is_alive() and _template[1] == wanted:
        return _template[0], None
    old = _template
    made = Template(_preload, (modules,), main=False, env=env, threads="ignore",
                    name="the template of joblib's workers")
    _template = made, wanted
    return made, old[0] if old is not None else None


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
