# SPDX-License-Identifier: MIT
"""Tests that must fail, each for the reason in its name (harness.sh)."""

import ctypes
import multiprocessing.shared_memory
import os
import signal
import subprocess
import sys
import threading

import pytest


@pytest.fixture(scope="module")
def kept():
    """What the tests hand to each other to hold."""
    return []


def test_passes():
    pass


def test_fails():
    assert 1 + 1 == 3


def test_skips():
    pytest.skip("there is a reason")


@pytest.mark.limit(1)
def test_hangs():
    threading.Event().wait()


@pytest.mark.limit(1)
def test_hangs_with_the_gil():
    ctypes.PyDLL(None).pause()


def test_passes_after_a_hang():
    pass


def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.limit(1)
def test_hangs_in_a_child():
    subprocess.run([sys.executable, "-c", "def here_it_hangs(): input()\nhere_it_hangs()"],
                   stdin=os.pipe()[0], check=True)


def test_leaves_a_descriptor(kept):
    kept.append(os.open("/", os.O_PATH))


def test_leaves_a_child(kept):
    kept.append(subprocess.Popen(["sleep", "1000"]))


def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", "sleep 999 >/dev/null 2>&1 &"], check=True)


def test_leaves_a_name():
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    from multiprocessing import resource_tracker
    resource_tracker.unregister(shared._name, "shared_memory")
    with open(os.environ["HARNESS_NAMES"], "a", encoding="ascii") as names:
        print(shared.name, file=names)
    shared.close()


def test_leaves_a_thread(kept):
    kept.append(threading.Thread(target=threading.Event().wait, name="stays", daemon=True))
    kept[-1].start()


def test_raises_in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()


def test_raises_in_a_destructor():
    class Bad:
        def __del__(self):
            raise RuntimeError("nobody hears it")
    Bad()


def test_passes_in_the_end():
    pass
