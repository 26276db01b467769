# SPDX-License-Identifier: MIT
"""The group of processes that share memory, and the sharing mode.

A program and the processes that it starts are a *group*. They trust each other, and their
storages lie together in a few memfds (include/cowshed-share.h). Each program has one group. It
is made at its first use, inherited by fork(), and handed to spawned processes. Without /proc
there is no group, and each storage that is sent has a descriptor of its own.

The *sharing mode* says what a receiver gets of an array that was not made by share():

    clone    its own copy of the moment of sending, as with plain multiprocessing
    alias    memory that several processes write. Of a tensor that is the sender's memory, as
             with torch.multiprocessing. Of an array it is a copy made for the message.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from typing import Literal

from .. import _cowshed
from ._names import keep

__name__ = keep(__name__)

Mode = Literal["clone", "alias"]

_MODES = {"alias": _cowshed.ALIAS, "clone": _cowshed.CLONE}

# Errors that may pass: the next call tries again.
_PASSES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}

_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_group = None
_denied = False
_mode = "clone"
#: Whether each alias lies in a memfd of its own, which the standard multiprocessing can send.
lone = False


def group():
    """The group of this program, made at the first call. None: it can't be made.

    The call after an error that may pass (no descriptors, no memory) tries again.
    """
    global _group, _denied
    with _lock:
        if _group is None and not _denied:
            try:
                made = _cowshed.Group()
                _group = _group or made  # a signal handler may have made one meanwhile
            except OSError as error:
                _denied = error.errno not in _PASSES
        return _group


def known():
    """The group, or None if this program has made none yet."""
    return _group


def join(fd):
    """Joins the group of a descriptor, which stays the caller's. Returns whether there is one.

    Does nothing if this process has a group already.
    """
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
    """Makes `members` the group of this process, unless it has one or `members` is None."""
    global _group
    with _lock:
        if _group is None and members is not None:
            _group = members


def set_sharing_mode(mode: Mode) -> None:
    """Sets what receivers get of arrays that this process sends: "clone" or "alias".

    clone: receivers get their own bytes. The kernel copies a page when either side writes it.

    alias: empty() and the like make shared arrays from this call on, as share() does. Tensors
    move to shared memory when they are sent. Other arrays are copied once for each message, into
    memory that its receivers share; the sender's array stays as it is.

    In both modes frozen arrays are sent as frozen, arrays of share() as aliases, and files that
    are mapped "r+" as the file. The mode is the process's: for all threads, and for children that
    start later.
    """
    global _mode
    if mode not in _MODES:
        raise ValueError(f"sharing mode {mode!r} does not exist: pass 'clone' or 'alias'")
    _mode = mode


@contextlib.contextmanager
def sharing_mode(mode: Mode) -> Iterator[None]:
    """A context manager: set_sharing_mode() for the statements of a `with`.

    The mode is set for all threads of this process.
    """
    before = _mode
    set_sharing_mode(mode)
    try:
        yield
    finally:
        set_sharing_mode(before)


def get_sharing_mode() -> Mode:
    """The sharing mode of this process: "clone" (the default) or "alias"."""
    return _mode


def mode_number():
    """The sharing mode as the number of the extension module: CLONE or ALIAS."""
    return _MODES[_mode]


def alias_storage(nbytes):
    """A storage of zeros that all processes of this program write in place.

    It lies in the group's memory, or without a group in a memfd of its own.
    """
    members = None if lone else group()
    if members is not None:
        return members.storage(nbytes, _cowshed.ALIAS)
    return lone_alias(nbytes)


def lone_alias(nbytes):
    """A storage of zeros in a memfd of its own, which several processes write in place."""
    if not nbytes:
        return _cowshed.new(0)
    fd = _new_memfd()
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return _cowshed.import_fd(fd, 0, nbytes, _cowshed.ALIAS)
    finally:
        os.close(fd)


_MFD_NOEXEC_SEAL = 8  # since Linux 6.3; a system may demand it (vm.memfd_noexec)


def _new_memfd():
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("cowshed-storage", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("cowshed-storage", flags)


def _after_fork():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
