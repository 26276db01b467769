# SPDX-License-Identifier: MIT
"""Files as arrays: what is right is opened, what is wrong is a ValueError and nothing else."""

import json
import os

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

try:
    import torch  # here, since what an import allocates stays
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

MODES = ("r", "c", "r+")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.npy")


def save_npy(path, array, version=None):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version)


def raw_safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return path


# ---- .npy -----------------------------------------------------------------------------------

ARRAYS = {
    "floats": np.arange(100000, dtype="f4").reshape(100, 1000),
    "fortran": np.asfortranarray(np.arange(60, dtype=">i8").reshape(3, 4, 5)),
    "nothing": np.zeros((0, 7), "u2"),
    "scalar": np.array(3 + 4j),
    "records": np.array([(1, 2.5, b"ab"), (2, 3.5, b"cd")], "i4,f8,S2"),
    "nested": np.zeros(3, [("a", "i2"), ("b", [("c", "f4", (2, 2)), ("d", "U3")])]),
    "dates": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "text": np.array(["a", "bcd", ""]),
    "bools": np.array([True, False]),
}


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("name", ARRAYS)
def test_npy_is_what_numpy_loads(path, name, version):
    save_npy(path, ARRAYS[name], version)
    there = np.load(path)
    for mode in MODES:
        for load in (False, True) if mode != "r+" else (False,):
            x = cowshed.open(path, mode, load=load)
            assert x.dtype == there.dtype and x.shape == there.shape
            assert x.tobytes() == there.tobytes()
            assert x.flags.writeable == (mode != "r")
            assert x.flags.f_contiguous == there.flags.f_contiguous


def test_modes_say_whose_writes_are_whose(path):
    np.save(path, np.zeros(100000))
    read, mine, all_see = (cowshed.open(path, mode) for mode in MODES)
    with pytest.raises(ValueError):
        read[0] = 1
    mine[0] = 1
    all_see[5000] = 2
    assert (read[0], read[5000]) == (0, 2)
    assert np.load(path)[0] == 0 and np.load(path)[5000] == 2
    assert mine[0] == 1 and all_see[0] == 0


def test_a_clone_of_a_mapped_array_is_its_bytes_and_not_the_file(path):
    np.save(path, np.arange(1 << 20, dtype="f8"))
    x = cowshed.open(path)
    y = cowshed.clone(x[: 1 << 17])
    assert (y == x[: 1 << 17]).all()
    assert cowshed.storage_of(y).nbytes == 1 << 20
    loaded = cowshed.open(path, load=True)
    z = cowshed.clone(loaded)
    z[0] = 7
    assert loaded[0] == 0 and cowshed.storage_of(z).kind == "own"


def test_what_is_frozen_of_a_file_is_not_the_file(path):
    np.save(path, np.arange(1 << 20))
    x, writer = cowshed.open(path, "r"), cowshed.open(path, "r+")
    frozen = [cowshed.freeze(x), cowshed.freeze(x[5:]),
              np.frombuffer(cowshed.freeze(cowshed.storage_of(x)), x.dtype, offset=128)]
    writer[:] = -1
    assert x[7] == -1
    for y, first in zip(frozen, (0, 5, 0)):
        assert (y == np.arange(first, 1 << 20)).all() and not y.flags.writeable
        storage = cowshed.storage_of(y)
        assert storage.kind == "own" and cowshed.freeze(storage) is storage
    loaded = cowshed.open(path, "r", load=True)
    assert cowshed.storage_of(cowshed.freeze(loaded)) is cowshed.storage_of(loaded)


def test_objects_are_refused(path):
    np.save(path, np.array([{}, None]), allow_pickle=True)
    with pytest.raises(ValueError, match="objects"):
        cowshed.open(path)


