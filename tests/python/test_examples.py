# SPDX-License-Identifier: MIT
"""The examples that people copy, with small sizes."""

import importlib.util
import os
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "python", "examples")
SIZES = {"parallel_map": [32, 2], "parameter_server": [20, 2, 1000], "serve_model": [16, 2],
         "train": [20, 64], "data_loader": [4, 2]}
NEEDS = {"train": "torch", "data_loader": "torch", "parallel_map": "cowshed.multiprocessing.pool",
         "parameter_server": "cowshed.multiprocessing.queues",
         "serve_model": "cowshed.multiprocessing.queues"}


def test_there_are_no_others():
    assert {name.removesuffix(".py") for name in os.listdir(FOLDER)
            if name.endswith(".py")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_example(name):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"no {NEEDS[name]}")
    if name == "data_loader":
        import cowshed.torch

        if not hasattr(cowshed.torch, "install"):
            pytest.skip("no cowshed.torch.install()")
    end = subprocess.run([sys.executable, os.path.join(FOLDER, name + ".py"),
                          *map(str, SIZES[name])], capture_output=True, text=True, timeout=55,
                         check=False)
    assert (end.returncode, end.stderr) == (0, "")
    assert end.stdout.count("\n") == 1


def test_few_steps_of_training():
    """A checkpoint was made each tenth step only: with fewer there was none to wait for."""
    pytest.importorskip("torch")
    end = subprocess.run([sys.executable, os.path.join(FOLDER, "train.py"), "5", "64"],
                         capture_output=True, text=True, timeout=55, check=False)
    assert (end.returncode, end.stderr) == (0, "") and "again from step 4" in end.stdout


DEAD = """
import os
import sys

sys.path.insert(0, {folder!r})
import {name} as example


def dead(*args):
    os._exit(3)


if __name__ == "__main__":
    setattr(example, {work!r}, dead)
    example.main(*{sizes!r})
"""


@pytest.mark.parametrize("name, work", [("parameter_server", "work"), ("serve_model", "serve")])
def test_a_worker_that_dies_ends_the_example(tmp_path, name, work):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"no {NEEDS[name]}")
    script = tmp_path / "dead.py"
    script.write_text(DEAD.format(folder=FOLDER, name=name, work=work, sizes=SIZES[name]))
    end = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=55,
                         check=False)
    assert (end.returncode, end.stderr) == (1, "a worker died with exit code 3\n")
