# SPDX-License-Identifier: MIT
"""Arrays that are born shareable, and clones that cost nothing.

    import cowshed

    a = cowshed.zeros((1 << 28,), "float32")     # a NumPy array of 1 GiB
    b = cowshed.clone(a)                         # some microseconds
    b[0] = 1                                     # copies one page; a stays as it is

Memory of cowshed lies in *storages*: bytes that are cloned page by page when they are
written, and sent to other processes without being copied. An array made by this module
is an ordinary NumPy array (or PyTorch tensor, `cowshed.torch`) on a storage. Under
`python -m cowshed run script.py` so is every large array that anybody makes.

    cowshed.empty, zeros, full, array    NumPy arrays on storages
    cowshed.clone(x)                     the same bytes, without a copy
    cowshed.share(x)                     written by several processes, who see each other
    cowshed.freeze(x)                    read-only for ever, sent for nothing
    cowshed.open(path), save(path, x)    .npy, .safetensors and raw files as arrays
    cowshed.snapshot(state)              a training state of this moment, to be saved later
    cowshed.checkpoint(state, path)      the same, saved by a forked process
    cowshed.multiprocessing              multiprocessing, whose arrays travel by handle
    cowshed.torch, cowshed.dask          for those who use these
    cowshed.stats(), trim()              what it costs, and giving it back

Any function may be called from any thread. After fork() both processes have all arrays,
with the bytes of that moment and their own writes after it; shared ones stay shared.
"""

from typing import TYPE_CHECKING

from . import _reducers as _reducers
from ._arrays import array, clone, empty, freeze, full, is_shared, share, zeros
from ._cowshed import Storage, features, set_option, stats, trim, version
from ._family import get_sharing_mode, set_sharing_mode, sharing_mode
from ._regions import storage_of

__version__ = version()

__all__ = [
    "Saving",
    "Snapshot",
    "Storage",
    "Tensors",
    "array",
    "checkpoint",
    "clone",
    "empty",
    "features",
    "freeze",
    "full",
    "get_sharing_mode",
    "is_shared",
    "open",
    "save",
    "set_option",
    "set_sharing_mode",
    "share",
    "sharing_mode",
    "snapshot",
    "stats",
    "storage_of",
    "trim",
    "version",
    "zeros",
]

# What needs more modules is imported when it is first used.
_LAZY = {
    "Saving": "_saving",
    "Snapshot": "_snapshot",
    "Tensors": "_safetensors",
    "checkpoint": "_snapshot",
    "open": "_files",
    "save": "_save",
    "snapshot": "_snapshot",
}


if TYPE_CHECKING:
    from . import dask as dask
    from . import multiprocessing as multiprocessing
    from . import torch as torch
    from ._files import open
    from ._safetensors import Tensors
    from ._save import save
    from ._saving import Saving
    from ._snapshot import Snapshot, checkpoint, snapshot
else:

    def __getattr__(name):
        import importlib

        if name in _LAZY:
            value = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
            globals()[name] = value
            return value
        if name in ("torch", "multiprocessing", "dask"):
            return importlib.import_module("." + name, __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
