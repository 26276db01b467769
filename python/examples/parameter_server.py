# SPDX-License-Identifier: MIT
"""A parameter server: one process owns the parameters, and workers send it gradients.

Workers have the parameters as a shared array, which the server updates in place. So they read the
newest parameters without a copy. Gradients are sent by handle, through one queue.

No lock guards the parameters. While a worker reads them the server may write. Then the worker sees
numbers from before and from after an update, each number whole. Asynchronous descent accepts that
race ("Hogwild"): each gradient is late by a few updates in any case, and the mixture does not make
it worse. A program that needs all numbers of one moment takes a lock, or the server sends a clone,
which never changes.

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
        turn.acquire()  # limits how far the workers are ahead of the server
        x = chance.normal(size=parameters.shape)
        x /= np.linalg.norm(x)
        gradient = cowshed.array(x * (x @ (parameters - truth)))
        gradients.put(gradient)


def get(gradients, processes):
    """A gradient from the queue. Ends the program if a worker died: the others would wait."""
    while True:
        try:
            return gradients.get(timeout=1)
        except queue.Empty:
            codes = [process.exitcode for process in processes if process.exitcode]
            if codes:
                raise SystemExit(f"a worker died with exit code {codes[0]}") from None


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
