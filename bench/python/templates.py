# SPDX-License-Identifier: MIT
"""Workers that need PyTorch and GIB of data: how long one takes, and what 500 of them cost.

"first_line" is the time from the call of start() to the first line of the worker's function that
has all it needs: PyTorch is imported, and for templates the data are there. The rivals get no data,
only PyTorch: spawn imports it in the worker; "forkserver" is the standard library's server, which
has it preloaded, with its threads. "private" is the memory of a worker that nobody shares, while
ALIVE of them wait after they have read one byte of each MiB of the data.

    python templates.py         GIB=4 ALIVE=500
"""

import multiprocessing
import os
import time

if __name__ == "__main__":
    import statistics

    from common import line, main, measure, say, warm
    from memory import private

GIB = float(os.environ.get("GIB", "4"))
ALIVE = int(os.environ.get("ALIVE", "500"))
WORKERS = 20
OURS = "cowshed, template", "cowshed, template without the shim"
RIVALS = "spawn", "forkserver"
data = None


def setup():
    global data
    import numpy
    import torch

    torch.ones(1)
    data = numpy.ones(int(GIB * (1 << 30)), "u1")


def first(pipe):
    if data is None:
        import torch

        torch.ones(1)
    pipe.send(time.perf_counter())


def stay(pipe):
    total = int(data[:: 1 << 20].sum())
    pipe.send(total)
    pipe.recv()  # until all have been looked at


def begin(context, function):
    ours, theirs = context.Pipe()
    worker = context.Process(target=function, args=(theirs,))
    start = time.perf_counter()
    worker.start()
    theirs.close()
    return worker, ours, start


def all_alive(template):
    """(seconds until all run, mean of their private bytes)."""
    start = time.perf_counter()
    workers = [begin(template, stay)[:2] for _ in range(ALIVE)]
    for _, pipe in workers:
        assert pipe.recv() >= int(GIB * 1024)
    seconds = time.perf_counter() - start
    # Reading the file in a worker would write to half a megabyte of its memory.
    sizes = [private(worker.pid) for worker, _ in workers]
    for _, pipe in workers:
        pipe.send(None)
    for worker, _ in workers:
        worker.join()
        assert worker.exitcode == 0
    return seconds, statistics.mean(sizes)


def run(way):
    figures = {}
    if way in OURS:
        import cowshed.multiprocessing

        warm(GIB * (1 << 30))
        context = cowshed.multiprocessing.get_context("template")
        start = time.perf_counter()
        context = context.Template(setup, shim=way == OURS[0])
        figures["setup"] = time.perf_counter() - start
    else:
        context = multiprocessing.get_context(way)
        if way == "forkserver":
            context.set_forkserver_preload(["torch", "__main__"])
    times = []
    for _ in range(WORKERS if way != "spawn" else 2):
        worker, pipe, start = begin(context, first)
        times.append(pipe.recv() - start)
        worker.join()
    # The first one starts the fork server.
    figures["first_line"] = statistics.median(times[1:])
    if way in OURS:
        figures["all"], figures["private"] = all_alive(context)
    say(**figures)


def report():
    results = measure(__file__, [*OURS, *RIVALS])
    print(f"\nFrom start() to the first line of a worker, {GIB:g} GiB in templates")
    for way in OURS:
        for rival in RIVALS:
            line(f"first_line/{way}/{rival}", "ms", results[way].of("first_line", 1e3),
                 results[rival].of("first_line", 1e3), 5 if way == OURS[0] else None, "ours")
    for way in OURS:
        line(f"private/{way}/{ALIVE}-alive", "MiB", results[way].of("private", 1 / (1 << 20)), None,
             4, "ours")
        line(f"start/{way}/{ALIVE}-alive", "s", results[way].of("all"))


if __name__ == "__main__":
    main(run, report)
