# SPDX-License-Identifier: MIT
"""The types of arguments, for type checkers.

Only type checkers import this module, because it needs PyTorch's types. At run time the
annotations are strings, which typing.get_type_hints() can't resolve.
"""

import os
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeVar

import numpy
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Tensors = TypeVar("Tensors", bound=Tensor)
Modules = TypeVar("Modules", bound=Module)
Training = TypeVar("Training", bound=tuple[Module | Optimizer | LRScheduler, ...])

Array = TypeVar("Array", bound=numpy.ndarray[Any, Any])
Scalar = TypeVar("Scalar", bound=numpy.generic)
Of = type[Scalar] | numpy.dtype[Scalar]

Shape = SupportsIndex | Sequence[SupportsIndex]
Order = Literal["C", "F"]
OrderLike = Literal["C", "F", "A", "K"]
Writes = Literal["some", "all", "auto"]
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Format = Literal["npy", "npz", "safetensors", "pt", "pth", "torch"]
