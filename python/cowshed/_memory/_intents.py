# SPDX-License-Identifier: MIT
"""Write intents: arrays and tensors that are about to be rewritten.

A clone, a snapshot or a forked child makes memory copy-on-write. Then each write of a page costs a
fault and a copy of 4 KiB. A write intent gives the memory pages of its own first, in bulk.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import _cowshed
from ._names import keep
from ._parts import leaves
from ._regions import address_of_array, is_lazy, is_tensor

__name__ = keep(__name__)

LEAST = 384 << 10  # smaller memory is copied when it is cloned, and is never copy-on-write


def write_intent(state: Any, *, overwrite: bool = False) -> int:
    """Says that most of the bytes of arrays and tensors are about to be rewritten.

    state: an array, a tensor, or dicts, lists and tuples of them, nested to any depth. What a
    clone, a snapshot or a forked process made copy-on-write is copied now: by all processors, into
    huge pages, at its old address. Afterwards it is written as fast as if nothing had been cloned,
    and the next snapshot takes as little time as the first one. What nobody else reads any more
    costs no copy.

    overwrite: True promises that every byte will be written before it is read. Then the bytes may
    become anything, and nothing is copied.

    Until the call returns, nobody else may write the memory: no thread, no process, no I/O. Others
    may read it. The call does nothing to arrays that are not contiguous, to memory that the
    library did not allocate or that processes share, and to other devices' memory. It takes about
    a microsecond for each array if nothing is copy-on-write. Returns the bytes that were copied.
    """
    ranges = [r for x in leaves(state) if (r := _range_of(x)) is not None]
    return _cowshed.write_intent(ranges, overwrite) if ranges else 0


def _range_of(x):
    """(address, nbytes) of an array or tensor that has no holes. None: there is nothing to do."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        if x.nbytes < LEAST or not (x.flags.c_contiguous or x.flags.f_contiguous) \
                or not x.flags.writeable or x.dtype.hasobject:
            return None
        return address_of_array(x), x.nbytes
    if is_tensor(x):
        return range_of_tensor(x)
    return None


def _is_dense(x):
    """Whether the elements of a tensor fill its memory, in any order of its dimensions."""
    filled = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size != 1:
            if stride != filled:
                return False
            filled *= size
    return True


def range_of_tensor(x):
    """The same for a tensor."""
    torch = sys.modules["torch"]
    try:
        nbytes = x.numel() * x.element_size()
        if nbytes < LEAST or x.device.type != "cpu" or x.layout != torch.strided \
                or not (x.is_contiguous() or _is_dense(x)) or is_lazy(x):
            return None
        return x.data_ptr(), nbytes
    except (RuntimeError, NotImplementedError):  # a tensor of tensors, or without memory
        return None
