# SPDX-License-Identifier: MIT
"""Saving: what a file's folder and permissions ask for."""

import os

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
