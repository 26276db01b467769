# SPDX-License-Identifier: MIT
"""The types of multiprocessing, for type checkers: the module itself is made at run time."""

from multiprocessing import context as _context
from multiprocessing import Array as Array
from multiprocessing import AuthenticationError as AuthenticationError
from multiprocessing import Barrier as Barrier
from multiprocessing import BoundedSemaphore as BoundedSemaphore
from multiprocessing import BufferTooShort as BufferTooShort
from multiprocessing import Condition as Condition
from multiprocessing import Event as Event
from multiprocessing import JoinableQueue as JoinableQueue
from multiprocessing import Lock as Lock
from multiprocessing import Manager as Manager
from multiprocessing import Pipe as Pipe
from multiprocessing import Pool as Pool
from multiprocessing import Process as Process
from multiprocessing import ProcessError as ProcessError
from multiprocessing import Queue as Queue
from multiprocessing import RLock as RLock
from multiprocessing import RawArray as RawArray
from multiprocessing import RawValue as RawValue
from multiprocessing import Semaphore as Semaphore
from multiprocessing import SimpleQueue as SimpleQueue
from multiprocessing import TimeoutError as TimeoutError
from multiprocessing import Value as Value
from multiprocessing import active_children as active_children
from multiprocessing import allow_connection_pickling as allow_connection_pickling
from multiprocessing import cpu_count as cpu_count
from multiprocessing import current_process as current_process
from multiprocessing import freeze_support as freeze_support
from multiprocessing import get_all_start_methods as get_all_start_methods
from multiprocessing import get_logger as get_logger
from multiprocessing import get_start_method as get_start_method
from multiprocessing import log_to_stderr as log_to_stderr
from multiprocessing import parent_process as parent_process
from multiprocessing import reducer as reducer
from multiprocessing import set_executable as set_executable
from multiprocessing import set_forkserver_preload as set_forkserver_preload
from multiprocessing import set_start_method as set_start_method
from typing import Literal, overload

from .._memory._family import get_sharing_mode as get_sharing_mode
from .._memory._family import set_sharing_mode as set_sharing_mode
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

def install() -> None: ...
def uninstall() -> None: ...

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
