# SPDX-License-Identifier: MIT
"""A block of shared memory: created, attached by its name, 64 MiB written, closed and unlinked.

Ours is cowshed.multiprocessing.shared_memory, whose names are at the broker; the rival is the
standard library's. A second figure is the same without writing.

    python shared_memory.py   both, by turns    MIB=64
"""

import os
import time

from common import main, measure, say, table, warm

MIB = int(os.environ.get("MIB", "64"))
BLOCKS = 20
PAIRS = {"cowshed": {"multiprocessing": 1}}


def run(way):
    if way == "cowshed":
        from cowshed.multiprocessing.shared_memory import SharedMemory
    else:
        from multiprocessing.shared_memory import SharedMemory
    data = bytes(MIB << 20)
    warm(2 * MIB << 20)

    def once(written):
        start = time.perf_counter()
        block = SharedMemory(create=True, size=MIB << 20)
        same = SharedMemory(block.name)
        if written:
            same.buf[:] = data
        same.close()
        block.close()
        block.unlink()
        return time.perf_counter() - start

    once(False)  # starts the broker, or the tracker
    figures = {}
    for figure, written in ("written", True), ("empty", False):
        seconds = sorted(once(written) for _ in range(BLOCKS))
        figures[figure] = seconds[BLOCKS // 2]
    say(**figures)


def report():
    found = measure(__file__, ["cowshed", "multiprocessing"])
    table(f"A block: created, attached, {MIB} MiB written, closed", found, "written", PAIRS)
    table("The same, nothing written", found, "empty", {"cowshed": {"multiprocessing": None}})


if __name__ == "__main__":
    main(run, report)
