# SPDX-License-Identifier: MIT
"""Tensors of mapped files, and of parts of storages: whose memory they are, and what they cost."""

import multiprocessing as plain
import os
from multiprocessing import resource_sharer

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import cowshed  # noqa: E402
import cowshed.multiprocessing as multiprocessing  # noqa: E402
import cowshed.torch as ct  # noqa: E402
import torch.multiprocessing as torch_multiprocessing  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from cowshed._pyobjects import _pickle  # noqa: E402
from cowshed.torch import _install  # noqa: E402

CLONE, ALIAS = _cowshed.CLONE, _cowshed.ALIAS
MODES = pytest.mark.parametrize("mode", [CLONE, ALIAS], ids=["clone", "alias"])
PATIENCE = 50
EACH = 1 << 20  # bytes of a tensor
COUNT = 10


@pytest.fixture
def path(tmp_path):
    """A file of tensors of a MiB each, "0" to "9", of their own number."""
    result = str(tmp_path / "m.safetensors")
    cowshed.save(result, {str(i): np.full(EACH // 4, i, "f4") for i in range(COUNT)})
    return result


@pytest.fixture
def installed():
    ct.install()
    yield
    ct.uninstall()


def tensors(path, mode):
    return cowshed.open(path, mode, framework="torch")


def there(x, mode):
    """`x` as it arrives where the storages of the message are these, and their bytes."""
    data, parcels = _pickle.dumps(x, mode)
    storages = [parcel[0] for parcel in parcels]
    return _pickle.loads(data, storages), sum(storage.nbytes for storage in storages)


def cdata(*some):
    return {t.untyped_storage()._cdata for t in some}


def in_file(path, name, at=0):
    return float(cowshed.open(path, load=True)[name][at])


# ---- "r+" ------------------------------------------------------------------------------------


@MODES
def test_what_is_sent_of_a_file_that_is_written_is_the_file(path, mode):
    found = tensors(path, "r+")
    w, view = found["3"], found["3"][10:]
    address = w.data_ptr()
    (other, part), nbytes = there([w, view], mode)
    other[0], part[0] = 70, 71
    assert nbytes == 0 and w.data_ptr() == address
    assert w[0] == 70 and view[0] == 71 and found["3"][10] == 71
    assert in_file(path, "3") == 70 and in_file(path, "3", 10) == 71
    assert len(cdata(other, part)) == 1
    w[1] = 72
    assert other[1] == 72


@MODES
def test_an_array_of_such_a_file_is_the_file_as_a_tensor(tmp_path, mode):
    path = str(tmp_path / "x.npy")
    np.save(path, np.zeros(1 << 17))
    array = cowshed.open(path, "r+")
    t = torch.from_numpy(array[100:])
    other, _ = there(t, mode)
    other[0] = 5
    assert t[0] == 5 and array[100] == 5 and np.load(path)[100] == 5


def test_what_is_shared_of_such_a_file_stays_the_file(path, installed):
    w = tensors(path, "r+")["2"]
    address = w.data_ptr()
    assert cowshed.is_shared(w) and w.is_shared()
    assert cowshed.share(w) is w and w.share_memory_() is w
    w[0] = 80
    assert w.data_ptr() == address and in_file(path, "2") == 80
    assert not cowshed.is_shared(tensors(path, "c")["2"])


def increment(inbox, outbox):
    for t in inbox.get():
        t += 100
    outbox.put("done")


@pytest.mark.parametrize("context", [multiprocessing, torch_multiprocessing, plain],
                         ids=["cowshed", "torch", "plain"])
def test_other_processes_write_the_file(path, context, installed):
    context = context.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    found = tensors(path, "r+")
    sent = [found["1"], found["2"]]
    inbox.put(sent)
    process = context.Process(target=increment, args=(inbox, outbox))
    process.start()
    assert outbox.get(timeout=PATIENCE) == "done"
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()
    assert [float(t[-1]) for t in sent] == [101, 102]
    assert in_file(path, "1") == 101 and in_file(path, "2") == 102
    inbox.close()
    inbox.join_thread()
    resource_sharer.stop()  # of plain multiprocessing


@MODES
def test_a_file_that_is_gone_is_no_copy_in_silence(path, mode, installed):
    w = tensors(path, "r+")["1"]
    os.rename(path, path + ".old")
    for what in w, w.untyped_storage():
        with pytest.raises(RuntimeError, match="r\\+.*clone"):
            _pickle.dumps(what, mode)
    with pytest.raises(RuntimeError, match="r\\+"):
        _install.reduce_plainly(w.untyped_storage())
    assert float(there(cowshed.clone(w), mode)[0][0]) == 1


# ---- What it costs ---------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["r", "c"])
@MODES
def test_tensors_of_a_file_cost_their_own_bytes(path, opened, mode):
    found = tensors(path, opened)
    some = [found[str(i)] for i in range(4)]
    others, nbytes = there(some, mode)
    assert nbytes < 4 * EACH + (1 << 16)
    assert [float(t[-1]) for t in others] == [0, 1, 2, 3]
    others[1][0] = 9
    assert float(some[1][0]) == (9 if mode == ALIAS else 1) and in_file(path, "1") == 1


def test_what_is_shared_of_a_file_costs_its_bytes(path):
    t = cowshed.share(tensors(path, "c")["4"])
    assert ct.storage_of(t).nbytes < EACH + (1 << 16) and float(t.sum()) == EACH


def test_a_tensor_of_a_file_is_the_same_memory_each_time(path):
    found = tensors(path, "c")
    a, b = found["5"], found["5"]
    nbytes = a.untyped_storage().nbytes()
    assert len(cdata(a, b)) == 1 and nbytes == EACH
    cowshed.share(a[5:])
    a[0] = 1
    assert cowshed.is_shared(b) and b[0] == 1


def test_tensors_of_one_file_are_one_mapping_over_there(path):
    found = tensors(path, "r+")
    others, nbytes = there(list(found.values()), ALIAS)
    assert nbytes == 0 and len({id(ct.storage_of(t)) for t in others}) == 1


# ---- Clones of parts -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["r", "c", "r+", "shared"])
@pytest.mark.parametrize("most", [False, True])
def test_a_clone_of_a_part_costs_the_part(tmp_path, kind, most):
    """Of memory whose clones are copies. Where they cost nothing it shares all pages."""
    numbers = np.arange(1 << 20, dtype="f4")
    if kind == "shared":
        whole = cowshed.share(torch.from_numpy(numbers.copy()))
    else:
        path = str(tmp_path / "x.safetensors")
        cowshed.save(path, {"x": numbers, "y": numbers})
        whole = tensors(path, kind)["x"]
    part = whole[1000 : (1 << 20) - 1000 if most else 200_000]
    c = cowshed.clone(part)
    nbytes = c.untyped_storage().nbytes()
    assert ct.storage_of(c).nbytes == part.nbytes == nbytes
    assert torch.equal(c, part) and not cowshed.is_shared(c)
    c[0] = -1
    assert part[0] == 1000
    assert torch.equal(cowshed.freeze(part), part)
    assert ct.storage_of(cowshed.freeze(part)).nbytes < part.nbytes + (1 << 16)


def test_a_clone_of_a_part_of_ones_own_copies_nothing():
    whole = ct.full((1 << 20,), 1.0)
    before = cowshed.stats()["clones_eager"]
    c = cowshed.clone(whole[1000:200_000])
    assert cowshed.stats()["clones_eager"] == before
    assert ct.storage_of(c).nbytes == whole.nbytes
