# SPDX-License-Identifier: MIT
"""Pipes: what multiprocessing's do, and arrays by handle."""

import errno
import os
import pickle
import signal
import threading
from multiprocessing import BufferTooShort
from multiprocessing.connection import wait

import numpy
import pytest

import cowshed
from cowshed import _cowshed
from cowshed.multiprocessing import Pipe, _connection


def child(function):
    """Runs in a child of fork(). Returns what waits for it, and fails if it failed."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)

    def join(expected=0):
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == expected

    join.pid = pid
    return join


@pytest.mark.parametrize(
    "x",
    [None, 1, "text", b"b" * 70000, list(range(50000)), {"a": (1, 2.5)}, bytearray(20000)],
    ids=lambda x: type(x).__name__,
)
def test_objects(x):
    with Pipe()[0] as _:
        pass
    a, b = Pipe()
    with a, b:
        a.send(x)
        assert b.recv() == x
        b.send([x, x])
        assert a.recv() == [x, x]


def test_bytes():
    a, b = Pipe()
    with a, b:
        for n in 0, 1, 5000, 16383, 16384, 1 << 20:
            data = os.urandom(n)
            a.send_bytes(data)
            assert b.recv_bytes() == data
        a.send_bytes(b"abcdef", 2, 3)
        assert b.recv_bytes() == b"cde"
        buffer = bytearray(10)
        a.send_bytes(b"12345")
        assert b.recv_bytes_into(buffer, 3) == 5 and buffer == b"\0\0\x0012345\0\0"
        a.send_bytes(b"x" * 11)
        with pytest.raises(BufferTooShort):
            b.recv_bytes_into(buffer)
        a.send_bytes(pickle.dumps([1]))
        assert b.recv() == [1]
        a.send([2])
        assert pickle.loads(b.recv_bytes()) == [2]
        a.send_bytes(b"too long")
        with pytest.raises(OSError):
            b.recv_bytes(3)


def test_objects_with_arrays_are_no_bytes():
    a, b = Pipe()
    with a, b:
        a.send({"x": [1, 2.5]})
        assert pickle.loads(b.recv_bytes()) == {"x": [1, 2.5]}
        a.send(cowshed.full(9000, 2.0))
        a.send("next")
        for call in b.recv_bytes, lambda: b.recv_bytes_into(bytearray(1 << 20)):
            with pytest.raises(OSError, match="recv\\(\\)"):
                call()
            assert b.poll(0) and b.poll()
        assert (b.recv() == 2).all() and b.recv() == "next" and not b.poll(0)


def test_one_way():
    reader, writer = Pipe(duplex=False)
    assert reader.readable and not reader.writable
    with pytest.raises(OSError):
        reader.send(1)
    with pytest.raises(OSError):
        writer.recv()
    assert not reader.poll()
    writer.send(1)
    assert reader.poll() and reader.poll(None) and wait([reader], 0) == [reader]
    assert reader.recv() == 1
    writer.send(2)
    writer.close()
    with pytest.raises(OSError):
        writer.send(1)
    assert reader.recv() == 2
    assert reader.poll()
    with pytest.raises(EOFError):
        reader.recv()
    reader.close()
    reader, writer = Pipe(duplex=False)
    reader.close()
    with pytest.raises(BrokenPipeError):
        writer.send(1)
    writer.close()


def test_arrays_of_a_sender_that_is_gone():
    reader, writer = Pipe(duplex=False)
    x = numpy.arange(1 << 18)
    shared = cowshed.zeros(1 << 17, shared=True)

    def send():
        reader.close()
        writer.send([x, cowshed.array(x), shared, shared[5:]])

    join = child(send)
    writer.close()
    join()
    with reader:
        a, b, c, d = reader.recv()
    assert (a == x).all() and (b == x).all()
    a[0] = 7
    assert b[0] == 0 and x[0] == 0
    d[0] = 1
    assert shared[5] == 1 and c[5] == 1


def test_a_clone_is_of_the_moment():
    a, b = Pipe()
    with a, b:
        x = cowshed.zeros(1 << 18)
        a.send(x)
        x[:] = 1
        y = b.recv()
        assert not y.any()
        y[:] = 2
        assert (x == 1).all()


def test_full_socket_waits():
    reader, writer = Pipe(duplex=False)
    total = 3000

    def send():
        reader.close()
        for i in range(total):
            writer.send((i, bytes(1000)))

    join = child(send)
    writer.close()
    with reader:
        assert [reader.recv()[0] for _ in range(total)] == list(range(total))
    join()


def test_what_was_sent_is_not_kept_back(monkeypatch):
    class Full(Exception):
        pass

    def full(*args):
        raise Full

    a, b = Pipe()
    with a, b:
        sent = 0
        with monkeypatch.context() as patch:
            patch.setattr(_connection, "_poll", full)
            with pytest.raises(Full):
                while True:
                    a.send_bytes(bytes(3000))
                    sent += 1
        received = 0
        while b.poll():
            b.recv_bytes()
            received += 1
        assert received == sent > 0
        a.send("more")
        assert b.recv_bytes() == bytes(3000)
        assert b.recv() == "more"


def test_more_messages_than_the_group_has_places():
    # Each is small in the socket, and holds a place of the group's until it is received.
    pipes = [Pipe(duplex=False) for _ in range(10)]
    x = cowshed.zeros(1 << 14)
    try:
        for i in range(40):
            for _, writer in pipes:
                x[0] = i
                writer.send(x)
        for reader, _ in pipes:
            assert [reader.recv()[0] for _ in range(40)] == list(range(40))
    finally:
        for reader, writer in pipes:
            reader.close()
            writer.close()


def test_more_shared_arrays_than_the_group_has_places():
    # These can't go as copies, so the writer waits for readers that are slow.
    pipes = [Pipe(duplex=False) for _ in range(10)]
    arrays = [cowshed.full(512, i, shared=True) for i in range(40)]
    failed = []

    def send():
        try:
            for x in arrays:
                for _, writer in pipes:
                    writer.send(x)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        thread.join(0.3)
        assert thread.is_alive() and not failed
        for _ in arrays:
            for reader, _ in pipes:
                reader.recv()
    finally:
        thread.join(0 if failed else 30)
        for reader, writer in pipes:
            reader.close()
            writer.close()
    assert not failed and not thread.is_alive()


@pytest.mark.parametrize("shared", [True, False])
def test_more_storages_than_a_packet_holds(shared):
    a, b = Pipe()
    arrays = [cowshed.full(9000, i, shared=shared) for i in range(2500 if shared else 200)]

    def receive():
        got = b.recv()
        b.send([float(x[8999]) for x in got])
        assert b.recv() == "end"

    join = child(receive)
    with a, b:
        a.send(arrays)
        assert a.recv() == list(range(len(arrays)))
        a.send("end")
    join()


def test_half_of_a_message_of_somebody_who_died():
    a, b = Pipe()
    with a, b:
        lost = [(cowshed.storage_of(cowshed.zeros(9000)), 0, 72000, 1) for _ in range(3)]
        a._fresh()
        assert a._channel("_grouped").send(lost, b"") == 3  # and the rest never comes
        x = cowshed.full(9000, 2.0)
        a.send([x, 5])
        y, five = b.recv()
        assert (y == 2).all() and five == 5


def test_half_of_a_message_of_a_receiver_who_died():
    a, b = Pipe()

    def die():
        b._fresh()
        parcels, note = b._channel("_incoming").receive(b.fileno())
        assert parcels and len(note) == _cowshed.LABEL_BYTES

    with a, b:
        a.send([cowshed.full(16, i, shared=True) for i in range(2500)])
        child(die)()
        a.send("next")
        assert b.recv() == "next"


def test_parts_of_two_messages_are_no_message():
    class Interrupted(Exception):
        pass

    class Short:
        """A channel after whose first packet a signal's handler raises."""

        def __init__(self, channel):
            self.channel, self.calls, self.group = channel, 0, channel.group

        def receive(self, fd):
            self.calls += 1
            if self.calls == 2:
                raise Interrupted
            return self.channel.receive(fd)

    def first_part(end):
        end._fresh()
        channel, end._incoming = end._channel("_incoming"), Short(end._channel("_incoming"))
        with pytest.raises(Interrupted):
            end.recv()
        end._incoming = channel

    n = 2500
    for one, other in _connection.pair(True), _connection.pair(True, _connection.QueueEnd):
        again = type(other)(os.dup(other.fileno()))  # as another process has it
        with one, other, again:
            one.send([cowshed.full(16, i, shared=True) for i in range(n)])
            first_part(other)
            assert again.recv_packet_or_rest() is None  # the rest of it
            one.send([cowshed.full(16, n + i, shared=True) for i in range(n)])
            first_part(again)
            # As many as a message has: the beginning of the first one, the end of the second one.
            assert other.recv_packet_or_rest() is None
            one.send([cowshed.full(16, 2 * n + i, shared=True) for i in range(n)])
            assert [x[0] for x in again.recv()] == list(range(2 * n, 3 * n))
            one.send("end")
            assert other.recv() == "end" and not again.poll(0)


