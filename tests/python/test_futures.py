# SPDX-License-Identifier: MIT
"""concurrent.futures with a context of ours, and with others."""

import multiprocessing as standard
from concurrent.futures import ProcessPoolExecutor

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing


def where(x):
    return x + 1, cowshed.storage_of(x) is not None


def fail(x):
    raise KeyError(len(x))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_by_handle(method):
    context = multiprocessing.get_context(method)
    x = cowshed.zeros(100000)
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        y, by_handle = executor.submit(where, x).result()
        assert by_handle and (y == 1).all()
        assert [float(z[0]) for z, _ in executor.map(where, [x, x + 1, x + 2])] == [1, 2, 3]
        with pytest.raises(KeyError, match="100000"):
            executor.submit(fail, x).result()
        with pytest.raises(Exception, match="pickle|lambda"):
            executor.submit(where, lambda: 0).result()
        assert executor.submit(abs, -1).result() == 1


def test_other_contexts_are_as_they_were():
    with ProcessPoolExecutor(1, mp_context=standard.get_context("fork")) as executor:
        assert executor.submit(where, numpy.zeros(100000)).result()[0][5] == 1
        assert type(executor._call_queue).__module__ == "concurrent.futures.process"
        assert type(executor._call_queue).__mro__[1] is standard.queues.Queue
