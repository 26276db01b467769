# SPDX-License-Identifier: MIT
"""Connections, listeners and clients: multiprocessing.connection, with arrays by handle.

At the address of a Unix socket, Listener and Client make connections of this package. At other
addresses they make those of the standard library. A process that receives a storage becomes a
member of the sender's group, and can then read and write all that the group shares. Use an
`authkey`, so that only processes with the key can connect.
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
    """The socket module, but its Unix sockets are SOCK_SEQPACKET: they keep messages apart."""

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
    os.set_blocking(handle, True)  # sockets with a default timeout do not block
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
    return _standard.SocketClient(address)  # the listener is the standard library's


_namespace["SocketClient"] = _socket_client

Listener = subclass(_standard.Listener, _namespace, __name__)
Client = rebound(_standard.Client, _namespace)
Client.__doc__ = "Connects to the address of a Listener. Returns the connection."


def __getattr__(name):
    return getattr(_standard, name)


def __dir__():
    """All names, also those that __getattr__() takes from the standard library."""
    return sorted({*globals(), *dir(_standard)})
