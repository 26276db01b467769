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

from . import _cowshed

# Who registers reducers for what, when it is first met: nothing is imported before.
_LATE = {
    ("torch", "Tensor"): ".torch._reduce",
    ("torch.storage", "UntypedStorage"): ".torch._reduce",
    ("torch.storage", "TypedStorage"): ".torch._reduce",
}

_reducers = {}
_found = {}  # type -> reducer or None, of all types that were met


def register(type_, reduce):
    """`reduce(object)` takes objects of `type_` and its subclasses apart."""
    _reducers[type_] = reduce
    _found.clear()


def unregister(type_):
    """As if it had never been registered."""
    _reducers.pop(type_, None)
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