def test_names_that_are_no_files(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        cowshed.open(path)
    with pytest.raises(ValueError, match="regular"):
        cowshed.open(str(tmp_path))
    os.mkfifo(path)
    with pytest.raises(ValueError, match="regular"):  # and nobody waits for its writer
        cowshed.open(path)


def test_raw_files(tmp_path):
    path = str(tmp_path / "data.bin")
    np.arange(1000, dtype="<u4").tofile(path)
    assert (cowshed.open(path, dtype="<u4") == np.arange(1000)).all()
    x = cowshed.open(path, dtype="<u4", shape=(3, 5), offset=40, order="F")
    assert (x == np.arange(10, 25).reshape(5, 3).T).all()
    for wrong in (dict(shape=1001), dict(shape=(2, -1)), dict(offset=4001), dict(offset=1),
                  dict(shape=(1 << 40, 1 << 40)), dict(order="K"), dict(dtype="O"),
                  dict(dtype="S0")):
        with pytest.raises(ValueError):
            cowshed.open(path, **{"dtype": "<u4", **wrong})
    with pytest.raises(ValueError, match="dtype="):
        cowshed.open(path)
    with pytest.raises(ValueError, match="mode"):
        cowshed.open(path, "w", dtype="u1")


# ---- .safetensors ----------------------------------------------------------------------------


def test_safetensors_is_what_was_saved(tmp_path):
    path = str(tmp_path / "m.safetensors")
    state = {"w": np.arange(12, dtype="f4").reshape(3, 4), "e": np.zeros((0, 3), "i8"),
             "s": np.array(5, "u2"),
             "deep": {"list": [np.ones(3, ">f8"), 7], "b": np.array([True])},
             "lr": 0.5, "name": "x", "none": {"yet": {}, "or": []}}
    cowshed.save(path, state)
    for mode in MODES:
        t = cowshed.open(path, mode)
        assert set(t) == {"w", "e", "s", "deep.list.0", "deep.b"} and len(t) == 5
        assert (t["w"] == state["w"]).all() and t["e"].shape == (0, 3) and t["s"] == 5
        assert (t["deep.list.0"] == 1).all() and t["deep.b"].dtype == bool
        assert t.metadata == {"deep.list.1": "7", "lr": "0.5", "name": '"x"',
                              "none.yet": "{}", "none.or": "[]"}
        assert t.dtype_of("w") == "F32"
        assert t["w"].flags.writeable == (mode != "r")
    assert cowshed.storage_of(t["w"]) is cowshed.storage_of(t["deep.b"])
    t["w"][0, 0] = 99
    assert cowshed.open(path)["w"][0, 0] == 99
    with pytest.raises(KeyError):
        t["no"]


def test_safetensors_by_the_reference(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    ours, theirs = str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")
    state = {"w": np.arange(7, dtype="f2"), "v": np.zeros((2, 0), "i4"), "u": np.ones(3, "u8")}
    cowshed.save(ours, state)
    reference.save_file(state, theirs, {"k": "v"})
    for found in (reference.load_file(ours), cowshed.open(theirs)):
        assert {name: (x.dtype, x.tolist()) for name, x in found.items()} == \
            {name: (x.dtype, x.tolist()) for name, x in state.items()}
    assert cowshed.open(theirs).metadata == {"k": "v"}


@needs_torch
def test_types_that_numpy_lacks(tmp_path):
    path = raw_safetensors(str(tmp_path / "m.safetensors"), {
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "f": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [4, 5]}}, b"\x80\x3f\0\x40\x38")
    t = cowshed.open(path, framework="torch")
    assert t["b"].tolist() == [1.0, 2.0] and t["f"].float().tolist() == [1.0]
    t["b"][0] = 5
    assert t["b"][0] == 5 and t["b"].dtype == torch.bfloat16
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.warns(UserWarning, match="BF16"):
            assert cowshed.open(path)["b"].tolist() == [0x3F80, 0x4000]


def test_unaligned_tensors(tmp_path):
    header = {"b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
              "f": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}}
    path = raw_safetensors(str(tmp_path / "m.safetensors"), header,
                           b"\1" + np.float32([1, 2]).tobytes())
    assert cowshed.open(path)["f"].tolist() == [1, 2]
    if torch:
        assert cowshed.open(path, framework="torch")["f"].tolist() == [1, 2]


ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
HOSTILE = {
    "too long": (1 << 63).to_bytes(8, "little") + b"{}",
    "longer than the file": b"\xff\0\0\0\0\0\0\0{}",
    "short": b"\1\0\0",
    "empty": b"",
    "no object": b"[]",
    "no json": b"{\"a\":",
    "twice": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
             b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "deep": b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}",
    "a number of many digits": b'{"a":' + b"9" * 10000 + b"}",
    "nan": b'{"a":NaN}',
    "half a character": b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "not utf-8": b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "metadata": {"__metadata__": {"a": 1}},
    "metadata no dict": {"__metadata__": []},
    "overlap": {"a": ONE, "b": {**ONE, "data_offsets": [2, 6]}},
    "same": {"a": ONE, "b": ONE},
    "gap": {"a": ONE, "b": {**ONE, "data_offsets": [5, 9]}},
    "behind the end": {"a": {**ONE, "shape": [9], "data_offsets": [0, 9]}},
    "nothing of the data": {},
    "backwards": {"a": {**ONE, "data_offsets": [4, 0]}},
    "negative": {"a": {**ONE, "shape": [-4]}},
    "negative place": {"a": {**ONE, "data_offsets": [-4, 0]}},
    "a bool": {"a": {**ONE, "shape": [True, 4]}},
    "a float": {"a": {**ONE, "shape": [4.0]}},
    "sizes that overflow": {"a": {**ONE, "shape": [1 << 33, 1 << 31, 4]}},
    "sizes that overflow to 4": {"a": {**ONE, "shape": [(1 << 62) + 1, 4]}},
    "zero times infinity": {"a": {**ONE, "shape": [1 << 61, 1 << 61, 0], "data_offsets": [0, 0]},
                            "b": ONE},
    "many dimensions": {"a": {**ONE, "shape": [1] * 1000 + [4]}},
    "unknown": {"a": {**ONE, "dtype": "Q"}},
    "type of type": {"a": {**ONE, "dtype": ["U8"]}},
    "more": {"a": {**ONE, "x": 1}},
    "less": {"a": {"dtype": "U8", "shape": [4]}},
    "a list": {"a": [1]},
    "null": {"a": None},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors(tmp_path, name):
    path = str(tmp_path / "m.safetensors")
    header = HOSTILE[name]
    if name in ("too long", "longer than the file", "short", "empty"):
        with open(path, "wb") as file:
            file.write(header)
    else:
        raw_safetensors(path, header, b"\0" * 8)
    with pytest.raises(ValueError):
        cowshed.open(path)


