# SPDX-License-Identifier: MIT
"""Templates, workers and callers that die, are interrupted, or fork: nothing is left."""

import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import ProcessError
from multiprocessing.connection import wait

import numpy
import pytest
import pythons

import cowshed
import cowshed.multiprocessing as multiprocessing

CONTEXT = multiprocessing.get_context("template")


@pytest.fixture
def template():
    with CONTEXT.Template(ready) as made:
        yield made


def ready():
    """The template imports this file, so its workers need not."""


def pause(pipe=None):
    if pipe is not None:
        pipe.send(os.getpid())
    signal.pause()


def started(template, number=1, function=pause):
    workers = []
    for _ in range(number):
        ours, theirs = template.Pipe()
        workers.append(template.Process(target=function, args=(theirs,)))
        workers[-1].start()
        assert ours.recv() == workers[-1].pid
        ours.close()
        theirs.close()
    return workers


def gone(pids, patience=30):
    """Waits until none of the processes exists."""
    end = time.monotonic() + patience
    while pids := [pid for pid in pids if _exists(pid)]:
        assert time.monotonic() < end, pids
        time.sleep(0.01)
    return True


def _exists(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- The template dies -------------------------------------------------------------------


def test_workers_end_with_their_template(template):
    workers = started(template, 3)
    os.kill(template.pid, signal.SIGKILL)
    for worker in workers:
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
    assert gone([worker.pid for worker in workers])
    for call in template.Process(target=pause).start, lambda: template.reset(workers[0]):
        with pytest.raises(ProcessError, match="ended: killed by SIGKILL.*Make a new Template"):
            call()
    assert not template.is_alive()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as text:
        return [int(child) for child in text.read().split()]


def test_a_killed_spare_is_replaced(template):
    """A worker that waits for its request may be killed; no request is lost."""
    counts = set()
    for killed in (False, *[True] * 8):
        for spare in children(template.pid) if killed else ():
            os.kill(spare, signal.SIGKILL)
        for worker in started(template):
            counts.add(len(os.listdir(f"/proc/{worker.pid}/fd")))
            worker.kill()
            worker.join()
    assert template.is_alive()
    assert len(counts) == 1, "it has the descriptors of its request once"


def test_close_kills_workers():
    made = CONTEXT.Template(ready)
    workers = started(made, 2)
    made.close()
    for worker in workers:
        worker.join()
        assert worker.exitcode == -signal.SIGKILL


def nap(seconds):
    time.sleep(seconds)
    return seconds


def test_pools_and_executors_of_a_dead_template(template):
    executor = template.Executor(1)
    pool = template.Pool(2)
    future = executor.submit(nap, 100)
    results = [pool.map_async(nap, [100, 100]).get, pool.apply_async(nap, (100,)).get,
               pool.imap(nap, [100, 100]).next, pool.imap_unordered(nap, [100]).next]
    assert executor.submit(nap, 0) and pool._pool[0].is_alive()
    os.kill(template.pid, signal.SIGKILL)
    with pytest.raises(Exception, match="terminated abruptly"):
        future.result(30)
    for result in results:
        with pytest.raises(ProcessError, match="killed by SIGKILL"):
            result(timeout=30)
    with pytest.raises(ProcessError, match="no workers"):
        pool.map(nap, [0])
    pool.terminate()
    pool.join()
    executor.shutdown()


# ---- The caller dies ---------------------------------------------------------------------

CALLER = """
import os, signal, subprocess, sys, time
import cowshed.multiprocessing as multiprocessing

context = multiprocessing.get_context("template")


def setup(how):
    if how == "setup":
        say(os.getpid())
        signal.pause()


def say(pid):
    os.write(1, f"{pid}".encode() + os.linesep.encode())


def pause(x):
    say(os.getpid())
    signal.pause()


if __name__ == "__main__":
    how = sys.argv[1]
    template = context.Template(setup, (how,), threads="ignore")
    say(template.pid)
    if how == "forked":
        if os.fork() == 0:
            signal.pause()
    workers = [template.Process(target=pause, args=(bytearray(1000000),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    time.sleep(100)
"""


def lines(process, number):
    found = []
    while len(found) < number:
        ready, _, _ = select.select([process.stdout], [], [], 50)
        assert ready, found
        line = process.stdout.readline()
        assert line, (found, process.wait())
        found.append(int(line))
    return found


@pytest.mark.parametrize("how, signalled, number", [
    ("workers", signal.SIGKILL, 4), ("workers", signal.SIGTERM, 4), ("setup", signal.SIGKILL, 1),
    ("forked", signal.SIGKILL, 4),
])
def test_all_end_with_the_caller(tmp_path, how, signalled, number):
    process = _caller(tmp_path, how)
    pids = lines(process, number)
    if how == "forked":  # its child has no part of the template, and does not keep it
        child = [pid for pid in children(process.pid) if pid not in pids]
    process.send_signal(signalled)
    assert process.wait(30) == -signalled
    assert gone(pids)
    if how == "forked":
        for pid in child:
            os.kill(pid, signal.SIGKILL)
    assert process.stdout.read() == b""
    process.stdout.close()
    if signalled == signal.SIGKILL:
        assert os.listdir(tmp_path / "tmp") == []


def _caller(tmp_path, how, **more):
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, str(tmp_path / "caller.py"), how],
                            stdout=subprocess.PIPE, bufsize=0,
                            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, **more)


