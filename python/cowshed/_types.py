# SPDX-License-Identifier: MIT
"""What arguments may be, for type checkers. Imported by them alone."""

import os
from collections.abc import Sequence
from typing import Literal, SupportsIndex, TypeVar

# An array, a tensor or a Storage.
Shareable = TypeVar("Shareable")

Shape = SupportsIndex | Sequence[SupportsIndex]
Order = Literal["C", "F"]
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Format = Literal["npy", "npz", "safetensors", "pt", "pth", "torch"]
