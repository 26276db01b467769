# SPDX-License-Identifier: MIT
"""The process of a template: it runs setup() once, and then forks a worker for each request.

templates.py starts it by executing a new interpreter, so it has one thread and nothing of the
caller. It reads setup() from a pipe, runs it, and answers on another pipe. From then on it waits
for three things:

    a request       A packet on the control socket, with descriptors: the worker's pipe of data,
                    the pipe of its status, and those that the worker inherits. The process gives
                    it to a worker, and writes the pid to the status, or a negative errno.
    a dead worker   Its exit code goes to its status. Then it is reaped, so a pid of which the
                    caller knows no exit code is not used again.
    the end         The control socket has no other end: the caller closed the template, or died.
                    The workers are killed.

A fork of a process with PyTorch takes milliseconds. So one worker is forked ahead, the *spare*: it
waits for a request, on a socket of its own.

The kernel kills a worker if this process dies (PR_SET_PDEATHSIG). So no worker outlives the
template, and the template does not outlive the caller, however they end.
"""

import ctypes
import errno
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from multiprocessing import forkserver, process, reduction, resource_tracker, spawn, util

NUMBER = struct.Struct("q")
MAX_FDS = 250  # the kernel passes at most 253 with a packet
_PR_SET_PDEATHSIG = 1
_PAUSE_HARD = 2  # of OpenMP: ends the threads
_LOOKS = 20  # at the threads that are left, each 0.01 s after the last
_SLICES = 100  # of 0.1 s, in which a fork has to begin to run; else it hangs
_OF_LIBC = 3 << 31  # signals 32 and 33, which no thread of libc can block


def main(control, alive, data, reply, tracker, caller, preload):
    """Runs the template until its caller is gone.

    control: a socket. alive: a pipe that ends with the caller. data: has setup(). reply: takes
    what came of it. tracker: of the resource tracker. caller: its pid. preload: LD_PRELOAD of the
    caller; False: it stays as it is.
    """
    # A terminal sends SIGINT to this process, too. The caller decides what ends.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The thread that started this process waits for what setup() does. If it ends, so does this.
    _die_with_parent(caller)
    for fd in control, alive, data, reply:
        os.set_inheritable(fd, False)  # programs that setup() starts shall not have them
    resource_tracker._resource_tracker._fd = tracker
    if preload is not False:
        # Programs that workers start are not under the shim, as those of the caller are not.
        os.environ.pop("LD_PRELOAD", None)
        if preload is not None:
            os.environ["LD_PRELOAD"] = preload
    pid = os.getpid()
    failure, words = _set_up(data)
    if os.getpid() != pid:  # setup() forked, and the child returned from it
        os._exit(1)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    util._flush_std_streams()  # else each worker would print it once more
    if failure is None:
        gc.collect()
        gc.freeze()  # a collection in a worker does not write to these objects
        # From here on the thread may end. Another one may be using the template.
        _prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
    with open(reply, "wb") as file:
        message = pickle.dumps((failure, words))
        file.write(NUMBER.pack(len(message)) + message)
    if failure is None:
        _Server(socket.socket(fileno=control), alive, interrupt).serve()


_prctl = ctypes.CDLL(None).prctl


def _die_with_parent(pid):
    """Lets the kernel kill this process when the thread that forked it ends. pid: its process."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != pid:  # it has ended already
        os._exit(1)


def _set_up(data):
    """Reads and runs setup(). Returns (failure, words of a warning or None). The failure is None,
    or (text, pickled exception or None)."""
    words = None
    try:
        with open(data, "rb") as file:
            process.current_process()._inheriting = True
            try:
                spawn.prepare(pickle.load(file))
                setup = pickle.load(file)
            finally:
                del process.current_process()._inheriting
        pid = os.getpid()
        setup.run()
        _check_threads(setup.threads)
        if os.getpid() == pid:
            _end_openmp()
            _try_fork()
            words = _native_threads() if setup.threads != "ignore" else None
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            taken = bytes(reduction.ForkingPickler.dumps(error))
            pickle.loads(taken)
        except Exception:
            taken = None
        return (text, taken if isinstance(error, Exception) else None), None
    return None, words


def _check_threads(threads):
    """RuntimeError: setup() left threads, which a fork does not copy."""
    names = [repr(t.name) for t in threading.enumerate() if t is not threading.main_thread()]
    if names and threads != "ignore":
        raise RuntimeError(
            f"setup() left {len(names)} threads running: {', '.join(names)}. Threads do not "
            "survive a fork: a worker has none of them, and a lock that one of them holds stays "
            "locked there. End them in setup(), or pass threads='ignore' if the workers do "
            "without them.")


def _end_openmp():
    """Ends the threads of OpenMP that setup() used: a forked worker would wait for them for ever.

    The runtime starts new ones when it needs them.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(None, 5)[5].rstrip("\n") for line in maps
                     if any(f"/{name}" in line for name in ("libgomp", "libiomp", "libomp"))}
    except OSError:
        return
    for path in paths:
        try:
            ctypes.CDLL(path).omp_pause_resource_all(_PAUSE_HARD)
        except (OSError, AttributeError):
            pass  # not loaded any more, or older than OpenMP 5.0


