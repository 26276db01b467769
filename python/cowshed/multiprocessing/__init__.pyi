# SPDX-License-Identifier: MIT
"""The types of multiprocessing, for type checkers: the module itself is made at run time."""

from multiprocessing import *
from multiprocessing import context as _context
from typing import Literal, overload

from .._family import get_sharing_mode as get_sharing_mode
from .._family import set_sharing_mode as set_sharing_mode
from . import connection as connection
from . import managers as managers
from . import pool as pool
from . import queues as queues
from . import shared_memory as shared_memory
from . import sharedctypes as sharedctypes
from . import templates as templates
from ._strategy import get_all_sharing_strategies as get_all_sharing_strategies
from ._strategy import get_sharing_strategy as get_sharing_strategy
from ._strategy import set_sharing_strategy as set_sharing_strategy

@overload
def get_context(method: None = None) -> _context.DefaultContext: ...
@overload
def get_context(method: Literal["spawn"]) -> _context.SpawnContext: ...
@overload
def get_context(method: Literal["fork"]) -> _context.ForkContext: ...
@overload
def get_context(method: Literal["forkserver"]) -> _context.ForkServerContext: ...
@overload
def get_context(method: Literal["template"]) -> templates.TemplateContext: ...
@overload
def get_context(method: str) -> _context.BaseContext: ...