def test_template_and_caller_are_killed_at_once(tmp_path):
    process = _caller(tmp_path, "workers")
    pids = lines(process, 4)
    os.kill(pids[0], signal.SIGKILL)
    process.kill()
    process.wait()
    assert gone(pids)
    process.stdout.close()


def test_a_forked_child_can_t_use_it(template):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            template.Process(target=pause).start()
        except ProcessError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert b"belongs to the process" in os.read(reader, 1000)
    os.close(reader)
    os.waitpid(child, 0)
    for worker in started(template):
        worker.kill()
        worker.join()


# ---- Interrupts --------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, time
import cowshed.multiprocessing as multiprocessing

context = multiprocessing.get_context("template")


def wait():
    # CPython does not see a signal that comes right before time.sleep() until that ends.
    while True:
        time.sleep(0.01)


def setup(slow):
    if slow:
        print("ready", os.getpid(), flush=True)
        wait()


def work(pipe):
    try:
        pipe.send(os.getpid())
        wait()
    except KeyboardInterrupt:
        print("worker", flush=True)


def again():
    print("again", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        template = context.Template(setup, (sys.argv[1] == "setup",))
        ours, theirs = template.Pipe()
        worker = template.Process(target=work, args=(theirs,))
        worker.start()
        print("ready", ours.recv(), flush=True)
        wait()
    except KeyboardInterrupt:
        print("caller", flush=True)
    if sys.argv[1] == "work":
        worker.join()
        worker = template.Process(target=again)
        worker.start()
        worker.join()
        print(worker.exitcode)
"""


@pytest.mark.parametrize("when", ["setup", "work"])
def test_a_terminal_s_interrupt(tmp_path, when):
    (tmp_path / "program.py").write_text(INTERRUPTED)
    process = subprocess.Popen([sys.executable, str(tmp_path / "program.py"), when], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    pid = int(process.stdout.readline().split()[1])
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (0, "")
    expected = "caller" if when == "setup" else "caller worker again 0"
    assert sorted(out.split()) == sorted(expected.split())
    assert gone([pid])


# ---- Threads, kills at any moment, many --------------------------------------------------


def add(x):
    return x + 1


def put(queue, i):
    queue.put((i, numpy.full(20000, i)))


def test_threads_start_workers_at_once(template):
    queue = template.SimpleQueue()
    failed = []

    def start(i):
        try:
            worker = template.Process(target=put, args=(queue, i))
            worker.start()
            worker.join()
            assert worker.exitcode == 0
            with template.Executor(1) as executor:
                assert executor.submit(add, i).result() == i + 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    found = [queue.get() for _ in threads]
    for thread in threads:
        thread.join()
    assert not failed and sorted(i for i, _ in found) == list(range(8))
    assert all((x == i).all() for i, x in found)
    queue.close()


@pytest.mark.limit(120)
def test_workers_killed_at_any_moment(template):
    random.seed(3)
    queue = template.SimpleQueue()
    for i in range(60):
        worker = template.Process(target=put, args=(queue, i))
        worker.start()
        time.sleep(random.random() * 0.02)
        worker.kill()
        worker.join()
        assert worker.exitcode in (0, -signal.SIGKILL)
        if worker.exitcode == 0:
            assert not queue.empty()
        while not queue.empty():
            assert queue.get()[0] == i
    assert template.is_alive()
    queue.close()


@pytest.mark.limit(120)
@pytest.mark.leaves("names")  # a killed caller's semaphores are the tracker's, which is slow
def test_callers_killed_at_any_moment(tmp_path):
    random.seed(4)
    for _ in range(8):
        process = _caller(tmp_path, "workers", start_new_session=True)
        time.sleep(random.random() * 1.2)
        process.kill()
        process.wait()
        # All of them have its pipe.
        ready, _, _ = select.select([process.stdout], [], [], 30)
        while ready and process.stdout.read(1000):
            pass
        process.stdout.close()
        assert os.listdir(tmp_path / "tmp") == []


def test_many_alive(template):
    workers = started(template, 60)
    before = len(os.listdir("/proc/self/fd"))
    assert before < 200
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
        assert worker.exitcode == -signal.SIGTERM


def test_other_pythons_see_the_end_of_processes():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        for python in pythons.newer(11).values():
            package = os.path.dirname(os.path.dirname(os.path.abspath(cowshed.__file__)))
            done = subprocess.run([python, program], text=True, timeout=50, capture_output=True,
                                  env={**os.environ, "PYTHONPATH": package})
            assert (done.returncode, done.stderr, done.stdout) == (0, "", "0 -9 [1, 2] 3\n"), python


PROGRAM = """
import signal
import cowshed.multiprocessing as multiprocessing


def setup():
    global base
    base = 1


def add(x):
    return x + base


if __name__ == "__main__":
    context = multiprocessing.get_context("template")
    with context.Template(setup) as template:
        worker = template.Process(target=add, args=(1,))
        worker.start()
        worker.join()
        killed = template.Process(target=signal.pause)
        killed.start()
        killed.kill()
        killed.join()
        with template.Pool(2) as pool, template.Executor(1) as executor:
            print(worker.exitcode, killed.exitcode, pool.map(add, [0, 1]),
                  executor.submit(add, 2).result())
"""


def test_workers_are_joined_at_the_end_of_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LEFT)
    done = subprocess.run([sys.executable, str(program)], text=True, timeout=50,
                          capture_output=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "program\nworker\n")


LEFT = """
import time
import cowshed.multiprocessing as multiprocessing


def late(reader):
    assert reader.recv() == "go"
    print("worker")


if __name__ == "__main__":
    template = multiprocessing.get_context("template").Template()
    reader, writer = template.Pipe(duplex=False)
    worker = template.Process(target=late, args=(reader,))
    worker.start()
    template.Process(target=time.sleep, args=(100,), daemon=True).start()
    print("program", flush=True)
    writer.send("go")
"""


def test_a_template_without_descriptors(template):
    """It says so, and goes on when there are some again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(template.pid, resource.RLIMIT_NOFILE, (20, limits[1]))
    workers = []
    with pytest.raises(OSError, match="can't fork: Too many open files"):
        for _ in range(30):
            workers += started(template)
    assert workers
    resource.prlimit(template.pid, resource.RLIMIT_NOFILE, limits)
    workers += started(template)
    for worker in workers:
        worker.kill()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL


def test_sentinels_can_be_waited_for_together(template):
    workers = started(template, 3)
    workers[1].kill()
    assert wait([worker.sentinel for worker in workers], 30) == [workers[1].sentinel]
    for worker in workers:
        worker.kill()
        worker.join()
