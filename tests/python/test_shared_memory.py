# SPDX-License-Identifier: MIT
"""cowshed.multiprocessing.shared_memory: the standard interface, and nothing that is left."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import resource_tracker
from multiprocessing import shared_memory as standard
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing
from cowshed import _cowshed
from cowshed.multiprocessing import _strategy, shared_memory
from cowshed.multiprocessing.managers import SharedMemoryManager
from cowshed.multiprocessing.shared_memory import ShareableList, SharedMemory


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A folder for a broker of the test's own, which ends with the test."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr(_strategy, "_broker", None)
        monkeypatch.setattr(_strategy, "_address", None)
        yield folder
        shared_memory.set_names("broker")
        _strategy._broker = None


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def context(request):
    return multiprocessing.get_context(request.param)


def memfds():
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += "/memfd:cowshed-storage" in os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass
    return found


def program(text, *args):
    return subprocess.Popen([sys.executable, "-c", "import cowshed.multiprocessing.shared_memory\n"
                             "from cowshed.multiprocessing.shared_memory import *\n"
                             "import sys, time\n" + text, *args],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# ---- By handle -----------------------------------------------------------------------------


def write_and_return(block, items, queue):
    block.buf[0] += 1
    items[0] = "child"
    queue.put((block, items, _strategy._broker is None))


def test_blocks_and_lists_travel_by_handle(context):
    block, items = SharedMemory(create=True, size=100), ShareableList(["parent", 3.5, None])
    queue = context.Queue()
    child = context.Process(target=write_and_return, args=(block, items, queue))
    child.start()
    same, list_, no_broker = queue.get()
    child.join()
    assert no_broker and _strategy._broker is None
    assert (block.buf[0], items[0], list_[1]) == (1, "child", 3.5)
    same.buf[0] = 9
    assert block.buf[0] == 9 and same.size == 100 and list(list_) == list(items)
    assert same.name == block.name
    queue.close()
    queue.join_thread()


def test_the_sender_may_be_gone():
    def make(queue):
        block = SharedMemory(create=True, size=1 << 20)
        block.buf[-1] = 7
        queue.put(block)

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=make, args=(queue,))
    child.start()
    block = queue.get()
    child.join()
    assert block.buf[-1] == 7
    queue.close()


def test_arrays_on_a_block_are_shared():
    def write(x):
        x[0] = 5

    block = SharedMemory(create=True, size=8 << 17)
    x = np.ndarray((1 << 17,), "f8", block.buf)
    assert cowshed.is_shared(x)
    child = multiprocessing.get_context("fork").Process(target=write, args=(x,))
    child.start()
    child.join()
    assert x[0] == 5
    w = cowshed.writable(x)
    w[0] = 6
    assert x[0] == 5
    del x
    block.close()
    assert w[0] == 6


class Named(SharedMemory):
    pass


class Odd(SharedMemory):
    def __reduce__(self):
        return str, ("odd",)


def test_subclasses():
    from cowshed._pyobjects import _pickle

    for cls, kind in (Named, Named), (Odd, str):
        data, parcels = _pickle.dumps(cls(create=True, size=10))
        assert type(_pickle.loads(data, [parcel[0] for parcel in parcels])) is kind


# ---- Names -----------------------------------------------------------------------------------


def test_a_name_of_another_program():
    block = SharedMemory(create=True, size=10)
    with program("block = SharedMemory(sys.argv[1]); block.buf[3] = 4; print(block.size)",
                 block.name) as other:
        assert other.communicate()[0] == "10\n"
    assert block.buf[3] == 4
    block.unlink()
    with pytest.raises(FileNotFoundError):
        SharedMemory(block.name)
    with pytest.raises(FileNotFoundError):
        block.unlink()


def test_a_name_is_taken_once():
    first = SharedMemory("name", create=True, size=10)
    with pytest.raises(FileExistsError):
        SharedMemory("/name", create=True, size=10)
    again = SharedMemory("/name")
    again.unlink()
    second = SharedMemory("name", create=True, size=20)
    with pytest.raises(FileNotFoundError):
        again.unlink()
    second.unlink()
    with pytest.raises(FileNotFoundError):
        first.unlink()


def test_without_a_broker_there_is_no_name(runtime):
    with pytest.raises(FileNotFoundError):
        SharedMemory("name")
    block = SharedMemory(create=True, size=10)
    block.unlink()
    with pytest.raises(FileNotFoundError):
        block.unlink()
    repr(block)
    assert not os.path.exists(os.path.join(runtime, "cowshed"))  # none of that starts a broker


def test_a_broker_that_can_not_be_started(monkeypatch):
    monkeypatch.setattr(_strategy, "program", lambda: "/nothing")
    block = SharedMemory(create=True, size=10)
    with pytest.raises(OSError):
        block.name
    block.buf[0] = 1
    with pytest.raises(OSError):
        SharedMemory("name", create=True, size=10)
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["", "a/b", "a\0b", "n" * 64, "\n"])
def test_names_that_none_can_have(name):
    with pytest.raises(ValueError):
        SharedMemory(name, create=True, size=10)


@pytest.mark.parametrize("arguments", [{"create": True, "size": -1}, {"create": True}, {}])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError):
        SharedMemory(**arguments)


def test_what_is_at_the_broker_but_is_not_shared():
    _strategy.broker().put(b"bytes", "copy", flags=_cowshed.EPHEMERAL)
    with pytest.raises(ValueError, match="no shared memory"):
        SharedMemory("copy")


def test_a_closed_block_that_nobody_has_can_t_be_sent():
    block = shared_memory.SharedMemory(create=True, size=100)
    block.close()
    for dumps in pickle.dumps, ForkingPickler.dumps:
        with pytest.raises(ValueError, match=r"is closed, and nobody else has .*before close\(\)"):
            dumps(block)
    block.unlink()


def test_threads_get_one_name():
    block, names = SharedMemory(create=True, size=10), []
    threads = [threading.Thread(target=lambda: names.append(block.name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 8 and len(set(names)) == 1


def test_a_made_up_name_that_is_taken(monkeypatch):
    names = iter(["/a", "/a", "/b"])
    monkeypatch.setattr(standard, "_make_filename", lambda: next(names))
    one, two = (SharedMemory(create=True, size=10) for _ in range(2))
    assert (one.name, two.name) == ("a", "b")


def test_a_plain_pickle_has_the_name():
    block = SharedMemory(create=True, size=10)
    data = pickle.dumps(block)
    same = pickle.loads(data)
    same.buf[0] = 3
    assert block.buf[0] == 3 and len(data) < 200
    block.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)


def test_a_child_unlinks():
    for named in False, True:
        block = SharedMemory(create=True, size=10)
        name = block.name if named else None
        pid = os.fork()
        if pid == 0:
            block.unlink()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        if named:
            with pytest.raises(FileNotFoundError):
                SharedMemory(name)


def test_a_child_has_put_the_name():
    block = SharedMemory(create=True, size=10)
    to_parent, to_child = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(to_parent[1], block.name.encode())
        os.read(to_child[0], 1)
        os._exit(0)
    name = os.read(to_parent[0], 100).decode()
    SharedMemory(name).close()
    block.unlink()
    with pytest.raises(FileNotFoundError):
        SharedMemory(name)
    os.write(to_child[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for fd in *to_parent, *to_child:
        os.close(fd)


def test_unlink_can_be_tried_again(monkeypatch):
    def fails(start=True):
        raise TimeoutError

    block = SharedMemory("name", create=True, size=10)
    with monkeypatch.context() as patch:
        patch.setattr(_strategy, "broker", fails)
        with pytest.raises(TimeoutError):
            block.unlink()
    block.unlink()
    with pytest.raises(FileNotFoundError):
        SharedMemory("name")


# ---- Memory ------------------------------------------------------------------------------------


def test_views_keep_the_memory():
    """(Those of the standard library make close() fail.)"""
    used = memfds()
    block = SharedMemory(create=True, size=10)
    x, part = np.frombuffer(block.buf, "u1"), block.buf[2:4]
    block.close()
    block.close()
    assert block.buf is None and block.size == 10
    x[2] = 5
    assert part[0] == 5 and memfds() == used + 1
    del x
    part.release()
    assert memfds() == used


def test_tensors_keep_the_memory():
    torch = pytest.importorskip("torch")
    block = SharedMemory(create=True, size=8 << 20)
    x = torch.frombuffer(block.buf, dtype=torch.uint8)  # keeps the view alone
    block.close()
    x[5] = 3
    assert x[5] == 3 and x[6] == 0


def test_what_another_program_unlinks_is_freed_here():
    """A worker closes its results, and the receiver unlinks them."""
    block = SharedMemory("name", create=True, size=10)
    used = memfds()
    block.close()
    assert memfds() == used - 1
    with program("block = SharedMemory('name'); block.unlink(); print(block.buf[0])") as other:
        assert other.communicate()[0] == "0\n"
    assert not _strategy.broker().list()


def test_nothing_is_left_by_a_killed_program():
    with program("block = SharedMemory('name', create=True, size=1 << 20); print(block.name,"
                 "flush=True); sys.stdin.read()") as other:
        assert other.stdout.readline() == "name\n"
        block = SharedMemory("name")
        assert [item["name"] for item in _strategy.broker().list()] == ["name"]
        other.kill()
    while _strategy.broker().list():  # it sees the end of the connection
        pass
    with pytest.raises(FileNotFoundError):
        SharedMemory("name")
    block.buf[0] = 1


def test_there_is_no_tracker():
    with program("block = SharedMemory(create=True, size=10); block.name\n"
                 "set_names('standard'); SharedMemory(create=True, size=10).unlink()\n"
                 "from multiprocessing import resource_tracker\n"
                 "print(resource_tracker._resource_tracker._fd)") as other:
        assert other.communicate()[0] == "None\n"


def broker_process():
    """The process that listens at the broker's address."""
    with program("import socket, struct; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                 "s.connect(sys.argv[1])\n"
                 "print(struct.unpack('3i', s.getsockopt(1, 17, 12))[0])",
                 _strategy._address) as other:
        return int(other.communicate()[0])


