# SPDX-License-Identifier: MIT
from ._connection import Connection, Pipe
