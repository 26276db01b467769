# SPDX-License-Identifier: MIT
"""Contexts: the standard ones, but with the queues, pipes and managers of this package."""

from functools import cache
from multiprocessing import context as _standard

from . import _process
from ._makes import Makes, contexts


class Process(_process.Arguments, _standard.Process):
    """A process that is started by the start method of the default context."""

    @staticmethod
    def _Popen(process_obj):
        return default.get_context().Process._Popen(process_obj)


class ForkContext(Makes, _standard.ForkContext):
    Process = _process.ForkProcess


class SpawnContext(Makes, _standard.SpawnContext):
    Process = _process.SpawnProcess


class ForkServerContext(Makes, _standard.ForkServerContext):
    Process = _process.ForkServerProcess


class DefaultContext(Makes, _standard.DefaultContext):
    """The context of the module's own functions: set_start_method() chooses its method."""

    Process = Process

    def get_context(self, method=None):
        if method is not None:
            return super().get_context(method)
        if self._actual_context is None:
            self._actual_context = self._default_context
        return self._actual_context


def _template():
    from .templates import context

    return context


def _default_template():
    from .templates import default

    return default()


contexts.update(fork=cache(ForkContext), spawn=cache(SpawnContext),
                forkserver=cache(ForkServerContext), template=_template)
# The default method depends on the version of Python.
default = DefaultContext(contexts[_standard._default_context._default_context._name]())
_process.default = default
_process.default_template = _default_template
