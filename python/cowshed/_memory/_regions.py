# SPDX-License-Identifier: MIT
"""Where the bytes of an object lie: in which storage, and at which offset.

Three ways are tried, in this order:

1. A NumPy array or memoryview names its owner (`base`, `obj`), down to the storage.
2. A PyTorch tensor names an address. enter() has put the storages of tensors into a table by
   their addresses.
3. The engine knows all addresses that it gave away. Under the shim that includes every large
   array of a program that does not import cowshed.
"""

import bisect
import os
import sys
import threading
import weakref
from typing import NamedTuple

from .. import _cowshed
from ._names import keep

__name__ = keep(__name__)


class Region(NamedTuple):
    """`nbytes` bytes at byte `offset` of a storage."""

    storage: _cowshed.Storage
    offset: int
    nbytes: int


# Below this size a copy costs less than cloning pages (core/storage/clone.c has the same limit).
SMALL = 384 << 10

_by_address = weakref.WeakValueDictionary()
_starts = []  # sorted: the addresses of _by_address, and addresses of storages that are gone
_lock = threading.RLock()  # a signal handler may run in the thread that holds it
#: Whether this process has mapped a file, which may become shorter.
has_files = False


def enter(storage, offset=0):
    """Enters a storage into the table, by the address of its byte `offset`. Returns the address.

    The table holds no reference: a storage leaves it when it is freed.
    """
    address = storage.address + offset
    if _by_address.get(address) is not storage:
        _by_address[address] = storage
        _enter_start(address)
    return address


def _enter_start(address):
    global _starts
    with _lock:
        bisect.insort(_starts, address)
        if len(_starts) > 2 * len(_by_address) + 64:
            # keys() would fail if another thread enters a storage meanwhile.
            starts = sorted(reference.key for reference in _by_address.valuerefs())
            # The old list has what signal handlers and finalizers entered since valuerefs().
            # None of them runs between the next two assignments, since neither is a call.
            old, _starts = _starts, starts
            for missing in set(old).difference(starts):
                if missing in _by_address:
                    bisect.insort(_starts, missing)


def _owner(x):
    """The storage at the end of a chain of views, or None."""
    while x is not None and not isinstance(x, _cowshed.Storage):
        x = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
    return x


def owner_of(x):
    """The storage that an array or memoryview is a view of, or None. The view may be empty."""
    return _owner(x) if isinstance(x, memoryview) else _owner(getattr(x, "base", None))


def _at(address, nbytes, owner):
    """The region of these addresses: in the owner, else where the engine or the table has it."""
    if owner is not None:
        start = owner.address
        if start <= address and address + nbytes <= start + owner.nbytes:
            return Region(owner, address - start, nbytes)
    found = _cowshed.from_address(address)
    if found and found[1] + nbytes <= found[0].nbytes:
        return Region(found[0], found[1], nbytes)
    return _inside(address, nbytes) if owner is None else None


def _inside(address, nbytes):
    """The region of these addresses in a storage of the table.

    It finds aliases: the engine does not report them by an address.
    """
    with _lock:  # without the GIL another thread may insert an address during the search
        i = bisect.bisect_right(_starts, address)
        storage = None
        while i and storage is None:
            i -= 1
            storage = _by_address.get(_starts[i])
    if storage is None:
        return None
    start = storage.address
    if start <= address and address + nbytes <= start + storage.nbytes:
        return Region(storage, address - start, nbytes)
    return None


def _of_array(x):
    if x.dtype.hasobject or not x.nbytes:
        return None
    try:
        low, nbytes, _ = _cowshed.address_of(x)
    except (ValueError, BufferError):  # not contiguous, or of a type without a buffer
        low, nbytes = bounds_of(x)
    return _at(low, nbytes, _owner(x.base))


def address_of_array(x):
    """The address of the first element of an array."""
    return x.__array_interface__["data"][0]


def bounds_of(x):
    """(address, nbytes) of what an array spans, from its lowest byte to its highest."""
    import numpy

    # NumPy 2 has moved byte_bounds() to numpy.lib.array_utils.
    low, high = getattr(numpy.lib, "array_utils", numpy).byte_bounds(x)
    return low, high - low


def at(address, nbytes):
    """The region of `nbytes` bytes (at least 1) at an address, or None."""
    return _at(address, nbytes, _by_address.get(address))


def is_tensor(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_lazy(x):
    """Whether a tensor is a lazy clone of PyTorch, or the source of one.

    PyTorch copies such a tensor when its data_ptr() is called, so no question may do that. Its
    memory belongs to several PyTorch storages; for us it is foreign, wherever it lies.
    """
    ask = getattr(sys.modules["torch"]._C, "_is_cow_tensor", None)  # since PyTorch 2.1
    return ask is not None and ask(x)


def address_of_tensor(x):
    """The address of the PyTorch storage of a tensor, for reading."""
    if is_lazy(x):
        return sys.modules["torch"]._C._data_address(x) - x.storage_offset() * x.element_size()
    return x.untyped_storage().data_ptr()


def _of_tensor(x):
    if x.device.type != "cpu" or x.layout != sys.modules["torch"].strided or x.is_nested:
        return None
    whole = x.untyped_storage()
    if whole.device.type != "cpu" or whole.nbytes() == 0 or is_lazy(x):
        return None
    return at(whole.data_ptr(), whole.nbytes())


def region_of(x):
    """The Region of an array, tensor, buffer or storage; None: it lies in no storage.

    For a tensor that is the region of its whole PyTorch storage, which other tensors may view.
    """
    if isinstance(x, _cowshed.Storage):
        return Region(x, 0, x.nbytes)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return _of_array(x)
    if is_tensor(x):
        return _of_tensor(x)
    try:
        address, nbytes, _ = _cowshed.address_of(x)
    except (TypeError, BufferError):
        return None
    owner = _owner(x) if isinstance(x, memoryview) else None
    return _at(address, nbytes, owner) if nbytes else None


def storage_of(x: object) -> _cowshed.Storage | None:
    """The storage in which an array, tensor or buffer lies.

    None: the engine did not allocate its memory, or `x` has no bytes. Copies nothing. It is None
    of a lazy clone of PyTorch, and of its source, until PyTorch has copied it.
    """
    region = region_of(x)
    return region.storage if region else None


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
