# SPDX-License-Identifier: MIT
"""cowshed.multiprocessing.install(): the standard multiprocessing sends arrays by handle."""

import concurrent.futures
import multiprocessing
import pickle
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
import cowshed.multiprocessing as ours  # noqa: E402

LARGE = 1 << 19  # elements of 8 bytes
START = pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
pytestmark = [pytest.mark.limit(300)]


@pytest.fixture(autouse=True)
def installed():
    ours.install()
    yield
    ours.uninstall()
    if resource_sharer._resource_sharer._listener is not None:
        resource_sharer.stop()


def kind(x):
    storage = cowshed.storage_of(x)
    return None if storage is None else (storage.kind, storage.readonly)


def work(x):
    """In a worker: what came, the sum, and what goes back."""
    before = float(x.sum())
    if x.flags.writeable:
        x += 1
    return kind(x), before, x


def put(queue, n):
    ours.install()
    queue.put(cowshed.full(n, 7.0))


def handles(x):
    """How many bytes a message with an object has."""
    data = ForkingPickler.dumps(x)
    for key in list(resource_sharer._resource_sharer._cache):
        send, close = resource_sharer._resource_sharer._cache.pop(key)
        close()
    return len(data)


@START
def test_an_executor_of_the_standard_library(start):
    x = cowshed.array(np.arange(float(LARGE)))
    total, frozen, shared = float(x.sum()), cowshed.freeze(x), cowshed.share(x)
    context = multiprocessing.get_context(start)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        what, before, back = executor.submit(work, x).result()
        assert what[0] == "own" and before == total and (back == x + 1).all()
        assert kind(back)[0] == "own" and x[0] == 0
        what, before, back = executor.submit(work, frozen).result()
        assert what == ("own", True) and before == total and (back == x).all()
        what, before, back = executor.submit(work, shared).result()
        assert what[0] == "alias" and cowshed.is_shared(back)
        assert (shared == x + 1).all(), "the worker wrote the same memory"
        back[5] = -1
        assert shared[5] == -1
        # Foreign arrays, and many of them.
        many = [np.full(LARGE // 4, float(i)) for i in range(5)]
        for i, (what, before, back) in enumerate(executor.map(work, many)):
            assert what[0] == "own" and (back == i + 1).all() and (many[i] == i).all()


@START
def test_arguments_and_queues(start):
    context = multiprocessing.get_context(start)
    queue = context.SimpleQueue()
    # It ends at once after it has written to the pipe.
    process = context.Process(target=put, args=(queue, LARGE))
    process.start()
    x = queue.get()
    process.join()
    assert process.exitcode == 0 and (x == 7).all() and kind(x)[0] == "own"
    arrays = [cowshed.full(LARGE, float(i)) for i in range(3)]
    with context.Pool(1) as pool:
        assert [before for _, before, _ in pool.map(work, arrays)] == [0, LARGE, 2 * LARGE]
        assert pool.apply(len, (cowshed.pack(list(range(200_000))),)) == 200_000


def test_what_goes_by_handle():
    x = cowshed.array(np.arange(float(LARGE)))
    assert handles(x) < 2000 and handles({"a": [x, x[5:]]}) < 4000
    assert handles(np.arange(float(LARGE))) < 2000
    assert handles(cowshed.freeze(x)) < 2000 and handles(cowshed.storage_of(x)) < 2000
    assert handles(cowshed.share(np.zeros(3))) < 2000
    assert handles(cowshed.pack(["a" * 100] * 100_000)) < 2000
    assert handles(x[:100]) < 2000 and handles(np.arange(100)) < 2000
    assert handles(x[: LARGE // 8]) > LARGE  # 512 KiB: as bytes
    ours.uninstall()
    assert handles(x) > 8 * LARGE


@pytest.mark.parametrize("x", [
    np.zeros(0), np.array([None, "a"]), np.arange(float(LARGE))[::-1], np.ones((2000, 500)).T,
    np.ones((1000, 1000))[:, ::2], np.arange(LARGE).astype("M8[s]"), np.float64(3),
    np.zeros(LARGE, "i4,f8"), np.matrix(np.ones((700, 700)))])
def test_all_kinds_of_arrays_come_as_they_were(x):
    y = pickle.loads(ForkingPickler.dumps(x))
    assert type(y) is type(x) and y.dtype == x.dtype and y.shape == x.shape
    assert y.tobytes() == x.tobytes() if not x.dtype.hasobject else (y == x).all()


def test_a_file_goes_as_bytes_of_the_moment(tmp_path):
    path = str(tmp_path / "x.npy")
    np.save(path, np.arange(float(LARGE)))
    x = cowshed.open(path, "r+")
    data = ForkingPickler.dumps(x)
    x[0] = 9
    assert pickle.loads(data)[0] == 0


def test_what_was_shared_before_is_an_error():
    ours.uninstall()
    x = cowshed.share(np.zeros(LARGE))
    ours.install()
    if cowshed._memory._family.group() is not None:
        with pytest.raises(RuntimeError, match="install"):
            ForkingPickler.dumps(x)


def test_messages_of_cowshed_are_as_before():
    reader, writer = ours.Pipe(False)
    x = cowshed.full(LARGE, 3.0)
    with reader, writer:
        for sent in x, x[:10], np.arange(5), cowshed.share(x):
            writer.send(sent)
            got = reader.recv()
            assert (got == sent).all() and cowshed.is_shared(got) == cowshed.is_shared(sent)
