# SPDX-License-Identifier: MIT
"""The standard library's classes, over connections of this package.

A queue or a manager does more than pickle and send: it has threads, locks, exceptions and steps
at exit. The installed version of the standard library does all of that. A class that is made here
is a subclass of the standard class. It runs the same code with other globals, in which
`connection`, `_ForkingPickler` and the like are those of this package.
"""

import types


def _function(f, namespace):
    bound = types.FunctionType(f.__code__, namespace, f.__name__, f.__defaults__, f.__closure__)
    bound.__kwdefaults__ = f.__kwdefaults__
    bound.__doc__ = f.__doc__
    bound.__qualname__ = f.__qualname__
    return bound


def rebound(x, namespace):
    """A function or a static or class method, with other globals. Other objects: unchanged."""
    if isinstance(x, types.FunctionType):
        return _function(x, namespace)
    if isinstance(getattr(x, "__func__", None), types.FunctionType):  # static and class methods
        return type(x)(_function(x.__func__, namespace))
    return x


def subclass(standard, namespace, module, *bases, **more):
    """A subclass of a standard class whose methods have other globals.

    bases: further base classes, made here for the bases of the standard class. more: further
    attributes. The class is entered in the namespace, where the rebound code finds it.
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