def _try_fork():
    """RuntimeError: a fork hangs. Before a fork, libraries with handlers for it end their threads.
    """
    reader, writer = os.pipe()
    try:
        pid = _fork()
        if pid == 0:
            os._exit(0)
        os.close(writer)
        hangs = not _answers(reader)
    finally:
        os.close(reader)
    if hangs:
        os.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # setup() ignores SIGCHLD
    if hangs:
        raise RuntimeError(
            f"a fork of the template did not begin to run in {_SLICES / 10:g} s. What setup() "
            "imported has a handler for forks that waits, mostly for a lock of a thread that a "
            "fork does not copy. Import it in the workers instead.")


def _fork():
    # One thread of Python forks. Newer Pythons warn of those of native libraries, too.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _answers(fd):
    """Whether a descriptor becomes readable in time. If all processes stand still meanwhile, it
    costs one slice."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(poll.poll(100) for _ in range(_SLICES))


def _native_threads():
    """Words for the threads that native libraries left. None: there are none."""
    for _ in range(_LOOKS):  # a thread that was joined is listed for a moment longer
        names = _names_of_native_threads()
        if not names:
            return None
        time.sleep(0.01)
    return (f"left threads of native libraries running: {', '.join(names)}. "
            "Threads do not survive a fork: a lock that one of them holds stays locked in every "
            "worker, and a worker that asks for it hangs. End them in setup(), import that library "
            "in the workers instead, or pass threads='ignore' if the workers do without it.")


def _names_of_native_threads():
    known = {t.native_id for t in threading.enumerate()}
    names = []
    for thread in os.listdir("/proc/self/task") if os.path.exists("/proc/self/task") else ():
        try:
            with open(f"/proc/self/task/{thread}/status", "rb") as file:
                lines = file.read().decode(errors="replace").split("\n")
            status = {name: value for name, _, value in (line.partition(":") for line in lines)}
        except OSError:
            continue  # it has ended
        # The engine's helper is no thread of libc, and is not in the way of a fork.
        if int(thread) not in known and int(status["SigBlk"], 16) & _OF_LIBC != _OF_LIBC:
            names.append(repr(status["Name"].strip()))
    return sorted(names)


class _Server:
    """The loop of the process. interrupt: what SIGINT does in workers."""

    def __init__(self, control, alive, interrupt):
        self.control = control
        self.alive = alive
        self.interrupt = interrupt
        self.workers = {}  # pid -> where its exit code is written
        self.spare = None  # the pid and the socket of the worker that waits
        self.pending = []  # descriptors of the request that is being answered
        self.pid = os.getpid()
        self.caller = _pidfd(os.getppid())

    def serve(self):
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        self.child = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        # The mask is the caller's, which may block this signal. Workers get it back.
        self.mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        poll = select.poll()
        for fd in self.control.fileno(), self.woken, self.caller:
            if fd is not None:
                poll.register(fd, select.POLLIN)
        try:
            while True:
                if self.spare is None:
                    self._fork_spare()
                ready = {fd for fd, _ in poll.poll()}
                if self.woken in ready:
                    self._reap()
                if self.caller in ready or \
                        self.control.fileno() in ready and not self._answer():
                    break
        finally:
            self._end()

    def _end(self):
        """Kills all workers."""
        if self.spare is not None:
            self.workers[self.spare[0]] = self.spare[1].detach()
        for pid in self.workers:
            os.kill(pid, signal.SIGKILL)
        for pid, status in self.workers.items():
            os.waitpid(pid, 0)
            _tell(status, -signal.SIGKILL)
            os.close(status)
        self.workers.clear()

    def _reap(self):
        """Tells the exit codes of workers that ended. Children of setup() are left to it."""
        os.read(self.woken, 65536)
        for pid in list(self.workers):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            status = self.workers.pop(pid)
            exited = ended.si_code == os.CLD_EXITED
            _tell(status, ended.si_status if exited else -ended.si_status)
            os.waitpid(pid, 0)
            os.close(status)
        if self.spare is not None and os.waitpid(self.spare[0], os.WNOHANG)[0]:
            self._forget_spare()

    def _answer(self):
        """Answers a request. Returns whether there may be more."""
        try:
            packet, fds = _receive(self.control)
        except ConnectionResetError:
            return False
        if not packet:
            return False
        count = NUMBER.unpack(packet)[0]
        if len(fds) != count:  # no more descriptors for this process
            answer = -errno.EMFILE
        else:
            self.pending = fds  # a spare that is forked now has them, too
            answer = self._give(fds)
            self.pending = []
        if len(fds) > 1:
            _tell(fds[1], answer)
            if answer > 0:
                self.workers[answer] = fds.pop(1)
        _close(fds)
        return True

    def _give(self, fds):
        """Gives a request to the spare worker. Returns its pid, or a negative errno.

        A spare may have been stopped, or hang in a handler for forks: it is replaced once.
        """
        hung = 0
        while True:
            hangs = False
            if self.spare is None and (error := self._fork_spare()):
                return -error
            pid, ours = self.spare
            try:
                socket.send_fds(ours, [NUMBER.pack(len(fds))], fds)
                hangs = not _answers(ours.fileno())
                if hangs:
                    os.kill(pid, signal.SIGKILL)
                taken = ours.recv(1)
            except (BrokenPipeError, ConnectionResetError):
                taken = b""
            except OSError as error:
                return -error.errno
            self._forget_spare()
            if taken:
                return pid
            os.waitpid(pid, 0)  # it was killed
            if hangs and (hung := hung + 1) == 2:
                return -errno.ETIMEDOUT

    def _forget_spare(self):
        self.spare[1].close()
        self.spare = None

    def _fork_spare(self):
        """Forks a worker that waits for a request. Returns an errno, or 0."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                pid = _fork()
                if pid == 0:
                    ours.close()
                    self._work(theirs)
                self.spare = pid, socket.socket(fileno=ours.detach())
        except OSError as error:
            return error.errno
        return 0

    def _work(self, requests):
        """In a worker: runs the Process object that the caller sends. Never returns."""
        code = 1
        try:
            _die_with_parent(self.pid)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, self.child)
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            self.control.close()
            _close([self.woken, self.wake, *self.workers.values(), *self.pending])
            if self.caller is not None:
                os.close(self.caller)
            packet, fds = _receive(requests)
            if packet:
                requests.send(packet[:1])
            requests.close()
            if packet and len(fds) == NUMBER.unpack(packet)[0]:
                data, status, *forkserver._forkserver._inherited_fds = fds
                os.close(status)
                signal.signal(signal.SIGINT, self.interrupt)
                code = spawn._main(data, self.alive)
        except EOFError:
            pass  # the caller gave up, or ended
        except BaseException:
            sys.excepthook(*sys.exc_info())
            util._flush_std_streams()
        finally:
            os._exit(code)


def _receive(control):
    """(packet, descriptors) of a request."""
    packet, ancillary, _, _ = control.recvmsg(
        NUMBER.size, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    fds = []
    for level, kind, found in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found = found[: len(found) - len(found) % 4]
            fds.extend(struct.unpack(f"{len(found) // 4}i", found))
    return packet, fds


def _tell(status, number):
    try:
        os.write(status, NUMBER.pack(number))
    except BrokenPipeError:
        pass  # the caller does not want to know any more


def _close(fds):
    for fd in fds:
        os.close(fd)


def _pidfd(pid):
    """A descriptor that tells when a process ends; None: the kernel has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
