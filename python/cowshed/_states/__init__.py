# SPDX-License-Identifier: MIT
"""States and files: opening, saving, snapshots, checkpoints. ../README.md has the files."""
