# SPDX-License-Identifier: MIT
"""Templates: processes that are ready, and fork workers that share all of their memory.

    import cowshed.multiprocessing as multiprocessing

    def setup():
        global model
        model = load()

    context = multiprocessing.get_context("template")
    with context.Template(setup) as template:
        worker = template.Process(target=serve, args=(queue,))
        worker.start()

A template is a process that a new interpreter runs. It has one thread of Python, and none of the
caller's. It has imported the program's main module, and run setup().
"""

import os
import signal
import subprocess
import threading
import warnings
import weakref
from multiprocessing import ProcessError, util
from multiprocessing.context import BaseContext
from pickle import loads

from .. import _cowshed
from . import _makes
from ._template_process import Execution, Setup, TemplateProcess, request

__all__ = ["Template", "TemplateContext", "TemplateProcess"]

# Seconds for what setup() registered with atexit. Then the template is killed.
PATIENCE = 10


class _Makes(_makes.Makes, BaseContext):
    """What the context and its templates have in common."""

    _name = "template"

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        """A multiprocessing.pool.Pool whose workers are forks of the template.

        If the template dies, results that are waited for raise ProcessError. As in every
        multiprocessing.Pool, the task of a worker that is killed alone never ends: an Executor
        raises there.
        """
        from ._template_pool import Pool

        return Pool(processes, initializer, initargs, maxtasksperchild, self)

    def Executor(self, max_workers=None, initializer=None, initargs=(), *,
                 max_tasks_per_child=None):
        """A concurrent.futures.ProcessPoolExecutor whose workers are forks of the template.

        The parameters are those of ProcessPoolExecutor. If a worker dies, its futures raise
        BrokenProcessPool.
        """
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(max_workers, self, initializer, initargs,
                                   max_tasks_per_child=max_tasks_per_child)


class TemplateContext(_Makes):
    """The context "template". Its own processes are forks of a template without setup()."""

    Process = TemplateProcess

    def Template(self, setup=None, args=(), kwargs=None, **options):
        """A Template: see there."""
        return Template(setup, args, kwargs, **options)


