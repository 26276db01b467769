# SPDX-License-Identifier: MIT
"""The patterns of bench/tensors.txt in NumPy and PyTorch

    tensors.py THREADS <bench/tensors.txt

One turn. It prints a line for each pattern and rival: the pattern's name, "numpy" or
"torch", and the nanoseconds of a copy (the median of five). Memory is touched before. It
prints no line for a library that is not installed, or that has no such type.
"""
import mmap
import sys
import time

import numpy as np

try:
    import torch
except ImportError:
    torch = None

threads = int(sys.argv[1])
clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
MOST = 192 << 20


def memory():
    """Huge pages that were touched, as in bench/tensors.c."""
    m = mmap.mmap(-1, MOST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_HUGEPAGE)
    a = np.frombuffer(m, dtype=np.uint8)
    a[:] = 0
    return a


def median_of(copy, size):
    times = 40000 if size < 4 << 10 else 2000 if size < 1 << 20 else 1
    copy()
    found = []
    for _ in range(5):
        start = clock()
        for _ in range(times):
            copy()
        found.append((clock() - start) / times)
    return sorted(found)[2]


SIZES = {"bool": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4,
         "float32": 4, "int64": 8, "float64": 8, "complex64": 8}


def by_numpy(a, b, src, dst, sizes, fs, ts, bits):
    if "bfloat16" in (src, dst) or threads != 1:
        return None
    strided = np.lib.stride_tricks.as_strided
    x = strided(a.view(src)[bits == "offset":], sizes, [s * SIZES[src] for s in fs])
    y = strided(b.view(dst), sizes, [s * SIZES[dst] for s in ts])
    if bits == "conj":
        return lambda: np.conjugate(x, out=y)
    if bits == "neg":
        return lambda: np.negative(x, out=y)
    return lambda: np.copyto(y, x, casting="unsafe")


def by_torch(a, b, src, dst, sizes, fs, ts, bits):
    x = torch.from_numpy(a).view(getattr(torch, src)).as_strided(
        sizes, fs, int(bits == "offset"))
    y = torch.from_numpy(b).view(getattr(torch, dst)).as_strided(sizes, ts)
    if bits == "conj":
        x = x.conj()
    if bits == "neg":
        x = torch._neg_view(x)
    return lambda: y.copy_(x)


a, b = memory(), memory()
if torch:
    torch.set_num_threads(threads)
for line in sys.stdin:
    name, src, dst, sizes, fs, ts, bits = line.split()
    sizes, fs, ts = ([int(n) for n in s.split(",")] for s in (sizes, fs, ts))
    count = 1
    for n in sizes:
        count *= n
    size = count * (SIZES[src] + SIZES[dst])
    for rival, make in (("numpy", by_numpy), ("torch", by_torch)):
        if rival == "torch" and not torch:
            continue
        copy = make(a, b, src, dst, sizes, fs, ts, bits)
        if copy:
            print(name, rival, "%.6g" % median_of(copy, size), flush=True)
