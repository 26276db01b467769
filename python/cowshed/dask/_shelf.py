# SPDX-License-Identifier: MIT
"""The shelf: what this process keeps at the broker for its readers, and how long.

A *handle* in a message is a token at the broker. Its bytes must be there when the message is
read. That may be after the object that was sent is gone, and it may happen twice or never.

    token    It is dropped when its object is dead, and each message with it was read or is GRACE
             seconds old.
    reading  The reader tells that it has read a message in a *ledger*, a page that both map. The
             message has a slot and a number, and the reader writes the number into the slot. That
             costs no message. A reader that dies has not read.
    object   The array that owns the memory, watched by a weak reference. A token for a copy has
             no object.

Tokens that were read linger, for readers that read a message again: LINGER seconds, and up to
LINGER_BYTES bytes together. All tokens end with this process, whose connection the broker watches.

Dask may send an object many times. Large blocks of the engine are put without a copy. They keep
one token as long as no program writes them. A block is put again for each message, and the broker
raises FileExistsError if it is not the same memory. All other objects are copied, with a new token
for each message.
"""

import os
import queue
import threading
import time
import weakref
from collections import deque

from .. import _cowshed
from . import _host

GRACE = 60.0  # seconds for which an unread message keeps dead objects
LINGER = 5.0  # seconds
LINGER_BYTES = 64 << 20
UNREAD_BYTES = 4 << 30  # with more dead bytes in unread messages Dask's own transport is used
SLOTS = 8192  # unread messages at most
POLL = 0.02  # seconds between two looks at the ledger


class Item:
    """A token at the broker. `pending`: how many messages with it are unread."""

    __slots__ = ("token", "nbytes", "pending", "dead", "owner", "__weakref__")

    def __init__(self, token, nbytes, owner=None):
        self.token = token
        self.nbytes = nbytes
        self.pending = 0
        self.dead = owner is None
        self.owner = owner


class Shelf:
    """The shelf of a process. Any thread may call its methods. It has a thread of its own."""

    def __init__(self, broker):
        self.broker = broker
        self.counters = {"messages": 0, "given": 0, "copied": 0, "bytes": 0, "expired": 0}
        self._lock = threading.Lock()
        self._owned = {}  # id of the owner -> Item
        self._unread = {}  # slot -> (number, deadline, items)
        self._lingering = deque()
        self._lingering_bytes = 0
        self._waiting_bytes = 0  # of dead items in unread messages
        self._free = deque(range(SLOTS))
        self._number = 0
        self._ledger_storage = _cowshed.new(SLOTS * 8, zero=True, tracked=True)
        fd, _ = self._ledger_storage.export(_cowshed.ALIAS)
        os.close(fd)
        self._ledger = memoryview(self._ledger_storage).cast("B").cast("Q")
        self.ledger = broker.put(self._ledger_storage, mode=_cowshed.ALIAS)["token"]
        # The callback of a weak reference may run at any point, also inside this module. So it
        # only puts a word into this queue: SimpleQueue.put() is reentrant.
        self._news = queue.SimpleQueue()
        self._stop = False
        self._keeper = threading.Thread(target=self._keep, name="cowshed-dask", daemon=True)
        self._keeper.start()

    # ---- Putting ------------------------------------------------------------------------

    def room(self):
        """Whether more bytes may wait for readers: UNREAD_BYTES is not exceeded."""
        if self._waiting_bytes > UNREAD_BYTES:
            self._sweep()
        return self._waiting_bytes <= UNREAD_BYTES

    def give(self, storage, owner, whole):
        """Puts a storage that `owner` keeps alive, without a copy. Returns its item, or None.

        None: the broker could not take it without a copy. If it made a copy, and `whole` is true,
        returns the item of the copy. OSError: there is no broker.
        """
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
            # The block was written. From now on the parts that are sent are copied.
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
        if copied or other is not item:  # not item: another thread has put it meanwhile
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
        """Puts a copy of a contiguous buffer, and returns its item.

        OSError: there is no broker, or no memory.
        """
        nbytes = memoryview(buffer).nbytes
        item = Item(self.broker.put(buffer)["token"], nbytes)
        self.counters["copied"] += nbytes
        return item

    def send(self, items):
        """Registers a message with these items that is about to be sent.

        Returns (token of the ledger, slot, number), which the reader passes to done().
        BlockingIOError: all slots are taken.
        """
        with self._lock:
            if not self._free:
                raise BlockingIOError(f"{SLOTS} messages are unread: send this one by Dask's own "
                                      "transport")
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
        """Drops items that were put for a message that is not sent."""
        self._drop_all([item for item in items if item.dead and not item.pending])

    # ---- Letting go ---------------------------------------------------------------------

    def _drop_all(self, items):
        for item in items:
            try:
                self.broker.drop(item.token)
            except OSError:
                pass  # the broker is gone, and the token with it

    def _dead(self, item):
        """Marks an item whose object is gone or was written. Returns the items to drop. Locked."""
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
        """Looks which messages were read, and drops items that are not needed any more."""
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
        """The thread: drops what is not needed, and registers again if the broker was restarted."""
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
                    pass  # the next put() raises it, and its caller sends bytes instead

    def close(self):
        """Ends the thread. The broker drops the tokens when the connection is closed."""
        self._stop = True
        self._news.put(None)
        self._keeper.join()
        self._ledger.release()

    def pending(self):
        """How much is kept: {"objects", "unread", "waiting_bytes", "lingering_bytes"}."""
        with self._lock:
            return {
                "objects": len(self._owned),
                "unread": len(self._unread),
                "waiting_bytes": self._waiting_bytes,
                "lingering_bytes": self._lingering_bytes,
            }


# ---- The reader's side --------------------------------------------------------------------

_ledgers = {}  # token -> the numbers in the slots


def done(sent):
    """Tells the sender that a message was read. Does nothing if the sender is gone."""
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
    """Releases the ledgers of all senders."""
    _ledgers.clear()


os.register_at_fork(after_in_child=forget)
