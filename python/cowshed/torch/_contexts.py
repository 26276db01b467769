# SPDX-License-Identifier: MIT
"""The functions and contexts of torch.multiprocessing while install() is in force.

The contexts are those of cowshed.multiprocessing. The start method stays that of
multiprocessing.set_start_method(), which is torch.multiprocessing.set_start_method(), too.
"""

from multiprocessing import context as _standard

from ..multiprocessing import _contexts, _process

# The names of torch.multiprocessing that differ from the standard library's.
NAMES = ("JoinableQueue", "Manager", "Pipe", "Pool", "Process", "Queue", "SimpleQueue",
         "get_context")


class Process(_process.Arguments, _standard.Process):
    """A process that is started by the method of multiprocessing.set_start_method()."""

    @staticmethod
    def _Popen(process_obj):
        return default.get_context().Process._Popen(process_obj)


class DefaultContext(_contexts.DefaultContext):
    """The context of torch.multiprocessing's own functions."""

    Process = Process

    def get_context(self, method=None):
        """The context of a start method; None: of the method that multiprocessing uses."""
        if method is None:
            method = _standard._default_context.get_start_method()
        return super().get_context(method)

    def get_start_method(self, allow_none=False):
        """The start method of the standard library."""
        return _standard._default_context.get_start_method(allow_none)

    def set_start_method(self, method, force=False):
        """Sets the start method of the standard library."""
        _standard._default_context.set_start_method(method, force)


default = DefaultContext(_contexts.default._default_context)


def ours(context):
    """The context of this package for one of the standard library. Others are returned as is."""
    if context is _standard._default_context:
        return default
    for method, standard in _standard._concrete_contexts.items():
        if context is standard:
            return _contexts.default.get_context(method)
    return context
