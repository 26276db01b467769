# SPDX-License-Identifier: MIT
"""Memory of N processes that read one array and patch a part of it for themselves.

WORKERS processes get an array of GIB, read all of it, and write PATCH of its pages, each its
own ones. What all of it then takes: the proportional set sizes (Pss) of all processes, which
count each page once, however many map it, and what memfds hold that nobody maps. The rival
copies: who may write to a copy of his own alone has to make one.

    python serve.py           GIB=2 WORKERS=8 PATCH=0.01 START=fork (spawn: and interpreters)
"""

import os
import sys
import time

from common import leave, line, measure, say, warm

GIB = float(os.environ.get("GIB", "2"))
WORKERS = int(os.environ.get("WORKERS", "8"))
PATCH = float(os.environ.get("PATCH", "0.01"))
START = os.environ.get("START", "fork")
WAYS = ["cowshed", "multiprocessing.shared_memory"]
PAGE = 1 << 12


def memory(pids):
    """Bytes of all pages of these processes and of their memfds, each counted once."""
    pss, files = {"Pss_Anon": 0, "Pss_File": 0, "Pss_Shmem": 0}, {}
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            for name, value in (line.split(":") for line in lines if line.startswith("Pss_")):
                if name in pss:
                    pss[name] += int(value.split()[0]) << 10
        for fd in os.scandir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(fd.path).startswith(("/memfd:", "/dev/shm/")):
                    facts = os.stat(fd.path)
                    files[facts.st_ino] = facts.st_blocks * 512
            except FileNotFoundError:
                pass  # the one that lists
    shared = max(pss["Pss_Shmem"], sum(files.values()))
    return pss["Pss_Anon"] + pss["Pss_File"] + shared


def work(name, shape, inbox, outbox, number):
    """A worker: reads, patches, and stays until it is told to go."""
    import numpy as np

    x = inbox.get()
    if not name:
        import cowshed

        x = cowshed.clone(x)
    else:
        from multiprocessing import shared_memory

        there = shared_memory.SharedMemory(name)
        x = np.ndarray(shape, "u1", there.buf).copy()
        there.close()
    sum_ = int(x[::PAGE].sum(dtype="u8"))
    pages = x.reshape(-1, PAGE)
    mine = np.random.default_rng(number).choice(len(pages), int(len(pages) * PATCH), replace=False)
    pages[mine, 0] += 1
    outbox.put(sum_)
    inbox.get()


def run(way):
    import numpy as np

    nbytes = int(GIB * (1 << 30))
    warm((WORKERS + 1.25) * nbytes)  # copies of all workers
    name = there = None
    if way == "cowshed":
        import cowshed
        import cowshed.multiprocessing as mp

        x = cowshed.freeze(cowshed.full((nbytes,), 1, "u1"))
    else:
        import multiprocessing as mp
        from multiprocessing import shared_memory

        there = shared_memory.SharedMemory(create=True, size=nbytes)
        name = there.name
        x = np.ndarray((nbytes,), "u1", there.buf)
        x[:] = 1
    context = mp.get_context(START)
    inboxes, outbox = [context.Queue() for _ in range(WORKERS)], context.Queue()
    workers = [context.Process(target=work, args=(name, x.shape, inboxes[i], outbox, i))
               for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    start = time.perf_counter()
    for inbox in inboxes:
        inbox.put(None if name else x)
    assert all(outbox.get() == nbytes // PAGE for _ in workers)
    seconds = time.perf_counter() - start
    assert (x[::PAGE] == 1).all()
    say(bytes=memory([os.getpid(), *(worker.pid for worker in workers)]), seconds=seconds)
    for inbox in inboxes:
        inbox.put(None)
    for worker in workers:
        worker.join()
    if there:
        del x
        there.close()
        there.unlink()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        found = measure(__file__, WAYS)
        print(f"{WORKERS} workers, {GIB:g} GiB, {PATCH:.0%} of the pages patched by each: memory")
        for way, rounds in found.items():
            for r in rounds:
                print(f"  {way:34} {r['bytes'] / (1 << 30):8.2f} GiB   "
                      f"{r['bytes'] / (GIB * (1 << 30)):6.2f} x   {r['seconds']:.2f} s")
            if rounds.failed:
                print(f"  {way:34}{rounds.lost()}")
        sizes = [found[way].of("bytes", 1 / (GIB * (1 << 30))) for way in WAYS]
        line("memory-of-the-array", "x", *sizes, bar=1.15, on="ours")
        line("seconds", "s", *(found[way].of("seconds") for way in WAYS))
        leave()
