# SPDX-License-Identifier: MIT
"""The other Pythons of this machine, for what the one that runs the tests can't do.

They are looked for in $COWSHED_TEST_PYTHONS (paths, joined by ":"), in the versions of pyenv, and
in PATH. A test gives them a program. They have no packages but the standard library and cowshed.
"""

import functools
import glob
import os
import shutil
import subprocess
import sys

import pytest

_ASKS = "import sys; print(sys.implementation.name, *sys.version_info[:2], sys.abiflags)"


@functools.cache
def newer(minor):
    """{"3.13": path} of the CPythons from 3.`minor` on, one of each version."""
    asked = [sys.executable, *os.environ.get("COWSHED_TEST_PYTHONS", "").split(":")]
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    asked += sorted(glob.glob(os.path.join(pyenv, "versions/3.*/bin/python3")), reverse=True)
    asked += [shutil.which(f"python3.{n}") for n in range(minor, 30)]
    found = {}
    for path in filter(None, asked):
        try:
            said = subprocess.run([path, "-c", _ASKS], capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        name, *version, flags = (said.stdout.rstrip("\n") + " ").split(" ")[:4] or [""]
        if name == "cpython" and said.returncode == 0 and int(version[1]) >= minor:
            found.setdefault(".".join(version) + flags, path)
    return found


def each(minor):
    """A mark: the test runs with `python`, the path of each CPython from 3.`minor` on."""
    found = newer(minor)
    if not found:
        reason = f"no Python of 3.{minor} or newer (pyenv, PATH, COWSHED_TEST_PYTHONS)"
        return pytest.mark.parametrize(
            "python", [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
    return pytest.mark.parametrize("python", found.values(), ids=found.keys())


def run(python, program, *arguments, status=0, **environment):
    """Runs a program with the package of this test; returns what it printed."""
    import cowshed

    package = os.path.dirname(os.path.dirname(os.path.abspath(cowshed.__file__)))
    done = subprocess.run([python, "-c", program, *map(str, arguments)], text=True, timeout=50,
                          capture_output=True,
                          env={**os.environ, "PYTHONPATH": package, **environment})
    assert done.returncode == status and not done.stderr, (done.returncode, done.stderr)
    return done.stdout
