# SPDX-License-Identifier: MIT
"""Connections over which storages travel beside the pickle.

They are the Connection and the Pipe() of multiprocessing, over sockets that keep messages apart
(SOCK_SEQPACKET). A message is one packet, and the kernel queues a packet as a whole. So a process
that is killed while it sends or receives never leaves half of a packet. The note of the packet is

    0  storages  pickle or bytes        if these fit into the note
    1  storages                         else: they are the last storage of the message

"storages" is their number. A packet holds 1024 storages, 48 storages with a descriptor each, and
storages from 14 files of the group. Messages beyond these limits are several packets. So the note
of a message with two or more storages has the number of the message. The note of each of its
packets begins with this label:

    2, 3  storages  message  pickle or bytes, or one byte

A receiver joins the packets with one number. If some storages of the message are missing it drops
the others. So a message can be lost, but never becomes part of another one. It is lost in two
cases:

* Its sender died before it had sent all packets.
* Two processes took its packets. The first one died, or was interrupted: a signal handler raised,
  or no descriptor was free.

If the interrupted process itself receives again, it gets the message, unless the signal handler
ran just when a packet was taken. Another process waits for the next message.

A connection has up to three channels of the engine. Each is made at its first use, and again
after fork(), since a channel belongs to the process that made it:

    _grouped    sends storages by the program's group
    _plain      sends all other messages, without a group and without descriptors
    _incoming   receives, and joins the group of the sender

Any thread may send and receive. As with multiprocessing, several processes need a lock to
receive from one connection. Several senders need a lock only for messages of more than one
packet. Queue uses one.
"""

import errno
import io
import os
import pickle
import select
import socket
import struct
import threading
import time
from multiprocessing import connection as _standard
from multiprocessing import reduction

from .. import _cowshed
from .._memory import _family
from .._pyobjects import _pickle

_HEAD = struct.Struct("<BI")
_LABEL = struct.Struct("<BIQxxx")  # the engine repeats it in the note of each packet
_SEVERAL = 2
_INLINE = _cowshed.NOTE_MAX - _LABEL.size
_OWN_MOST = 48  # descriptors of storages in a message without a group

_generation = 0  # how many forks this process is away from the first one


_making = threading.Lock()


def _random():
    """Where the numbers of this process's messages begin: other processes differ."""
    return int.from_bytes(os.urandom(8), "little") >> 1


_first_number = _random()


def _after_fork():
    global _generation, _making, _first_number
    _generation += 1
    _making = threading.Lock()
    _first_number = _random()


os.register_at_fork(after_in_child=_after_fork)


def _poll(fd, events, timeout=None):
    """Waits at most `timeout` seconds, handling signals. Returns whether an event has come."""
    poll = select.poll()
    poll.register(fd, events)
    if timeout is None:
        return bool(poll.poll())
    return bool(poll.poll(max(timeout, 0) * 1000))


def _note(tag, count, data):
    """The note of a message with `count` storages."""
    if count < 2:
        return _HEAD.pack(tag, count) + data
    # A note that is longer than the label marks the last packet.
    return _LABEL.pack(tag | _SEVERAL, count, _first_number + _cowshed.next_number()) + (
        data or b"\0")


class Packet:
    """A message that is pickled and not sent, or received and not unpickled.

    `taken`: whether the channel has it, where it may wait to be flushed.
    """

    __slots__ = ("data", "parcels", "taken")

    def __init__(self, data, parcels):
        self.data = data
        self.parcels = parcels
        self.taken = False

    def load(self):
        """Unpickles the object of the message."""
        # dumps() marks a pickle without parcels that plain pickle can't load.
        if not self.parcels and self.data[:1] == b"\x80":
            return pickle.loads(self.data)
        return _pickle.loads(self.data, [parcel[0] for parcel in self.parcels])


# Errors of the kernel that pass: it may take the waiting message at the next try.
_FOR_A_MOMENT = errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE
# In milliseconds: longer than a receiver takes to empty a full socket of small messages.
_MOMENT = 2


