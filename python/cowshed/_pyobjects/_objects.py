# SPDX-License-Identifier: MIT
"""freeze_objects(): Python objects that forked children read without writing their pages.

A child of fork() shares the memory of its parent until one of them writes. But reading a Python
object writes its reference count, and the garbage collector writes to all that it looks at. So a
child that only reads a list of dicts copies all of it, page by page. The reference counts of
immortal objects (PEP 683) are never written.

The extension module finds and freezes the objects (python/_cowshed/freeze.c). It runs no Python
code meanwhile. So this file first looks for what only Python code can find: the local variables
of functions that run, and the elements of NumPy's arrays of objects.
"""

from __future__ import annotations

import datetime
import gc
import sys
import threading
import types
from typing import NamedTuple

from .. import _cowshed
from .._memory._names import keep

__name__ = keep(__name__)

# Types that the collector does not know, and their attributes that are objects of the program.
_HELD = {
    types.CodeType: ("co_consts", "co_names", "co_filename", "co_name", "co_qualname",
                     "co_linetable", "co_exceptiontable"),
    range: ("start", "stop", "step"),
    datetime.date: (),
    datetime.time: ("tzinfo",),
    datetime.datetime: ("tzinfo",),
}

_ROUNDS = 8  # arrays of objects in arrays of objects


class FrozenObjects(NamedTuple):
    """What freeze_objects() did."""

    #: Objects that it froze. Objects that were frozen before do not count.
    objects: int
    #: Their bytes, as sys.getsizeof() has them.
    bytes: int
    #: Containers that keep their reference counts, such as open files and generators.
    left: int


def freeze_objects(*roots: object) -> FrozenObjects:
    """What is frozen is never freed. It makes objects immortal, for children that are forked later.

    roots: they are frozen, with all objects that can be reached from them. That includes classes
    and functions, but not the variables of the modules that they are in. Without roots, all
    objects of the program are frozen that are alive. A forked child then reads them without
    copying their pages: no reference count is written, the garbage collector does not look at
    them, and hashes of strings, bytes, dates and frozensets are computed already.

    Call it once, after the data was loaded and before the fork. It takes about a second for a
    million objects, and no other thread runs Python code meanwhile. Calling it again freezes what
    was added.

    Frozen objects work as before, in the parent and in children: they may be changed and dropped.
    But they stay in memory until the process ends. Weak references to them stay alive, and their
    callbacks are not called. Objects with a finalizer keep their reference counts, so that it runs:
    open files, generators, and objects with `__del__`. So do frames. What these refer to is frozen.

    Returns how many objects were frozen, their bytes, and how many containers were left.
    NotImplementedError: Python is older than 3.12, or newer than this version knows. pack() works
    with all of them. MemoryError: nothing was frozen.
    """
    _check()
    groups: list[list[object]] = [list(roots)]
    apart: list[object] = []
    if roots:
        apart += _variables_of_modules(roots)
    else:
        gc.collect()  # what is frozen as garbage stays
        groups += [[sys.modules], *_local_variables(sys._getframe().f_back)]
    _add_elements(groups, apart, not roots)
    return FrozenObjects(*_freeze(groups, apart, not roots))


def _check():
    """NotImplementedError if this Python can't."""
    try:
        _freeze([], [], False)
    except NotImplementedError as error:
        version = sys.version.split()[0]
        raise NotImplementedError(
            f"this Python is {version}, which {error}. freeze_objects() needs 3.12 or newer; "
            "cowshed.pack(sequence) works with any version") from None


def _freeze(groups, apart, everything, kind=None):
    return _cowshed.freeze_objects(groups, apart, everything, _HELD, types.FrameType, kind)


def _variables_of_modules(roots):
    """The dicts of all modules that are no roots."""
    own = [vars(x) for x in roots if isinstance(x, types.ModuleType)] + list(roots)
    own = set(map(id, own))
    modules = [x for x in list(sys.modules.values()) if isinstance(x, types.ModuleType)]
    return [variables for x in modules if id(variables := vars(x)) not in own]


def _local_variables(frame):
    """The local variables of all functions that run, a list for each; of this thread from `frame`
    on. No list may have a frame of this file, or it would stay with all that the frame has."""
    frames = sys._current_frames()
    frames[threading.get_ident()] = frame
    found = []
    for at in frames.values():
        while at is not None:
            found.append(list(at.f_locals.values()))
            at = at.f_back
    return found


def _add_elements(groups, apart, everything):
    """Adds the elements of all arrays of objects that can be reached."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    known = set()
    for _ in range(_ROUNDS):
        arrays = [x for x in _freeze(groups, apart, everything, numpy.ndarray)
                  if x.dtype.hasobject and id(x) not in known]
        if not arrays:
            return
        known.update(map(id, arrays))
        for array in arrays:
            _add_array(groups, array)


def _add_array(groups, x):
    if x.dtype.names is not None:
        for name in x.dtype.names:
            if x.dtype[name].hasobject:
                _add_array(groups, x[name])
    elif x.dtype == object:
        groups.append(list(x.flat))
