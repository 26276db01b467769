# SPDX-License-Identifier: MIT
"""Threads and handlers of signals: everything at once, and a program that ends meanwhile."""

import bisect
import ctypes
import socket
import subprocess
import sys
import threading
import weakref

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed import _cowshed  # noqa: E402

LARGE = 1 << 20


def together(functions):
    """Runs each in a thread, all from one moment on; the first error is raised."""
    errors, gate = [], threading.Barrier(len(functions))

    def run(function):
        try:
            gate.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# ---- Handlers of signals, and finalizers, come in the middle of any call -----------------------


@pytest.fixture
def entering(monkeypatch):
    """calls(x): the list of addresses is made again, and x called in the middle of that."""
    from cowshed._memory import _regions

    def calls(x):
        def interrupted(addresses):
            result = sorted(addresses)
            monkeypatch.delattr(_regions, "sorted")
            x()
            return result

        monkeypatch.setattr(_regions, "sorted", interrupted, raising=False)
        for start in range(1000 + 2 * len(_regions._by_address)):
            bisect.insort(_regions._starts, start)  # of storages that are gone

        assert cowshed.zeros(1000) is not None  # below a page it would be no storage
        assert not hasattr(_regions, "sorted") and 5 not in _regions._starts

    return calls


@pytest.mark.limit(10)
def test_a_handler_enters_storages_while_they_are_entered(entering):
    many = []
    entering(lambda: many.extend(cowshed.array(np.ones(100), shared=True) for _ in range(2000)))
    for x in many:
        assert cowshed.is_shared(memoryview(x)[50:])
        y = np.frombuffer((ctypes.c_char * 8).from_address(x.ctypes.data + 400))
        assert cowshed.storage_of(y) is cowshed.storage_of(x)


@pytest.mark.limit(10)
def test_a_handler_needs_the_group_while_it_is_made(monkeypatch):
    from types import SimpleNamespace

    from cowshed._memory import _family

    inner = []

    def interrupted(*args):
        monkeypatch.setattr(_family, "_cowshed", _cowshed)
        inner.append(_family.group())
        return _cowshed.Group()

    assert _family.group() is not None or pytest.skip("no groups here")
    for make in _family.group, lambda: _family.join(-1) and _family.group():
        with monkeypatch.context() as patch:
            patch.setattr(_family, "_group", None)
            monkeypatch.setattr(_family, "_cowshed", SimpleNamespace(Group=interrupted))
            assert make() is inner[-1]


@pytest.mark.limit(10)
def test_a_handler_shares_while_something_is_shared(monkeypatch):
    torch = pytest.importorskip("torch")
    import cowshed.torch
    from cowshed.torch import _storages

    copy, seen = _storages.copy_bytes, []

    def interrupted(target, source):
        copy(target, source)
        monkeypatch.setattr(_storages, "copy_bytes", copy)
        for x in other, same:
            seen.append(cowshed.storage_of(cowshed.share(x)))
            x[0] = 5  # by somebody to whom the handler sent it

    other, same = torch.zeros(1000), torch.zeros(1000)
    monkeypatch.setattr(_storages, "copy_bytes", interrupted)
    shared = cowshed.share(same)
    if not _storages.CAN_SWAP:
        pytest.skip("this PyTorch moves tensors one by one")
    assert shared is same and same[0] == 5 and same[1] == 0
    assert [cowshed.storage_of(x) for x in (other, same)] == seen


@pytest.mark.limit(10)
def test_a_handler_saves_while_a_saving_begins(tmp_path, monkeypatch):
    from cowshed._states import _saving

    inner = []

    class Interrupting(list):
        def append(self, saving):
            super().append(saving)
            if not inner:
                inner.append(None)
                inner[0] = cowshed.checkpoint({"x": np.ones(3)}, str(tmp_path / "b.npz"))

    monkeypatch.setattr(_saving, "_running", Interrupting())
    cowshed.checkpoint({"x": np.ones(3)}, str(tmp_path / "a.npz")).wait()
    inner[0].wait()


# ---- Threads ---------------------------------------------------------------------------------


