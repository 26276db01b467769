# SPDX-License-Identifier: MIT
"""Names at a broker: any bytes that somebody chose."""

import os
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
