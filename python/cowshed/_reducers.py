# SPDX-License-Identifier: MIT
"""How objects of other libraries are taken apart for a message.

A reducer says of an object what pickle's `__reduce__` says, `(function, arguments)`, with
Regions and Storages among the arguments for the bytes: these travel by handle. Or it says
NotImplemented: then the object is pickled as by everybody else. It may ask the message that
is being made (`_pickle.current()`) to place bytes that don't lie in a storage.

Reducers are for a type and its subclasses. They are called for messages of
cowshed.multiprocessing alone; whoever else pickles never meets them.
"""

import copyreg
import importlib
import pickle

from . import _cowshed

# Who registers reducers for what, when it is first met: nothing is imported before.
_LATE = {
    ("torch", "Tensor"): ".torch._reduce",
    ("torch.storage", "UntypedStorage"): ".torch._reduce",
    ("torch.storage", "TypedStorage"): ".torch._reduce",
}

_SCALARS = frozenset((type(None), bool, int, float))

_reducers = {}
_small = {}  # exactly this type -> (is_small, alone)
_found = {}  # type -> reducer or None, of all types that were met


def register(type_, reduce, is_small=None, alone=None):
    """`reduce(object)` takes objects of `type_` and its subclasses apart.

    Of objects of exactly this type: is_small(object): does that take microseconds, and
    nobody's code? alone(object, mode): how plain pickle is to take apart one that is all of a
    message, or None.
    """
    _reducers[type_] = reduce
    if is_small is not None:
        _small[type_] = is_small, alone
    _found.clear()


def unregister(type_):
    """As if it had never been registered."""
    _reducers.pop(type_, None)
    _small.pop(type_, None)
    _found.clear()


def find(type_):
    """The reducer of the nearest class that has one, or None."""
    try:
        return _found[type_]
    except KeyError:
        pass
    # What a metaclass makes of a class is its own matter: object's `__mro__` is asked.
    for base in type.__dict__["__mro__"].__get__(type_):
        late = _LATE.get((base.__module__, base.__name__))
        if late is not None:
            importlib.import_module(late, __package__)
        if base in _reducers:
            _found[type_] = _reducers[base]
            return _reducers[base]
    if len(_found) > 4096:  # classes are made at run time by some
        _found.clear()
    _found[type_] = None
    return None


def is_plain(x, depth=2):
    """Is it pickled in microseconds, and by no code of the program's?"""
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

    Plain pickle writes it, since no storage can be in it: that costs less than a message.
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
    """Is pickled as what was taken apart."""

    __slots__ = ("parts",)

    def __init__(self, parts):
        self.parts = parts

    def __reduce_ex__(self, protocol):
        return self.parts


def rebuild_bytes(data, readonly):
    """A storage of this process with these bytes."""
    storage = _cowshed.new(len(data))
    if not data:
        return storage
    with memoryview(storage) as view:
        view[:] = data
    return storage.clone(readonly=True) if readonly else storage


def _reduce_storage(storage):
    # For files and pipes of other people: bytes.
    return rebuild_bytes, (bytes(storage), bool(storage.readonly))


copyreg.pickle(_cowshed.Storage, _reduce_storage)
