# SPDX-License-Identifier: MIT
"""multiprocessing that sends arrays by handle.

    import cowshed.multiprocessing as multiprocessing

It has all names of multiprocessing, with the same meaning. It differs in how objects get from one
process to another. Large buffers are sent as handles of storages: NumPy arrays, pandas frames,
PyTorch tensors and bytearrays, at any depth of an object. That holds for queues, pipes, pools,
managers, arguments of processes, and executors of concurrent.futures with a context of this
module (`mp_context=get_context()`). Import it before the arrays are made: from then on the engine
makes large arrays in memory from which they can be sent.

An array of 4 MiB or more in a storage is sent without a copy, unless it was written since it was
last sent. The functions of cowshed make such arrays, for example cowshed.empty(). Under
`python -m cowshed run` every large array is one. Smaller arrays and arrays outside of storages are
copied once for each message. Shared and frozen arrays of any size are sent without a copy.

The receiver gets its own bytes of the moment of sending (set_sharing_mode("clone"), the default).
Arrays of cowshed.share() are memory that both sides write. In mode "alias" so are tensors, and
arrays that were made in that mode. The sender may exit before the message is received. The memory
is freed when the last process has no array on it.
"""

import importlib

from .. import _cowshed
from .._memory._family import get_sharing_mode, set_sharing_mode
from . import _contexts, managers  # noqa: F401
from ._strategy import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    set_sharing_strategy,
)

try:
    # From here on the engine makes large arrays in memory from which they can be sent.
    _cowshed.set_option("share", "yes")
except FileNotFoundError:
    pass  # an engine without this option

def install() -> None:
    """Makes the standard multiprocessing send arrays by handle, too.

    From then on multiprocessing, concurrent.futures and all that stands on them send these by
    handle, with each start method: NumPy arrays of 1 MiB or more, shared arrays, storages, and
    what pack() made. All others go as before. A receiver gets what it gets by this module in the
    mode "clone": its own bytes of the moment, shared arrays as shared, frozen ones as frozen.
    Arrays that lie in no storage are copied once for each message.

    Call it before share(): what was shared before can't be sent so. Processes that get an array
    install it themselves. Those that only make arrays call it, as in a module that they import.
    Each handle is a descriptor until it is received, once. A process waits at its end for up to 10
    seconds until its arrays are received. Tensors go as torch.multiprocessing sends them.

    A second call changes nothing. ImportError: there is no NumPy.
    """
    from . import _standard

    _standard.install()


def uninstall() -> None:
    """Takes install() back, in this process."""
    from . import _standard

    _standard.uninstall()


_standard_names = [name for name in dir(_contexts.default) if not name.startswith("_")]
globals().update((name, getattr(_contexts.default, name)) for name in _standard_names)

__all__ = [
    *_standard_names,
    "get_all_sharing_strategies",
    "get_sharing_mode",
    "get_sharing_strategy",
    "install",
    "set_sharing_mode",
    "set_sharing_strategy",
    "uninstall",
]

_OURS = {"connection", "managers", "pool", "queues", "shared_memory", "sharedctypes",
         "templates"}


def __getattr__(name):
    """Imports a module at its first use: one of this package, or of the standard library."""
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
