# SPDX-License-Identifier: MIT
"""Processes of all start methods: arguments by handle, the group, the module's names."""

import errno
import multiprocessing as standard
import os
import signal
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker

import leaks
import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing
from cowshed import _cowshed
from cowshed._memory import _family
from cowshed.multiprocessing import _connection

METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(params=METHODS)
def context(request):
    return multiprocessing.get_context(request.param)


def test_everything_that_multiprocessing_has():
    assert set(standard.__all__) <= set(multiprocessing.__all__)
    for name in standard.__all__:
        assert callable(getattr(multiprocessing, name)) or name == "reducer"
    for name in ("pool", "managers", "connection", "queues", "shared_memory", "synchronize"):
        assert getattr(multiprocessing, name).__name__.endswith("multiprocessing." + name)
    with pytest.raises(AttributeError):
        multiprocessing.nothing_of_that_name
    with pytest.raises(ValueError):
        multiprocessing.get_context("thread")
    assert multiprocessing.get_all_start_methods() == standard.get_all_start_methods()


def write(shared, frozen, mine, sender):
    shared[0] = os.getpid()
    mine[:] = 9
    method = multiprocessing.get_start_method()
    sender.send((frozen.flags.writeable, float(frozen[3]), mine, method))


def test_arguments(context):
    shared = cowshed.zeros(10, shared=True)
    frozen = cowshed.freeze(numpy.arange(100000.0))
    mine = cowshed.full(100000, 5.0)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=write, args=(shared, frozen, mine, writer))
    process.start()
    writer.close()
    writeable, three, theirs, method = reader.recv()
    process.join()
    assert process.exitcode == 0
    assert shared[0] == process.pid
    assert not writeable and three == 3
    assert (theirs == 9).all() and (mine == 5).all()
    assert method == context.get_start_method()
    reader.close()


def write_five(x):
    x[0] = 5


def test_a_mapped_array_is_the_only_argument(context, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.zeros(1000))
    x = cowshed.open(tmp_path / "x.npy", "r+")
    process = context.Process(target=write_five, args=(x,))
    process.start()
    process.join()
    assert process.exitcode == 0 and x[0] == 5


def many(shared=True):
    """More arrays than a socket holds handles."""
    return [cowshed.zeros(10, shared=True) for _ in range(12000)] if shared else [
        cowshed.zeros(10000, shared=False) for _ in range(5000)]


def say_last(arrays, sender):
    sender.send((len(arrays), float(arrays[-1][0])))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("shared", [True, False])
def test_more_arguments_than_a_socket_holds(method, shared):
    context = multiprocessing.get_context(method)
    reader, writer = context.Pipe(duplex=False)
    arrays = many(shared)
    arrays[-1][0] = 5
    process = context.Process(target=say_last, args=(arrays, writer))
    process.start()
    if not shared:  # has left
        arrays[-1][0] = -1
    writer.close()
    with reader:
        assert reader.recv() == (len(arrays), 5)
    process.join()
    assert process.exitcode == 0


def test_a_child_that_ends_before_it_has_its_arguments(monkeypatch):
    context = multiprocessing.get_context("spawn")
    monkeypatch.setattr(standard.spawn, "_python_exe", b"/bin/false")
    process = context.Process(target=len, args=(many(),))
    process.start()
    process.join()
    assert process.exitcode == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_that_can_not_be_sent(monkeypatch, method):
    def fail(*args):
        raise OSError(errno.ENOMEM, "no memory")

    def children():
        """Ours, or the server's."""
        pid = forkserver._forkserver._forkserver_pid if method == "forkserver" else os.getpid()
        return {child.split()[0] for child in leaks.children(pid)}

    monkeypatch.setattr(_connection.Connection, "send_rest", fail)
    resource_tracker.ensure_running()
    if method == "forkserver":
        forkserver.ensure_running()
    before = children()
    process = multiprocessing.get_context(method).Process(target=len, args=(many(),))
    with pytest.raises(OSError, match="no memory"):
        process.start()
    assert children() == before


def test_settling_leaves_semaphores_in_use():
    lock = multiprocessing.get_context("spawn").Lock()
    leaks.settle()
    assert resource_tracker._resource_tracker._fd is not None
    del lock  # it unlinks its name, which is still there
    leaks.settle()
    assert resource_tracker._resource_tracker._fd is None


