# SPDX-License-Identifier: MIT
"""The names of modules in pickles: without the folder, as `cowshed._snapshot`.

A pickle names a class or a function by its module. Files and processes of another version of the
package know no folders, or other ones. So a module whose names are pickled keeps the name that it
had. The finder serves pickles.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

FOLDERS = "_memory", "_states", "_pyobjects"


def keep(name):
    """A module's name without the folder, for its `__name__`.

    sys.modules gets it when somebody asks for it, from the finder, which waits for the thread that
    is importing the module. An entry made here would show others half a module.
    """
    package, _, module = name.split(".")
    return f"{package}.{module}"


class _Finder:
    """Finds `cowshed._snapshot` in the folder that has it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == __package__.partition(".")[0] and module[:1] == "_" and "." not in module:
            for folder in FOLDERS:
                if find_spec(f"{package}.{folder}.{module}"):
                    return ModuleSpec(name, _Finder, loader_state=f"{package}.{folder}.{module}")
        return None

    @staticmethod
    def create_module(spec):
        return None  # an ordinary one, which exec_module() replaces

    @staticmethod
    def exec_module(module):
        name = module.__spec__.loader_state
        sys.modules[module.__name__] = importlib.import_module(name)


sys.meta_path.append(_Finder)
