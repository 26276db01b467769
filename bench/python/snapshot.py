# SPDX-License-Identifier: MIT
"""A state that is saved while training goes on: the loop's pause, and its slower steps.

A state of GIB lies in tensors of 64 MiB. A step of training rewrites it in place: all of it, or
one page in a hundred. A cycle, of which there are four, is two steps, the call that fixes the
moment (the pause), three steps while the state is saved, and the end of saving. "first" is the
first pause of a program, "pause" the median of the later ones. "step" is a step without any
saving. "beside" is the longest step while a state is saved: the first write of each page copies
it. "cycle" is the time from a pause to the end of saving. Our ways call cowshed.torch.install()
once, as docs/python.md says, so operations in place give write intents. "no install()" does not:
its second snapshot copies what was rewritten. Bar: the first two keep the pause below 20 ms.

    python snapshot.py        GIB=2 FOLDER=(where to save)
"""

import os
import statistics
import tempfile
import time

from common import line, main, measure, save, say, table, warm

GIB = float(os.environ.get("GIB", "2"))
CYCLES, STEPS, EACH = 4, 3, 64 << 20
FOLDER = os.environ.get("FOLDER")
OURS = ["cowshed.snapshot", "cowshed.checkpoint"]
PLAIN = "cowshed.snapshot, no install()"
RIVALS = ["copy.deepcopy", "torch.save"]
HOW = {OURS[0]: "snapshot", OURS[1]: "checkpoint", PLAIN: "snapshot", RIVALS[0]: "thread",
       RIVALS[1]: "torch.save"}


def run(chosen):
    way, _, how = chosen.rpartition(" ")
    sparse = how == "sparse"
    import torch

    full, end = torch.full, ".pt"
    if way.startswith("cowshed"):
        import cowshed.torch

        full, end = cowshed.torch.full, ".safetensors"
        if way != PLAIN:
            cowshed.torch.install()
    count = max(1, int(GIB * (1 << 30)) // EACH)
    warm(5 * count * EACH)  # the state, two copies, the old file and the new one
    state = {f"layer{i}": full((EACH // 4,), 1.0) for i in range(count)}

    def step():
        start = time.perf_counter()
        for x in state.values():
            (x.view(-1, 1024)[::100] if sparse else x).add_(1)
        return time.perf_counter() - start

    figures = {"pause": [], "step": [], "beside": [], "cycle": []}
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        # Imports the modules that are imported at their first use.
        saving = save(HOW[way], {"warm": torch.ones(3)}, os.path.join(folder, "warm" + end))
        if saving:
            saving.wait()
        for _ in range(CYCLES):
            figures["step"] += [step(), step()]
            start = time.perf_counter()
            saving = save(HOW[way], state, os.path.join(folder, "state" + end))
            figures["pause"].append(time.perf_counter() - start)
            figures["beside"].append(max(step() for _ in range(STEPS)))
            if saving:
                saving.wait()
            del saving
            figures["cycle"].append(time.perf_counter() - start)
    say(first=figures["pause"][0], pause=statistics.median(figures["pause"][1:]),
        step=min(figures["step"]), beside=statistics.median(figures["beside"]),
        cycle=statistics.median(figures["cycle"]))


def report():
    for kind, what in ("whole", "all of it rewritten"), ("sparse", "1 % of its pages written"):
        found = measure(__file__, [f"{way} {kind}" for way in [*OURS, PLAIN, *RIVALS]])
        rivals = {f"{way} {kind}": None for way in RIVALS}
        pairs = {f"{way} {kind}": rivals for way in [*OURS, PLAIN]}
        barred = [f"{way} {kind}" for way in OURS]
        for figure, title in (("first", "the first pause"), ("pause", "later pauses"),
                              ("step", "a step alone"), ("beside", "the longest step beside"),
                              ("cycle", "the whole cycle")):
            table(f"{GIB:g} GiB, {what} a step: {title}", found, figure, pairs)
            for way in pairs if figure != "step" else ():  # each alone, too: what it costs
                bar = 20 if "pause" in title and way in barred else None
                line(f"{figure}/{way}", "ms", found[way].of(figure, 1e3), bar=bar, on="ours")


if __name__ == "__main__":
    main(run, report)
