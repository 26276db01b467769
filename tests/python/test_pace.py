# SPDX-License-Identifier: MIT
"""Savers that are watched, bounded and cancelled; and checkpoints every so many steps."""

import concurrent.futures
import errno
import hashlib
import os
import threading
import zlib

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed._states import _pace  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

MIB = 1 << 20
FORMATS = ["npy", "npz", "safetensors", pytest.param("pt", marks=needs_torch)]
EITHER = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])


def state_for(format, mib=4):
    array = cowshed.array(np.arange(mib * MIB // 8))
    if format == "npy":
        return array
    return {"w": torch.from_numpy(array) if format == "pt" else array}


def hung(path, format="npy", **how):
    """A saving that waits for its rate: it writes 64 KiB a second."""
    return cowshed.snapshot(state_for(format)).save_async(path, rate=65536, **how)


# ---- Progress ----------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("format", FORMATS)
def test_progress_reaches_the_size_of_the_file(tmp_path, format, process):
    path = tmp_path / f"x.{format}"
    saving = cowshed.snapshot(state_for(format)).save_async(path, process=process)
    saving.wait()
    progress = saving.progress()
    assert progress.done == path.stat().st_size == progress.total
    assert progress.seconds > 0 and progress.rate > 0 and progress.left == 0
    assert saving.progress() == progress  # the clock stands


@EITHER
def test_progress_is_seen_while_it_goes_on(tmp_path, process):
    saving = hung(tmp_path / "x.npy", process=process)
    seen = set()
    while len(seen) < 3:
        progress = saving.progress()
        assert progress.done <= progress.total == 4 * MIB + 128
        seen.add(progress.done)
    assert not saving.done() and saving.checksum is None
    assert saving.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        saving.wait()


def test_a_bar_is_for_terminals(tmp_path, monkeypatch):
    class Terminal:
        def __init__(self, is_one):
            self.said, self.isatty, self.flush = "", lambda: is_one, lambda: None

        def write(self, text):
            self.said += text

    for is_one in True, False:
        terminal = Terminal(is_one)
        monkeypatch.setattr("sys.stderr", terminal)
        saving = hung(tmp_path / "x.npy")
        with pytest.raises(TimeoutError):
            saving.wait(0.5, show=True)
        saving.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            saving.wait(show=True)
        assert ("x.npy" in terminal.said and "%" in terminal.said) == is_one


def test_a_bar_has_a_width():
    for progress in (_pace.Progress(0, 0, 0), _pace.Progress(5, 10, 1.0),
                     _pace.Progress(3 << 40, 3 << 40, 1e6)):
        for name in "x", "a/long/name" * 20:
            line = _pace.bar(progress, name)
            assert len(line) <= 79 and "\n" not in line
    assert "50%" in _pace.bar(_pace.Progress(5, 10, 1.0), "x")
    assert "5 s left" in _pace.bar(_pace.Progress(5, 10, 5.0), "x")


# ---- Rate and niceness -------------------------------------------------------------------------


def test_the_rate_holds():
    """By its own clock: it never is ahead of the rate by more than a piece."""
    pace = _pace.Pace(0, rate=10 * MIB)
    pace.begin()
    for _ in range(3):
        pace.before()
        progress = pace.progress()
        assert progress.done <= 10 * MIB * (progress.seconds + 0.2) + 1
        pace.wrote(memoryview(bytes(pace.most(64 * MIB))))
    assert pace.most(100) == 100


def test_a_pause_is_not_made_up_for(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_pace.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_pace.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    pace = _pace.Pace(0, rate=10 * MIB)
    pace.begin()
    now[0] += 60
    began = now[0]
    for _ in range(11):
        pace.before()
        pace.wrote(memoryview(bytes(MIB)))
    assert now[0] - began >= 0.8


def test_a_nice_saver_is_nicer_than_the_program(tmp_path):
    saving = hung(tmp_path / "x.npy", nice=5)
    saver = next(t for t in threading.enumerate() if t.name == "cowshed-save")
    while not saving.progress().done:
        pass
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert os.getpriority(os.PRIO_PROCESS, saver.native_id) == min(mine + 5, 19)
    saving.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        saving.wait()


@pytest.mark.parametrize("how", [
    {"rate": 0}, {"rate": -1}, {"rate": float("nan")}, {"nice": -1}, {"nice": 20}, {"nice": 2.0},
    {"checksum": "nonsense"}, {"checksum": 3}])
def test_bad_numbers_are_refused(tmp_path, how):
    snapshot = cowshed.snapshot(state_for("npy"))
    for save in (lambda: snapshot.save_async(tmp_path / "x.npy", **how),
                 lambda: cowshed.checkpoint(state_for("npy"), tmp_path / "x.npy", **how)):
        with pytest.raises(ValueError):
            save()
    assert os.listdir(tmp_path) == []


# ---- Cancel ------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("format", FORMATS)
def test_cancelled_savings_change_nothing(tmp_path, format, process):
    path = tmp_path / f"x.{format}"
    path.write_bytes(b"old")
    saving = hung(path, format, process=process)
    while not saving.progress().done:
        assert not saving.done()
    assert saving.cancel()
    for _ in range(2):
        with pytest.raises(concurrent.futures.CancelledError):
            saving.wait()
    assert not saving.cancel() and saving.done() and saving.checksum is None
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == b"old"


def test_a_process_is_cancelled_where_no_memory_can_be_made(tmp_path, monkeypatch):
    """As under a filter that denies memfds."""
    def denied(nbytes):
        raise PermissionError(errno.EPERM, "no memfds")

    monkeypatch.setattr(cowshed._memory._family, "alias_storage", denied)
    saving = cowshed.checkpoint({"w": np.zeros(MIB // 8)}, tmp_path / "x.npz", rate=65536)
    while not saving.progress().done:
        assert not saving.done()
    assert saving.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        saving.wait()
    assert os.listdir(tmp_path) == []


@EITHER
def test_it_is_too_late_to_cancel(tmp_path, process):
    saving = cowshed.snapshot(state_for("npy")).save_async(tmp_path / "x.npy", process=process)
    saving.wait()
    assert not saving.cancel()
    assert saving.wait() == str(tmp_path / "x.npy")


# ---- Checksums ---------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["crc32", "sha256"])
def test_checksums_are_of_the_file(tmp_path, format, process, name):
    path = tmp_path / f"x.{format}"
    saving = cowshed.snapshot(state_for(format, mib=9)).save_async(
        path, checksum=name, process=process)
    saving.wait()
    data = path.read_bytes()
    wanted = f"{zlib.crc32(data):08x}" if name == "crc32" else hashlib.sha256(data).hexdigest()
    assert saving.checksum == f"{name}:{wanted}"


# ---- A limit -----------------------------------------------------------------------------------


def test_snapshots_stay_below_their_limit():
    state = {"w": cowshed.zeros(MIB), "v": cowshed.zeros(MIB)}
    kept = cowshed.snapshot(state, limit=16 * MIB + 8192)
    with pytest.raises(MemoryError, match="limit"):
        cowshed.snapshot(state, limit=16 * MIB + 8192)
    del kept
    cowshed.snapshot(state, limit=16 * MIB + 8192)


def test_the_limit_counts_what_is_copied():
    x = np.ones(MIB)
    with pytest.raises(MemoryError):
        cowshed.snapshot({"w": x}, limit=x.nbytes - 1)
    kept = cowshed.snapshot({"w": x}, limit=x.nbytes)
    with pytest.raises(MemoryError):
        cowshed.snapshot({"w": x}, limit=2 * x.nbytes - 1)
    assert (kept.state["w"] == 1).all()


@needs_torch
def test_the_limit_counts_shared_memory_once():
    t = torch.ones(MIB // 16)
    state = {"a": t, "b": t.view(2, -1), "c": t[:5]}
    assert cowshed.snapshot(state, limit=t.nbytes).copied_bytes == t.nbytes
    with pytest.raises(MemoryError):
        cowshed.snapshot(state, limit=t.nbytes - 1)


def test_a_failed_saving_frees_its_snapshot(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    limit = state["w"].nbytes + 8192
    saver = cowshed.Checkpointer(tmp_path / "gone" / "{step}.npz", state, limit=limit)
    for turn in range(4):
        if turn % 2:
            with pytest.raises(FileNotFoundError):
                saver.step()
        else:
            assert saver.step()


@pytest.mark.parametrize("format", FORMATS)
def test_a_pipe_has_progress_and_a_checksum(tmp_path, format):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    saving = cowshed.snapshot(state_for(format)).save_async(path, format=format, checksum="crc32")
    saving.wait()
    reader.join()
    assert saving.progress().done == len(got[0]) == saving.progress().total
    assert saving.checksum == f"crc32:{zlib.crc32(got[0]):08x}"


@needs_torch
def test_tensors_that_share_memory_count_once(tmp_path):
    t = torch.zeros(MIB)
    saving = cowshed.snapshot({"a": t, "b": t, "c": t[:5].expand(4, 5)}).save_async(
        tmp_path / "x.pt", rate=65536)
    assert saving.progress().total <= t.nbytes + 8192
    saving.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        saving.wait()


# ---- Checkpoints of a loop ---------------------------------------------------------------------


def numbers(folder):
    return sorted(int(name.split(".")[0].split("-")[1]) for name in os.listdir(folder))


@EITHER
def test_every_few_steps(tmp_path, process):
    state = {"w": cowshed.zeros(MIB)}
    with cowshed.Checkpointer(tmp_path / "step-{step}.npz", state, every=3, keep=2,
                              process=process) as saver:
        assert saver.latest() is None
        for step in range(1, 14):
            state["w"][:] = step
            assert saver.step() == (step % 3 == 0)
    assert numbers(tmp_path) == [9, 12]
    assert saver.latest() == str(tmp_path / "step-12.npz")
    for step in 9, 12:
        assert (np.load(tmp_path / f"step-{step}.npz")["w"] == step).all()


def test_a_run_is_resumed(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    (tmp_path / "step-7.npz.part").write_bytes(b"of somebody else")
    (tmp_path / "step-007.npz").write_bytes(b"of somebody else")
    for first in 0, 4:
        with cowshed.Checkpointer(tmp_path / "step-{step}.npz", lambda: state, keep=3) as saver:
            saver.steps = first
            for _ in range(4):
                saver.step()
    assert saver.latest() == str(tmp_path / "step-8.npz")
    assert sorted(os.listdir(tmp_path)) == ["step-007.npz", "step-6.npz", "step-7.npz",
                                            "step-7.npz.part", "step-8.npz"]


def test_files_of_an_earlier_run_with_higher_numbers(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    for number in 100, 200, 300:
        (tmp_path / f"step-{number}.npz").write_bytes(b"earlier")
    (tmp_path / "step-0.npz").mkdir()
    with cowshed.Checkpointer(tmp_path / "step-{step}.npz", state, keep=2) as saver:
        for _ in range(5):
            saver.step()
    assert numbers(tmp_path) == [0, 4, 5, 100, 200, 300]
    assert saver.latest() == str(tmp_path / "step-300.npz")


def test_an_interruption_forgets_no_saving(tmp_path, monkeypatch):
    state = {"w": cowshed.zeros(MIB)}
    saver = cowshed.Checkpointer(tmp_path / "{step}.npz", state, keep=1)
    saver.step()
    saving = saver.saving

    def interrupted(timeout=None, *, show=False):
        raise KeyboardInterrupt

    monkeypatch.setattr(saving, "wait", interrupted)
    monkeypatch.setattr(saving, "done", lambda: False)
    with pytest.raises(KeyboardInterrupt):
        saver.step()
    monkeypatch.undo()
    with saver:
        assert saver.saving is saving
    assert saver.saving is None and os.listdir(tmp_path) == ["1.npz"]


@needs_torch
def test_a_module_is_a_state(tmp_path):
    with cowshed.Checkpointer(tmp_path / "{step}.pt", torch.nn.Linear(3, 3)) as saver:
        saver.step()
    assert os.listdir(tmp_path) == ["1.pt"]


def test_a_busy_saver_is_skipped(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    saver = cowshed.Checkpointer(tmp_path / "{step}.npz", state, skip=True, rate=65536)
    assert saver.step() and not saver.step()
    saver.saving.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        saver.wait()
    saver.wait()
    assert os.listdir(tmp_path) == []


def test_errors_come_with_the_next_save(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    saver = cowshed.Checkpointer(tmp_path / "gone" / "{step}.npz", state)
    assert saver.step()
    with pytest.raises(FileNotFoundError):
        saver.step()
    with pytest.raises(FileNotFoundError):
        with saver:
            saver.step()
    with pytest.raises(KeyError) as raised:  # the program's own error is the one that is told
        with saver:
            saver.step()
            raise KeyError
    assert "checkpoint failed" in raised.value.__notes__[0]


@pytest.mark.parametrize("path, how", [
    ("x.npz", {"keep": 1}), ("{step}-{step}.npz", {"keep": 1}), ("{step}/x.npz", {}),
    ("{step}.npz", {"every": 0}), ("{step}.npz", {"keep": 0}),
    ("{step}-{step}.npz", {}), ("{step}.npz", {"rate": 0}), ("{step}.npz", {"nice": 2.0}),
    ("{step}.npz", {"checksum": "x"}), ("{step}.odd", {}),
    ("{step}.npz", {"process": True, "limit": 1})])
def test_bad_checkpointers_are_refused(tmp_path, path, how):
    with pytest.raises(ValueError):
        cowshed.Checkpointer(tmp_path / path, {}, **how)


def test_one_file_is_replaced(tmp_path):
    state = {"w": cowshed.zeros(MIB)}
    with cowshed.Checkpointer(tmp_path / "x.npz", state) as saver:
        for step in range(3):
            state["w"][:] = step
            saver.step()
    assert os.listdir(tmp_path) == ["x.npz"] and saver.latest() == str(tmp_path / "x.npz")
    assert (np.load(tmp_path / "x.npz")["w"] == 2).all()


# ---- PyTorch's distributed checkpoints -----------------------------------------------------------


@needs_torch
def test_the_stager_of_async_save(tmp_path):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import cowshed.torch

    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 512))
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    wanted = {name: t.clone() for name, t in model.state_dict().items()}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        stager = cowshed.torch.Stager()
        for name in "one", "two":
            saving = dcp.async_save(state, checkpoint_id=str(tmp_path / name), async_stager=stager)
            for p in model.parameters():
                p.data.fill_(7)
            getattr(saving, "upload_completion", saving).result()
            got = {"model": {k: torch.zeros_like(t) for k, t in wanted.items()}}
            dcp.load(got, checkpoint_id=str(tmp_path / name))
            for key, t in got["model"].items():
                assert torch.equal(t, wanted[key] if name == "one" else torch.full_like(t, 7))
        stager.close()
    finally:
        dist.destroy_process_group()
    with pytest.raises(MemoryError):
        cowshed.torch.Stager(limit=1).stage({"w": cowshed.torch.zeros(MIB)})
