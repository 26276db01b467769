# SPDX-License-Identifier: MIT
"""A web application with a large state, for gunicorn and uwsgi (bench/prefork.sh)

The state is made at import, so the master makes it and its workers inherit it: PREFORK_BYTES of
pages in bytearrays of 16 MiB, and 100 000 small objects in a dict. Each page begins with its
number, and its counter follows. A request reads 64 pages and 16 objects, checks what they hold, and
adds to the counters of 4 pages. A wrong page is an exception, which the client sees as an error.

If the master forks by os.fork(), as gunicorn does, it adds to the counters of 64 pages first: a
server that refreshes its state. uwsgi runs no Python before it forks a worker.

PREFORK_CHILD_WAKES=1 sets a handler for SIGCHLD. The master of uwsgi looks for ended workers once a
second, unless a signal wakes it, or a slow fork keeps it from sleeping.
"""

import os
import random
import signal
import struct

PAGE, BLOCK = 4096, 16 << 20
NUMBER = struct.Struct("<q")
PAGES = int(os.environ["PREFORK_BYTES"]) // PAGE
PER_BLOCK = BLOCK // PAGE


def block(first):
    made = bytearray(BLOCK)
    for page in range(PER_BLOCK):
        NUMBER.pack_into(made, page * PAGE, first + page)
    return made


BLOCKS = [block(first) for first in range(0, PAGES, PER_BLOCK)]
OBJECTS = {number: (number, str(number)) for number in range(100000)}


def check(page):
    if NUMBER.unpack_from(BLOCKS[page // PER_BLOCK], page % PER_BLOCK * PAGE)[0] != page:
        raise ValueError(f"page {page} has wrong bytes")


def count(page):
    where = BLOCKS[page // PER_BLOCK], page % PER_BLOCK * PAGE + NUMBER.size
    NUMBER.pack_into(*where, NUMBER.unpack_from(*where)[0] + 1)


def any_page():
    return int(random.random() * PAGES)


def refresh():
    for _ in range(64):
        count(any_page())


os.register_at_fork(before=refresh)
if os.environ.get("PREFORK_CHILD_WAKES"):
    signal.signal(signal.SIGCHLD, lambda number, frame: None)


def application(environ, start_response):
    for _ in range(64):
        check(any_page())
    for _ in range(16):
        number = int(random.random() * len(OBJECTS))
        if OBJECTS[number] != (number, str(number)):
            raise ValueError(f"object {number} is wrong")
    for _ in range(4):
        count(any_page())
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
