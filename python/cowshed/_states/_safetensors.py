# SPDX-License-Identifier: MIT
"""The safetensors format: a length, a JSON header, and the bytes of all tensors.

    8 bytes  length of the header, little-endian
    header   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    bytes    of all tensors, without gaps

The format has no programs in it, so files of unknown origin may be opened. Their headers can
have any content, and read() checks all of it before a tensor is made. It refuses sizes that do not
multiply to the bytes, ranges outside of the file, overlaps, gaps, and names that occur twice.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from .._memory import _ndarrays
from .._memory._names import keep
from .._memory._ndarrays import _make, _numpy, array_on, size_of

__name__ = keep(__name__)

_LARGE = 4 << 20

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
    """The tensors of a .safetensors file by their names. Each one is made when it is asked for.

    All are views of one storage, which lives as long as this mapping or one of its tensors. Each
    PyTorch tensor has a PyTorch storage of its own, so sharing or sending one moves its bytes only.
    Any thread may read it. KeyError: there is no tensor of that name.
    """

    def __init__(self, source, framework, entries, metadata, start):
        self._entries, self._start = entries, start
        self._path, self._framework = source.path, framework
        self._readonly = source.mode == "r"
        self._storage = source.storage() if source.file_bytes > start else None
        self._warned = False
        #: The other entries of the header: a dict of strings.
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
        """The format's name for the dtype of a tensor: "F32", "BF16" and so on."""
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
            warnings.warn(f"NumPy has no {kind}, so tensors of {self._path} are unsigned integers "
                          "with its bits. For numbers pass framework='torch', or install ml_dtypes",
                          stacklevel=3)
        return _numpy().dtype(f"<u{_SIZES[kind]}")

    def _tensor(self, kind, shape, begin, end):
        import torch

        dtype = getattr(torch, _TORCH[kind], None)
        if dtype is None:
            raise TypeError(f"PyTorch {torch.__version__} has no dtype {_TORCH[kind]}: install a "
                            "newer one, or pass framework='numpy'")
        if begin == end:
            return torch.empty(shape, dtype=dtype, device="cpu")
        storages = _ndarrays.of_torch()._storages
        with warnings.catch_warnings():
            # PyTorch has no read-only tensors, and warns. The warning is needless: the mapping
            # is private, so writes stay in this process.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            whole = storages.untyped(self._storage, self._start + begin, end - begin)
        flat = storages.as_bytes(whole)
        if (self._start + begin) % dtype.itemsize:
            flat = flat.clone()  # PyTorch has no unaligned elements
        return flat.view(dtype).view(shape)


def read(source, framework):
    """The Tensors of an open file (_files._Source). ValueError: its header is wrong."""
    length = int.from_bytes(source.read(0, 8), "little")
    if length > min(HEADER_MOST, source.file_bytes - 8):
        raise source.wrong(f"its header has {length} bytes by its length field, but the file has "
                           f"{source.file_bytes}, and the limit is {HEADER_MOST}")
    header = _parse(source, source.read(8, length))
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or any(type(v) is not str for v in metadata.values()):
        raise source.wrong("its __metadata__ is not a dict of strings")
    entries = {name: _entry(source, name, said) for name, said in header.items()}
    _check_ranges(source, entries, source.file_bytes - 8 - length)
    return Tensors(source, framework, entries, metadata, 8 + length)


def _parse(source, text):
    def once(pairs):
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a name occurs twice")
        return result

    def never(what):
        raise ValueError(f"{what} is not a number")

    if text[:1] != b"{":
        raise source.wrong(f"its header begins with {text[:1]!r}, not with '{{'")
    try:
        header = json.loads(text.decode(), object_pairs_hook=once, parse_constant=never)
        # An unpaired surrogate would raise later, when the name is printed.
        for name in header:
            name.encode()
    except (ValueError, RecursionError) as error:
        raise source.wrong(f"its header is not valid JSON ({error})") from error
    return header


def _is_size(x):
    return type(x) is int and 0 <= x < 1 << 62


def _entry(source, name, said):
    short = repr(name[:80])
    if type(said) is not dict or said.keys() != {"dtype", "shape", "data_offsets"}:
        raise source.wrong(f"its entry {short} does not have dtype, shape and data_offsets alone")
    kind, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if type(kind) is not str or kind not in _SIZES:
        raise source.wrong(f"{short} has the unknown dtype {str(kind)[:20]!r}")
    if type(shape) is not list or len(shape) > 64 or not all(map(_is_size, shape)):
        raise source.wrong(f"the shape of {short} is not a list of at most 64 sizes")
    if type(offsets) is not list or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise source.wrong(f"the data_offsets of {short} are not two positions")
    dtype = _numpy().dtype(f"V{_SIZES[kind]}")
    if size_of(dtype, shape) != offsets[1] - offsets[0]:
        raise source.wrong(f"{short} has shape {shape[:8]} of {kind}, which is not "
                           f"{offsets[1] - offsets[0]} bytes as its data_offsets say")
    return kind, tuple(shape), offsets[0], offsets[1]


def _check_ranges(source, entries, nbytes):
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry[2] != end:
            raise source.wrong(f"{name[:80]!r} begins at byte {entry[2]} of the data, but the "
                               f"tensor before it ends at {end}")
        end = entry[3]
    if end != nbytes:
        raise source.wrong(f"its tensors have {end} bytes, but its data has {nbytes}")


def kind_of(dtype):
    """The format's name for a dtype of NumPy or PyTorch; None: it has none."""
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    for kind, known in _TORCH.items():
        if name == known:
            return kind
    return None


def header(entries, metadata=None):
    """The first bytes of a file, up to the tensors' bytes.

    entries: [(name, kind, shape, nbytes)], in the order of their bytes.
    """
    said, at = {}, 0
    if metadata:
        said["__metadata__"] = metadata
    for name, kind, shape, nbytes in entries:
        said[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
    # The first tensor is aligned, in a large file to a page (_direct.py).
    text += b" " * (-(8 + len(text)) % (64 if at < _LARGE else 4096))
    return len(text).to_bytes(8, "little") + text