def test_what_was_taken_is_sent_once():
    class Short:
        """A channel that takes a message, which the kernel has no memory for at first."""

        def __init__(self, channel):
            self.channel, self.group = channel, channel.group
            self.errors = [OSError(errno.ENOBUFS, "no buffers"), MemoryError("no memory"),
                           OSError(errno.EMFILE, "no descriptors")]

        def send(self, *arguments):
            return self.channel.send(*arguments)

        def flush(self, *arguments):
            if self.errors:
                raise self.errors.pop()
            return self.channel.flush(*arguments)

    a, b = Pipe()
    with a, b:
        a._fresh()
        for name in "_plain", "_grouped":
            setattr(a, name, Short(a._channel(name)))
        a.send("one")
        a.send(cowshed.full(9000, 2.0))
        a.send("end")
        assert b.recv() == "one" and (b.recv() == 2).all() and b.recv() == "end"
        assert not b.poll(0)


def test_half_of_a_message_of_a_receiver_who_could_not():
    class Short:
        """A channel whose second packet finds no descriptors, twice."""

        def __init__(self, channel):
            self.channel, self.calls, self.group = channel, 0, None

        def receive(self, fd):
            self.calls += 1
            if self.calls in (2, 3):
                raise OSError(errno.EMFILE, "no descriptors left")
            return self.channel.receive(fd)

    a, b = Pipe()
    with a, b:
        a.send([cowshed.full(16, i, shared=True) for i in range(2500)])
        a.send("next")
        b._fresh()
        b._incoming = Short(b._channel("_incoming"))
        for _ in range(2):
            with pytest.raises(OSError, match="no descriptors"):
                b.recv()
        assert [x[0] for x in b.recv()] == list(range(2500))
        assert b.recv() == "next"


