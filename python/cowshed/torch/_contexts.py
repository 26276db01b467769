# SPDX-License-Identifier: MIT
"""What torch.multiprocessing is made of while install() is in force.

The contexts are those of cowshed.multiprocessing. The start method stays the one that
multiprocessing.set_start_method() says, which torch.multiprocessing's function is, too.
"""

from multiprocessing import context as _standard

from ..multiprocessing import _contexts, _process

# What differs from the standard library's in torch.multiprocessing.
NAMES = ("JoinableQueue", "Manager", "Pipe", "Pool", "Process", "Queue", "SimpleQueue",
         "get_context")


class Process(_process.Arguments, _standard.Process):
    """A process that is started as multiprocessing.set_start_method() says."""

    @staticmethod
    def _Popen(process_obj):
        return default.get_context().Process._Popen(process_obj)


class DefaultContext(_contexts.DefaultContext):
    """The context of torch.multiprocessing's own functions."""

    Process = Process

    def get_context(self, method=None):
        """The context of a start method; None: of the standard library's."""
        if method is None:
            method = _standard._default_context.get_start_method()
        return super().get_context(method)

    def get_start_method(self, allow_none=False):
        """The standard library's."""
        return _standard._default_context.get_start_method(allow_none)

    def set_start_method(self, method, force=False):
        """The standard library's."""
        _standard._default_context.set_start_method(method, force)


default = DefaultContext(_contexts.default._default_context)


def ours(context):
    """The context of ours that a program means by a standard one; others are left alone."""
    if context is _standard._default_context:
        return default
    for method, standard in _standard._concrete_contexts.items():
        if context is standard:
            return _contexts.default.get_context(method)
    return context
