# SPDX-License-Identifier: MIT
"""What checkpoint() copies before it forks: memory that other processes could write meanwhile."""

import bisect
import sys

from .._memory._copier import Copier
from .._memory._parts import leaves
from .._memory._regions import address_of_tensor, bounds_of, is_tensor, region_of


class ForFork(Copier):
    """A state for a child of fork().

    The child has all memory as it is at the fork, except memory that is mapped from files. All
    shared memory is of that kind. Arrays and tensors in such memory are copied; all other objects
    stay as they are.
    """

    def __init__(self):
        super().__init__()
        self._mapped = None

    def is_shared(self, x):
        """Whether another process could write the bytes that the child will read."""
        numpy = sys.modules.get("numpy")
        if is_tensor(x):
            if x.device.type != "cpu":
                return False
            try:
                whole = x.untyped_storage()
                low, nbytes = address_of_tensor(x), whole.nbytes()
            except (RuntimeError, NotImplementedError):
                return True  # a tensor of several tensors, or one that does not tell its memory
        elif numpy is not None and isinstance(x, numpy.ndarray):
            if isinstance(x, numpy.ma.MaskedArray) and self.is_shared(x.mask):
                return True
            low, nbytes = bounds_of(x)
        else:
            return numpy is not None and isinstance(x, numpy.void)
        region = region_of(x) if nbytes else None
        if region is not None:
            return region.storage.kind != "own"
        return bool(nbytes) and self._is_mapped(low, low + nbytes)

    def _is_mapped(self, low, high):
        if self._mapped is None:
            self._mapped = _mapped_files()
        i = bisect.bisect_right(self._mapped, low, key=lambda bounds: bounds[1])
        return i < len(self._mapped) and self._mapped[i][0] < high

    def _new(self, x):
        if isinstance(x, (dict, list, tuple)) or self.is_shared(x):
            return super()._new(x)
        return x

    def _tensor(self, x):
        result = super()._tensor(x)
        torch = sys.modules["torch"]
        if type(x) is torch.nn.Parameter:
            return torch.nn.Parameter(result, x.requires_grad)
        return result.requires_grad_(x.requires_grad)


def for_fork(state):
    """The state, or one like it without memory that other processes could write."""
    copier = ForFork()
    if any(copier.is_shared(x) for x in leaves(state)):
        return copier.take(state)
    return state


def _mapped_files():
    """[(first, end)] of the addresses that are mapped from files, in order.

    Without /proc that is the whole address space.
    """
    result = []
    try:
        with open("/proc/self/maps", "rb") as lines:
            for line in lines:
                addresses, _, _, _, inode, *_ = line.split(None, 5)
                if inode != b"0":
                    first, end = addresses.split(b"-")
                    result.append((int(first, 16), int(end, 16)))
    except OSError:
        return [(0, 1 << 64)]
    return result
