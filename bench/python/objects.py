# SPDX-License-Identifier: MIT
"""COUNT dicts that four workers read: forked, spawned, and forked by a server.

Each worker reads all strings and numbers of all elements. "start" is the time from the first start
of a process to the moment when all four run. "read" is the mean of their times to read. "again" is
that of a second time, when all pages that reading writes have been copied. "private" is the memory
of all four that nobody shares, at the end of their first reading. "beyond" is the same without that
of four workers that have nothing to read.

freeze_objects() needs a Python of 3.12 or newer: the newest that is found in the versions of pyenv
or in PATH. pack() is measured with that one and with the Python of the other benchmarks. "prepare"
is the time of freeze_objects() and pack() themselves, before any worker; today's way has none.
"element" is the time of packed[i], and of pickle.loads() of its pickle, in one process; "file" the
same of Packed.open(), whose elements are copied and compared with their checksums.

    python objects.py           COUNT=400000    ONLY=freeze_objects, pack or element
"""

import multiprocessing
import os
import sys
import time

from memory import private

# Workers import this file, too, and need no more than that.
if __name__ == "__main__":
    import glob
    import pickle
    import shutil
    import statistics
    import subprocess
    import tempfile

    from common import ROUNDS, Rounds, attempt, line, main, say, warm

COUNT = int(os.environ.get("COUNT", "400000"))
ONLY = os.environ.get("ONLY", "")
WORKERS = 4
METHODS = "fork", "spawn", "forkserver"


def make(n):
    return [{"id": i, "name": f"name {i}", "tags": [f"tag {i % 100}", f"tag {i % 77}"],
             "box": [i * 0.5, 1.5, 2.5, 3.5], "meta": {"width": 640, "height": i, "from": f"/{i}"}}
            for i in range(n)]


def touch(row):
    return (len(row["name"]) + row["id"] + sum(map(len, row["tags"])) + sum(row["box"])
            + row["meta"]["height"] + len(row["meta"]["from"]))


# ---- Workers -------------------------------------------------------------------------------


def read_all(rows):
    """(a number that all rows make, seconds)"""
    start = time.perf_counter()
    total = 0
    for row in rows:
        total += touch(row)
    return total, time.perf_counter() - start


def work(rows, pipe, empty):
    pipe.send("runs")
    for _ in range(1 if empty else 2):
        pipe.recv()  # until all run, or have read
        pipe.send((*read_all(() if empty else rows), private("self")))
    pipe.recv()  # until all have read


def ask(pipes):
    """(mean seconds to read, private bytes of all)"""
    for pipe in pipes:
        pipe.send(None)
    said = [pipe.recv() for pipe in pipes]
    assert len({total for total, *_ in said}) == 1
    return statistics.mean(seconds for _, seconds, _ in said), sum(n for *_, n in said)


def workers(context, rows, empty=False):
    """(seconds to start, to read and to read again, private bytes of all) of the workers."""
    pipes, processes = [], []
    start = time.perf_counter()
    for _ in range(WORKERS):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=work, args=(rows, theirs, empty)))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    for pipe in pipes:
        assert pipe.recv() == "runs"
    started = time.perf_counter() - start
    read, used = ask(pipes)
    again = None if empty else ask(pipes)[0]
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return started, read, again, used


# ---- Ways ----------------------------------------------------------------------------------


def run(way, method):
    warm(COUNT * 5000)
    rows = make(COUNT)
    if way == "element":
        return element(rows)
    context = multiprocessing.get_context(method)
    figures = {}
    if way in ("cowshed, freeze_objects", "cowshed, pack"):
        import cowshed
        import cowshed.multiprocessing

        start = time.perf_counter()
        if way == "cowshed, pack":
            context = cowshed.multiprocessing.get_context(method)
            rows = cowshed.pack(rows)
            figures["bytes"] = rows.nbytes
        else:
            figures["bytes"] = cowshed.freeze_objects().bytes
        figures["prepare"] = time.perf_counter() - start
    # These start the server, too, and compile the modules at the first time.
    *_, empty = workers(context, (), empty=True)
    started, read, again, used = workers(context, rows)
    say(start=started, read=read, again=again, private=used, beyond=max(used - empty, 0), **figures)


