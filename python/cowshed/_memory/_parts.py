# SPDX-License-Identifier: MIT
"""What arrays and tensors a state or an object consists of."""

import gc
import sys
import types
import weakref

from ._regions import is_tensor

#: Plain values: a snapshot has them as they are.
KEPT = (type(None), bool, int, float, complex, str, bytes, range, type, type(Ellipsis))
# What copy.deepcopy() does not go into.
_ATOMS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType,
          types.FrameType, weakref.ref, str, bytes, int, float, complex, type(None))


def is_array(x):
    numpy = sys.modules.get("numpy")
    return is_tensor(x) or numpy is not None and isinstance(x, numpy.ndarray)


def is_module(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.nn.Module)


def is_optimizer(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.optim.Optimizer)


def is_training(x):
    """Whether it is an optimizer, or a tuple that has a module or an optimizer in it."""
    return is_optimizer(x) or type(x) is tuple and any(is_module(y) or is_optimizer(y) for y in x)


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
        if is_tensor(it):
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


def leaves(state):
    """Yields the objects in dicts, lists and tuples, each one once, without plain values."""
    left, seen = [state], {id(state)}
    while left:
        x = left.pop()
        if not isinstance(x, (dict, list, tuple)):
            yield x
            continue
        for value in x.values() if isinstance(x, dict) else x:
            if not isinstance(value, KEPT) and id(value) not in seen:
                seen.add(id(value))
                left.append(value)
