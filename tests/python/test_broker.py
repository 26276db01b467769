# SPDX-License-Identifier: MIT
"""Names at a broker: any bytes that somebody chose."""

import os
import stat
import subprocess

import pytest

from cowshed import _cowshed

PROGRAM = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")

LATIN = b"caf\xe9"
STEERS = b"\xc2\x9b31m\x9b\xe0\x82\x9b"  # what some terminals take for escapes


@pytest.fixture
def at(tmp_path):
    """Where a broker listens."""
    path = str(tmp_path / "broker")
    command = [PROGRAM, "broker", "--socket", path, "-v"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout.readline()
        yield path
        broker.kill()


def publish(at, *names):
    for name in names:
        command = [PROGRAM, "publish", "--socket", at, "-", name]
        subprocess.run(command, input=b"bytes", check=True)


def test_a_name_that_is_not_utf8_is_one_of_a_list(at):
    publish(at, LATIN, b"other")
    broker = _cowshed.Broker(at)
    names = {item["name"] for item in broker.list()}
    assert names == {"caf\udce9", "other"}


def test_a_name_that_is_not_utf8_can_be_used(at):
    publish(at, LATIN)
    broker = _cowshed.Broker(at)
    name = LATIN.decode("utf-8", "surrogateescape")
    assert bytes(broker.get(name)) == b"bytes"
    broker.drop(name)
    assert broker.list() == []
    assert broker.put(b"again", name)["name"] == name
    assert bytes(broker.get(name)) == b"again"


def test_names_that_are_none(at):
    broker = _cowshed.Broker(at)
    for name in "", "a\0b", "\xe9" * 32, "\ud800":
        with pytest.raises(ValueError):
            broker.get(name)
    with pytest.raises(FileNotFoundError):
        broker.get("\xe9" * 31)


def test_a_name_steers_no_terminal(at):
    publish(at, LATIN, STEERS, "caf\xe9 \u4e2d \U0001f404".encode())
    done = subprocess.run([PROGRAM, "ls", "--socket", at], capture_output=True, check=True)
    lines = [line.split(maxsplit=4)[4] for line in done.stdout.decode().splitlines()]
    assert sorted(lines) == ["??31m????", "caf?", "caf\xe9 \u4e2d \U0001f404"]


# ---- cowshed get NAME FILE ----


def get(at, name, path):
    command = [PROGRAM, "get", "--socket", at, name, path]
    return subprocess.run(command, capture_output=True).returncode


def test_get_follows_a_link_and_keeps_it(at, tmp_path):
    publish(at, "name")
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("there/file")
    assert get(at, "name", link) == 0
    assert link.is_symlink()
    assert target.read_bytes() == b"bytes"
    assert os.listdir(target.parent) == ["file"]


def test_get_makes_nothing_of_a_link_to_nowhere(at, tmp_path):
    publish(at, "name")
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert get(at, "name", link) == 2
    assert link.is_symlink()
    assert not link.exists()


def test_get_writes_into_a_pipe(at, tmp_path):
    publish(at, "name")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert get(at, "name", pipe) == 0
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        assert os.read(reader, 100) == b"bytes"
    finally:
        os.close(reader)


@pytest.mark.parametrize("link", (False, True))
@pytest.mark.parametrize("minor, status", ((3, 0), (7, 2)))
def test_get_writes_into_a_device(at, tmp_path, minor, status, link):
    """The null device, and the full one; nodes of the test's own, which it may lose."""
    publish(at, "name")
    device, path = tmp_path / "device", tmp_path / "device"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        os.close(os.open(device, os.O_WRONLY))
    except PermissionError:
        pytest.skip("this user makes no devices here")
    if link:
        path = tmp_path / "link"
        path.symlink_to(device)
    assert get(at, "name", path) == status
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert path.is_symlink() == link
