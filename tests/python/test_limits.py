# SPDX-License-Identifier: MIT
"""Many clones: the kernel allows a process so many mappings, and the program is told."""

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

PROGRAM = """
import sys, warnings
import cowshed
a = cowshed.full(512 * 128, 3.0)     # 512 KiB
limit = int(open("/proc/sys/vm/max_map_count").read())
kept = []
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    while len(kept) < limit and not cowshed.stats()["clones_eager"]:
        kept += [cowshed.clone(a, writes="some") for _ in range(100)]
    mappings = sum(1 for _ in open("/proc/self/maps"))
    kept += [cowshed.clone(a, writes="some") for _ in range(200)]
assert mappings > limit // 100 * 40, (len(kept), mappings, limit)  # of a share of 48
texts = [str(it.message) for it in said if it.category is RuntimeWarning]
assert len(texts) == 1 and "max_map_count" in texts[0], said
assert sum(1 for _ in open("/proc/self/maps")) < limit // 100 * 60
assert all(x[5] == 3 for x in kept)
"""


@pytest.mark.limit(300)
def test_the_program_is_warned_once_when_clones_become_copies():
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        limit = int(file.read())
    if limit > 200_000:
        pytest.skip(f"vm.max_map_count is {limit}: so many clones take long")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
