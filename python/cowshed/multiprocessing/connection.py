# SPDX-License-Identifier: MIT
"""Connections, listeners and clients: multiprocessing.connection, with arrays by handle.

A Listener at the address of a Unix socket, and a Client of it, are of this package on both
sides; at other addresses they are the standard library's. Who connects becomes a member of
the group of whoever sends him a storage: give strangers an `authkey`.
"""

import errno
import os
import socket
from multiprocessing import AuthenticationError, BufferTooShort
from multiprocessing import connection as _standard
from multiprocessing.connection import answer_challenge, deliver_challenge, wait

from ._connection import Connection, Pipe
from ._rebound import rebound, subclass

__all__ = [
    "AuthenticationError",
    "BufferTooShort",
    "Client",
    "Connection",
    "Listener",
    "Pipe",
    "answer_challenge",
    "deliver_challenge",
    "wait",
]

_namespace = dict(vars(_standard))


class _Sockets:
    """The socket module, whose Unix sockets keep messages apart."""

    def __getattr__(self, name):
        return getattr(socket, name)

    @staticmethod
    def socket(family=socket.AF_INET):
        kind = socket.SOCK_SEQPACKET if family == socket.AF_UNIX else socket.SOCK_STREAM
        return socket.socket(family, kind)


_namespace["socket"] = _Sockets()


def _connection(handle):
    with socket.socket(fileno=handle) as s:
        ours = s.type == socket.SOCK_SEQPACKET
        s.detach()
    os.set_blocking(handle, True)  # also where sockets have a timeout by default
    return (Connection if ours else _standard.Connection)(handle)


_namespace["Connection"] = _connection

_SocketListener = subclass(_standard.SocketListener, _namespace, __name__)
_seqpacket_client = rebound(_standard.SocketClient, _namespace)


def _socket_client(address):
    try:
        return _seqpacket_client(address)
    except OSError as error:
        if error.errno != errno.EPROTOTYPE:
            raise
    return _standard.SocketClient(address)  # of a listener of the standard library


_namespace["SocketClient"] = _socket_client

Listener = subclass(_standard.Listener, _namespace, __name__)
Client = rebound(_standard.Client, _namespace)
Client.__doc__ = "A connection to the address of a Listener."


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
