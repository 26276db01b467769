# SPDX-License-Identifier: MIT
"""Memory: where the bytes of objects lie, and arrays on storages. ../README.md has the files."""
