# SPDX-License-Identifier: MIT
"""The package as it lies in the build: what is in it, and that there is one engine."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig

import cowshed
import pytest

PACKAGE = os.path.dirname(cowshed.__file__)


def run(*arguments, check=True, **more):
    return subprocess.run([sys.executable, *arguments], check=check, capture_output=True,
                          text=True, **more)


def loaded(text):
    return {line.split()[-1] for line in text.splitlines() if "/libcowshed.so" in line}


def test_version_is_that_of_the_header():
    header = os.path.join(os.path.dirname(__file__), "../../include/cowshed.h")
    with open(header, encoding="utf-8") as lines:
        numbers = re.findall(r"#define COW_VERSION_[A-Z]+ +(\d+)", lines.read())
    assert cowshed.__version__ == ".".join(numbers)


def test_stubs_name_what_the_module_has():
    with open(os.path.join(PACKAGE, "_cowshed.pyi"), encoding="utf-8") as stubs:
        tree = ast.parse(stubs.read())

    def names(body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.AnnAssign):
                yield node.target.id

    def public(found):
        return {name for name in found if not name.startswith("_")}

    module = cowshed._cowshed
    assert public(names(tree.body)) == public(dir(module))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and isinstance(getattr(module, node.name), type):
            assert public(names(node.body)) == public(dir(getattr(module, node.name))), node.name


# ---- Names that are imported at their first use -------------------------------------------

DIR = """
import sys
import {0} as module
before = set(sys.modules)
names = dir(module)
assert set(sys.modules) == before, set(sys.modules) - before
assert names == sorted(set(names)), names
print(*names)
for name in names:
    getattr(module, name)
"""

MODULES = ["cowshed", "cowshed.multiprocessing", "cowshed.multiprocessing.connection",
           "cowshed.multiprocessing.managers", "cowshed.multiprocessing.pool",
           "cowshed.multiprocessing.queues", "cowshed.multiprocessing.sharedctypes"]


def typed(module):
    """The public names that a type checker sees: in the stub, or in `if TYPE_CHECKING:`."""
    path = os.path.join(PACKAGE, *module.split(".")[1:])
    for path in path + ".pyi", os.path.join(path, "__init__.pyi"), \
            os.path.join(path, "__init__.py"):
        if os.path.exists(path):
            break
    with open(path, encoding="utf-8") as source:
        tree = ast.parse(source.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:  # a stub gives only "x as x" to others
                if alias.asname or path.endswith(".py"):
                    yield alias.asname or alias.name
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node in tree.body:
            yield node.name


@pytest.mark.parametrize("module", MODULES)
def test_dir_lists_all_names_and_imports_nothing(module):
    names = run("-c", DIR.format(module)).stdout.split()
    wanted = {*importlib.import_module(module).__all__, *typed(module)}
    optional = {"arrow": "pyarrow", "dask": "distributed", "joblib": "joblib", "ray": "ray",
                "torch": "torch"}
    lacking = {name for name, needed in optional.items()
               if module == "cowshed" and importlib.util.find_spec(needed) is None}
    missing = wanted - lacking - set(names)
    assert not [name for name in missing if not name.startswith("_")]
    assert not lacking.intersection(names)


def test_dir_lists_a_submodule_if_its_package_is_there():
    child = run("-c", "import sys; sys.modules['torch'] = sys.modules['distributed'] = None\n"
                      "import cowshed, inspect; print(*dir(cowshed))\n"
                      "inspect.getmembers(cowshed)")  # as help() does
    names = child.stdout.split()
    assert "multiprocessing" in names and "torch" not in names and "dask" not in names


def test_completion_offers_what_is_imported_lazily():
    import rlcompleter

    offered = rlcompleter.Completer({"cowshed": cowshed}).attr_matches("cowshed.s")
    assert {"cowshed.save(", "cowshed.snapshot("} <= {text.removesuffix(")") for text in offered}


# ---- One engine ----------------------------------------------------------------------------


def test_one_engine():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert len(loaded(maps.read())) == 1


def test_one_engine_when_another_build_is_preloaded(tmp_path):
    """The shim and the module name the library alike, so the first one serves both."""
    for name in os.listdir(os.path.join(PACKAGE, "lib")):
        with open(os.path.join(PACKAGE, "lib", name), "rb") as source:
            (tmp_path / name).write_bytes(source.read())
    child = run("-c", "import cowshed; print(open('/proc/self/maps').read())",
                env={**os.environ, "LD_PRELOAD": str(tmp_path / "libcowshed-preload.so")})
    assert loaded(child.stdout) == {str(tmp_path / "libcowshed.so.0")}


def test_another_release_that_is_preloaded_is_told(tmp_path):
    """The package's libraries share private names, so they must be of one build."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "empty.c").write_text("int nothing_of_ours;\n")
    other = str(tmp_path / "libcowshed.so.0")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcowshed.so.0", "-o", other,
                    str(tmp_path / "empty.c")], check=True)
    child = run("-c", "import cowshed", check=False, env={**os.environ, "LD_PRELOAD": other})
    assert child.returncode == 1
    assert "ImportError: a libcowshed.so.0 of another build is loaded" in child.stderr


