# SPDX-License-Identifier: MIT
"""Objects that consist of arrays and tensors: modules and optimizers of PyTorch, and data frames of
pandas.

An optimizer refers to the parameters of a module, so both are cloned in one call, as a tuple. An
object is copied by copy.deepcopy(), or by pickle with its buffers beside it. Both let others say
what becomes of the memory, and both know how their object is put together again. So the large parts
are cloned, and all else is a copy.
"""

from __future__ import annotations

import pickle

from .. import _cowshed
from . import _ndarrays
from ._copier import copy_of
from ._parts import is_module, is_optimizer, is_training
from ._regions import SMALL, region_of


def clone(x):
    """A copy of a module, a tuple of is_training(), or a frame, whose memory is cloned."""
    if is_training(x):
        _check_training(x if type(x) is tuple else (x,))
    if is_module(x) or is_training(x):
        return copy_of(x)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    with_views = [buffer.raw() for buffer in buffers]
    return pickle.loads(data, buffers=[_clone_bytes(view) for view in with_views])


def _check_training(items):
    """TypeError: the module is missing whose parameters an optimizer would change."""
    there = {id(p) for x in items if is_module(x) for p in x.parameters()}
    for x in items:
        if is_optimizer(x) and not any(id(p) in there for group in x.param_groups
                                       for p in group["params"]):
            name = type(x).__name__
            raise TypeError(f"clone() got the optimizer {name} without the module whose parameters "
                            f"it changes: pass both, as model, optimizer = cowshed.clone((model, "
                            f"optimizer)). To keep or save the state of {name}, use "
                            "snapshot(optimizer.state_dict())")


def _clone_bytes(view):
    """Memory of its own with the bytes of a view, for writing."""
    region = region_of(view)
    if view.nbytes < SMALL:
        if region is not None and region.storage.kind == "file":
            _cowshed.check_file(region.storage.address + region.offset, view.nbytes)
        return bytearray(view)
    if region is not None and region.storage.kind == "own":
        return memoryview(region.storage.clone())[region.offset : region.offset + view.nbytes]
    return memoryview(_cowshed.clone_foreign(view))


def share(x):
    """Moves the parameters and buffers of a module to shared memory. Returns the module."""
    if is_training(x):
        raise TypeError(f"share() got a {type(x).__name__}, but processes can share a module, and "
                        "not an optimizer: it makes its state at its first step, and steps of two "
                        "processes would mix. Use share(model), and an optimizer in each process")
    if not is_module(x):
        raise TypeError(f"share() got a {type(x).__name__} of pandas, whose columns can't be "
                        "moved: share the arrays of its columns, or send the whole by "
                        "cowshed.multiprocessing")
    for tensor in (*x.parameters(), *x.buffers()):
        _ndarrays.of_torch().share(tensor)
    return x


def is_shared(x):
    """Whether all parameters and buffers of a module lie in shared memory, and it has any."""
    tensors = (*x.parameters(), *x.buffers())
    return bool(tensors) and all(_ndarrays.of_torch().is_shared(tensor) for tensor in tensors)
