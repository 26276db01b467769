# SPDX-License-Identifier: MIT
"""Processes that get their arguments by handle, and become members of the group.

A child of fork() has all objects of its parent. A child that is spawned, or forked by a server,
reads its Process object from a pipe, as a pickle. Here the pickle has one end of a connection of
this package instead. The object waits there as a message with its storages. Packets that do not
fit into the connection are sent when the child receives.
"""

import copyreg
from multiprocessing import context as _standard
from multiprocessing import popen_forkserver, popen_spawn_posix, reduction

from .._memory import _family
from .._pyobjects import _pickle
from . import _connection, _strategy

#: The context of the module's own functions, which _contexts.py makes.
default = None
#: Returns the template that forks a process which names none. _contexts.py sets it.
default_template = None

# Functions that a child runs before all other code of the program. They are pickled by name.
first = []


def _new(cls, *args):
    return cls.__new__(cls, *args)


class _Reduced:
    """An object that is pickled as `parts`, the result of another object's __reduce_ex__()."""

    def __init__(self, parts):
        # Pickle accepts copyreg.__newobj__ only for an object of the class that it makes.
        if parts[0] is copyreg.__newobj__:
            parts = (_new, *parts[1:])
        self.parts = parts

    def __reduce_ex__(self, protocol):
        return self.parts


def rebuild_process(handle, settings):
    """In the child: the Process object that the parent started."""
    with _connection.Connection(handle.detach(), writable=False) as connection:
        packet = connection.recv_packet()
        _family.adopt(connection.group())
    method, mode, strategy, functions = settings
    inherit(method)
    _family.set_sharing_mode(mode)
    _strategy.inherit(strategy)
    for function in functions:
        function()
    return packet.load()


class Arguments:
    """A Process that is pickled by handle while a Popen of this file starts it."""

    def _bootstrap(self, *args, **options):
        inherit(self._start_method)
        return super()._bootstrap(*args, **options)

    def __reduce_ex__(self, protocol):
        parts = super().__reduce_ex__(protocol)
        popen = _standard.get_spawning_popen()
        ends = getattr(popen, "ends", None)
        if ends is None:
            return parts
        data, parcels = _pickle.dumps(_Reduced(parts))
        reader, writer = _connection.Pipe(duplex=False)
        ends.append(reader)
        rest = None
        try:
            rest = writer.send_first(_connection.Packet(data, parcels))
        finally:
            if rest is None:
                writer.close()
        if rest is not None:
            popen.rests.append((writer, rest))
        settings = (
            started(),
            _family.get_sharing_mode(),
            _strategy.inherited(),
            tuple(first),
        )
        return rebuild_process, (reduction.DupFd(reader.fileno()), settings)


class _Ends:
    """A Popen that sends the remaining packets, and then closes its ends of the connections."""

    def _launch(self, process_obj):
        self.ends, self.rests = [], []
        try:
            super()._launch(process_obj)
            self._close(self.ends)  # so sending fails if the child ends without receiving
            if self.rests:
                self._send_rests()
        finally:
            self._close(self.ends)
            self._close(writer for writer, _ in self.rests)
            del self.ends, self.rests

    def _send_rests(self):
        try:
            # An object inside another one is pickled before it, and received after it.
            for writer, rest in reversed(self.rests):
                writer.send_rest(rest)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the child has ended already; its exit code tells
        except BaseException:
            self.kill()
            self.wait()
            raise

    @staticmethod
    def _close(ends):
        for end in ends:
            end.close()


class SpawnPopen(_Ends, popen_spawn_posix.Popen):
    """Starts a new interpreter."""


class ForkServerPopen(_Ends, popen_forkserver.Popen):
    """Asks the fork server for a new process."""


class ForkProcess(Arguments, _standard.ForkProcess):
    """A process made by fork(): it has all objects of its parent."""


class SpawnProcess(Arguments, _standard.SpawnProcess):
    """A process in a new interpreter, which gets its arguments by handle."""

    @staticmethod
    def _Popen(process_obj):
        return SpawnPopen(process_obj)


class ForkServerProcess(Arguments, _standard.ForkServerProcess):
    """A process forked by the fork server, which gets its arguments by handle."""

    @staticmethod
    def _Popen(process_obj):
        return ForkServerPopen(process_obj)


def started():
    """The start method that was set or used, for children; None: none yet."""
    return default.get_start_method(allow_none=True)


def inherit(method):
    """In a child: sets the start method of the parent."""
    if method is not None:
        default.set_start_method(method, force=True)
