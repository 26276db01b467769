#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Copies between tensors against NumPy's, and PyTorch's where it is installed
#
#     copies.py LIBRARY [CASES] [SEED]     "ok NAME" or "not ok NAME", as check.sh
#
# Random shapes, types, strides, permutations, broadcasts and bits. Both sides do
# the same to the same bytes, and all of the destination's memory is compared, also
# what the copy should leave alone. NumPy's casts are the oracle; PyTorch's for types
# that NumPy lacks. Floats that don't fit into an integer are left out there, since every
# library has its own answer, and compared with ours, as cowshed-tensor.h gives it. Also:
# conj and neg in place; copies within one storage, which must be refused exactly where
# places are shared (or, where that is not easily seen, may be); strides of what is made,
# against PyTorch's.
import ctypes
import sys

import numpy as np

from tensors import NUMBER, NUMPY, Storage, cases, layout, library, must, nrng, rng, seed, values


def one_case():
    kind_from, kind_to = rng.choice(NUMPY), rng.choice(NUMPY)
    if rng.random() < 0.3:
        kind_to = kind_from
    np_from = np.dtype(kind_from if kind_from != "bool" else bool).type
    np_to = np.dtype(kind_to if kind_to != "bool" else bool).type
    dims = rng.randrange(6)
    most = rng.choice((3, 9, 40)) if dims < 4 else 5
    shape = tuple(rng.randrange(0 if rng.random() < 0.05 else 1, most + 1)
                  for _ in range(dims))
    src_base, src = layout(shape, np_from, lambda n: values(np_from, n, np_to), True)
    dst_base, dst = layout(shape, np_to, lambda n: values(np_to, n, np_to), False)
    conj = rng.random() < 0.3
    neg = rng.random() < 0.2 and kind_from != "bool" and \
        not (np.dtype(np_to).kind in "u")
    a, b = Storage(src_base), Storage(dst_base)
    s = a.tensor(kind_from, src, src_base, conj, neg)
    d = b.tensor(kind_to, dst, dst_base)
    must(library.cow_tensor_copy(d, s, 0))
    library.cow_tensor_unref(s)
    library.cow_tensor_unref(d)
    with np.errstate(all="ignore"):
        value = src.copy()
        if conj:
            value = np.conj(value)
        if neg:
            value = np.negative(value)
        if np.dtype(np_from).kind == "c" and np.dtype(np_to).kind not in "cb":
            value = value.real
        dst[...] = value.astype(np_to)
    got = np.frombuffer(b.read(), np_to)
    same = got.view(np.uint8).reshape(-1, got.itemsize) == \
        dst_base.view(np.uint8).reshape(-1, got.itemsize)
    wrong = ~same.all(axis=1)
    if wrong.any() and np.dtype(np_to).kind in "fc":
        # Any NaN is as good as another.
        both = np.stack([got, dst_base]).view(
            got.real.dtype).reshape(2, len(got), -1)
        wrong &= ~((both[0] == both[1])
                   | (np.isnan(both[0]) & np.isnan(both[1]))).all(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise RuntimeError(
            f"{kind_from}{src.shape} strides {src.strides} conj {conj} neg {neg} "
            f"to {kind_to} strides {dst.strides}: place {i} is {got[i]!r}, not "
            f"{dst_base[i]!r}")
    return src_base.tobytes() == a.read()


def against_numpy():
    for i in range(cases):
        if not one_case():
            raise RuntimeError("the source was changed")


def against_torch():
    """Types that NumPy lacks: every half, and floats around every step of them."""
    try:
        import torch
    except ImportError:
        print("skip copies: types that NumPy lacks (no PyTorch)")
        return False
    steps = np.arange(1 << 16, dtype=np.uint32) << 16
    near = np.concatenate([steps, steps + 1, steps + 0x7fff, steps + 0x8000,
                           steps + 0x8001, steps + 0xffff,
                           nrng.integers(0, 1 << 32, 200000, dtype=np.uint32)])
    floats = near.astype(np.uint32).view(np.float32)
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        kind = getattr(torch, name)
        want = torch.from_numpy(floats.copy()).to(kind)
        unit = np.uint8 if "8_" in name else np.uint16
        a, out = Storage(floats), np.zeros(len(floats), unit)
        b = Storage(out)
        s = a.tensor("float32", floats, floats)
        d = b.tensor(name, out, out)
        must(library.cow_tensor_copy(d, s, 0))
        got = torch.from_numpy(np.frombuffer(b.read(), unit).copy()).view(kind)
        x, y = got.float(), want.float()
        bad = ~((x == y) | (x.isnan() & y.isnan()))
        if bad.any():
            i = int(bad.int().argmax())
            raise RuntimeError(f"{floats[i]!r} to {name}: {x[i]} and not {y[i]}")
        back, wide = Storage(np.zeros_like(floats)), np.zeros_like(floats)
        w = back.tensor("float32", wide, wide)
        must(library.cow_tensor_copy(w, d, 0))
        z = torch.from_numpy(np.frombuffer(back.read(), np.float32).copy())
        if not bool(((z == x) | (z.isnan() & x.isnan())).all()):
            raise RuntimeError(f"{name} to float32")
        for t in (s, d, w):
            library.cow_tensor_unref(t)
    return True


class Quantizer(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("scheme", ctypes.c_uint32),
                ("axis", ctypes.c_int32), ("channels", ctypes.c_int64),
                ("scales", ctypes.c_void_p), ("zero_points", ctypes.c_void_p)]


def quantized_case(torch):
    """Quantize, copy, dequantize: the same bits as PyTorch."""
    name = rng.choice(("quint8", "qint8", "qint32"))
    unit = {"quint8": np.uint8, "qint8": np.int8, "qint32": np.int32}[name]
    info = np.iinfo(unit)
    channels = rng.random() < 0.5
    shape = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(1, 5)))
    axis = rng.randrange(len(shape))
    n = shape[axis] if channels else 1
    scales = np.array([rng.choice((0.1, 0.5, 1.0, 2.0, 0.037, rng.uniform(1e-3, 9)))
                       for _ in range(n)])
    low, high = (info.min, info.max) if info.bits == 8 else (-1000, 1000)
    zeros = np.array([rng.randint(low, high) for _ in range(n)], np.int64)
    # Ties of every scale, numbers around the ends, numbers far beyond. NaN and what
    # no int32 holds are left out: PyTorch's versions differ among themselves.
    per = np.ones(shape)
    per *= scales.reshape([-1 if channels and d == axis else 1
                           for d in range(len(shape))])
    steps = nrng.integers(-400, 400, shape) + nrng.choice([0, 0.5, 0.25, 0.4999], shape)
    steps = np.where(nrng.random(shape) < 0.05, steps * 1e6, steps)
    numbers = np.ascontiguousarray((steps * per).astype(np.float32))
    source = torch.from_numpy(numbers.copy())
    kind = getattr(torch, name)
    if channels:
        want = torch.quantize_per_channel(source, torch.from_numpy(scales),
                                          torch.from_numpy(zeros), axis, kind)
    else:
        want = torch.quantize_per_tensor(source, float(scales[0]), int(zeros[0]), kind)
    q = Quantizer(ctypes.sizeof(Quantizer), 2 if channels else 1, axis, n,
                  scales.ctypes.data, zeros.ctypes.data)
    a = Storage(numbers)
    t, u, back = a.tensor("float32", numbers, numbers), ctypes.c_void_p(), ctypes.c_void_p()
    must(library.cow_tensor_quantize(t, NUMBER[name], ctypes.byref(q), ctypes.byref(u)))
    must(library.cow_tensor_dequantize(u, ctypes.byref(back)))

    def read(tensor, dtype):
        data = ctypes.string_at(library.cow_tensor_data(tensor),
                                numbers.size * np.dtype(dtype).itemsize)
        return np.frombuffer(data, dtype).reshape(shape)
    where = f"{name}{shape} axis {axis if channels else None} scales {scales} zeros {zeros}"
    have, bits = read(u, unit), want.int_repr().numpy()
    if not channels:
        # PyTorch's vectors fuse product and sum: another answer near ties.
        fused = (numbers.astype(np.float64) * np.float64(
            np.float32(1) / np.float32(scales[0])) + zeros[0]).astype(np.float32)
        fused = np.clip(np.rint(fused), info.min, info.max)
        near = (have != bits) & (bits == fused)
        bits = np.where(near, have, bits)
        if near.mean() > 0.2 and near.sum() > 5:
            raise RuntimeError(f"{where}: {near.sum()} are only near")
    else:
        near = np.zeros(shape, bool)
    if not np.array_equal(have, bits):
        i = np.argwhere(have != bits)[0]
        raise RuntimeError(f"{where}: {numbers[tuple(i)]!r} is {have[tuple(i)]}, "
                           f"not {bits[tuple(i)]}")
    have, wide = read(back, np.float32), want.dequantize().numpy()
    wide = np.where(near, have, wide)
    if not np.array_equal(have, wide):
        i = np.argwhere(have != wide)[0]
        raise RuntimeError(f"{where}: back {have[tuple(i)]!r}, not {wide[tuple(i)]!r}")
    for tensor in (t, u, back):
        library.cow_tensor_unref(tensor)