NPY_HEADERS = [
    "{}", "", "(", "[1]", "{'descr': 'f4'}",
    "{'descr': 'f4', 'fortran_order': 1, 'shape': (1,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': [1]}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (True,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (1.5,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (100,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (4611686018427387905,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (0, 4611686018427387905)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (%s)}" % ("1," * 99),
    "{'descr': 'V0', 'fortran_order': False, 'shape': (4611686018427387905, 8)}",
    "{'descr': 'O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [('a', 'O')], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': 'x9', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': None, 'fortran_order': False, 'shape': (1,)}",
    "{'descr': 5, 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [], 'fortran_order': False, 'shape': (1 << 3,)}",
    "{'descr': {'names': ['a'], 'formats': ['f4'], 'offsets': [99999]},"
    " 'fortran_order': False, 'shape': (1,)}",
    "{'descr': ('f4', (1 << 40,)), 'fortran_order': False, 'shape': (1,)}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}\x1f\n",
    "{'descr': '3f4', 'fortran_order': False, 'shape': (1,)}",
    "__import__('os').abort()",
    "{'a':" * 5000,
]


@pytest.mark.parametrize("number", range(len(NPY_HEADERS)))
def test_hostile_npy(path, number):
    text = NPY_HEADERS[number].encode()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + b"\0" * 64)
    with pytest.raises(ValueError):
        cowshed.open(path)


# ---- Saving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARRAYS)
def test_saved_npy_is_what_numpy_loads(path, name):
    cowshed.save(path, ARRAYS[name])
    there = np.load(path)
    assert there.dtype == ARRAYS[name].dtype and there.tobytes() == ARRAYS[name].tobytes()
    assert there.flags.f_contiguous == ARRAYS[name].flags.f_contiguous


