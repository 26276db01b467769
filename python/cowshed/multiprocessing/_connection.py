# SPDX-License-Identifier: MIT
"""Connections over which storages travel beside the pickle.

The Connection and the Pipe() of multiprocessing, over sockets that keep messages apart
(SOCK_SEQPACKET). A message is one packet, which is in the queue or not: whoever is killed
while he sends or receives leaves no half of one. The note of the packet is

    0  storages  pickle or bytes        where these fit into it
    1  storages                         they are the last storage of the message

Only what has more storages than a packet holds (a thousand, or 48 with a descriptor each, or in
more than a dozen files) is several packets. So the note of what has more than one storage has
the number of its message, too, and begins that of each of its packets:

    2, 3  storages  message  pickle or bytes, or one byte

A receiver puts together what has one number, and if that are not all storages of the message it
drops them. So a message is lost, and never a part of another one, if its sender died before all
of it was sent; or if its packets were not taken by one process, because one receiver died, or
was interrupted (by a signal's handler that raised, for want of descriptors), and another one
took the rest. If it is the same process that receives again it gets the message, unless the
handler came just when a packet was taken. Others wait for the next message then.

A connection has up to three channels of the engine, made when they are first needed, and made
again after fork(), since a channel is its maker's alone: one of the program's group to send
storages by, one without a group for all other messages, which costs no descriptors, and one
to receive by, which joins the group of whoever sends.

Any thread may send and receive. As with multiprocessing, several processes need a lock to
receive from one connection. Sending needs none where messages are one packet; who sends
thousands of storages at once takes one, too, as Queue does.
"""

import errno
import io
import itertools
import os
import pickle
import select
import socket
import struct
import threading
import time
from multiprocessing import connection as _standard
from multiprocessing import reduction

from .. import _cowshed, _family, _pickle

_HEAD = struct.Struct("<BI")
_LABEL = struct.Struct("<BIQxxx")  # what the engine puts on each packet of a message
_SEVERAL = 2
_INLINE = _cowshed.NOTE_MAX - _LABEL.size
_OWN_MOST = 48  # descriptors of a message's storages if there is no group

_generation = 0  # how often this process is a child


_making = threading.Lock()


def _numbers():
    """Of messages, none of which another process gives to one."""
    return itertools.count(int.from_bytes(os.urandom(8), "little") >> 1)


_number = _numbers()


def _after_fork():
    global _generation, _making, _number
    _generation += 1
    _making = threading.Lock()
    _number = _numbers()


os.register_at_fork(after_in_child=_after_fork)


def _poll(fd, events, timeout=None):
    """Waits at most `timeout` seconds. Signals are handled meanwhile. Returns whether it is."""
    poll = select.poll()
    poll.register(fd, events)
    if timeout is None:
        return bool(poll.poll())
    return bool(poll.poll(max(timeout, 0) * 1000))


def _note(tag, count, data):
    """What goes with `count` storages."""
    if count < 2:
        return _HEAD.pack(tag, count) + data
    # The last packet is the one that has more than a label.
    return _LABEL.pack(tag | _SEVERAL, count, next(_number)) + (data or b"\0")


class Packet:
    """A message that was pickled and not sent, or received and not unpickled. `taken`: by its
    channel, where it may wait to be flushed."""

    __slots__ = ("data", "parcels", "taken")

    def __init__(self, data, parcels):
        self.data = data
        self.parcels = parcels
        self.taken = False

    def load(self):
        """The object that it is."""
        # dumps() marks what is no plain pickle although nothing travels beside it.
        if not self.parcels and self.data[:1] == b"\x80":
            return pickle.loads(self.data)
        return _pickle.loads(self.data, [parcel[0] for parcel in self.parcels])


# Why the kernel may not take what waits in a channel now.
_FOR_A_MOMENT = errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE
# Milliseconds: more than a receiver takes to empty a full socket of small messages.
_MOMENT = 2


