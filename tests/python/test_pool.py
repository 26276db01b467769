# SPDX-License-Identifier: MIT
"""Pools: of processes, and of threads, which are the standard library's."""

import gc

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing
from cowshed._memory import _family

METHODS = ["fork", "spawn", "forkserver"]


def double(x):
    return x * 2


def add(x, y):
    x[:] += y
    return x


def fail(x):
    raise ValueError(f"{len(x)} is bad")


def unsendable(x):
    return lambda: x


data = None


def setup(x):
    global data
    data = x


def total(i):
    data[i] = 1  # its own
    return float(data.sum())


@pytest.mark.parametrize("method", METHODS)
def test_map(method):
    x = cowshed.zeros(100000)
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        results = pool.map(double, [x + i for i in range(6)])
        assert [r[3] for r in results] == [0, 2, 4, 6, 8, 10]
        assert sum(float(r[0]) for r in pool.imap_unordered(double, [x + 1] * 4)) == 8
        y = pool.apply(add, (x, 3))
        assert (y == 3).all() and not x.any()
        assert pool.starmap(add, [(x, 1), (x, 2)])[1][5] == 2
        with pytest.raises(ValueError, match="100000 is bad"):
            pool.apply(fail, (x,))
        with pytest.raises(multiprocessing.pool.MaybeEncodingError):
            pool.apply(unsendable, (1,))
        pool.close()
        pool.join()


@pytest.mark.parametrize("method", METHODS)
def test_initializer_gets_its_own(method):
    x = cowshed.zeros(50000)
    context = multiprocessing.get_context(method)
    with context.Pool(2, setup, (x,), maxtasksperchild=2) as pool:
        assert all(s >= 1 for s in pool.map(total, range(8), chunksize=1))
        pool.close()
        pool.join()
    assert not x.any()


def test_shared_is_written_by_all():
    x = cowshed.zeros(8, shared=True)
    with multiprocessing.Pool(2) as pool:
        for i in range(8):
            pool.apply(add, (x[i : i + 1], i))
        pool.close()
        pool.join()
    assert list(x) == list(range(8))


def test_pool_of_the_module():
    with multiprocessing.pool.Pool(1) as pool:
        assert type(pool._inqueue).__module__ == "cowshed.multiprocessing.queues"
        assert pool.apply(double, (4,)) == 8
        pool.close()
        pool.join()
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]
        pool.close()
        pool.join()


def test_terminated_in_the_middle():
    with multiprocessing.Pool(2) as pool:
        pool.map_async(double, [numpy.zeros(100000) for _ in range(50)])
    pool.join()


def test_nothing_is_left_of_the_locks_of_a_pool():
    # Pool takes a lock when it ends, for good.
    with multiprocessing.Pool(1) as pool:
        assert pool.map(double, [1]) == [2]
    del pool
    gc.collect()
    memory = [_family.alias_storage(64) for _ in range(50)]  # where its locks were, too
    with multiprocessing.queues.Lock():
        assert not any(map(any, map(memoryview, memory)))
    assert not any(map(any, map(memoryview, memory)))
