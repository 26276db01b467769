# SPDX-License-Identifier: MIT
"""A read-only or shared array of 1 GiB that becomes writable, and one page of it written.

Today that is `x.copy()`, ours is `cowshed.writable(x)`. The arrays are those that programs meet:
`numpy.load(mmap_mode="r")`, `joblib.load(mmap_mode="r")`, an array on SharedMemory, and an array of
`ray.get()`. The last way is `ray.get()` itself, with `cowshed.ray.install()`, against
`ray.get().copy()`. Ways whose package is not installed are left out. A second figure is the first
call of the process, which also imports, and looks for the descriptor of Ray's store.

    python writable.py        all, by turns     GIB=1
"""

import importlib.util
import os
import tempfile
import time

from common import line, main, measure, say, table, warm

GIB = float(os.environ.get("GIB", "1"))
FOLDER = os.environ.get("FOLDER")  # for the files; None: that of temporary files
CALLS = 5
KINDS = {"memmap": "numpy", "joblib": "joblib", "SharedMemory": "numpy", "ray": "ray",
         "ray.get()": "ray"}


def memmap(numpy, folder):
    path = os.path.join(folder, "x.npy")
    x = numpy.lib.format.open_memmap(path, "w+", "u1", (int(GIB * (1 << 30)),))
    x[:] = 1
    del x
    return numpy.load(path, mmap_mode="r"), None


def joblib(numpy, folder):
    import joblib

    path = os.path.join(folder, "x")
    joblib.dump(numpy.ones(int(GIB * (1 << 30)), "u1"), path)
    return joblib.load(path, mmap_mode="r"), None


def shared_memory(numpy, folder):
    from multiprocessing.shared_memory import SharedMemory

    block = SharedMemory(create=True, size=int(GIB * (1 << 30)))
    x = numpy.ndarray(block.size, "u1", block.buf)
    x[:] = 1

    def end():
        block.close()
        block.unlink()

    return x, end


def ray(numpy, folder):
    os.environ["RAY_AUTH_MODE"] = "disabled"
    global reference
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="error", _temp_dir=folder,
             object_store_memory=int(GIB * (1 << 30)) + (256 << 20))
    reference = ray.put(numpy.ones(int(GIB * (1 << 30)), "u1"))
    return ray.get(reference), ray.shutdown


MAKERS = {"memmap": memmap, "joblib": joblib, "SharedMemory": shared_memory, "ray": ray,
          "ray.get()": ray}
reference = None  # of Ray's object


def get(_):
    """What the last way measures."""
    import ray

    return ray.get(reference)


def run(way):
    ours, _, kind = way.rpartition(" ")
    import numpy

    if ours == "cowshed":
        import cowshed

        make = get if kind == "ray.get()" else cowshed.writable
    else:
        make = (lambda x: get(x).copy()) if kind == "ray.get()" else numpy.copy
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        x, end = MAKERS[kind](numpy, folder)
        if ours != "cowshed":
            warm(x.nbytes)
        elif make is get:
            cowshed.ray.install()
        int(x[:: 4096].sum())  # both sides find the pages mapped
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            w = make(x)
            w[x.nbytes // 2] = 2
            seconds.append(time.perf_counter() - start)
            if (w[0], w[x.nbytes // 2], x[x.nbytes // 2]) != (1, 2, 1):
                raise SystemExit(f"{way}: wrong bytes")
            del w
        if ours == "cowshed" and (cowshed.stats()["fallbacks"].get("foreign") or
                                  make is get and cowshed.ray.stats()["copied"]):
            raise SystemExit(f"{way}: it was copied")
        del x
        if end:
            end()
    say(first=seconds[0], later=sorted(seconds[1:])[CALLS // 2])


def report():
    kinds = [kind for kind, package in KINDS.items() if importlib.util.find_spec(package)]
    pairs = {f"cowshed {kind}": {f"copy() {kind}": 100} for kind in kinds}
    found = measure(__file__, [way for ours, rivals in pairs.items() for way in (ours, *rivals)])
    table(f"{GIB:g} GiB made writable, one page written", found, "later", pairs)
    for ours in pairs:
        line(f"later/{ours}/alone", "ms", found[ours].of("later", 1e3), bar=2, on="ours")
    table("The first such call of a process", found, "first",
          {ours: dict.fromkeys(rivals) for ours, rivals in pairs.items()})


if __name__ == "__main__":
    main(run, report)
