# SPDX-License-Identifier: MIT
"""cowshed.writable(): bytes of files and of shared memory, written privately, page by page."""

import gc
import mmap
import os
import pickle
import sys
import weakref
from multiprocessing import sharedctypes
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
from writables import N, PAGE, check, foreign, numbers, saved

import cowshed
from cowshed._memory import _mappings, _writable

try:
    import torch  # here, since it may take longer than a test
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path)


# ---- Where arrays come from --------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_numpy_memmap(path, mode):
    x = np.load(path, mmap_mode=mode)
    assert x.offset % PAGE
    check(x)
    assert mode == "r+" or (np.load(path) == numbers()).all()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_file_of_cowshed(path, mode):
    check(cowshed.open(path, mode))


def test_shared_memory_that_is_closed_meanwhile():
    block = SharedMemory(create=True, size=8 * N)
    x = np.ndarray((N,), "f8", block.buf)
    x[:] = numbers()
    w = check(x)
    del x
    block.close()  # would raise BufferError if the result held the array
    block.unlink()
    assert w[0] == 77 and (w[1:] == numbers()[1:]).all()


def test_shared_arrays_of_cowshed():
    check(cowshed.share(numbers()))


@pytest.mark.leaves("descriptors")  # the arenas of multiprocessing.heap
def test_an_array_of_ctypes():
    x = np.frombuffer(sharedctypes.RawArray("d", N))
    x[:] = numbers()
    w = check(x)
    x = weakref.ref(x)
    gc.collect()
    assert x() is not None  # its memory would be used again
    del w
    gc.collect()
    assert x() is None


def test_frozen_arrays_and_arrays_of_this_process_are_cloned():
    for x in cowshed.freeze(cowshed.array(numbers())), cowshed.array(numbers()):
        w = cowshed.writable(x)
        assert cowshed.storage_of(w).kind == "own"
        w[0] = 77
        assert x[0] == 0 and w[1] == 1


def test_ordinary_memory_is_copied_and_counted():
    x, before = numbers()[:], foreign()
    x.flags.writeable = False
    if cowshed.storage_of(x) is not None:
        pytest.skip("under the shim it is memory of the engine")
    w = cowshed.writable(x)
    w[0] = 77
    assert foreign() == before + 1 and x[0] == 0 and w[1] == 1


def test_joblib(tmp_path):
    joblib = pytest.importorskip("joblib")
    joblib.dump(numbers(), tmp_path / "x")
    check(joblib.load(tmp_path / "x", mmap_mode="r"))


def test_pyarrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    with pyarrow.OSFile(str(tmp_path / "x"), "wb") as out:
        out.write(numbers().tobytes())
    with pyarrow.memory_map(str(tmp_path / "x")) as source:
        x = np.frombuffer(source.read_buffer())
    assert not x.flags.writeable
    check(x)


# ---- Shapes and types ----------------------------------------------------------------------


VIEWS = {
    "a part": lambda x: x[3:-5],
    "every third": lambda x: x[::3],
    "backwards": lambda x: x[::-1],
    "a matrix": lambda x: x.reshape(256, -1),
    "Fortran order": lambda x: x.reshape(256, -1).T,
    "a column": lambda x: x.reshape(8, -1, 4)[::-1, 1:, 2],
    "big-endian": lambda x: x.view(">f8"),
    "bytes": lambda x: x.view("u1")[3:],
    "dates": lambda x: x.view("M8[s]"),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_keep_their_strides(path, view, monkeypatch):
    monkeypatch.setattr(_writable, "SMALL", PAGE)
    x = view(np.load(path, mmap_mode="r"))
    w = cowshed.writable(x)
    assert w.strides == x.strides and w.dtype == x.dtype
    assert cowshed.storage_of(w).kind == "file" and w.flags.writeable
    assert w.tobytes() == x.tobytes()
    before = x.tobytes()
    w[...] = w[(0,) * w.ndim]
    assert x.tobytes() == before and w.tobytes() != before


def test_structured_types(path):
    x = np.load(path, mmap_mode="r").view([("a", ">i4"), ("b", "u2", (2,))]).view(np.recarray)
    w = cowshed.writable(x)
    assert w.dtype.names == ("a", "b") and (w["a"] == x["a"]).all()
    w["b"][5] = 3
    assert (w["b"][5] == 3).all() and x["b"].tobytes() != w["b"].tobytes()


def test_elements_that_overlap_get_bytes_of_their_own(path):
    x = np.broadcast_to(np.load(path, mmap_mode="r"), (2, N))
    w = cowshed.writable(x)
    w[0, 0] = 77
    assert w[1, 0] == 0 and (w[1] == numbers()).all()


def test_a_length_that_is_no_multiple_of_a_page(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(250)) * 4000)
    x = np.memmap(tmp_path / "x", "u1", "r")
    w = check(x)
    assert w[-1] == 249
    assert (cowshed.writable(x[7:999_007]) == x[7:999_007]).all()


