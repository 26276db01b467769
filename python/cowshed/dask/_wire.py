# SPDX-License-Identifier: MIT
"""Messages of Dask whose large frames are handles.

Dask turns an object into a header and frames, by one of its serialization families: "dask" for
types that it knows, "pickle" for all others. Both give large buffers as separate frames, as they
are in memory. So this module needs to know nothing about the object:

    header, frames  <-  the family's own dumps
    frames that are large  ->  tokens at the broker (_shelf.py), and taken out
    header["cowshed"] = where they were, and their tokens

The receiver turns the tokens into frames, which are views of storages, and passes them to the
family's own loads. An array that is not contiguous (a slice of columns) is sent as it is in memory
if its storage is sent without a copy. Dask itself would copy it into a contiguous buffer first.

This happens only if the context says that the reader is on this host (_host.py). After any
failure the message is the one that Dask would send without this module.
"""

import time

from distributed.protocol.serialize import dask_dumps, dask_loads, pickle_dumps, pickle_loads

from .._memory._regions import region_of
from . import _host, _shelf

LEAST = 256 << 10  # bytes of a frame; smaller frames are as fast through a socket
GIVEN = 4 << 20  # bytes of a block; with the option share the engine sends these without a copy
SHARE = 16  # a handle of n bytes keeps at most 16 n bytes alive
PATIENCE = 2.5  # seconds for a sender to register again with a restarted broker

KEY = "cowshed"
REFUSED = (OSError, MemoryError)  # errors of the broker, after which Dask's own way is used


class Lost(ConnectionError):
    """The bytes of a message are gone, since its sender or the broker died.

    Dask treats it as a broken connection, and asks again.
    """


# ---- Sending --------------------------------------------------------------------------------


def _reader(context):
    """Whether the reader of the message can get handles.

    The context has what both ends said in the handshake (distributed's comm/core.py).
    """
    if not context:
        return False
    recipient = context.get("recipient")
    return isinstance(recipient, dict) and KEY in recipient and _host.reaches(recipient[KEY])


def _owner(x):
    """The object at the end of a chain of views, which owns the memory."""
    while True:
        below = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
        if below is None:
            return x
        x = below


def _region(x, nbytes):
    """The region of an object of so many bytes in a storage that can be given, or None."""
    region = region_of(x)
    if region is None or region.storage.kind != "own" or region.storage.nbytes < GIVEN:
        return None
    return region if nbytes * SHARE >= region.storage.nbytes else None


def lies_well(x):
    """Whether an array will be sent without a copy, if no program writes its storage."""
    return _is_plain(x) and _region(x, x.nbytes) is not None


def _given(shelf, x, nbytes):
    """(item, offset of the lowest byte) of an object in a large storage, or None."""
    region = _region(x, nbytes)
    if region is None:
        return None
    owner = _owner(x)
    try:
        item = shelf.give(region.storage, owner, 2 * nbytes >= region.storage.nbytes)
    except TypeError:  # the owner's type has no weak references
        return None
    return (item, region.offset) if item is not None else None


def _frame(shelf, frame):
    """(item, offset, nbytes) of a large frame. None: it stays a frame."""
    try:
        view = memoryview(frame)
    except TypeError:
        return None  # memory of a device
    if view.nbytes < LEAST or not view.c_contiguous:
        return None
    found = _given(shelf, view, view.nbytes)
    if found is not None:
        return *found, view.nbytes
    return shelf.copy(view), 0, view.nbytes


def _is_plain(x):
    """Whether it is a large array of numbers or dates."""
    import numpy

    return type(x) is numpy.ndarray and x.dtype.kind in "biufcmM" and x.nbytes >= LEAST