def relay(inbox, outbox, depth, name):
    if depth:
        context = multiprocessing.get_context(name)
        child = context.Process(target=relay, args=(inbox, outbox, depth - 1, name))
        child.start()
        child.join()
        return
    x = inbox.get()
    outbox.put((x, x[1:]))


def test_grandchildren_are_of_the_group(context):
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    args = (inbox, outbox, 2, context.get_start_method())
    child = context.Process(target=relay, args=args)
    child.start()
    x = cowshed.zeros(1 << 16, shared=True)
    inbox.put(x)
    y, z = outbox.get()
    child.join()
    x[1] = 4
    assert y[1] == 4 and z[0] == 4
    inbox.close()
    outbox.close()


class Special(multiprocessing.Process):
    """With a state of its own."""

    def __init__(self, x, sender):
        super().__init__()
        self.x = x
        self.sender = sender

    def __getstate__(self):
        return {**self.__dict__, "extra": 1}

    def run(self):
        self.sender.send((self.x * 2, getattr(self, "extra", 0)))


@pytest.mark.parametrize("method", METHODS)
def test_subclasses(method):
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(method, force=True)
    try:
        reader, writer = multiprocessing.Pipe(duplex=False)
        process = Special(numpy.arange(50000), writer)
        process.start()
        x, extra = reader.recv()
        process.join()
        assert x[7] == 14 and extra == (method != "fork")
        reader.close()
        writer.close()
    finally:
        multiprocessing.set_start_method(before, force=True)


def fail(x):
    raise SystemExit(int(x[0]))


def test_exit_codes(context):
    process = context.Process(target=fail, args=(numpy.full(30000, 7),))
    process.start()
    process.join()
    assert process.exitcode == 7


def locks(lock, value, event, semaphore, condition):
    with lock:
        value.value += 1
    with semaphore, condition:
        condition.notify_all()
    event.set()


@pytest.mark.leaves("descriptors")  # the heap of shared values is kept
def test_synchronization_is_the_standard_librarys(context):
    lock, value, event = context.RLock(), context.Value("i", 1), context.Event()
    semaphore, condition = context.Semaphore(1), context.Condition()
    args = (lock, value, event, semaphore, condition)
    process = context.Process(target=locks, args=args)
    process.start()
    event.wait()
    process.join()
    assert value.value == 2


def modes(sender):
    sender.send((multiprocessing.get_sharing_mode(), _family.known() is not None))
    x = cowshed.zeros(20000)
    sender.send(x)
    x[0] = 1
    sender.send(None)
    signal.pause()


def test_the_mode_is_inherited(context):
    multiprocessing.set_sharing_mode("alias")
    try:
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=modes, args=(writer,))
        process.start()
    finally:
        multiprocessing.set_sharing_mode("clone")
    assert reader.recv() == ("alias", True)
    x = reader.recv()
    assert reader.recv() is None
    assert x[0] == 1 and cowshed.is_shared(x)
    process.terminate()
    process.join()
    reader.close()
    writer.close()


@pytest.mark.parametrize("name, asks", [("EMFILE", 2), ("ENFILE", 2), ("ENOMEM", 2),
                                        ("EINTR", 2), ("ENOENT", 1), ("ENOSYS", 1)])
def test_a_group_is_asked_for_again_unless_there_can_be_none(monkeypatch, name, asks):
    asked = []

    def refuse():
        asked.append(name)
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(_family, "_group", None)
    monkeypatch.setattr(_family, "_denied", False)
    monkeypatch.setattr(_cowshed, "Group", refuse)
    assert _family.group() is None and _family.group() is None
    assert len(asked) == asks


def test_a_group_when_there_are_descriptors_again():
    code = """
import os, resource
import numpy, cowshed
from cowshed._memory import _family
from cowshed.multiprocessing import Pipe
a, b = Pipe()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", 0))
except OSError:
    pass
assert _family.group() is None
a._fresh()
a._channel("_grouped")  # that of a connection is not for ever, either
for fd in taken:
    os.close(fd)
x = numpy.arange(100000.0)
for _ in range(100):
    a.send(x)
    kept = b.recv()
assert (kept == x).all()
assert _family.group() is not None and b.group() is not None
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
