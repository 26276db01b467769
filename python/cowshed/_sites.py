# SPDX-License-Identifier: MIT
"""Call sites of clones and copies, for `cowshed profile`.

The command makes a file and names it in COWSHED_SITES. Each process maps the file, and the
extension module counts there (python/_cowshed/sites.c).
"""

import mmap
import os

from . import _cowshed


def begin(path):
    """Counts from now on. Does nothing if the file is gone, or is no such file."""
    try:
        with open(path, "r+b") as file:
            sites = mmap.mmap(file.fileno(), 0)
        _cowshed.count_sites(sites, os.path.dirname(os.path.abspath(__file__)) + os.sep)
    except (OSError, ValueError):
        return
