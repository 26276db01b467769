# SPDX-License-Identifier: MIT
"""pack(): sequences of objects in one frozen storage."""

import array
import copy
import datetime
import io
import os
import pickle
import random
import sys
import threading
import zlib

import pytest
import pythons

import cowshed
import cowshed.multiprocessing as mp
from cowshed._pyobjects import _pack, _packing, _pickle, _records

ROWS = [{"id": i, "name": f"name {i}", "tags": [f"tag {j}" for j in range(i % 4)], "box": (i, .5)}
        for i in range(300)]
SEQUENCES = {
    "rows": ROWS,
    "strings": ["a", "", "ü\0", "\ud800", "x" * 5000] * 9,
    "integers": [0, -1, 1 << 62, -(1 << 63)],
    "large integers": [1, 1 << 63],
    "floats": [0.5, -0.0, float("inf"), 1e-300],
    "numbers of both types": [1, 2.0],
    "truths": [True, False],
    "bytes": [b"", b"\x80", b"x" * 100000],
    "nothing": [None] * 3,
    "mixed": [1, "a", None, ROWS[3], 2.5, datetime.date(2020, 1, 2)],
    "one": [ROWS],
    "empty": [],
}


@pytest.fixture(params=SEQUENCES)
def values(request):
    return SEQUENCES[request.param]


# ---- As a sequence -------------------------------------------------------------------------


def test_elements(values):
    packed = cowshed.pack(values)
    assert len(packed) == len(values) and list(packed) == values
    assert list(map(type, packed)) == list(map(type, values))
    assert [packed[i] for i in range(-len(values), len(values))] == values + values
    assert list(reversed(packed)) == values[::-1]
    if values:
        assert values[-1] in packed and packed.index(values[0]) == 0
        assert packed.count(values[0]) == values.count(values[0])


def test_slices(values):
    packed = cowshed.pack(values)
    for where in (slice(None), slice(1, None), slice(None, -1), slice(None, None, -2),
                  slice(2, 9, 3), slice(5, 2)):
        part = packed[where]
        assert list(part) == values[where] and part == values[where]
        assert part._storage is packed._storage
        assert list(part[::-1]) == values[where][::-1]
        if len(part):
            assert part[-1] == values[where][-1]


def test_indexes_that_are_wrong():
    packed = cowshed.pack(ROWS)
    for i in 300, -301, 1 << 70:
        with pytest.raises(IndexError, match="has 300 elements"):
            packed[i]
    for i in "a", 1.0, None, (1, 2):
        with pytest.raises(TypeError, match="pass an integer or a slice"):
            packed[i]
    with pytest.raises(IndexError, match="has 0 elements"):
        packed[:0][0]

    class Index:
        def __index__(self):
            return 3

    assert packed[Index()] == ROWS[3] and packed[True] == ROWS[1]


def test_equality(values):
    packed = cowshed.pack(values)
    assert packed == cowshed.pack(list(values)) and packed == values and values == packed
    assert packed == tuple(values) and not packed != values
    assert packed != [*values, 1] and packed != cowshed.pack([*values, 1]) and packed != 5
    if len(values) > 1 and values[0] != values[-1]:
        other = [*values[:-1], values[0]]
        assert packed != other and packed != cowshed.pack(other) and packed != packed[::-1]
    assert packed == cowshed.pack(iter(values))  # stored in another form
    with pytest.raises(TypeError, match="unhashable"):
        hash(packed)


def test_it_is_read_only():
    packed = cowshed.pack(ROWS)
    with pytest.raises(TypeError):
        packed[0] = 1
    with pytest.raises(TypeError):
        del packed[0]
    packed[0]["id"] = 9
    assert packed[0]["id"] == 0
    with pytest.raises(TypeError):
        memoryview(packed._storage)[0] = 1
    with pytest.raises(OSError):
        os.pwrite(_descriptor(packed), b"x", 0)


def _descriptor(packed):
    fd, _ = packed._storage.export(cowshed._cowshed.SEALED)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    finally:
        os.close(fd)


def test_what_is_taken():
    assert list(cowshed.pack(str(i) for i in range(3))) == ["0", "1", "2"]
    assert list(cowshed.pack(range(5))) == [0, 1, 2, 3, 4]
    assert list(cowshed.pack(array.array("d", [1, 2]))) == [1.0, 2.0]

    class Old:
        def __getitem__(self, i):
            return ["a", "b"][i]

    assert list(cowshed.pack(Old())) == ["a", "b"]
    packed = cowshed.pack(ROWS)
    assert cowshed.pack(packed) is packed
    part = cowshed.pack(packed[10:20])
    assert list(part) == ROWS[10:20] and part.nbytes < packed.nbytes / 5
    x = [1]
    x = cowshed.pack([x, x])
    assert x[0] is not x[1] and x[0] is not x[0]
    assert copy.copy(x) is x is copy.deepcopy(x)


def test_objects_of_classes():
    made = [Point(i) for i in range(20)]
    made[3].next = made[3]
    packed = cowshed.pack(made)
    assert packed[7].x == 7 and packed[3].next.next.x == 3


class Point:
    def __init__(self, x):
        self.x = x


