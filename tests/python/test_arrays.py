# SPDX-License-Identifier: MIT
"""Arrays on storages: what NumPy would say, and who sees whose writes."""

import os
import pickle
import re
import subprocess
import weakref

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed import _cowshed  # noqa: E402

LARGE = 1 << 20
SHAPES = [(), 0, 5, (3, 4), (0, 3), (2, 0, 4), (1 << 18,), (100, 1000, 3)]
DTYPES = ["f4", ">i8", "?", "c16", "M8[D]", "U5", "i4,f8,S3", "V7", "f2"]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", DTYPES)
def test_like_numpy(dtype, order):
    for shape in SHAPES:
        there = np.zeros(shape, dtype, order)
        for x in (cowshed.zeros(shape, dtype, order), cowshed.empty(shape, dtype, order)):
            assert x.shape == there.shape and x.dtype == there.dtype
            assert x.strides == there.strides or not x.size
            assert x.flags.writeable and type(x) is np.ndarray
        assert cowshed.zeros(shape, dtype, order).tobytes() == there.tobytes()


def test_array_and_full():
    for x in ([1, 2], np.float32(3), np.asfortranarray(np.ones((2, 3))), range(5), b"ab",
              np.arange(10)[::-2], np.ones((4, 5)).T[1:]):
        y = cowshed.array(x)
        assert y.tolist() == np.asarray(x).tolist() and y.dtype == np.asarray(x).dtype
        assert cowshed.storage_of(y) is not None or y.nbytes < 4096
    assert cowshed.array([1, 2], "f4").dtype == "f4"
    assert cowshed.array(np.ones((2, 3)).T).flags.f_contiguous
    assert cowshed.full((2, 2), 7).dtype == np.full((2, 2), 7).dtype
    assert cowshed.full(3, 1.5).tolist() == [1.5] * 3


@pytest.mark.parametrize("wrong", [dict(shape=-1), dict(shape=(3, -2)), dict(shape=(-2, -3)),
                                   dict(dtype="O"), dict(order="K"), dict(shape=1 << 62),
                                   dict(shape=(1 << 32, 1 << 32)), dict(dtype=[("a", "O")])])
def test_wrong_arguments(wrong):
    before = cowshed.stats()["storages_live"]
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        cowshed.empty(**{"shape": 3, **wrong})
    assert cowshed.stats()["storages_live"] == before


VIEWS = {
    "whole": lambda x: x, "part": lambda x: x[100:-100], "backwards": lambda x: x[::-1],
    "columns": lambda x: x[:, 3:7], "transposed": lambda x: x.T, "one": lambda x: x[5, 5:6],
    "flat": lambda x: x.reshape(-1)[7:], "bytes": lambda x: x.view("u1"),
    "both": lambda x: x[::-2, ::-3], "none": lambda x: x[0:0],
    "wide": lambda x: np.broadcast_to(x[0], (3, x.shape[1])),
    "readonly": lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
    "memmap-like": lambda x: x[...], "scalar": lambda x: x[3, 4, ...],
}


@pytest.mark.parametrize("where", ["own", "shared", "foreign", "clone"])
@pytest.mark.parametrize("view", VIEWS)
def test_clones_of_any_view(where, view):
    x = np.arange(LARGE, dtype="f8").reshape(1024, 1024)
    if where in ("own", "clone"):
        x = cowshed.array(x)
    if where == "shared":
        x = cowshed.array(x, shared=True)
    if where == "clone":
        x = cowshed.clone(x)
    y = VIEWS[view](x)
    expected = y.copy()
    z = cowshed.clone(y)
    assert z.shape == y.shape and z.dtype == y.dtype and z.tolist() == expected.tolist()
    assert not cowshed.is_shared(z)
    x += 1
    assert z.tolist() == expected.tolist()
    if z.size and z.flags.writeable:
        before = y.copy()
        z[...] = 5
        assert y.tolist() == before.tolist()


def test_clones_of_clones():
    x = cowshed.zeros((LARGE,), "i4")
    chain = [x]
    for i in range(1, 20):
        chain.append(cowshed.clone(chain[-1]))
        chain[-1][i * 1000] = i
        chain[-2][5] = -i
    for i, y in enumerate(chain):
        assert [y[j * 1000] for j in range(1, 20)] == [j if j <= i else 0 for j in range(1, 20)]
    chain.clear()
    assert x[5] == -1


