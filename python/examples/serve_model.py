# SPDX-License-Identifier: MIT
"""One model, many processes, each with patches of its own.

The model is loaded once and frozen. A worker's clone of it costs nothing; what the worker changes
(here: the rows of its customer) is copied page by page, for it alone. So N workers take the
memory of one model and N patches.

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
    """What a worker answered. It won't come of one that died."""
    while True:
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                raise SystemExit("a worker died") from None


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
        requests[i].put(i)  # the row that it patched
        requests[i].put((i + 1) % workers)  # one that another one patched
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
