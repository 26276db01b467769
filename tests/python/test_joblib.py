# SPDX-License-Identifier: MIT
"""joblib's backend "cowshed": arrays by handle, private writes, workers that die, scikit-learn."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

joblib = pytest.importorskip("joblib", reason="joblib is not installed")

import cowshed  # noqa: E402
import cowshed.joblib  # noqa: E402
from cowshed.joblib import _backend, _queues  # noqa: E402

delayed = joblib.delayed


@pytest.fixture(autouse=True)
def backend(tmp_path, monkeypatch):
    """The backend; at the end the workers end, and no folder has anything."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(folder))
    shm = set(os.listdir("/dev/shm"))
    with joblib.parallel_config(backend="cowshed", n_jobs=2):
        yield
    end()
    assert os.listdir(folder) == []
    assert not {name for name in set(os.listdir("/dev/shm")) - shm if "joblib" in name}


def end():
    if _backend._executor is not None:
        _backend._executor.shutdown(wait=True)
        _backend._template[0].close()
    _backend._executor = _backend._template = _backend._key = None


def test_copies_end_with_their_arrays():
    copies = _queues.Copies()
    copies.begin(1)
    copies.set_current_context(1)
    held, view = numpy.ones(1 << 20), None
    mine = copies.of(held)
    assert copies.of(held) is not mine and numpy.shares_memory(copies.of(held), mine)
    for _ in range(20):  # a stream of arguments: none is needed again
        view = numpy.ones(1 << 20)[5:]
        assert (copies.of(view) == 1).all()
    del view
    assert len(copies._calls[1]) == 1
    pairs = numpy.ones(1 << 18, [("a", "f8"), ("b", "f8")])
    numbers = pairs.view([("p", "i8"), ("q", "i8")])
    assert copies.of(pairs).dtype.names == ("a", "b")
    assert copies.of(numbers).dtype.names == ("p", "q")


def change(x, i):
    before = float(x[:10].sum())
    x[i] = 100
    return before, float(x[i]), cowshed.storage_of(x) is not None, os.getpid()


@pytest.mark.parametrize("storage", [False, True])
def test_workers_write_a_view_of_their_own(storage):
    x = numpy.ones(1 << 20)
    x = cowshed.array(x) if storage else x
    for batch in "auto", 1:
        found = joblib.Parallel(batch_size=batch)(delayed(change)(x, i) for i in range(20))
        assert all(one[:3] == (10, 100, True) for one in found)
        assert (x == 1).all() and os.getpid() not in {one[3] for one in found}


def test_quick_tasks_have_no_array_in_common():
    """joblib puts quick tasks into one message, whose tasks would share the array."""
    x = numpy.ones(1 << 16)
    for _ in range(2):
        found = joblib.Parallel()(delayed(change)(x, i % 10) for i in range(300))
        assert {one[:2] for one in found} == {(10, 100)}


def where(x):
    return x.flags.writeable, str(x.dtype), x.shape, float(x.sum()), x.tobytes()[:100]


def test_kinds_of_arrays():
    x = numpy.ones((600, 700))
    frozen = numpy.ones((600, 700))
    frozen.flags.writeable = False
    arrays = [x, x.T, x[::2], x[:, 5], frozen, numpy.asfortranarray(x), x.astype("f4"),
              numpy.zeros(0), numpy.ones(3), cowshed.freeze(x), numpy.arange(300000) % 7]
    found = joblib.Parallel()(delayed(where)(a) for a in arrays)
    assert found == [where(a) for a in arrays]


def same(x):
    return x


