# SPDX-License-Identifier: MIT
"""Templates whose forks hang, and threads of native libraries, which make forks hang."""

import ctypes
import os
import signal

import numpy
import pytest
from test_templates import ask, pause, tell
from test_templates_killed import children, started

import cowshed
import cowshed.multiprocessing as multiprocessing

CONTEXT = multiprocessing.get_context("template")


def impatient(hangs=None):
    """setup() of a template that waits 0.3 s for its forks. hangs: which of them never run."""
    from cowshed.multiprocessing import _template_server

    _template_server._SLICES = 3
    forks = iter(range(10))
    os.register_at_fork(before=lambda: impatient.__dict__.update(at=next(forks)),
                        after_in_child=lambda: impatient.at in (hangs or ()) and signal.pause())


def test_a_spare_that_stands_still_is_replaced():
    """A request does not wait for it for ever, and is not lost."""
    with CONTEXT.Template(impatient) as made:
        for _ in range(2):
            for spare in children(made.pid):
                os.kill(spare, signal.SIGSTOP)
            worker, = started(made)
            worker.kill()
            worker.join()


@pytest.mark.parametrize("hangs, works", [((1,), True), ((1, 2), False)])
def test_a_handler_for_forks_that_hangs(hangs, works):
    """The first fork is that of the test in setup(), the second the spare."""
    with CONTEXT.Template(impatient, (hangs,)) as made:
        if not works:
            with pytest.raises(TimeoutError, match="two forks .* did not begin to run.*Import"):
                made.Process(target=pause).start()
        for worker in started(made):  # the template goes on
            worker.kill()
            worker.join()
            assert worker.exitcode == -signal.SIGKILL


def test_a_setup_whose_forks_hang():
    with pytest.raises(RuntimeError, match="did not begin to run in 0.3 s.*in the workers instead"):
        CONTEXT.Template(impatient, ((0,),))


def test_close_does_not_wait_for_a_forked_child():
    """The child has no part of the template. Else the template is killed after ten seconds."""
    made = CONTEXT.Template()
    child = os.fork()
    if child == 0:
        signal.pause()
    made.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert made._execution.program.returncode == 0


# ---- Threads of native libraries -----------------------------------------------------------


def start_native(name=b"busy-native"):
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, libc.pause, None) == 0
    assert libc.pthread_setname_np(thread, name) == 0


def test_native_threads_of_setup_are_named():
    """Once, in the caller's line. The engine's own helper is none of them."""
    with pytest.warns(RuntimeWarning) as caught:
        made = CONTEXT.Template(start_native, name="mine")
    assert len(caught) == 1 and os.path.samefile(caught[0].filename, __file__)
    words = str(caught[0].message)
    assert words.startswith("setup() of mine left threads of native libraries running: "
                            "'busy-native'. Threads do not survive a fork")
    with made:
        assert ask(made, tell)[1] == made.pid


@pytest.mark.filterwarnings("error")
def test_threads_that_are_no_danger_are_not_named():
    CONTEXT.Template(start_native, threads="ignore").close()
    with CONTEXT.Template(large, shim=True) as made:  # the helper runs; OpenBLAS ends its threads
        assert ask(made, tell)[1] == made.pid


def large():
    x = numpy.ones((1000, 1000))
    for _ in range(3):
        x = cowshed.array(x @ x)
        kept = cowshed.clone(x)
        x[:] = 1 + kept[0, 0] * 0