class Template(_Makes):
    """A process that has run setup(*args, **kwargs), and forks workers. It is also a context.

    setup: a function that can be pickled, or "module:function"; None: nothing. What it leaves in
    global variables is there in each worker. args, kwargs: large arrays in them travel by handle.
    threads: "error" refuses a setup() that leaves threads of Python running, and warns
    (RuntimeWarning) of those of native libraries that no handler ends before a fork; "ignore"
    does neither.
    shim: whether the template runs under the shim, where that is installed: its large arrays and
    those of workers then lie in storages. main: whether it imports the program's main module
    first; without that a script needs no `if __name__ == "__main__"`, but functions of it are not
    found. env: a dict of variables of the environment to set. name: of the process; it is part of
    error messages.

    Returns when setup() has returned. Raises what setup() raised, with its traceback, and
    ProcessError if the process ended in setup().

    Process(), Pool() and Executor() make workers, as do other users of a context. A worker lives
    no longer than its template, and the template no longer than the caller, however they end.
    After the death of a template its workers have the exit code -SIGKILL, and new ones raise
    ProcessError. SIGINT does not end a template; workers get it as the caller does. Threads of
    OpenMP that setup() started are ended before the first fork.

    Any thread may call any method. Only the process that made it can use it: it can't be sent,
    and a forked child has to make one of its own.
    """

    def __init__(self, setup=None, args=(), kwargs=None, *, threads="error", shim=True, main=True,
                 env=None, name=None):
        if setup is not None and not callable(setup) and not isinstance(setup, str):
            raise TypeError("setup must be a function, 'module:function' or None, not "
                            f"{type(setup).__name__}")
        if threads not in ("error", "ignore"):
            raise ValueError(f"threads must be 'error' or 'ignore', not {threads!r}")
        self._owner = os.getpid()
        self.name = name or f"Template-{_cowshed.next_number()}"
        self._main = main
        self._execution = Execution(Setup(setup, args, kwargs or {}, threads), self.name, shim,
                                    main, env)
        # Later than the end of processes that are not daemons.
        self._finalizer = util.Finalize(self, _end, (self._execution,), exitpriority=-100)
        _executions.add(self._execution)
        try:
            self._check_answer()
        except BaseException:
            self._execution.kill()
            self._finalizer()
            raise

    def _check_answer(self):
        try:
            failure, words = self._execution.answer()
        except EOFError:
            raise ProcessError(f"{self.name} ended before its setup() returned: {self._ending()}. "
                               "What it printed is on stderr.") from None
        if words is not None:
            warnings.warn(f"setup() of {self.name} {words}", RuntimeWarning, stacklevel=4)
        if failure is None:
            return
        text, pickled = failure
        if pickled is None:
            raise ProcessError(f"setup() of {self.name} failed:\n{text}")
        from multiprocessing.pool import RemoteTraceback

        error = loads(pickled)
        error.__cause__ = RemoteTraceback(f"\n\"\"\"\n{text}\"\"\"")
        raise error

    def Process(self, *args, **kwargs):
        """A multiprocessing.Process that this template forks; start() takes milliseconds.

        A subclass of Process: derive it from `get_context("template").Process`, and pass
        `template=`.
        """
        return TemplateProcess(*args, template=self, **kwargs)

    def reset(self, worker):
        """Puts a worker back to the template's state: a new fork takes its place.

        worker: a started Process of this template; it may have ended. It is killed (SIGKILL). What
        it wrote to its memory is gone; what it wrote to files, queues and shared memory is not.
        The new process runs the same function. `worker` stays the handle: its name and arguments
        are as they were, its pid and its sentinel are new, and its exit code is None again. The
        arguments are sent again, as they are now: connections among them must still be open.
        A thread that waits for the old process returns.

        ValueError: it was not started, or another template's. ProcessError: the template died.
        """
        if getattr(worker, "_template", None) is not self:
            raise ValueError(f"{worker!r} is not a process of {self.name}")
        self._check_alive()
        worker._restart()

    def is_alive(self):
        """Whether it can fork workers."""
        return self._owner == os.getpid() and self._finalizer.still_active() and \
            self._execution.program.poll() is None

    @property
    def pid(self):
        """The pid of the template's process."""
        return self._execution.program.pid

    def close(self):
        """Ends the template. Workers that still run are killed: join them before."""
        if self._owner == os.getpid():
            self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.close()

    def __repr__(self):
        state = "alive" if self.is_alive() else "ended"
        return f"<Template {self.name!r} pid={self.pid} {state}>"

    def __reduce__(self):
        raise TypeError("a Template can't be sent to another process: make one there")

    # ---- For its processes ---------------------------------------------------------------

    def _request(self, fds):
        """Asks for a fork: see _template_process.request()."""
        self._check_alive()
        try:
            return request(self._execution.control, fds)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None

    def _check_alive(self):
        if self._owner != os.getpid():
            raise ProcessError(f"{self.name} belongs to the process {self._owner}, which made it. "
                               f"Make a Template in the process {os.getpid()}.")
        if not self._finalizer.still_active():
            raise ValueError(f"{self.name} is closed")
        if self._execution.program.poll() is not None:
            raise self._died()

    def _died(self):
        return ProcessError(f"{self.name} has ended: {self._ending()}. Its workers were killed. "
                            "Make a new Template.")

    def _ending(self):
        try:
            code = self._execution.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"


_executions = weakref.WeakSet()
_default = None
_lock = threading.Lock()


def default():
    """The template of the context itself, made at its first use and when it has died."""
    global _default
    with _lock:
        if _default is None or not _default.is_alive():
            _default = Template()
        return _default


def _end(execution):
    execution.close()
    try:
        execution.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        execution.kill()
        execution.wait()


def _after_fork():
    global _default, _lock
    _lock = threading.Lock()
    _default = None
    for execution in list(_executions):
        execution.forget()
    _executions.clear()


os.register_at_fork(after_in_child=_after_fork)

context = TemplateContext()
