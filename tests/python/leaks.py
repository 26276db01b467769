# SPDX-License-Identifier: MIT
"""What a process holds, as the kernel and the engine know it.

look() takes a picture, compare() says what is there now and was not then:

* descriptors, by what they lead to (/proc/self/fd)
* child processes, zombies included; threads
* the engine's counters: bytes and storages that are live
* mappings in the engine's window: of its memfds, and the memory behind them (RssShmem of this
  process and what the memfds that it has open hold)
* names in /dev/shm

Some of it ends a moment after the test: an executor's thread that has handed over its last
result, a child that has sent it. So what was not there before gets PATIENCE seconds to go,
looked at again and again; a real leak is still there at the end.

Under the shim the interpreter's own large blocks are the engine's, too, and come and go as
they like: their bytes and mappings are left out there.
"""

import gc
import os
import re
import sys
import threading
import time

PATIENCE = float(os.environ.get("COWSHED_TEST_PATIENCE", 5))
SLACK_BYTES = 4 << 20  # metadata of the engine and of a group's memfds, which stays
SHIM = bool(os.environ.get("COWSHED_TEST_SHIM"))

# A process keeps the memfds of its group and of the children it had, as few as they are;
# their memory is looked at.
KEPT = re.compile(r"/memfd:cowshed-(family|group|pack)")
WINDOW = re.compile(r"/memfd:cowshed")


def warm_up():
    """The first use of the engine makes what stays until the end of the process."""
    bytearray(4 << 20)
    from cowshed import _cowshed
    from cowshed._memory import _family

    _cowshed.new(4 << 20)
    # A program's group, and the memfds in which its storages lie.
    group = _family.group()
    for mode in (_cowshed.ALIAS, _cowshed.CLONE) if group else ():
        group.storage(1 << 20, mode)
    # And what relatives know of each other, from the first fork on.
    storage = _cowshed.new(4 << 20)
    memoryview(storage)[0] = 1
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    settle()


def look():
    """What is there now, by kind: sets of texts, and numbers."""
    settle()
    stats = engine()
    return {
        "descriptors": descriptors(),
        "children": children(),
        "threads": {thread.name for thread in threading.enumerate()},
        "names": names(),
        "storages": stats.get("storages_live", 0),
        "bytes": 0 if SHIM else stats.get("bytes_live", 0),
        "mappings": 0 if SHIM else mappings(),
        "memory": 0 if SHIM else memory(),
    }


def compare(before, without=()):
    """Sentences on what is there and was not in `before`; [] if nothing is."""
    end = time.monotonic() + PATIENCE
    while True:
        found = list(differences(before, look(), without))
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


def differences(before, now, without):
    for kind, then in before.items():
        if kind in without:
            continue
        if isinstance(then, set):
            for more in sorted(now[kind] - then):
                yield f"{kind}: {more}"
        elif now[kind] > then + (SLACK_BYTES if kind == "memory" else 0):
            yield f"{kind}: {now[kind]}, before it was {then}"


# ---- Letting go of what is kept on purpose -----------------------------------------------


def settle():
    """Cycles, warm memory, and the helpers that multiprocessing keeps until the end."""
    gc.collect()  # first what is in cycles
    for name, helper in (("multiprocessing.forkserver", "_forkserver"),
                         ("multiprocessing.resource_tracker", "_resource_tracker")):
        module = sys.modules.get(name)
        if module is not None and not (helper == "_resource_tracker" and semaphores()):
            getattr(module, helper)._stop()
    if "cowshed" in sys.modules and hasattr(sys.modules["cowshed"], "trim"):
        sys.modules["cowshed"].trim()


def semaphores():
    """Those of multiprocessing that this process is still to unlink. The tracker unlinks them
    when it stops, and then this process fails to. A queue's thread may have one for a while."""
    synchronize = sys.modules.get("multiprocessing.synchronize")
    if synchronize is None:
        return []
    from multiprocessing import util

    return [finalizer for finalizer in list(util._finalizer_registry.values())
            if getattr(finalizer, "_callback", None) is synchronize.SemLock._cleanup]


# ---- The engine --------------------------------------------------------------------------


def engine():
    import cowshed
    stats = cowshed.stats() if hasattr(cowshed, "stats") else {}
    return stats if isinstance(stats, dict) else vars(stats)


# ---- The kernel --------------------------------------------------------------------------


def descriptors():
    """"NUMBER -> WHAT". A descriptor that came again under its number is no leak."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink("/proc/self/fd/" + number)
            if not KEPT.match(what) and not (SHIM and WINDOW.match(what)):
                found.add(f"{number} -> {what}")
        except FileNotFoundError:
            pass  # the one that lists
    return found


def children(parent="self"):
    found = set()
    for thread in os.listdir(f"/proc/{parent}/task"):
        try:
            with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as pids:
                for pid in pids.read().split():
                    found.add(f"{pid} {command(pid)}")
        except FileNotFoundError:
            pass  # a thread that ended; or a kernel without this file
    return found


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read().replace(b"\0", b" ").decode(errors="replace")[:200].strip() \
                or "(a zombie)"
    except FileNotFoundError:
        return "(gone)"


def mappings():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sum(1 for line in maps if WINDOW.search(line) and not KEPT.search(line))


def memory():
    """Bytes of shared memory that this process maps, and that its memfds hold unmapped."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        mapped = next(int(line.split()[1]) << 10 for line in status
                      if line.startswith("RssShmem:"))
    held = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            if WINDOW.match(os.readlink("/proc/self/fd/" + number)):
                held += os.stat("/proc/self/fd/" + number).st_blocks * 512
        except FileNotFoundError:
            pass
    return max(mapped, held)


def names():
    """Not those of the C tests; nor semaphores, where other programs' trackers tidy up, too."""
    others = ["cowshed-test"]
    if not os.environ.get("COWSHED_TEST_OWN_SHM"):
        others.append("sem.")
    try:
        return {name for name in os.listdir("/dev/shm") if not name.startswith(tuple(others))}
    except FileNotFoundError:
        return set()

