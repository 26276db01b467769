# SPDX-License-Identifier: MIT
"""Sets DF_1_INITFIRST in the dynamic section of 64-bit little-endian ELF files.

The linker's flag is -z initfirst, which zig's linker does not know (scripts/wheels.sh).
"""

import pathlib
import struct
import sys

DYNAMIC, FLAGS_1, INITFIRST = 2, 0x6FFFFFFB, 0x20


def set_initfirst(data):
    """Sets the flag in a bytearray. ValueError: there is no such entry."""
    table, size, count = (struct.unpack_from(form, data, at)[0]
                          for form, at in (("<Q", 32), ("<H", 54), ("<H", 56)))
    for header in range(table, table + size * count, size):
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", data, header)
        if kind != DYNAMIC:
            continue
        for entry in range(start, start + length, 16):
            tag, value = struct.unpack_from("<QQ", data, entry)
            if tag == FLAGS_1:
                struct.pack_into("<QQ", data, entry, tag, value | INITFIRST)
                return
    raise ValueError("there are no flags (DT_FLAGS_1)")


for name in sys.argv[1:]:
    contents = bytearray(pathlib.Path(name).read_bytes())
    set_initfirst(contents)
    pathlib.Path(name).write_bytes(contents)
