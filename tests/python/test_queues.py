# SPDX-License-Identifier: MIT
"""Queues: arrays through them, their exceptions, many producers and consumers."""

import signal
import sys
import threading
import time
from queue import Empty, Full

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing

KINDS = ["Queue", "SimpleQueue", "JoinableQueue"]


def close(queue):
    queue.close()
    if hasattr(queue, "join_thread"):
        queue.join_thread()


def work(tasks, results):
    while True:
        x = tasks.get()
        if x is None:
            break
        i, array = x
        results.put((i, array + i, array))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", KINDS)
def test_many_workers(kind, method):
    context = multiprocessing.get_context(method)
    tasks, results = getattr(context, kind)(), getattr(context, kind)()
    workers = [context.Process(target=work, args=(tasks, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    x = cowshed.zeros(40000)
    n = 60

    def feed():
        for i in range(n):
            tasks.put((i, x))
        for _ in workers:
            tasks.put(None)

    feeder = threading.Thread(target=feed)
    feeder.start()
    seen = set()
    for _ in range(n):
        i, sum_, same = results.get()
        assert (sum_ == i).all() and not same.any()
        seen.add(i)
    assert seen == set(range(n))
    feeder.join()
    for worker in workers:
        worker.join()
    close(tasks)
    close(results)


def test_same_object_twice_is_one_storage():
    queue = multiprocessing.SimpleQueue()
    x = cowshed.zeros(1 << 14, shared=True)
    queue.put((x, x[3:], {"x": x}))
    a, b, c = queue.get()
    queue.put(x)
    d = queue.get()
    a[3] = 1
    assert b[0] == c["x"][3] == d[3] == x[3] == 1
    queue.close()


def test_exceptions():
    queue = multiprocessing.Queue(2)
    with pytest.raises(Empty):
        queue.get(False)
    with pytest.raises(Empty):
        queue.get(timeout=0.01)
    queue.put(1)
    queue.put_nowait(2)
    assert queue.full() and queue.qsize() == 2
    with pytest.raises(Full):
        queue.put(3, timeout=0.01)
    assert queue.get() == 1 and queue.get() == 2
    assert queue.empty()
    queue.close()
    with pytest.raises(ValueError):
        queue.put(1)
    with pytest.raises(ValueError):
        queue.get()
    queue.join_thread()


def test_what_cannot_be_pickled_is_dropped(capfd):
    queue = multiprocessing.Queue()
    queue.put(lambda: 0)
    queue.put("next")
    assert queue.get() == "next"
    close(queue)
    assert "lambda" in capfd.readouterr().err


def test_joinable():
    queue = multiprocessing.JoinableQueue()
    for i in range(3):
        queue.put(numpy.full(30000, i))
    for i in range(3):
        assert queue.get()[0] == i
        queue.task_done()
    queue.join()
    with pytest.raises(ValueError):
        queue.task_done()
    close(queue)


def test_more_than_the_socket_holds():
    queue = multiprocessing.Queue()
    x = numpy.arange(1000)
    for i in range(2000):
        queue.put(x + i)
    for i in range(2000):
        assert queue.get()[0] == i
    close(queue)


def settle(queue):
    """Until the thread that feeds it has nothing to do."""
    queue.put(None)
    assert queue.get() is None
    if hasattr(queue, "task_done"):
        queue.task_done()
    while not queue._buffer.is_done():
        time.sleep(0.001)


def test_put_sends_what_is_small_itself():
    queue = multiprocessing.Queue()
    settle(queue)
    with queue._notempty:  # the thread can't be told of anything
        for x in 1, "text", [None, (b"bytes", 2.5)]:
            queue.put(x)
            assert queue.get() == x
    with queue._wlock:
        queue.put("later")
        assert not queue._buffer.is_done() and not queue._poll(0)
    assert queue.get() == "later"
    close(queue)


@pytest.mark.parametrize("mode", ["clone", "alias"])
def test_large_and_small_stay_in_order(mode):
    queue = multiprocessing.Queue()
    with cowshed.sharing_mode(mode):
        settle(queue)
        for i in range(2000):
            queue.put(numpy.full(50000 if i % 7 == 3 else 500, i) if i % 3 else i)
        for i in range(2000):
            x = queue.get()
            assert (x[0] if i % 3 else x) == i
    close(queue)


@pytest.mark.closes_over
def test_put_leaves_what_waits_in_its_channel_to_the_thread():
    queue = multiprocessing.Queue()
    settle(queue)
    channel = queue._writer._channel("_plain")

    class Full:
        """A channel that keeps the first packet back."""

        kept = None

        def send(self, parcels, note):
            if self.kept is None:
                self.kept = parcels, note
                return len(parcels)
            raise AssertionError

        def flush(self, fd=-1, milliseconds=0):
            if threading.current_thread() is threading.main_thread():
                raise BlockingIOError
            channel.send(*self.kept)
            queue._writer._plain = channel

    queue._writer._plain = Full()
    queue.put(1)
    assert queue.get() == 1
    queue.put(2)
    assert queue.get() == 2
    close(queue)


def interrupt(*args):
    raise KeyboardInterrupt


def all_is_done(queue, count):
    """So many messages were put into it, if it counts them."""
    if hasattr(queue, "task_done"):
        for _ in range(count):
            queue.task_done()
        with pytest.raises(ValueError):
            queue.task_done()
        queue.join()


class Interrupted:
    __enter__ = __exit__ = interrupt

    @property
    def _lock(self):
        return self


@pytest.mark.parametrize("kind, where", [("Queue", "pickling"), ("Queue", "locking"),
                                         ("JoinableQueue", "locking")])
def test_an_interrupted_put_takes_no_place(monkeypatch, kind, where):
    queue = getattr(multiprocessing, kind)(1)
    settle(queue)
    with monkeypatch.context() as patch:
        if where == "pickling":
            patch.setattr(multiprocessing.queues._Packets, "dumps", interrupt)
        else:
            patch.setattr(queue, "_notempty", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            queue.put(1 if where == "pickling" else {})
    queue.put_nowait(2)
    assert queue.get() == 2
    all_is_done(queue, 1)
    close(queue)


@pytest.mark.closes_over
@pytest.mark.parametrize("where", ["sending", "flushing"])
def test_an_interrupted_put_keeps_nothing_back(where):
    """A channel that has taken a message is flushed by the thread."""
    queue = multiprocessing.Queue(1)
    settle(queue)
    channel = queue._writer._channel("_plain")

    class Full:
        def send(self, parcels, note):
            self.kept = parcels, note
            return interrupt() if where == "sending" else len(parcels)

        def flush(self, fd=-1, milliseconds=0):
            if threading.current_thread() is threading.main_thread():
                interrupt()
            channel.send(*self.kept)
            queue._writer._plain = channel

    queue._writer._plain = Full()
    with pytest.raises(KeyboardInterrupt):
        queue.put(1)
    assert queue.get(timeout=20) == 1
    queue.put_nowait(2)
    assert queue.get() == 2
    close(queue)


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_an_interrupted_put_tells_the_thread(monkeypatch, kind):
    queue = getattr(multiprocessing, kind)(1)
    settle(queue)
    with monkeypatch.context() as patch:

        def notify():
            patch.undo()
            interrupt()

        patch.setattr(queue._notempty, "notify", notify)
        with pytest.raises(KeyboardInterrupt):
            queue.put({1: 2})
    assert queue.get(timeout=20) == {1: 2}
    queue.put_nowait(2)
    assert queue.get() == 2
    all_is_done(queue, 2)
    close(queue)


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_puts_are_interrupted_anywhere(kind):
    """Each message is in the queue with a place of it, and counted, or none of these."""

    class Interrupt(BaseException):
        pass

    def handler(*_):
        raise Interrupt

    def put(i):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, (1 + i % 60) * 1e-6)
                queue.put(i if i % 3 else {"i": i})
                return True
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            return False

    n = 3000
    queue = getattr(multiprocessing, kind)(n)
    settle(queue)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        done = [i for i in range(n) if put(i)]
    finally:
        signal.signal(signal.SIGALRM, before)
    queue.put(None)
    got = [x if type(x) is int else x["i"] for x in iter(queue.get, None)]
    assert got == sorted(set(got)) and set(done) <= set(got)
    assert queue._sem.get_value() == n
    all_is_done(queue, len(got) + 1)
    close(queue)


def test_unread_messages_are_freed():
    queue = multiprocessing.Queue()
    for _ in range(5):
        queue.put(cowshed.zeros(1 << 18))
    queue.put(None)
    while queue._buffer:
        threading.Event().wait(0.01)
    close(queue)


def test_the_queue_lets_go_of_what_was_sent():
    queue = multiprocessing.Queue()
    storage = cowshed.storage_of(cowshed.empty(1 << 17))
    mine = sys.getrefcount(storage)
    queue.put(storage)
    queue.get()
    while sys.getrefcount(storage) > mine:  # its thread may be on its way still
        threading.Event().wait(0.01)
    close(queue)


def put(queue, x):
    queue.put(x)
    queue.close()
    queue.join_thread()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_sender_may_exit_first(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    x = numpy.arange(300000)
    process = context.Process(target=put, args=(queue, x))
    process.start()
    process.join()
    y = queue.get()
    y[0] = 1
    assert (y[1:] == x[1:]).all()
    close(queue)


def test_a_queue_through_a_queue_is_refused():
    queue = multiprocessing.SimpleQueue()
    with pytest.raises(RuntimeError, match="inheritance"):
        queue.put(multiprocessing.Queue())
    queue.close()
