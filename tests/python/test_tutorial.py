# SPDX-License-Identifier: MIT
"""docs/tutorial.md as its reader does it: the programs are saved, the commands run, and print
what the page says (three dots: anything)."""

import doctest
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
PROGRAMS = re.findall(r"^```python\n(# (\w+\.py)\n.*?)^```", TEXT, re.M | re.S)
COMMANDS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", TEXT, re.M | re.S)


def test_there_are_some():
    assert len(PROGRAMS) == 4 and len(COMMANDS) == 8


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
        "PATH": ":".join(path), "PYTHONPATH": os.path.abspath(os.path.join(BUILD, "python"))}
    got = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, timeout=100,
                         stdout=subprocess.PIPE, check=False, text=True).stdout
    assert doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS), got
