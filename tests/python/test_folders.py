# SPDX-License-Identifier: MIT
"""Folders of the package: each loads without those above it, and pickles know none of them."""

import importlib.util
import subprocess
import sys

import pytest

# Each folder, from the ground up, and those below it that it may import.
BELOW = {"_memory": "", "_states": "_memory", "_pyobjects": "_memory _states",
         "multiprocessing": "_memory _states _pyobjects"}
BELOW |= dict.fromkeys(["torch", "dask", "joblib", "arrow", "ray"], " ".join(BELOW))
NEEDED = {"torch": "torch", "dask": "distributed", "joblib": "joblib", "arrow": "pyarrow",
          "ray": "ray"}

# Imports all modules of a folder, and prints the folders that are loaded then.
ALONE = """
import importlib, pkgutil, sys
name = "cowshed." + sys.argv[1] if sys.argv[1] else "cowshed"
part = importlib.import_module(name)
for module in pkgutil.iter_modules(part.__path__ if hasattr(part, "__path__") else []):
    if name != "cowshed" and module.name != "_types":  # that one is for type checkers
        importlib.import_module(f"{name}.{module.name}")
print(*{module.split(".")[1] for module in sys.modules if module.startswith("cowshed.")})
"""

# What pickles and messages of earlier versions name, and what these versions find by its name.
NAMES = {
    "_arrays": "array clone freeze is_shared share",
    "_checkpointer": "Checkpointer",
    "_family": "get_sharing_mode set_sharing_mode sharing_mode",
    "_files": "Description open",
    "_intents": "write_intent",
    "_making": "arange empty empty_like full full_like ones ones_like zeros zeros_like",
    "_objects": "FrozenObjects freeze_objects",
    "_pace": "Progress",
    "_pack": "Packed _rebuild",
    "_packing": "pack rebuild_array rebuild_tensor",
    "_pickle": "rebuild_array rebuild_small",
    "_reducers": "rebuild_bytes",
    "_regions": "Region storage_of",
    "_safetensors": "Tensors",
    "_save": "save",
    "_saving": "Saving",
    "_snapshot": "Snapshot checkpoint snapshot",
    "_writable": "writable",
}

PICKLES = """
import pickle, sys
module, *names = sys.argv[1:]
for name in names:
    x = pickle.loads(f"c{module}\\n{name}\\n.".encode())
    assert x.__module__ == module and x.__name__ == name, (x.__module__, x.__name__)
    assert f"c{module}\\n{name}\\n".encode() in pickle.dumps(x, 0)
    assert getattr(sys.modules[module], name) is x
"""


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_package_itself_loads_the_lowest_folder():
    assert BELOW.keys() & run(ALONE, "") == {"_memory"}


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_loads_none_above_or_beside_it(folder):
    if folder in NEEDED and importlib.util.find_spec(NEEDED[folder]) is None:
        pytest.skip(f"there is no {NEEDED[folder]}")
    loaded = BELOW.keys() & run(ALONE, folder)
    assert folder in loaded and loaded <= {folder, *BELOW[folder].split()}


@pytest.mark.parametrize("module", NAMES)
def test_pickles_name_no_folder(module):
    run(PICKLES, f"cowshed.{module}", *NAMES[module].split())


# A thread asks for a kept name while another one is in the middle of the module's import.
HALF = """
import importlib, threading
from cowshed._memory import _names
begun, asked, keep = threading.Event(), threading.Event(), _names.keep
def slow(name):
    kept = keep(name)
    begun.set()
    asked.wait(1)  # the one that asks should wait for this thread, so it does not come
    return kept
_names.keep = slow
found = []
def ask():
    found.append(hasattr(importlib.import_module("cowshed._files"), "Description"))
    asked.set()
threads = [threading.Thread(target=importlib.import_module, args=("cowshed._states._files",)),
           threading.Thread(target=ask)]
threads[0].start()
assert begun.wait(60)
threads[1].start()
for thread in threads:
    thread.join()
print(*found)
"""


def test_a_thread_finds_no_half_module():
    assert run(HALF) == ["True"]
