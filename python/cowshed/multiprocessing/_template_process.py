# SPDX-License-Identifier: MIT
"""Processes that a template forks, and how the template's own process is started.

Both get what they run as a pickle, through a pipe, as a process of the standard library's fork
server does. Large arrays in it travel by handle (_process.py).
"""

import errno
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing import (
    connection,
    context,
    popen_forkserver,
    popen_spawn_posix,
    process,
    reduction,
    resource_tracker,
    spawn,
    util,
)

from . import _process, _strategy
from ._template_server import MAX_FDS, NUMBER


def _pickled(popen, x, name, main):
    """What the new process reads: how it gets ready, and an object. main: whether it imports the
    program's main module."""
    preparation = spawn.get_preparation_data(name)
    if not main:
        for key in "init_main_from_name", "init_main_from_path":
            preparation.pop(key, None)
    file = io.BytesIO()
    context.set_spawning_popen(popen)
    try:
        reduction.dump(preparation, file)
        reduction.dump(x, file)
    finally:
        context.set_spawning_popen(None)
    return file.getvalue()


def _write(fd, data):
    """Writes all of it, and closes the descriptor. A reader that has ended already is no error:
    its exit code tells."""
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except BrokenPipeError:
        pass


# ---- Workers -----------------------------------------------------------------------------


class _Fork(popen_forkserver.Popen):
    """Asks a template for a fork."""

    method = "template"

    def __init__(self, process_obj):
        self._template = process_obj.template
        self._template._check_alive()
        self._polling = threading.Lock()
        super().__init__(process_obj)

    def _launch(self, process_obj):
        data = _pickled(self, process_obj, process_obj._name, self._template._main)
        self.sentinel, writer = self._template._request(self._fds)
        self.finalizer = util.Finalize(self, util.close_fds, (self.sentinel,))
        self.pid = 0
        try:
            _write(writer, data)
            self._read_pid()
        except BaseException:  # mostly raised by a signal handler
            if self.pid == 0 and connection.wait([self.sentinel], 1):
                self._read_pid()
            if self.pid > 0:
                self.kill()
            raise

    def _read_pid(self):
        # A process that setup() left may have the template's end of the socket. Then a request to
        # a template that dies is not refused.
        while not connection.wait([self.sentinel], 1):
            self._template._check_alive()
        number = os.read(self.sentinel, NUMBER.size)
        if not number:
            raise self._template._died()
        self.pid = NUMBER.unpack(number)[0]
        if self.pid == -errno.ETIMEDOUT:
            raise TimeoutError(
                errno.ETIMEDOUT, "two forks of the template did not begin to run: a handler for "
                "forks waits for a lock that is not free. Import the library that has it in the "
                "workers instead of in setup()")
        if self.pid < 0:
            raise OSError(-self.pid, f"the template can't fork: {os.strerror(-self.pid)}")
        os.set_blocking(self.sentinel, False)

    def poll(self, flag=os.WNOHANG):
        """The exit code, or None. Without the flag it waits.

        -SIGKILL: the template died before it told one, and the kernel killed the worker.
        """
        if self.returncode is None and flag != os.WNOHANG:
            connection.wait([self.sentinel])
        with self._polling:  # only one thread can read the code
            if self.returncode is None:
                try:
                    number = os.read(self.sentinel, NUMBER.size)
                except BlockingIOError:
                    return None
                self.returncode = NUMBER.unpack(number)[0] if number else -signal.SIGKILL
        return self.returncode

    def _send_signal(self, sig):
        if self.poll() is None:  # else the pid may be another process's
            super()._send_signal(sig)


class ForkPopen(_process._Ends, _Fork):
    """Asks a template for a fork, and sends it a Process by handle."""


class TemplateProcess(_process.Arguments, process.BaseProcess):
    """A process that a template forks: see multiprocessing.Process.

    template: the Template; None is the one of the context, which has only imported the program's
    main module. The process has all memory of the template, and shares it until one writes it.
    It ends when the template ends.
    """

    _start_method = None  # the default of the program, which the template has

    def __init__(self, *args, template=None, **kwargs):
        super().__init__(*args, **kwargs)
        self._template = template

    @property
    def template(self):
        """The Template that forks it."""
        if self._template is None:
            self._template = _process.default_template()
        return self._template

    @staticmethod
    def _Popen(process_obj):
        return ForkPopen(process_obj)

    def start(self):
        """Forks the worker, and returns when it exists. Any thread may call it."""
        kept = getattr(self, "_target", None), getattr(self, "_args", ()), \
            getattr(self, "_kwargs", {})
        super().start()
        self._kept = kept

    def __getstate__(self):
        left = "_template", "_kept", "_popen", "_sentinel"
        return {name: x for name, x in self.__dict__.items() if name not in left} | \
            {"_popen": None, "_template": None}

    def _restart(self):
        """Kills the process, and starts it again. After an exception it is one that has ended."""
        self._check_closed()
        old = self._popen
        if old is None:
            raise ValueError(f"{self!r} was not started: call start()")
        old.kill()
        old.wait()
        self._target, self._args, self._kwargs = self._kept
        self._popen = None
        try:
            self.start()
        finally:
            if self._popen is None:
                self._popen = old
                del self._target, self._args, self._kwargs
            else:
                old.close()


