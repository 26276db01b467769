# SPDX-License-Identifier: MIT
"""Clones of a tensor of GIB: one element is written, or every element is.

"one" is the clone and the write of one element, several times in a row. "cold" is the same after
all of a clone was written, which drives code and data of the interpreter, of PyTorch and of the
kernel out of the processor's caches. "all" is the clone and an in-place addition to every element
of it. The pages that the clone did not copy are copied one by one then, and the total must not
cost more. "source" is the same with the addition to the tensor that was cloned, while its clone
lives. "first" is the first time of "all" in a process. In "all, one thread" PyTorch adds with one
thread, as in a worker; otherwise it adds with as many threads as there are processors. The ways
", all" is clone(writes="all"), ", auto" is clone() as it is, and all others are
clone(writes="some"). ", install()" has hooked operations. "second" is the second time of "all": by
then "auto" has seen one.

"tiny" is a clone of a tensor of 10 elements, the median of many; "tiny_memory" is what 1000 of
them take. clone() is as it is.

    python clone.py           GIB=1
"""

import functools
import os
import time

from common import line, main, measure, say, table, warm

GIB = float(os.environ.get("GIB", "1"))
WAYS = ["cowshed", "torch._lazy_clone", "clone()"]
REWRITTEN = ["cowshed, all", "cowshed, auto", "cowshed, install()"]
TIMES = 5
TINY, TINY_KEPT = 2000, 50000  # clones of a tiny tensor: in one of the measurements, and kept


def resident():
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tiny(clone, source):
    """(seconds of a clone of a tiny tensor, bytes of memory of one that is kept)"""
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(TINY):
            clone(source)
        seconds.append((time.perf_counter() - start) / TINY)
    kept = [None] * TINY_KEPT
    before = resident()
    for i in range(TINY_KEPT):
        kept[i] = clone(source)
    return sorted(seconds)[25], (resident() - before) / TINY_KEPT


def run(way):
    import torch

    n = int(GIB * (1 << 30)) // 4
    threads = torch.get_num_threads()
    warm(2.25 * n * 4)  # the source and a copy
    if way.startswith("cowshed"):
        import cowshed.torch

        make = cowshed.torch.full
        writes = way.partition(", ")[2] or "some"
        if writes == "install()":
            cowshed.torch.install()
            writes = "some"
        clone = cowshed.clone if writes == "auto" else \
            functools.partial(cowshed.clone, writes=writes)
        source = make((n,), 1.0)
    else:
        clone = torch.Tensor.clone if way == "clone()" else torch._lazy_clone
        source = torch.full((n,), 1.0)
    tiny_seconds, tiny_bytes = tiny(clone, torch.ones(10))
    seconds = {"one": [], "cold": [], "all": [], "all, one thread": [], "source": []}

    def one(figure):
        start = time.perf_counter()
        x = clone(source)
        x[n // 2] = 2.0
        seconds[figure].append(time.perf_counter() - start)
        assert source[n // 2] == 1.0 and x[n // 2] == 2.0

    for _ in range(TIMES if way in WAYS else 0):
        one("one")
    for _ in range(TIMES):
        for name, count in ("all", threads), ("all, one thread", 1):
            torch.set_num_threads(count)
            start = time.perf_counter()
            x = clone(source)
            x += 1.0
            seconds[name].append(time.perf_counter() - start)
            assert source[-1] == 1.0 and x[-1] == 2.0
            del x
        torch.set_num_threads(threads)
        if way in WAYS:
            one("cold")
    for _ in range(TIMES if way in WAYS else 0):
        before = float(source[0])
        start = time.perf_counter()
        x = clone(source)
        source += 1.0
        seconds["source"].append(time.perf_counter() - start)
        assert x[-1] == before and source[-1] == before + 1
        del x
    say(first=seconds["all"][0], second=seconds["all"][1], tiny=tiny_seconds,
        tiny_memory=tiny_bytes,
        **{name: sorted(all)[TIMES // 2] for name, all in seconds.items() if all})


def report():
    found = measure(__file__, WAYS + REWRITTEN)
    plain = {way: found[way] for way in WAYS}
    for figure, title, bar in (
            ("one", f"Clone {GIB:g} GiB and write one element", 1000),
            ("cold", f"The same, after {GIB:g} GiB was written", 1000),
            ("all", "Clone and add to every element of the clone", 1),
            ("all, one thread", "The same with one thread", None),
            ("source", "Clone and add to every element of the source", 1)):
        table(title, plain, figure, {"cowshed": dict.fromkeys(WAYS[1:], bar)})
    for figure, title, bar in (
            ("all", "Clone and add to every element, as writes= says", 3),
            ("second", "The second time of that in a process", 1.5),
            ("first", "The first time of that in a process", 1)):
        table(title, found, figure, dict.fromkeys(REWRITTEN, {"clone()": bar}))
    tinies = {way: found[way] for way in ("cowshed, auto", "clone()")}
    table("Clone 10 elements", tinies, "tiny", {"cowshed, auto": {"clone()": None}}, "us", 1e6)
    ours, rival = (tinies[way].of("tiny", 1e6) for way in tinies)
    line("tiny", "us", ours, rival, 5, "ours")
    table("Memory of 1000 such clones", tinies, "tiny_memory",
          {"cowshed, auto": {"clone()": 0.5}}, "KiB", 1000 / 1024)


if __name__ == "__main__":
    main(run, report)
