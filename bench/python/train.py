# SPDX-License-Identifier: MIT
"""A training loop that saves a checkpoint every few steps: the time that each one costs.

Six layers of 4096 x 4096 weights with Adam, on the CPU. Every five steps, CHECKPOINTS times,
the loop saves the model and the state of the optimizer. "pause" is the time of the call, "first"
the step after it. "lost" is the pause, and how much longer the five steps after it took than steps
alone. Each file is read again, and the run fails if it has not the bytes of its moment. That is in
no figure. Two steps follow it, so that the loop is as warm as without it. A file stays until
five newer ones are there, as in real loops. If it were deleted at once, what a rival wrote would
never leave the page cache.

The bars: a median loss of 0.35 times that of torch.save, and 0.5 times that of a copy that a thread
saves. No pause is over 10 ms. The first step takes at most 1.3 times a step alone
and a copy of the state by all threads. "memory" is how much more anonymous and shared memory the
machine has at the most between the call and the end of the saving than in a step alone: at most 1.1
times the state, so the loop has its state twice.

"stolen" has no bar. It is the time for which the host of a virtual machine kept its processors from
running between the call and the end of the saving, divided by their number. Some hosts write the
disk's bytes in that time, so a saver costs the loop as much, however it writes.

    python train.py        CHECKPOINTS=20 FOLDER=(where to save)
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

from common import line, main, measure, save, say, table, warm

LAYERS, STEPS, KEPT = 6, 5, 5
SIZE = 4096 if float(os.environ.get("GIB", "1")) >= 1 else 1024
CHECKPOINTS = int(os.environ.get("CHECKPOINTS", "20"))
FOLDER = os.environ.get("FOLDER")
SHIM, INSTALL = "cowshed.snapshot, shim", "cowshed.snapshot, install() alone"
RIVALS = {"torch.save": "torch.save", "torch.save under the shim": "torch.save",
          "deepcopy and a thread": "thread", "deepcopy and a thread under the shim": "thread"}
UNDER_SHIM = SHIM, *(way for way in RIVALS if way.endswith("shim"))


def named(state, name=""):
    """The tensors of a state as NumPy arrays, by name."""
    if hasattr(state, "detach"):
        state = state.detach().numpy()
    if hasattr(state, "dtype"):
        return {name: state}
    if not hasattr(state, "items"):
        return {}
    return {inner: x for key, value in state.items()
            for inner, x in named(value, f"{name}.{key}" if name else str(key)).items()}


def stolen():
    """Seconds that the host took from each processor so far, on average; 0: not known."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = int(stat.readline().split()[8])
    except (OSError, IndexError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK") / os.cpu_count()


def sums(state):
    return {name: zlib.crc32(x.reshape(-1).view("uint8")) for name, x in named(state).items()}


WATCHER = """
import os, select
most, on = 0, False
while True:
    word = os.read(0, 1) if select.select([0], [], [], 0.01 if on else None)[0] else None
    if word == b"":
        break
    if word == b"b":
        most, on = 0, True
    if on:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":") for line in file)
        most = max(most, sum(int(sizes[name].split()[0]) for name in ("AnonPages", "Shmem")) << 10)
    if word == b"e":
        on = False
        print(most, flush=True)
"""


class Memory:
    """The most memory of the machine that is no file's, while it looks: bytes.

    A process of its own looks: a thread of this one would take the interpreter's lock, and the
    pauses would be longer by its turns."""

    def __init__(self):
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.process = subprocess.Popen([sys.executable, "-c", WATCHER], env=plain, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self):
        self.process.stdin.write("b")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.write("e")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def load(path):
    if path.endswith(".pt"):
        import torch

        return torch.load(path, weights_only=False)
    import cowshed

    return cowshed.open(path)


def run(way):
    import torch

    path_of = "state.safetensors" if way.startswith("cowshed") else "state.pt"
    if way.startswith("cowshed"):
        import cowshed.torch

        cowshed.torch.install()
    torch.manual_seed(0)
    warm(5 * LAYERS * SIZE * SIZE * 12)
    model = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = torch.randn(8, SIZE)

    def step():
        start = time.perf_counter()
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    memory = Memory()
    for _ in range(4):
        step()
    alone = statistics.median(step() for _ in range(8))
    memory.begin()
    step()
    before_all, most = memory.stop(), 0
    one, two = torch.empty(LAYERS * SIZE * SIZE * 3), torch.ones(LAYERS * SIZE * SIZE * 3)
    one.copy_(two)
    start = time.perf_counter()
    one.copy_(two)
    memcpy = time.perf_counter() - start
    del one, two
    pauses, firsts, lost, taken, wrong = [], [], [], [], 0
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        paths = [os.path.join(folder, f"{number}-{path_of}") for number in range(CHECKPOINTS)]
        for number, path in enumerate(paths):
            state = {"model": model.state_dict(),
                     "state": {str(k): v for k, v in optimizer.state_dict()["state"].items()}}
            want, before = sums(state), stolen()
            memory.begin()
            start = time.perf_counter()
            saving = save(RIVALS.get(way, "snapshot"), state, path)
            pauses.append(time.perf_counter() - start)
            del state
            steps = [step() for _ in range(STEPS)]
            firsts.append(steps[0])
            lost.append(pauses[-1] + sum(steps) - STEPS * alone)
            if saving:
                saving.wait()
            del saving
            most = max(most, memory.stop())
            taken.append(stolen() - before)
            wrong += sums(load(path)) != want
            if number >= KEPT:
                os.unlink(paths[number - KEPT])
            for _ in range(2):  # as warm as without that look
                step()
    if wrong:
        sys.exit(f"{wrong} files have wrong bytes")
    memory.end()
    bytes_of_state = LAYERS * SIZE * SIZE * 12
    say(lost=statistics.median(lost), pause=max(pauses),
        memory=(most - before_all) / bytes_of_state,
        median=statistics.median(pauses), first=statistics.median(firsts), step=alone,
        limit=1.3 * (alone + memcpy), stolen=statistics.median(taken))


def report():
    found = measure(__file__, [SHIM, INSTALL, *RIVALS], under_shim=UNDER_SHIM)
    bars = {way: 1 / (0.35 if kind == "torch.save" else 0.5) for way, kind in RIVALS.items()}
    pairs = {SHIM: {way: bar for way, bar in bars.items() if way in UNDER_SHIM},
             INSTALL: {way: bar for way, bar in bars.items() if way not in UNDER_SHIM}}
    table(f"{LAYERS} layers with Adam, {CHECKPOINTS} checkpoints: time lost for each", found,
          "lost", pairs)
    for way in SHIM, INSTALL:
        line(f"pause/{way}", "ms", found[way].of("pause", 1e3), bar=10, on="ours")
        line(f"memory/{way}", "states", found[way].of("memory"), bar=1.1, on="ours")
        line(f"first/{way}", "ms", found[way].of("first", 1e3), found[way].of("limit", 1e3),
             bar=1, on="ratio")
        line(f"stolen/{way}", "ms", found[way].of("stolen", 1e3))
        line(f"step/{way}", "ms", found[way].of("step", 1e3))


if __name__ == "__main__":
    main(run, report)
