# SPDX-License-Identifier: MIT
"""Managers, with the types that multiprocessing.managers has."""

from typing import Any

from multiprocessing.managers import BaseManager as BaseManager
from multiprocessing.managers import BaseProxy as BaseProxy
from multiprocessing.managers import DictProxy as DictProxy
from multiprocessing.managers import ListProxy as ListProxy
from multiprocessing.managers import SharedMemoryManager as SharedMemoryManager
from multiprocessing.managers import SyncManager as SyncManager
from multiprocessing.managers import Token as Token
from multiprocessing.managers import ValueProxy as ValueProxy

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
