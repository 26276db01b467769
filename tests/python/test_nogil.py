# SPDX-License-Identifier: MIT
"""Threads on the same storages at once. `make check-nogil` runs these without the GIL."""

import ctypes
import random
import socket
import sys
import sysconfig
import threading

import pytest
from test_threads import together

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed import _cowshed  # noqa: E402

THREADS = 4
# Without the GIL threads meet in a few instructions, so it takes many rounds to see them meet.
ROUNDS = 40000 if sysconfig.get_config_var("Py_GIL_DISABLED") else 2000
LARGE = 1 << 20


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a Python with the GIL")
def test_the_module_needs_no_gil():
    assert not sys._is_gil_enabled()
    assert "abi3" not in _cowshed.__file__


def test_threads_clone_write_share_and_drop_the_same_arrays():
    """Each array has one value in all of its elements, since a thread writes only its own clone."""
    arrays = [cowshed.full((LARGE // 8,), i, dtype="int64") for i in range(4)]
    arrays += [cowshed.array(np.full(1000, i), shared=True) for i in range(4)]

    def work(seed):
        choose = random.Random(seed)
        for _ in range(150):
            i = choose.randrange(len(arrays))
            mine = cowshed.clone(arrays[i])
            value = int(mine[0])
            assert (mine == value).all()
            mine[: choose.randrange(1, len(mine))] = seed
            mine[:] = seed
            assert cowshed.storage_of(mine) is not cowshed.storage_of(arrays[i])
            if choose.random() < 0.3:
                mine = cowshed.share(mine)
            frozen = cowshed.freeze(cowshed.clone(mine))
            assert (frozen == seed).all()
            arrays[i] = mine

    together([lambda seed=seed: work(seed) for seed in range(100, 100 + THREADS)])
    assert all((x == x[0]).all() for x in arrays)


def test_a_storage_has_one_object_while_threads_drop_it():
    """The DLPack tensor keeps the storage. Its objects come and go."""
    tensor = np.from_dlpack(cowshed.storage_of(cowshed.zeros(LARGE // 8)))
    address = tensor.ctypes.data
    gate = threading.Barrier(THREADS)

    def work(kept):
        try:
            work_on(kept)
        except BaseException:
            gate.abort()
            raise

    def work_on(kept):
        for i in range(ROUNDS):
            one = _cowshed.from_address(address)[0]
            two = _cowshed.from_address(address)[0]
            assert one is two and one.nbytes == LARGE
            if i % 1000 == 0:
                kept.append(one)
                gate.wait()
                # All of them have it, so all of them have the same.
                assert kept[-1] is one and _cowshed.from_address(address)[0] is one
                gate.wait()
                kept.clear()
            del one, two

    kept = []
    together([lambda: work(kept)] * THREADS)


def test_threads_ask_for_the_address_and_clone_a_storage_that_has_not_moved_yet():
    for _ in range(100):
        storage = _cowshed.new(LARGE, zero=True, tracked=True)
        seen, clones = [], []

        def work(storage=storage, seen=seen, clones=clones):
            clones.append(storage.clone())
            seen.append(storage.address)
            clones += _cowshed.clone_all([storage, storage])[0]

        together([work] * THREADS)
        assert len(set(seen)) == 1 and len(clones) == 3 * THREADS
        for i, clone in enumerate(clones):
            memoryview(clone)[i] = 1
        assert not any(bytes(memoryview(storage)[: len(clones)]))


def test_buffers_are_counted():
    storage = _cowshed.new(100)

    def work():
        for _ in range(4 * ROUNDS):
            memoryview(storage).release()

    together([work] * THREADS)
    assert storage.exports == 0


def test_a_number_comes_once():
    numbers = [[] for _ in range(THREADS)]
    together([lambda mine=mine: mine.extend(_cowshed.next_number() for _ in range(4 * ROUNDS))
              for mine in numbers])
    assert len(set().union(*numbers)) == THREADS * 4 * ROUNDS
    assert all(mine == sorted(mine) for mine in numbers)


def test_an_address_is_found_while_others_are_entered():
    # New ones get the lower addresses of these, so the addresses of the known ones move up a list.
    lower = [cowshed.array(np.ones(100), shared=True) for _ in range(1000)]
    known = [cowshed.array(np.ones(100), shared=True) for _ in range(50)]
    del lower
    views = [np.frombuffer((ctypes.c_char * 8).from_address(x.ctypes.data + 400)) for x in known]
    done = threading.Event()

    def enter():
        try:
            for _ in range(ROUNDS // 40):
                assert [cowshed.array(np.ones(100), shared=True) for _ in range(10)]
        finally:
            done.set()

    def look():
        while not done.is_set():
            for x, y in zip(known, views):
                assert cowshed.storage_of(y) is cowshed.storage_of(x)

    together([enter, *[look] * (THREADS - 1)])


def test_a_list_changes_while_it_is_sent():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        sender, receiver = _cowshed.Channel(ours.fileno()), _cowshed.Channel(theirs.fileno())
        parcels, done = [], threading.Event()

        def change():
            while not done.is_set():
                parcels.append((_cowshed.new(64), 0, 64, _cowshed.CLONE))
                if len(parcels) > 3:
                    parcels.clear()

        def send():
            try:
                for _ in range(ROUNDS // 8):
                    sent = sender.send(parcels, b"note")
                    sender.flush(ours.fileno(), 1000)
                    assert len(receiver.receive(theirs.fileno())[0]) == sent
            finally:
                done.set()

        together([send, change, change])
        sender = receiver = None


def test_a_lock_is_released_by_the_wrong_thread():
    group = _cowshed.Group()
    storage = group.storage(128, _cowshed.ALIAS)
    lock = _cowshed.Lock(storage, 0, True)
    done, entered = threading.Event(), []

    def hold():
        for i in range(3000):
            with lock:
                entered.append(i)
                assert entered == [i]
                entered.clear()

    def holds():
        try:
            together([hold] * 3)
        finally:
            done.set()

    def meddle():
        while not done.is_set():
            with pytest.raises(RuntimeError, match="does not hold"):
                lock.release()

    together([holds, meddle])
    # Its destructor finds that nobody holds it, and does not keep the storage.
    before = sys.getrefcount(storage)
    lock = None
    assert sys.getrefcount(storage) == before - 1


def test_a_list_gets_shorter_while_a_hook_looks_at_it():
    large = cowshed.zeros(LARGE // 8)
    items, done = [large] * 4, threading.Event()
    clone = cowshed.clone(large)
    clone[0] = 0
    assert _cowshed.is_frozen()
    hook = _cowshed.Hook(len, lambda args, names, function: None, (type(large),), int, 64)

    def change():
        while not done.is_set():
            items.clear()
            items.extend([np.ones(1), large, np.ones(1)])

    def call():
        try:
            for _ in range(5 * ROUNDS):
                assert 0 <= hook(items) <= 7
        finally:
            done.set()

    together([change, call])
    assert clone[0] == 0