class Connection(_standard.Connection):
    """One end of a Pipe(): see multiprocessing.connection.Connection.

    send() takes microseconds for arrays that need no copy, of any size; the package's docstring
    says which. It may return before the message is received, and then this process may exit. It
    waits while the socket is full, with hundreds of kilobytes of messages.

    recv_bytes() returns the pickle of an object without arrays. recv_bytes() leaves messages with
    arrays in the queue and raises OSError (EBADMSG); call recv() for them. poll() reports such a
    message. wait() does not, because it asks the socket.

    Any thread may call any method. After fork() both processes may use the connection.
    """

    _born = -1
    _plain = _grouped = _incoming = None

    def _fresh(self):
        """Makes the state that belongs to this process, at its first use here."""
        if self._born != _generation:
            with _making:
                if self._born != _generation:
                    self._plain = self._grouped = self._incoming = None
                    # The label and storages of a message that goes on in the next packet.
                    self._gathered = b"", []
                    self._kept = None  # a Packet that recv_bytes() could not return
                    self._sending, self._receiving = threading.Lock(), threading.Lock()
                    os.set_blocking(self._handle, False)
                    self._born = _generation

    def _channel(self, name):
        """The channel of this process with a name: see the head of this file."""
        channel = getattr(self, name)
        if channel is None:
            group, flags = None, _cowshed.LABELS
            if name == "_grouped":
                group = _family.group()
                if group is None:  # not stored: the next call may find a group
                    return self._channel("_plain")
            elif name == "_incoming":
                flags = _cowshed.JOIN | _cowshed.TAKE_ALIASES
            channel = _cowshed.Channel(self._handle, group, flags)
            setattr(self, name, channel)
        return channel

    def _close(self, _close=os.close):
        self._plain = self._grouped = self._incoming = None
        _close(self._handle)

    # ---- Sending --------------------------------------------------------------------

    def _send_bytes(self, buf):
        self._put(buf, [])

    def send(self, obj):
        """Sends any object that can be pickled, with its arrays by handle.

        Raises the exceptions of pickle.dumps(). BrokenPipeError: the other end is closed.
        """
        self._check_closed()
        self._check_writable()
        self._put(*_pickle.dumps(obj))

    def send_packet(self, packet):
        """Sends a Packet that was pickled before."""
        self._check_closed()
        self._check_writable()
        if not packet.taken:
            self._put(packet.data, packet.parcels)
            return
        with self._sending:
            for name in "_plain", "_grouped":
                self._send_packets([], None, name)

    def try_send_packet(self, packet, wait):
        """As send_packet(), but waits 2 ms at most. Returns whether the packet is sent.

        If not, the caller passes it to send_packet(). After an exception it does so, too, if the
        packet is taken.
        """
        if self.closed or len(packet.data) > _INLINE:
            return False
        self._fresh()
        with self._sending:  # is free, since senders first take the lock of the queue
            try:
                parcels = packet.parcels
                # A packet that is taken can't be taken back, so this asks for room first.
                if parcels and not _poll(self._handle, select.POLLOUT, 0):
                    return False
                channel = self._channel("_grouped" if parcels else "_plain")
                count = len(parcels)
                note = _note(0, count, packet.data)
                # A signal handler may raise after the call of send(), but not before it.
                packet.taken = True
                try:
                    packet.taken = channel.send(parcels, note) == count
                except Exception:
                    packet.taken = False
                    raise
                if packet.taken:
                    # A process that is receiving makes room meanwhile.
                    channel.flush(self._handle, _MOMENT if wait else 0)
                return packet.taken
            except OSError:
                return False

    def send_first(self, packet):
        """Sends to a process that is not a member of the group yet, and makes it one.

        Never waits. Returns None, or an argument for send_rest(), which the caller calls when a
        process receives.
        """
        return self._put(packet.data, packet.parcels, "_grouped", wait=False)

    def send_rest(self, rest):
        """Sends the packets that send_first() left. Waits for room."""
        with self._sending:
            self._send_packets(*rest)

    def _put(self, data, parcels, channel=None, wait=True):
        if len(data) <= _INLINE:
            note = _note(0, len(parcels), data)
        else:
            storage = _pickle.Message(_cowshed.CLONE).place(data).storage
            parcels = [*parcels, (storage, 0, len(data), _cowshed.CLONE)]
            note = _note(1, len(parcels), b"")
        self._fresh()
        with self._sending:
            return self._send_packets(
                parcels, note, channel or ("_grouped" if parcels else "_plain"), wait
            )

    def _send_packets(self, parcels, note, name, wait=True):
        """Sends all packets of a message. Without `wait` it returns where it would have to wait.

        Returns None, or then the arguments with which to go on.
        """
        channel = self._channel(name)
        count = len(parcels)
        pause = 0.0005
        taken = note is None
        while True:
            try:
                if taken:  # the last packet may still wait in the channel
                    channel.flush()
                    return None
                parcels = parcels[channel.send(parcels, note) :]
                taken = not parcels
                continue
            except BlockingIOError:
                if not _poll(self._handle, select.POLLOUT, 0):
                    if not wait:
                        return parcels, None if taken else note, name
                    _poll(self._handle, select.POLLOUT)
                    continue
            except (OSError, MemoryError) as error:
                number = getattr(error, "errno", errno.ENOMEM)
                # A taken packet will be sent. After an error the caller would send it once more.
                full = number in (errno.EUSERS, errno.ETOOMANYREFS)
                if not full and not (taken and number in _FOR_A_MOMENT):
                    raise
            # No event tells when there is room again. Either all 256 places of the group are
            # taken, of which each message under way takes one. Or the user has too many
            # descriptors in flight.
            if name != "_plain" and 0 < len(parcels) == count and self._alone(parcels):
                name = "_plain"
                channel = self._channel(name)
            elif not wait:
                return parcels, None if taken else note, name
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    @staticmethod
    def _alone(parcels):
        """Whether these can be sent without a group, each with a descriptor of its own."""
        return len(parcels) <= _OWN_MOST and all(p[3] != _cowshed.ALIAS for p in parcels)

    # ---- Receiving ------------------------------------------------------------------

    def recv_packet(self, plain=False):
        """Receives a message as a Packet, to be unpickled later.

        EOFError: the other end is closed, and all was received. With `plain` a message with
        storages is an OSError and stays for the next call.
        """
        while (packet := self.recv_packet_or_rest(plain)) is None:
            pass
        return packet

    def recv_packet_or_rest(self, plain=False):
        """As recv_packet(), or None: it received the rest of a message that another receiver
        has begun."""
        self._check_closed()
        self._check_readable()
        self._fresh()
        with self._receiving:
            packet, self._kept = self._kept or self._receive_packet(), None
            if plain and packet is not None and packet.parcels:
                self._kept = packet
                raise OSError(errno.EBADMSG, "the next message has arrays, which recv_bytes() "
                                             "can't return: call recv()")
        return packet

    def _receive_packet(self):
        parcels, note = self._receive_packets()
        tag, count = _HEAD.unpack_from(note)
        if len(parcels) != count:
            return None
        if tag & 1:
            storage, _, nbytes, _ = parcels.pop()
            return Packet(memoryview(storage)[:nbytes], parcels)
        return Packet(memoryview(note)[(_LABEL if tag else _HEAD).size :], parcels)

    def _receive_packets(self):
        """(parcels, note): the last note of a message, and the parcels of its packets."""
        channel = self._channel("_incoming")
        while True:
            try:
                parcels, note = channel.receive(self._handle)
            except BrokenPipeError:
                self._gathered = b"", []
                raise EOFError from None
            # After another error, or an exception of a signal handler, the next call goes on with
            # the packets that were received.
            if note[:1] < b"\2":  # mostly: a whole message, or none if there is no note
                self._gathered = b"", []
                if note:
                    break
                continue
            label, before = note[: _LABEL.size], self._gathered
            if before[0] == label:
                parcels = before[1] + parcels
            if len(note) > _LABEL.size:
                self._gathered = b"", []
                break
            self._gathered = label, parcels
        if parcels and _family.known() is None and channel.group is not None:
            _family.adopt(channel.group)
        return parcels, note

    def group(self):
        """The group of the senders, or None."""
        self._fresh()
        return self._channel("_incoming").group

    def recv(self):
        """Receives an object, and waits for one.

        EOFError: the other end is closed, and all was received. OSError (ESTALE): memory or a file
        that the message refers to is gone, and the message is lost.
        """
        return self.recv_packet().load()

    def _recv_bytes(self, maxsize=None):
        packet = self.recv_packet(plain=True)
        if maxsize is not None and len(packet.data) > maxsize:
            return None
        file = io.BytesIO()
        file.write(packet.data)
        return file

    def _poll(self, timeout):
        self._fresh()
        return self._kept is not None or _poll(self._handle, select.POLLIN, timeout)


class QueueEnd(Connection):
    """An end of a queue. Its *_bytes() methods take and return Packets instead of bytes."""

    def send_bytes(self, packet):
        """As send_packet(). Empties the packet: the queue's thread holds it until the next one."""
        self.send_packet(packet)
        packet.data, packet.parcels = b"", ()

    def recv_bytes(self):
        """As recv_packet()."""
        return self.recv_packet()


def pair(duplex, kind=Connection):
    """Two connected connections of a `kind`. Not `duplex`: the second sends to the first only."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    a.setblocking(False)
    b.setblocking(False)
    return kind(a.detach(), writable=duplex), kind(b.detach(), readable=duplex)


def Pipe(duplex=True):
    """Two connected Connections. Not `duplex`: the first one receives, the second one sends."""
    return pair(duplex)


def rebuild_connection(kind, handle, readable, writable):
    """The connection of a message, in the receiver."""
    return kind(handle.detach(), readable, writable)


def _reduce(connection):
    handle = reduction.DupFd(connection.fileno())
    return rebuild_connection, (
        type(connection),
        handle,
        connection.readable,
        connection.writable,
    )


reduction.register(Connection, _reduce)
reduction.register(QueueEnd, _reduce)
