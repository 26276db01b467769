#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""dask.array rechunk over 4 local workers: cowshed.dask against Dask's own transport.

    dask_rechunk.py         GIB=4

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
and shared memory once. Without a cgroup it is the largest RSS.
"""

import os
import signal
import subprocess
import time

import common
import memory

GIB = float(os.environ.get("GIB", "4"))
OURS = "cowshed", "cowshed, noshim"
BLOCK = 4096
LIMIT = max(120, common.LIMIT)  # seconds for a run: a cluster takes long to start


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


def reset(peak):
    """Touches memory for both arrays and the blocks between them, in a cgroup of its own, and
    forgets the peak so far. Older kernels can't: theirs is the peak of the whole run."""
    touch = [memory.MEASURED[0], "-w", str(int(2.5 * GIB * (1 << 30)))]
    subprocess.run([*memory.MEASURED, *touch], check=True)
    try:
        with open(peak, "w", encoding="ascii") as file:
            file.write("0")
    except (OSError, TypeError):
        pass


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
        peak = memory.cgroup_file("memory.max_usage_in_bytes", "memory.peak")
        reset(peak)
        height = BLOCK * 4
        width = BLOCK * max(1, round(GIB * (1 << 27) / height / BLOCK))
        seconds, used = rechunk(height, width)
    for pid in brokers:  # it would outlive its clients, and keep the cgroup
        os.kill(pid, signal.SIGTERM)
    common.say(seconds=seconds, cpu=used, by="cgroup" if peak else "rss",
               peak=int(memory.read(peak)) if peak else memory.largest())


def report():
    ways = ["dask", *OURS]
    results = common.measure(__file__, ways, limits=dict.fromkeys(ways, LIMIT),
                             prefix=memory.MEASURED)
    print(f"rechunk of {GIB:g} GiB, 4 workers")
    by = max((figures["by"] for rounds in results.values() for figures in rounds), default="rss")
    for way in OURS:
        for figure, bar, on in (("seconds", 2, "speedup"), ("cpu", None, "speedup"),
                                ("peak", 1, "ratio")):
            common.line(f"{figure}/{way.split()[-1]}", "bytes" if figure == "peak" else "s",
                        *(results[name].of(figure) for name in (way, "dask")),
                        bar=bar if way == "cowshed" else None, on=on,
                        by=by if figure == "peak" else None)


if __name__ == "__main__":
    common.main(run, report)
