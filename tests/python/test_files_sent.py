# SPDX-License-Identifier: MIT
"""Mapped files in messages: opened again by who receives them, and what of those that are gone."""

import os

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
import cowshed.multiprocessing as multiprocessing  # noqa: E402
from cowshed._pyobjects import _pickle  # noqa: E402
from cowshed._states import _files  # noqa: E402

MODES = ("r", "c", "r+")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.npy")


def sent(x):
    data, parcels = _pickle.dumps(x)
    return _pickle.loads(bytes(data), [parcel[0] for parcel in parcels]), parcels


@pytest.mark.parametrize("mode", MODES)
def test_a_mapped_array_is_sent_as_its_file(path, mode):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path, mode)
    y, parcels = sent(x)
    assert not parcels and cowshed.storage_of(y).kind == "file"
    assert (y == x).all() and y.flags.writeable == (mode != "r")
    if mode != "r":
        y[0] = 5
        assert x[0] == (5 if mode == "r+" else 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_mapped_array_is_all_of_a_message(path, mode):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path, mode)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, sender:
        for part in x, x[5:], cowshed.storage_of(x):
            sender.send([part])
            (received,) = receiver.recv()
            assert cowshed.storage_of(received).kind == "file"
            assert bytes(received) == bytes(part)


def test_what_was_read_stays_where_it_is_when_it_is_sent(path):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path, "r", load=True)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, sender:
        sender.send(x)
        assert (receiver.recv() == np.arange(1 << 20)).all()
    others = [cowshed.full(x.shape, -1) for _ in range(4)]  # where it was, if it moved
    assert (x == np.arange(1 << 20)).all() and len(others) == 4


def test_private_writes_are_sent_as_bytes(path):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path)
    x[77777] = 5
    assert _files.describe(cowshed.storage_of(x)) is None
    y, _ = sent(x)
    assert y[77777] == 5 and (y[:77777] == x[:77777]).all()


def test_a_file_that_is_another_one_by_then(path):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path, "r")
    said = _files.describe(cowshed.storage_of(x))
    np.save(path + ".new.npy", np.zeros(1 << 20))
    os.replace(path + ".new.npy", path)
    with pytest.raises(OSError, match="another file"):
        _files.reopen(said._replace(holder=None))  # its sender ended
    for holder in (os.getpid(), 0), (1 << 30, said.holder[1]):  # and its number is another's
        with pytest.raises(OSError, match="another file"):
            _files.reopen(said._replace(holder=holder))
    assert _files.describe(cowshed.storage_of(x)) is None
    y, _ = sent(x)
    assert y[5] == 5
    said = _files.describe(cowshed.storage_of(cowshed.open(path)))
    os.utime(path, ns=(1, 1))
    with pytest.raises(OSError, match="written"):
        _files.reopen(said)
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        _files.reopen(said)


def test_one_file_is_one_storage_for_those_who_may_share_it(path):
    np.save(path, np.arange(1 << 20))
    said = {mode: _files.describe(cowshed.storage_of(cowshed.open(path, mode))) for mode in MODES}
    for mode in MODES:
        first, second = _files.reopen(said[mode]), _files.reopen(said[mode])
        assert (first is second) == (mode != "c")


def descriptors(path):
    """Those of this process that are of a file of this name, or of one that had it."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing
            pass
    return [name for name in names if name.startswith(path)]


@pytest.mark.parametrize("mode", MODES)
def test_a_file_that_is_replaced_before_it_is_received(path, mode):
    np.save(path, np.arange(1 << 20))
    x = cowshed.open(path, mode)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, sender:
        sender.send(["beside it", x])
        cowshed.save(path, np.zeros(1 << 20))
        beside, y = receiver.recv()
    assert beside == "beside it" and (y == np.arange(1 << 20)).all()
    assert cowshed.storage_of(y).kind == "file" and (np.load(path) == 0).all()
    assert len(descriptors(path)) == 1  # the sender's
    del x, y
    assert not descriptors(path)


@pytest.mark.parametrize("mode", MODES)
def test_views_of_a_file_stay_views_of_one(path, mode):
    np.save(path, np.arange(1 << 20))
    x, other = cowshed.open(path, mode), cowshed.open(path, mode)
    (whole, part, storage, apart), parcels = sent([x, x[5:], cowshed.storage_of(x), other])
    assert not parcels
    assert np.shares_memory(whole, part) and cowshed.storage_of(whole) is storage
    if mode == "c":  # two mappings of the sender's, each with writes of its own
        part[0] = -1
        assert whole[5] == -1 and apart[5] == 5 and x[5] == 5


def test_few_descriptors_are_kept(tmp_path):
    """Programs map more files than they may have descriptors."""
    arrays = []
    for i in range(_files._HELD_MOST + 9):
        np.save(tmp_path / f"{i}.npy", np.arange(1 << 14))
        arrays.append(cowshed.open(tmp_path / f"{i}.npy", "r"))
        y, parcels = sent(arrays[-1])
        assert not parcels and y[77] == 77
    assert len(descriptors(str(tmp_path))) == _files._HELD_MOST
    del arrays, y
    assert not descriptors(str(tmp_path))