def test_a_killed_broker_loses_no_block():
    block = SharedMemory("name", create=True, size=10)
    closed = SharedMemory("closed", create=True, size=10)
    closed.close()
    os.kill(broker_process(), signal.SIGKILL)
    again = SharedMemory("name")  # this process puts it again at its next call
    again.buf[0] = 3
    assert block.buf[0] == 3
    with pytest.raises(FileNotFoundError):
        SharedMemory("closed")


# ---- Lists and managers -------------------------------------------------------------------------


def test_lists():
    items = ShareableList([1, "two", b"three", 4.5, True, None])
    same = ShareableList(name=items.shm.name)
    same[1] = "TWO"
    assert list(items) == [1, "TWO", b"three", 4.5, True, None] and items.count(1) == 2
    again = pickle.loads(pickle.dumps(items))
    again[0] = 7
    assert items[0] == 7 and repr(items).startswith("ShareableList([7,")
    with pytest.raises(ValueError, match="exceeds"):
        items[1] = "far too long for its place"
    with pytest.raises(FileNotFoundError):
        ShareableList(name="nothing")


def test_a_manager_keeps_the_names_that_it_gave(context):
    with SharedMemoryManager(ctx=context) as manager:
        block, items = manager.SharedMemory(10), manager.ShareableList(range(5))
        name = block.name
        block.buf[0] = 3
        with open(f"/proc/{manager._process.pid}/maps") as maps:
            assert "/memfd:cowshed-storage" not in maps.read()  # it keeps names, and no memory
        del block
        _strategy._broker = None  # as if this process had ended
        same = SharedMemory(name)
        assert same.buf[0] == 3
        items.shm.unlink()
    with pytest.raises(FileNotFoundError):
        SharedMemory(name)
    assert list(items) == [0, 1, 2, 3, 4]


