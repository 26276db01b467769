#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rival that Python's multiprocessing offers, for bench/share.c.

    share.py COUNT WAY

It makes COUNT segments of shared memory of 4 KiB and sends the descriptor of each to a forked
process, which maps it. It prints the nanoseconds to make and to send one.

WAY: `handle` is reduction.send_handle() by the pipe, the cheapest way of the module. `dup` is
reduction.DupFd() in a pickle, as torch.multiprocessing's strategy file_descriptor uses it: for
each descriptor the receiver connects to a thread of the sender.
"""
import mmap
import os
import sys
import time
from multiprocessing import get_context, reduction

import _posixshmem

PAGE = 4096


def segment(number):
    name = f"/cowshed-bench.{os.getpid()}.{number}"
    fd = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    _posixshmem.shm_unlink(name)
    os.ftruncate(fd, PAGE)
    return fd


def receive_many(conn, count, way):
    maps = []
    conn.send_bytes(b"1")
    for i in range(count):
        fd = reduction.recv_handle(conn) if way == "handle" else conn.recv().detach()
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
        fd = segment(i)
        m = mmap.mmap(fd, PAGE)
        m[:8] = i.to_bytes(8, "little")
        maps.append(m)
        make += time.monotonic_ns() - t0
        if way == "handle":
            reduction.send_handle(mine, fd, peer.pid)
        else:
            mine.send(reduction.DupFd(fd))
        os.close(fd)
    mine.recv_bytes()
    print(make / count, (time.monotonic_ns() - begin - make) / count)
    peer.join()
    return peer.exitcode


if __name__ == "__main__":
    sys.exit(many(int(sys.argv[1]), sys.argv[2]))
