# SPDX-License-Identifier: MIT
"""Files that become shorter while they are mapped: errors that say what to do."""

import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

import cowshed
from cowshed import _cowshed, multiprocessing
from cowshed._pyobjects import _pickle
from cowshed._states import _files

try:
    import torch  # here, since it may take longer than a test
except ImportError:
    torch = None

N = 1 << 18  # numbers of 8 bytes
PAGE = os.sysconf("SC_PAGESIZE")


def gone():
    return pytest.raises(OSError, match=r"became shorter.*open it again, with load=True.*x\.npy")


PACKS = {
    "records": [{"id": i, "name": "x" * 100} for i in range(2000)],
    "strings": [f"text {i}" for i in range(9000)],
    "integers": list(range(9000)),
    "floats": [i / 2 for i in range(9000)],
    "arrays": [{"id": i, "x": np.arange(9000) + i} for i in range(5)],
    "large": ["x" * 100_000, {"text": "y" * 100_000}, {"text": "z" * 9000}],
}


def same(x, y):
    return repr(x) == repr(y)


def saved(name, tmp_path):
    """(elements, the Packed, its path)"""
    path = tmp_path / "x.pack"
    cowshed.pack(PACKS[name]).save(path)
    return PACKS[name], cowshed.Packed.open(path), path


@pytest.mark.parametrize("name", PACKS)
def test_all_of_a_pack_is_read_from_its_file(name, tmp_path):
    values, packed, _ = saved(name, tmp_path)
    assert all(same(x, y) for x, y in zip(packed, values, strict=True))
    assert same(packed[-1], values[-1]) and same(list(packed[1:]), values[1:])


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("left", [0, PAGE])
def test_an_element_of_a_pack_is_an_error(name, left, tmp_path):
    values, packed, path = saved(name, tmp_path)
    kept, part = path.read_bytes(), packed[1:]
    os.truncate(path, left)
    words = r"x\.pack: it became shorter while it was open, and element \d+ is gone. Pack the obj"
    last = len(values) - 1
    for read in (lambda: packed[last], lambda: list(packed), lambda: packed == values,
                 lambda: part == cowshed.pack(values[1:]), lambda: cowshed.pack(part),
                 lambda: part.save(str(path) + ".part"), lambda: pickle.dumps(part)):
        with pytest.raises(ValueError, match=words):
            read()
    for whole in (lambda: packed.save(str(path) + ".new"), lambda: pickle.dumps(packed),
                  lambda: _pickle.dumps(packed), lambda: packed._storage.clone()):
        with pytest.raises(OSError, match="became shorter"):
            whole()
    assert os.listdir(path.parent) == ["x.pack"] and len(packed) == len(values)
    path.write_bytes(kept)  # nothing of the Packed was lost
    assert same(packed[last], values[last])


def mapped(path):
    return cowshed.open(path)


def private(path):
    return cowshed.writable(np.load(path, mmap_mode="r"))


