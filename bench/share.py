#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rivals that Python's multiprocessing offers, for bench/share.c.

    share.py many COUNT WAY     makes COUNT segments of shared memory of 4 KiB and sends the
                                descriptor of each to a forked process, which maps it; prints
                                the nanoseconds to make and to send one
    share.py large BYTES TURNS  sends one filled segment TURNS times; the receiver maps it
                                privately and writes a page; prints the microseconds of a
                                byte's round trip, and of a send beyond it (medians)

WAY: `handle` is reduction.send_handle() by the pipe, the cheapest way of the module. `dup` is
reduction.DupFd() in a pickle, as torch.multiprocessing's strategy file_descriptor uses it: for
each descriptor the receiver connects to a thread of the sender.
"""
import mmap
import os
import statistics
import sys
import time
from multiprocessing import get_context, reduction

import _posixshmem

PAGE = 4096


def segment(size, number):
    name = f"/cowshed-bench.{os.getpid()}.{number}"
    fd = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    _posixshmem.shm_unlink(name)
    os.ftruncate(fd, size)
    return fd


def get(conn, way):
    return reduction.recv_handle(conn) if way == "handle" else conn.recv().detach()


def put(conn, fd, pid, way):
    if way == "handle":
        reduction.send_handle(conn, fd, pid)
    else:
        conn.send(reduction.DupFd(fd))


def receive_many(conn, count, way):
    maps = []
    conn.send_bytes(b"1")
    for i in range(count):
        fd = get(conn, way)
        maps.append(mmap.mmap(fd, PAGE))
        os.close(fd)
    conn.send_bytes(b"1")
    for i, m in enumerate(maps):
        assert int.from_bytes(m[:8], "little") == i


def many(count, way):
    context = get_context("fork")
    mine, theirs = context.Pipe()
    peer = context.Process(target=receive_many, args=(theirs, count, way))
    peer.start()
    mine.recv_bytes()
    maps, make = [], 0
    begin = time.monotonic_ns()
    for i in range(count):
        t0 = time.monotonic_ns()
        fd = segment(PAGE, i)
        m = mmap.mmap(fd, PAGE)
        m[:8] = i.to_bytes(8, "little")
        maps.append(m)
        make += time.monotonic_ns() - t0
        put(mine, fd, peer.pid, way)
        os.close(fd)
    mine.recv_bytes()
    print(make / count, (time.monotonic_ns() - begin - make) / count)
    peer.join()
    return peer.exitcode


def receive_large(conn, size, turns):
    for _ in range(turns):
        conn.recv_bytes()
        conn.send_bytes(b"1")
    for _ in range(turns):
        fd = reduction.recv_handle(conn)
        m = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
        m[3 * PAGE] = 1
        conn.send_bytes(b"1")
        m.close()
        os.close(fd)
        conn.recv_bytes()


def large(size, turns):
    context = get_context("fork")
    mine, theirs = context.Pipe()
    peer = context.Process(target=receive_large, args=(theirs, size, turns))
    peer.start()
    fd = segment(size, 0)
    m = mmap.mmap(fd, size)
    page = b"\1" * (1 << 20)
    for at in range(0, size, len(page)):
        m[at:at + len(page)] = page[:size - at]
    trips, beyond = [], []
    for _ in range(turns):
        t0 = time.monotonic_ns()
        mine.send_bytes(b"1")
        mine.recv_bytes()
        trips.append((time.monotonic_ns() - t0) / 1e3)
    trip = statistics.median(trips)
    for _ in range(turns):
        t0 = time.monotonic_ns()
        reduction.send_handle(mine, fd, peer.pid)
        mine.recv_bytes()
        beyond.append((time.monotonic_ns() - t0) / 1e3 - trip)
        mine.send_bytes(b"1")
    print(trip, statistics.median(beyond))
    peer.join()
    return peer.exitcode


if __name__ == "__main__":
    if sys.argv[1] == "many":
        sys.exit(many(int(sys.argv[2]), sys.argv[3]))
    sys.exit(large(int(sys.argv[2]), int(sys.argv[3])))
