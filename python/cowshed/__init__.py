# SPDX-License-Identifier: MIT
"""Arrays that processes can share, and clones that copy no byte until one is written.

    import cowshed

    a = cowshed.zeros((1 << 28,), "float32")     # a NumPy array of 1 GiB
    b = cowshed.clone(a, writes="some")          # takes microseconds
    b[0] = 1                                     # copies one page; a stays as it is

Memory of cowshed lies in *storages*. A clone of a storage shares its pages; the kernel copies a
page at its first write. A storage is sent to another process without a copy. The functions of
this module make ordinary NumPy arrays on storages, those of `cowshed.torch` PyTorch tensors.
Under `python -m cowshed run script.py` every large array of the program lies in a storage.

    cowshed.empty, zeros, array, ...     NumPy arrays on storages, by the names of NumPy
    cowshed.clone(x)                     the same bytes, without a copy if few of them are written
    cowshed.share(x)                     memory that several processes read and write
    cowshed.freeze(x)                    read-only for ever, sent without a copy
    cowshed.writable(x)                  a read-only or shared x, to be written privately, by page
    cowshed.open(path), save(path, x)    .npy, .safetensors and raw files as arrays
    cowshed.snapshot(state)              a training state of this moment, to be saved later
    cowshed.checkpoint(state, path)      the same, saved by a forked process
    cowshed.Checkpointer(path, state)    a checkpoint every so many steps, the last ones kept
    cowshed.write_intent(state)          "I rewrite this now": it is copied in bulk, not by page
    cowshed.freeze_objects()             Python objects that forked children read without a copy
    cowshed.pack(sequence)               a list of objects in one storage, for any start method
    cowshed.multiprocessing              multiprocessing, which sends arrays by handle
    cowshed.torch, cowshed.dask          the same for PyTorch, and for Dask's workers
    cowshed.joblib                       a backend of joblib whose workers get arrays by handle
    cowshed.arrow, cowshed.ray           Arrow tables under names; Ray's objects, to be written
    cowshed.stats(), trim()              counters, and returning freed memory to the kernel

Any thread may call any function. After fork() both processes have all arrays, with the bytes of
that moment and their own later writes. Shared arrays stay shared.
"""

import os as _os
import sys as _sys
from functools import cache as _cache
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

try:
    from . import _cowshed as _cowshed
except ImportError as _error:
    # The loader takes a libcowshed.so.0 that is there already, as that of a preloaded shim.
    if "symbol" not in str(_error) and "version" not in str(_error):
        raise
    raise ImportError(
        "a libcowshed.so.0 of another build is loaded in this process. Start the program with "
        f"`python -m cowshed run`, or preload the shim of {__path__[0]}/lib.") from _error
from ._cowshed import Storage, features, set_option, stats, trim, version
from ._memory import _ndarrays as _ndarrays
from ._memory import _reducers as _reducers
from ._memory._arrays import array, clone, freeze, is_shared, share
from ._memory._family import get_sharing_mode, set_sharing_mode, sharing_mode
from ._memory._making import (
    arange,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from ._memory._regions import storage_of

if "COWSHED_SITES" in _os.environ:  # `cowshed profile` has set it
    from . import _sites as _sites

    _sites.begin(_os.environ["COWSHED_SITES"])

__version__ = version()

__all__ = [
    "Checkpointer",
    "FrozenObjects",
    "Packed",
    "Progress",
    "Saving",
    "Snapshot",
    "Storage",
    "Tensors",
    "arange",
    "array",
    "checkpoint",
    "clone",
    "empty",
    "empty_like",
    "features",
    "freeze",
    "freeze_objects",
    "full",
    "full_like",
    "get_sharing_mode",
    "is_shared",
    "ones",
    "ones_like",
    "open",
    "pack",
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
    "writable",
    "write_intent",
    "zeros",
    "zeros_like",
]

# The package imports these modules when a program first asks for one of their names. They need
# more modules of the standard library, so importing them takes longer.
_LAZY = {
    "Checkpointer": "_states._checkpointer",
    "FrozenObjects": "_pyobjects._objects",
    "Packed": "_pyobjects._pack",
    "Progress": "_states._pace",
    "Saving": "_states._saving",
    "Snapshot": "_states._snapshot",
    "Tensors": "_states._safetensors",
    "checkpoint": "_states._snapshot",
    "freeze_objects": "_pyobjects._objects",
    "open": "_states._files",
    "pack": "_pyobjects._packing",
    "save": "_states._save",
    "snapshot": "_states._snapshot",
    "writable": "_memory._writable",
    "write_intent": "_memory._intents",
}

# The submodules that are imported at their first use, and the package that each one needs.
_SUBMODULES = {"arrow": "pyarrow", "dask": "distributed", "joblib": "joblib",
               "multiprocessing": None, "ray": "ray", "torch": "torch"}

# What the folders below call in a plug-in, which is imported when a program first needs it.
_ndarrays.of_torch = _cache(lambda: _import_module(".torch._tensors", __name__))
_reducers.late.update({
    ("pyarrow.lib", "Table"): __name__ + ".arrow",
    ("torch", "Tensor"): __name__ + ".torch._reduce",
    ("torch.storage", "UntypedStorage"): __name__ + ".torch._reduce",
    ("torch.storage", "TypedStorage"): __name__ + ".torch._reduce",
})

if TYPE_CHECKING:
    from . import arrow as arrow
    from . import dask as dask
    from . import joblib as joblib
    from . import multiprocessing as multiprocessing
    from . import ray as ray
    from . import torch as torch
    from ._memory._intents import write_intent
    from ._memory._writable import writable
    from ._pyobjects._objects import FrozenObjects, freeze_objects
    from ._pyobjects._pack import Packed
    from ._pyobjects._packing import pack
    from ._states._checkpointer import Checkpointer
    from ._states._files import open
    from ._states._pace import Progress
    from ._states._safetensors import Tensors
    from ._states._save import save
    from ._states._saving import Saving
    from ._states._snapshot import Snapshot, checkpoint, snapshot
else:

    def __getattr__(name):
        if name in _LAZY:
            value = getattr(_import_module("." + _LAZY[name], __name__), name)
            globals()[name] = value
            return value
        if name in _SUBMODULES:
            return _import_module("." + name, __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        """All names, also those that are imported at their first use. Imports nothing.

        A submodule is listed if the package that it needs is installed. help() and completion ask
        for each name, and would raise ImportError for a submodule that can't be imported.
        """
        there = (name for name, needed in _SUBMODULES.items() if _is_there(needed))
        return sorted({*globals(), *_LAZY, *there})


def _is_there(package):
    """Can a top-level package be imported? None stands for no package."""
    if package is None:
        return True
    if package in _sys.modules:
        return _sys.modules[package] is not None
    return _find_spec(package) is not None
