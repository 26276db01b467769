# SPDX-License-Identifier: MIT
"""Arrays over os.fork(): both sides have the bytes of that moment, shared ones stay shared."""

import os
import traceback

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

LARGE = 1 << 20


def in_child(function):
    """Runs it in a forked child, whose failure is the test's."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_each_has_its_own_bytes():
    x, y = cowshed.full((LARGE,), 1.0), np.full(LARGE, 1.0)
    clone = cowshed.clone(x)
    shared = cowshed.share(x)

    def child():
        assert (x == 1).all() and (clone == 1).all() and (y == 1).all()
        x[:] = clone[:] = y[:] = 2
        shared[5] = 2

    in_child(child)
    assert (x == 1).all() and (clone == 1).all() and (y == 1).all()
    assert shared[5] == 2 and shared[4] == 1


def test_clones_and_arrays_made_by_a_child():
    x = cowshed.array(np.arange(LARGE, dtype="f8"))
    view = x[::-1]

    def child():
        y = cowshed.clone(x)
        z = cowshed.clone(view)
        x[:] = 0
        assert (y == np.arange(LARGE)).all() and (z == y[::-1]).all()
        frozen = cowshed.freeze(y)
        y[:] = 1
        assert frozen[5] == 5
        assert cowshed.storage_of(view) is cowshed.storage_of(x)
        made = [cowshed.zeros(LARGE) for _ in range(5)]
        assert all((m == 0).all() for m in made)
        in_child(lambda: made[0].fill(3))
        assert made[0][0] == 0

    in_child(child)
    assert (x == np.arange(LARGE)).all()


def test_what_a_child_made_before_it_dies_is_gone():
    before = cowshed.stats()["bytes_live"]
    x = cowshed.zeros(LARGE)

    def child():
        keep = [cowshed.clone(x) for _ in range(10)]
        for i, y in enumerate(keep):
            y[:] = i

    for _ in range(3):
        in_child(child)
    x = None
    assert cowshed.stats()["bytes_live"] <= before + (1 << 20)


def test_mapped_files(tmp_path):
    path = str(tmp_path / "x.npy")
    np.save(path, np.zeros(LARGE))
    mine, ours = cowshed.open(path), cowshed.open(path, "r+")

    def child():
        mine[0] = 1
        ours[1] = 2

    in_child(child)
    assert mine[0] == 0 and ours[1] == 2


def test_a_snapshot_is_the_same_in_both(tmp_path):
    x = cowshed.full((LARGE,), 1.0)
    snapshot = cowshed.snapshot({"x": x})

    def child():
        x[:] = 3
        snapshot.save(str(tmp_path / "child.npz"))
        assert (snapshot.state["x"] == 1).all()

    in_child(child)
    x[:] = 2
    assert (snapshot.state["x"] == 1).all()
    with np.load(str(tmp_path / "child.npz")) as there:
        assert (there["x"] == 1).all()


def test_relatives_over_generations():
    x = cowshed.array(np.arange(LARGE))
    shared = cowshed.zeros(10, "i8", shared=True)

    def child(depth):
        shared[depth] += 1
        x[depth] = -1
        y = cowshed.clone(x)
        if depth < 5:
            in_child(lambda: child(depth + 1))
        assert (y[: depth + 1] == -1).all() and y[depth + 1] == depth + 1

    in_child(lambda: child(0))
    assert shared.tolist() == [1] * 6 + [0] * 4 and x[0] == 0
