# SPDX-License-Identifier: MIT
"""multiprocessing.shared_memory on memfds: nothing is left when its processes are gone.

    from cowshed.multiprocessing.shared_memory import SharedMemory

    block = SharedMemory(create=True, size=1 << 20)
    queue.put(block)                     # by handle: the receiver has the same memory

SharedMemory, ShareableList and SharedMemoryManager have the interface of the standard library. The
memory is freed with the last process that has it, however the processes end. No process tracks it.

In messages of cowshed.multiprocessing a block travels by handle. A name is for programs that have
no such message. The name is that of an item at the user's broker (`cowshed broker`), which is
started when the first name is asked for. So blocks that travel by handle need no broker. A name
lives until unlink(), and no longer than the process that made it: the broker drops the names of a
process that ends. The manager of SharedMemoryManager keeps the names that it gave.

set_names("standard") makes later blocks those of the standard library: files in /dev/shm, which
other programs can open by name, and which stay until unlink(). No process tracks these, too.
"""

import contextlib
import errno
import os
import threading
from multiprocessing import shared_memory as _standard

from .. import _cowshed
from .._memory import _family, _reducers
from . import _process, _rebound, _strategy

__all__ = ["ShareableList", "SharedMemory", "get_names", "set_names"]

_names = "broker"
_lock = threading.RLock()  # a signal handler may run in the thread that holds it
_forks = 0  # how often this process has forked, or was forked


def get_names():
    """Where the names of new blocks are: "broker" (the default) or "standard"."""
    return _names


def set_names(names):
    """Sets where the names are of blocks that this process makes, or attaches to, from now on.

    broker: at the user's broker; the memory goes with its processes. standard: in /dev/shm, as
    those of multiprocessing.shared_memory; the memory stays until unlink(). Processes that are
    started later inherit it. ValueError: another word.
    """
    global _names
    if names not in _KINDS:
        raise ValueError(f"names is {names!r}: pass 'broker' or 'standard'")
    _names = names
    with contextlib.suppress(ValueError):
        _process.first.remove(_use_standard_names)
    if names == "standard":
        _process.first.append(_use_standard_names)


def _use_standard_names():
    set_names("standard")


# ---- What is behind a SharedMemory ------------------------------------------------------------


class _NoTracker:
    """In place of the resource tracker: the program unlinks its blocks itself."""

    @staticmethod
    def register(name, kind):
        pass

    unregister = register


def _close_silently(self):
    try:
        self.close()
    except Exception:  # an array on the memory keeps it, or the interpreter ends
        pass


_File = _rebound.subclass(_standard.SharedMemory,
                          {**vars(_standard), "resource_tracker": _NoTracker}, __name__,
                          __del__=_close_silently)


def _open_file(name, size, exclusive, mode):
    file = _File.__new__(_File)
    file._mode = mode
    file.__init__(name, exclusive, size)
    return file


# Where the name of a block is: nowhere, since it was made up and nobody asked for it; at the
# broker; or nowhere any more.
_MADE_UP, _PUT, _UNLINKED = range(3)


class _Block:
    """A storage in a memfd, and its name."""

    def __init__(self, storage, key, state, mode=0o600):
        self.storage, self.key, self.state, self.mode = storage, key, state, mode
        self.buf, self.size = memoryview(storage), storage.nbytes
        self.travelled = False  # does another process have the block by handle?
        self.forks = _forks  # if there are more by now, one may have a copy of this object
        self.kept = False  # does this process keep the memory for the broker?

    @property
    def name(self):
        while self.state == _MADE_UP and self.storage is not None:
            try:
                self.put()
            except FileExistsError:
                self.key = _made_up()
        return self.key

    def put(self):
        with _lock:
            _strategy.broker().put(self.storage, self.key, _cowshed.ALIAS, self.mode,
                                   _cowshed.EPHEMERAL)
            self.state, self.kept = _PUT, True

    def is_gone(self):
        """Whether its memory was freed: closed, and no other process or the broker got it."""
        return self.storage is None and self.state == _MADE_UP and \
            not self.travelled and self.forks == _forks

    def close(self):
        # The view is not released: torch.frombuffer() keeps the view, and not its memory.
        with _lock:
            self.buf = self.storage = None
            kept, self.kept = self.kept, False
        if kept:
            # From here on the broker alone keeps the memory for the name. An error: it was
            # dropped, or is that of a forked child.
            with contextlib.suppress(OSError):
                _strategy.broker().release(self.key)

    def unlink(self):
        with _lock:
            state, self.state = self.state, _UNLINKED
        if state == _UNLINKED:
            raise _missing(self.key)
        if state == _MADE_UP and not self.travelled and self.forks == _forks:
            return  # nobody else can have put it
        try:
            _strategy.broker(start=False).drop(self.key)
        except FileNotFoundError:
            if state == _PUT:
                raise _missing(self.key) from None
        except OSError:
            self.state = state
            raise


