# SPDX-License-Identifier: MIT
"""Snapshots: the bytes of a moment, and what becomes of them when savers fail."""

import collections
import ctypes
import mmap
import os
import signal
import threading

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

LARGE = 1 << 20
Point = collections.namedtuple("Point", "x y")


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- What is in it ---------------------------------------------------------------------------


# Without the shim the library does not learn of such calls.
@pytest.mark.skipif(not os.environ.get("COWSHED_TEST_SHIM"), reason="needs the shim")
def test_memory_that_cannot_be_read_is_an_error():
    libc = ctypes.CDLL(None)
    a = np.ones(8 * LARGE, dtype=np.uint8)
    page = ctypes.c_void_p(-(-a.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE + LARGE)
    assert libc.mprotect(page, mmap.PAGESIZE, 0) == 0
    with pytest.raises(OSError, match="unmapped or protected"):
        cowshed.snapshot({"a": a})
    assert libc.mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    assert (cowshed.snapshot({"a": a}).state["a"] == 1).all()


def test_it_is_of_its_moment():
    state = {"w": cowshed.full((LARGE,), 1.0), "b": np.ones(10), "foreign": np.ones(1000),
             "mapped": cowshed.array(np.ones(LARGE), shared=True)}
    snapshot = cowshed.snapshot(state)
    for x in state.values():
        x[:] = 2
    for name, x in snapshot.state.items():
        assert (x == 1).all(), name
        with pytest.raises(ValueError):
            x[0] = 3
    assert snapshot.cloned_bytes + snapshot.copied_bytes >= LARGE * 16
    # After forks beside which much was rewritten the engine has new memory from elsewhere.
    if "backing" not in cowshed.stats()["fallbacks"]:
        assert snapshot.cloned_bytes == LARGE * 8
    assert "cloned" in repr(snapshot)


def test_what_was_rewritten_is_counted():
    x, y = cowshed.full((LARGE,), 1.0), cowshed.full((LARGE,), 1.0)
    first = cowshed.snapshot([x, y])
    if "backing" in cowshed.stats()["fallbacks"]:
        pytest.skip("after forks new memory is from elsewhere")
    assert first.copied_bytes == 0
    x[:] = 2
    before = cowshed.stats()["fallbacks"].get("rewritten", 0)
    second = cowshed.snapshot([x, y])
    assert (second.cloned_bytes, second.copied_bytes) == (y.nbytes, x.nbytes)
    assert cowshed.stats()["fallbacks"]["rewritten"] == before + 1
    x[:] = y[:] = 3
    assert (first.state[0] == 1).all() and (second.state[0] == 2).all()
    assert (second.state[1] == 1).all()


def test_clone_all_takes_storages_alone():
    from cowshed import _cowshed

    assert _cowshed.clone_all([]) == ([], 0)
    with pytest.raises(TypeError, match="Storage"):
        _cowshed.clone_all([cowshed.storage_of(cowshed.zeros(3)), b"x"])


def test_shapes_of_states():
    inner = [1, "x", None, 2.5, b"raw"]
    state = collections.OrderedDict(
        a=inner, b=(inner, Point(1, cowshed.zeros(5))), c={3: {4, 5}},
        d=np.float32(7), e=np.array([None, {}]), f=range(3))
    state["self"] = state
    got = cowshed.snapshot(state).state
    assert type(got) is collections.OrderedDict and got["self"] is got
    assert got["a"] == inner and got["a"] is not inner and got["b"][0] is got["a"]
    assert type(got["b"][1]) is Point and got["c"] == {3: {4, 5}}
    assert got["d"] == 7 and got["e"].tolist() == [None, {}] and got["f"] == range(3)
    inner.append(1)
    assert len(got["a"]) == 5


@pytest.mark.parametrize("make", [cowshed.zeros, np.zeros], ids=["own", "foreign"])
@pytest.mark.parametrize("rows", [4, 2000])
def test_views_of_one_array_stay_so(make, rows):
    whole = make((rows, 100))
    whole[:] = np.arange(rows * 100).reshape(rows, 100)
    views = [whole, whole[1:], whole[::-1], whole.T, whole[::2, ::2], whole.reshape(-1)[5:],
             whole.view("u1"), whole[0:0]]
    snapshot = cowshed.snapshot(list(views))
    assert all(map(same, snapshot.state, views))
    assert all(x.strides == y.strides for x, y in zip(snapshot.state, views) if y.size)
    if make is cowshed.zeros or rows > 4:
        storages = {cowshed.storage_of(x).id for x in snapshot.state if x.size}
        assert len(storages) == 1
    assert snapshot.state[0] is not whole
    twice = cowshed.snapshot([whole, whole]).state
    assert twice[0] is twice[1]


def test_a_small_view_of_foreign_memory_copies_no_more_than_itself():
    whole = np.zeros(4 * LARGE, "u1")
    assert cowshed.snapshot([whole[5:105]]).copied_bytes <= 4 * LARGE
    snapshot = cowshed.snapshot([whole[5:105]])
    if not cowshed.storage_of(whole):
        assert snapshot.copied_bytes == 100


def test_few_small_arrays_make_no_large_memory():
    state = cowshed.snapshot([np.arange(3), np.arange(5)]).state
    assert cowshed.storage_of(state[0]).nbytes <= 64 << 10
    many = [np.full(1000, i) for i in range(2000)]
    copies = cowshed.snapshot(many).state
    assert all(map(same, many, copies))
    assert len({cowshed.storage_of(x).id for x in copies}) <= 3


def test_kinds_of_arrays():
    arrays = [np.array(["2020-01-01"], "M8[D]"), np.zeros(3, "f4,(2,2)i2"), np.array(5),
              np.zeros((0, 3)), np.asfortranarray(np.arange(12.0).reshape(3, 4)),
              np.broadcast_to(np.arange(3), (1000, 3)), np.array(["ab", "c"]),
              np.ma.array([1, 2], mask=[0, 1])]
    for x, y in zip(arrays, cowshed.snapshot(arrays).state):
        assert same(x, y) and type(x) is type(y)


def test_memory_is_back(tmp_path):
    before = cowshed.stats()["bytes_live"]
    for _ in range(3):
        x = cowshed.full((LARGE,), 1.0)
        snapshot = cowshed.snapshot({"x": x})
        x[:] = 2
        snapshot.save_async(str(tmp_path / "a.npz")).wait()
        del snapshot, x
    assert cowshed.stats()["bytes_live"] <= before + (1 << 20)


# ---- PyTorch ------------------------------------------------------------------------------------


@needs_torch
def test_tensors_and_ties():
    import cowshed.torch

    weight = cowshed.torch.full((LARGE,), 1.0)
    state = {"w": torch.nn.Parameter(weight), "tied": weight, "view": weight[10:20:3],
             "rows": weight.view(1024, -1).t(), "small": torch.ones(3), "none": torch.ones(0, 4),
             "conj": torch.tensor([1 + 2j]).conj(), "half": torch.ones(5, dtype=torch.bfloat16),
             "sparse": torch.eye(3).to_sparse(), "meta": torch.ones(3, device="meta"),
             "size": torch.Size([1, 2]), "dtype": torch.float16}
    snapshot = cowshed.snapshot(state)
    got = snapshot.state
    before = {name: x.clone() for name, x in state.items() if isinstance(x, torch.Tensor)}
    with torch.no_grad():
        weight.fill_(2)
    assert (got["w"] == 1).all() and (got["view"] == 1).all()
    assert not got["w"].requires_grad
    for name, x in before.items():
        y = got[name]
        assert y.shape == x.shape and y.dtype == x.dtype and y.layout == x.layout, name
        if x.layout == torch.strided:
            assert y.stride() == state[name].stride()
    assert got["conj"].tolist() == [1 - 2j] and got["sparse"].to_dense()[2, 2] == 1
    got["w"][12] = 5  # the snapshot is nobody else's
    pointers = {got[name].untyped_storage().data_ptr() for name in ("w", "tied", "view", "rows")}
    assert len(pointers) == 1 and weight[12] == 2
    assert got["dtype"] is torch.float16 and got["size"] == (1, 2)


@needs_torch
def test_training_goes_on_from_a_snapshot(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 2))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 300)).square().sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    path = str(tmp_path / "state.pt")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    snapshot = cowshed.snapshot(state)
    saving = snapshot.save_async(path)
    step()
    after = [p.detach().clone() for p in model.parameters()]
    saving.wait()
    loaded = torch.load(path)
    assert loaded["step"] == 3
    for again in (loaded, snapshot.state):
        model.load_state_dict(again["model"])
        optimizer.load_state_dict(again["optimizer"])
        step()
        assert all(torch.equal(x, p) for x, p in zip(after, model.parameters()))
        if again is loaded:
            snapshot.save(str(tmp_path / "state.safetensors"))
    flat = cowshed.open(str(tmp_path / "state.safetensors"), framework="torch")
    assert torch.equal(flat["model.0.weight"], loaded["model"]["0.weight"])
    assert flat.metadata["step"] == "3" and "optimizer.state.0.exp_avg" in flat


