# SPDX-License-Identifier: MIT
"""A backend of joblib whose workers get large arrays by handle.

    import cowshed.joblib                     # registers the backend "cowshed"

    with joblib.parallel_config(backend="cowshed"):
        search.fit(x, y)                      # whatever uses joblib: scikit-learn, ...

It is joblib's own executor (loky), with two parts of cowshed. Tasks and results travel through
queues of cowshed.multiprocessing: arrays of 384 KiB and more by handle, in no file. Workers are
forks of a template, which has imported NumPy, pandas and scikit-learn, if the program has. So they
start in milliseconds, and import these no more.

A worker may write its arrays; nobody else sees that. An array that lies in no storage is copied
once for each call of Parallel, however many tasks have it. If a task of the call changes it in
the caller meanwhile, later tasks get the old bytes, as with joblib's own backend.

Functions need no `if __name__ == "__main__"`, as with loky: cloudpickle sends those of the main
module.
"""

try:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import LokyBackend

    if not hasattr(LokyBackend, "submit"):
        raise ImportError("an older joblib")
except ImportError as _error:
    raise ImportError("cowshed.joblib needs joblib 1.6 or newer: pip install 'joblib>=1.6'. "
                      f"({_error})") from _error

from ._backend import Backend

__all__ = ["Backend", "install"]


def install(default: bool = False) -> None:
    """Registers the backend "cowshed"; importing this module has done that.

    default: makes it the one that joblib uses where a program names none.
    """
    register_parallel_backend("cowshed", Backend, make_default=default)


install()
