# SPDX-License-Identifier: MIT
"""multiprocessing, whose arrays travel by handle.

    import cowshed.multiprocessing as multiprocessing

It has everything that multiprocessing has, with the same meaning. What differs is how objects
get from one process to another: large buffers of any of them (NumPy arrays, pandas frames,
PyTorch tensors, bytearrays, nested as they may be) are sent as handles of storages, through
queues, pipes, pools, managers, arguments of processes, and executors of concurrent.futures
with a context of this module (`mp_context=get_context()`). Import it before the arrays are made:
the engine lets large ones be born where they can be sent from.

Arrays of 4 MiB and more that lie in a storage are not copied, unless they were written since
they were sent before; that is what cowshed.empty() and the like make, and under
`python -m cowshed run` every large array. Smaller ones are copied once a message, unless they
are shared or frozen, and so is what lies in no storage. The receiver
gets its own bytes of the moment of sending (set_sharing_mode("clone"), the default), or
memory that both write: of what cowshed.share() made, and in mode "alias" of tensors and of
arrays that were made in that mode. The sender may exit first; what is received stays as long
as somebody has it.
"""

import importlib

from .. import _cowshed
from .._family import get_sharing_mode, set_sharing_mode
from . import _contexts, _executor, managers  # noqa: F401
from ._strategy import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    set_sharing_strategy,
)

try:
    # Large arrays that are made from here on lie where they can be sent from.
    _cowshed.set_option("share", "yes")
except FileNotFoundError:
    pass  # an engine that finds out by itself

_standard_names = [name for name in dir(_contexts.default) if not name.startswith("_")]
globals().update((name, getattr(_contexts.default, name)) for name in _standard_names)

__all__ = [
    *_standard_names,
    "get_all_sharing_strategies",
    "get_sharing_mode",
    "get_sharing_strategy",
    "set_sharing_mode",
    "set_sharing_strategy",
]

_OURS = {"connection", "managers", "pool", "queues", "sharedctypes"}


def __getattr__(name):
    """Modules, when they are first asked for: ours, or the standard library's."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = __name__ if name in _OURS else "multiprocessing"
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__():
    """All names, also the modules of this package that are imported at their first use."""
    return sorted({*globals(), *_OURS})