@pytest.mark.parametrize("names", [["file"], ["allow_pickle", "self"], ["a/b", "x.npy", "ä"]])
def test_names_in_npz(tmp_path, names):
    path = str(tmp_path / "a.npz")
    cowshed.save(path, {name: np.full(3, i) for i, name in enumerate(names)})
    with np.load(path) as found:
        assert sorted(found) == sorted(names)
        for i, name in enumerate(names):
            assert found[name].tolist() == [i] * 3


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_npz_can_not_have(tmp_path, name):
    with pytest.raises(ValueError):
        cowshed.save(str(tmp_path / "a.npz"), {name: np.ones(3)})
    assert not os.listdir(tmp_path)


def test_no_mask_is_lost(tmp_path):
    x = np.ma.array([1, 2], mask=[0, 1])
    for name, state in ("a.npy", x), ("a.npz", {"x": x}), ("a.safetensors", {"x": x}):
        with pytest.raises(ValueError, match="masked"):
            cowshed.save(str(tmp_path / name), state)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_state_that_contains_itself(tmp_path, suffix):
    twice, deep = {"y": np.ones(3)}, np.ones(3)
    cowshed.save(str(tmp_path / f"a.{suffix}"), {"x": {"a": twice, "b": [twice, twice]}})
    inside = {"x": []}
    inside["x"].append({"y": inside["x"]})
    for _ in range(500):
        deep = [deep]
    for state in inside, {"x": deep}:
        with pytest.raises(ValueError, match="contains itself"):
            cowshed.save(str(tmp_path / f"b.{suffix}"), state)
    assert os.listdir(tmp_path) == [f"a.{suffix}"]


@pytest.mark.parametrize("offset", [1.5, "1", None])
def test_offsets_are_integers(path, offset):
    np.save(path, np.ones(3))
    with pytest.raises(TypeError, match="integer"):
        cowshed.open(path, dtype="u1", offset=offset)
    assert len(cowshed.open(path, dtype="u1", offset=np.int64(128))) == 24


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link, dangling = tmp_path / "folder" / "x.npy", tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(real, np.zeros(3))
    link.symlink_to("folder/x.npy")
    dangling.symlink_to("folder/y.npy")
    cowshed.save(link, np.ones(3))
    assert cowshed.checkpoint(np.ones(4), dangling).wait() == str(dangling)
    assert link.is_symlink() and dangling.is_symlink() and np.load(real).tolist() == [1] * 3
    assert np.load(tmp_path / "folder" / "y.npy").tolist() == [1] * 4
    assert sorted(os.listdir(tmp_path / "folder")) == ["x.npy", "y.npy"]
    with pytest.raises(OSError):
        (tmp_path / "loop.npy").symlink_to("loop.npy")
        cowshed.save(tmp_path / "loop.npy", np.ones(3))


def test_saved_npz(tmp_path):
    path = str(tmp_path / "a.npz")
    cowshed.save(path, {"a": np.arange(3), "b": {"c": 4}})
    with np.load(path) as there:
        assert there["a"].tolist() == [0, 1, 2] and there["b.c"] == 4


def test_what_numpy_has_not_is_said(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.bfloat16)
    for name, state in ("a.npy", x), ("a.npz", {"x": x}), ("b.npz", {"x": {}}):
        with pytest.raises(ValueError, match="\\.pt"):
            cowshed.save(str(tmp_path / name), state)
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = str(tmp_path / "a.safetensors")
    cowshed.save(path, {"a": np.arange(3)})
    os.chmod(path, 0o640)
    before = open(path, "rb").read()
    for wrong in ({"a": np.array([None])}, {"a": {1: 2, "1": 3}}, {"a": object()}, np.ones(2),
                  {"__metadata__": np.ones(2)}, {"a": np.array(["text"])}):
        with pytest.raises(ValueError):
            cowshed.save(path, wrong)
    limit = __import__("resource")
    old = limit.getrlimit(limit.RLIMIT_FSIZE)
    limit.setrlimit(limit.RLIMIT_FSIZE, (1 << 16, old[1]))
    try:
        with pytest.raises(OSError):
            cowshed.save(path, {"a": np.zeros(1 << 20)})
    finally:
        limit.setrlimit(limit.RLIMIT_FSIZE, old)
    assert open(path, "rb").read() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]
    cowshed.save(path, {"a": np.arange(4)}, sync=True)
    assert os.stat(path).st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match="format"):
        cowshed.save(str(tmp_path / "a.xyz"), np.ones(2))
