# SPDX-License-Identifier: MIT
"""Packed.save() and Packed.open(), with files that are cut off and changed."""

import contextlib
import os
import pickle
import struct
import zlib

import pytest
from test_pack import ROWS, SEQUENCES

import cowshed


@pytest.fixture(params=SEQUENCES)
def values(request):
    return SEQUENCES[request.param]


def test_save_and_open(values, tmp_path):
    packed, path = cowshed.pack(values), tmp_path / "x.pack"
    packed.save(path, sync=True)
    back = cowshed.Packed.open(path)
    assert back == packed and list(back) == values and list(back[::2]) == values[::2]
    back[1:].save(path)  # the old file stays mapped
    part = cowshed.Packed.open(os.fsencode(path))
    assert list(part) == values[1:] and list(back) == values
    assert pickle.loads(pickle.dumps(back)) == packed == pickle.loads(pickle.dumps(back[:]))


def test_arrays_of_a_file(tmp_path):
    np = pytest.importorskip("numpy")
    path = tmp_path / "x"
    cowshed.pack([{"a": np.arange(i, i + 2000.0)} for i in range(5)]).save(path)
    back = cowshed.Packed.open(path)
    x = back[3]["a"]
    assert x[0] == 3 and not x.flags.writeable and cowshed.storage_of(x) is back._storage


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    cowshed.pack(ROWS).save(path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "no")))
    with pytest.raises(OSError, match="no"):
        cowshed.pack([1]).save(path)
    assert list(cowshed.Packed.open(path)) == ROWS and os.listdir(tmp_path) == ["x"]


def test_files_that_are_none(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        cowshed.Packed.open(path)
    with pytest.raises(OSError):
        cowshed.Packed.open(tmp_path)
    for data in b"", b"cowpac", b"something else, which is longer than a header has to be" * 9:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"no file of Packed\.save\(\)"):
            cowshed.Packed.open(path)
    path.write_bytes(b"cowpack\2" + bytes(99))
    with pytest.raises(ValueError, match="version 2 of the format"):
        cowshed.Packed.open(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        cowshed.Packed.open(tmp_path / "pipe")


def test_truncated_files(values, tmp_path):
    packed, path = cowshed.pack(values), tmp_path / "x"
    packed.save(path)
    data = path.read_bytes()
    for n in {8, 40, 63, 64, len(data) - 1, len(data) // 2 + 4} - {len(data)}:
        path.write_bytes(data[:n])
        with pytest.raises(ValueError, match="Pack the objects again"):
            cowshed.Packed.open(path)
    path.write_bytes(data + b"x")
    with pytest.raises(ValueError, match="cut off, or written to"):
        cowshed.Packed.open(path)


def seen(x):
    return x if type(x) is str else {name: bytes(y) if isinstance(y, memoryview) else y
                                     for name, y in x.items()}


def test_mutated_files(tmp_path):
    """Each byte that is read is checked, but for numbers and the buffers of arrays."""
    rows = [{"id": i, "data": pickle.PickleBuffer(b"\0" * 600)} if i == 2 else ROWS[i]
            for i in range(5)]
    for made in rows, ["text", "", "more"]:
        packed, path = cowshed.pack(made), tmp_path / "x"
        packed.save(path)
        data = path.read_bytes()
        expected = list(map(seen, packed))
        found = 0
        for at in {*range(64), *range(64, len(data), 5)}:
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
            try:
                back = cowshed.Packed.open(path)
            except ValueError as error:
                assert "Pack the objects again" in str(error)
                found += 1
                continue
            for i in range(len(made)):
                try:
                    assert seen(back[i]) == expected[i] or data[at] == 0
                except ValueError as error:
                    assert f"element {i} is damaged" in str(error)
                    found += 1
            with contextlib.suppress(ValueError):  # and no other error
                assert (back == packed) in (True, False)
        assert found > len(data) / 15


def test_elements_that_are_not_there(tmp_path):
    cowshed.pack(ROWS).save(tmp_path / "x")
    back = cowshed.Packed.open(tmp_path / "x")
    peek = cowshed._cowshed.peek_element
    assert pickle.loads(peek(back._index, len(ROWS) - 1)) == ROWS[-1]
    for at in -1, len(ROWS), 1 << 60:
        with pytest.raises(ValueError, match="the index does not have this element"):
            peek(back._index, at)
    with pytest.raises(ValueError):
        peek(back, 0)  # no index of a pack
    for wrong in (b"", b"", b"", True), (bytes(64), bytes(16), bytes(3), True):
        with pytest.raises(ValueError, match="the index does not have this element"):
            peek(cowshed._cowshed.pack_index(*wrong), 0)
    with pytest.raises(TypeError):
        cowshed._cowshed.pack_index(b"", None, b"", True)


def test_places_that_no_element_has():
    data = bytes(range(64)) + b"element of a pack"

    def get(low, high, has_tables):
        ends, crc = struct.pack("<2Q", low, high), struct.pack("<I", zlib.crc32(data[low:high]))
        index = cowshed._cowshed.pack_index(data, ends, crc, has_tables)
        return cowshed._cowshed.peek_element(index, 0)

    assert get(64, 71, False) == b"element" and get(64, 64, False) == b""
    assert get(8, 71, False) is None  # the header
    assert get(64, len(data) + 1, False) is None and get(70, 69, False) is None
    assert get(64, 64, True) is None  # a record has a pickle
