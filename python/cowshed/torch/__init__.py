# SPDX-License-Identifier: MIT
"""PyTorch tensors on storages, and PyTorch's multiprocessing on cowshed.

    import cowshed.torch

    t = cowshed.torch.zeros(1 << 28)      # a CPU tensor of 1 GiB
    c = cowshed.clone(t)                  # some microseconds
    c[0] = 1                              # copies one page; t stays as it is

    cowshed.torch.install()               # from here on torch.multiprocessing, share_memory_()
                                          # and DataLoader workers share memory by cowshed

Tensors are ordinary ones, of any dtype and memory format. Those made here lie in storages,
and so does under `python -m cowshed run` every large tensor that anybody makes.
`cowshed.clone`, `share`, `freeze`, `is_shared` and `storage_of` take tensors, too.

Sent through cowshed.multiprocessing a tensor is a clone or an alias, as the sharing mode
says (cowshed.set_sharing_mode); after install() it is an alias, as PyTorch's users expect.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("cowshed.torch makes PyTorch tensors: install torch") from error

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
    zeros,
    zeros_like,
)


def install() -> None:
    """torch.multiprocessing and DataLoader workers use cowshed from here on, in this process and
    in those that it starts. Does nothing if they do already.

    What was made before (queues, contexts, loaders with workers) stays what it is. Tensors are
    sent as aliases, whatever cowshed.set_sharing_mode() says; arrays of NumPy as it says.
    torch.multiprocessing.set_sharing_strategy() is accepted and changes nothing: neither of
    PyTorch's strategies is used any more.
    """
    from . import _install

    _install.install()


def uninstall() -> None:
    """Takes install() back. Tensors that are shared stay so; queues that were made stay usable."""
    from . import _install

    _install.uninstall()


def is_installed() -> bool:
    """Is install() in force?"""
    from . import _reduce

    return _reduce.always_alias


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
    "zeros",
    "zeros_like",
]