# ---- The standard library's names ----------------------------------------------------------------


def answer(block, queue):
    queue.put((shared_memory.get_names(), type(block).__name__, block.buf[0]))
    block.close()


def test_standard_names(context):
    shared_memory.set_names("standard")
    assert shared_memory.get_names() == "standard"
    block = SharedMemory(create=True, size=10)
    try:
        block.buf[0] = 3
        assert block.name in os.listdir("/dev/shm") and block.name in repr(block)
        other = standard.SharedMemory(block.name)
        resource_tracker.unregister(other._name, "shared_memory")
        assert other.buf[0] == 3
        other.close()
        queue = context.SimpleQueue()
        child = context.Process(target=answer, args=(block, queue))
        child.start()
        assert queue.get() == ("standard", "SharedMemory", 3)
        child.join()
        queue.close()
        shared_memory.set_names("broker")
        pickle.loads(pickle.dumps(block)).close()
    finally:
        block.close()
        block.unlink()
    assert block.name not in os.listdir("/dev/shm")
    with pytest.raises(FileNotFoundError):
        block.unlink()
    with pytest.raises(ValueError, match="'broker' or 'standard'"):
        shared_memory.set_names("file_system")


def test_the_module_has_what_the_standard_one_has():
    assert set(standard.__all__) <= set(shared_memory.__all__)
    assert shared_memory._USE_POSIX and "_USE_POSIX" in dir(shared_memory)
    assert multiprocessing.shared_memory is shared_memory
    with pytest.raises(AttributeError):
        shared_memory.nothing_of_that_name
    assert set(dir(standard.SharedMemory)) - {"_fd", "_mmap", "_buf", "_size", "_track",
                                              "_prepend_leading_slash"} <= set(dir(SharedMemory))


def test_release_of_what_is_not_there():
    with pytest.raises(FileNotFoundError):
        _strategy.broker().release("name")
