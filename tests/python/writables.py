# SPDX-License-Identifier: MIT
"""What the tests of cowshed.writable() share."""

import mmap

import numpy as np

import cowshed

N = 1 << 17  # numbers of 8 bytes: 1 MiB
PAGE = mmap.PAGESIZE


def numbers():
    return np.arange(N, dtype="f8")


def foreign():
    return cowshed.stats()["fallbacks"].get("foreign", 0)


def saved(folder):
    """The path of a file of numbers."""
    np.save(folder / "x.npy", numbers())
    return str(folder / "x.npy")


def check(x, write_through=True):
    """A private result: a write to either side does not show on the other."""
    before, copies = x.copy(), foreign()
    w = cowshed.writable(x)
    assert foreign() == copies
    assert cowshed.storage_of(w).kind == "file" and type(w) is np.ndarray
    assert w.flags.writeable and w.dtype == x.dtype and w.shape == x.shape
    assert w.strides == x.strides and (w == before).all()
    first = (0,) * x.ndim
    w[first] = 77
    assert (x == before).all()
    if write_through and x.flags.writeable:
        x[first] = 88
        assert w[first] == 77
    return w