def test_odd_arrays():
    """Byte orders, structured types, dates, negative steps, overlaps, objects, masks."""
    big = numpy.arange(1 << 18)
    arrays = [big.astype(">i8"), big.view([("a", ">i4"), ("b", "u4")]), big.view("M8[s]"),
              big[::-1], big.reshape(512, -1)[::-2, 1:], numpy.broadcast_to(big[:1], big.shape),
              big.astype(object), numpy.empty((0, 3)), big.astype("S3"),
              numpy.ma.masked_array(big, big % 3 == 0)]
    for x, y in zip(arrays, joblib.Parallel()(delayed(same)(x) for x in arrays)):
        assert type(y) is type(x) and y.dtype == x.dtype and numpy.array_equal(x, y), x.dtype
        assert numpy.array_equal(numpy.ma.getmaskarray(x), numpy.ma.getmaskarray(y)) or \
            x.dtype.names


def look(x):
    kind = cowshed.storage_of(x).kind
    found = float(x[0, 0]), float(x[-1, -1]), x.shape
    x[:] = 0
    return kind, type(x).__name__, *found


def test_files_are_mapped_by_workers(tmp_path):
    path = tmp_path / "x.npy"
    x = numpy.arange(1e6).reshape(1000, 1000)
    numpy.save(path, x)
    mapped = numpy.load(path, mmap_mode="r")
    parts = [mapped, mapped[100:], mapped[:, 7:], mapped[5:900:3, ::2], mapped.T]
    for found, part in zip(joblib.Parallel()(delayed(look)(part) for part in parts), parts):
        assert found == ("file", "ndarray", part[0, 0], part[-1, -1], part.shape)
    changed = numpy.load(path, mmap_mode="c")
    changed[:] = 7
    assert joblib.Parallel()([delayed(look)(changed)])[0][:3] == ("own", "ndarray", 7)
    numpy.save(str(path) + ".new.npy", x + 1)
    os.replace(str(path) + ".new.npy", path)  # another file under the name
    for one in mapped, changed:
        kind, _, first, *_ = joblib.Parallel()([delayed(look)(one)])[0]
        assert kind == "own" and first == one[0, 0]
    assert (mapped == x).all()


def test_an_array_is_copied_once_a_call_and_anew_for_the_next():
    x = numpy.ones(1 << 20)
    before = cowshed.stats()["bytes_live"]
    with joblib.Parallel() as parallel:
        for value in 1, 2, 3:
            x[0] = value
            found = parallel(delayed(change)(x, 5) for _ in range(8))
            assert {one[0] for one in found} == {value + 9}
            deadline = time.monotonic() + 20
            while cowshed.stats()["bytes_live"] - before > 4 << 20:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_results_by_handle():
    results = joblib.Parallel()(delayed(numpy.full)(1 << 20, i) for i in range(6))
    assert [int(x[-1]) for x in results] == list(range(6))
    assert all(cowshed.storage_of(x) is not None for x in results)
    results[0][0] = 7


