# SPDX-License-Identifier: MIT
"""A parameter server: one process owns the parameters, workers send it gradients.

Workers have the parameters as a shared array, which the server updates in place: to see the
newest ones costs nothing. Gradients are sent by handle, one queue for all.

Nobody locks the parameters: while a worker reads them the server may be writing, and the worker
sees some numbers from before and some from after an update, each of them whole. That race is
accepted here, as in asynchronous descent in general ("Hogwild"): a gradient is late by a few
updates anyway, and of such a mixture it is no worse. What must be of one moment takes a lock, or is
sent: a clone that the server puts into a queue never changes.

    python parameter_server.py [steps] [workers] [features]
"""

import queue
import sys

import numpy as np

import cowshed
import cowshed.multiprocessing as mp


def work(number, steps, parameters, truth, gradients, turn):
    chance = np.random.default_rng(number)
    for _ in range(steps):
        turn.acquire()  # not further ahead of the server than it allows
        x = chance.normal(size=parameters.shape)
        x /= np.linalg.norm(x)
        gradient = cowshed.array(x * (x @ (parameters - truth)))
        gradients.put(gradient)


def get(gradients, processes):
    """What a worker sent. It won't come of one that died, and the others wait for their turn."""
    while True:
        try:
            return gradients.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                raise SystemExit("a worker died") from None


def main(steps=200, workers=2, features=100000):
    truth = cowshed.freeze(np.random.default_rng(0).normal(size=features))
    parameters = cowshed.zeros(features, shared=True)
    gradients, turn = mp.Queue(), mp.Semaphore(workers)
    processes = [mp.Process(target=work, daemon=True,
                            args=(i, steps, parameters, truth, gradients, turn))
                 for i in range(workers)]
    for process in processes:
        process.start()
    before = np.linalg.norm(parameters - truth)
    for _ in range(steps * workers):
        parameters -= get(gradients, processes)
        turn.release()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    after = np.linalg.norm(parameters - truth)
    assert after < before
    done = steps * workers
    print(f"{done} gradients of {features} numbers: distance {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
