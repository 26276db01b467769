# SPDX-License-Identifier: MIT
"""Workers that are killed: the others go on, and what the dead held is free.

The leak check of every test says the last part; here also memory is asked for.
"""

import os
import random
import signal
import threading
from queue import Empty

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing
from cowshed._memory import _family

METHODS = ["fork", "spawn"]


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def shmem():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssShmem:"))


def hold(queue, ready):
    queue._rlock.acquire()
    queue._wlock.acquire()
    ready.send(1)
    signal.pause()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_with_the_queues_locks(method, kind):
    context = multiprocessing.get_context(method)
    queue = getattr(context, kind)()
    reader, writer = context.Pipe(duplex=False)
    worker = context.Process(target=hold, args=(queue, writer))
    worker.start()
    assert reader.recv() == 1
    assert not queue._rlock.acquire(False)
    kill(worker)
    for i in range(3):
        queue.put(numpy.full(20000, i))
        assert queue.get()[5] == i
    if kind == "JoinableQueue":
        for _ in range(3):
            queue.task_done()
        queue.join()
    queue.close()
    if kind != "SimpleQueue":
        queue.join_thread()
    reader.close()
    writer.close()


def get_for_ever(queue, ready):
    ready.send(1)
    while True:
        queue.get()


def put_for_ever(queue, ready):
    x = numpy.arange(30000)
    ready.send(1)
    while True:
        queue.put((os.getpid(), x))


def test_while_it_waits():
    queue = multiprocessing.Queue()
    reader, writer = multiprocessing.Pipe(duplex=False)
    workers = [
        multiprocessing.Process(target=get_for_ever, args=(queue, writer)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
        reader.recv()
    # One of them has the lock and waits in the socket, the others wait for the lock.
    for worker in workers:
        kill(worker)
    queue.put("now")
    assert queue.get(timeout=30) == "now"
    queue.close()
    queue.join_thread()
    reader.close()
    writer.close()


@pytest.mark.limit(120)
def test_anywhere_in_getting_and_putting():
    """Killed at any moment: messages arrive whole, and none locks the queue."""
    random.seed(1)
    queue = multiprocessing.SimpleQueue()
    reader, writer = multiprocessing.Pipe(duplex=False)
    for i in range(30):
        workers = [
            multiprocessing.Process(target=f, args=(queue, writer))
            for f in (put_for_ever, get_for_ever, put_for_ever)
        ]
        for worker in workers:
            worker.start()
            reader.recv()
        for _ in range(random.randrange(20)):
            pid, x = queue.get()
            assert (x == numpy.arange(30000)).all() and pid in [w.pid for w in workers]
        for worker in workers:
            kill(worker)
        while not queue.empty():
            assert len(queue.get()) == 2
    queue.close()
    reader.close()
    writer.close()


def keep(queue, back):
    kept = []
    while True:
        kept.append(queue.get())
        kept.append(cowshed.zeros(1 << 18, shared=True))
        back.put([kept[-1], kept[-2]])
        kept[-1][:] = 7
        kept[-2][:] = 8  # what it was sent is its own


@pytest.mark.parametrize("method", METHODS)
def test_with_arrays_in_hand(method):
    context = multiprocessing.get_context(method)
    before = shmem()
    for _ in range(3):
        queue, back = context.SimpleQueue(), context.SimpleQueue()
        worker = context.Process(target=keep, args=(queue, back))
        worker.start()
        x = cowshed.full(1 << 20, 3.0)
        got = []
        for _ in range(4):
            queue.put(x)
            got.append(back.get())
        queue.put(x)
        kill(worker)
        assert (x == 3).all()
        for shared, clone in got:  # it outlives who made it
            assert shared.nbytes == 8 << 18 and (clone == 3).all()
            shared[0] = 1
        del shared, clone, got, x
        queue.close()
        back.close()
    cowshed.trim()
    assert _family.group() is not None
    assert shmem() - before < 16 << 10  # KiB


def receive_half(queue):
    reader = queue._reader
    reader._fresh()
    parcels, note = reader._channel("_incoming").receive(reader.fileno())
    assert parcels and not note
    os.kill(os.getpid(), signal.SIGKILL)


def test_within_a_message():
    """What is left of it is no message, and takes no place of the queue's."""
    queue = multiprocessing.Queue(1)
    for kwargs in {"block": False}, {"timeout": 0.01}, {}:
        queue.put([cowshed.full(16, i, shared=True) for i in range(2500)])
        worker = multiprocessing.Process(target=receive_half, args=(queue,))
        worker.start()
        worker.join()
        while not queue._buffer.is_done():
            threading.Event().wait(0.001)
        if kwargs:
            with pytest.raises(Empty):
                queue.get(**kwargs)
        else:
            thread = threading.Thread(target=queue.put, args=("next",))
            thread.start()
            assert queue.get() == "next"
            thread.join()
    queue.close()
    queue.join_thread()


def fill(queue, ready):
    for i in range(20):
        queue.put(numpy.full(1 << 17, i))
    queue.close()
    queue.join_thread()
    ready.send(1)
    signal.pause()


def test_what_it_had_sent_arrives():
    queue = multiprocessing.Queue()
    reader, writer = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.Process(target=fill, args=(queue, writer))
    worker.start()
    reader.recv()
    kill(worker)
    assert [int(queue.get()[9]) for _ in range(20)] == list(range(20))
    queue.close()
    reader.close()
    writer.close()


def hang(x):
    if x is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 1


def test_pool_replaces_it():
    x = numpy.zeros(50000)
    with multiprocessing.Pool(2) as pool:
        lost = pool.apply_async(hang, (None,))
        for _ in range(20):
            assert (pool.apply(hang, (x,)) == 1).all()
        assert not lost.ready()


def test_executor_says_so():
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        with pytest.raises(BrokenProcessPool):
            executor.submit(hang, None).result()
