# SPDX-License-Identifier: MIT
"""Messages: what travels by handle, what by copy, and what stays what it was."""

import copy
import pickle

import numpy
import pytest

import cowshed
from cowshed import _cowshed
from cowshed._pyobjects import _pickle

ALIAS, CLONE, SEALED = _cowshed.ALIAS, _cowshed.CLONE, _cowshed.SEALED


def trip(x, mode=CLONE):
    """What arrives in this very process (the same storages), and the parcels."""
    data, parcels = _pickle.dumps(x, mode)
    return _pickle.loads(data, [parcel[0] for parcel in parcels]), parcels


def arrays():
    big = numpy.arange(1 << 17)
    yield big
    yield big[::-1]
    yield big[5:]
    yield big[::2]
    yield big.reshape(256, 512).T
    yield big.reshape(256, 512)[::-1, ::2]
    yield numpy.asfortranarray(big.reshape(256, 512))
    yield big.view("M8[s]")
    yield big.astype(">i4")
    yield big.astype("c16")
    yield big.astype("S9")
    yield big.astype("U9")
    yield numpy.zeros(1 << 14, [("a", "i1"), ("b", "f8", (2,))])
    yield numpy.broadcast_to(numpy.arange(4.0), (50000, 4))
    yield numpy.arange(10)
    yield numpy.array(7)
    yield numpy.zeros((0, 3))
    yield numpy.array(["a", None, 1 << 70], dtype=object)
    yield numpy.matrix(big.reshape(2, -1))
    yield numpy.ma.masked_array(big, big % 2)
    yield numpy.rec.array([(1, 2.0)] * 9000, dtype=[("x", "i4"), ("y", "f4")])
    for code in "?bhilqBHILQefdgFDGMm":
        yield big[:50].astype(code)
        yield big[:50].astype(code)[::-2].reshape(5, 5)
    big = big[:60].copy()
    big.flags.writeable = False
    yield big
    yield numpy.asfortranarray(big.reshape(5, 12))


@pytest.mark.parametrize("mode", [CLONE, ALIAS])
@pytest.mark.parametrize("i", range(len(list(arrays()))))
def test_any_array(i, mode):
    x = list(arrays())[i]
    y, _ = trip(x, mode)
    plain = pickle.loads(pickle.dumps(x, 5))
    assert type(y) is type(plain) and y.dtype == plain.dtype and y.shape == plain.shape
    assert y.flags.writeable == x.flags.writeable
    numpy.testing.assert_array_equal(y, plain)


@pytest.mark.parametrize("i", range(12))
def test_views_on_storages(i):
    x = list(arrays())[i]
    low, high = numpy.lib.array_utils.byte_bounds(x) if hasattr(
        numpy.lib, "array_utils"
    ) else numpy.byte_bounds(x)
    storage = _cowshed.new(high - low)
    first = -sum((n - 1) * s for n, s in zip(x.shape, x.strides) if s < 0)
    y = numpy.ndarray(x.shape, x.dtype, storage, first, x.strides)
    y[...] = x
    z, parcels = trip(y)
    assert [p[0] for p in parcels] == [storage]  # itself, not a copy
    assert z.strides == y.strides and numpy.shares_memory(z, y)
    numpy.testing.assert_array_equal(z, x)


def test_views_share_on_arrival():
    x = cowshed.zeros(1 << 17)
    (a, b, c), parcels = trip([x, x[7:], x])
    assert len(parcels) == 1 and a is c
    a[7] = 3
    assert b[0] == 3


@pytest.mark.parametrize("small", [True, False])
def test_shared_is_sent_as_it_is(small):
    x = cowshed.zeros(4 if small else 1 << 17, shared=True)
    y, parcels = trip({"x": x[1:]})
    assert [p[3] for p in parcels] == [ALIAS]
    y["x"][0] = 5
    assert x[1] == 5


def test_alias_mode_copies_once():
    x = cowshed.zeros(1 << 17, shared=False)
    (a, b), parcels = trip([x, x[1:]], ALIAS)
    assert [p[3] for p in parcels] == [ALIAS]
    a[1] = 1
    assert b[0] == 1 and x[1] == 0


