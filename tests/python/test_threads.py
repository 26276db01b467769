# SPDX-License-Identifier: MIT
"""Threads: everything at once, and a program that ends while they run."""

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
    from cowshed import _regions

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
        end = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                             timeout=50, check=False)
        assert (end.returncode, end.stderr) == (0, "")
