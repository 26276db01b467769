# SPDX-License-Identifier: MIT
"""Opening a file maps it: what a program does not touch is not read from the disk."""

import ctypes
import mmap
import os

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

BYTES = 64 << 20
MOST = BYTES // 4  # of the 2 * BYTES of the file: the kernel reads ahead


def resident(path):
    """The bytes of the file that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.path.getsize(path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        at = ctypes.c_char.from_buffer(mapped)
        error = libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), pages)
        del at
    assert error == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def forget(path):
    """Drops the file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path) > MOST:
        pytest.skip("this file system keeps files in memory")


def test_what_is_not_touched_is_not_read(tmp_path):
    path = str(tmp_path / "x.safetensors")
    cowshed.save(path, {"a": np.ones(BYTES // 8), "b": np.full(BYTES // 8, 2.0)})
    forget(path)
    state = cowshed.open(path)
    assert state["a"][0] == 1 and state["b"][-1] == 2
    assert resident(path) <= MOST
    assert (state["b"] == 2).all()
    assert resident(path) >= BYTES
