# SPDX-License-Identifier: MIT
"""clone(x, writes=...): what is copied at once, and what a place of a program teaches."""

import os
import subprocess
import sys
import time

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

LARGE = 1 << 20  # elements of 8 bytes
# Threads that run before the library is loaded are not seen: it can't heal beside them.
HEALS = "cowshed-preload" in os.environ.get("LD_PRELOAD", "")


def array():
    return cowshed.array(np.arange(float(LARGE)))


def own(x):
    """How much of a clone is its own, from 0 to 1."""
    storage = x if isinstance(x, cowshed.Storage) else cowshed.storage_of(x)
    return storage.info()["bytes_own"] / storage.nbytes


@pytest.fixture(autouse=True)
def fresh_memory():
    if "backing" in cowshed.stats()["fallbacks"]:
        pytest.skip("after forks new memory is from elsewhere, and clones are copies")
    cowshed._memory._writes._sites.clear()  # arrays of other tests were at these addresses


def test_all_is_copied_at_once():
    x = array()
    some, every = cowshed.clone(x, writes="some"), cowshed.clone(x, writes="all")
    assert own(some) < 0.1 and own(every) > 0.9
    every += 1
    assert (x == np.arange(float(LARGE))).all() and (every == x + 1).all() and (some == x).all()


def test_a_part_of_a_storage():
    x = array()
    part = cowshed.clone(x[LARGE // 4 : LARGE // 2], writes="all")
    part[:] = 0
    assert (x == np.arange(float(LARGE))).all() and not part.any()
    rows = cowshed.array(np.ones((1000, 1000)))
    every = cowshed.clone(rows[:, :900], writes="all")
    every[:] = 2
    assert (rows == 1).all()


def test_a_storage():
    x = cowshed.storage_of(array())
    assert own(x.clone()) < 0.1
    assert own(cowshed.clone(x, writes="all")) > 0.9
    assert own(cowshed.clone(x, writes="auto")) < 0.1


@pytest.mark.parametrize("x", [np.ones(10), np.ones(LARGE), cowshed.full((10,), 1.0),
                               np.ones((0,)), np.ones((600, 1000))[:, ::2],
                               cowshed.full((LARGE,), 1.0)[::-1],
                               cowshed.array(np.ones(LARGE), shared=True)])
@pytest.mark.parametrize("writes", ["all", "auto"])
def test_what_is_copied_anyway(x, writes):
    for _ in range(5):
        y = cowshed.clone(x, writes=writes)
        assert (y == x).all() and y.shape == x.shape
        y[...] = 2
        assert (x == 1).all()


def cloned_at_one_place(x, turns, written):
    """What part is copied at once, for each of many clones at one place."""
    result = []
    for _ in range(turns):
        y = cowshed.clone(x, writes="auto")
        result.append(round(own(y)))
        y[: int(len(y) * written)] += 1
    return result


def test_a_place_that_writes_all():
    assert cloned_at_one_place(array(), 70, 1) == [1] * 70


def test_a_place_that_writes_little():
    def place(written):
        return cloned_at_one_place(x, 8, written)

    x = array()
    assert place(0.01) == [1, 0, 0, 0, 0, 0, 0, 0]
    assert place(1) == [0, 1, 1, 1, 1, 1, 1, 1]
    assert place(0) == [1, 0, 0, 0, 0, 0, 0, 0]


def test_a_place_that_writes_a_word_of_each_page():
    """The words that are remembered do not see it, but clones that are not copied tell."""
    x, got = array(), []
    for _ in range(100):
        y = cowshed.clone(x, writes="auto")
        got.append(round(own(y)))
        y[7::512] += 1
    assert got[:2] == [1, 0] and got.count(0) <= 5, got


def test_clones_that_are_kept_are_not_copied():
    x = array()
    kept = [cowshed.clone(x, writes="auto") for _ in range(10)]
    assert [round(own(y)) for y in kept] == [1] + [0] * 9
    assert all((y == x).all() for y in kept)


def test_views_outlive_the_clone():
    """Nothing is known of a clone while the program can write it through a view."""
    x, got = array(), []
    for _ in range(9):
        y = cowshed.clone(x, writes="auto")[1:]
        got.append(round(own(y)))
        y += 1
    assert got == [1] * 9


def test_a_first_clone_for_which_there_is_no_memory(monkeypatch):
    monkeypatch.setattr(cowshed._memory._writes, "_LARGE", 1 << 20)
    monkeypatch.setattr(cowshed._memory._writes, "_available", lambda: 10 << 20)
    x, got = array(), []
    for _ in range(3):
        y = cowshed.clone(x, writes="auto")
        got.append(round(own(y)))
        y += 1
    assert got == [0, 1, 1]
    assert cowshed._memory._writes._available() == 10 << 20
    monkeypatch.undo()
    assert cowshed._memory._writes._available() > 1 << 20


@pytest.mark.parametrize("how, first", [("", 1), ("auto", 1), ("some", 0), ("all", 1)])
def test_the_default(how, first):
    program = f"""
import cowshed
x = cowshed.full(1 << 20, 1.0)
got = []
for _ in range(5):
    y = cowshed.clone(x)
    info = cowshed.storage_of(y).info()
    got.append(round(info["bytes_own"] / x.nbytes))
    y[5] = 2
assert got == [{first}] + [{int(how == "all")}] * 4, got
"""
    environment = {name: value for name, value in os.environ.items() if name != "COWSHED_WRITES"}
    if how:
        environment["COWSHED_WRITES"] = how
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_default_that_does_not_exist():
    got = subprocess.run([sys.executable, "-c", "import cowshed"], capture_output=True, text=True,
                         env={**os.environ, "COWSHED_WRITES": "most"})
    assert got.returncode == 1 and "COWSHED_WRITES is 'most'" in got.stderr


def test_a_place_that_clones_parts():
    x = array()
    assert cloned_at_one_place(x[: LARGE // 16], 10, 1)[:3] == [0, 0, 0]  # of the whole storage
    got = []
    for _ in range(9):
        y = cowshed.clone(x[: LARGE // 16], writes="auto")
        y += 1
        got.append(own(y) > 0)
    assert all(got)
    site = list(cowshed._memory._writes._sites.values())[-1]
    assert site._part > 0.9


def test_a_caller_without_a_frame():
    """C code calls clone() at the bottom of a thread's stack."""
    x = array()
    y = cowshed._memory._writes.clone(cowshed._memory._arrays._clone, x, "auto", 1 << 20)
    assert (y == x).all() and own(y) < 0.1


@needs_torch
def test_a_tensor_that_lives_on_as_a_parameter():
    import cowshed.torch

    t, got = cowshed.torch.full((LARGE,), 1.0), []
    for _ in range(9):
        p = torch.nn.Parameter(cowshed.torch.clone(t, writes="auto"))
        got.append(own(p) > 0.9)
        with torch.no_grad():
            p += 1
    assert all(got)


def test_many_places():
    x = array()
    for n in range(cowshed._memory._writes._SITES + 10):
        exec(compile("\n" * n + "cowshed.clone(x, writes='auto')", "place", "exec"),
             {"cowshed": cowshed, "x": x[:10]})
    assert len(cowshed._memory._writes._sites) <= cowshed._memory._writes._SITES


@pytest.mark.parametrize("writes", ["most", "", 1])
def test_other_words_are_refused(writes):
    for x in array(), cowshed.storage_of(array()):
        with pytest.raises(ValueError):
            cowshed.clone(x, writes=writes)


@needs_torch
def test_tensors():
    import cowshed.torch

    t = cowshed.torch.full((LARGE,), 1.0)
    for clone in cowshed.clone, cowshed.torch.clone:
        every = clone(t, writes="all")
        assert own(every) > 0.9
        every += 1
        assert (t == 1).all() and (every == 2).all()
        for _ in range(5):
            some = clone(t, writes="auto")
            some[0] = 5
        assert (t == 1).all()
        with pytest.raises(ValueError):
            clone(t, writes="most")
    with pytest.raises(TypeError):
        cowshed.torch.clone(3, writes="all")


# ---- Snapshots ----------------------------------------------------------------------------


def states_copied(x, turns, written, writes="auto"):
    """Which of several snapshots at one place copied the state, or all of the snapshot, at once."""
    result = []
    for turn in range(turns):
        before = x.copy()
        kept = cowshed.snapshot({"x": x}, writes=writes)
        result.append(kept.copied_bytes > x.nbytes // 2)
        x[: int(len(x) * written)] += turn
        assert (kept.state["x"] == before).all()
        assert kept.state["x"].flags.writeable is False
        del kept
    return result


def test_a_snapshot_of_a_state_that_is_rewritten():
    x, copies = array(), cowshed.stats()["fallbacks"].get("rewritten", 0)
    got = states_copied(x, 8, 1)
    assert not got[0] and all(got[1:3]) and all(got[4:]), got
    assert cowshed.stats()["fallbacks"].get("rewritten", 0) == copies, "a snapshot was a copy"
    assert x[0] == sum(range(8))


def test_a_snapshot_learns_of_pages_that_healed():
    """What was written page by page is shared memory again when the next snapshot is taken."""
    x = array()
    storage, got = cowshed.storage_of(x), []
    for _ in range(8):
        back = storage.info()["bytes_written_back"]
        kept = cowshed.snapshot({"x": x}, writes="auto")
        got.append(kept.copied_bytes > x.nbytes // 2)
        x += 1
        del kept
        end = time.monotonic() + (20 if HEALS else 0)
        while storage.info()["frozen"] and time.monotonic() < end:
            time.sleep(0.001)
        if not got[-1] and not storage.info()["frozen"]:
            assert storage.info()["bytes_written_back"] - back >= x.nbytes
    assert not got[0] and all(got[1:3]) and all(got[4:]), got


def test_a_snapshot_whose_state_is_copied_at_once():
    x, small = array(), np.ones(10)
    for turn in range(5):
        kept = cowshed.snapshot([x, small], writes="all")
        assert kept.cloned_bytes >= x.nbytes and kept.copied_bytes >= x.nbytes
        x += 1
        small += 1
        assert own(x) in (0, 1) and not cowshed.storage_of(x).info()["frozen"]
        assert (kept.state[0] == x - 1).all() and (kept.state[1] == small - 1).all()
        del kept


def test_a_snapshot_of_a_state_that_is_hardly_written():
    x = array()
    assert not any(states_copied(x, 20, 0.001))


def place(x, written):
    return states_copied(x, 1, written)[0]


def test_a_snapshot_learns_in_both_directions():
    x, y = array(), array()
    turns = [1] * 6 + [0.001] * 14 + [1] * 4
    got = [(place(x, written), place(y, 0.001)) for written in turns]
    assert all(copied for copied, _ in got[1:3]), got
    assert not any(copied for copied, _ in got[17:20]), got  # the 16th was looked at
    assert all(copied for copied, _ in got[21:]), got
    assert not any(copied for _, copied in got), got  # another storage, at the same place


def test_a_checkpointer_learns(tmp_path):
    x = array()
    with cowshed.Checkpointer(tmp_path / "{step}.npz", {"x": x}, writes="auto", keep=9) as saver:
        for turn in range(8):
            saver.wait()
            saver.step()
            x += 1
    for step in range(1, 9):
        assert (np.load(tmp_path / f"{step}.npz")["x"] == x - 9 + step).all()
    sites = [s for key, s in cowshed._memory._writes._sites.items()
             if key[0].endswith("_checkpointer.py")]
    assert max(site._part for site in sites) > 0.9
    for wrong in dict(writes="most"), dict(writes="all", process=True):
        with pytest.raises(ValueError):
            cowshed.Checkpointer(tmp_path / "{step}.npz", {}, **wrong)


def test_writes_that_add_up():
    """Pages here and there, others each time: they are copied away once, not at each snapshot."""
    x, got = cowshed.array(np.arange(4.0 * LARGE)), []
    for turn in range(12):
        before = x.copy()
        kept = cowshed.snapshot(x, writes="auto")
        got.append(kept.copied_bytes > x.nbytes // 2)
        # Nothing heals beside the snapshot. What healed before it counts no more.
        info = cowshed.storage_of(x).info()
        added = info["bytes_own"] / x.nbytes if info["frozen"] else 0
        assert got[-1] or added < 0.13, (turn, added)
        x.reshape(-1, 512)[turn::24] += 1
        assert (kept.state == before).all()
        del kept
    assert sum(got) <= 6, got


def test_only_the_arrays_of_the_state_are_copied():
    """Others may write the rest of a storage meanwhile."""
    whole = cowshed.array(np.arange(8.0 * LARGE))
    part = whole[: 2 * LARGE]
    kept = cowshed.snapshot(part, writes="all")
    assert kept.copied_bytes <= part.nbytes
    whole += 1
    assert (kept.state == np.arange(2.0 * LARGE)).all()


def test_snapshots_of_other_memory():
    shared, frozen = cowshed.array(np.ones(LARGE), shared=True), cowshed.freeze(array())
    state = {"foreign": np.ones(LARGE), "shared": shared, "frozen": frozen, "number": 3,
             "strided": array()[::2], "none": None, "empty": np.ones(0), "reversed": array()[::-1]}
    for writes in "all", "auto", "all", "auto":
        kept = cowshed.snapshot(state, writes=writes)
        shared += 1
        state["foreign"] += 1
        assert (kept.state["shared"] == shared - 1).all()
        assert (kept.state["foreign"] == state["foreign"] - 1).all()
        assert (kept.state["strided"] == state["strided"]).all()
        assert (kept.state["frozen"] == frozen).all() and kept.state["number"] == 3
    assert cowshed.snapshot({}, writes="auto").state == {}
    with pytest.raises(MemoryError):
        cowshed.snapshot(array(), limit=100, writes="all")
    for writes in "most", None, 1:
        with pytest.raises(ValueError):
            cowshed.snapshot(state, writes=writes)
