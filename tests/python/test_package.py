# SPDX-License-Identifier: MIT
"""The package as it lies in the build: what is in it, and that there is one engine."""

import os
import re
import subprocess
import sys

import cowshed


def loaded(text):
    return {line.split()[-1] for line in text.splitlines() if "/libcowshed.so" in line}


def test_version_is_that_of_the_header():
    header = os.path.join(os.path.dirname(__file__), "../../include/cowshed.h")
    with open(header, encoding="utf-8") as lines:
        numbers = re.findall(r"#define COW_VERSION_[A-Z]+ +(\d+)", lines.read())
    assert cowshed.__version__ == ".".join(numbers)


def test_one_engine():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert len(loaded(maps.read())) == 1


def test_one_engine_when_another_build_is_preloaded(tmp_path):
    """The shim and the module name the library alike, so the first one serves both."""
    package = os.path.dirname(cowshed.__file__)
    for name in os.listdir(os.path.join(package, "lib")):
        with open(os.path.join(package, "lib", name), "rb") as source:
            (tmp_path / name).write_bytes(source.read())
    child = subprocess.run(
        [sys.executable, "-c", "import cowshed; print(open('/proc/self/maps').read())"],
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "libcowshed-preload.so")},
        check=True, capture_output=True, text=True)
    assert loaded(child.stdout) == {str(tmp_path / "libcowshed.so.0")}
