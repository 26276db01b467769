# SPDX-License-Identifier: MIT
"""Files with a few bytes changed: what is opened is what others read there, or a ValueError.

Two kinds of changes. Of bytes, anywhere: most of them make a file that is none. And of the words
of a header, whose length is put right afterwards: those come through to what is checked last.
Always the same ones; SEEDS=1000 in the environment makes more.
"""

import io
import json
import os
import random
import re

import pytest

np = pytest.importorskip("numpy")
from numpy.lib.recfunctions import repack_fields  # noqa: E402

import cowshed  # noqa: E402

try:
    # Not safetensors.numpy, which has no type for all that the format has.
    from safetensors import deserialize
except ImportError:
    deserialize = None

SEEDS = int(os.environ.get("SEEDS", 3))
ROUNDS = 400
pytestmark = pytest.mark.limit(60 + 5 * SEEDS)

NPY = {
    "records": np.zeros((3, 4), [("a", "<f4"), ("b", "u1", (2,))]),
    "fortran": np.asfortranarray(np.arange(60, dtype=">i8").reshape(3, 4, 5)),
    "nothing": np.zeros((0, 7), "u2"),
    "scalar": np.array(3 + 4j),
    "dates": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "text": np.array(["a", "bcd", ""]),
}
SAFETENSORS = {
    "some": {"one": np.ones((2, 3), "f4"), "two": np.arange(5, dtype="u1"), "x": "y"},
    "none": {"e": np.zeros((0, 3), "i8"), "s": np.array(5, "u2")},
    "text": {"a name \u00e9 \" \\": np.arange(8, dtype="f2"), "b": np.array([True, False])},
}
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 24, 29, 255, 1 << 31, 1 << 32, (1 << 61) + 1, (1 << 62) + 1,
           (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -1, -4, "1.0", "1e1", "true", "True"]
WORDS = ["U8", "F32", "F64", "BOOL", "BF16", "C64", "Q", "dtype", "shape", "data_offsets", "descr",
         "fortran_order", "<f4", ">i8", "|u1", "|O", "|V0", "|S0", "<U0", "|V5", "<M8[D]", "one",
         "__metadata__", "null", "None", "(", ")", "[", "]", ",", "{}", "()", "[]"]


def change_bytes(chance, data):
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        what, at = chance.randrange(5), chance.randrange(len(data))
        if what == 0:
            data[at] = chance.randrange(256)
        elif what == 1:
            del data[at : at + chance.randint(1, 20)]
        elif what == 2:
            more = b'0123456789{}[]():,"\'\\-.eE \xff'
            data[at:at] = bytes(chance.choices(more, k=chance.randint(1, 9)))
        elif what == 3:
            other = chance.randrange(len(data))
            data[at:at] = data[other : other + chance.randint(1, 40)]
        else:
            data[at : at + 8] = chance.getrandbits(64).to_bytes(8, "little")
        if not data:
            break
    return bytes(data)


def change_words(chance, data):
    width, at = (2, 8) if data[:1] == b"\x93" else (8, 0)
    end = at + width + int.from_bytes(data[at : at + width], "little")
    words = re.findall(r"\w+|\W", data[at + width : end].decode("latin-1"))
    for _ in range(chance.randint(1, 3)):
        numbers = [i for i, word in enumerate(words) if word.isdigit()]
        i = chance.choice(numbers) if numbers and chance.random() < 0.6 else \
            chance.randrange(len(words))
        what = chance.randrange(6)
        if what < 3:
            words[i] = str(chance.choice(NUMBERS))
        elif what == 3:
            words[i] = chance.choice(WORDS)
        elif what == 4:
            words.insert(i, chance.choice(words))
        else:
            words[i] = ""
    header = "".join(words).encode("latin-1")
    rest = data[end:] + bytes(chance.choice([0, 0, 1, 8, 100]))
    return data[:at] + len(header).to_bytes(width, "little") + header + rest


def mutants(kind, data):
    for seed in range(SEEDS):
        chance = random.Random(f"{kind} {seed}")
        for _ in range(ROUNDS):
            yield change_bytes(chance, data)
            yield change_words(chance, data)


def opened(path, kind, data):
    with open(path, "wb") as file:
        file.write(data)
    try:
        return cowshed.open(path, "r", format=kind)
    except ValueError:
        return None


@pytest.mark.filterwarnings("ignore:.*invalid escape")
@pytest.mark.parametrize("name", NPY)
def test_npy_is_what_numpy_makes_of_it(tmp_path, name):
    np.save(tmp_path / "good.npy", NPY[name])
    good, count = (tmp_path / "good.npy").read_bytes(), 0
    for data in mutants("npy" + name, good):
        x = opened(str(tmp_path / "x.npy"), "npy", data)
        if x is None:
            continue
        count += 1
        if x.dtype.itemsize == 0:
            continue  # of which NumPy writes as many as you like, and reads none
        there = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        assert (x.dtype, x.shape) == (there.dtype, there.shape), data
        # NumPy reads fields; what is between them is anything.
        assert repack_fields(x, recurse=True).tobytes() == \
            repack_fields(there, recurse=True).tobytes(), data
    assert count > 10


@pytest.mark.filterwarnings("ignore:NumPy has no")
@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_are_what_the_format_says(tmp_path, name):
    cowshed.save(str(tmp_path / "good.safetensors"), SAFETENSORS[name])
    good, count = (tmp_path / "good.safetensors").read_bytes(), 0
    for data in mutants("safetensors" + name, good):
        x = opened(str(tmp_path / "x.safetensors"), "safetensors", data)
        if x is None:
            continue
        count += 1
        start = 8 + int.from_bytes(data[:8], "little")
        said = json.loads(data[8:start])
        said.pop("__metadata__", None)
        assert set(x) == set(said), data
        for each, array in x.items():
            begin, end = said[each]["data_offsets"]
            assert array.shape == tuple(said[each]["shape"]), data
            assert array.tobytes() == data[start:][begin:end], data
        if deserialize:
            deserialize(data)
    assert count > 10