def test_who_is_counted_as_foreign():
    def foreign():
        stats = cowshed.stats()
        return stats["fallbacks"].get("foreign", 0), stats["fallback_bytes"].get("foreign", 0)

    own, other = cowshed.zeros(LARGE), np.arange(1000)
    before = foreign()
    cowshed.clone(own)
    assert foreign() == before
    cowshed.clone(other)
    assert foreign() == (before[0] + 1, before[1] + other.nbytes)


def test_share():
    x = cowshed.full((LARGE,), 3.0)
    assert not cowshed.is_shared(x)
    y = cowshed.share(x)
    assert cowshed.is_shared(y) and (y == 3).all() and cowshed.share(y) is y
    assert cowshed.share(y[5:]).base is not None and cowshed.is_shared(y[5:])
    x[0] = 4
    assert y[0] == 3
    assert cowshed.is_shared(cowshed.zeros(3, shared=True))
    assert cowshed.share(np.zeros(0)).size == 0


def test_freeze():
    x = cowshed.full((LARGE,), 3.0)
    for y in (cowshed.freeze(x), cowshed.freeze(x[::2]), cowshed.freeze(np.full(5, 3.0)),
              cowshed.freeze(cowshed.share(x)), cowshed.freeze(x[:3])):
        assert (y == 3).all() and not y.flags.writeable and cowshed.storage_of(y).readonly
        with pytest.raises(ValueError):
            y.flags.writeable = True
    frozen = cowshed.freeze(x)
    x[:] = 4
    assert (frozen == 3).all()
    z = cowshed.clone(frozen)
    z[0] = 5
    assert z.flags.writeable and frozen[0] == 3
    assert cowshed.freeze(frozen).tobytes() == frozen.tobytes()


@pytest.mark.parametrize("function", [cowshed.clone, cowshed.share, cowshed.freeze])
def test_errors_say_what_to_do(function):
    with pytest.raises(TypeError, match="snapshot"):
        function({"a": 1})
    with pytest.raises(TypeError, match="objects"):
        function(np.array([None]))
    with pytest.raises(TypeError, match="mask"):
        function(np.ma.array([1, 2], mask=[0, 1]))


def test_storages():
    s = cowshed.storage_of(cowshed.full((LARGE,), 1, "u1"))
    assert len(s) == s.nbytes == LARGE and s.kind == "own" and s.name is None
    assert repr(s) == f"<cowshed.Storage {s.id:#x} of {LARGE} bytes, own>" != repr(s.clone())
    assert s.info()["transparent"]
    assert bytes(s.clone(readonly=True))[:3] == b"\1\1\1"
    with pytest.raises(TypeError):
        memoryview(s.clone(readonly=True))[0] = 1
    assert cowshed.clone(s) is not s and cowshed.share(s).kind == "alias"
    assert cowshed.freeze(s).readonly
    with pytest.raises(TypeError):
        cowshed.Storage()
    gone = weakref.ref(s)
    view = memoryview(s)
    del s
    assert gone() is not None and view[0] == 1
    view.release()
    del view
    assert gone() is None


def test_where_things_are():
    x = cowshed.zeros((1000, 1000))
    s = cowshed.storage_of(x)
    assert cowshed.storage_of(x[5:]) is s and cowshed.storage_of(x.T[::-1]) is s
    assert cowshed.storage_of(memoryview(x)) is s and cowshed.storage_of(s) is s
    assert _cowshed.from_address(s.address + 8) == (s, 8)
    assert _cowshed.from_address(s.address + s.nbytes) is None
    for x in (None, 5, "text", [1], {}):
        assert cowshed.storage_of(x) is None


def test_arrays_are_ordinary_ones():
    x = cowshed.array(np.arange(LARGE))
    assert (pickle.loads(pickle.dumps(x)) == x).all()
    assert (np.from_dlpack(cowshed.storage_of(x)).view("i8") == x).all()
    y = x.copy()
    y.sort()
    assert np.shares_memory(x, x[3:]) and not np.shares_memory(x, y)
    assert x.sum() == y.sum()
    with pytest.raises(ValueError):
        x.resize(5)


def test_bad_modes():
    with pytest.raises(ValueError, match="sharing mode"):
        cowshed.set_sharing_mode("both")
    old = cowshed.get_sharing_mode()
    cowshed.set_sharing_mode("alias")
    try:
        assert cowshed.is_shared(cowshed.zeros(5)) and not cowshed.is_shared(
            cowshed.zeros(5, shared=False))
    finally:
        cowshed.set_sharing_mode(old)
    assert cowshed.get_sharing_mode() == old


