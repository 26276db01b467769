#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""prefork_pool.py BYTES SECONDS: a Pool whose workers do one task each, over a NumPy array

The array has BYTES in pages that begin with their number. Four workers inherit it by fork, with
maxtasksperchild=1, so each task has a fork of its own. A task sums the numbers of 256 pages (1 MiB)
and adds to the counters of 16 pages, for itself. The parent checks each sum, and stores it in the
array. One line: tasks=.. task_us=..
"""

import multiprocessing
import random
import sys
import threading
import time

import numpy

WORKERS, READ, WRITTEN = 4, 256, 16
size, seconds = int(sys.argv[1]), float(sys.argv[2])
table = numpy.zeros((size // 4096, 512), dtype=numpy.int64)
table[:, 0] = numpy.arange(len(table))
table[:, 511] = 1  # a second cache line of each page


def task(first):
    for page in random.sample(range(len(table)), WRITTEN):
        table[page, 2] += 1
    return first, int(table[first:first + READ, 0].sum())


def measure():
    room = threading.Semaphore(4 * WORKERS)
    end = time.monotonic() + seconds

    def firsts():
        while time.monotonic() < end:
            room.acquire()
            yield random.randrange(len(table) - READ)

    began, tasks = time.monotonic(), 0
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        for first, got in pool.imap_unordered(task, firsts()):
            room.release()
            if got != READ * first + READ * (READ - 1) // 2:
                sys.exit(f"pages {first} and on have a wrong sum: {got}")
            table[first, 1] = got
            tasks += 1
    print(f"tasks={tasks} task_us={(time.monotonic() - began) * 1e6 / tasks:.1f}")


measure()