# ---- Bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [lambda: 0, threading.Lock(), (i for i in range(3)), sys, io.StringIO])
def test_what_cannot_be_pickled(bad):
    before = [1, "a", bad if bad is not io.StringIO else open(os.devnull)]
    with pytest.raises(TypeError, match=r"element 2 of type \w+ can't be pickled .*\. Pack what"):
        cowshed.pack(before)
    if bad is io.StringIO:
        before[2].close()
        with pytest.raises(TypeError, match="element 2 of type TextIOWrapper"):
            cowshed.pack(before)
    assert before[:2] == [1, "a"]


def test_errors_of_the_program():
    class Bad:
        def __reduce__(self):
            raise ZeroDivisionError("of the program")

    with pytest.raises(TypeError, match="element 0 of type Bad .*of the program") as caught:
        cowshed.pack([Bad()])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def fails():
        yield 1
        raise KeyError("of the generator")

    with pytest.raises(KeyError, match="of the generator"):
        cowshed.pack(fails())

    class Interrupts:
        def __reduce__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cowshed.pack([Interrupts()])
    deep = []
    for _ in range(100000):
        deep = [deep]
    with pytest.raises(TypeError, match="RecursionError"):
        cowshed.pack([deep])


@pytest.mark.parametrize("bad, what", [
    ("abc", "not str: pass a list"), (b"abc", "not bytes"), (bytearray(3), "not bytearray"),
    ({"a": 1}, r"not dict, which has no order: pass list\(x\.items\(\)\)"),
    ({1, 2}, r"not set, which has no order: pass list\(x\)"), (5, "not int: pass a list"),
    (None, "not NoneType"), (cowshed.Storage, "not type")])
def test_what_is_no_sequence(bad, what):
    with pytest.raises(TypeError, match=what):
        cowshed.pack(bad)


def test_no_memory(monkeypatch):
    def write(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_records.os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        cowshed.pack(ROWS)


def test_without_memfds(monkeypatch, values):
    def denied(*_):
        raise PermissionError(1, "denied")

    with monkeypatch.context() as patch:
        patch.setattr(_records.os, "memfd_create", denied)
        packed = cowshed.pack(values)
    assert packed == values and list(packed) == values
    with pytest.raises(TypeError):
        memoryview(packed._storage)[0] = 1


# ---- Arrays --------------------------------------------------------------------------------


def test_arrays_are_views():
    np = pytest.importorskip("numpy")
    made = [{"a": np.arange(i, i + 1000.0), "f": np.ones((30, 40), order="F") * i,
             "cut": np.arange(40).reshape(5, 8)[::2, ::3], "small": np.float32([i]),
             "empty": np.empty((0, 3)), "pair": np.array([(1, 2.0)], "i4,f8"),
             "none": np.array([None, "x", [i]], object), "when": np.datetime64(i, "D"),
             "swapped": np.arange(3, dtype=">i4"),
             "times": np.arange(i, i + 600).astype("M8[s]").reshape(20, 30).T,
             "spans": np.arange(500).astype(">m8[ns]"),
             "events": np.array([("2001-02-03", i)] * 400, "M8[s],f8")} for i in range(9)]
    packed = cowshed.pack(made)
    first, again = packed[4], packed[-5]
    for name, x in made[4].items():
        y = first[name]
        assert type(y) is type(x) and y.dtype == x.dtype and np.array_equal(y, x), name
    views = "a", "f", "cut", "small", "swapped", "times", "spans", "events"
    for name in views:
        assert not first[name].flags.writeable
        assert cowshed.storage_of(first[name]) is packed._storage, name
        assert np.shares_memory(first[name], again[name])
    assert first["a"].ctypes.data % 64 == 0 and first["small"].ctypes.data % 16 == 0
    assert first["f"].flags.f_contiguous
    with pytest.raises(ValueError, match="read-only"):
        first["a"][0] = 1
    assert packed == cowshed.pack(made) and packed[2:4] == cowshed.pack(made[2:4])
    assert packed != cowshed.pack([{**made[0], "a": made[0]["a"] + 1}, *made[1:]])[:1]
    part = cowshed.pack(packed[8:3:-2])
    assert part == packed[8:3:-2] and np.array_equal(part[1]["f"], made[6]["f"])
    del packed, again, part
    assert first["a"][5] == 9


def test_arrays_as_the_sequence():
    np = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"this ndarray has numbers: freeze\(\)"):
        cowshed.pack(np.ones(3))
    assert list(cowshed.pack(np.array(["a", None, 3], object))) == ["a", None, 3]
    assert [type(x) for x in cowshed.pack([np.float64(2), np.int8(1)])] == [np.float64, np.int8]


def test_tables_of_pandas():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(1000), "b": [f"name {i}" for i in range(1000)]})
    back = cowshed.pack([table, table["a"]])
    assert back[0].equals(table) and back[1].equals(table["a"])


