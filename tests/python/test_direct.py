# SPDX-License-Identifier: MIT
"""Writing past the page cache: the file has the bytes, whatever their places and sizes."""

import errno
import os
import random

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed._states import _direct  # noqa: E402

MIB = 1 << 20


def write(path, pieces, direct=True):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    writer = _direct.Writer(fd, str(path) if direct else None)
    try:
        for piece in pieces:
            assert writer.write(piece) == memoryview(piece).nbytes
        writer.close()
    finally:
        writer.abandon()
        os.close(fd)
    return writer


@pytest.mark.parametrize("direct", [True, False])
def test_pieces_of_all_sizes(tmp_path, direct):
    rng = random.Random(5)
    large = cowshed.array(np.random.default_rng(1).integers(0, 256, 9 * MIB, dtype="uint8"))
    for turn in range(6):
        pieces = [large] if turn % 2 else [b"head"]
        for _ in range(8):
            n = rng.choice([0, 1, 4095, 4096, 70000, MIB, 4 * MIB, 5 * MIB + 1])
            at = rng.choice([0, 0, 4096, 1, 513])
            pieces.append(large[at : at + n])
        writer = write(tmp_path / "f", pieces, direct)
        want = b"".join(bytes(p) for p in pieces)
        assert writer.done == len(want)
        assert (tmp_path / "f").read_bytes() == want


@pytest.mark.parametrize("when", ["open", "write"])
def test_a_refusal_is_no_error(tmp_path, monkeypatch, when):
    """As on file systems without O_DIRECT."""
    was_open, was_pwrite, direct = os.open, os.pwrite, set()
    refused = []

    def open(path, flags, *rest):
        fd = was_open(path, flags & ~os.O_DIRECT, *rest)
        if flags & os.O_DIRECT:
            if when == "open":
                os.close(fd)
                refused.append(path)
                raise OSError(errno.EINVAL, "no O_DIRECT")
            direct.add(fd)
        return fd

    def pwrite(fd, view, at):
        if fd in direct:
            refused.append(fd)
            direct.remove(fd)
            raise OSError(errno.EINVAL, "not aligned")
        return was_pwrite(fd, view, at)

    monkeypatch.setattr(os, "open", open)
    monkeypatch.setattr(os, "pwrite", pwrite)
    data = np.random.default_rng(2).integers(0, 256, 11 * MIB + 7, dtype="uint8")
    write(tmp_path / "f", [data[:5], data[5:]])
    assert refused
    assert (tmp_path / "f").read_bytes() == data.tobytes()


def test_short_writes_go_on(tmp_path, monkeypatch):
    was = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, view, at: was(fd, view[: max(4096, len(view) // 2)
                                                              // 4096 * 4096 or len(view)], at))
    data = np.random.default_rng(3).integers(0, 256, 5 * MIB + 70001, dtype="uint8")
    write(tmp_path / "f", [data[:300], data[300:]])
    assert (tmp_path / "f").read_bytes() == data.tobytes()


def test_an_error_is_raised(tmp_path, monkeypatch):
    def pwrite(fd, view, at):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "f", [bytes(9 * MIB)])


def test_files_of_every_format(tmp_path):
    """Large arrays beside small ones, written in a thread while they are rewritten."""
    state = {f"x{i}": cowshed.full((MIB + i,), float(i)) for i in range(3)}
    state["odd"] = np.arange(7, dtype="int8")
    names = ["f.safetensors", "f.npz"]
    try:
        import torch
    except ImportError:
        pass
    else:
        names.append("f.pt")
    for name in names:
        saving = cowshed.snapshot(state).save_async(tmp_path / name)
        for x in state.values():
            x += 1
        saving.wait()
        for x in state.values():
            x -= 1
        if name == "f.pt":
            have = torch.load(tmp_path / name, weights_only=False)
        elif name == "f.npz":
            have = np.load(tmp_path / name)
        else:
            have = cowshed.open(tmp_path / name)
        for key, x in state.items():
            assert (np.asarray(have[key]) == x).all(), (name, key)


def test_it_does_not_pin_memory(tmp_path):
    """A descriptor that only writes the file does not keep snapshots from sharing pages."""
    x = cowshed.full((MIB,), 1.0)
    if "backing" in cowshed.stats()["fallbacks"]:
        pytest.skip("after forks new memory is from elsewhere")
    try:
        fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    except OSError:
        pytest.skip("no O_DIRECT here")
    try:
        assert cowshed.snapshot([x]).copied_bytes == 0
    finally:
        os.close(fd)


def test_large_tensors_of_pt_are_written_from_where_they_lie(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.utils.serialization.config")
    path, state = tmp_path / "x.pt", {}
    for i in range(3):
        state[str(i)] = torch.from_numpy(cowshed.array(np.arange(MIB) + (i << 32)))
    cowshed.save(path, state)
    data = path.read_bytes()
    for t in state.values():
        assert data.index(t.numpy()[:512].tobytes()) % 4096 == 0
    got = torch.load(path, weights_only=True)
    assert all(torch.equal(got[name], t) for name, t in state.items())
