# SPDX-License-Identifier: MIT
"""How a saving ends: it is a future, and a failure that nobody asks for is not lost."""

import asyncio
import concurrent.futures
import gc
import logging
import subprocess
import sys
import threading

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

HOW = ["thread", "process"]


def begin(how, path):
    return cowshed.snapshot({"a": np.ones(3)}).save_async(str(path), process=how == "process")


def good(how, tmp_path):
    return begin(how, tmp_path / "a.npz")


def bad(how, tmp_path):
    return begin(how, tmp_path / "none" / "a.npz")


def ended(text, path, how):
    program = f"""
import sys, cowshed, numpy
{text.format(save=f"cowshed.snapshot(dict(a=numpy.ones(3))).save_async({str(path)!r}, "
                  f"process={how == 'process'})")}
print("finished")
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("text", ["{save}", "kept = {save}", "x = [{save}]; x.append(x)"])
def test_a_failure_that_nobody_waits_for_is_printed_once(tmp_path, how, text):
    got = ended(text, tmp_path / "none" / "a.npz", how)
    assert got.returncode == 0 and got.stdout == "finished\n"
    assert got.stderr.count("FileNotFoundError") == 1, got.stderr
    assert "none/a.npz" in got.stderr and "wait()" in got.stderr


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("text", [
    "kept = {save}; kept.exception()",
    "kept = {save}\nwhile not kept.done(): pass\nprint(repr(kept.error)[:0], end='')",
    "kept = {save}\ntry: kept.wait()\nexcept OSError: pass",
    "kept = {save}\nkept.add_done_callback(lambda it: it.exception())",
    "kept = {save}; kept.cancel()\ntry: kept.wait()\nexcept BaseException: pass",
])
def test_a_failure_that_is_asked_for_is_not_printed(tmp_path, how, text):
    got = ended(text, tmp_path / "none" / "a.npz", how)
    assert (got.returncode, got.stdout, got.stderr) == (0, "finished\n", "")


def test_a_checkpoint_to_a_full_disk_is_not_lost(tmp_path):
    got = ended("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
                f"cowshed.checkpoint(dict(a=numpy.ones(1 << 20)), {str(tmp_path / 'a.npz')!r})",
                "", "process")
    assert got.returncode == 0 and "OSError" in got.stderr and "a.npz" in got.stderr


@pytest.mark.parametrize("how", HOW)
def test_what_is_freed_is_reported(tmp_path, how, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "excepthook", lambda *what: said.append(what))
    saving = bad(how, tmp_path)
    while not saving.done():
        pass
    if how == "thread":
        saving._thread.join()
    del saving
    gc.collect()
    assert [what[0] for what in said] == [FileNotFoundError]
    assert str(tmp_path / "none" / "a.npz") in said[0][1].__notes__[0]


@pytest.mark.parametrize("how", HOW)
def test_the_methods_of_a_future(tmp_path, how):
    saving = good(how, tmp_path)
    assert saving.result() == saving.path and saving.exception() is None
    assert not saving.running() and not saving.cancelled()
    saving = bad(how, tmp_path)
    with pytest.raises(FileNotFoundError):
        saving.result(60)
    assert isinstance(saving.exception(0), FileNotFoundError)
    assert isinstance(saving.error, FileNotFoundError) and not saving.cancelled()


@pytest.mark.parametrize("how", HOW)
def test_callbacks(tmp_path, how):
    for make in good, bad:
        saving, called, two = make(how, tmp_path), [], threading.Event()
        saving.add_done_callback(lambda it: called.append((1, it.exception() is None)))
        saving.add_done_callback(lambda it: (called.append((2, it.done())), two.set()))
        assert two.wait(60)
        saving.add_done_callback(lambda it: called.append((3, it is saving)))
        assert called == [(1, make is good), (2, True), (3, True)]
        if how == "process":
            saving._watcher.join()


@pytest.mark.parametrize("how", HOW)
def test_a_callback_that_fails_is_logged_and_the_next_one_is_called(tmp_path, how, caplog):
    saving, called = good(how, tmp_path), threading.Event()
    saving.add_done_callback(lambda it: 1 / 0)
    saving.add_done_callback(lambda it: called.set())
    assert called.wait(60)
    assert [x.exc_info[0] for x in caplog.records] == [ZeroDivisionError]


@pytest.mark.parametrize("how", HOW)
def test_it_can_be_awaited(tmp_path, how):
    async def wait(saving):
        return await saving

    saving = good(how, tmp_path)
    assert asyncio.run(wait(saving)) == saving.path
    with pytest.raises(FileNotFoundError):
        asyncio.run(wait(bad(how, tmp_path)))


@pytest.mark.parametrize("how", HOW)
def test_other_code_takes_its_future(tmp_path, how):
    savings = [good(how, tmp_path), bad(how, tmp_path)]
    done, _ = concurrent.futures.wait([saving.future() for saving in savings], 60)
    assert sorted(it.exception() is None for it in done) == [False, True]
    assert not savings[0].future().cancel()


@pytest.mark.parametrize("how", HOW)
def test_failures_are_logged(tmp_path, how, caplog):
    with caplog.at_level(logging.ERROR, "cowshed"):
        saving = bad(how, tmp_path)
        assert saving.exception() is not None
        if how == "thread":
            saving._thread.join()
    assert [(x.name, x.levelname) for x in caplog.records] == [("cowshed", "ERROR")]
    assert saving.path in caplog.text