class Connection(_standard.Connection):
    """One end of a Pipe(): see multiprocessing.connection.Connection.

    send() costs some microseconds, whatever the size of what needn't be copied (the module
    says what that is); it may return before anybody receives, and this process may exit then.
    It waits while the other side has more than some hundred kilobytes of messages to receive.

    recv_bytes() of an object that was sent gives its pickle, if nothing travelled beside that.
    Else it is an OSError (EBADMSG), and the object is there for recv(). (poll() knows of it;
    wait(), which looks at the socket, does not.)
    """

    _born = -1
    _plain = _grouped = _incoming = None

    def _fresh(self):
        """Makes what is of this process alone, at its first use here."""
        if self._born != _generation:
            with _making:
                if self._born != _generation:
                    self._plain = self._grouped = self._incoming = None
                    # The label and storages of a message that goes on in the next packet.
                    self._gathered = b"", []
                    self._kept = None  # a Packet that was received and not asked for
                    self._sending, self._receiving = threading.Lock(), threading.Lock()
                    os.set_blocking(self._handle, False)
                    self._born = _generation

    def _channel(self, name):
        """The channel of this process for a purpose."""
        channel = getattr(self, name)
        if channel is None:
            group, flags = None, _cowshed.LABELS
            if name == "_grouped":
                group = _family.group()
                if group is None:  # there may be one the next time
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
        """Sends any object that can be pickled; its arrays go by handle."""
        self._check_closed()
        self._check_writable()
        self._put(*_pickle.dumps(obj))

    def send_packet(self, packet):
        """Sends what was pickled before."""
        self._check_closed()
        self._check_writable()
        if not packet.taken:
            self._put(packet.data, packet.parcels)
            return
        with self._sending:
            for name in "_plain", "_grouped":
                self._send_packets([], None, name)

    def try_send_packet(self, packet, wait):
        """As send_packet(), but waits for a moment at most. Returns whether it is sent. If not it
        is for send_packet(), also after an exception if the packet is taken."""
        if self.closed or len(packet.data) > _INLINE:
            return False
        self._fresh()
        with self._sending:  # is free: senders take the queue's lock before it
            try:
                parcels = packet.parcels
                # What is taken can't be taken back: is there room for any packet?
                if parcels and not _poll(self._handle, select.POLLOUT, 0):
                    return False
                channel = self._channel("_grouped" if parcels else "_plain")
                count = len(parcels)
                note = _note(0, count, packet.data)
                # A handler of a signal may raise after the call, but not before it.
                packet.taken = True
                try:
                    packet.taken = channel.send(parcels, note) == count
                except Exception:
                    packet.taken = False
                    raise
                if packet.taken:
                    # A receiver who is receiving makes room meanwhile.
                    channel.flush(self._handle, _MOMENT if wait else 0)
                return packet.taken
            except OSError:
                return False

    def send_first(self, packet):
        """Sends to a process that is not a member of the group yet, and makes it one. Waits for
        nobody. Returns None, or what is left for send_rest() when there is who receives."""
        return self._put(packet.data, packet.parcels, "_grouped", wait=False)

    def send_rest(self, rest):
        """Sends what send_first() left."""
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
        """Not to `wait`: returns the arguments with which to go on, if it is not done."""
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
                # What was taken goes out sooner or later: who heard of an error sent it again.
                if number != errno.ETOOMANYREFS and not (taken and number in _FOR_A_MOMENT):
                    raise
            # Nobody tells when there is room: in the group, of whose 256 places messages
            # that are under way take one each; or among the user's descriptors in flight.
            if name != "_plain" and 0 < len(parcels) == count and self._alone(parcels):
                name = "_plain"
                channel = self._channel(name)
            elif not wait:
                return parcels, None if taken else note, name
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    @staticmethod
    def _alone(parcels):
        """Can these be sent without a group, each with a descriptor of its own?"""
        return len(parcels) <= _OWN_MOST and all(p[3] != _cowshed.ALIAS for p in parcels)

    # ---- Receiving ------------------------------------------------------------------

    def recv_packet(self, plain=False):
        """What was sent, to be unpickled later: EOFError if there is nothing more to come.
        `plain`: OSError if it has storages, and it stays there."""
        while (packet := self.recv_packet_or_rest(plain)) is None:
            pass
        return packet

    def recv_packet_or_rest(self, plain=False):
        """As recv_packet(), or None: what came was the rest of a message of which another
        receiver has the beginning."""
        self._check_closed()
        self._check_readable()
        self._fresh()
        with self._receiving:
            packet, self._kept = self._kept or self._receive_packet(), None
            if plain and packet is not None and packet.parcels:
                self._kept = packet
                raise OSError(errno.EBADMSG, "an object with arrays came: receive it by recv()")
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
        """(parcels, note) of the last packet of a message and those before it that are there."""
        channel = self._channel("_incoming")
        while True:
            try:
                parcels, note = channel.receive(self._handle)
            except BrokenPipeError:
                self._gathered = b"", []
                raise EOFError from None
            # Any other error, or a signal's handler, leaves what came before for the next call.
            if note[:1] < b"\2":  # the common one: all of a message, or (without a note) none
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
        """The group of those who sent, or None."""
        self._fresh()
        return self._channel("_incoming").group

    def recv(self):
        """What was sent: EOFError if there is nothing more to come."""
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
    """An end of a queue: `*_bytes` are packets, which are pickled elsewhere."""

    def send_bytes(self, packet):
        """As send_packet(), and empties the packet: a queue's thread holds it until the next."""
        self.send_packet(packet)
        packet.data, packet.parcels = b"", ()

    def recv_bytes(self):
        """As recv_packet()."""
        return self.recv_packet()


def pair(duplex, kind=Connection):
    """Two connections of a `kind`: the first one reads what the second one writes."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    a.setblocking(False)
    b.setblocking(False)
    return kind(a.detach(), writable=duplex), kind(b.detach(), readable=duplex)


def Pipe(duplex=True):
    """Two connected Connections; not `duplex`: the first one receives, the second one sends."""
    return pair(duplex)


def rebuild_connection(kind, handle, readable, writable):
    """The other side of a connection that was sent."""
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