def test_bytes_behind_the_end_of_the_file(tmp_path, monkeypatch):
    """The last page of a mapping has some. They can be read, but are no part of the file."""
    monkeypatch.setattr(_writable, "SMALL", PAGE)
    with open(tmp_path / "x", "w+b") as file:
        file.write(b"x" * (8 * PAGE))
        file.flush()
        x = np.frombuffer(mmap.mmap(file.fileno(), 8 * PAGE, prot=mmap.PROT_READ), "u1")
        file.truncate(7 * PAGE + 10)
    w = cowshed.writable(x)
    assert bytes(w[7 * PAGE + 8 : 7 * PAGE + 12]) == b"xx\0\0"
    w[-1] = 5
    assert x[-1] == 0


def test_a_file_that_became_shorter(path):
    x = np.load(path, mmap_mode="r")
    os.truncate(path, PAGE)
    with pytest.raises(OSError, match="made shorter"):
        cowshed.writable(x)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_no_elements(shape):
    w = cowshed.writable(np.empty(shape, "i4"))
    assert w.shape == shape and w.dtype == "i4" and w.flags.writeable


def test_small_arrays_are_copied(path):
    before = foreign()
    x = np.load(path, mmap_mode="r")[10:20]
    w = cowshed.writable(x)
    w[0] = 77
    assert x[0] == 10 and w[1] == 11 and foreign() == before


@pytest.mark.parametrize("x", [None, 3, [1.0], {"a": np.ones(3)}, "text",
                               np.array([object()]), np.ma.masked_array([1, 2])],
                         ids=lambda x: type(x).__name__)
def test_what_is_no_array(x):
    with pytest.raises(TypeError, match=r"writable\(\)"):
        cowshed.writable(x)


@pytest.mark.parametrize("x", [b"bytes", bytearray(5), memoryview(b"abcdef")[::2]], ids=repr)
def test_what_is_another_buffer(x):
    with pytest.raises(TypeError, match="memoryview"):
        cowshed.writable(x)


# ---- Buffers and storages --------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, cowshed.array], ids=["foreign", "a storage"])
def test_memoryviews_of_memory(make):
    view = memoryview(make(numbers().reshape(2, -1))).toreadonly()
    w = cowshed.writable(view)
    assert (w.format, w.shape, w.readonly) == ("d", view.shape, False) and w == view
    w[0, 1] = 77
    assert view[0, 1] == 1


def test_memoryviews(path):
    view = memoryview(np.load(path, mmap_mode="r"))
    w = cowshed.writable(view)
    assert (w.format, w.shape, w.readonly) == ("d", (N,), False)
    w[0] = 77
    assert view[0] == 0 and w[5] == 5
    small = cowshed.writable(view[:3])
    small[0] = 77
    assert small.tolist() == [77, 1, 2] and view[0] == 0
    assert cowshed.writable(view[:0]).nbytes == 0
    # memoryview.cast() knows "f2" from 3.12 on.
    for kind in "c16", ">f8", "i4,f4", *(["f2"] if sys.version_info < (3, 12) else []):
        with pytest.raises(TypeError, match="numpy.asarray"):
            cowshed.writable(memoryview(np.zeros(N, kind)))


def test_storages(path):
    for x in cowshed.open(path, "r"), cowshed.array(numbers()), cowshed.share(numbers()):
        storage = cowshed.storage_of(x)
        w = cowshed.writable(storage)
        assert not w.readonly and w.nbytes == storage.nbytes and bytes(w) == bytes(storage)
        memoryview(w)[:8] = b"12345678"
        assert bytes(w) != bytes(storage)