def _made_up():
    return _standard._make_filename().removeprefix("/")


def _missing(key):
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)


def _open_block(name, size, exclusive, mode):
    if name is None:
        return _Block(_family.lone_alias(size), _made_up(), _MADE_UP, mode)
    key = name.removeprefix("/")
    if exclusive:
        block = _Block(_family.lone_alias(size), key, _MADE_UP, mode)
        try:
            block.put()
        except FileExistsError as error:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key) from error
        return block
    try:
        storage = _strategy.broker(start=False).get(key)
    except FileNotFoundError:
        raise _missing(key) from None
    if storage.kind != "alias":
        raise ValueError(f"the broker has {key!r}, but it is no shared memory: it was put there as "
                         "a copy")
    return _Block(storage, key, _PUT, mode)


_KINDS = {"broker": _open_block, "standard": _open_file}


# ---- The classes of the standard library -------------------------------------------------------


class SharedMemory:
    """A block of memory that several processes write: see multiprocessing.shared_memory.

    name: of a block to attach to, or of a new one; at most 63 bytes. None with create=True: a name
    is made up, and the broker gets it when it is first asked for. size: of a new block, in bytes.
    track: accepted, since the standard class has it; there is no tracker.

    FileNotFoundError: no block has the name. FileExistsError: create=True, and one has it.
    ValueError: a size below 1, no name to attach to, or a name that none can have. OSError: the
    broker can't be started, or does not answer.
    """

    _flags = os.O_RDWR
    _mode = 0o600
    _block = None

    def __init__(self, name=None, create=False, size=0, *, track=True):
        if not size >= 0:
            raise ValueError(f"size is {size}: pass a positive number")
        if create and not size:
            raise ValueError("size is 0: pass the size of the new block in bytes")
        if create:
            self._flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
        exclusive = bool(self._flags & os.O_EXCL)
        if name is None and not exclusive:
            raise ValueError("name is None: pass the name of a block, or create=True")
        self._block = _KINDS[_names](name, size, exclusive, self._mode)

    @property
    def name(self):
        """The name, by which other processes can attach to the block."""
        return self._block.name

    @property
    def _name(self):
        return "/" + self.name

    @property
    def buf(self):
        """A memoryview of the block. None: it was closed."""
        return self._block.buf

    @property
    def size(self):
        """The size in bytes."""
        return self._block.size

    def close(self):
        """Gives up the memory. Other processes keep it, and it keeps its name.

        Arrays and memoryviews on `buf` keep the memory until they are gone, too. BufferError: a
        call of other code is at work on `buf`.
        """
        if self._block is not None:
            self._block.close()

    def unlink(self):
        """Removes the name. The memory is freed when the last process has closed the block.

        FileNotFoundError: it has no name any more.
        """
        self._block.unlink()

    __del__ = _close_silently

    def __reduce__(self):
        names = "broker" if isinstance(self._block, _Block) else "standard"
        if names == "broker" and self._block.is_gone():
            raise ValueError(f"the block {self._block.key!r} is closed, and nobody else has its "
                             "memory: send it before close()")
        return _attach, (self.__class__, self.name, names)

    def __repr__(self):
        key = self._block.key if isinstance(self._block, _Block) else self.name
        return f"{self.__class__.__name__}({key!r}, size={self.size})"


def _attach(cls, name, names):
    """The SharedMemory of a plain pickle."""
    return _with_block(cls, _KINDS[names](name, 0, False, cls._mode))


def _with_block(cls, block):
    new = cls.__new__(cls)
    new._block = block
    return new


def _given(name, create=False, size=0):
    """In the code of ShareableList: a name may be the block itself."""
    return name if isinstance(name, SharedMemory) else SharedMemory(name, create, size)


ShareableList = _rebound.subclass(_standard.ShareableList,
                                  {**vars(_standard), "SharedMemory": _given}, __name__)


# ---- Messages ----------------------------------------------------------------------------------


def _reduce_block(x):
    block = x._block
    if not isinstance(block, _Block) or block.storage is None or (
            type(x).__reduce__ is not SharedMemory.__reduce__):
        return NotImplemented
    block.travelled = True
    return _receive, (type(x), block.storage, block.key, block.state, block.mode)


def _receive(cls, storage, key, state, mode):
    block = _Block(storage, key, state, mode)
    block.travelled = True
    return _with_block(cls, block)


def _reduce_list(x):
    if type(x).__reduce__ is not ShareableList.__reduce__:
        return NotImplemented
    return _receive_list, (type(x), x.shm)


def _receive_list(cls, block):
    return cls(name=block)


_reducers.register(SharedMemory, _reduce_block)
_reducers.register(ShareableList, _reduce_list)


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})


def _after_fork_in_parent():
    global _forks
    _forks += 1


def _after_fork():
    global _lock
    _lock = threading.RLock()
    _after_fork_in_parent()


os.register_at_fork(after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