def test_threads():
    a, b = Pipe()
    n, got = 400, []
    x = numpy.arange(20000)

    def send(k):
        for i in range(n):
            a.send((k, i, x if i % 10 == 0 else None))

    def receive():
        for _ in range(n):
            got.append(b.recv())

    threads = [threading.Thread(target=send, args=(k,)) for k in range(3)]
    threads += [threading.Thread(target=receive) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    a.close()
    b.close()
    assert sorted(g[:2] for g in got) == [(k, i) for k in range(3) for i in range(n)]
    assert all((g[2] == x).all() for g in got if g[2] is not None)


def test_interrupted_waits():
    def interrupted(function):
        """SIGINT ends it by KeyboardInterrupt; it is sent until that has happened."""
        ready, go = os.pipe()

        def run():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                os.write(go, b"x")
                function()
            except KeyboardInterrupt:
                os._exit(3)

        join = child(run)
        os.read(ready, 1)
        os.close(ready)
        os.close(go)
        while os.waitid(os.P_PID, join.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.kill(join.pid, signal.SIGINT)
            threading.Event().wait(0.02)
        join(3)

    a, b = Pipe()
    with a, b:
        interrupted(b.recv)
        interrupted(lambda: b.poll(None))
        interrupted(lambda: [a.send(bytes(8000)) for _ in range(1000)])


def test_closed():
    a, b = Pipe()
    a.close()
    a.close()
    for call in a.fileno, a.recv, a.poll, lambda: a.send(1):
        with pytest.raises(OSError, match="closed"):
            call()
    b.close()
