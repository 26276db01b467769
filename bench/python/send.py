# SPDX-License-Identifier: MIT
"""The first send of a large array, made by plain NumPy or PyTorch, to a worker.

The time is from put() until the worker has read one byte of the array. A second figure, with
another worker, is until it has summed every byte. The array is filled right before, as programs do.
Ours runs under the shim; the array is NumPy's own, the tensor PyTorch's. Arrays are compared with
arrays and tensors with tensors.

    python send.py            all, by turns     MIB=256
"""

import os
import sys
import time

from common import main, measure, say, table, warm

MIB = int(os.environ.get("MIB", "256"))
SENDS = 5
# The pairs that are compared, and how many times faster ours has to be.
PAIRS = {
    "cowshed": {"multiprocessing": 300, "shared_memory": None},
    "cowshed, torch tensor": {"torch, file_descriptor": 100, "torch, file_system": 100},
}
WAYS = [way for ours, rivals in PAIRS.items() for way in (ours, *rivals)]


def worker(arrays, answers, summing):
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # the fork did not copy its threads
    while (x := arrays.get()) is not None:
        if isinstance(x, tuple):
            import numpy
            from multiprocessing import shared_memory

            block = shared_memory.SharedMemory(x[0])
            x = numpy.frombuffer(block.buf, "u1", x[1])
        answers.put(int(x.sum() if summing else x[-1]))
        del x


def make(way, i):
    """The array, filled, of plain NumPy or PyTorch."""
    if "torch" in way:
        import torch

        return torch.full((MIB << 20,), i % 100, dtype=torch.uint8)
    import numpy

    return numpy.full(MIB << 20, i % 100, "u1")


def put(way, queue, x):
    if way != "shared_memory":
        queue.put(x)
        return None
    import numpy
    from multiprocessing import shared_memory

    block = shared_memory.SharedMemory(create=True, size=x.nbytes)
    numpy.frombuffer(block.buf, "u1", x.nbytes)[:] = x
    queue.put((block.name, x.nbytes))
    return block


def context(way):
    if way.startswith("cowshed"):
        import cowshed.multiprocessing as mp
    elif way.startswith("torch"):
        import torch.multiprocessing as mp

        mp.set_sharing_strategy(way.split()[1])
    else:
        import multiprocessing as mp
    if "torch" in way:
        import torch  # noqa: F401  before the fork
    return mp.get_context("fork")


def run(way):
    figures = {}
    mp = context(way)
    # For the array, its growing pickle, the receiver's bytes, and the receiver's array.
    warm(6 * MIB << 20)
    for summing in False, True:
        arrays, answers = mp.Queue(), mp.Queue()
        process = mp.Process(target=worker, args=(arrays, answers, summing))
        process.start()
        seconds = []
        for i in range(SENDS):
            x = make(way, i)
            start = time.perf_counter()
            block = put(way, arrays, x)
            answer = answers.get()
            seconds.append(time.perf_counter() - start)
            if answer != (i % 100) * (MIB << 20 if summing else 1):
                raise SystemExit(f"{way}: {answer} came back")
            del x
            if block is not None:
                block.unlink()
        arrays.put(None)
        process.join()
        seconds.sort()
        figures["summed" if summing else "got"] = seconds[len(seconds) // 2]
    say(**figures)


def report():
    found = measure(__file__, WAYS, under_shim={w for w in WAYS if w.startswith("cowshed")})
    title = f"A filled array or tensor of {MIB} MiB to a worker"
    table(f"{title}, until it was there", found, "got", PAIRS)
    table(f"{title}, until it was summed", found, "summed",
          {ours: dict.fromkeys(rivals) for ours, rivals in PAIRS.items()})


if __name__ == "__main__":
    main(run, report)
