# SPDX-License-Identifier: MIT
"""PyTorch's side of bench/gpu.c: the same copies, by the same names. The host takes the times
and waits for the work to end. Each figure is a median."""
import os
import statistics
import time

import torch

quick = os.environ.get("BENCH_QUICK", "0") != "0"
side = 1024 if quick else 8192
big = (64 if quick else 512) << 20
cuda = torch.device("cuda", 0)


def measure(name, what, times=21, each=1):
    series = []
    for i in range(times + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            what()
        torch.cuda.synchronize()
        if i >= 2:
            series.append((time.perf_counter() - start) * 1e6 / each)
    print(f"bench=gpu-torch case={name} unit=us ours={statistics.median(series):.6g} "
          f"ours_min={min(series):.6g} ours_max={max(series):.6g} n={times}", flush=True)


def on(dtype, *sizes):
    return torch.zeros(sizes, dtype=dtype, device=cuda)


def copy(name, to, source):
    measure(name, lambda: to.copy_(source))


def copies():
    a, h = on(torch.uint8, big), torch.ones(big, dtype=torch.uint8)
    copy("contiguous", on(torch.uint8, big), a)
    copy("pageable-to-device-vs-pinned", a, h)
    copy("device-to-pageable-vs-pinned", h, a)
    for to, source in [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "float32"),
                       ("float32", "uint8"), ("int32", "int64"), ("float8_e4m3fn", "float32")]:
        copy(f"cast-{source}-{to}", on(getattr(torch, to), side, side),
             on(getattr(torch, source), side, side))
    for t in ["uint8", "float16", "float32", "float64"]:
        d = getattr(torch, t)
        copy(f"transpose-{t}", on(d, side, side), on(d, side, side).t())
    x = on(torch.float32, 32, 128, side // 64, side // 64).permute(0, 2, 3, 1)
    copy("nchw-to-nhwc-float32", on(torch.float32, *x.shape), x)
    copy("transpose-cast-float32-bfloat16", on(torch.bfloat16, side, side),
         on(torch.float32, side, side).t())
    copy("columns-float32", on(torch.float32, side, side),
         on(torch.float32, side, 2 * side)[:, 3:3 + side])
    measure("allocate-free-4MiB", lambda: torch.empty(4 << 20, dtype=torch.uint8, device=cuda),
            each=1000)


def child(conn):
    torch.zeros(1, device=cuda)
    while True:
        t = conn.recv()
        if t is None:
            return
        del t
        conn.send(1)


if __name__ == "__main__":
    import torch.multiprocessing as mp

    copies()
    mp.set_start_method("spawn")
    ours, theirs = mp.Pipe()
    p = mp.Process(target=child, args=(theirs,))
    p.start()
    for n in [2 << 20, (128 << 20) if quick else 1 << 30]:
        kept = []

        def share():
            kept.append(on(torch.uint8, n))
            torch.cuda.synchronize()
            start = time.perf_counter()
            ours.send(kept[-1])
            ours.recv()
            kept.clear()
            return (time.perf_counter() - start) * 1e6

        series = [share() for _ in range(23)][2:]
        print(f"bench=gpu-torch case=share-{n >> 20}MiB-there-and-a-word-back unit=us "
              f"ours={statistics.median(series):.6g} n={len(series)}", flush=True)
    ours.send(None)
    p.join()