# ---- python -m cowshed, and the command --------------------------------------------------

TELL = """
import os, sys
shim = "libcowshed-preload.so" in open("/proc/self/maps").read()
print(sys.argv, shim, os.environ.get("COWSHED_OPTIONS"), __name__)
sys.exit(7)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "tell.py").write_text(TELL)
    return str(tmp_path / "tell.py")


@pytest.mark.parametrize("options, seen", [
    ([], None),
    (["--"], None),
    (["--threshold", "64K"], "threshold=65536"),
    (["--threshold=64K", "--copies", "off"], "threshold=65536,copies=off"),
    (["--thr", "64K", "-o", "backing=anon"], "threshold=65536,backing=anon"),
    (["-obacking=anon", "--"], "backing=anon"),
])
def test_run_gives_a_script_the_shim(script, options, seen):
    child = run("-m", "cowshed", "run", *options, script, "-o", "--threshold", "x y", check=False)
    assert child.stdout == f"{[script, '-o', '--threshold', 'x y']} True {seen} __main__\n"
    assert child.returncode == 7


def test_run_takes_a_module(script):
    child = run("-m", "cowshed", "run", "-m", "tell", "x", check=False,
                env={**os.environ, "PYTHONPATH": os.environ["PYTHONPATH"] + ":" +
                     os.path.dirname(script)})
    assert child.stdout == f"{[script, 'x']} True None __main__\n"


def test_run_takes_code_and_options_of_the_interpreter():
    child = run("-m", "cowshed", "run", "-X", "dev", "-c",
                "import sys; print(sys.argv, sys.flags.dev_mode, sys.executable)", "-c")
    assert child.stdout == f"{['-c', '-c']} True {sys.executable}\n"


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED"),
                    reason="without the GIL, Python's own objects are not made by malloc()")
def test_run_reports():
    child = run("-m", "cowshed", "run", "--report", "-c", "x = bytearray(64 << 20)")
    assert re.search("served.*64", child.stderr)


def test_run_of_nothing_says_so():
    child = run("-m", "cowshed", "run", check=False)
    assert child.returncode == 2 and "There is no program to run" in child.stderr


@pytest.mark.parametrize("how", [["-m", "cowshed"], ["-c", "import cowshed.__main__ as m; "
                                                    "m.command()"]])
def test_other_words_are_the_commands(how):
    assert run(*how, "version").stdout.startswith("cowshed " + cowshed.__version__)
    assert "--threshold" in run(*how, "help", "run").stdout
    wrong = run(*how, "nonsense", check=False)
    assert wrong.returncode == 2 and "There is no command 'nonsense'" in wrong.stderr


@pytest.mark.parametrize("code, package, words", [
    ("import cowshed.torch", "torch", "cowshed.torch needs PyTorch .*2.*pip install torch"),
    ("import cowshed.dask", "dask", "cowshed.dask needs dask .*20.*pip install dask distributed"),
    ("import cowshed.joblib", "joblib", "cowshed.joblib needs joblib 1.6 .*pip install"),
    ("import cowshed.arrow", "pyarrow", "cowshed.arrow needs pyarrow 15 .*pip install pyarrow"),
    ("import cowshed.ray; cowshed.ray.install()", "ray", "cowshed.ray needs ray 2.60 .*pip inst"),
    ("import cowshed; cowshed.zeros(3)", "numpy", "needs NumPy .*2.*pip install numpy"),
])
def test_a_missing_package_is_named_with_its_version(code, package, words):
    program = f"import sys; sys.modules[{package!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=50)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and re.search(f"^ImportError: .*{words}", last), done.stderr