@needs_torch
def test_tensors(path, tmp_path):
    with pytest.warns(UserWarning, match="not writable"):
        x = torch.from_numpy(np.load(path, mmap_mode="r"))
    t = x.view(256, -1).t()[3:]
    copies = foreign()
    w = cowshed.writable(t)
    assert w.stride() == t.stride() and torch.equal(w, t) and foreign() == copies
    w[0, 0] = 77
    assert t[0, 0] == 3 and cowshed.storage_of(w).kind == "file"
    shared = torch.zeros(N, dtype=torch.float64).share_memory_()
    w = cowshed.torch.writable(shared)
    w[0] = 77
    assert shared[0] == 0 and foreign() == copies
    assert cowshed.writable(x[:0]).shape == (0,)
    assert cowshed.writable(x[:3]).tolist() == [0, 1, 2]
    (tmp_path / "raw").write_bytes(numbers().tobytes())
    raw = torch.from_file(str(tmp_path / "raw"), shared=False, size=N, dtype=torch.float64)
    raw[1] = 5
    w = cowshed.writable(raw)
    assert w[1] == 5 and torch.equal(w, raw) and foreign() == copies
    with pytest.raises(TypeError, match="sparse"):
        cowshed.writable(torch.eye(3).to_sparse())


@needs_torch
def test_a_large_tensor_of_ordinary_memory_is_copied():
    x = torch.arange(N)
    w = cowshed.writable(x)
    w[0] = 77
    assert x[0] == 0 and w[1] == 1


# ---- Pages that were written before ------------------------------------------------------------


def test_pages_that_a_private_mapping_has_of_its_own(path):
    x = np.load(path, mmap_mode="c")
    x[5] = x[N // 2] = x[-1] = -1
    w = check(x)
    assert w[5] == w[N // 2] == w[-1] == -1


def test_without_pagemap_a_private_mapping_is_copied(path, monkeypatch):
    def denied(*_):
        raise PermissionError

    monkeypatch.setattr(_mappings, "own_pages", denied)
    x = np.load(path, mmap_mode="c")
    x[5], before = -1, foreign()
    w = cowshed.writable(x)
    assert w[5] == -1 and foreign() == before + 1


def test_a_result_of_a_result(path):
    first = cowshed.writable(np.load(path, mmap_mode="r"))
    first[5] = -1
    second = cowshed.writable(first)
    second[6] = -2
    assert second[5] == -1 and first[6] == 6 and (second[7:] == numbers()[7:]).all()


# ---- Life ------------------------------------------------------------------------------------


def test_what_is_held_goes_with_the_result():
    x = cowshed.share(numbers())
    w = cowshed.writable(x)
    seen = weakref.ref(cowshed.storage_of(x))
    del x
    gc.collect()
    assert seen() is not None and (w == numbers()).all()
    del w
    gc.collect()
    assert seen() is None


def test_no_descriptor_is_left(path):
    x, before = np.load(path, mmap_mode="r"), os.listdir("/proc/self/fd")
    results = [cowshed.writable(x) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == len(before)
    del results


def test_fork(path):
    w = cowshed.writable(np.load(path, mmap_mode="r"))
    w[0] = 77
    r, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        good = w[0] == 77 and w[1] == 1
        w[1] = 88
        os.write(out, b"yes" if good else b"no")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(r, 3) == b"yes" and w[1] == 1
    os.close(r)
    os.close(out)


def test_pickle_and_messages(path):
    from cowshed._pyobjects import _pickle

    w = cowshed.writable(np.load(path, mmap_mode="r"))
    w[0] = 77
    again = pickle.loads(pickle.dumps(w))
    assert again[0] == 77 and (again[1:] == w[1:]).all()
    data, parcels = _pickle.dumps(w)
    assert len(data) < 1000
    again = _pickle.loads(data, [parcel[0] for parcel in parcels])
    assert again[0] == 77 and (again[1:] == w[1:]).all()


def echo(w):
    w[1] = 88
    return w


def test_through_a_worker(path):
    import cowshed.multiprocessing as multiprocessing

    w = cowshed.writable(np.load(path, mmap_mode="r"))
    w[0] = 77
    with multiprocessing.get_context("fork").Pool(1) as pool:
        back = pool.apply(echo, (w,))
    assert back[0] == 77 and back[1] == 88 and w[1] == 1 and np.load(path)[0] == 0


def test_clones_of_the_result_are_its_own(path):
    w = cowshed.writable(np.load(path, mmap_mode="r"))
    w[0] = 77
    c = cowshed.clone(w)
    w[0] = 78
    assert c[0] == 77
    kept = cowshed.snapshot({"w": w})
    w[0] = 79
    assert kept.state["w"][0] == 78
