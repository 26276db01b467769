# SPDX-License-Identifier: MIT
"""The standard library's own tests of multiprocessing, run on cowshed.multiprocessing.

    multiprocessing_tests.py METHOD [--long] [PATTERN ...]

CPython keeps them in test/_test_multiprocessing.py. A copy of it is written in which every
import of multiprocessing is one of cowshed.multiprocessing, into a folder that spawned
children have in sys.path, too. What is left out is in EXCLUDED, with the reason. Prints a
line a test as scripts/check.sh reads it. Exits with 77 if this Python comes without tests.
"""

import ast
import fnmatch
import os
import signal
import sys
import tempfile
import unittest

NAME = "cowshed_test_multiprocessing"

# What is left out: pattern of Class.test -> why.
EXCLUDED = {
    "WithThreads*.*": "multiprocessing.dummy and its pool are the standard library's",
    "_TestImportStar.*": "about the files of the standard package",
    "*TestConnection.test_*fd_transfer": "reduction.recv_handle() reads from the socket of a "
    "connection itself, and waits in there; the sockets of ours don't block",
    "*TestSharedMemory.test_shared_memory_cleaned_after_process_termination": "a program without "
    "ours, whose resource tracker has to complain; test_shared_memory.py has a program of ours",
    "*TestSharedMemory.test_shared_memory_SharedMemoryManager_reuses_resource_tracker": "a program "
    "without ours; there is no tracker",
    "*TestSharedMemory.test_shared_memory_untracking": "a program without ours; there is no "
    "tracker",
    "*TestSharedMemory.test_shared_memory_tracking": "a program without ours; there is no tracker",
    "*TestSharedMemory.test_shared_memory_name_with_embedded_null": "sets a private attribute, "
    "which is a property here; test_shared_memory.py has such names",
    "TestIgnoreEINTR.test_ignore": "waits for a send of megabytes that waits; ours does not",
}

# A choice for every `make check`: what we replace.
SHORT = [
    "*TestQueue.*",
    "*TestConnection.*",
    "*TestPicklingConnections.*",
    "*TestSimpleQueue.*",
    "*TestWait.*",
    "*TestListener*.*",
    "WithManagerTestQueue.*",
    "*TestSharedMemory.*",
]


OUR_MODULES = ("connection", "managers", "pool", "queues", "shared_memory", "sharedctypes")
OURS = {"multiprocessing." + m for m in OUR_MODULES}


def rewritten(node, text):
    """An import statement, of ours; None: as it is."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        if len(names) == 1 and names[0].split(".")[0] == "multiprocessing":
            # Its modules are attributes, which are imported when they are asked for.
            return "import cowshed.multiprocessing as multiprocessing"
    elif isinstance(node, ast.ImportFrom) and not node.level:
        if node.module == "multiprocessing" or node.module in OURS:
            return text.replace("from multiprocessing", "from cowshed.multiprocessing", 1)
    return None


def translated(path):
    """The source of a file, whose imports of multiprocessing are ours."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            first, last = node.lineno - 1, node.end_lineno
            indent = " " * node.col_offset
            new = rewritten(node, "".join(lines[first:last])[node.col_offset :].rstrip("\n"))
            if new is not None:
                lines[first:last] = [indent + new + "\n"] + [""] * (last - first - 1)
    return "".join(lines).replace("'test._test_multiprocessing'", repr(NAME))


def translate(folder, method):
    """Writes the copy. Returns a module with the tests for a start method."""
    import importlib.util

    spec = importlib.util.find_spec("test._test_multiprocessing")
    if spec is None:
        print("skip multiprocessing's own tests: this Python has none")
        sys.exit(77)
    files = {NAME: translated(spec.origin)}
    for name in "mp_fork_bomb", "mp_preload":
        path = os.path.join(os.path.dirname(spec.origin), name + ".py")
        if os.path.exists(path):  # run without our environment
            files[name] = f"import sys; sys.path[:0] = {sys.path!r}\n" + translated(path)
    files["cowshed_test_" + method] = (
        f"import {NAME}\n{NAME}.install_tests_in_module_dict(globals(), {method!r})\n"
    )
    for name, text in files.items():
        with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
            file.write(text)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return importlib.import_module("cowshed_test_" + method)


class Result(unittest.TestResult):
    """One line a test."""

    def __init__(self, method):
        super().__init__()
        self.method = method
        self.bad = 0

    def name(self, test):
        return f"multiprocessing-{self.method}/{type(test).__name__}." + str(test).split()[0]

    def addSuccess(self, test):
        print("ok", self.name(test), flush=True)

    def addSkip(self, test, reason):
        print("skip", self.name(test), reason, flush=True)

    def _no(self, test, error):
        self.bad += 1
        text = self._exc_info_to_string(error, test)
        print("not ok", self.name(test), "\n    " + text.replace("\n", "\n    "), flush=True)

    addError = addFailure = _no

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._no(test, error)


def tests_of(suite):
    for x in suite:
        if isinstance(x, unittest.TestSuite):
            yield from tests_of(x)
        else:
            yield x


def choose(suite, patterns):
    """The tests that match, in a suite for each class, so that its set-up is run once."""
    chosen = unittest.TestSuite()
    for test in tests_of(suite):
        name = f"{type(test).__name__}.{test._testMethodName}"
        if not any(fnmatch.fnmatchcase(name, p) for p in patterns):
            continue
        why = next((why for p, why in EXCLUDED.items() if fnmatch.fnmatchcase(name, p)), None)
        if why is None:
            chosen.addTest(test)
        else:
            print(f"# left out: {name}: {why}")
    return chosen


def main(method, *arguments):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    long = "--long" in arguments
    patterns = [a for a in arguments if a != "--long"] or (["*"] if long else SHORT)
    with tempfile.TemporaryDirectory() as folder:
        module = translate(folder, method)
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        result = Result(method)
        choose(suite, patterns).run(result)
    if result.testsRun == 0:
        print(f"not ok {method}: no tests")
    sys.exit(1 if result.bad or result.testsRun == 0 else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
