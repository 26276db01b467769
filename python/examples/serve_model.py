# SPDX-License-Identifier: MIT
"""One model for several processes, each with its own patches.

The model is loaded once and frozen. Each worker clones it without a copy, and changes the row of
its customer. The kernel copies only the pages that the worker writes. So N workers take the memory
of one model and N patches.

    python serve_model.py [MiB] [workers]
"""

import os
import queue
import sys
import tempfile

import numpy as np

import cowshed
import cowshed.multiprocessing as mp


def serve(number, model, requests, answers):
    mine = {name: cowshed.clone(x) for name, x in model.items()}
    mine["table"][number] = number + 1
    for row in iter(requests.get, None):
        answers.put((number, row, float(mine["table"][row] @ mine["weights"])))


def get(answers, processes):
    """An answer from the queue. Ends the program if a worker died."""
    while True:
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            codes = [process.exitcode for process in processes if process.exitcode]
            if codes:
                raise SystemExit(f"a worker died with exit code {codes[0]}") from None


def main(mib=1024, workers=4):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        cowshed.save(path, {"table": np.ones((mib * 4, 1 << 16), "f4"),
                            "weights": np.ones(1 << 16, "f4")})
        tensors = cowshed.open(path, load=True)
        model = {name: cowshed.freeze(tensors[name]) for name in tensors}
    requests, answers = [mp.Queue() for _ in range(workers)], mp.Queue()
    processes = [mp.Process(target=serve, daemon=True, args=(i, model, requests[i], answers))
                 for i in range(workers)]
    for process in processes:
        process.start()
    for i in range(workers):
        requests[i].put(i)  # the row that this worker patched
        requests[i].put((i + 1) % workers)  # a row that another worker patched
        requests[i].put(None)
    for _ in range(2 * workers):
        number, row, answer = get(answers, processes)
        assert answer == (1 << 16) * (number + 1 if row == number else 1)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    print(f"{workers} workers, one model of {sum(x.nbytes for x in model.values()) >> 20} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