def quantized():
    try:
        import torch
    except ImportError:
        print("skip copies: quantized ones (no PyTorch)")
        return False
    for _ in range(cases):
        quantized_case(torch)
    return True


def whole(a):
    """The documented conversion of a float to an int64."""
    with np.errstate(all="ignore"):
        a = np.trunc(a.astype(np.float64))
        fits = (a >= -2.0 ** 63) & (a < 2.0 ** 63)
        return np.where(fits, np.where(fits, a, 0).astype(np.int64),
                        np.int64(-2 ** 63))


def floats_that_do_not_fit():
    kinds = [n for n in NUMPY if np.dtype(n).kind in "iu"]
    for _ in range(cases // 10 + 40):
        kind_from = rng.choice(("float16", "float32", "float64", "complex64",
                                "complex128"))
        kind_to = rng.choice(kinds)
        n = rng.randrange(1, 300)
        near = 2.0 ** nrng.integers(0, 80, n) * nrng.choice((-1.0, 1.0), n)
        near = near + nrng.choice((0, 0.5, -0.5, 1, -1, 1e-9), n)
        near = np.where(nrng.random(n) < 0.1,
                        nrng.choice((np.nan, np.inf, -np.inf), n), near)
        with np.errstate(all="ignore"):
            src = near.astype(kind_from)
        out = np.zeros(n, kind_to)
        a, b = Storage(src), Storage(out)
        s, d = a.tensor(kind_from, src, src), b.tensor(kind_to, out, out)
        must(library.cow_tensor_copy(d, s, 0))
        library.cow_tensor_unref(s)
        library.cow_tensor_unref(d)
        real = src.real.astype(np.float64)
        want = whole(real)
        if kind_to == "uint64":
            large = real >= 2.0 ** 63
            want = np.where(large, whole(np.where(large, real - 2.0 ** 63, 0))
                            ^ np.int64(-2 ** 63), want)
        want = want.astype(kind_to)
        got = np.frombuffer(b.read(), kind_to)
        if (got != want).any():
            i = int(np.argmax(got != want))
            raise RuntimeError(f"{kind_from} {src[i]!r} to {kind_to}: {got[i]} and "
                               f"not {want[i]}")


def some_shape(most_dims):
    dims = rng.randrange(most_dims + 1)
    most = rng.choice((3, 9, 30)) if dims < 4 else 5
    return tuple(rng.randrange(0 if rng.random() < 0.05 else 1, most + 1)
                 for _ in range(dims))


def in_place():
    kinds = [n for n in NUMPY if n != "bool"]
    for _ in range(cases // 10 + 40):
        kind = rng.choice(kinds)
        base, view = layout(some_shape(5), np.dtype(kind).type,
                            lambda n: values(np.dtype(kind).type, n, kind), False)
        conj, neg = rng.random() < 0.5, rng.random() < 0.6
        a = Storage(base)
        d, s = a.tensor(kind, view, base), a.tensor(kind, view, base, conj, neg)
        must(library.cow_tensor_copy(d, s, 0))
        library.cow_tensor_unref(s)
        library.cow_tensor_unref(d)
        with np.errstate(all="ignore"):
            value = np.conj(view) if conj else view.copy()
            view[...] = np.negative(value) if neg else value
        got = np.frombuffer(a.read(), base.dtype)
        same = (got == base) | ((got != got) & (base != base))
        if not same.all():
            raise RuntimeError(f"{kind}{view.shape} strides {view.strides} in place, "
                               f"conj {conj} neg {neg}")


def within_one_storage():
    """Two views of one array: refused if they share a place and are not the same."""
    refused = done = wary = 0
    for _ in range(cases // 4 + 100):
        kind = rng.choice(("uint8", "int16", "int32", "complex128"))
        base = values(np.dtype(kind).type, rng.choice((40, 300, 2000)), kind)
        shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(4)))

        def view():
            strides = [rng.choice((0, 1, 1, 2, 3, 5, 8, rng.randrange(60)))
                       for _ in shape]
            if rng.random() < 0.6:  # rows, columns and blocks of a matrix
                step = rng.choice((1, 1, 2))
                for d in rng.sample(range(len(shape)), len(shape)):
                    strides[d] = step
                    step *= shape[d] + rng.choice((0, 0, 3))
            last = sum((n - 1) * s for n, s in zip(shape, strides))
            if last >= len(base):
                return None
            at = rng.randrange(min(len(base) - last, 200))
            return np.lib.stride_tricks.as_strided(
                base[at:], shape, [s * base.itemsize for s in strides])
        to, source = view(), view()
        if to is None or source is None:
            continue
        flat = np.lib.stride_tricks.as_strided(
            np.arange(len(base))[(to.__array_interface__["data"][0]
                                  - base.__array_interface__["data"][0])
                                 // base.itemsize:],
            shape, [s // base.itemsize * 8 for s in to.strides])
        once = len(np.unique(flat)) == flat.size
        same = to.__array_interface__["data"] == source.__array_interface__["data"] \
            and all(n == 1 or a == b for n, a, b in
                    zip(shape, to.strides, source.strides))
        shares = np.shares_memory(to, source)
        a = Storage(base)
        d, s = a.tensor(kind, to, base), a.tensor(kind, source, base)
        r = library.cow_tensor_copy(d, s, 0)
        dense = library.cow_tensor_is_dense(d) and library.cow_tensor_is_dense(s)
        library.cow_tensor_unref(s)
        library.cow_tensor_unref(d)
        what = f"{kind}{shape} {to.strides} from {source.strides}"
        if same:
            if r != 0:
                raise RuntimeError(f"a copy to itself is refused: {what}")
            continue
        if r == 0:
            if not once or shares:
                raise RuntimeError(f"an overlapping copy: {what}")
            done += 1
            to[...] = source.copy()
        else:
            refused += 1
            wary += once and not shares
            if once and not shares and dense:
                raise RuntimeError(f"refused for nothing: {what}")
        if a.read() != base.tobytes():
            raise RuntimeError(f"other bytes: {what}")
    if not done or not refused:
        raise RuntimeError("nothing was tested")
    print(f"# within one storage: {done} copied, {refused} refused, of which "
          f"{wary} would have been harmless", file=sys.stderr)


class To(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("dtype", ctypes.c_int32),
                ("device", ctypes.c_int16 * 2), ("set_device", ctypes.c_bool),
                ("copy", ctypes.c_bool), ("format", ctypes.c_uint32),
                ("flags", ctypes.c_uint32)]


def strides_of(t):
    n = library.cow_tensor_dims(t)
    return tuple(library.cow_tensor_strides(t)[i] for i in range(n))


def layouts():
    """Strides of what to, clone and contiguous make, against PyTorch's."""
    try:
        import torch
    except ImportError:
        print("skip copies: layouts (no PyTorch)")
        return False
    formats = {0: torch.contiguous_format, 1: torch.channels_last,
               2: torch.channels_last_3d, 4: torch.preserve_format}
    for _ in range(cases // 4 + 100):
        dims = rng.choice((0, 1, 2, 3, 4, 4, 4, 5, 5, 6))
        # Without elements every stride fits here, and few do there.
        shape = tuple(rng.choice((1, 1, 2, 3, 5)) for _ in range(dims))
        base, view = layout(shape, np.float32,
                            lambda n: np.zeros(n, np.float32), True)
        a = Storage(base)
        t = a.tensor("float32", view, base)
        steps = [s // 4 for s in view.strides]
        theirs = torch.as_strided(torch.from_numpy(base), shape, steps)
        number = rng.choice([0, 4, 4] + [1] * (dims == 4) + [2] * (dims == 5))
        form, ret = formats[number], ctypes.c_void_p()
        how = rng.randrange(3)
        if how == 0:
            must(library.cow_tensor_clone(t, number, ctypes.byref(ret)))
            want = theirs.clone(memory_format=form)
        elif how == 1:
            to = To(ctypes.sizeof(To), NUMBER["float64"], (0, 0), False, False,
                    number, 0)
            must(library.cow_tensor_to(t, ctypes.byref(to), ctypes.byref(ret)))
            want = theirs.to(torch.float64, memory_format=form)
        else:
            number = 0 if number == 4 else number
            must(library.cow_tensor_contiguous(t, number, 0, ctypes.byref(ret)))
            want = theirs.contiguous(memory_format=formats[number])
        mine = strides_of(ret)
        library.cow_tensor_unref(ret)
        library.cow_tensor_unref(t)
        if mine != want.stride():
            raise RuntimeError(f"{('clone', 'to', 'contiguous')[how]} of {shape} "
                               f"{tuple(steps)} to {form}: {mine} and not "
                               f"{want.stride()}")
    return True


for name, test in ((f"copies: {cases} random ones against NumPy", against_numpy),
                   ("copies: floats that don't fit", floats_that_do_not_fit),
                   ("copies: conj and neg in place", in_place),
                   ("copies: within one storage", within_one_storage),
                   ("copies: layouts against PyTorch's", layouts),
                   ("copies: types that NumPy lacks against PyTorch",
                    against_torch),
                   (f"copies: {cases} quantized ones against PyTorch", quantized)):
    try:
        if test() is not False:
            print("ok", name)
    except RuntimeError as problem:
        print("not ok", name)
        print(f"seed {seed}: {problem}")
