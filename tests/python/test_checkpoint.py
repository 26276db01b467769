# SPDX-License-Identifier: MIT
"""Checkpoints: that the forked process has the moment, though it shares memory, and that files
come in the order in which they were asked for."""

import collections
import multiprocessing.shared_memory
import os
import signal
import threading

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed._states import _save, _saving  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

LARGE = 1 << 18
Point = collections.namedtuple("Point", "x y")


@pytest.fixture
def gate(monkeypatch):
    """Each file is written when gate() is called, and not before; after gate.open() at once."""
    reader, writer = os.pipe()
    write = _saving._write

    def wait(*args):
        os.close(writer)
        os.read(reader, 1)
        return write(*args)

    monkeypatch.setattr(_saving, "_write", wait)

    def gate():
        os.write(writer, b"x")

    gate.open = lambda: monkeypatch.setattr(_saving, "_write", write)
    yield gate
    os.close(writer)
    os.close(reader)


# ---- Memory that a forked process shares -----------------------------------------------------


def a_mapped_file(tmp_path, mode):
    path = str(tmp_path / f"{mode}.npy")
    np.save(path, np.ones(LARGE))
    return path


def aliases(tmp_path):
    x = cowshed.array(np.ones(LARGE), shared=True)
    yield x, x
    small = cowshed.array(np.ones(10), shared=True)
    yield small, small[::-1]
    yield small, small.reshape(2, 5).T


def files(tmp_path):
    x = cowshed.open(a_mapped_file(tmp_path, "r+"), "r+")
    yield x, x
    yield x, x[5:50:3]
    for mode in "r", "c":
        path = a_mapped_file(tmp_path, mode)
        yield cowshed.open(path, "r+"), cowshed.open(path, mode)


def memory_of_others(tmp_path):
    x = np.load(a_mapped_file(tmp_path, "memmap"), mmap_mode="r+")
    yield x, x
    x = np.asarray(np.load(a_mapped_file(tmp_path, "plain"), mmap_mode="r+"))
    yield x, x
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=LARGE * 8)
    x = np.ndarray(LARGE, "f8", memory.buf)
    yield x, x
    del x
    memory.close()
    memory.unlink()


@pytest.mark.parametrize("kind", [aliases, files, memory_of_others])
def test_shared_memory_is_of_the_moment(tmp_path, gate, kind):
    path = str(tmp_path / "state.npz")
    for written, x in kind(tmp_path):
        written[...] = 1
        saving = cowshed.checkpoint({"x": x, "own": np.ones(3)}, path)
        written[...] = 2
        gate()
        saving.wait()
        found = np.load(path)
        assert found["x"].shape == x.shape and (found["x"] == 1).all()
        assert (found["own"] == 1).all()
        written = x = None


@needs_torch
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_shared_tensors_are_of_the_moment(tmp_path, gate, suffix):
    import cowshed.torch

    path = str(tmp_path / f"state.{suffix}")
    theirs, ours = torch.nn.Linear(300, 400), cowshed.torch.full((500, 600), 1.0, shared=True)
    torch.nn.init.ones_(theirs.weight)
    theirs.share_memory()
    state = {"theirs": theirs.weight, "ours": ours, "view": ours[3:40].t().contiguous(),
             "own": torch.ones(5)}
    saving = cowshed.checkpoint(state, path)
    with torch.no_grad():
        for x in state.values():
            x.fill_(2)
    gate()
    saving.wait()
    found = torch.load(path) if suffix == "pt" else cowshed.open(path, framework="torch")
    for name, x in state.items():
        assert (found[name] == 1).all() and found[name].shape == x.shape, name
    if suffix == "pt":
        assert type(found["theirs"]) is torch.nn.Parameter and found["theirs"].requires_grad


@needs_torch
def test_a_state_with_shared_memory_keeps_its_shape(tmp_path, gate):
    import cowshed.torch

    path = str(tmp_path / "state.pt")
    x = cowshed.torch.full((1000, 2), 1.0, shared=True)
    plain = torch.ones(4)
    state = collections.OrderedDict(
        a=[x, x[10:], (x.t(), Point(plain, plain[1:]))], d={"sparse": torch.eye(3).to_sparse()},
        n=np.arange(3), o=range(3), s=torch.Size([1, 2]))
    saving = cowshed.checkpoint(state, path)
    x.fill_(2)
    gate()
    saving.wait()
    found = torch.load(path, weights_only=False)
    assert type(found) is collections.OrderedDict and list(found) == list(state)
    assert found["n"].tolist() == [0, 1, 2] and found["o"] == range(3)
    whole, part, (turned, point) = found["a"]
    assert (whole == 1).all() and type(point) is Point and found["s"] == (1, 2)
    whole[10, 0] = 5
    point.x[1] = 6
    assert part[0, 0] == 5 and turned[0, 10] == 5 and point.y[0] == 6
    assert found["d"]["sparse"].to_dense()[2, 2] == 1


