# SPDX-License-Identifier: MIT
"""An Arrow table of 1 GiB, made by one process and opened by another one.

Ours is cowshed.arrow: publish() and open(). The rivals are an Arrow file in /dev/shm that both map,
and a pickle through a pipe of multiprocessing. The time of opening is from the call until one value
of each column was read, in a process that has imported what it needs. The other figures: reading
all columns then, and publishing.

    python arrow.py           all, by turns     GIB=1
"""

import os
import tempfile
import time

from common import line, main, measure, say, table, warm

GIB = float(os.environ.get("GIB", "1"))
CHUNK = 1 << 20  # rows
FILE, PIPE = "file in /dev/shm", "pickle through a pipe"
PAIRS = {"cowshed": {FILE: None, PIPE: None}}


def make():
    """Four columns of 8 bytes, in chunks. Each has memory of its own: Arrow pickles the whole
    buffer for each slice of it."""
    import numpy
    import pyarrow

    rows = int(GIB * (1 << 30)) // 32
    chunks = []
    for first in range(0, rows, CHUNK):
        x = numpy.arange(first, min(first + CHUNK, rows))
        chunks.append(pyarrow.table({"a": x, "b": x + 1, "c": x / 2, "d": x / 4}))
    return pyarrow.concat_tables(chunks)


def consume(found, start):
    """The figures of a reader, which has just opened a table."""
    import pyarrow.compute

    last = [column[-1].as_py() for column in found.columns]
    opened = time.perf_counter() - start
    start = time.perf_counter()
    sums = [pyarrow.compute.sum(column).as_py() for column in found.columns]
    read = time.perf_counter() - start
    if last[1] != found.num_rows or sums[1] - sums[0] != found.num_rows:
        raise SystemExit("wrong values")
    return {"open": opened, "read": read}


def open_by_name(way, name, out):
    """In a process of its own."""
    import pyarrow
    import pyarrow.compute  # noqa: F401

    if way == "cowshed":
        import cowshed.arrow

        start = time.perf_counter()
        found = cowshed.arrow.open(name)
    else:
        start = time.perf_counter()
        found = pyarrow.ipc.open_file(pyarrow.memory_map(name)).read_all()
    out.put(consume(found, start))


def open_from_pipe(conn, out):
    import pyarrow
    import pyarrow.compute  # noqa: F401

    conn.send("ready")
    start, found = conn.recv()
    out.put(consume(found, start))


def in_child(function, *args):
    """Starts function(*args, out) in a new interpreter; returns the process and `out`."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    out = context.SimpleQueue()
    child = context.Process(target=function, args=(*args, out))
    child.start()
    return child, out


def run(way):
    warm(3 * GIB * (1 << 30))
    made, published = make(), None
    start = time.perf_counter()
    if way == PIPE:
        from multiprocessing import Pipe

        here, there = Pipe()
        child, out = in_child(open_from_pipe, there)
        here.recv()
        here.send((time.perf_counter(), made))
    elif way == "cowshed":
        import cowshed.arrow

        start = time.perf_counter()
        made = cowshed.arrow.publish("bench", made)
        published = time.perf_counter() - start
        child, out = in_child(open_by_name, way, "bench")
    else:
        import pyarrow

        name = f"/dev/shm/cowshed-bench-{os.getpid()}.arrow"
        try:
            with pyarrow.ipc.new_file(name, made.schema) as writer:
                writer.write_table(made)
            published = time.perf_counter() - start
            child, out = in_child(open_by_name, way, name)
            child.join()
        finally:
            os.unlink(name)
    child.join()
    if child.exitcode:
        raise SystemExit(f"{way}: the reader failed")
    say(**out.get(), **({"publish": published} if published is not None else {}))


def with_a_broker(way):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        run(way)


def report():
    found = measure(__file__, ["cowshed", FILE, PIPE])
    table(f"A table of {GIB:g} GiB opened by another process", found, "open", PAIRS)
    line("open/cowshed/alone", "ms", found["cowshed"].of("open", 1e3), bar=5, on="ours")
    table("Reading all of it then", found, "read", PAIRS)
    table("Publishing it", {way: found[way] for way in ("cowshed", FILE)}, "publish",
          {"cowshed": {FILE: None}})


if __name__ == "__main__":
    main(with_a_broker, report)
