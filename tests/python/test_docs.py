# SPDX-License-Identifier: MIT
"""docs/python.md: its snippets in their order, as one program, and each line of its first table."""

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from multiprocessing import resource_sharer

import checkers
import pytest

pytest.importorskip("numpy")

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "docs", "python.md")

# Names before a bracket that are not of cowshed: of a Saving, of Python.
OTHERS = {"wait", "fork", "result", "exception", "done", "add_done_callback", "list"}


def test_snippets_of_the_page(capsys, monkeypatch, tmp_path):
    import cowshed

    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(snippets) > 5
    names = {"__name__": "__main__"}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # a broker of the test's own
    try:
        for snippet in snippets:
            if "pyarrow" in snippet and importlib.util.find_spec("pyarrow") is None:
                continue
            exec(compile(snippet, PAGE, "exec"), names)
    finally:
        resource_sharer.stop()  # install() of a snippet has used it
        cowshed.multiprocessing._strategy._broker = None  # the broker ends with its last client
        if "folder" in names:
            shutil.rmtree(names["folder"])
    assert re.search("<cowshed.Storage 0x[0-9a-f]+ of 8000000 bytes, own>", capsys.readouterr().out)
    for name in re.findall(r"`(?:cowshed\.)?([a-z_]+)\(", text):
        assert hasattr(cowshed, name) or name in OTHERS, name


def snippets():
    with open(PAGE, encoding="utf-8") as page:
        return re.findall(r"```python\n(.*?)```", page.read(), re.S)


@pytest.mark.limit(200)
@pytest.mark.parametrize("snippet", [x for x in snippets() if "get_context" in x],
                         ids=["standard", "template"])
def test_a_snippet_that_starts_processes_works_as_a_file(snippet, tmp_path):
    """Its workers import the file."""
    path = tmp_path / "page.py"
    path.write_text(snippets()[0] + snippet)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.limit(300)
@pytest.mark.parametrize("checker", checkers.NAMES)
@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_type_checkers_take_the_pages(checker, page, tmp_path):
    with open(os.path.join(HERE, "..", "..", page), encoding="utf-8") as text:
        program = "\n".join(re.findall(r"```python\n(.*?)```", text.read(), re.S))
    path = tmp_path / "page.py"
    path.write_text(program)
    done = checkers.run(checker, path, "--ignore-missing-imports")
    assert done.returncode == 0, done.stdout + done.stderr


def table():
    """{line of the first table: what hurts}"""
    with open(PAGE, encoding="utf-8") as page:
        rows = re.findall(r"^\| (.*) \| .*?`(.*?)`.* \|$", page.read().split("```")[0], re.M)
    return {line: pain for pain, line in rows if not line.startswith("import cowshed")}


# What a program has that the lines are pasted into, and what has to be true afterwards.
PROGRAM = """
import os, sys
import numpy as np
data, name, state = [{"id": i} for i in range(100)], "rides", {"w": np.ones(1 << 17)}
a = np.ones(1 << 17)
x = np.frombuffer(a.tobytes())
path = os.path.join(os.getcwd(), "state.safetensors")
if "arrow" in sys.argv[1]:
    table = __import__("pyarrow").table({"fare": [1, 2]})
import cowshed
"""
AFTER = {
    "freeze_objects": "assert sys.getrefcount(data[5]) > 1 << 30",
    "pack": "assert type(data) is cowshed.Packed and data[3] == {'id': 3}",
    "template": "worker = template.Process(target=abs, args=(1,))\nworker.start()\n"
                "worker.join()\nassert worker.exitcode == 0",
    "ray": "assert cowshed.ray.is_installed()",
    "joblib": "import joblib\nassert joblib.Parallel(2)([joblib.delayed(abs)(-3)] * 4) == [3] * 4\n"
              "from cowshed.joblib import _backend\nassert _backend._executor is not None",
    "writable": "x[0] = 5\nassert x[0] == 5",
    "shared_memory": "block = shared_memory.SharedMemory(create=True, size=9)\nblock.close()",
    "arrow": "assert cowshed.arrow.open(name)['fare'].to_pylist() == [1, 2]",
    "snapshot": "import gc\ngc.collect()",
    "clone": "b[0] = 7\nassert a[0] == 1",
}


@pytest.mark.limit(150)
@pytest.mark.parametrize("line", table())
def test_lines_of_the_table(line, tmp_path):
    """Each one works when it is pasted, with nothing but cowshed imported."""
    for package in "ray", "joblib", "pyarrow":
        if package.removeprefix("py") in line and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if "freeze_objects" in line and sys.version_info < (3, 12):
        pytest.skip("Python 3.12 or newer")
    (tmp_path / "train.py").write_text("def setup():\n    pass\n")
    (tmp_path / "program.py").write_text("print('done')\n")
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(
        [str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    if line.startswith("cowshed "):  # a command
        here = os.path.dirname(importlib.util.find_spec("cowshed").origin)
        command = [os.path.join(here, "bin", "cowshed"), *line.split()[1:]]
        command[command.index("python")] = sys.executable
    else:
        after = [check for word, check in AFTER.items() if re.search(rf"\b{word}\b", line)]
        assert after, line
        program = "\n".join([PROGRAM, line, *after, "print('done')"])
        command = [sys.executable, "-c", program, line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, cwd=tmp_path,
                          env=env)
    assert done.returncode == 0 and done.stdout == "done\n", (done.stdout, done.stderr)
    if "snapshot" in line:
        with open(tmp_path / "state.safetensors", "rb") as saved:
            assert saved.read().endswith(struct.pack("<d", 1) * (1 << 17))


def test_the_table_has_all_lines():
    assert len(table()) >= 11
