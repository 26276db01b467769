# SPDX-License-Identifier: MIT
"""Managers, listeners and clients."""

import threading

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing
from cowshed.multiprocessing.connection import Client, Listener


def change(d, key):
    d[key] = d[key] + 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_dict_of_arrays(method):
    context = multiprocessing.get_context(method)
    x = cowshed.zeros(100000)
    with context.Manager() as manager:
        d = manager.dict()
        d["x"] = x
        d["x"][0] = 1  # a clone: as with any manager, what is got is one's own
        assert not d["x"].any()
        process = context.Process(target=change, args=(d, "x"))
        process.start()
        process.join()
        assert process.exitcode == 0 and (d["x"] == 1).all()
        s = manager.list([cowshed.zeros(1000, shared=True)])
        s[0][5] = 5
        assert s[0][5] == 5
        q = manager.Queue()
        q.put(numpy.arange(70000))
        assert q.get()[9] == 9
        with pytest.raises(KeyError):
            d["nothing"]
        assert manager.Namespace(a=x).a.shape == x.shape


def test_shared_memory_manager_is_the_standard_librarys():
    from cowshed.multiprocessing.managers import SharedMemoryManager

    assert SharedMemoryManager.__module__ == "cowshed.multiprocessing.managers"


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_INET"])
@pytest.mark.parametrize("key", [None, b"secret"])
def test_listener_and_client(family, key):
    x = numpy.arange(50000)

    def serve():
        with listener.accept() as connection:
            for _ in range(2):
                y = connection.recv()
                connection.send([y, y * 2])

    with Listener(family=family, authkey=key) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with Client(listener.address, authkey=key) as connection:
            for y in x, cowshed.array(x):
                connection.send(y)
                a, b = connection.recv()
                assert (a == x).all() and (b == 2 * x).all()
        thread.join()


def test_a_wrong_key_is_refused():
    failed = []

    def serve():
        try:
            listener.accept()
        except multiprocessing.AuthenticationError:
            failed.append(1)

    with Listener(authkey=b"right") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(multiprocessing.AuthenticationError):
            Client(listener.address, authkey=b"wrong")
        thread.join()
    assert failed


def test_a_listener_of_the_standard_library():
    from multiprocessing.connection import Listener as Standard

    def serve():
        with listener.accept() as connection:
            connection.send(connection.recv())

    with Standard(family="AF_UNIX") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with Client(listener.address) as connection:
            connection.send([1])
            assert connection.recv() == [1]
        thread.join()
