# SPDX-License-Identifier: MIT
"""Managers, with the types of multiprocessing.managers."""

from multiprocessing.managers import *
