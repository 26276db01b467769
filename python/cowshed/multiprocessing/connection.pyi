# SPDX-License-Identifier: MIT
"""Connections, listeners and clients, with the types of multiprocessing.connection."""

from multiprocessing import AuthenticationError as AuthenticationError
from multiprocessing import BufferTooShort as BufferTooShort
from multiprocessing.connection import Client as Client
from multiprocessing.connection import Connection as Connection
from multiprocessing.connection import Listener as Listener
from multiprocessing.connection import Pipe as Pipe
from multiprocessing.connection import answer_challenge as answer_challenge
from multiprocessing.connection import deliver_challenge as deliver_challenge
from multiprocessing.connection import wait as wait
