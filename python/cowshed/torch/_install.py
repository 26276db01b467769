# SPDX-License-Identifier: MIT
"""torch.multiprocessing on cowshed: install() and uninstall().

PyTorch shares memory in three places. Each of them is replaced:

* `UntypedStorage`: Tensor, Module and the collate function of DataLoader's workers call its
  share_memory_(), is_shared() and _new_shared().
* `torch.multiprocessing`: its queues, pipes, pools, processes and contexts become those of
  cowshed.multiprocessing, which send tensors by handle.
* The reducer of tensors for a plain multiprocessing.Queue and for pipes of other libraries. Such a
  pipe carries bytes only. So the memory waits as a message in a socket, and Python's resource
  sharer hands over the descriptor of the socket. The sender must live until then. PyTorch itself
  does the same with files of /dev/shm.

Children that are spawned install it, too, before they run code of the program.

What rewrites much memory gives a write intent first: _optimizers, _inplace.

The modules of snapshots and of saving are imported, too. Else the first snapshot of a loop would
import them, and wait.
"""

import multiprocessing
import sys
import threading
import types
from multiprocessing import context, reduction

import torch
import torch.multiprocessing
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._memory._regions import Region
from .._states import _safetensors as _safetensors
from .._states import _snapshot as _snapshot
from ..multiprocessing import _connection, _process
from . import _contexts, _inplace, _optimizers, _reduce, _storages

_ABSENT = object()
_lock = threading.Lock()
_undo = []  # functions that take install() back, called from the last to the first


def install():
    """See cowshed.torch.install()."""
    with _lock:
        if _undo:
            return
        try:
            _install()
        except BaseException:
            _uninstall()
            raise


def uninstall():
    """See cowshed.torch.uninstall()."""
    with _lock:
        _uninstall()


def _set(owner, name, value):
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    if before is _ABSENT:
        _undo.append(lambda: delattr(owner, name))
    else:
        _undo.append(lambda: setattr(owner, name, before))


def _uninstall():
    while _undo:
        _undo.pop()()


def _install():
    _set(_reduce, "always_alias", True)
    _set(torch.UntypedStorage, "share_memory_", share_memory_)
    _set(torch.UntypedStorage, "is_shared", _storages.is_shared)
    _set(torch.UntypedStorage, "_new_shared", classmethod(_new_shared))
    for name in _contexts.NAMES:
        _set(torch.multiprocessing, name, getattr(_contexts.default, name))
    # The function of this name hides the module.
    spawn = sys.modules["torch.multiprocessing.spawn"]
    _set(spawn, "multiprocessing", types.SimpleNamespace(
        get_context=_contexts.default.get_context, connection=multiprocessing.connection))
    loader = torch.utils.data.DataLoader
    known = loader.multiprocessing_context
    _set(loader, "multiprocessing_context",
         property(known.fget, lambda self, value: known.fset(self, _contexts.ours(value))))
    handle = register_optimizer_step_pre_hook(_optimizers.before_step)
    _undo.append(handle.remove)
    for owner, name, hook in _inplace.hooks():
        _set(owner, name, hook)
        _undo.append(_inplace.tell_scripts(hook))
    _process.first.append(install)
    _undo.append(lambda: _process.first.remove(install))
    _register()


def _register():
    """Registers the reducer for plain multiprocessing."""
    reducers = reduction.ForkingPickler._extra_reducers
    before = reducers[torch.UntypedStorage]
    reducers[torch.UntypedStorage] = reduce_plainly
    _undo.append(lambda: reducers.__setitem__(torch.UntypedStorage, before))


# ---- PyTorch's storages ------------------------------------------------------------------


def share_memory_(self, *args, **kwargs):
    """As UntypedStorage.share_memory_(): moves the storage, with its views, to shared memory."""
    if self.device.type == "cpu":
        _storages.share(self)
        return self
    return torch.storage._StorageBase.share_memory_(self, *args, **kwargs)


def _new_shared(cls, size, *, device="cpu"):
    if torch.device(device).type == "cpu":
        return _storages.new_shared(size)
    return torch.storage._StorageBase._new_shared.__func__(cls, size, device=device)


# ---- Plain multiprocessing ---------------------------------------------------------------


def reduce_plainly(whole):
    """A PyTorch storage as a descriptor, for pipes of other libraries."""
    from torch.multiprocessing import reductions

    if whole.device.type != "cpu" or not whole.nbytes():
        return reductions.reduce_storage(whole)
    place = _storages.sendable(_storages.region(_storages.share(whole)))
    if place is None:  # PyTorch has shared it before
        return reductions.reduce_storage(whole)
    reader, writer = _connection.Pipe(duplex=False)
    with writer:
        writer.send(Region(place.storage, place.offset, whole.nbytes()))
    handle = reduction.DupFd(reader.fileno())
    popen = context.get_spawning_popen()
    if popen is None:
        reader.close()
    else:
        popen.cowshed_ends = [*getattr(popen, "cowshed_ends", ()), reader]
    return rebuild_plainly, (handle,)


def rebuild_plainly(handle):
    """The PyTorch storage of reduce_plainly(), in the receiver."""
    with _connection.Connection(handle.detach(), writable=False) as reader:
        return _reduce.rebuild_storage(reader.recv())
