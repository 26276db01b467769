# SPDX-License-Identifier: MIT
"""The Python programs of `make demo` (bench/demo.sh), one side of one of them at a time.

    demo.py images|clone|send|train plain|cowshed MIB

Each prints its figures, one a line: a name and a number. A name that comes again has another
figure of the same kind. bench/demo.sh knows the units. A wrong result ends the program with 1.

`images` knows nothing of cowshed: the script runs it with and without the shim. In the others
the sides differ by the lines that the reader of the demo would change.
"""

import os
import sys
import tempfile
import threading
import time

import numpy as np

WORKERS = 4


def say(name, value):
    print(name, f"{value:.6g}", flush=True)


def check(right, what):
    if not right:
        sys.exit(f"demo.py: {what}")


class Clock:
    """with Clock() as clock: ...; clock.ms has the milliseconds."""

    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.ms = (time.perf_counter() - self.start) * 1e3


# ---- images: a data set in memory, and workers that are forked for each pass over it --------

LINES, COLUMNS = 768, 1024  # 2.25 MiB an image; NumPy asks for huge pages from 4 MiB on


def add_up(parts, answers):
    """A worker: reads an eighth of each of its images."""
    answers.put(sum(int(part[::8].sum(dtype=np.int64)) for part in parts))


def one_pass(mp, parts, name):
    """A pass: WORKERS processes, each with a part of the data. Returns the sum of all."""
    answers, processes = mp.SimpleQueue(), []
    with Clock() as whole:
        for number in range(WORKERS):
            process = mp.Process(target=add_up, args=(parts[number::WORKERS], answers))
            with Clock() as start:
                process.start()
            say(name + "start", start.ms)
            processes.append(process)
        total = sum(answers.get() for _ in processes)
        for process in processes:
            process.join()
    say(name + "pass", whole.ms)
    return total


def images(_, mib):
    import multiprocessing

    mp = multiprocessing.get_context("fork")
    count = max(WORKERS, mib * 4 // 9)
    with Clock() as load:
        data = [np.full((LINES, COLUMNS, 3), 1, np.uint8) for _ in range(count)]
    say("load", load.ms)
    once = LINES // 8 * COLUMNS * 3
    for turn in range(3):
        for at in range(turn, count, 100):  # the program corrects one image of a hundred
            data[at] += np.uint8(1)
        more = sum(len(range(before, count, 100)) for before in range(turn + 1))
        check(one_pass(mp, data, "") == (count + more) * once, "a worker saw wrong images")
    del data
    array = np.ones((mib, 1 << 17))  # the same in one array, which has huge pages anyway
    for turn in range(2):
        array[turn::100] += 1
        one_pass(mp, array, "one-")


# ---- clone: a copy of an array ---------------------------------------------------------------


def clone(side, mib):
    count = mib << 17
    if side == "plain":
        array, copied, copied_for_all = np.empty(count), np.copy, np.copy
    else:
        import cowshed

        array, copied = cowshed.empty(count), cowshed.clone

        def copied_for_all(array):
            return cowshed.clone(array, writes="all")

    array[:] = 1
    for turn in range(4):
        start = time.perf_counter()
        other = copied(array)
        copy = time.perf_counter()
        other[:count // 100] = 2
        part = time.perf_counter()
        check(array[0] == array[-1] == 1 and other[0] == 2 and other[-1] == 1,
              "a write showed through")
        del other
        with Clock() as whole:
            other = copied_for_all(array)
            other += 1
        check(array[0] == array[-1] == 1 and other[0] == other[-1] == 2, "a write showed through")
        del other
        if turn:  # the first turn touches memory that the machine may have to find
            say("copy", (copy - start) * 1e3)
            say("part", (part - start) * 1e3)
            say("all", whole.ms)


# ---- send: an array to another process -------------------------------------------------------


def receiver(arrays, answers):
    while (array := arrays.get()) is not None:
        answers.put(int(array[-1]))
        answers.put(int(array.sum()))
        del array


def send(side, mib):
    if side == "plain":
        import multiprocessing

        full = np.full
    else:
        import cowshed
        import cowshed.multiprocessing as multiprocessing

        full = cowshed.full
    mp = multiprocessing.get_context("fork")
    arrays, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=receiver, args=(arrays, answers), daemon=True)
    process.start()
    for turn in range(1, 4):
        array = full(mib << 20, turn, "u1")
        with Clock() as whole:
            with Clock() as got:
                arrays.put(array)
                check(answers.get() == turn, "another byte came")
            check(answers.get() == turn * array.size, "other bytes came")
        say("got", got.ms)
        say("summed", whole.ms)
        del array
    arrays.put(None)
    process.join()


# ---- train: a loop of training that saves its state -----------------------------------------


class Saving:
    """Today's way: a copy of the state, which a thread writes."""

    def __init__(self, state, path):
        import copy

        import torch

        mine = copy.deepcopy(state)
        self.thread = threading.Thread(target=torch.save, args=(mine, path), daemon=True)
        self.thread.start()

    def wait(self):
        self.thread.join()


def train(side, mib):
    import torch

    save = Saving
    if side != "plain":
        import cowshed

        save = cowshed.checkpoint
    torch.manual_seed(0)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))  # the others are for the saving
    # Two layers. Adam keeps two more values for each weight.
    width = max(64, int((mib * (1 << 20) / 4 / 3 / 2) ** 0.5))
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, width))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, width)

    def step():
        with Clock() as clock:
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return clock.ms

    with tempfile.TemporaryDirectory(dir=os.environ.get("DEMO_FOLDER")) as folder:
        save({"warm": torch.ones(3)}, os.path.join(folder, "warm.safetensors")).wait()
        step()
        with Clock() as whole:
            saving = None
            for number in range(3):
                say("step", step())
                if saving:
                    saving.wait()
                with Clock() as pause:
                    state = {"model": model.state_dict(),
                             "optimizer": optimizer.state_dict()["state"]}
                    saving = save(state, os.path.join(folder, "state.safetensors"))
                say("pause", pause.ms)
                say("beside", max(step() for _ in range(2)))
            saving.wait()
        say("whole", whole.ms)


if __name__ == "__main__":
    {"images": images, "clone": clone, "send": send, "train": train}[sys.argv[1]](
        sys.argv[2], int(sys.argv[3]))
