# SPDX-License-Identifier: MIT
"""Managers, with the types that multiprocessing.managers has."""

from collections.abc import Iterable
from typing import Any

from multiprocessing.managers import BaseManager as BaseManager
from multiprocessing.managers import BaseProxy as BaseProxy
from multiprocessing.managers import DictProxy as DictProxy
from multiprocessing.managers import ListProxy as ListProxy
from multiprocessing.managers import SyncManager as SyncManager
from multiprocessing.managers import Token as Token
from multiprocessing.managers import ValueProxy as ValueProxy

from . import shared_memory

class SharedMemoryManager(BaseManager):
    def SharedMemory(self, size: int) -> shared_memory.SharedMemory: ...
    def ShareableList(
        self, sequence: Iterable[Any] | None
    ) -> shared_memory.ShareableList[Any]: ...

class NamespaceProxy(BaseProxy):
    def __getattr__(self, key: str) -> Any: ...
    def __setattr__(self, key: str, value: Any) -> None: ...
    def __delattr__(self, key: str) -> None: ...

def AutoProxy(
    token: Token,
    serializer: str,
    manager: BaseManager | None = None,
    authkey: bytes | None = None,
    exposed: tuple[str, ...] | None = None,
    incref: bool = True,
    manager_owned: bool = False,
) -> Any: ...
