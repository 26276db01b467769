# SPDX-License-Identifier: MIT
"""Snapshots for torch.distributed.checkpoint.async_save()."""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint.staging import AsyncStager

from .._states._snapshot import Snapshot


class Stager(AsyncStager):
    """Gives async_save() a snapshot of the state, instead of a copy.

        stager = cowshed.torch.Stager()
        saving = torch.distributed.checkpoint.async_save(
            state, checkpoint_id=folder, async_stager=stager)

    Tensors in storages are cloned without a copy; all others are copied (cowshed.snapshot()). Keep
    one stager for all saves, or make a new one for each. limit: see cowshed.snapshot().

    It is for async_save() with threads. With AsyncCheckpointerType.PROCESS PyTorch sends the state
    to another process, and after cowshed.torch.install() that sends handles.
    """

    _synchronize_after_execute = False  # stage() is complete when it returns

    def __init__(self, *, limit: int | None = None):
        self._limit = limit

    def stage(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        return Snapshot(state_dict, limit=self._limit).state

    def synchronize_staging(self) -> None:
        """Nothing: stage() is complete when it returns."""

    def close(self) -> None:
        """Nothing: a snapshot is freed with the last reference to it."""
