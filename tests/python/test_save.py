# SPDX-License-Identifier: MIT
"""Saving: what a file's folder and permissions ask for."""

import errno
import importlib.util
import io
import os
import subprocess
import sys
import threading

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402


def test_a_folder_that_can_not_be_synced_is_known_before(tmp_path, monkeypatch):
    path = str(tmp_path / "a.npy")
    cowshed.save(path, np.arange(3), sync=True)
    real = os.open

    def refuse(name, flags, *more):
        if flags & os.O_DIRECTORY:
            raise PermissionError(13, "it may be written, not read", name)
        return real(name, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        cowshed.save(path, np.arange(5), sync=True)
    assert len(np.load(path)) == 3 and os.listdir(tmp_path) == ["a.npy"]
    cowshed.save(path, np.arange(5))
    assert len(np.load(path)) == 5


def test_a_private_file_is_private_from_its_birth(tmp_path, monkeypatch):
    path = str(tmp_path / "a.npy")
    cowshed.save(path, np.arange(3))
    os.chmod(path, 0o600)
    born, real = [], os.open

    def look(name, flags, *more):
        fd = real(name, flags, *more)
        if flags & os.O_EXCL:
            born.append(os.fstat(fd).st_mode & 0o777)
        return fd

    monkeypatch.setattr(os, "open", look)
    cowshed.save(path, np.arange(5))
    assert born == [0o600] and os.stat(path).st_mode & 0o777 == 0o600


def test_pipes_and_devices_are_written_to(tmp_path):
    path = str(tmp_path / "a.npy")
    os.mkfifo(path)
    said = []
    for save in (lambda: cowshed.save(path, np.arange(5), sync=True),
                 lambda: cowshed.checkpoint(np.arange(5), path).wait()):
        def read():
            with open(path, "rb") as pipe:
                said.append(pipe.read())

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        save()
        thread.join(20)
        assert (np.load(io.BytesIO(said.pop())) == np.arange(5)).all()
    assert os.listdir(tmp_path) == ["a.npy"]
    cowshed.save("/dev/null", {"a": np.arange(5)}, format="npz")
    assert not os.path.isfile("/dev/null")
    if importlib.util.find_spec("torch"):
        cowshed.save("/dev/null", {"a": np.arange(5)}, format="pt")
    with pytest.raises(IsADirectoryError):
        cowshed.save(str(tmp_path), np.arange(5), format="npy")


@pytest.mark.parametrize("file", [True, False])
def test_standard_output(tmp_path, file):
    code = "import cowshed, numpy; cowshed.save('/dev/stdout', numpy.arange(5), format='npy')"
    if file:
        with open(tmp_path / "a.npy", "w+b") as out:
            subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
            out.seek(0)  # in the file that the descriptor has, not another one of its name
            said = out.read()
    else:
        said = subprocess.run([sys.executable, "-c", code], stdout=-1, check=True).stdout
    assert (np.load(io.BytesIO(said)) == np.arange(5)).all()


@pytest.mark.limit(240)
@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path, suffix):
    if suffix == "pt":
        pytest.importorskip("torch")
    path = str(tmp_path / f"a.{suffix}")
    program = f"""
import resource
import numpy as np, cowshed
x = np.ones(1 << 20) if {suffix == 'npy'} else dict(a=np.ones(1 << 20))
if {suffix == 'pt'}:
    import torch
    x = dict(a=torch.ones(1 << 20))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for save in (lambda: cowshed.save({path!r}, x),
             lambda: cowshed.checkpoint(x, {path!r}).wait(),
             lambda: cowshed.snapshot(x).save_async({path!r}).wait(),
             lambda: cowshed.snapshot(x).save_async({path!r}, process=True).wait()):
    try:
        save()
    except OSError as error:
        print(error.errno, error.filename)
"""
    got = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (got.stdout, got.stderr) == (f"{errno.EFBIG} {path}\n" * 4, "")
    assert not os.listdir(tmp_path)
