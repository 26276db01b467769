# SPDX-License-Identifier: MIT
"""Many small tensors through a queue, with few descriptors.

A process sends COUNT tensors of 4 KiB to its parent, one put() each, and the parent reads the
first element of each. All ways run with `ulimit -n 64`. PyTorch's descriptors need more, so they
are judged with 4096, and reported without a bar with 64. Arrays of NumPy are sent, too, by
multiprocessing and by ours.

    python small.py           COUNT=10000
"""

import os
import resource
import time

from common import main, measure, say, table, warm

COUNT = int(os.environ.get("COUNT", "10000"))
WAYS = [
    "cowshed, clones",
    "cowshed, aliases",
    "cowshed, installed in torch",
    "cowshed, NumPy",
    "torch, file_system",
    "torch, file_descriptor",
    "torch, file_descriptor, ulimit 4096",
    "multiprocessing, NumPy",
]
TORCH = {"torch, file_system": 5, "torch, file_descriptor": None,
         "torch, file_descriptor, ulimit 4096": 5}
PAIRS = {**dict.fromkeys(WAYS[:3], TORCH), "cowshed, NumPy": {"multiprocessing, NumPy": None}}


def send(queue, count, numpy_only):
    if numpy_only:
        import numpy

        make = lambda i: numpy.full(1024, i, "f4")  # noqa: E731
    else:
        import torch

        make = lambda i: torch.full((1024,), float(i))  # noqa: E731
    for i in range(count):
        queue.put(make(i))
    queue.get_back.recv()


def run(way):
    numpy_only = "NumPy" in way
    if numpy_only:
        import numpy  # noqa: F401  before the fork
    else:
        import torch

        torch.set_num_threads(1)
    limit = 4096 if "4096" in way else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if way == "cowshed, installed in torch":
        import cowshed.torch

        cowshed.torch.install()
        import torch.multiprocessing as mp
    elif way.startswith("cowshed"):
        import cowshed
        import cowshed.multiprocessing as mp

        cowshed.set_sharing_mode("alias" if "aliases" in way else "clone")
    elif numpy_only:
        import multiprocessing as mp
    else:
        import torch.multiprocessing as mp

        mp.set_sharing_strategy(way.split(", ")[1])
    mp = mp.get_context("fork")
    warm((256 << 20) + COUNT * (16 << 10))  # all may wait for a slow receiver
    queue = mp.Queue()
    # A sender of PyTorch's descriptors must live until all were received.
    queue.get_back, done = mp.Pipe(duplex=False)
    process = mp.Process(target=send, args=(queue, COUNT, numpy_only))
    start = time.perf_counter()
    process.start()
    total = 0.0
    for _ in range(COUNT):
        total += float(queue.get()[0])
    seconds = time.perf_counter() - start
    done.send(None)
    process.join()
    if total != sum(range(COUNT)):
        raise SystemExit(f"{way}: the sum is {total}")
    say(seconds=seconds)


def report():
    # PyTorch's descriptors with 64: its threads die without an error.
    found = measure(__file__, WAYS, limits={"torch, file_descriptor": 20})
    table(f"{COUNT} tensors or arrays of 4 KiB through a queue, ulimit -n 64", found, "seconds",
          PAIRS)


if __name__ == "__main__":
    main(run, report)
