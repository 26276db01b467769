# SPDX-License-Identifier: MIT
"""What this process has at the broker for others to get, and until when.

A *handle* in a message is a token at the broker. Its bytes must be there when the message
is read: later, perhaps after the object that was sent is gone, perhaps twice, or never.

    token    dropped when nobody needs it: its object is dead, and every message with it was
             read, or GRACE seconds old
    read     said by the reader, in a *ledger*: a page that both map. The message has a slot
             of it and a number, which the reader writes there. So it costs no message, and
             a reader who dies has simply not read.
    object   the array that owns the memory, watched by a weak reference. The bytes of a
             token that was made by copying have no object.

Small tokens that were read linger for some seconds and up to some bytes, for who reads a
message again. All end with this process, whose connection the broker watches.

An object is sent as often as Dask likes. Large blocks of the engine are put without being
copied and keep one token as long as nobody writes to them: the broker says whether what
is put again is the same memory (FileExistsError: it is not). Everything else is a copy, with
a token for each message.
"""

import os
import queue
import threading
import time
import weakref
from collections import deque

from .. import _cowshed
from . import _host

GRACE = 60.0  # seconds that a message may lie unread once its objects are dead
LINGER = 5.0
LINGER_BYTES = 64 << 20
UNREAD_BYTES = 4 << 30  # dead bytes that wait for readers: beyond, Dask's own transport
SLOTS = 8192
POLL = 0.02


class Item:
    """A token. `pending`: messages with it that were not read."""

    __slots__ = ("token", "nbytes", "pending", "dead", "owner", "__weakref__")

    def __init__(self, token, nbytes, owner=None):
        self.token = token
        self.nbytes = nbytes
        self.pending = 0
        self.dead = owner is None
        self.owner = owner