def test_functions_of_main_and_closures(tmp_path):
    n = 5
    assert joblib.Parallel()(delayed(lambda x: x + n)(i) for i in range(3)) == [5, 6, 7]
    program = tmp_path / "no_guard.py"
    program.write_text("import cowshed.joblib, joblib\n"
                       "class A:\n    def f(self, x): return x + 1\n"
                       "with joblib.parallel_config(backend='cowshed', n_jobs=2):\n"
                       "    print(joblib.Parallel()(joblib.delayed(A().f)(i) for i in range(3)))\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=50)
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n", "")


def nested(i):
    return sum(joblib.Parallel(n_jobs=2)(delayed(abs)(j) for j in range(i)))


def nested_by_name(i):
    return joblib.Parallel(n_jobs=2, backend="cowshed")(delayed(abs)(j) for j in range(i))


@pytest.mark.limit(120)
def test_nested_calls():
    assert joblib.Parallel()(delayed(nested)(i) for i in range(4)) == [0, 0, 1, 3]
    assert joblib.Parallel()(delayed(nested_by_name)(i) for i in (2, 3)) == [[0, 1], [0, 1, 2]]


def wait_for_ever():
    signal.pause()


def fail(x):
    raise KeyError("of the task")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Unpicklable:
    def __reduce__(self):
        raise ValueError("not to be sent")


def make_unpicklable():
    return Unpicklable()


@pytest.mark.limit(120)
def test_after_any_error_the_next_call_works():
    x = numpy.ones(1 << 20)
    for error, words, function, arguments, options in [
        (multiprocessing.TimeoutError, "", wait_for_ever, (), {"timeout": 0.5}),
        (KeyError, "of the task", fail, (x,), {}),
        (Exception, "terminated", die, (), {}),
        (Exception, "pickle", fail, (Unpicklable(),), {}),
        (Exception, "not to be sent", make_unpicklable, (), {}),
    ]:
        with pytest.raises(error, match=words):
            joblib.Parallel(**options)(delayed(function)(*arguments) for _ in range(4))
        found = joblib.Parallel()(delayed(change)(x, 3) for _ in range(4))
        assert {one[0] for one in found} == {10}


def test_a_template_that_is_killed():
    assert joblib.Parallel()(delayed(abs)(i) for i in range(3)) == [0, 1, 2]
    os.kill(_backend._template[0].pid, signal.SIGKILL)
    with pytest.raises(Exception, match="terminated|ended"):
        joblib.Parallel()(delayed(wait_for_ever)() for i in range(3))
    assert joblib.Parallel()(delayed(abs)(i) for i in range(3)) == [0, 1, 2]


def test_threads_call_at_once():
    found = {}

    def call(i):
        x = numpy.full(1 << 17, i)
        with joblib.parallel_config(backend="cowshed", n_jobs=2 + i % 2, inner_max_num_threads=i):
            found[i] = joblib.Parallel()(delayed(where)(x) for _ in range(3))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {i: {one[3] for one in all} for i, all in found.items()} == \
        {i: {float(i << 17)} for i in range(1, 5)}


def test_options():
    assert joblib.Parallel(n_jobs=3, max_nbytes="1K", mmap_mode="r+")(
        delayed(abs)(i) for i in range(5)) == list(range(5))
    assert list(joblib.Parallel(return_as="generator")(
        delayed(abs)(i) for i in range(5))) == list(range(5))
    with joblib.parallel_config(backend="cowshed", n_jobs=2, colour="red"):
        with pytest.raises(TypeError, match="no option colour"):
            joblib.Parallel()(delayed(abs)(i) for i in range(5))
    with joblib.parallel_config(backend="cowshed", n_jobs=2, inner_max_num_threads=1):
        assert joblib.Parallel()(delayed(os.getenv)("OMP_NUM_THREADS")
                                 for i in range(2)) == ["1", "1"]
    assert joblib.Parallel(n_jobs=1)(delayed(os.getpid)() for i in range(2)) == 2 * [os.getpid()]


def test_without_joblib(tmp_path):
    (tmp_path / "joblib.py").write_text("raise ImportError('no such thing')")
    done = subprocess.run([sys.executable, "-c", "import cowshed.joblib"], capture_output=True,
                          text=True, timeout=50, env={**os.environ, "PYTHONPATH": os.pathsep.join(
                              [str(tmp_path), os.environ.get("PYTHONPATH", "")])})
    assert "cowshed.joblib needs joblib 1.6 or newer: pip install" in done.stderr


@pytest.mark.limit(180)
def test_scikit_learn():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(4000, 30, random_state=1)
    forest = RandomForestClassifier(20, random_state=2)
    search = GridSearchCV(forest, {"max_depth": [2, 4]}, cv=2)
    search.fit(x, y)
    assert _backend._executor is not None
    with joblib.parallel_config(backend="loky", n_jobs=1):
        alone = GridSearchCV(forest, {"max_depth": [2, 4]}, cv=2).fit(x, y)
    assert search.best_params_ == alone.best_params_
    assert (search.cv_results_["mean_test_score"] == alone.cv_results_["mean_test_score"]).all()
    assert (search.predict(x) == alone.predict(x)).all()
