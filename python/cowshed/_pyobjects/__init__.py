# SPDX-License-Identifier: MIT
"""Python objects: frozen, pickled with storages beside them, packed. ../README.md has the files."""
