# SPDX-License-Identifier: MIT
"""The types of templates: see templates.py."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from multiprocessing.pool import Pool as StandardPool
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Literal

class TemplateProcess(BaseProcess):
    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = ...,
        *,
        daemon: bool | None = None,
        template: Template | None = None,
    ) -> None: ...
    @property
    def template(self) -> Template: ...

class _Makes(BaseContext):
    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> StandardPool: ...
    def Executor(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
    ) -> ProcessPoolExecutor: ...

class TemplateContext(_Makes):
    Process: type[TemplateProcess]
    def Template(
        self,
        setup: Callable[..., object] | str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        threads: Literal["error", "ignore"] = "error",
        shim: bool = True,
        main: bool = True,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Template: ...

class Template(_Makes):
    name: str
    def __init__(
        self,
        setup: Callable[..., object] | str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        threads: Literal["error", "ignore"] = "error",
        shim: bool = True,
        main: bool = True,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None: ...
    def Process(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = ...,
        *,
        daemon: bool | None = None,
    ) -> TemplateProcess: ...
    def reset(self, worker: BaseProcess) -> None: ...
    def is_alive(self) -> bool: ...
    @property
    def pid(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Template: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
