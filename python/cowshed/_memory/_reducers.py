# SPDX-License-Identifier: MIT
"""Reducers: how objects of other libraries are taken apart for a message.

A reducer returns what pickle's `__reduce__` returns: `(function, arguments)`. Regions and
Storages among the arguments stand for the bytes, and travel by handle. If it returns
NotImplemented, the object is pickled in the ordinary way. A reducer may ask the message that is
being made (`_pickle.current()`) to place bytes that lie in no storage.

A reducer serves a type and its subclasses. Only messages of cowshed.multiprocessing call it; a
plain pickle does not.
"""

import copyreg
import importlib
import pickle

from .. import _cowshed
from ._names import keep

__name__ = keep(__name__)

#: {(module, name) of a type: the module that registers its reducer}, filled by cowshed/__init__.py.
#: A module is imported when an object of its type is first sent.
late = {}

_SCALARS = frozenset((type(None), bool, int, float))

_reducers = {}
_small = {}  # exactly this type -> (is_small, alone)
_found = {}  # type -> reducer or None, for all types that find() was asked for


def register(type_, reduce, is_small=None, alone=None):
    """Registers `reduce(object)` for objects of `type_` and its subclasses.

    The other two are asked for objects of exactly this type.

    is_small(object) tells whether it is pickled in microseconds, and without code of the program.

    alone(object, mode) is asked for an object that is all of a message. It returns what plain
    pickle needs, `(function, arguments)`, or None.
    """
    _reducers[type_] = reduce
    if is_small is not None:
        _small[type_] = is_small, alone
    _found.clear()


def unregister(type_):
    """Takes register() back."""
    _reducers.pop(type_, None)
    _small.pop(type_, None)
    _found.clear()


def find(type_):
    """The reducer of the type, or of the nearest of its base classes that has one; else None."""
    try:
        return _found[type_]
    except KeyError:
        pass
    # A metaclass may define `__mro__` itself; this reads the one of `type`.
    for base in type.__dict__["__mro__"].__get__(type_):
        module = late.get((base.__module__, base.__name__))
        if module is not None:
            importlib.import_module(module)
        if base in _reducers:
            _found[type_] = _reducers[base]
            return _reducers[base]
    if len(_found) > 4096:  # a program may make classes at run time without end
        _found.clear()
    _found[type_] = None
    return None


def is_plain(x, depth=2):
    """Whether it is pickled in microseconds, and without code of the program."""
    kind = type(x)
    if kind in _SCALARS:
        return True
    if kind is str or kind is bytes:
        return len(x) <= 4096
    if kind is tuple or kind is list:
        return depth > 0 and len(x) <= 16 and all(is_plain(item, depth - 1) for item in x)
    small = _small.get(kind)
    return small is not None and small[0](x)


def dumps_alone(x, mode):
    """The pickle of a small object that is all of a message, or None.

    Plain pickle writes it, because no storage can be in it. That costs less than a message.
    """
    kind = type(x)
    if kind not in _SCALARS and kind is not str and (kind is not bytes or len(x) > 4096):
        small = _small.get(kind)
        taken = small[1](x, mode) if small is not None and small[1] is not None else None
        if taken is None:
            return None
        x = _Taken(taken)
    return pickle.dumps(x, 5)


class _Taken:
    """An object that is pickled as `parts`."""

    __slots__ = ("parts",)

    def __init__(self, parts):
        self.parts = parts

    def __reduce_ex__(self, protocol):
        return self.parts


def rebuild_bytes(data, readonly):
    """A new storage of this process with a copy of these bytes."""
    storage = _cowshed.new(len(data))
    if not data:
        return storage
    with memoryview(storage) as view:
        view[:] = data
    return storage.clone(readonly=True) if readonly else storage


def _reduce_storage(storage):
    # A plain pickle (a file, a pipe of another library) gets the bytes.
    if storage.kind == "file":
        _cowshed.check_file(storage.address, storage.nbytes)
    return rebuild_bytes, (bytes(storage), bool(storage.readonly))


copyreg.pickle(_cowshed.Storage, _reduce_storage)
