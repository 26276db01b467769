# SPDX-License-Identifier: MIT
"""Objects that consist of arrays and tensors: modules of PyTorch, and data frames of pandas.

An object is copied by copy.deepcopy(), or by pickle with its buffers beside it. Both let others say
what becomes of the memory, and both know how their object is put together again. So the large parts
are cloned, and all else is a copy.
"""

from __future__ import annotations

import gc
import pickle
import sys
import types
import weakref

from . import _arrays, _cowshed
from ._regions import region_of

# What copy.deepcopy() does not go into.
_ATOMS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType,
          types.FrameType, weakref.ref, str, bytes, int, float, complex, type(None))


def is_array(x):
    numpy = sys.modules.get("numpy")
    return _arrays._is_tensor(x) or numpy is not None and isinstance(x, numpy.ndarray)


def is_module(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.nn.Module)


def is_frame(x):
    """Whether it is a data frame or a series of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, (pandas.DataFrame, pandas.Series))


def parts(x):
    """Yields the arrays and tensors that can be reached from an object, each one once.

    It goes the way of the garbage collector, so it runs no code of the program.
    """
    numpy = sys.modules.get("numpy")
    left, seen = [x], {id(x)}
    while left:
        it = left.pop()
        if _arrays._is_tensor(it):
            yield it
            continue
        if numpy is not None and isinstance(it, numpy.ndarray):
            yield it
            inside = list(it.flat) if it.dtype == object else ()
        else:
            inside = gc.get_referents(it)
        for value in inside:
            if not isinstance(value, _ATOMS) and id(value) not in seen:
                seen.add(id(value))
                left.append(value)


def clone(x):
    """A copy of a module or a frame, whose memory is cloned."""
    if is_module(x):
        from ._snapshot import copy_of

        return copy_of(x)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    with_views = [buffer.raw() for buffer in buffers]
    return pickle.loads(data, buffers=[_clone_bytes(view) for view in with_views])


def _clone_bytes(view):
    """Memory of its own with the bytes of a view, for writing."""
    region = region_of(view)
    if view.nbytes < _arrays.SMALL:
        if region is not None and region.storage.kind == "file":
            _cowshed.check_file(region.storage.address + region.offset, view.nbytes)
        return bytearray(view)
    if region is not None and region.storage.kind == "own":
        return memoryview(region.storage.clone())[region.offset : region.offset + view.nbytes]
    return memoryview(_cowshed.clone_foreign(view))


def share(x):
    """Moves the parameters and buffers of a module to shared memory. Returns the module."""
    if not is_module(x):
        raise TypeError(f"share() got a {type(x).__name__} of pandas, whose columns can't be "
                        "moved: share the arrays of its columns, or send the whole by "
                        "cowshed.multiprocessing")
    from .torch import _tensors

    for tensor in (*x.parameters(), *x.buffers()):
        _tensors.share(tensor)
    return x
