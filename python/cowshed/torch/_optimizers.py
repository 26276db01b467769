# SPDX-License-Identifier: MIT
"""Optimizers: their parameters and states, which every step rewrites.

install() registers a function that PyTorch calls before each step of any optimizer. It does two
things:

* Memory that a snapshot or a forked process made copy-on-write is copied in bulk, before the step
  rewrites it (cowshed.write_intent()).
* A tensor whose memory is not the library's moves to a storage, once. Snapshots of it copy nothing
  from then on. Under the shim all large tensors lie in storages already.

A tensor moves only if nothing else can see its memory: it is of an ordinary type, dense, on the
CPU, and the only tensor on a PyTorch storage that PyTorch may resize. So memory of NumPy, of a
file, or that is shared stays where it is. The tensor object stays the same.
"""

import torch

from .. import _cowshed
from .._memory._intents import range_of_tensor
from .._memory._regions import region_of
from . import _tensors


def before_step(optimizer, args, kwargs):
    """Called by PyTorch before optimizer.step()."""
    frozen = _cowshed.is_frozen()
    # load_state_dict() makes a new dict.
    seen = id(optimizer.state), len(optimizer.state)
    if not frozen and getattr(optimizer, "_cowshed_seen", None) == seen:
        return
    tensors = _rewritten(optimizer)
    if frozen:
        ranges = [r for t in tensors if (r := range_of_tensor(t)) is not None]
        if ranges:
            _cowshed.write_intent(ranges, False)
    if getattr(optimizer, "_cowshed_seen", None) != seen:
        optimizer._cowshed_seen = seen
        try:
            for t in tensors:
                move(t)
        except MemoryError:
            pass  # the rest stays where it is


def _rewritten(optimizer):
    """The tensors that a step rewrites: parameters with a dense gradient, and their states."""
    result = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None or p.grad.layout != torch.strided:
                continue
            result.append(p)
            state = optimizer.state.get(p)
            if isinstance(state, dict):
                result += [t for t in state.values() if isinstance(t, torch.Tensor)]
    return result


def move(t):
    """Moves a tensor to a storage, if nothing else can see its memory. Whether it did."""
    if not _tensors.is_plain(t) or range_of_tensor(t) is None or region_of(t) is not None:
        return False
    whole = t.untyped_storage()
    # One count for the tensor, one for `whole`.
    if not whole.resizable() or whole.nbytes() > 2 * t.nbytes \
            or torch._C._storage_Use_Count(whole._cdata) > 2:
        return False
    with torch.no_grad():
        new = _tensors.empty_like(t)
        new.copy_(t)
        t.data = new
    return True