# ---- The template's own process ----------------------------------------------------------


class Setup(_process.Arguments):
    """What a template runs first. It is pickled by handle, as a Process is."""

    def __init__(self, function, args, kwargs, threads):
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.threads = threads

    def run(self):
        function = self.function
        if isinstance(function, str):
            function = pickle.loads(pickle.dumps(_Named(function)))
        if function is not None:
            function(*self.args, **self.kwargs)


class _Named:
    """Unpickled, it is what a text as "module:name.name" names."""

    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        from pkgutil import resolve_name

        return resolve_name, (self.text,)


class _Execute:
    """Starts the process of a template. `control`, `alive` and `reply` are the caller's ends of
    its control socket, of the pipe that tells its workers that the caller lives, and of the pipe
    in which it says what came of setup()."""

    DupFd = popen_spawn_posix._DupFd

    def __init__(self, setup, name, shim, main, env):
        self._fds = []
        self._name = name
        self._shim = shim
        self._main = main
        self._env = env
        self.program = self.control = None
        self.alive = self.reply = -1
        util._flush_std_streams()
        try:
            self._launch(setup)
        except BaseException:
            self.kill()
            self.wait()
            self.close()
            raise

    def duplicate_for_child(self, fd):
        self._fds.append(fd)
        return fd

    def _launch(self, setup):
        data = _pickled(self, setup, self._name, self._main)
        tracker = resource_tracker.getfd()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [theirs.detach()]
        writer = -1
        try:
            reader, self.alive = os.pipe()
            given.append(reader)
            reader, writer = os.pipe()
            given.append(reader)
            self.reply, theirs = os.pipe()
            given.append(theirs)
            self.program = subprocess.Popen(
                self._command([*given, tracker]), stdin=subprocess.DEVNULL,
                pass_fds=[*given, tracker, *self._fds],
                env={**os.environ, **self._env} if self._env else None)
        except BaseException:
            util.close_fds(*given, *([writer] if writer >= 0 else []))
            raise
        util.close_fds(*given)
        _write(writer, data)

    def _command(self, fds):
        preload = False
        prefix = []
        program = _strategy.program() if self._shim else None
        if program and "libcowshed-preload" not in os.environ.get("LD_PRELOAD", ""):
            preload = os.environ.get("LD_PRELOAD")
            prefix = [program, "run", "--"]
        path = [p if p else os.getcwd() for p in sys.path]
        code = (f"import sys; sys.path[:] = {path!r}; "
                "from cowshed.multiprocessing._template_server import main; "
                f"main({', '.join(map(str, fds))}, {os.getpid()}, {preload!r})")
        executable = os.fsdecode(spawn.get_executable())
        return [*prefix, executable, *util._args_from_interpreter_flags(), "-c", code]

    def answer(self):
        """What the process said of setup(); EOFError: it ended before it could say that."""
        message = b""
        try:
            while len(message) < NUMBER.size or \
                    len(message) < NUMBER.size + NUMBER.unpack_from(message)[0]:
                # A process that setup() started may have the pipe, too, and live longer.
                while not connection.wait([self.reply], 0.5):
                    if self.program.poll() is not None and not connection.wait([self.reply], 0):
                        raise EOFError
                part = os.read(self.reply, 1 << 16)
                if not part:
                    raise EOFError
                message += part
        finally:
            os.close(self.reply)
            self.reply = -1
        return pickle.loads(message[NUMBER.size :])

    def kill(self):
        if self.program is not None:
            self.program.kill()

    def wait(self, timeout=None):
        """The exit code; subprocess.TimeoutExpired: there is none yet."""
        return self.program.wait(timeout) if self.program is not None else None

    def close(self):
        """Closes the caller's ends. The process then kills its workers, and ends."""
        if self.control is not None:
            self.control.close()
        for name in "alive", "reply":
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def forget(self):
        """In a child of the caller: closes them, too. The process is not this one's."""
        if self.program is not None:
            self.program.returncode = self.program.returncode or 0
        self.close()


class Execution(_process._Ends, _Execute):
    """Starts the process of a template, which gets setup() by handle."""


def request(control, fds):
    """Sends a request with descriptors; returns (status, data), the caller's ends of the pipes."""
    if len(fds) + 2 > MAX_FDS:
        raise ValueError(f"a process of a template can inherit {MAX_FDS - 2} descriptors: this one "
                         f"has {len(fds)}, for connections, locks and queues in its arguments")
    ours, status = os.pipe()
    try:
        data, writer = os.pipe()
    except BaseException:
        util.close_fds(ours, status)
        raise
    try:
        given = [data, status, *fds]
        socket.send_fds(control, [NUMBER.pack(len(given))], given)
    except BaseException:
        util.close_fds(ours, writer)
        raise
    finally:
        util.close_fds(data, status)
    return ours, writer
