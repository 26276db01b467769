# SPDX-License-Identifier: MIT
"""Subclasses of numpy.ndarray: each call keeps the type, or refuses it."""

import copy
import warnings

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

warnings.filterwarnings("ignore", category=PendingDeprecationWarning)  # numpy.matrix
CALLS = {"clone": cowshed.clone, "freeze": cowshed.freeze, "share": cowshed.share,
         "writable": cowshed.writable, "deepcopy of a snapshot": lambda x:
         cowshed.snapshot({"x": x}).state["x"],
         "all": lambda x: cowshed.clone(x, writes="all"),
         "auto": lambda x: cowshed.clone(x, writes="auto")}
SIZES = {"small": 20, "large": 400}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
sizes = pytest.mark.parametrize("n", SIZES.values(), ids=SIZES.keys())
homes = pytest.mark.parametrize("home", [np.array, cowshed.array], ids=["foreign", "ours"])


class Metres(np.ndarray):
    """An array with an attribute, as of units."""

    def __array_finalize__(self, x):
        self.unit = getattr(x, "unit", "m")


@calls
@homes
@sizes
def test_a_matrix_multiplies_as_a_matrix(call, home, n):
    m = home(np.eye(n) * 2 + 1).view(np.matrix)
    got = call(m)
    assert type(got) is np.matrix and (got * got == m * m).all() and (got * got)[0, 1] == n + 4


@calls
@homes
@sizes
def test_a_record_array_has_its_fields(call, home, n):
    x = home(np.zeros(n * n, [("a", "f8"), ("b", "i4")])).view(np.recarray)
    x.a[:] = np.arange(n * n)
    got = call(x)
    assert type(got) is np.recarray and got.dtype == x.dtype and got.dtype.type is np.record
    assert (got.a == np.arange(n * n)).all() and got[5].a == 5


@calls
@homes
@sizes
def test_what_a_subclass_says_of_itself_is_kept(call, home, n):
    x = home(np.arange(n * n * 2.0))[::2].view(Metres)
    x.unit = "km"
    got = call(x)
    assert type(got) is Metres and got.unit == "km" and (got == x).all()
    if got.flags.writeable:
        got[0] = 5
        assert call is CALLS["share"] and cowshed.is_shared(x) or x[0] == 0


@pytest.mark.parametrize("call", ["clone", "freeze", "share", "writable"])
@sizes
def test_a_memmap_becomes_a_plain_array(call, n, tmp_path):
    x = np.memmap(tmp_path / "x", "f8", "w+", shape=(n, n))
    x[:] = 3
    got = CALLS[call](x)
    assert type(got) is np.ndarray and (got == 3).all()


@sizes
def test_an_empty_one(n):
    got = cowshed.clone(np.zeros((0, n)).view(Metres))
    assert type(got) is Metres and got.shape == (0, n)


class Grows(np.ndarray):
    """Its finalizer fails for a copy."""

    allowed = True

    def __array_finalize__(self, x):
        if not Grows.allowed:
            raise RuntimeError("no more of these")


@pytest.mark.parametrize("call", ["clone", "freeze", "share", "writable"])
@sizes
def test_it_is_refused_with_its_reason(call, n):
    x = np.arange(n * n * 1.0).view(Grows)
    before = copy.copy(x)
    Grows.allowed = False
    try:
        with pytest.raises(TypeError, match="Grows.*no more of these"):
            CALLS[call](x)
    finally:
        Grows.allowed = True
    assert (x == before).all()