# ---- Saving ------------------------------------------------------------

HOW = ["thread", "process", "checkpoint"]


def begin(how, state, path):
    if how == "checkpoint":
        return cowshed.checkpoint(state, path)
    return cowshed.snapshot(state).save_async(path, process=how == "process")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_what_is_saved_is_of_the_moment_while_a_thread_writes(tmp_path, how, suffix):
    """The writer counts all elements up together, and rests only while the moment is taken."""
    path = str(tmp_path / f"a.{suffix}")
    state = {"own": cowshed.zeros((2 * LARGE,), "i8"), "foreign": np.zeros(LARGE, "i8")}
    moment, stop = threading.Lock(), threading.Event()

    def write():
        while not stop.is_set():
            with moment:
                for x in state.values():
                    x += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            with moment:
                value = state["own"][0]
                saving = begin(how, state, path)
            assert saving.wait() == path and saving.done() and saving.error is None
            found = np.load(path) if suffix == "npz" else cowshed.open(path)
            for name in state:
                assert (found[name] == value).all()
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("how", HOW)
def test_errors_reach_wait(tmp_path, how):
    saving = begin(how, {"a": np.ones(3)}, str(tmp_path / "none" / "a.safetensors"))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            saving.wait()
    assert saving.done() and isinstance(saving.error, FileNotFoundError)
    assert "failed" in repr(saving)
    with pytest.raises(ValueError):
        begin(how, {"a": object}, str(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("how", ["process", "checkpoint"])
def test_a_saver_that_is_killed_hurts_nobody(tmp_path, how):
    path = str(tmp_path / "a.npz")
    cowshed.save(path, {"a": np.zeros(1)})
    state = {"a": cowshed.zeros((32 * LARGE,))}
    saving = begin(how, state, path)
    os.kill(saving._pid, signal.SIGKILL)
    try:
        saving.wait()
    except ChildProcessError as error:
        assert "SIGKILL" in str(error)
        assert len(np.load(path)["a"]) == 1
    assert os.listdir(tmp_path) == ["a.npz"]
    state["a"][:] = 1
    begin(how, state, path).wait()
    assert np.load(path)["a"][-1] == 1


def test_a_child_of_fork_does_not_wait_for_what_its_parent_began(tmp_path):
    saving = cowshed.checkpoint({"a": cowshed.zeros((LARGE,))}, str(tmp_path / "a.npz"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 2 if "of another process" in repr(saving) else 3
            saving.wait()
        except RuntimeError:
            code += 5
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    saving.wait()


def test_timeouts(tmp_path):
    from cowshed._states import _save, _saving

    go, ready = threading.Event(), threading.Event()

    def writer(file):
        ready.set()
        go.wait()
        file.write(b"x")

    saving = _saving._Thread(_save.Plan(str(tmp_path / "a"), (), writer), False)
    ready.wait()
    assert not saving.done() and "being written" in repr(saving)
    with pytest.raises(TimeoutError):
        saving.wait(0.01)
    go.set()
    assert saving.wait() == str(tmp_path / "a")


def test_the_program_ends_when_all_is_written(tmp_path):
    import subprocess
    import sys

    path = str(tmp_path / "a.npz")
    for process in ("True", "False"):
        subprocess.run([sys.executable, "-c", f"""
import cowshed, numpy as np
x = cowshed.full(({4 * LARGE},), 3.0)
saving = cowshed.snapshot({{"x": x}}).save_async({path!r}, process={process})
x[:] = 4
"""], check=True)
        assert (np.load(path)["x"] == 3).all()
        os.unlink(path)


def test_descriptors_beyond_select(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("no more than a thousand descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        saving = cowshed.checkpoint({"w": np.ones(1000)}, str(tmp_path / "x.safetensors"))
        saving.wait()
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("killed", [False, True])
def test_a_fork_at_the_same_moment_is_not_waited_for(tmp_path, monkeypatch, killed):
    reader, writer = os.pipe()
    others = []

    def fork(born):
        others.append(os.fork())  # of another thread, when the pipe is there
        if others[-1] == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        born.append(os.fork())

    state = {"w": np.ones(1000)}
    with monkeypatch.context() as patch:
        patch.setattr(cowshed._states._saving, "_fork", fork)
        if killed:
            patch.setattr(cowshed._states._saving, "_child",
                          lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        saving = cowshed.checkpoint(state, str(tmp_path / "x.safetensors"))
    try:
        if killed:
            with pytest.raises(ChildProcessError, match="SIGKILL"):
                saving.wait(20)
        else:
            saving.wait(20)
    finally:
        os.close(reader)
        os.close(writer)
        os.waitpid(others[0], 0)


def test_nobody_need_wait(tmp_path):
    first = cowshed.checkpoint({"w": np.ones(1000)}, str(tmp_path / "x.safetensors"))
    os.waitid(os.P_PID, first._pid, os.WEXITED | os.WNOWAIT)
    cowshed.checkpoint({"w": np.ones(1000)}, str(tmp_path / "y.safetensors")).wait()
    with pytest.raises(ProcessLookupError):
        os.kill(first._pid, 0)


@pytest.fixture
def interrupted_wait(tmp_path, monkeypatch):
    """A saving whose wait() was interrupted, what it is to write, and a pipe that somebody opened
    and forked with meanwhile, and wrote a byte to."""
    path = str(tmp_path / "x.safetensors")
    saving = cowshed.checkpoint({"w": np.ones(1000)}, path)
    waitpid, fds, pids = os.waitpid, [], []

    def interrupted(pid, options):
        monkeypatch.setattr(os, "waitpid", waitpid)
        fds.extend(os.pipe())
        pids.append(os.fork())
        if pids[0] == 0:
            try:
                os.write(fds[1], b"x")
            finally:
                os._exit(0)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saving.wait()
    os.waitpid(pids[0], 0)
    yield saving, path, fds
    for fd in fds:
        os.close(fd)


def test_a_fork_during_a_wait_closes_nothing_of_others(interrupted_wait):
    saving, path, (reader, _) = interrupted_wait
    os.set_blocking(reader, False)
    assert os.read(reader, 2) == b"x"  # by the child
    assert saving.wait(20) == path


def test_a_wait_that_was_interrupted_is_done_again(interrupted_wait):
    saving, path, (reader, writer) = interrupted_wait
    os.write(writer, b"y")
    assert saving.wait(20) == path and saving.done()
    os.set_blocking(reader, False)
    assert os.read(reader, 9)[-1:] == b"y"
    with pytest.raises(ProcessLookupError):
        os.kill(saving._pid, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_right_after_the_fork_is_not_handled_by_the_child(tmp_path, monkeypatch, number):
    from cowshed._states import _saving

    path = str(tmp_path / "x.safetensors")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def fork(born):
        born.append(os.fork())
        if born == [0]:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(_saving, "_fork", fork)
    before = signal.signal(number, signal.default_int_handler)
    try:
        cowshed.checkpoint({"w": np.ones(1000)}, path).wait()
    except KeyboardInterrupt:
        os._exit(9)  # this is the child, back in the test
    finally:
        signal.signal(number, before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert len(cowshed.open(path)["w"]) == 1000


@pytest.mark.parametrize("another", [False, True], ids=["this thread", "another thread"])
def test_an_interrupt_during_the_fork_loses_no_child(tmp_path, monkeypatch, another):
    from cowshed._states import _saving

    path = str(tmp_path / "x.safetensors")
    end, real = threading.Event(), _saving._fork
    thread = threading.Thread(target=end.wait)
    thread.start()

    def fork(born):
        real(born)
        if born == [0]:
            return
        signal.pthread_kill(thread.ident if another else threading.get_ident(), signal.SIGINT)
        while another:  # until the handler is called here, though it is blocked here
            pass

    with monkeypatch.context() as patch:
        patch.setattr(_saving, "_fork", fork)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                cowshed.checkpoint({"w": np.ones(1000)}, path)
        finally:
            signal.signal(signal.SIGINT, before)
            end.set()
            thread.join()
    _saving._wait_for_all()
    assert len(cowshed.open(path)["w"]) == 1000
    assert not _saving._running
