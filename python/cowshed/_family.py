# SPDX-License-Identifier: MIT
"""The processes that share, and how they do.

A program and the processes it starts are a *group*: they trust each other, and their
storages lie together in a few memfds (include/cowshed-share.h). There is one for each
program, made when it is first needed, inherited by fork() and handed to spawned
processes. Where the system has no /proc there is none, and each storage that is sent has
a descriptor of its own.

The *sharing mode* says what a receiver gets of an array that was not made with share():
`clone`, its own copy of the moment of sending, as with plain multiprocessing; or `alias`,
memory that several processes write: of a tensor the sender's own, as with
torch.multiprocessing, of an array a copy that was made for the message.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from typing import Literal

from . import _cowshed

Mode = Literal["clone", "alias"]

_MODES = {"alias": _cowshed.ALIAS, "clone": _cowshed.CLONE}

# What is short may be there the next time.
_PASSES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}

_lock = threading.RLock()  # the handler of a signal may come while its thread has it
_group = None
_denied = False
_mode = "clone"


def group():
    """The group of this program, or None if there can't be one, for now or at all."""
    global _group, _denied
    with _lock:
        if _group is None and not _denied:
            try:
                made = _cowshed.Group()
                _group = _group or made  # maybe of a handler, meanwhile
            except OSError as error:
                _denied = error.errno not in _PASSES
        return _group


def known():
    """The group if there is one already."""
    return _group


def join(fd):
    """Becomes a member of the parent's group. `fd` stays the caller's. Returns whether it did."""
    global _group
    with _lock:
        if _group is None:
            try:
                joined = _cowshed.Group(fd)
                _group = _group or joined
            except OSError:
                return False
        return True


def adopt(members):
    """Becomes a member of a group that was offered, if there was none until now."""
    global _group
    with _lock:
        if _group is None and members is not None:
            _group = members


def set_sharing_mode(mode: Mode) -> None:
    """What receivers get of arrays from now on, in this process: "clone" or "alias".

    clone: their own bytes, copied page by page when either side writes them. alias: what is made
    by empty() and the like from now on is shared, as by share(), and tensors are moved to shared
    memory when they are sent. Other arrays are copied once for each message, into memory that
    its receivers share; the sender's stays as it is. Frozen arrays are sent as such, and what
    share() made is an alias, in either mode; a file that is mapped "r+" is sent as the file.
    """
    global _mode
    if mode not in _MODES:
        raise ValueError(f"sharing mode {mode!r}: there are 'clone' and 'alias'")
    _mode = mode


@contextlib.contextmanager
def sharing_mode(mode: Mode) -> Iterator[None]:
    """set_sharing_mode() for the statements of a with, in this process: for all its threads."""
    before = _mode
    set_sharing_mode(mode)
    try:
        yield
    finally:
        set_sharing_mode(before)


def get_sharing_mode() -> Mode:
    """"clone" (the default) or "alias"."""
    return _mode


def mode_number():
    return _MODES[_mode]


def alias_storage(nbytes):
    """A storage that this program's processes write in place, zeros: in the group's memory, or
    in a memfd of its own."""
    members = group()
    if members is not None:
        return members.storage(nbytes, _cowshed.ALIAS)
    storage = _cowshed.new(nbytes, zero=True, tracked=True)
    if nbytes:
        fd, _ = storage.export(_cowshed.ALIAS)
        os.close(fd)
    return storage


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