def test_alias_mode_copies_what_is_used():
    x = cowshed.zeros((64, 1 << 14), shared=False)
    (a, b, c), parcels = trip([x[5], x[6], x[6, 7:]], ALIAS)
    assert [p[3] for p in parcels] == [ALIAS]
    assert sum(p[0].nbytes for p in parcels) == 2 * x[5].nbytes
    b[7] = 1
    assert c[0] == 1 and not a.any() and not x.any()
    storage = _cowshed.new(0)
    assert trip([storage, x[0]], ALIAS)[0][0].nbytes == 0


def test_frozen_is_sealed():
    x = cowshed.freeze(cowshed.zeros(1 << 17))
    for mode in CLONE, ALIAS:
        y, parcels = trip(x, mode)
        assert [p[3] for p in parcels] == [SEALED] and not y.flags.writeable


def test_small_view_pins_nothing_big():
    x = cowshed.zeros((1024, 1024))
    x[5] = 1
    (y, z), parcels = trip([x[5], x[6]])
    assert sum(p[0].nbytes for p in parcels) < x.nbytes / 8
    assert y.sum() == 1024 and z.sum() == 0
    wide = cowshed.zeros((4, 65536))
    wide[2] = 2
    wide[3] = 3
    big = cowshed.zeros((16, 65536))
    big[5] = 5
    big[6] = 6
    (a, b, c), parcels = trip([big[5], big[6], wide])
    assert [p[0].nbytes for p in parcels] == [2 * 65536 * 8, wide.nbytes]
    assert a.min() == 5 and b.max() == 6 and c.sum() == 5 * 65536
    column, parcels = trip(big[:, 7])
    assert column.nbytes == 128 and not parcels


def test_what_is_small_and_alone_needs_no_message(monkeypatch):
    """Plain pickle writes it; what looks alike and is not small or not alone, it does not."""
    small = [7, None, 1.5, True, "text", b"bytes", numpy.arange(10), numpy.ones((2, 3), "c8")]
    others = [[7], b"bytes" * 9000, small[6][::2], cowshed.array(numpy.arange(1000))]
    trip(small[6])  # the first array of a program makes NumPy known
    monkeypatch.setattr(_pickle, "Message", None)
    for x in small:
        arrived, parcels = trip(x)
        assert type(arrived) is type(x) and not parcels
        assert numpy.array_equal(arrived, x)
        assert getattr(arrived, "dtype", None) == getattr(x, "dtype", None)
    assert trip(small[6])[0].flags.writeable
    for x in others:
        with pytest.raises(TypeError):
            trip(x)
    with pytest.raises(TypeError):
        trip(small[6], ALIAS)


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("size", [10, 65535, 65536, 1 << 20])
def test_bytes(kind, size):
    x = kind(i % 251 for i in range(size))
    (y, z), parcels = trip([x, x])
    assert type(y) is kind and y == x and y is z
    assert len(parcels) == (size >= 65536)


def test_buffers_of_others():
    class Buffer:
        def __init__(self, buffer):
            self.buffer = buffer

        def __reduce_ex__(self, protocol):
            return Buffer, (pickle.PickleBuffer(self.buffer),)

    globals()["Buffer"] = Buffer
    Buffer.__qualname__ = "Buffer"
    for readonly in True, False:
        data = bytes(1 << 17) if readonly else bytearray(1 << 17)
        y, parcels = trip(Buffer(data))
        assert len(parcels) == 1
        assert y.buffer == data and memoryview(y.buffer).readonly == readonly


def test_thousands_in_one_message():
    x = [numpy.full(10, i) for i in range(3000)]
    for mode in CLONE, ALIAS:
        y, parcels = trip(x, mode)
        assert len(parcels) < 1000
        assert [int(v[3]) for v in y] == list(range(3000))


def test_storages_themselves():
    s = _cowshed.new(100)
    memoryview(s)[:] = bytes(range(100))
    t, parcels = trip([s, s])
    assert t == [s, s] and len(parcels) == 1
    copied = pickle.loads(pickle.dumps(s))
    assert copied is not s and bytes(copied) == bytes(s) and not copied.readonly
    sealed = cowshed.freeze(s)
    again = copy.deepcopy(sealed)
    assert again.readonly and bytes(again) == bytes(s)


def test_errors_are_pickles():
    for x in (lambda: 0), [memoryview(b"x")]:
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            _pickle.dumps(x)
    assert _pickle.current() is None


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": numpy.arange(50000.0), "b": ["x"] * 50000})
    back, parcels = trip(frame)
    pandas.testing.assert_frame_equal(back, frame)
    assert parcels