def test_what_is_not_shared_is_not_copied(tmp_path):
    state = {"own": cowshed.zeros(LARGE), "foreign": np.zeros(LARGE), "small": [np.ones(3)],
             "frozen": cowshed.freeze(cowshed.zeros(LARGE))}
    before = cowshed.stats()["fallbacks"].get("foreign", 0)
    cowshed.checkpoint(state, str(tmp_path / "state.npz")).wait()
    assert cowshed.stats()["fallbacks"].get("foreign", 0) == before


def test_without_proc_all_that_is_foreign_is_copied(tmp_path, gate, monkeypatch):
    import builtins

    from cowshed._states import _for_fork

    def denied(path, *args):
        if path == "/proc/self/maps":
            raise PermissionError(path)
        return builtins.open(path, *args)

    monkeypatch.setattr(_for_fork, "open", denied, raising=False)
    x = np.load(a_mapped_file(tmp_path, "x"), mmap_mode="r+")
    saving = cowshed.checkpoint({"x": x}, str(tmp_path / "state.npz"))
    x[:] = 2
    gate()
    saving.wait()
    assert (np.load(saving.path)["x"] == 1).all()


@pytest.mark.parametrize("how", ["snapshot", "checkpoint"])
def test_a_record_is_of_the_moment(tmp_path, gate, how):
    for records in np.zeros(3, "i4,f8"), cowshed.zeros(3, "i4,f8", shared=True):
        path, state = str(tmp_path / "x.npz"), {"x": records[1]}
        if how == "snapshot":
            kept = cowshed.snapshot(state)
            records[1] = (5, 6.0)
            kept.save(path)
        else:
            saving = cowshed.checkpoint(state, path)
            records[1] = (5, 6.0)
            gate()
            saving.wait()
        assert np.load(path)["x"].tolist() == (0, 0.0)


# ---- Several at one name -----------------------------------------------------------------------


@pytest.mark.parametrize("later", ["checkpoint", "thread", "save"])
def test_a_later_file_is_not_replaced_by_an_earlier_one(tmp_path, gate, later):
    path = str(tmp_path / "state.npz")
    states = [{"x": np.full(3, float(i))} for i in range(4)]
    first, second = cowshed.checkpoint(states[0], path), cowshed.checkpoint(states[1], path)
    gate.open()
    if later == "checkpoint":
        cowshed.checkpoint(states[2], path).wait()
    elif later == "thread":
        cowshed.snapshot(states[2]).save_async(path).wait()
    else:
        cowshed.save(path, states[2])
    for saving in first, second:
        gate()
    for saving in first, second:
        assert saving.wait() == path
    assert (np.load(path)["x"] == 2).all() and os.listdir(tmp_path) == ["state.npz"]
    cowshed.checkpoint(states[3], path)
    _saving._wait_for_all()
    assert (np.load(path)["x"] == 3).all()


def test_an_earlier_thread_does_not_replace_what_a_process_wrote(tmp_path, monkeypatch):
    path, go, write = str(tmp_path / "x.npy"), threading.Event(), _save.Plan._write
    main = os.getpid()

    def slowly(plan, fd):
        if os.getpid() == main:
            go.wait()
        write(plan, fd)

    monkeypatch.setattr(_save.Plan, "_write", slowly)
    first = cowshed.snapshot(np.ones(3)).save_async(path)
    cowshed.checkpoint(np.full(3, 2.0), path).wait()
    go.set()
    assert first.wait() == path
    assert np.load(path).tolist() == [2, 2, 2] and os.listdir(tmp_path) == ["x.npy"]


def test_an_earlier_file_stays_where_the_later_one_fails(tmp_path, gate, monkeypatch):
    path = str(tmp_path / "x.npy")
    first = cowshed.checkpoint(np.ones(3), path)
    monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    second = cowshed.checkpoint(np.full(3, 2.0), path)
    monkeypatch.undo()
    gate()
    gate()
    with pytest.raises(ChildProcessError, match="SIGKILL"):
        second.wait()
    first.wait()
    assert np.load(path).tolist() == [1, 1, 1] and os.listdir(tmp_path) == ["x.npy"]


def test_a_handler_that_saves_what_is_being_saved(tmp_path, monkeypatch):
    path, replace = str(tmp_path / "x.npy"), os.replace

    def interrupted(*args):
        replace(*args)
        monkeypatch.setattr(os, "replace", replace)
        cowshed.save(path, np.full(3, 2.0))

    order = _save._orders[path] = _save._Order()  # as if others wrote there
    monkeypatch.setattr(os, "replace", interrupted)
    cowshed.save(path, np.ones(3))
    assert np.load(path).tolist() == [2, 2, 2]
    del order
    assert path not in _save._orders


def test_savings_where_nothing_can_be_shared(tmp_path, monkeypatch):
    def denied():
        raise OSError

    monkeypatch.setattr(_save, "_Order", denied)
    path = str(tmp_path / "x.npy")
    assert cowshed.checkpoint(np.ones(3), path).wait() == path
