# SPDX-License-Identifier: MIT
"""An array of MIB that 8 tasks of joblib get: two workers, which run already.

"read" is the time of a call whose tasks read one number of each page. In "write" each task also
writes one number: with cowshed into its own view, with loky into a copy, since its array is a
read-only memmap. "left" is the number of files in joblib's folders after the program was ended by
SIGKILL in the middle of a call, one second later.

    python joblib_tasks.py      MIB=512
"""

import os
import signal
import sys
import tempfile
import time

if __name__ == "__main__":
    import statistics
    import subprocess

    from common import line, main, measure, say, table, warm

MIB = int(os.environ.get("MIB", "512"))
TASKS = 8
CALLS = 5
PAIRS = {"cowshed": {"loky": 1}, "cowshed, in a storage": {"loky": None}}


def read(x, i):
    return float(x[i::512].sum())


def write(x, i):
    if not x.flags.writeable:
        x = x.copy()
    x[i] = -1
    return read(x, i)


def prepared(way):
    import joblib
    import numpy

    x = numpy.ones(MIB << 17)
    if way != "loky":
        import cowshed.joblib

        if way == "cowshed, in a storage":
            x = cowshed.array(x)
    return joblib, x


def call(joblib, way, function, x):
    with joblib.parallel_config(backend=way.split(",")[0], n_jobs=2):
        return joblib.Parallel()(joblib.delayed(function)(x, i) for i in range(TASKS))


def left(way):
    """Files that are left of a program that was killed while its tasks ran."""
    with tempfile.TemporaryDirectory() as folder:
        before = set(os.listdir("/dev/shm"))
        environment = {**os.environ, "TMPDIR": folder, "JOBLIB_TEMP_FOLDER": folder}
        with subprocess.Popen([sys.executable, __file__, "killed", way], env=environment,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            process.stdout.readline()
            process.kill()
        time.sleep(1)
        found = [name for _, folders, files in os.walk(folder) for name in folders + files]
        return len(found) + len(set(os.listdir("/dev/shm")) - before)


def tell(x, i):
    os.write(1, b"runs\n")
    signal.pause()


def run(way):
    joblib, x = prepared(way)
    warm(3 * MIB << 20)
    figures = {"left": left(way)}
    for function in read, write:
        expected = call(joblib, way, function, x)  # starts the workers
        assert len(expected) == TASKS and x[0] == 1
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            assert call(joblib, way, function, x) == expected
            seconds.append(time.perf_counter() - start)
        figures[function.__name__] = statistics.median(seconds)
    say(**figures)


def killed(way):
    joblib, x = prepared(way)
    call(joblib, way, tell, x)


def report():
    found = measure(__file__, [*PAIRS, "loky"])
    table(f"A call of {TASKS} tasks that read {MIB} MiB", found, "read", PAIRS)
    table("The same, each task writes one number", found, "write", PAIRS)
    for way in PAIRS:
        line(f"left/{way}", "files", found[way].of("left"), found["loky"].of("left"), 0, "ours")


if __name__ == "__main__":
    if sys.argv[1:2] == ["killed"]:
        killed(sys.argv[2])
    else:
        main(run, report)
