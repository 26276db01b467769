# SPDX-License-Identifier: MIT
"""Sharing strategies: by descriptors, and by a broker that is started when it is needed."""

import os
import subprocess
import sys

import pytest

import cowshed.multiprocessing as multiprocessing

# In a process of its own, which has a broker of its own: its end is looked at from here.
PROGRAM = """
import sys, numpy, cowshed
import cowshed.multiprocessing as multiprocessing

def work(tasks, results):
    while True:
        x = tasks.get()
        if x is None:
            break
        x += 1
        results.put((multiprocessing.get_sharing_strategy(), x))

def main(method, first):
    context = multiprocessing.get_context(method)
    if first:
        multiprocessing.set_sharing_strategy("broker")
    tasks, results = context.SimpleQueue(), context.SimpleQueue()
    workers = [context.Process(target=work, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    shared = cowshed.zeros(1 << 17, shared=True)
    for i in range(10):
        x = numpy.full(1 << 17, i)
        tasks.put(x)
        strategy, y = results.get()
        assert strategy == ("broker" if first else "fd"), strategy
        assert (y == i + 1).all() and (x == i).all()
    tasks.put(shared)
    results.get()
    assert shared[0] == 1
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "broker")
"""


def test_names():
    assert multiprocessing.get_all_sharing_strategies() == {"fd", "broker"}
    assert multiprocessing.get_sharing_strategy() == "fd"
    with pytest.raises(ValueError):
        multiprocessing.set_sharing_strategy("file_system")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("strategy", ["fd", "broker"])
def test_workers(method, strategy, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, str(program), method, strategy]
    with open(tmp_path / "stderr", "w+", encoding="utf-8") as stderr:  # the broker has it longer
        done = subprocess.run(command, env=env, stderr=stderr, timeout=50, check=False)
        stderr.seek(0)
        assert done.returncode == 0, stderr.read()


def test_folder_of_somebody_else(tmp_path, monkeypatch):
    """A broker's place is where nobody else may make sockets."""
    from cowshed.multiprocessing import _strategy

    mine, open_to_all, theirs = tmp_path / "mine", tmp_path / "open", tmp_path / "theirs"
    for folder in mine, open_to_all, theirs:
        folder.mkdir(mode=0o700)
    open_to_all.chmod(0o777)
    monkeypatch.setattr(_strategy.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(mine))
    assert _strategy._find_address() == str(mine / "cowshed" / "broker")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_to_all))
    assert not _strategy._find_address().startswith(str(open_to_all))
    if os.geteuid() == 0:
        os.chown(theirs, 65534, 65534)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
        assert not _strategy._find_address().startswith(str(theirs))


def test_few_descriptors():
    """Arrays by the thousand do not need one each."""
    code = """
import numpy, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import cowshed, cowshed.multiprocessing as multiprocessing
def work(queue, back):
    kept = []
    while (x := queue.get()) is not None:
        kept.append(x)
    back.put(sum(float(x[0]) for x in kept))
queue, back = multiprocessing.Queue(), multiprocessing.SimpleQueue()
worker = multiprocessing.Process(target=work, args=(queue, back))
worker.start()
total = 0
for i in range(1000):
    queue.put(cowshed.full(512, i, shared=True))
    queue.put(numpy.full(10000, i))
    total += 2 * i
queue.put(None)
assert back.get() == total
worker.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
