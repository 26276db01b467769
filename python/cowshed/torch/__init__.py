# SPDX-License-Identifier: MIT
"""PyTorch tensors on storages, and PyTorch's multiprocessing on cowshed.

    import cowshed.torch

    t = cowshed.torch.zeros(1 << 28)      # a CPU tensor of 1 GiB
    c = cowshed.clone(t, writes="some")   # takes microseconds
    c[0] = 1                              # copies one page; t stays as it is

    cowshed.torch.install()               # from here on torch.multiprocessing, share_memory_()
                                          # and DataLoader workers share memory by cowshed

Tensors are ordinary CPU tensors, of any dtype and memory format. The functions of this module make
them on storages. Under `python -m cowshed run` every large tensor of the program lies in a storage.
`cowshed.clone`, `share`, `freeze`, `is_shared` and `storage_of` take tensors, too.

cowshed.multiprocessing sends a tensor as a clone or as an alias, as the sharing mode says
(cowshed.set_sharing_mode). After install() it sends tensors as aliases, as torch.multiprocessing
does. Any thread may call any function.
"""

import os as _os

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("cowshed.torch needs PyTorch (tested: 2.13), and it can't be imported "
                      f"({error}): pip install torch") from error

from .. import _cowshed
from ._tensors import (
    clone,
    empty,
    empty_like,
    freeze,
    from_storage,
    full,
    is_shared,
    share,
    storage_of,
    tensor,
    writable,
    zeros,
    zeros_like,
)

# PyTorch calls hooks of this package. The line to blame is the program's.
_cowshed.skip_sites(_os.path.join(_os.path.dirname(_torch.__file__), ""))
del _cowshed


def install() -> None:
    """Makes torch.multiprocessing and DataLoader workers use cowshed.

    Optimizers and operations in place give write intents from then on (cowshed.write_intent()).
    So no thread may write a tensor while another thread is in a step, or rewrites that tensor.

    That holds for this process and for the processes that it starts later. A second call changes
    nothing. Queues, contexts and loaders with workers that were made before stay as they are.

    Tensors are sent as aliases in both sharing modes; NumPy arrays as cowshed.set_sharing_mode()
    says. torch.multiprocessing.set_sharing_strategy() is accepted and changes nothing, because
    neither of PyTorch's strategies is used.
    """
    from . import _install

    _install.install()


def uninstall() -> None:
    """Takes install() back. Shared tensors stay shared, and queues stay usable."""
    from . import _install

    _install.uninstall()


def is_installed() -> bool:
    """Whether install() is in force in this process."""
    from . import _reduce

    return _reduce.always_alias


def __getattr__(name):
    if name == "Stager":  # PyTorch's distributed checkpoints take long to import
        try:
            from ._stager import Stager
        except ImportError as error:
            raise AttributeError(f"this PyTorch has no async checkpoints: {error}") from error

        globals()[name] = Stager
        return Stager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "clone",
    "empty",
    "empty_like",
    "freeze",
    "from_storage",
    "full",
    "install",
    "is_installed",
    "is_shared",
    "share",
    "storage_of",
    "tensor",
    "uninstall",
    "writable",
    "zeros",
    "zeros_like",
]