def test_tensors_are_copies():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    made = [{"x": x, "t": x.T, "half": x.bfloat16(), "empty": torch.empty(0, 2), "one": x[1],
             "grad": torch.ones(2, requires_grad=True), "truth": x > 2}]
    back = cowshed.pack(made)[0]
    for name, y in made[0].items():
        assert torch.equal(back[name], y) and back[name].dtype == y.dtype, name
    assert back["grad"].requires_grad
    packed = cowshed.pack(made)
    packed[0]["x"][0] = 9
    assert torch.equal(packed[0]["x"], x)
    with pytest.raises(TypeError, match="this Tensor has numbers"):
        cowshed.pack(x)


def test_a_dataset_of_pytorch():
    torch = pytest.importorskip("torch")
    packed = cowshed.pack([{"x": torch.full((2,), float(i)), "y": i} for i in range(40)])
    loader = torch.utils.data.DataLoader(packed, batch_size=8, num_workers=2, shuffle=True)
    seen = sorted(int(y) for batch in loader for y in batch["y"])
    assert seen == list(range(40))


class Shares:
    def __init__(self, packed):
        self.packed = packed

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return shares(self.packed), self.packed[i]["id"]


def load_with_workers():
    import torch

    import cowshed.torch

    cowshed.torch.install()
    loader = torch.utils.data.DataLoader(Shares(cowshed.pack(ROWS)), batch_size=None, num_workers=1,
                                         multiprocessing_context="spawn")
    assert [tuple(said) for said in loader] == [(True, i) for i in range(4)]


@pytest.mark.limit(200)
def test_spawned_workers_of_pytorch_get_a_handle():
    pytest.importorskip("torch")
    process = mp.get_context("spawn").Process(target=load_with_workers)
    process.start()
    process.join()
    assert process.exitcode == 0


# ---- In other processes --------------------------------------------------------------------


def test_a_message_has_a_handle(tmp_path):
    packed = cowshed.pack(ROWS * 50)
    packed.save(tmp_path / "x")
    for x in packed, packed[5:100:3], cowshed.Packed.open(tmp_path / "x"):
        data, parcels = _pickle.dumps({"set": x})
        assert len(data) < 1024 and len(parcels) <= 1
    assert len(pickle.dumps(packed)) > packed.nbytes
    assert len(pickle.dumps(packed[5:10])) < 2000
    assert pickle.loads(pickle.dumps(packed[9:2:-3])) == packed[9:2:-3]


def child(packed, queue):
    x = packed["rows"]
    queue.put((len(x), x[7], x[-1], list(packed["part"]), {x.nbytes, packed["part"].nbytes},
               x, shares(x)))


def shares(packed):
    """Whether this process maps the memfd of pack(), or the file."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return (packed._path or "/memfd:cowshed-pack") in lines.read()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("file", [False, True])
def test_start_methods(method, file, tmp_path):
    packed = cowshed.pack(ROWS)
    if file:
        packed.save(tmp_path / "x")
        packed = cowshed.Packed.open(tmp_path / "x")
    context = mp.get_context(method)
    queue = context.Queue()
    process = context.Process(target=child, args=({"rows": packed, "part": packed[3:9:2]}, queue))
    process.start()
    said = queue.get(timeout=50)
    assert said == (300, ROWS[7], ROWS[-1], ROWS[3:9:2], {packed.nbytes}, packed, True)
    process.join()
    assert process.exitcode == 0


def test_all_threads_read():
    packed, failed = cowshed.pack(ROWS), []

    def read(seed):
        order = random.Random(seed)
        for _ in range(3000):
            i = order.randrange(300)
            if packed[i] != ROWS[i]:
                failed.append(i)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pythons.each(11)
def test_without_packages_and_between_versions(python, tmp_path):
    cowshed.pack(ROWS).save(tmp_path / "here")
    pythons.run(python, """if True:
        import cowshed, os, pickle, sys
        here, there = sys.argv[1:]
        rows = cowshed.Packed.open(here)
        assert "numpy" not in sys.modules and len(rows) == 300 and rows[5]["id"] == 5
        again = cowshed.pack(list(rows))
        again.save(there)
        assert again == rows and pickle.loads(pickle.dumps(rows[4:6])) == rows[4:6]
    """, tmp_path / "here", tmp_path / "there")
    assert cowshed.Packed.open(tmp_path / "there") == ROWS


# ---- The bar -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(monkeypatch):
    now = iter(range(10000))
    monkeypatch.setattr(_packing.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(sys, "stderr", Terminal())
    cowshed.pack(ROWS * 4, show=True)
    said = sys.stderr.getvalue()
    assert "\rpacking [" in said and "100%" not in said.split("\r")[1] and said.endswith("\n")
    monkeypatch.setattr(sys, "stderr", Terminal())
    cowshed.pack(ROWS * 4)
    cowshed.pack([], show=True)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    cowshed.pack(ROWS * 4, show=True)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)
    cowshed.pack(ROWS, show=True)


def test_checksums_are_of_the_records():
    packed = cowshed.pack(ROWS)
    low, high = packed._starts[4], packed._starts[5]
    assert packed._sums[4] == zlib.crc32(packed._data[low:high])
    assert packed.nbytes == len(memoryview(packed._storage)) and _pack.RECORDS == packed._kind
    assert repr(packed) == f"<cowshed.Packed of 300 elements, {packed.nbytes} bytes>"
