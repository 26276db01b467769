# SPDX-License-Identifier: MIT
"""Checkpoints of a loop: one every so many steps, the last ones kept."""

from __future__ import annotations

import operator
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from .._memory import _writes
from .._memory._names import keep
from . import _pace, _save, _saving
from ._snapshot import Snapshot, checkpoint

if TYPE_CHECKING:
    from types import TracebackType

    from .._memory._types import Format, Path, Writes

__name__ = keep(__name__)

_STEP = "{step}"


class Checkpointer:
    """Saves a state every so many steps, while the loop goes on.

        with cowshed.Checkpointer("run/{step}.safetensors", state, every=100, keep=3) as saver:
            for batch in loader:
                train(batch)
                saver.step()

    path: the files' name, with "{step}" for the number of the step; format: see cowshed.save().
    state: the state, or a function that returns it, as model.state_dict. every: saves at each step
    whose number is a multiple of it. keep: so many files stay, up to the number of the last step;
    older ones are removed when a newer one is complete, also those of an earlier run. Files of
    higher numbers, which an earlier run left, stay. None keeps all.

    One file is written at a time: a step that is to save waits until the last file is written. So
    the memory of one snapshot is the most that is in use. skip: True leaves such a step out
    instead. limit, writes: see snapshot(). process, rate, nice, checksum and sync: see
    Snapshot.save_async().

    At the end of the block the last file is complete. An error of a file is raised by the next step
    that saves, or at the end of the block. The methods are for one thread.

    ValueError: "{step}" is missing though files are to be kept, or another argument makes no sense.
    """

    def __init__(self, path: Path, state: Any, *, every: int = 1, keep: int | None = None,
                 skip: bool = False, limit: int | None = None, writes: Writes = "some",
                 format: Format | None = None, sync: bool = False, process: bool = False,
                 rate: float | None = None, nice: int = 0, checksum: str | None = None):
        path = os.fsdecode(path)
        every, keep = operator.index(every), None if keep is None else operator.index(keep)
        if every < 1 or (keep is not None and keep < 1):
            raise ValueError(f"every is {every} and keep is {keep}: pass 1 or more")
        if _STEP in os.path.dirname(path):
            raise ValueError(f"{path} has {_STEP} in a folder's name: put it in the file's")
        if path.count(_STEP) != 1 and (keep is not None or _STEP in path):
            raise ValueError(f"{path} must have {_STEP} once, so that its files can be told apart")
        _writes.check(writes)
        if process and (limit is not None or writes != "some"):
            raise ValueError("limit and writes are for snapshots, and process=True makes none: "
                             "drop them")
        _save.format_of(path, format)
        _pace.Pace(0, rate, nice, checksum)
        self._folder, self._name = os.path.split(os.path.abspath(path))
        self._state, self._every, self._keep, self._skip = state, every, keep, skip
        self._limit, self._writes, self._process = limit, writes, process
        self._how = dict(format=format, sync=sync, rate=rate, nice=nice, checksum=checksum)
        #: The number of the last step; set it when a run is resumed.
        self.steps: int = 0
        #: The saving that was begun last, or None.
        self.saving: _saving.Saving | None = None

    def step(self) -> bool:
        """Counts a step, and saves if its number is a multiple of `every`. Whether it saves."""
        self.steps += 1
        return self.steps % self._every == 0 and self.save()

    def save(self) -> bool:
        """Saves now, under the number of the last step. False: `skip`, and a file is written."""
        if self._skip and self.saving is not None and not self.saving.done():
            return False
        self.wait()
        state = self._state() if _is_function(self._state) else self._state
        path = self._file(self.steps)
        if self._process:
            self.saving = checkpoint(state, path, **self._how)
        else:
            self.saving = Snapshot(state, limit=self._limit, writes=self._writes).save_async(
                path, **self._how)
        return True

    def wait(self) -> None:
        """Waits until the last file is complete, and removes those that are not kept."""
        if self.saving is None:
            return
        try:
            self.saving.wait()
            self._remove_old()
        finally:  # after an interruption it is still there
            if self.saving.done():
                self.saving = None

    def latest(self) -> str | None:
        """The complete file of the highest number, of any run, or None: where to resume."""
        numbers = self._numbers()
        return self._file(numbers[-1]) if numbers else None

    def _file(self, number):
        return os.path.join(self._folder, self._name.replace(_STEP, str(number)))

    def _numbers(self):
        """The numbers of the files that are there, in order."""
        if _STEP not in self._name:
            return [self.steps] if os.path.isfile(self._file(self.steps)) else []
        head, _, tail = self._name.partition(_STEP)
        form = re.compile(re.escape(head) + "(0|[1-9][0-9]*)" + re.escape(tail))
        try:
            with os.scandir(self._folder) as entries:
                return sorted(int(found[1]) for entry in entries
                              if (found := form.fullmatch(entry.name)) and entry.is_file())
        except FileNotFoundError:
            return []

    def _remove_old(self):
        if self._keep is None:
            return
        ours = [number for number in self._numbers() if number <= self.steps]
        for number in ours[: -self._keep]:
            try:
                os.unlink(self._file(number))
            except FileNotFoundError:  # another process removed it
                pass

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as last:
            if error is None:
                raise
            error.add_note(f"and the last checkpoint failed: {last}")


def _is_function(state):
    """Whether the state is to be asked for. A module of PyTorch can be called, too."""
    torch = sys.modules.get("torch")
    return callable(state) and not (torch is not None and isinstance(state, torch.nn.Module))
