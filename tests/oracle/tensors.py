# SPDX-License-Identifier: MIT
"""What copies.py compares with: the library's tensors by ctypes, and random arrays for both sides.

Takes the command line of copies.py: the library, how many cases, the seed of all that is random.
"""
import ctypes
import random
import sys

import numpy as np

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
         "uint64", "float16", "bfloat16", "float32", "float64", "complex32",
         "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "quint8",
         "qint8", "qint32"]
NUMBER = {name: i for i, name in enumerate(NAMES)}
NUMPY = [n for n in NAMES if hasattr(np, n + "_" if n == "bool" else n)]

library = ctypes.CDLL(sys.argv[1])
cases = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
seed = int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else random.randrange(1 << 30)
print(f"# seed {seed}", file=sys.stderr, flush=True)
rng = random.Random(seed)
nrng = np.random.default_rng(seed)
library.cow_last_error.restype = ctypes.c_char_p
library.cow_tensor_on.argtypes = [
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
library.cow_storage_new.argtypes = [ctypes.c_size_t, ctypes.c_void_p,
                                    ctypes.c_void_p]
library.cow_storage_data.restype = ctypes.c_void_p
library.cow_tensor_data.restype = ctypes.c_void_p
library.cow_tensor_strides.restype = ctypes.POINTER(ctypes.c_int64)
library.cow_tensor_is_dense.restype = ctypes.c_bool
for name in ("cow_tensor_data", "cow_storage_data", "cow_storage_unref",
             "cow_tensor_unref", "cow_tensor_strides", "cow_tensor_dims", "cow_tensor_is_dense"):
    getattr(library, name).argtypes = [ctypes.c_void_p]


def must(result):
    if result != 0:
        raise RuntimeError(f"{result}: {library.cow_last_error().decode()}")


class Storage:
    """A storage with an array's bytes."""

    def __init__(self, array):
        self.handle, self.bytes = ctypes.c_void_p(), array.nbytes
        must(library.cow_storage_new(max(self.bytes, 1), None,
                                     ctypes.byref(self.handle)))
        data = ctypes.c_void_p()
        must(library.cow_storage_data_mut(self.handle, ctypes.byref(data)))
        ctypes.memmove(data, array.ctypes.data, self.bytes)

    def read(self):
        return ctypes.string_at(library.cow_storage_data(self.handle), self.bytes)

    def tensor(self, dtype, view, base, conj=False, neg=False):
        item = view.itemsize
        n = view.ndim
        sizes = (ctypes.c_int64 * max(n, 1))(*view.shape)
        strides = (ctypes.c_int64 * max(n, 1))(*[s // item for s in view.strides])
        offset = (view.__array_interface__["data"][0]
                  - base.__array_interface__["data"][0]) // item
        t = ctypes.c_void_p()
        must(library.cow_tensor_on(self.handle, NUMBER[dtype], n, sizes, strides,
                                   offset if view.size else 0, ctypes.byref(t)))
        for flag, function in ((conj, library.cow_tensor_conj),
                               (neg, library.cow_tensor_neg)):
            if flag:
                other = ctypes.c_void_p()
                must(function(t, ctypes.byref(other)))
                library.cow_tensor_unref(t)
                t = other
        return t

    def __del__(self):
        library.cow_storage_unref(self.handle)


def values(dtype, n, to):
    """n numbers, many of them special, that `to` can represent or round to."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return nrng.integers(0, 2, n).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        edges = [info.min, info.max, 0, 1, info.max // 2]
        v = nrng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
        return np.where(nrng.random(n) < 0.2, nrng.choice(np.array(edges, dtype), n), v)
    part = np.float64 if dtype == np.complex128 else \
        np.float32 if dtype == np.complex64 else dtype

    def one():
        if np.dtype(to).kind in "iu":
            info = np.iinfo(to)
            low, high = max(info.min, -2 ** 15), min(info.max, 2 ** 15)
            v = nrng.uniform(low, high, n)
            return np.clip(v, low, high - 1).astype(part)
        v = (nrng.standard_normal(n) * 10.0 ** nrng.integers(-9, 9, n))
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 65504, 65520,
                          5.9e-8, 2.9e-8, 3.0e-8, 1e-45, 3.4e38])
        v = np.where(nrng.random(n) < 0.2, nrng.choice(edges, n), v)
        with np.errstate(all="ignore"):
            return v.astype(part)
    if kind != "c":
        return one()
    v = np.empty(n, dtype)
    v.real, v.imag = one(), one()
    return v


def layout(shape, dtype, fill, broadcast):
    """A base array and a strided view of it with this shape."""
    order = list(range(len(shape)))
    rng.shuffle(order)
    steps = [rng.choice((1, 1, 1, 2, 3)) for _ in shape]
    pads = [rng.choice((0, 0, 1, 2)) for _ in shape]
    once = [broadcast and rng.random() < 0.15 for _ in shape]
    full = [(1 if o else n * s) + p
            for n, s, p, o in zip(shape, steps, pads, once)]
    base = fill(int(np.prod([full[d] for d in order], initial=1)) + 3)
    array = base[3:].reshape([full[d] for d in order])
    array = array.transpose(np.argsort(order)) if order else array
    where = []
    for d, n in enumerate(shape):
        first = rng.randrange(pads[d] + 1)
        if once[d]:
            where.append(slice(first, first + 1))
        else:
            where.append(slice(first, first + n * steps[d], steps[d]))
    view = array[tuple(where) + (...,)]
    for d, n in enumerate(shape):
        if not once[d]:
            view = view[(slice(None),) * d + (slice(0, n),)]
    return base, np.broadcast_to(view, shape) if broadcast else view