def test_clones_while_others_write():
    """What was written before the call is in it, and nothing of what is written after it."""
    x = cowshed.zeros((LARGE,), "i8")
    stop = threading.Event()

    def write():
        value = 0
        while not stop.is_set():
            value += 1
            for at in range(0, LARGE, LARGE // 16):
                x[at : at + LARGE // 16] = value

    def clone():
        try:
            for _ in range(30):
                low = x[-1]  # is written last
                y = cowshed.clone(x)
                high = x[0]
                now = y.copy()
                assert low <= now.min() and now.max() <= high
                y[:] = -1
                assert (y == -1).all()
                assert x[0] >= 0
        finally:
            stop.set()

    together([write, clone])


def test_all_calls_from_all_threads(tmp_path):
    path = str(tmp_path / "x.npy")
    np.save(path, np.arange(LARGE // 4))
    common = cowshed.array(np.arange(LARGE // 4))

    def work(number):
        def run():
            for i in range(15):
                x = cowshed.clone(common)
                assert (x == common).all()
                x[:] = number
                y = cowshed.freeze(x)
                z = cowshed.share(x)
                x[0] = -1
                assert y[0] == number and z[0] == number
                assert cowshed.open(path)[i] == i
                snapshot = cowshed.snapshot([x, y, z, common])
                assert snapshot.state[0][0] == -1 and snapshot.state[3][7] == 7
                assert cowshed.storage_of(common).nbytes == common.nbytes
                cowshed.trim()
                cowshed.stats()
        return run

    together([work(i) for i in range(6)])


def test_storages_are_entered_while_others_enter(monkeypatch):
    """Here others enter one at every line of Python of it."""
    from cowshed._memory import _regions

    class Storage:
        def __init__(self, address):
            self.address = address
            kept.append(self)
            known[address] = self

    kept, known = [], weakref.WeakValueDictionary()
    monkeypatch.setattr(_regions, "_by_address", known)
    monkeypatch.setattr(_regions, "_starts", list(range(1000)))  # enough to tidy up
    mine = [Storage(address) for address in range(10)]
    known.clear()

    def trace(frame, event, arg):
        Storage(1000 + len(kept))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for storage in mine:
            _regions.enter(storage)
    finally:
        sys.settrace(before)
    assert len(_regions._starts) < 1000 and len(kept) > 10
    assert all(storage.address in _regions._starts for storage in mine)


def test_one_storage_object_for_all_threads():
    x = cowshed.zeros((LARGE,))
    found = []
    together([lambda: found.append(cowshed.storage_of(x)) for _ in range(8)])
    assert len({id(s) for s in found}) == 1


def channels():
    ends, group = socket.socketpair(), _cowshed.Group()
    return ends, [_cowshed.Channel(end.fileno(), group) for end in ends]


def test_what_is_no_parcel_is_a_type_error():
    ends, (a, _) = channels()
    for parcel in 5, [], (1, 2), (1, 2, 3, 4), None:
        with pytest.raises(TypeError, match="parcel"):
            a.send([parcel], b"")
    for end in ends:
        end.close()


def meanwhile(function, other):
    """Runs `function`, and `other` in another thread, which begins when it is under way."""
    begun = []

    def run():
        begun.append(True)
        function()

    def waits():
        while not begun:
            pass
        other()

    together([run, waits])


def test_looked_at_while_it_is_sent():
    """The first time that a storage is sent it moves, but not under somebody's eyes."""
    nbytes = 8 << 20
    ends, (a, b) = channels()
    for _ in range(10):
        storage, found = _cowshed.new(nbytes).clone(lazy=False, readonly=True), []
        meanwhile(lambda: a.send([(storage, 0, nbytes, _cowshed.CLONE)], b""),
                  lambda: found.append(storage.address))
        assert found == [storage.address]
        b.receive()
    for end in ends:
        end.close()


def test_what_is_read_by_address_becomes_no_alias():
    ends, (a, b) = channels()
    storage = _cowshed.new(1 << 16).clone(readonly=True)
    view = memoryview(storage)
    with pytest.raises(ValueError, match="read-only"):
        a.send([(storage, 0, 1 << 16, _cowshed.ALIAS)], b"")
    with pytest.raises(ValueError, match="read-only"):
        storage.export(_cowshed.ALIAS)
    assert view[0] == 0
    for end in ends:
        end.close()


def test_long_calls_leave_the_others_running(tmp_path):
    """Saving takes many system calls; somebody else runs between the first and the last."""
    x = cowshed.full((16 * LARGE,), 1.0)
    done, counted = threading.Event(), []

    def count():
        n = 0
        while not done.is_set():
            n += 1
        counted.append(n)

    def save():
        cowshed.storage_of(x).save(str(tmp_path / "x"))
        cowshed.save(str(tmp_path / "x.npy"), x)
        done.set()

    together([count, save])
    assert counted[0] > 100 and np.load(str(tmp_path / "x.npy"))[-1] == 1


ENDS = {
    "with arrays": "keep = [cowshed.clone(x) for _ in range(5)]",
    "with a cycle": "class C: pass\nc = C(); c.me = c; c.x = cowshed.clone(x)",
    "in a module": "cowshed.kept = cowshed.clone(x); np.kept = cowshed.share(x)",
    "with a thread": """
import threading
def run():
    while True:
        y = cowshed.clone(x); y[0] = 1; cowshed.freeze(y)
threading.Thread(target=run, daemon=True).start()""",
    "with an error": "cowshed.kept = x; raise SystemExit(0)",
    "with a finalizer": """
import weakref, atexit
class C:
    def __del__(self): cowshed.storage_of(self.x).clone()
c = C(); c.x = x; np.c = c
atexit.register(lambda: cowshed.clone(x))""",
    "after a fork": """
import os
if os.fork() == 0: raise SystemExit(0)
os.wait()""",
}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_a_program(how):
    script = f"import cowshed, numpy as np\nx = cowshed.full((1 << 20,), 1.0)\n{ENDS[how]}\n"
    for _ in range(3 if "thread" in how else 1):
        # Python 3.12 warns of a fork beside the threads of NumPy's library.
        end = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
                             capture_output=True, text=True, timeout=50, check=False)
        assert (end.returncode, end.stderr) == (0, "")
