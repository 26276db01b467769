# SPDX-License-Identifier: MIT
"""Snapshots and checkpoints: a state of this moment, read and saved while the program goes on.

A state is what training keeps: dicts, lists and tuples of arrays, tensors and plain values. A
snapshot treats its bytes in three ways:

    in a storage of the engine      The storage is cloned, once for all arrays in it.
    in a storage that was written   The engine can share only pages that lie in its files. A write
    beside an earlier clone         to a cloned page makes a page that does not. These pages are
                                    copied; if they are most of a storage, all of it is.
    small, foreign, mapped, or      The bytes are copied. Small ones are copied together, so a
    shared with other processes     thousand of them are one piece of memory.

Snapshot.copied_bytes tells how many bytes were copied. If a program rewrites all of the state
between two snapshots, checkpoint() is the better way: a forked process has the bytes of the
moment. But mapped files and memory of several processes stay shared with the forked process. So
checkpoint() copies such bytes before the fork, also if the program mapped them itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._memory import _writes
from .._memory._copier import Copier
from .._memory._names import keep
from . import _saving
from ._for_fork import for_fork
from ._save import save

if TYPE_CHECKING:
    from .._memory._types import Format, Path, Writes

__name__ = keep(__name__)


class Snapshot:
    """The bytes of a state at the moment of the call. See snapshot().

    It frees its memory when the program has no reference to it or to arrays of its state.
    """

    def __init__(self, state: Any, *, limit: int | None = None, writes: Writes = "some",
                 _depth: int = 0):
        _writes.check(writes)
        copier = Copier(limit)
        copier.clone_all(state, writes, _depth + 1)
        #: Like the state of the program, on memory of its own. NumPy arrays are read-only.
        self.state: Any = copier.take(state)
        #: How many bytes were cloned without a copy.
        self.cloned_bytes: int = copier.cloned
        #: How many bytes the call copied.
        self.copied_bytes: int = copier.copied

    def __repr__(self) -> str:
        return f"<cowshed.Snapshot: {self.cloned_bytes} bytes cloned, {self.copied_bytes} copied>"

    def save(self, path: Path, *, format: Format | None = None,
             sync: bool = False) -> None:
        """Writes the state to a file, atomically. Formats and errors: see cowshed.save()."""
        save(path, self.state, format=format, sync=sync)

    def save_async(self, path: Path, *, format: Format | None = None, sync: bool = False,
                   process: bool = False, rate: float | None = None, nice: int = 0,
                   checksum: str | None = None) -> _saving.Saving:
        """Begins to write the state to a file, in a thread or (`process`) in a forked process.

        rate: bytes in a second at most; None: as fast as it can. nice: 1 to 19 gives the processors
        to others first (nice(2)). checksum: "crc32", or a name of hashlib as "sha256";
        Saving.checksum has it afterwards.

        Saving.wait() waits for the end. At its own end the program waits, too. ValueError: the
        format can't hold the state. Later errors are raised by wait(), also if the process is
        killed or runs out of memory; then the program goes on and the old file stays.
        """
        return _saving.start(path, self.state, format, sync, process, rate, nice, checksum)


def snapshot(state: Any, *, limit: int | None = None, writes: Writes = "some") -> Snapshot:
    """A state of this moment: arrays and tensors are cloned, and all else is copied.

    state: dicts, lists and tuples, nested to any depth, of arrays, tensors and plain values.
    copy.deepcopy() copies other objects. An array that occurs twice in the state occurs twice in
    the snapshot, and views of one memory stay views of one memory. Tensors are detached plain
    tensors; those of other devices become tensors on the CPU.

    Call it while no thread writes the state, because arrays are cloned one after the other. The
    call takes one clone of each storage, and a copy of the bytes that can't be cloned (see the
    head of this module). In other objects, as in a module, the tensors are cloned, too. An
    optimizer in the state has the parameters of the module in the state. While the
    snapshot lives, the kernel copies each page of the state at its first write, and the page takes
    memory twice.

    limit: so many bytes may belong to all snapshots that live, with this one: those that it would
    clone and those that it would copy, also the arrays in other objects. MemoryError: it would be
    exceeded; nothing was cloned or copied.

    writes: how much of the state will be rewritten while the snapshot lives, without a write
    intent. "some": as above. "all" copies the state's own bytes now, as write_intent(state) does
    after the call: by all processors and into huge pages, several times as fast as page by page.
    "auto" learns which of the two pays, for each storage and each place of the program that calls.
    With these two, what another thread writes to the state during the call may be lost.
    ValueError: other `writes`.
    """
    return Snapshot(state, limit=limit, writes=writes, _depth=1)


def checkpoint(state: Any, path: Path, *, format: Format | None = None, sync: bool = False,
               rate: float | None = None, nice: int = 0,
               checksum: str | None = None) -> _saving.Saving:
    """Writes the state of this moment to a file, in a forked process. Returns after the fork.

    state, path and format: see cowshed.save(). sync: True writes to the disk before the file gets
    its name. rate, nice, checksum: see Snapshot.save_async(). Saving.wait() waits for the end and
    raises errors of the child. ValueError: the format can't hold the state.

    The call takes as long as fork(), also for memory that the engine did not allocate, and at each
    repetition. Before the fork it copies mapped files and memory that is shared with other
    processes, since the child would see later writes to them. It also copies memory of other
    devices. While the child writes, the kernel copies each page of the state at its first write,
    and the page takes memory twice.

    Only arrays, tensors, and dicts, lists and tuples of these are searched for shared memory. In
    other objects, which .pt can hold, shared memory is written as it is when the child writes it.
    The child only writes and ends, so a program with threads may call this. For .npz and .pt the
    child runs code of NumPy and PyTorch.
    """
    return _saving.start(path, for_fork(state), format, sync, True, rate, nice, checksum)
