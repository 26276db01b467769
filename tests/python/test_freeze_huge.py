# SPDX-License-Identifier: MIT
"""freeze_objects(): huge pages for what is frozen."""

import pytest
from freezing import programs, run


@programs()
def test_huge_pages(python):
    """They hold what is frozen. A child that writes into one copies a page of 4 KiB."""
    said = run(python, '''
        import ctypes, mmap
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

        def huge():
            with open("/proc/self/smaps_rollup") as lines:
                return sum(int(x.split()[1]) for x in lines if x.startswith("AnonHugePages")) >> 10

        probe = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        probe[::4096] = b"x" * 2048
        at = ctypes.addressof(ctypes.c_char.from_buffer(probe))
        refused = libc.madvise((at | (2 << 20) - 1) + 1, 2 << 20, 25)
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
            if refused or "[never]" in file.read():
                print("no huge pages")
                raise SystemExit
        data = make(60000)
        before = huge()
        cowshed.freeze_objects(data)
        assert huge() - before >= 16, (before, huge())
        read(data)
        frozen = dirtied(lambda: read(data))
        assert frozen < 1024, frozen
        data[5]["name"] = "else"
        written = dirtied(lambda: data[7].update(name="child"))
        assert written < 1024 and data[7]["name"] == "name 7" and data[5]["name"] == "else"
    ''')
    if said:
        pytest.skip("the kernel has no huge pages for it")
