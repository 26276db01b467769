# SPDX-License-Identifier: MIT
"""The standard library's classes, over connections of ours.

What a queue or a manager does beside pickling and sending (threads, locks, exceptions, what
happens at exit) is the standard library's, of whatever version is there, and stays its:
a class made here is a subclass of the standard one in which the same code runs with other
globals, those in which `connection`, `_ForkingPickler` and the like are ours.
"""

import types


def _function(f, namespace):
    bound = types.FunctionType(f.__code__, namespace, f.__name__, f.__defaults__, f.__closure__)
    bound.__kwdefaults__ = f.__kwdefaults__
    bound.__doc__ = f.__doc__
    bound.__qualname__ = f.__qualname__
    return bound


def rebound(x, namespace):
    """A function, or what a class has under a name, with other globals."""
    if isinstance(x, types.FunctionType):
        return _function(x, namespace)
    if isinstance(getattr(x, "__func__", None), types.FunctionType):  # static and class methods
        return type(x)(_function(x.__func__, namespace))
    return x


def subclass(standard, namespace, module, *bases, **more):
    """A subclass of a standard class whose methods have other globals.

    bases: of ours, for those that the standard class has. more: further attributes. The class
    is entered in the namespace, where the rebound code looks for itself.
    """
    members = {
        name: rebound(x, namespace)
        for name, x in vars(standard).items()
        if rebound(x, namespace) is not x
    }
    members.update(__module__=module, __doc__=standard.__doc__, **more)
    cls = type(standard.__name__, (standard, *bases), members)
    namespace[standard.__name__] = cls
    return cls
