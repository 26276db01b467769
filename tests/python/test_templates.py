# SPDX-License-Identifier: MIT
"""Templates: processes that have run setup() once, and fork workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import ProcessError
from multiprocessing.connection import wait

import numpy
import pytest

import cowshed
import cowshed.multiprocessing as multiprocessing

CONTEXT = multiprocessing.get_context("template")
state = None


@pytest.fixture
def template():
    with CONTEXT.Template(remember, ("ready",)) as made:
        yield made


def remember(x):
    global state
    state = x


def tell(pipe, *more):
    pipe.send((os.getpid(), os.getppid(), state, *more))
    pipe.close()


def ask(template, function, *arguments):
    """What a worker sends; it ends well."""
    ours, theirs = template.Pipe()
    worker = template.Process(target=function, args=(theirs, *arguments))
    worker.start()
    theirs.close()
    with ours:
        answer = ours.recv()
    worker.join()
    assert worker.exitcode == 0
    worker.close()
    return answer


def test_a_worker_is_a_fork_that_has_run_setup(template):
    pid, parent, found = ask(template, tell)
    assert pid != os.getpid() and parent == template.pid and found == "ready"
    assert template.is_alive() and "alive" in repr(template)
    assert multiprocessing.active_children() == []


# Its template imports it without the last lines, and so without the module that makes templates.
PROGRAM = """
import sys
import cowshed.multiprocessing as multiprocessing

def tell(queue):
    loaded = "cowshed.multiprocessing.templates" in sys.modules
    queue.put((loaded, multiprocessing.current_process().template.is_alive()))

if __name__ == "__main__":
    context = multiprocessing.get_context("template")
    queue = context.Queue()
    worker = context.Process(target=tell, args=(queue,))
    worker.start()
    print(*queue.get(timeout=60))
    worker.join()
"""


def test_a_worker_has_a_template_of_its_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


def blocked(pipe):
    pipe.send(signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def test_a_caller_that_blocks_sigchld():
    """Its template sees workers end all the same, and they have its mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        with CONTEXT.Template(remember, ("ready",)) as made:
            assert ask(made, blocked) is True
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave(how):
    if how == "raise":
        sys.stderr.close()
        raise KeyError("of the worker")
    if how == "signal":
        os.kill(os.getpid(), signal.SIGUSR1)
    sys.exit(how)


def test_exit_codes(template):
    for how, code in (0, 0), (7, 7), (None, 0), ("raise", 1), ("signal", -signal.SIGUSR1):
        worker = template.Process(target=leave, args=(how,))
        assert worker.exitcode is None and not worker.is_alive()
        worker.start()
        assert wait([worker.sentinel], 30) == [worker.sentinel]
        worker.join()
        assert worker.exitcode == code and not worker.is_alive()


def pause(pipe=None):
    if pipe is not None:
        pipe.send(os.getpid())
    signal.pause()


