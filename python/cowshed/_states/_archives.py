# SPDX-License-Identifier: MIT
"""Reading the archives that save() writes: .npz, and .pt of PyTorch.

A .npz file is a zip archive of .npy files. Those that are stored as they are, which is what save()
and numpy.savez() do, are views of one mapping of the whole archive. Those that are compressed are
read. The archive's checksums are compared for what is read alone.

A .pt file is opened by torch.load(mmap=True). Its pickle is read by PyTorch's unpickler that makes
tensors and plain values only (weights_only=True), so it runs no code of the file.
"""

from __future__ import annotations

import io
import struct
import zipfile

from .._memory._ndarrays import _numpy, array

_LOCAL = struct.Struct("<4s22xHH")  # of a member's local header: signature, two lengths


def npz(source, framework, npy):
    """A dict of the arrays of a .npz file. npy(source, start, end): reads one that is mapped."""
    try:
        with open(source.fd, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            found = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise source.wrong(f"two of its arrays have the name {name[:80]!r}")
                if not member.filename.endswith(".npy"):
                    raise source.wrong(f"its member {name[:80]!r} is no array")
                if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
                    start = _start(source, member)
                    found[name] = npy(source, start, start + member.file_size)
                else:
                    found[name] = _read(source, archive, member)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise source.wrong(f"it is no .npz archive that can be read ({error})") from error
    if framework == "torch":
        return {name: _tensor(source, x) for name, x in found.items()}
    return found


def _start(source, member):
    """Where the bytes of a member begin: after its local header, which has lengths of its own."""
    signature, name, extra = _LOCAL.unpack(source.read(member.header_offset, _LOCAL.size))
    if signature != b"PK\3\4":
        raise source.wrong(f"its member {member.filename[:80]!r} is not where its index says")
    return member.header_offset + _LOCAL.size + name + extra


def _read(source, archive, member):
    import zlib

    try:
        data = archive.read(member)
        x = _numpy().lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, zlib.error) as error:
        what = f"its member {member.filename[:80]!r} can't be read ({error})"
        raise source.wrong(what) from error
    x = array(x, shared=False)
    x.flags.writeable = source.mode != "r"
    return x


def _tensor(source, x):
    import torch

    if not x.flags.writeable or not x.flags.aligned or any(step < 0 for step in x.strides):
        x = array(x, shared=False)  # PyTorch has no read-only and no unaligned elements
    try:
        return torch.from_numpy(x)
    except TypeError as error:
        raise source.wrong(f"PyTorch has no {x.dtype}",
                           "Leave out framework='torch'") from error


def pt(source):
    """What a .pt file has, its tensors on a private mapping of the file."""
    import pickle

    import torch

    if source.mode != "c":
        raise ValueError(f"mode is {source.mode!r}, but PyTorch maps a .pt file privately, and its "
                         "tensors can be written: pass mode='c'")
    mapped = not source.load
    if mapped and not zipfile.is_zipfile(source.path):
        raise source.wrong("it is of PyTorch's old format, which can't be mapped",
                           "Pass load=True")
    try:
        return torch.load(source.path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise source.wrong("it has other objects than tensors and plain values, and reading them "
                           "can run code", "If you trust the file, use torch.load(path, "
                           "weights_only=False)") from error
    except RuntimeError as error:
        raise source.wrong(f"PyTorch can't read it ({error})") from error
