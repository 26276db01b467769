# SPDX-License-Identifier: MIT
"""How the tests of this folder are run: one line each, a limit, and nothing left behind.

Three things that every test gets without asking:

* A line for scripts/check.sh: "ok NAME", "not ok NAME" with what is known, "skip NAME reason".
  pytest's own reporter is off (run.sh).
* A limit of LIMIT seconds, or of its mark `limit(seconds)`. A test that hangs may do so with
  the GIL held or deep in C, so it is a thread of the interpreter that knows no Python which
  then prints all stacks and ends the process. run.sh goes on with the tests after it.
* A look before and after (leaks.py). A test that passed and left something behind fails.
"""

import faulthandler
import gc
import os
import sys
import sysconfig
import time

import pytest

# A clone is what its test says it is, and not what an earlier one at its line was.
os.environ["COWSHED_WRITES"] = "some"
sys.path.insert(0, os.path.dirname(__file__))
import leaks  # noqa: E402

LIMIT = 60
PREFIX = "shim: " if os.environ.get("COWSHED_TEST_SHIM") else ""
WORK = os.environ.get("COWSHED_TEST_WORK", "")
STDERR = pytest.StashKey[int]()
PASSED = pytest.StashKey[bool]()


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): how long the test may take")
    config.addinivalue_line("markers", "leaves(*what): what leaks.py is not to look at")
    config.addinivalue_line("markers", "closes_over: a class of the test refers to storages")
    config.option.tbstyle = "short"
    config.option.verbose = 0  # older ones ask for it even where nobody reports
    # In tests a file of pytest's has its place.
    config.stash[STDERR] = os.dup(2)
    _write("group", f"{os.getpgrp()}\n")
    # What is raised where nobody can catch it is a failure, too.
    for what in "Unraisable", "UnhandledThread":
        config.addinivalue_line("filterwarnings", f"error::pytest.Pytest{what}ExceptionWarning")


def pytest_collection_finish():
    """What the imports made stays: to look through all of PyTorch for cycles, four times a test,
    is most of what a small test would take."""
    gc.collect()
    gc.freeze()


# ---- Which tests, and which one now ------------------------------------------------------


def pytest_collection_modifyitems(config, items):
    """Those that took an interpreter down before, and those before them, are done."""
    done = _read("done")
    items[:] = [item for item in items if _name(item.nodeid) not in done]


def _name(nodeid):
    return nodeid.split("/")[-1]


def _read(file):
    if not WORK:
        return set()
    with open(os.path.join(WORK, file), encoding="utf-8") as lines:
        return set(lines.read().splitlines())


def _write(file, text, mode="w"):
    if WORK:
        with open(os.path.join(WORK, file), mode, encoding="utf-8") as out:
            out.write(text)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    name = _name(item.nodeid)
    mark = item.get_closest_marker("limit")
    _write("now", name + "\n")
    faulthandler.dump_traceback_later(mark.args[0] if mark else LIMIT, exit=True,
                                      file=item.config.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()
    _write("done", name + "\n", "a")
    _write("now", "")


# ---- What it left ------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.stash[PASSED] = outcome.get_result().passed


def _frees_classes():
    """CPython 3.13 without the GIL makes classes and functions immortal once there was a thread,
    and so what they close over."""
    return sys.version_info[:2] != (3, 13) or not sysconfig.get_config_var("Py_GIL_DISABLED")


@pytest.fixture(autouse=True)
def nothing_left(request):
    before = leaks.look()
    yield
    if not request.node.stash.get(PASSED, False):
        return  # its frames are kept, and with them what they hold
    mark = request.node.get_closest_marker("leaves")
    left = mark.args if mark else ()
    if request.node.get_closest_marker("closes_over") and not _frees_classes():
        left = (*left, "storages")
    found = leaks.compare(before, left)
    assert not found, "it left behind:\n" + "\n".join(found)


# ---- What is said ------------------------------------------------------------------------


class Lines:
    """The reporter. A test is its three phases, and fails with any of them."""

    def __init__(self):
        self.bad = set()
        self.reason = {}
        self.start = {}

    def pytest_runtest_logstart(self, nodeid):
        self.start[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report):
        name = PREFIX + _name(report.nodeid)
        if report.failed and report.nodeid not in self.bad:
            self.bad.add(report.nodeid)
            self.tell(f"not ok {name}" + ("" if report.when == "call" else f" ({report.when})"))
            self.tell(_indent(report.longreprtext))
            for title, text in report.sections:
                self.tell(f"    {title}:\n{_indent(text[-4000:])}")
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.wasxfail
            self.reason[report.nodeid] = why.removeprefix("Skipped: ")
        if report.when != "teardown" or report.nodeid in self.bad:
            return
        if report.nodeid in self.reason:
            self.tell(f"skip {name} {self.reason[report.nodeid]}")
        else:
            self.tell(f"ok {name} {time.monotonic() - self.start[report.nodeid]:.1f} s")

    def pytest_collectreport(self, report):
        name = PREFIX + _name(report.nodeid)
        if report.failed:
            self.tell(f"not ok {name} (can't be read)\n{_indent(report.longreprtext)}")
        elif report.skipped:
            self.tell(f"skip {name} {report.longrepr[2].removeprefix('Skipped: ')}")

    @staticmethod
    def tell(line):
        print(line, flush=True)


def _indent(text):
    return "\n".join("    " + line for line in str(text).splitlines())


def pytest_sessionstart(session):
    session.config.pluginmanager.register(Lines(), "lines")
    leaks.warm_up()
