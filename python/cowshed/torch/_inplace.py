# SPDX-License-Identifier: MIT
"""Operations in place: whole tensors that are rewritten outside a step of an optimizer.

install() puts a hook (_cowshed.Hook) in the place of the operations below. While memory is
copy-on-write, it gives a write intent for a large dense tensor before the operation rewrites it.
So loading a state, averaging weights, initializing and clipping don't write page by page.

Where an operation reads each old element once, it needs no copy. It computes the new elements on
other pages, which then take the place of the old ones (_cowshed/rewrite.c). Until then everybody
sees the old bytes, and an operation that fails changes none. _elsewhere() has the conditions.

An intent that copies changes no byte. An intent to overwrite copies nothing, and loses the old
bytes at once: then the operation must not fail, and must not read them. _is_certain() has the
conditions. In doubt the bytes are copied.

PyTorch's own code in C++, as backward(), calls no function of Python and has no hook. Nor have
operations on a part of a tensor, as index_add_() and x[...] = y, and those with out=.
"""

import functools

import torch

from .. import _cowshed
from .._memory._intents import LEAST, range_of_tensor
from .._memory._regions import address_of_tensor

# Operations that write each element of their tensor, from its old value or without it.
METHODS = ("add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "clamp_", "uniform_",
           "normal_", "__iadd__", "__isub__", "__imul__", "__itruediv__")
OVER = "copy_", "zero_", "fill_"  # these read nothing of it
# The same operations with the result elsewhere.
_OTHERS = {"add_": torch.add, "sub_": torch.sub, "mul_": torch.mul, "div_": torch.div,
           "lerp_": torch.lerp, "addcmul_": torch.addcmul, "addcdiv_": torch.addcdiv,
           "clamp_": torch.clamp, "__iadd__": torch.add, "__isub__": torch.sub,
           "__imul__": torch.mul, "__itruediv__": torch.div}
LISTS = ("_foreach_add_", "_foreach_sub_", "_foreach_mul_", "_foreach_div_", "_foreach_lerp_",
         "_foreach_addcmul_", "_foreach_addcdiv_", "_foreach_copy_", "_foreach_zero_")
TYPES = torch.Tensor, torch.nn.Parameter  # what a subclass does is its own affair

# Any value of these becomes one of any other without an error or a warning.
_NUMBERS = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                      torch.float16, torch.bfloat16, torch.float32, torch.float64))
_MOST = 65504  # the largest number that all types of floating point have


def hooks():
    """Yields (owner, name, hook) for each operation."""
    for owner, names in (torch.Tensor, METHODS + OVER), (torch, LISTS):
        for name in names:
            function = getattr(owner, name, None)
            if function is not None:  # this PyTorch has it
                plan = _plan_list if owner is torch else _plan_over if name in OVER else _plan
                yield owner, name, _cowshed.Hook(
                    function, functools.partial(plan, name), TYPES, _modes, LEAST)


def tell_scripts(hook):
    """Enters a hook into TorchScript's table of functions. Returns what takes that back."""
    table = torch.jit._builtins._get_builtin_table()  # by id()
    operation = table.get(id(hook.__wrapped__))
    if operation is None:  # a method, which TorchScript knows by its name
        return lambda: None
    table[id(hook)] = operation
    return lambda: table.pop(id(hook), None)


# Counts a change of tensors for autograd. Older versions of PyTorch lack it.
_bump = getattr(torch._C, "_increment_version", None)

# How many modes would see that somebody looks at an attribute of a tensor.
_modes = torch._C._len_torch_function_stack


def _plan(name, args, names):
    place = range_of_tensor(args[0])
    if place is None:
        return None
    return _elsewhere(name, args, names or (), place) or ((place,), False)


def _elsewhere(name, args, names, place):
    """The operation on other pages, for rewrite_call() of rewrite.h. None: it can't be done so."""
    n = len(args) - len(names)
    x, others, keywords = args[0], args[1:n], dict(zip(names, args[n:]))
    if _bump is None or name not in _OTHERS or n < 1 or not _is_certain(x) \
            or x.untyped_storage().nbytes() != place[1] or not all(
                isinstance(y, (int, float, str, type(None))) or _goes_with(x, y, place)
                for y in (*others, *keywords.values())):
        return None
    return (place, functools.partial(torch.frombuffer, dtype=x.dtype),
            (torch.as_strided, x.size(), x.stride()), _OTHERS[name], (x, *others), keywords,
            functools.partial(_bump, (x,)))


def _goes_with(x, y, place):
    """Whether `y` can be an operand beside `x` in an operation that writes elsewhere."""
    if type(y) not in TYPES or not _is_certain(y) or y.dim() > x.dim() or any(
            size not in (1, wanted) for size, wanted in zip(reversed(y.shape), reversed(x.shape))):
        return False
    low = address_of_tensor(y)
    high = low + y.untyped_storage().nbytes()
    if high <= place[0] or place[0] + place[1] <= low:
        return True
    # Its own old elements. Other overlaps are PyTorch's affair.
    return y.data_ptr() == x.data_ptr() and y.shape == x.shape and y.stride() == x.stride() \
        and y.dtype == x.dtype


def _plan_over(name, args, names):
    place = range_of_tensor(args[0])
    if place is None:
        return None
    certain = not names and len(args) == (1 if name == "zero_" else 2) and _is_certain(args[0])
    if certain and name == "copy_":
        certain = _can_come_from(args[1], args[0], place)
    elif certain and name == "fill_":
        certain = args[0].is_floating_point() and type(args[1]) in (int, float) \
            and -_MOST <= args[1] <= _MOST
    return (place,), certain


def _plan_list(name, args, names):
    places = [place for x in args[0]
              if type(x) in TYPES and (place := range_of_tensor(x)) is not None]
    if not places:
        return None
    certain = name == "_foreach_zero_" and len(args) == 1 and not names \
        and all(type(x) in TYPES and _is_certain(x) for x in args[0])
    return places, certain


def _is_certain(x):
    """Whether nothing but the arguments can make an operation on a tensor fail."""
    named = getattr(x, "has_names", bool)()  # older versions of PyTorch
    return not named and x.dtype in _NUMBERS and x.device.type == "cpu" \
        and x.layout == torch.strided and not x.is_nested and not x.is_neg() \
        and not x.is_inference() and not (x.requires_grad and torch.is_grad_enabled()) \
        and not _is_transformed()


def _is_transformed():
    """Whether operations are traced, or transformed as by vmap()."""
    try:
        return torch._C._len_torch_dispatch_stack() \
            or torch._C._functorch.peek_interpreter_stack() is not None \
            or torch.autograd.forward_ad._current_level >= 0 or torch.jit.is_tracing()
    except AttributeError:  # this PyTorch can't tell
        return True


def _can_come_from(source, x, place):
    """Whether x.copy_(source) can't fail, and reads no byte of x. place: (address, nbytes) of x."""
    if type(source) not in TYPES or not _is_certain(source) \
            or source.shape != x.shape or source.stride() != x.stride():
        return False
    try:
        low = address_of_tensor(source)
        high = low + source.untyped_storage().nbytes()
        return bool(low) and (high <= place[0] or place[0] + place[1] <= low)
    except (RuntimeError, NotImplementedError):  # a tensor of tensors
        return False
