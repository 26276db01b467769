# SPDX-License-Identifier: MIT
"""The safetensors format: a length, a JSON header, and the bytes of all tensors.

    8 bytes  length of the header, little-endian
    header   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    bytes    of all tensors, without gaps

No program is in it, so a file from anywhere may be opened; but anything can be written in the
header. Here all of it is checked before anything is believed: sizes that don't multiply
to the bytes, ranges outside of the file or on top of each other, gaps, names twice.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ._arrays import _make, _numpy, array_on
from ._files import size_of

HEADER_MOST = 100 << 20
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
          "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4,
          "U64": 8, "I64": 8, "F64": 8, "C64": 8}
_NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2",
          "U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
          "C64": "<c8"}
_TORCH = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16",
          "F16": "float16", "BF16": "bfloat16", "U32": "uint32", "I32": "int32",
          "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
          "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "F8_E8M0": "float8_e8m0fnu"}
_ML_DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
              "F8_E8M0": "float8_e8m0fnu"}


class Tensors(Mapping[str, Any]):
    """The tensors of a .safetensors file by their names; made when they are asked for.

    All are views of one storage, which lives as long as this or any of them does. Tensors of
    PyTorch have a PyTorch storage each: what is shared or sent of one does not cost the file.
    """

    def __init__(self, source, framework, entries, metadata, start):
        self._entries, self._start = entries, start
        self._path, self._framework = source.path, framework
        self._readonly = source.mode == "r"
        self._storage = source.storage() if source.file_bytes > start else None
        self._warned = False
        #: What else the header says: a dict of strings.
        self.metadata: dict[str, str] = metadata

    def __getitem__(self, name: str) -> Any:
        kind, shape, begin, end = self._entries[name]
        if self._framework == "torch":
            return self._tensor(kind, shape, begin, end)
        dtype = self._dtype(kind)
        if begin == end:
            result = _make(shape, dtype, "C", False, False)
            result.flags.writeable = not self._readonly
            return result
        return array_on(self._storage, dtype, shape, self._start + begin)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self):
        nbytes = sum(end - begin for _, _, begin, end in self._entries.values())
        return f"<cowshed.Tensors {self._path!r}: {len(self)} tensors of {nbytes} bytes>"

    def dtype_of(self, name: str) -> str:
        """What the file calls its type: "F32", "BF16" and so on."""
        return self._entries[name][0]

    def _dtype(self, kind):
        if kind in _NUMPY:
            return _numpy().dtype(_NUMPY[kind])
        try:
            import ml_dtypes
        except ImportError:
            ml_dtypes = None
        if hasattr(ml_dtypes, _ML_DTYPES[kind]):
            return _numpy().dtype(getattr(ml_dtypes, _ML_DTYPES[kind]))
        if not self._warned:
            self._warned = True
            warnings.warn(f"NumPy has no {kind}: {self._path} gives its bits as unsigned "
                          "integers. For numbers: framework='torch', or install ml_dtypes",
                          stacklevel=3)
        return _numpy().dtype(f"<u{_SIZES[kind]}")

    def _tensor(self, kind, shape, begin, end):
        import torch

        dtype = getattr(torch, _TORCH[kind], None)
        if dtype is None:
            raise TypeError(f"this PyTorch has no {_TORCH[kind]}")
        if begin == end:
            return torch.empty(shape, dtype=dtype, device="cpu")
        from .torch import _storages

        with warnings.catch_warnings():
            # PyTorch has no read-only tensors, and says so. Nor do its writes go unnoticed:
            # a private mapping's stay here.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            whole = _storages.untyped(self._storage, self._start + begin, end - begin)
        flat = _storages.as_bytes(whole)
        if (self._start + begin) % dtype.itemsize:
            flat = flat.clone()  # PyTorch knows no elements at such addresses
        return flat.view(dtype).view(shape)


def read(source, framework):
    """The Tensors of an open file (_files._Source)."""
    length = int.from_bytes(source.read(0, 8), "little")
    if length > min(HEADER_MOST, source.file_bytes - 8):
        raise source.wrong(f"a header of {length} bytes in a file of {source.file_bytes}")
    header = _parse(source, source.read(8, length))
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or any(type(v) is not str for v in metadata.values()):
        raise source.wrong("__metadata__ is no dict of strings")
    entries = {name: _entry(source, name, said) for name, said in header.items()}
    _check_ranges(source, entries, source.file_bytes - 8 - length)
    return Tensors(source, framework, entries, metadata, 8 + length)


def _parse(source, text):
    def once(pairs):
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a name twice")
        return result

    def never(what):
        raise ValueError(f"{what} is no number")

    if text[:1] != b"{":
        raise source.wrong("its header does not begin with '{'")
    try:
        header = json.loads(text.decode(), object_pairs_hook=once, parse_constant=never)
        # A half of a character would be an error later, wherever the name is printed.
        for name in header:
            name.encode()
    except (ValueError, RecursionError) as error:
        raise source.wrong(f"its header is no JSON ({error})") from error
    return header


def _is_size(x):
    return type(x) is int and 0 <= x < 1 << 62


def _entry(source, name, said):
    short = repr(name[:80])
    if type(said) is not dict or said.keys() != {"dtype", "shape", "data_offsets"}:
        raise source.wrong(f"{short} must have dtype, shape and data_offsets")
    kind, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if type(kind) is not str or kind not in _SIZES:
        raise source.wrong(f"{short}: dtype {str(kind)[:20]!r} is not known")
    if type(shape) is not list or len(shape) > 64 or not all(map(_is_size, shape)):
        raise source.wrong(f"{short}: its shape is no list of sizes")
    if type(offsets) is not list or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise source.wrong(f"{short}: data_offsets must be two positions")
    dtype = _numpy().dtype(f"V{_SIZES[kind]}")
    if size_of(dtype, shape) != offsets[1] - offsets[0]:
        raise source.wrong(f"{short}: shape {shape[:8]} of {kind} is not the "
                           f"{offsets[1] - offsets[0]} bytes at {offsets[0]}")
    return kind, tuple(shape), offsets[0], offsets[1]


def _check_ranges(source, entries, nbytes):
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry[2] != end:
            raise source.wrong(f"{name[:80]!r} begins at {entry[2]}, the one before it ends "
                               f"at {end}")
        end = entry[3]
    if end != nbytes:
        raise source.wrong(f"its tensors are {end} bytes, its data {nbytes}")


def kind_of(dtype):
    """What the format calls a dtype of NumPy or PyTorch, or None."""
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    for kind, known in _TORCH.items():
        if name == known:
            return kind
    return None


def header(entries, metadata=None):
    """The beginning of a file: of [(name, kind, shape, nbytes)], in the order of their bytes."""
    said, at = {}, 0
    if metadata:
        said["__metadata__"] = metadata
    for name, kind, shape, nbytes in entries:
        said[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)  # the first tensor is aligned
    return len(text).to_bytes(8, "little") + text
