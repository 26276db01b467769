#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""dask.array rechunk over 4 local workers: cowshed.dask against Dask's own transport.

    dask_rechunk.py         GIB=4 ROUNDS=3

Every run is a process of its own, in a memory cgroup of its own if one can be made. It has a
LocalCluster of 4 processes with one thread each. The ways take turns. A persisted array of float64
has blocks of 128 MiB (Dask's default). It is rechunked to blocks of four times the height and a
quarter of the width. The time is from the call until all blocks are there. Dask gives each worker
a row of blocks, so three quarters of all bytes change their worker. A small array is rechunked
before, which opens connections. The result is compared.

    dask      Dask's own transport
    cowshed   cowshed.dask.install() before the cluster is made
    noshim    the same with shim=False: each block that is sent is copied once

CPU is the time of the workers and the broker during the rechunk. Each run has a broker of its own.
Peak is that of the cgroup, which has all these processes, the broker included; it counts page cache
and shared memory once. Without a cgroup it is the memory of all these processes, read ten times a
second: each page counts once, also shared memory that no process maps (memory.py).
"""

import os
import subprocess
import sys
import threading
import time

import common
import memory

GIB = float(os.environ.get("GIB", "4"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WAYS = "dask", "cowshed", "noshim"
BLOCK = 4096
LIMIT = 120  # at least so many seconds for a run: a cluster takes long to start
CGROUPS = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


# ---- One run ------------------------------------------------------------------------------


def fill(block_info=None):
    import numpy as np
    at = block_info[None]
    (top, bottom), (left, right) = at["array-location"]
    rows = np.arange(top, bottom, dtype="f8")[:, None]
    result = np.empty((bottom - top, right - left))
    np.add(rows * 1e6, np.arange(left, right, dtype="f8"), out=result)
    return result


def cpu(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Peak:
    """The most memory that some processes had, read again and again."""

    def __init__(self, pids):
        self.pids, self.most, self.stop = pids, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.stop.wait(0.1):
            self.most = max(self.most, memory.memory(self.pids))

    def end(self):
        self.stop.set()
        self.thread.join()
        return self.most


def run(way):
    import dask
    broker = f"cowshed-bench-{os.getpid()}"
    os.environ["DASK_COWSHED__BROKER"] = f"@{broker}"  # for the workers, too
    dask.config.set({"distributed.worker.memory.terminate": False,
                     "cowshed.broker": f"@{broker}"})
    if way != "dask":
        import cowshed.dask
        cowshed.dask.install(shim=way == "cowshed")
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    def sent():
        import cowshed.dask
        return cowshed.dask.stats()

    def rechunk(height, width):
        x = da.map_blocks(fill, chunks=((BLOCK,) * (height // BLOCK), (BLOCK,) * (width // BLOCK)),
                          dtype="f8", meta=da.empty((0, 0))._meta).persist()
        wait(x)
        before, start = cpu(pids), time.perf_counter()
        y = x.rechunk((BLOCK * 4, BLOCK // 4), method="tasks").persist()
        wait(y)
        seconds, used = time.perf_counter() - start, cpu(pids) - before
        rows, columns = y[::997, ::1009].compute().shape
        got = y[::997, ::1009].compute()
        for i in range(rows):
            for j in range(columns):
                assert got[i, j] == i * 997e6 + j * 1009, (i, j)
        return seconds, used

    with LocalCluster(n_workers=4, threads_per_worker=1, processes=True, memory_limit=0,
                      dashboard_address=None) as cluster, Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        rechunk(BLOCK * 4, BLOCK)
        brokers = memory.named(broker)
        if (way != "dask") != bool(brokers):
            raise SystemExit(f"{len(brokers)} brokers")
        pids += brokers
        client.run(lambda: __import__("gc").collect())
        warm()
        reset_peak()
        peak = None if cgroup() else Peak([*memory.descendants(os.getpid()), *brokers])
        height = BLOCK * 4
        width = BLOCK * max(1, round(GIB * (1 << 27) / height / BLOCK))
        seconds, used = rechunk(height, width)
        result = {"seconds": seconds, "cpu": used, "gib": height * width / (1 << 27),
                  "peak": read_peak() if peak is None else peak.end(),
                  "by": "cgroup" if peak is None else "pss"}
        if way != "dask":
            stats = client.run(sent).values()
            result["by_handle"] = sum(s.get("bytes", 0) for s in stats) / (1 << 30)
            result["copied"] = sum(s.get("copied", 0) for s in stats) / (1 << 30)
    common.say(**result)


# ---- A cgroup -----------------------------------------------------------------------------


def cgroup():
    return os.environ.get("BENCH_CGROUP", "")


def peak_file():
    for name in "memory.max_usage_in_bytes", "memory.peak":
        path = os.path.join(cgroup(), name)
        if os.path.exists(path):
            return path
    return None


def warm():
    """common.warm() for both arrays and the blocks between them, in a process outside of the
    cgroup: older kernels can't reset its peak."""
    def leave():
        if cgroup():
            path = os.path.join(os.path.dirname(cgroup()), "cgroup.procs")
            with open(path, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

    subprocess.run([sys.executable, common.__file__, str(int(2.5 * GIB * (1 << 30)))],
                   preexec_fn=leave, check=True)


def reset_peak():
    if cgroup():
        try:
            with open(peak_file(), "w", encoding="ascii") as file:
                file.write("0")
        except OSError:
            pass  # older kernels: the peak is that of the whole run


def read_peak():
    with open(peak_file(), encoding="ascii") as file:
        return int(file.read())


def make_cgroup():
    for root in CGROUPS:
        path = os.path.join(root, f"cowshed-bench-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        if any(os.path.exists(os.path.join(path, n))
               for n in ("memory.max_usage_in_bytes", "memory.peak")):
            return path
        os.rmdir(path)
    return ""


def one(rounds, way):
    path = make_cgroup()

    def enter():
        if path:
            with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

    try:
        common.attempt(rounds, way, [sys.executable, __file__, way], max(LIMIT, common.LIMIT),
                       way != "dask", preexec_fn=enter, env={**os.environ, "BENCH_CGROUP": path})
    finally:
        for _ in range(300):  # the broker ends by itself when it has no clients
            try:
                os.rmdir(path or "/nonexistent")
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.1)


def report():
    results = {way: common.Rounds() for way in WAYS}
    for _ in range(ROUNDS):
        for way in WAYS:
            one(results[way], way)
    print(f"rechunk of {GIB:g} GiB, 4 workers")
    by = max((figures["by"] for rounds in results.values() for figures in rounds), default="pss")
    for way in WAYS[1:]:
        for figure, bar, on in (("seconds", 2, "speedup"), ("cpu", None, "speedup"),
                                ("peak", 1, "ratio")):
            common.line(f"{figure}/{way}", "bytes" if figure == "peak" else "s",
                        *(results[name].of(figure) for name in (way, "dask")),
                        bar=bar if way == "cowshed" else None, on=on,
                        by=by if figure == "peak" else None)


if __name__ == "__main__":
    common.main(run, report)