def test_stats_and_options():
    stats = cowshed.stats()
    assert stats["storages_live"] >= 0 and isinstance(stats["fallbacks"], dict)
    x = cowshed.zeros(LARGE)
    now = cowshed.stats()
    assert now["storages_live"] == stats["storages_live"] + 1
    assert now["bytes_live"] >= stats["bytes_live"] + x.nbytes
    del x
    assert cowshed.stats()["storages_live"] == stats["storages_live"]
    with pytest.raises(ValueError, match="there is no option 'nonsense'$"):
        cowshed.set_option("nonsense", "1")
    with pytest.raises(ValueError, match="this option takes a percentage"):
        cowshed.set_option("heal", "51")
    with pytest.raises(RuntimeError, match="only be set before the first allocation"):
        cowshed.set_option("window", "8G")
    with pytest.raises(ProcessLookupError, match="has no statistics"):
        plain = {"PATH": os.environ["PATH"]}
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=plain) as other:
            try:
                cowshed.stats(other.pid)
            finally:
                other.stdin.close()
    assert all(isinstance(there, bool) and why for there, why in cowshed.features().values())
    assert isinstance(cowshed.trim(), bool)


def test_options_of_the_shim_are_set_by_its_variable():
    page = os.path.join(os.path.dirname(__file__), "../../docs/options.md")
    with open(page, encoding="utf-8") as text:
        keys = re.findall(r"^\| `([a-z-]+)` \| shim \|", text.read(), re.M)
    assert "threshold" in keys
    for key in keys:
        with pytest.raises(ValueError, match="this option is the shim's: COWSHED_OPTIONS sets"):
            cowshed.set_option(key, "1M")


def test_sizes_may_be_numbers_of_numpy():
    # Products of these are as small as they are.
    assert cowshed.zeros(np.uint8(200)).shape == (200,)
    assert cowshed.zeros((np.int32(30000), np.int32(30000))).nbytes == 7200000000
    for bad in 2.5, "ab", None, (1, 2.5):
        with pytest.raises(TypeError):
            cowshed.zeros(bad)


def test_storages_of_no_bytes():
    nothing = _cowshed.new(0)
    for other in cowshed.clone(nothing), cowshed.freeze(nothing):
        assert other.nbytes == 0
    assert cowshed.freeze(nothing).readonly


def test_what_dlpack_is_asked_wrongly():
    storage = _cowshed.new(100)
    for bad in {"dl_device": 5}, {"max_version": [1, 0]}, {"max_version": ("a", "b")}:
        with pytest.raises(TypeError):
            storage.__dlpack__(**bad)


@pytest.mark.parametrize("dtype", ["V0", []])
def test_elements_without_bytes(dtype):
    x = np.empty(3, np.dtype(dtype))
    for y in cowshed.clone(x), cowshed.freeze(x), cowshed.share(x), cowshed.array(x), \
            cowshed.snapshot(x).state:
        assert y.shape == x.shape and y.dtype == x.dtype and not y.nbytes


def test_no_bytes_are_shared_and_frozen_as_others_are():
    storage = cowshed.share(_cowshed.new(0))
    assert storage.nbytes == 0 and cowshed.is_shared(storage) and cowshed.share(storage) is storage
    for x in np.zeros(0), cowshed.zeros((3, 0)):
        shared = cowshed.share(x)
        assert cowshed.is_shared(shared) and cowshed.share(shared) is shared
        assert not cowshed.is_shared(x) and not cowshed.is_shared(cowshed.clone(shared))
        assert not cowshed.freeze(x).flags.writeable and x.flags.writeable
    assert cowshed.is_shared(cowshed.share(np.zeros(3))[1:1])


@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_clone_of_rows_that_are_one_has_rows_of_its_own(n):
    x = cowshed.zeros(n)
    for view in (np.broadcast_to(x, (3, n)),
                 np.lib.stride_tricks.sliding_window_view(x, n - 5)):
        y = cowshed.clone(view)
        y[0] = 7
        assert (y[0] == 7).all() and (y[1:] == 0).all() and (x == 0).all()


# ---- Tiny arrays ---------------------------------------------------------------------------


def resident():
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


TINY = {"clone": cowshed.clone, "array": cowshed.array, "zeros": lambda x: cowshed.zeros(3),
        "full": lambda x: cowshed.full(3, 1.0), "writable": cowshed.writable}


