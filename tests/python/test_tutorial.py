# SPDX-License-Identifier: MIT
"""docs/tutorial.md as its reader does it: the programs are saved, the commands run, and print
what the page says (three dots: anything within a line; alone in one:
lines)."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BUILD", os.path.join(HERE, "../../build/plain"))
PAGE = os.path.join(HERE, "../../docs/tutorial.md")

with open(PAGE, encoding="utf-8") as page:
    TEXT = page.read()
PROGRAMS = re.findall(r"^```(?:python|c)\n((?:#|//) (\w+\.(?:py|c))\n.*?)^```", TEXT, re.M | re.S)
COMMANDS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", TEXT, re.M | re.S)


def prints(wanted, got):
    lines = ("(.*\n)*" if line == "..." else
             ".*".join(re.escape(part) for part in line.split("...")) + "\n"
             for line in wanted.splitlines())
    return re.fullmatch("".join(lines), got.rstrip("\n") + "\n") is not None


def test_dots_stay_within_a_line():
    assert prints("a ...\nb\n", "a 1, 2\nb\n") and prints("a ... c\n", "a  c\n")
    assert not prints("a ...\nb\n", "a 1\nmore\nb\n")
    assert prints("a\n...\nd\n", "a\nb\nc\nd\n") and prints("a\n...\n", "a\n")
    assert not prints("a\n", "a\nb\n") and not prints("a.\n", "ab\n")


def test_there_are_some():
    assert len(PROGRAMS) == 5 and len(COMMANDS) == 9


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_command(number, tmp_path):
    command, wanted = COMMANDS[number]
    if "unshare" in command and subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
            stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no user namespaces here")
    for text, name in PROGRAMS:
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = [os.path.dirname(sys.executable), os.path.join(BUILD, "bin"), os.environ["PATH"]]
    environment = os.environ | {
        "PATH": ":".join(path), "PYTHONPATH": os.path.abspath(os.path.join(BUILD, "python")),
        "CPATH": os.path.abspath(os.path.join(HERE, "../../include")),
        "LIBRARY_PATH": os.path.abspath(os.path.join(BUILD, "lib")),
        "LD_LIBRARY_PATH": os.path.abspath(os.path.join(BUILD, "lib"))}
    got = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, timeout=100,
                         stdout=subprocess.PIPE, check=False, text=True).stdout
    assert prints(wanted, got), got
