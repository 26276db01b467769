# SPDX-License-Identifier: MIT
"""The types of arguments, for type checkers.

Only type checkers import this module, because it needs PyTorch's types. At run time the
annotations are strings, which typing.get_type_hints() can't resolve.
"""

import os
from collections.abc import Sequence
from typing import Literal, SupportsIndex, TypeVar

from torch import Tensor
from torch.nn import Module

Tensors = TypeVar("Tensors", bound=Tensor)
Modules = TypeVar("Modules", bound=Module)

Shape = SupportsIndex | Sequence[SupportsIndex]
Order = Literal["C", "F"]
Writes = Literal["some", "all", "auto"]
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Format = Literal["npy", "npz", "safetensors", "pt", "pth", "torch"]