def _array(shelf, x):
    """(item, layout) of a large array that is not contiguous, or None."""
    if not _is_plain(x) or x.flags.c_contiguous or x.flags.f_contiguous or 0 in x.strides:
        return None
    found = _given(shelf, x, x.nbytes)
    if found is None:
        return None
    item, offset = found
    for size, stride in zip(x.shape, x.strides):
        if stride < 0:  # the first element does not have the lowest address
            offset -= (size - 1) * stride
    return item, [x.dtype.str, x.shape, x.strides, offset, x.flags.writeable]


def _sent(shelf, items):
    """What the header tells the reader for done(). None: too many messages are unread."""
    try:
        return shelf.send(items)
    except BlockingIOError:
        shelf.abandon(items)
        return None


def _shorten(shelf, header, frames):
    """Puts large frames at the broker, and takes them out of the message."""
    items, places, rest = [], [], []
    for i, frame in enumerate(frames):
        try:
            found = _frame(shelf, frame)
        except REFUSED:
            found = None
        if found is None:
            rest.append(frame)
            continue
        item, offset, nbytes = found
        items.append(item)
        places.append([i, item.token, offset, nbytes])
    if not places:
        return header, frames
    sent = _sent(shelf, items)
    if sent is None:
        return header, frames
    header[KEY] = {"frames": places, "sent": sent}
    return header, rest


def dumps(own, shelf_of, x, context):
    """(header, frames) of the family's `own(x, context)`, with large frames by handle."""
    if not _reader(context):
        return own(x, context=context)
    shelf = shelf_of()
    if shelf is None or not shelf.room():
        return own(x, context=context)
    try:
        found = _array(shelf, x)
    except REFUSED:
        found = None
    if found is not None:
        item, how = found
        sent = _sent(shelf, [item])
        if sent is not None:
            return {KEY: {"array": [item.token, *how], "sent": sent}}, []
    header, frames = own(x, context=context)
    if any(header.get("compression") or ()):
        return header, frames
    return _shorten(shelf, header, frames)


# ---- Reading ---------------------------------------------------------------------------------


def _get(token):
    until = time.monotonic() + PATIENCE
    while True:
        at = _host.broker()
        try:
            if at is not None:
                return at.get(token)
        except OSError as error:
            last = error
        else:
            last = None
        if time.monotonic() > until:
            raise Lost(f"no broker gave the bytes of a message in {PATIENCE} s: its sender or the "
                       "broker has ended. Send it again") from last
        time.sleep(0.05)


def loads(own, header, frames):
    """The object of a message. Lost: its bytes are gone."""
    said = header.get(KEY)
    if said is None:
        return own(header, frames)
    storages = {}

    def storage(token):
        if token not in storages:
            storages[token] = _get(token)
        return storages[token]

    if "array" in said:
        import numpy

        token, dtype, shape, strides, offset, writeable = said["array"]
        result = numpy.ndarray(shape, dtype, storage(token), offset, strides)
        result.flags.writeable = writeable
        _shelf.done(said["sent"])
        return result
    frames = list(frames)
    taken = {}
    for i, token, offset, nbytes in said["frames"]:
        # Each frame gets bytes of its own, so a write to one does not change another.
        end, whole = offset + nbytes, storage(token)
        if any(offset < e and b < end for b, e in taken.setdefault(token, [])):
            whole = whole.clone()
        taken[token].append((offset, end))
        frames.insert(i, memoryview(whole)[offset:end])
    _shelf.done(said["sent"])
    return own(header, frames)


# ---- The family ------------------------------------------------------------------------------


def any_dumps(shelf_of, x, context):
    """dumps() of the family "cowshed": by "dask", or by "pickle" if "dask" can't."""
    if not _reader(context):
        raise NotImplementedError
    try:
        header, frames = dumps(dask_dumps, shelf_of, x, context)
        header["within"] = "dask"
    except NotImplementedError:
        header, frames = dumps(pickle_dumps, shelf_of, x, context)
        header["within"] = "pickle"
    return header, frames


def any_loads(header, frames):
    """loads() of the family "cowshed"."""
    own = {"dask": dask_loads, "pickle": pickle_loads}[header["within"]]
    return loads(own, header, frames)


