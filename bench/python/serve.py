# SPDX-License-Identifier: MIT
"""Memory of N processes that read one array and patch a part of it for themselves.

WORKERS processes get an array of GIB. Each reads a byte of each page and writes the share PATCH of
the pages, chosen at random. The figure is the memory of all of them then, by a cgroup (memory.py).
Ours is frozen, sent through a queue, and cloned by each worker. The rivals, of which the best one
counts:

    fork       an array of plain NumPy, which forked workers inherit: the kernel copies the pages
               that they write. It needs the array before the workers start
    memmap     a file of /dev/shm, which each worker maps for itself: np.memmap(mode="c")
    copy       shared memory, of which each worker makes a copy of its own

    python serve.py           GIB=2
"""

import math
import os
import statistics
import time

from common import line, main, measure, say, warm
from memory import MEASURED, charged

GIB = float(os.environ.get("GIB", "2"))
WORKERS = 8
PATCH = 0.01
WAYS = ["cowshed", "fork", "memmap", "copy"]
PAGE = 1 << 12


def got(way, x, what):
    """The worker's array, which it may write. `x`: the array that it inherited, or None."""
    import numpy as np

    if way == "cowshed":
        import cowshed

        return cowshed.clone(what)
    if way == "fork":
        return x
    name, shape = what
    if way == "memmap":
        return np.memmap(name, "u1", "c", shape=shape)
    from multiprocessing import shared_memory

    there = shared_memory.SharedMemory(name)
    x = np.ndarray(shape, "u1", there.buf).copy()
    there.close()
    return x


def work(way, x, inbox, outbox, number):
    """A worker: reads, patches, and stays until its inbox says to end."""
    import numpy as np

    x = got(way, x, inbox.get())
    sum_ = int(x[::PAGE].sum(dtype="u8"))
    pages = x.reshape(-1, PAGE)
    mine = np.random.default_rng(number).choice(len(pages), int(len(pages) * PATCH), replace=False)
    pages[mine, 0] += 1
    outbox.put((sum_, int(x[::PAGE].sum(dtype="u8"))))
    inbox.get()


def made(way, nbytes):
    """(the parent's array, what it sends to the workers, how to remove it)"""
    import numpy as np

    if way == "cowshed":
        import cowshed

        x = cowshed.freeze(cowshed.full((nbytes,), 1, "u1"))
        return x, x, lambda: None
    if way == "fork":
        return np.full(nbytes, 1, "u1"), None, lambda: None
    if way == "memmap":
        name = f"/dev/shm/cowshed-bench-{os.getpid()}"
        x, remove = np.memmap(name, "u1", "w+", shape=(nbytes,)), lambda: os.unlink(name)
    else:
        from multiprocessing import shared_memory

        there = shared_memory.SharedMemory(create=True, size=nbytes)
        name, x = there.name, np.ndarray((nbytes,), "u1", there.buf)
        remove = there.unlink
    x[:] = 1
    return x, (name, x.shape), remove


def run(way):
    if way == "cowshed":
        import cowshed.multiprocessing as mp
    else:
        import multiprocessing as mp
    nbytes = int(GIB * (1 << 30))
    warm((WORKERS + 1.25) * nbytes)  # the array, and a copy for each worker
    x, what, remove = made(way, nbytes)
    try:
        context = mp.get_context("fork")
        inboxes, outbox = [context.Queue() for _ in range(WORKERS)], context.Queue()
        inherited = x if way == "fork" else None
        workers = [context.Process(target=work, args=(way, inherited, inboxes[i], outbox, i))
                   for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        start = time.perf_counter()
        for inbox in inboxes:
            inbox.put(what)
        pages = nbytes // PAGE
        assert all(outbox.get() == (pages, pages + int(pages * PATCH)) for _ in workers)
        seconds = time.perf_counter() - start
        assert (x[::PAGE] == 1).all()
        nbytes, by = charged()
        say(bytes=nbytes, by=by, seconds=seconds)
        for inbox in inboxes:
            inbox.put(None)
        for worker in workers:
            worker.join()
    finally:
        remove()


def best(found, figure):
    """The rounds of the rival with the least median, of the rivals that have any."""
    rivals = [found[way].of(figure) for way in WAYS[1:]]
    return min(rivals, key=lambda values: statistics.median(values) if values else math.inf)


def report():
    found = measure(__file__, WAYS, prefix=MEASURED)
    by = max((figures["by"] for rounds in found.values() for figures in rounds), default="rss")
    print(f"{WORKERS} workers, {GIB:g} GiB, {PATCH:.0%} of the pages patched by each: memory")
    for rounds in found.values():
        for r in rounds:
            r["size"] = r["bytes"] / (GIB * (1 << 30))
    size, seconds = (found["cowshed"].of(figure) for figure in ("size", "seconds"))
    line("memory-of-the-array", "x", size, best(found, "size"), bar=1.15, on="ours", by=by)
    line("seconds", "s", seconds, best(found, "seconds"))
    for way in WAYS[1:]:
        line(f"memory-of-the-array/{way}", "x", size, found[way].of("size"), on="ratio", by=by)
        line(f"seconds/{way}", "s", seconds, found[way].of("seconds"))


if __name__ == "__main__":
    main(run, report)
