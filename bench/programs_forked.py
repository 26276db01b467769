# SPDX-License-Identifier: MIT
"""
A NumPy program that forks: real bytes, one copy, four workers.

    programs_forked.py MEGABYTES

It knows nothing of cowshed. The bytes of the system's own libraries fill an
array, which is copied. Each forked worker reads all of both arrays and writes a
part of the copy, while the parent writes a part of the original. Each process
must see the bytes of the moment of the fork and its own writes after it, and
nothing else. The output depends on the files alone. The pauses of os.fork() go
to the file that PROGRAMS_PAUSE names, in microseconds, one a line.
"""
import os
import sys
import time

import numpy as np

WORKERS = 4


def files(top):
    """Regular files below `top`, in a fixed order."""
    for folder, below, names in os.walk(top):
        below.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def build(size):
    """An array of `size` bytes of the system's files."""
    array = np.empty(size, np.uint8)
    used = 0
    for path in files("/usr/lib"):
        try:
            part = np.fromfile(path, np.uint8, count=min(size - used, 1 << 26))
        except OSError:
            continue
        array[used:used + part.size] = part
        used += part.size
        if used == size:
            return array
    if not used:
        sys.exit("no readable file in /usr/lib")
    while used < size:
        step = min(used, size - used)
        array[used:used + step] = array[:step]
        used += step
    return array


def checksum(array):
    """A sum of all bytes and their order, without temporaries of the array's size."""
    words = array.view(np.uint64)
    total = 0
    for at in range(0, words.size, 1 << 18):
        part = words[at:at + (1 << 18)]
        total = (total * 31 + int(part.sum(dtype=np.uint64))
                 + int(np.bitwise_xor.reduce(part))) % (1 << 61)
    return total


def worker(number, a, b, go, want):
    """Reads both arrays, writes its slice of `b`; returns the result as text."""
    os.read(go, 1)  # by now the parent has written to `a`
    if checksum(a) != want or checksum(b) != want:
        return "wrong bytes in worker %d" % number
    step = b.size // WORKERS // 8 * 8
    b[number * step:(number + 1) * step:1] ^= np.uint8(number + 1)
    return "%d %d" % (number, checksum(b))


def main():
    size = int(sys.argv[1]) * 1000 * 1000
    a = build(size // 8 * 8)
    b = a.copy()
    want = checksum(a)
    pauses = []
    children = []
    go_read, go_write = os.pipe()
    for number in range(WORKERS):
        read_end, write_end = os.pipe()
        start = time.perf_counter_ns()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write_end,
                         worker(number, a, b, go_read, want).encode())
            finally:
                os._exit(0)
        pauses.append((time.perf_counter_ns() - start) / 1000)
        os.close(write_end)
        children.append((pid, read_end))
    a[:a.size // 100] ^= np.uint8(0x5A)
    os.write(go_write, b"x" * WORKERS)
    print("before", want)
    bad = False
    for pid, read_end in children:
        answer = os.read(read_end, 4096).decode() or "a worker died"
        bad |= os.waitpid(pid, 0)[1] != 0 or not answer[0].isdigit()
        print("worker", answer)
    if checksum(b) != want:
        bad = True
        print("a worker's write is in the parent's array")
    b[-(b.size // 10):] += np.uint8(1)
    print("after", checksum(a), checksum(b))
    if os.environ.get("PROGRAMS_PAUSE"):
        with open(os.environ["PROGRAMS_PAUSE"], "w") as out:
            out.writelines("%.1f\n" % pause for pause in pauses)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
