# SPDX-License-Identifier: MIT
"""multiprocessing.sharedctypes, with the locks of this package's contexts."""

from multiprocessing import sharedctypes as _standard
from multiprocessing.sharedctypes import RawArray, RawValue, copy

from ._contexts import default
from ._rebound import rebound

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]

_namespace = dict(vars(_standard))
_namespace["get_context"] = default.get_context

Value = rebound(_standard.Value, _namespace)
Array = rebound(_standard.Array, _namespace)
synchronized = rebound(_standard.synchronized, _namespace)
_namespace["synchronized"] = synchronized


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
