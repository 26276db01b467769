# SPDX-License-Identifier: MIT
"""Shared ctypes, with the types of multiprocessing.sharedctypes."""

from multiprocessing.sharedctypes import *
