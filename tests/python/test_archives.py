# SPDX-License-Identifier: MIT
"""open() reads the archives that save() writes: .npz and .pt."""

import os
import pickle
import re
import struct
import zipfile

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

STATE = {"a": np.arange(200_000.0), "b/c": np.ones((300, 20), "i2"), "none": np.zeros((0, 3)),
         "f": np.asfortranarray(np.arange(12.0).reshape(3, 4)), "number": np.float32(3),
         "big": np.arange(6, dtype=">i4")}


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "x.npz")
    cowshed.save(path, STATE)
    return path


def same(found, state=STATE):
    assert list(found) == list(state)
    for name, x in state.items():
        assert found[name].dtype == x.dtype and found[name].shape == x.shape
        assert found[name].tolist() == x.tolist()


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
@pytest.mark.parametrize("load", [False, True])
def test_npz_is_mapped(path, mode, load):
    if load and mode == "r+":
        with pytest.raises(ValueError):
            cowshed.open(path, mode, load=True)
        return
    x = cowshed.open(path, mode, load=load)
    same(x)
    assert cowshed.storage_of(x["a"]) is cowshed.storage_of(x["b/c"])
    assert cowshed.storage_of(x["a"]).kind == ("own" if load else "file")
    assert x["a"].flags.writeable == (mode != "r")
    if mode != "r":
        x["a"][5] = -1
    assert np.load(path)["a"][5] == 5 if mode != "r+" else cowshed.open(path)["a"][5] == -1


def test_npz_of_numpy(tmp_path):
    for save, kind in (np.savez, "file"), (np.savez_compressed, "own"):
        save(tmp_path / "y.npz", **STATE)
        x = cowshed.open(tmp_path / "y.npz", "r")
        same(x)
        assert cowshed.storage_of(x["a"]).kind == kind and not x["a"].flags.writeable


def test_npz_as_tensors(path):
    torch = pytest.importorskip("torch")
    cowshed.save(path, {"a": STATE["a"], "i": np.arange(5)})
    x = cowshed.open(path, framework="torch")
    assert torch.equal(x["a"], torch.arange(200_000, dtype=torch.float64))
    x["a"][0] = 5
    assert cowshed.open(path)["a"][0] == 0


def damaged(path, how):
    data = bytearray(open(path, "rb").read())
    index = data.rindex(b"PK\1\2")
    if how == "short":
        del data[len(data) // 2:]
    elif how == "offset":
        data[index + 42 : index + 46] = struct.pack("<I", 7)
    elif how == "size":
        at = data.index(b"'shape': (200000,)")
        data[at : at + 18] = b"'shape': (900000,)"
    elif how == "text":
        data[:] = b"hello"
    with open(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("how", ["short", "offset", "size", "text"])
def test_a_damaged_archive_is_a_value_error(path, how):
    damaged(path, how)
    with pytest.raises(ValueError, match="x.npz"):
        cowshed.open(path)


def test_objects_are_refused(tmp_path):
    np.savez(tmp_path / "o.npz", x=np.array([None, 1]))
    with pytest.raises(ValueError, match="Python objects"):
        cowshed.open(tmp_path / "o.npz")
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("x.txt", "hello")
    with pytest.raises(ValueError, match="no array"):
        cowshed.open(tmp_path / "z.npz")


class Evil:
    def __reduce__(self):
        return os.system, ("echo it ran code",)


@pytest.mark.limit(200)
def test_pt_is_mapped(tmp_path):
    torch = pytest.importorskip("torch")
    path = str(tmp_path / "x.pt")
    w = torch.arange(200_000.0)
    state = {"w": w, "view": w[5:], "deep": [{"step": 7}], "b": torch.ones(3, dtype=torch.bfloat16)}
    cowshed.save(path, state)
    for load in False, True:
        x = cowshed.open(path, load=load)
        assert torch.equal(x["w"], w) and x["deep"] == [{"step": 7}] and x["b"].sum() == 3
        assert x["view"].untyped_storage().data_ptr() == x["w"].untyped_storage().data_ptr()
        x["w"][0] = 9
        assert torch.load(path)["w"][0] == 0
    for mode in "r", "r+":
        with pytest.raises(ValueError, match="mode='c'"):
            cowshed.open(path, mode)
    torch.save(w, path, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="load=True"):
        cowshed.open(path)
    assert torch.equal(cowshed.open(path, load=True), w)
    torch.save({"x": Evil()}, path)
    with pytest.raises(ValueError, match="run code"):
        cowshed.open(path)
    with open(path, "wb") as file:
        file.write(b"PK\3\4nothing")
    with pytest.raises(ValueError):
        cowshed.open(path)


def test_a_frame_is_not_packed_by_its_names():
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(TypeError, match="gives its columns, or their names.*itertuples"):
        cowshed.pack(x)
    rows = cowshed.pack(list(x.itertuples(index=False, name=None)))
    assert list(rows) == [(1, "x"), (2, "y")]
    assert list(cowshed.pack(x["a"])) == [1, 2]
    assert pickle.loads(pickle.dumps(rows)) == rows


@pytest.mark.parametrize("module, name, rows", [
    ("polars", "DataFrame", "x.rows()"), ("pyarrow", "table", "x.to_pylist()")])
def test_other_tables_are_not_packed(module, name, rows):
    x = getattr(pytest.importorskip(module), name)({"a": [1, 2]})
    with pytest.raises(TypeError, match=f"pass {re.escape(rows)} for its rows"):
        cowshed.pack(x)
    assert len(cowshed.pack(eval(rows))) == 2