def element(rows):
    import cowshed

    packed = cowshed.pack(rows)
    pickles = [pickle.dumps(row, 5) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        packed.save(os.path.join(folder, "rows"))
        opened = cowshed.Packed.open(os.path.join(folder, "rows"))
    ways = {"loads": (pickle.loads, pickles), "packed": (packed.__getitem__, range(COUNT)),
            "file": (opened.__getitem__, range(COUNT))}
    seconds = {name: [] for name in ways}
    for _ in range(3):
        for name, (read, which) in ways.items():
            start = time.perf_counter()
            for i in which:
                read(i)
            seconds[name].append((time.perf_counter() - start) / COUNT)
    say(**{name: min(all) for name, all in seconds.items()})


# ---- The table -----------------------------------------------------------------------------


def pythons():
    """{"3.11": path}: this Python, and the newest of 3.12 to 3.14 if this one is older."""
    asks = "import sys; print('%d.%d' % sys.version_info[:2])"
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = {"%d.%d" % sys.version_info[:2]: sys.executable}
    if sys.version_info >= (3, 12):
        return found
    for minor in 14, 13, 12:
        for path in [*glob.glob(os.path.join(pyenv, f"versions/3.{minor}.*/bin/python3")),
                     shutil.which(f"python3.{minor}")]:
            if path and subprocess.run([path, "-c", asks], capture_output=True,
                                       text=True).stdout.strip() == f"3.{minor}":
                return {**found, f"3.{minor}": path}
    return found


def judge(name, unit, ours, rival, figure, bar, on, scale=1.0):
    line(name, unit, ours.of(figure, scale), rival.of(figure, scale), bar, on)


def measure_all(found):
    """{(python, way, method): Rounds}; the ways take turns."""
    newest = list(found)[-1]
    plan = []
    if newest != "3.11":
        plan += [(newest, "cowshed, freeze_objects", "fork"), (newest, "plain", "fork")]
    plan += [(version, way, method) for version in found for method in METHODS
             for way in ("cowshed, pack", "plain") if (version, way, method) not in plan]
    plan += [(version, "element", "fork") for version in found]
    if ONLY:  # and what it is compared with
        methods = ("fork",) if ONLY == "freeze_objects" else METHODS if ONLY == "pack" else ()
        plan = [(version, way, method) for version, way, method in plan if way.endswith(ONLY) or
                way == "plain" and method in methods and (len(methods) > 1 or version == newest)]
    results = {case: Rounds() for case in plan}
    for _ in range(ROUNDS):
        for version, way, method in plan:
            attempt(results[version, way, method], f"{way}, {method}, {version}",
                    [found[version], __file__, way, method], ours=way != "plain")
    return results


def report():
    found = pythons()
    results = measure_all(found)
    print(f"\n{COUNT} dicts, {WORKERS} workers (median of {ROUNDS}, least to most)")
    mib = 1 / (1 << 20)
    for (version, way, method), rounds in results.items():
        plain = results.get((version, "plain", method))
        if way == "cowshed, freeze_objects":
            name = f"freeze_objects/{version}"
            judge(f"{name}/private", "MiB", rounds, plain, "private", 8, "ours", mib)
            judge(f"{name}/read", "s", rounds, plain, "read", 0.6, "ratio")
            judge(f"{name}/again", "s", rounds, plain, "again", None, "ratio")
            line(f"{name}/prepare", "s", rounds.of("prepare"))
        elif way == "cowshed, pack":
            name = f"pack/{method}/{version}"
            judge(f"{name}/beyond", "MiB", rounds, plain, "beyond", 16, "ours", mib)
            judge(f"{name}/start", "s", rounds, plain, "start",
                  None if method == "fork" else 20, "speedup")
            line(f"{name}/prepare", "s", rounds.of("prepare"))
        elif way == "element":
            rival = rounds.of("loads", 1e6)
            line(f"element/{version}", "us", rounds.of("packed", 1e6), rival, 2, "ratio")
            line(f"file/{version}", "us", rounds.of("file", 1e6), rival, 2, "ratio")
    if len(found) == 1 and "3.11" in found:
        print("  freeze_objects(): no Python of 3.12 or newer (pyenv, PATH)")


if __name__ == "__main__":
    main(run, report)