@pytest.mark.parametrize("make", TINY.values(), ids=TINY.keys())
def test_tiny_arrays_take_no_page_each(make):
    sources = [np.ones(3) for _ in range(5000)]
    make(sources[0])
    before = resident()
    plain = [x.copy() for x in sources]
    between = resident()
    ours = [make(x) for x in sources]
    assert resident() - between <= 2 * (between - before) + (1 << 20)
    assert len(plain) == len(ours) and ours[5].flags.writeable


def test_a_tiny_array_is_shared_where_it_shall_be():
    for make in lambda: cowshed.zeros(3, shared=True), lambda: cowshed.share(np.zeros(3)):
        assert cowshed.is_shared(make())
    with cowshed.sharing_mode("alias"):
        assert cowshed.is_shared(cowshed.zeros(3))
        assert not cowshed.is_shared(cowshed.clone(np.zeros(3)))
    assert cowshed.freeze(cowshed.zeros(3)).flags.writeable is False


# ---- What NumPy has, too -------------------------------------------------------------------


def test_ones_and_arange():
    for shape in 3, (2, 3), (600, 1000):
        for order in "CF":
            x, there = cowshed.ones(shape, "i4", order), np.ones(shape, "i4", order)
            assert (x == 1).all() and x.dtype == "i4" and x.strides == there.strides
    assert cowshed.ones(3).dtype == "f8"
    for args in (5,), (2, 9), (2, 9, 3), (9, 2, -2), (0.5, 4), (3, 3), (1 << 20,):
        assert cowshed.arange(*args).tolist() == np.arange(*args).tolist()
        assert cowshed.arange(*args).dtype == np.arange(*args).dtype
    assert cowshed.arange(4, dtype="f4").dtype == "f4"
    assert cowshed.storage_of(cowshed.arange(1 << 20)) is not None
    assert cowshed.is_shared(cowshed.arange(5, shared=True))
    assert cowshed.is_shared(cowshed.ones(5, shared=True))
    with pytest.raises(ZeroDivisionError):
        cowshed.arange(1, 2, 0)


@pytest.mark.parametrize("x", [np.arange(6.0), np.ones((600, 1000), ">i2"), [[1, 2]], 3,
                               np.asfortranarray(np.ones((3, 4))), np.ones((4, 6, 5)).T[:, 1:],
                               np.ones((2, 3, 4)).transpose(1, 0, 2), np.zeros((0, 3))])
def test_arrays_like_others(x):
    for ours, theirs in ((cowshed.zeros_like, np.zeros_like), (cowshed.ones_like, np.ones_like),
                         (cowshed.empty_like, np.empty_like),
                         (lambda x, **more: cowshed.full_like(x, 1, **more),
                          lambda x, **more: np.full_like(x, 1, **more))):
        for more in {}, {"dtype": "f4"}, {"order": "C"}, {"order": "F"}, {"shape": (2, 5)}:
            a, b = ours(x, **more), theirs(x, **more)
            assert (a.dtype, a.shape) == (b.dtype, b.shape), more
            steps = [(i, j) for i, j, n in zip(a.strides, b.strides, a.shape) if n > 1]
            assert all(i == j for i, j in steps) or not a.size, more
            assert ours is cowshed.empty_like or a.tolist() == b.tolist()
    assert cowshed.is_shared(cowshed.zeros_like(x, shared=True)) or not np.size(x)


def test_what_is_like_a_matrix_is_one():
    x = np.ones((3, 3)).view(np.matrix)
    assert type(cowshed.zeros_like(x)) is np.matrix
    assert type(cowshed.zeros_like(x, subok=False)) is np.ndarray


@pytest.mark.parametrize("shape", [1 << 62, 1 << 60, 1 << 58, (1 << 40, 1 << 40), 1 << 64, -1,
                                   2.5, "a", (2, "x")])
def test_sizes_that_numpy_refuses(shape):
    with pytest.raises(Exception) as theirs:
        np.zeros(shape)
    for make in cowshed.zeros, cowshed.empty, cowshed.ones, lambda n: cowshed.zeros(n, shared=True):
        with pytest.raises(Exception) as ours:
            make(shape)
        assert isinstance(theirs.value, type(ours.value)), (ours.value, theirs.value)
        if isinstance(ours.value, MemoryError):
            assert f"shape ({shape},)" in str(ours.value)
            assert "float64" in str(ours.value)