class Shelf:
    """One for each process. Any thread."""

    def __init__(self, broker):
        self.broker = broker
        self.counters = {"messages": 0, "given": 0, "copied": 0, "bytes": 0, "expired": 0}
        self._lock = threading.Lock()
        self._owned = {}  # id of the owner -> Item
        self._unread = {}  # slot -> (number, deadline, items)
        self._lingering = deque()
        self._lingering_bytes = 0
        self._waiting_bytes = 0  # of dead items with messages unread
        self._free = deque(range(SLOTS))
        self._number = 0
        self._ledger_storage = _cowshed.new(SLOTS * 8, zero=True, tracked=True)
        fd, _ = self._ledger_storage.export(_cowshed.ALIAS)
        os.close(fd)
        self._ledger = memoryview(self._ledger_storage).cast("B").cast("Q")
        self.ledger = broker.put(self._ledger_storage, mode=_cowshed.ALIAS)["token"]
        # Weak references end wherever they like, in this very module, too: they may only
        # leave a word here (SimpleQueue.put() is reentrant).
        self._news = queue.SimpleQueue()
        self._stop = False
        self._keeper = threading.Thread(target=self._keep, name="cowshed-dask", daemon=True)
        self._keeper.start()

    # ---- Putting ------------------------------------------------------------------------

    def room(self):
        """May more bytes wait for readers?"""
        if self._waiting_bytes > UNREAD_BYTES:
            self._sweep()
        return self._waiting_bytes <= UNREAD_BYTES

    def give(self, storage, owner, whole):
        """The item of a storage, which `owner` keeps in being, without a copy; None: it can't be
        had so. If a copy was made all the same, and `whole` says that it is of use, of that.
        OSError: no broker."""
        key = id(owner)
        with self._lock:
            item = self._owned.get(key)
        if item is not None and item.owner() is owner:
            if item.token is None:
                return None
            try:
                self.broker.put(storage, item.token)
                return item
            except FileExistsError:
                pass
            # Written since: putting it costs copies from now on, of what is sent alone.
            with self._lock:
                self._owned[key] = self._watch(None, 0, owner)
                over = self._dead(item)
            self._drop_all(over)
            return None
        before = _cowshed.stats()["bytes_copied"]
        token = self.broker.put(storage)["token"]
        copied = _cowshed.stats()["bytes_copied"] - before >= storage.nbytes
        item = self._watch(None if copied else token, storage.nbytes, owner)
        with self._lock:
            other = self._owned.get(key)
            if other is None or other.owner() is not owner:
                self._owned[key] = other = item
        if copied and whole:
            return Item(token, storage.nbytes)
        if copied or other is not item:  # another thread was faster
            self._drop_all([Item(token, 0)])
        self.counters["given"] += other is item and not copied
        return other if other.token is not None else None

    def _watch(self, token, nbytes, owner):
        news, key = self._news, id(owner)
        item = Item(token, nbytes)
        item.dead = False
        item.owner = weakref.ref(owner, lambda _: news.put((key, item)))
        return item

    def copy(self, buffer):
        """The item of a copy of a contiguous buffer. OSError: no broker, or no memory."""
        nbytes = memoryview(buffer).nbytes
        item = Item(self.broker.put(buffer)["token"], nbytes)
        self.counters["copied"] += nbytes
        return item

    def send(self, items):
        """Notes that a message with these items goes out. (ledger's token, slot, number), for
        done() of the reader."""
        with self._lock:
            if not self._free:
                raise BlockingIOError("too many messages wait to be read")
            slot = self._free.popleft()
            self._number += 1
            self._ledger[slot] = 0
            self._unread[slot] = (self._number, time.monotonic() + GRACE, items)
            for item in items:
                item.pending += 1
                self.counters["bytes"] += item.nbytes
                if item.dead and item.pending == 1:
                    self._waiting_bytes += item.nbytes
            self.counters["messages"] += 1
            sent = self.ledger, slot, self._number
        self._news.put(None)
        return sent

    def abandon(self, items):
        """These were put for a message that was not made."""
        self._drop_all([item for item in items if item.dead and not item.pending])

    # ---- Letting go ---------------------------------------------------------------------

    def _drop_all(self, items):
        for item in items:
            try:
                self.broker.drop(item.token)
            except OSError:
                pass  # it went with the broker

    def _dead(self, item):
        """Its object is no more, or is other bytes by now. What is to be dropped. Locked."""
        if item.dead or item.token is None:
            return []
        item.dead = True
        if item.pending:
            self._waiting_bytes += item.nbytes
            return []
        return [item]

    def _died(self, key, item):
        with self._lock:
            if self._owned.get(key) is item:
                del self._owned[key]
            over = self._dead(item)
        self._drop_all(over)

    def _sweep(self):
        """Looks who has read, and ends what nobody needs."""
        now = time.monotonic()
        over = []
        with self._lock:
            done = [
                slot
                for slot, (number, deadline, items) in self._unread.items()
                if self._ledger[slot] == number
                or (now > deadline and all(item.dead for item in items))
            ]
            for slot in done:
                number, _, items = self._unread.pop(slot)
                self.counters["expired"] += self._ledger[slot] != number
                self._free.append(slot)
                for item in items:
                    item.pending -= 1
                    if item.dead and not item.pending:
                        self._waiting_bytes -= item.nbytes
                        self._lingering.append((now + LINGER, item))
                        self._lingering_bytes += item.nbytes
            while self._lingering and (
                self._lingering[0][0] < now or self._lingering_bytes > LINGER_BYTES
            ):
                _, item = self._lingering.popleft()
                self._lingering_bytes -= item.nbytes
                over.append(item)
        self._drop_all(over)

    def _keep(self):
        """The thread: ends what is over, and registers again with a broker that is new."""
        refreshed = time.monotonic()
        while not self._stop:
            hurry = self._waiting_bytes or self._unread
            try:
                news = self._news.get(timeout=POLL if hurry else 1.0)
            except queue.Empty:
                news = None
            if news is not None:
                self._died(*news)
            if self._news.empty():
                self._sweep()
            now = time.monotonic()
            if now > refreshed + 1:
                refreshed = now
                try:
                    self.broker.refresh()
                except OSError:
                    pass  # said by the next put(), to somebody who can do without

    def close(self):
        """Ends the thread. The tokens end with the connection."""
        self._stop = True
        self._news.put(None)
        self._keeper.join()
        self._ledger.release()

    def pending(self):
        """How much waits: {"tokens", "unread", "waiting_bytes", "lingering_bytes"}."""
        with self._lock:
            return {
                "objects": len(self._owned),
                "unread": len(self._unread),
                "waiting_bytes": self._waiting_bytes,
                "lingering_bytes": self._lingering_bytes,
            }


# ---- The reader's side --------------------------------------------------------------------

_ledgers = {}  # token -> the numbers


def done(sent):
    """Says that a message was read. Nothing happens if its sender is gone."""
    token, slot, number = sent
    ledger = _ledgers.get(token)
    if ledger is None:
        at = _host.broker()
        try:
            ledger = memoryview(at.get(token)).cast("B").cast("Q")
        except (OSError, AttributeError):
            return
        if len(_ledgers) > 256:
            _ledgers.clear()
        _ledgers[token] = ledger
    if slot < len(ledger):
        ledger[slot] = number


def forget():
    _ledgers.clear()


os.register_at_fork(after_in_child=forget)