def shorter(make, tmp_path):
    """An array of a file of which a page is left."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones(N))
    x = make(path)
    os.truncate(path, PAGE)
    return x


@pytest.mark.parametrize("make", [mapped, private])
def test_copies_are_errors(make, tmp_path):
    x, (ours, theirs) = shorter(make, tmp_path), multiprocessing.Pipe()
    shared = cowshed.zeros(5)
    for call in (cowshed.clone, cowshed.array, cowshed.share, cowshed.freeze, ours.send,
                 lambda x: cowshed.clone(x[::2]), lambda x: cowshed.array(x[::-1]),
                 lambda x: cowshed.array(x, "f4"), lambda x: cowshed.pack([{"x": x}]),
                 lambda x: cowshed.snapshot({"x": x, "shared": shared}),
                 lambda x: cowshed.storage_of(x).clone(), lambda x: ours.send(x[5:]),
                 lambda x: cowshed.save(tmp_path / "y.npy", x),
                 lambda x: cowshed.save(tmp_path / "y.npy", x[::2]),
                 lambda x: cowshed.save(tmp_path / "y.npz", {"x": x}, format="npz"),
                 lambda x: cowshed.save(tmp_path / "y.safetensors", {"x": x})):
        with gone():
            call(x)
    assert os.listdir(tmp_path) == ["x.npy"]
    assert (cowshed.array(x[:9]) == 1).all() and (cowshed.clone(x[:9]) == 1).all()
    ours.close()
    theirs.close()


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("make", [mapped, private])
def test_copies_of_tensors_are_errors(make, tmp_path):
    t = torch.from_numpy(shorter(make, tmp_path))
    for call in (cowshed.clone, cowshed.share, cowshed.freeze,
                 lambda t: cowshed.array(t, "f4"), lambda t: cowshed.snapshot({"t": t}),
                 lambda t: cowshed.save(tmp_path / "y.pt", {"all": [t, torch.ones(3)]})):
        with gone():
            call(t)
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_file_that_is_whole_again_is_read(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(N))
    x, kept = cowshed.open(path, "r"), path.read_bytes()
    os.truncate(path, PAGE)
    with gone():
        cowshed.clone(x)
    path.write_bytes(kept)
    assert (cowshed.clone(x) == 1).all()


TOUCHES = """
import os, sys
import numpy as np
import cowshed
{before}
x = {make}
os.truncate(sys.argv[1], 4096)
{after}
print(x[-1])
"""


def touch(path, make="cowshed.open(sys.argv[1])", before="", after=""):
    np.save(path, np.ones(N))
    program = TOUCHES.format(make=make, before=before, after=after)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONFAULTHANDLER"}  # it writes, too
    return subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True,
                          timeout=50, env=env)


@pytest.mark.parametrize("make", ["cowshed.open(sys.argv[1])", "cowshed.open(sys.argv[1], 'r+')",
                                  "cowshed.writable(np.load(sys.argv[1], mmap_mode='r'))"])
def test_a_touch_names_the_file(tmp_path, make):
    path = str(tmp_path / "x.npy")
    done = touch(path, make)
    assert done.returncode == -signal.SIGBUS and done.stdout == ""
    assert done.stderr.startswith(f"cowshed: {path} became shorter while it was mapped, and this ")
    assert "cowshed.open(path, load=True)" in done.stderr and done.stderr.count("\n") == 1


def test_a_long_name_is_cut(tmp_path):
    folder = tmp_path / ("f" * 200)
    folder.mkdir()
    done = touch(str(folder / "x.npy"))
    assert "fffff/x.npy became shorter" in done.stderr and "f" * 200 not in done.stderr


def test_handlers_of_others(tmp_path):
    """One that was there before is called; without one the default is back."""
    path = str(tmp_path / "x.npy")
    done = touch(path, before="import faulthandler; faulthandler.enable()")
    assert done.returncode == -signal.SIGBUS
    assert "became shorter" in done.stderr and "Fatal Python error: Bus error" in done.stderr
    for before, said in ("", -signal.SIGBUS), ("SIG_IGN", 0), ("lambda *_: print('theirs')", 0):
        before = before and f"import signal; signal.signal(signal.SIGBUS, {before})".replace(
            "SIG_IGN", "signal.SIG_IGN")
        done = touch(path, before=before, after="os.kill(os.getpid(), 7); os._exit(0)")
        assert done.returncode == said and "shorter" not in done.stderr, done
    done = touch(path, before="import signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)")
    assert done.returncode == -signal.SIGBUS and "became shorter" in done.stderr


def test_a_handler_that_returns_gets_one_line(tmp_path):
    """Python's returns, so the same fault happens again and again."""
    done = touch(str(tmp_path / "x.npy"), after="signal.alarm(1)",
                 before="import signal; signal.signal(signal.SIGBUS, lambda *_: None)")
    assert done.returncode == -signal.SIGALRM
    assert done.stderr.count("became shorter") == 1


def test_other_memory_is_not_named(tmp_path):
    """A mapping that cowshed does not know, and one that is gone."""
    done = touch(str(tmp_path / "x.npy"), "np.load(sys.argv[1], mmap_mode='r')",
                 before="cowshed.open(sys.argv[1])")
    assert done.returncode == -signal.SIGBUS and done.stderr == ""


def test_many_files(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(N))
    for _ in range(3):  # places are used again
        many = [cowshed.open(path, "r") for _ in range(1100)]
        del many
    many = [cowshed.open(path, "r") for _ in range(300)]
    os.truncate(path, PAGE)
    for x in many:
        with gone():
            cowshed.clone(x)


def test_peek():
    data = b"0123456789"
    assert _cowshed.peek(data, 2, 5) == b"234" and _cowshed.peek(data, 10, 10) == b""
    for low, high in (-1, 3), (5, 4), (0, 11):
        with pytest.raises(ValueError, match="does not have these bytes"):
            _cowshed.peek(data, low, high)
    _cowshed.check_file(0, 0)
    _cowshed.check_file(1 << 40, 100)  # no file is there, so nothing is touched


def test_a_child_that_was_forked(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(N))
    x = cowshed.open(path, "r")
    child = os.fork()
    if child == 0:
        os.truncate(path, PAGE)
        try:
            cowshed.clone(x)
        except OSError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert _files._mapped
