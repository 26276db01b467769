# SPDX-License-Identifier: MIT
"""A function over a large array, on several processors, without a copy of the array.

The input is frozen: every worker maps the same pages. The output is shared: each worker writes
its rows in place, and sends nothing back.

    python parallel_map.py [MiB] [workers]
"""

import sys

import numpy as np

import cowshed
import cowshed.multiprocessing as mp


def work(task):
    source, result, rows = task
    result[rows] = np.sqrt(source[rows]) + 1


def main(mib=1024, workers=4):
    source = cowshed.empty((mib, 1 << 17))  # a row is 1 MiB
    source[:] = np.arange(mib)[:, None]
    source = cowshed.freeze(source)
    result = cowshed.empty(source.shape, shared=True)
    rows = [slice(at, at + 16) for at in range(0, mib, 16)]
    with mp.Pool(workers) as pool:
        pool.map(work, [(source, result, r) for r in rows], chunksize=1)
    assert (result[:, ::1000] == np.sqrt(source[:, ::1000]) + 1).all()
    print(f"{len(rows)} tasks by {workers} workers: {result.nbytes >> 20} MiB in place")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