def test_terminate_and_kill(template):
    for call, code in ("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL):
        ours, theirs = template.Pipe()
        worker = template.Process(target=pause, args=(theirs,))
        worker.start()
        assert ours.recv() == worker.pid
        worker.join(0.01)
        assert worker.is_alive() and worker.exitcode is None
        assert worker in multiprocessing.active_children()
        getattr(worker, call)()
        worker.join()
        assert worker.exitcode == code
        getattr(worker, call)()  # does nothing
        ours.close()
        theirs.close()


def where(pipe, x):
    pipe.send((cowshed.storage_of(x) is not None, float(x.sum()),
               cowshed.storage_of(state) is not None, float(state.sum())))


def test_arrays_travel_by_handle():
    x = cowshed.full((1000, 1000), 1.0)
    with CONTEXT.Template(remember, (x,)) as made:
        x[:] = 2
        assert ask(made, where, x) == (True, 2e6, True, 1e6)


def use(queue, lock, event, barrier, value):
    with lock:
        value.value += 1
    event.wait()
    barrier.wait()
    queue.put(numpy.full(20000, value.value))


@pytest.mark.leaves("descriptors")  # the heap of multiprocessing, with its Barrier and Value
def test_queues_and_locks(template):
    queue, lock, event = template.Queue(), template.Lock(), template.Event()
    barrier, value = template.Barrier(3), template.Value("i", 0)
    workers = [template.Process(target=use, args=(queue, lock, event, barrier, value))
               for _ in range(3)]
    for worker in workers:
        worker.start()
    event.set()
    assert [queue.get()[5] for _ in workers] == [3, 3, 3]
    for worker in workers:
        worker.join()
    queue.close()
    queue.join_thread()


def parent(x=None):
    return x, os.getppid(), state


def test_pools_and_executors(template):
    with template.Pool(2, initializer=remember, initargs=("pool",)) as pool:
        assert pool.map(parent, range(3)) == [(x, template.pid, "pool") for x in range(3)]
    with template.Executor(2) as executor:
        assert list(executor.map(parent, range(3))) == [(x, template.pid, "ready")
                                                        for x in range(3)]
        assert executor.submit(numpy.full, 100000, 2).result()[5] == 2
        with pytest.raises(Exception, match="pickle|lambda"):
            executor.submit(parent, lambda: 0).result()
        assert executor.submit(parent, 1).result()[0] == 1


def exit_now():
    os._exit(1)


def test_an_executor_with_a_dead_worker_fails(template):
    from concurrent.futures.process import BrokenProcessPool

    with template.Executor(1) as executor:
        with pytest.raises(BrokenProcessPool):
            executor.submit(exit_now).result()


def test_the_context_has_processes_and_a_default_template():
    pid, parent, found = ask(CONTEXT, tell)
    assert parent != os.getpid() and found is None
    assert CONTEXT.get_start_method() == "template"
    from cowshed.multiprocessing import templates

    assert templates.default().pid == parent
    templates.default().close()


class Own(CONTEXT.Process):
    def __init__(self, pipe, **options):
        super().__init__(**options)
        self.pipe = pipe

    def run(self):
        self.pipe.send((self.name, os.getppid()))


def test_subclasses(template):
    ours, theirs = template.Pipe()
    worker = Own(theirs, template=template, name="mine")
    worker.start()
    assert ours.recv() == ("mine", template.pid)
    worker.join()
    ours.close()
    theirs.close()


# ---- reset() -----------------------------------------------------------------------------


def count(pipe):
    while True:
        pipe.recv()
        remember((state, 1))
        pipe.send((state, os.getpid()))


def test_reset_gives_the_template_s_state(template):
    ours, theirs = template.Pipe()
    worker = template.Process(target=count, args=(theirs,), name="sandbox")
    with pytest.raises(ValueError, match="not started"):
        template.reset(worker)
    worker.start()
    seen = []
    for _ in range(2):
        for expected in ("ready", 1), (("ready", 1), 1):
            ours.send(None)
            found, pid = ours.recv()
            assert found == expected and pid == worker.pid
        seen.append(pid)
        template.reset(worker)
        assert worker.is_alive() and worker.name == "sandbox" and worker.exitcode is None
    assert len(set(seen)) == 2
    worker.kill()
    worker.join()
    template.reset(worker)  # one that has ended, too
    ours.send(None)
    assert ours.recv()[0] == ("ready", 1)
    worker.kill()
    worker.join()
    theirs.close()
    with pytest.raises(OSError, match="closed"):
        template.reset(worker)
    assert worker.exitcode == -signal.SIGKILL
    with pytest.raises(ValueError, match="not a process of"):
        template.reset(CONTEXT.Process(target=pause))
    ours.close()


# ---- setup() -----------------------------------------------------------------------------


def fail(how):
    if how == "threads":
        threading.Thread(target=time.sleep, args=(100,), name="busy", daemon=True).start()
    elif how == "exit":
        sys.exit(3)
    elif how == "abort":
        os._exit(4)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "odd":
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__("odd words")

        raise Odd(1, 2)
    else:
        raise KeyError("of setup")


@pytest.mark.parametrize("how, error, words", [
    ("raise", KeyError, "of setup"),
    ("odd", ProcessError, "odd words"),
    ("exit", ProcessError, "SystemExit: 3"),
    ("abort", ProcessError, "ended before its setup.* returned: exit code 4"),
    ("kill", ProcessError, "killed by SIGKILL"),
    ("threads", RuntimeError, "left 1 threads running: 'busy'.*do not survive a fork"),
])
def test_a_setup_that_fails(how, error, words):
    with pytest.raises(error, match=words) as raised:
        CONTEXT.Template(fail, (how,))
    if how == "raise":
        assert "test_templates.py" in str(raised.value.__cause__) and "fail" in \
            str(raised.value.__cause__)


def test_threads_can_be_ignored():
    with CONTEXT.Template(fail, ("threads",), threads="ignore") as made:
        assert ask(made, tell)[1] == made.pid


def test_setup_by_name():
    with CONTEXT.Template("test_templates:remember", ("named",)) as made:
        assert ask(made, tell)[2] == "named"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        CONTEXT.Template("no_such_module:f")


def test_bad_arguments(template):
    import pickle

    with pytest.raises(TypeError, match="'module:function'"):
        CONTEXT.Template(5)
    with pytest.raises(ValueError, match="'error' or 'ignore'"):
        CONTEXT.Template(threads="maybe")
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        CONTEXT.Template(lambda: 0)
    worker = template.Process(target=lambda: 0)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        worker.start()
    with pytest.raises(TypeError, match="can't be sent"):
        pickle.dumps(template)
    with pytest.raises(ValueError, match="or 'template'"):
        multiprocessing.get_context("templates")
    made = CONTEXT.Template()
    made.close()
    made.close()
    assert not made.is_alive() and "ended" in repr(made)
    with pytest.raises(ValueError, match="is closed"):
        made.Process(target=pause).start()


def same(pipe, x):
    pipe.send(x)


def test_odd_arguments(template):
    """Byte orders, structured types, dates, negative steps, no elements, objects."""
    big = numpy.arange(1 << 18)
    for x in (big.astype(">i8"), big.view([("a", ">i4"), ("b", "u4")]), big.view("M8[s]"),
              big[::-1], big.reshape(512, -1)[::-2, 1:], big.astype(object), big[:0]):
        y = ask(template, same, x)
        assert y.dtype == x.dtype and numpy.array_equal(x, y), x.dtype
    with open(__file__, encoding="utf-8") as file:
        pass
    for bad in file, threading.Lock():
        with pytest.raises(TypeError, match="pickle"):
            template.Process(target=same, args=(None, bad)).start()
    assert ask(template, tell)[1] == template.pid, "nothing is lost"


def hold(pipe, *many):
    pipe.send(len(many))


def test_descriptors(template):
    """240 connections are inherited; for 260 there is a clear error, and nothing is lost."""
    pipes = [template.Pipe() for _ in range(130)]
    ends = [end for pair in pipes for end in pair]
    assert ask(template, hold, *ends[:240]) == 240
    ours, theirs = template.Pipe()
    with pytest.raises(ValueError, match="can inherit 248 descriptors"):
        template.Process(target=hold, args=(theirs, *ends)).start()
    for end in [ours, theirs, *ends]:
        end.close()


# ---- The shim and native threads ---------------------------------------------------------


def look(pipe):
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        loaded = "libcowshed-preload" in maps.read()
    pipe.send((loaded, os.environ.get("LD_PRELOAD")))


@pytest.mark.parametrize("shim", [True, False])
def test_the_shim(shim):
    with CONTEXT.Template(shim=shim) as made:
        loaded, preload = ask(made, look)
    there = "libcowshed-preload" in os.environ.get("LD_PRELOAD", "")
    assert loaded == (shim or there)
    assert preload == os.environ.get("LD_PRELOAD")


def multiply(pipe=None):
    import torch

    torch.set_num_threads(4)
    x = torch.ones(300, 300)
    total = float((x @ x).exp().sum() + x.sum())
    if pipe is not None:
        pipe.send(total)


# They are of PyTorch's own pool, which set_num_threads() makes.
@pytest.mark.filterwarnings("ignore:.*left 3 threads")
def test_openmp_in_setup_does_not_hang_workers():
    pytest.importorskip("torch")
    with CONTEXT.Template(multiply) as made:
        assert ask(made, multiply) > 0


# ---- Templates in templates ----------------------------------------------------------------

inner = None


def nest(depth):
    global inner
    if depth:
        inner = CONTEXT.Template(nest, (depth - 1,))


def use_inner():
    try:
        inner.Process(target=pause).start()
    except ProcessError as error:
        return str(error)


def test_templates_in_templates():
    with CONTEXT.Template(nest, (2,)) as made, made.Executor(1) as executor:
        assert "belongs to the process" in executor.submit(use_inner).result()


# ---- Users of a context ----------------------------------------------------------------------


def test_data_loader(template):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    loader = DataLoader(torch.arange(20.0), batch_size=5, num_workers=2,
                        multiprocessing_context=template)
    for _ in range(2):
        assert sum(float(batch.sum()) for batch in loader) == 190
