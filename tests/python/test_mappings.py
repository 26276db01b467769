# SPDX-License-Identifier: MIT
"""How cowshed.writable() finds the file behind an address."""

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
import weakref

import numpy as np
import pytest
from writables import N, PAGE, check, foreign, numbers, saved

import cowshed
from cowshed._memory import _mappings, _writable


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path)


def no_descriptor(monkeypatch, *ways):
    for way in ways:
        monkeypatch.setattr(_mappings, way, lambda *_: None)


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_size_t
LIBC.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
LIBC.mprotect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]


def mapped(fd):
    """An array on a shared mapping of a file. (A mmap object would keep a descriptor.)"""
    address = LIBC.mmap(0, 8 * N, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    memory = (ctypes.c_char * (8 * N)).from_address(address)
    weakref.finalize(memory, LIBC.munmap, address, 8 * N)
    return np.frombuffer(memory, "f8")


def memfd():
    fd = os.memfd_create("test_writable")
    os.truncate(fd, 8 * N)
    x = mapped(fd)
    x[:] = numbers()
    return fd, x


def test_a_memfd_by_a_descriptor_of_this_process(monkeypatch):
    no_descriptor(monkeypatch, "_by_map_files", "_by_other_process")
    fd, x = memfd()
    check(x)
    os.close(fd)
    before = foreign()
    cowshed.writable(x)
    assert foreign() == before + 1


def test_a_descriptor_that_can_not_be_read(tmp_path, monkeypatch):
    no_descriptor(monkeypatch, "_by_name", "_by_map_files", "_by_other_process")
    (tmp_path / "x").write_bytes(numbers().tobytes())
    x = np.memmap(tmp_path / "x", "f8", "r")
    for flags in os.O_WRONLY, os.O_PATH:
        fd = os.open(tmp_path / "x", flags)
        check(x)
        os.close(fd)


def test_map_files(monkeypatch):
    no_descriptor(monkeypatch, "_by_own_descriptor", "_by_other_process")
    fd, x = memfd()
    os.close(fd)
    mapping = _mappings.covering(*_writable._bounds(x))[0]
    try:
        os.close(os.open(f"/proc/self/map_files/{mapping.start:x}-{mapping.end:x}", os.O_RDONLY))
    except OSError:
        pytest.skip("the kernel opens map_files for privileged processes only")
    check(x)


# A file that this process has mapped, closed and unlinked, and that no other process has.
UNLINKED = """
import ctypes, mmap, os, sys
import numpy as np
import cowshed

path, = sys.argv[1:]
N = 1 << 20
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(range(256)) * (N >> 8))
at = libc.mmap(0, N, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
os.close(fd)
os.unlink(path)
x = np.frombuffer((ctypes.c_char * N).from_address(at), "u1")
w = cowshed.writable(x)
w[5] = 77
x[6] = 88
assert (w[5], x[5], w[7], w.flags.writeable) == (77, 5, 7, True)
assert bytes(w[256:]) == bytes(range(256)) * ((N >> 8) - 1)
print(cowshed.stats()["fallbacks"].get("foreign", 0), cowshed.storage_of(w).kind)
"""


@pytest.mark.parametrize("shim", [False, True])
def test_an_unlinked_and_closed_file_is_copied_and_counted(tmp_path, shim):
    """In a process that may not open /proc/self/map_files."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(cowshed.__file__)))
    command = [sys.executable, "-c", UNLINKED, str(tmp_path / "x")]
    if shim:
        command = [os.path.join(package, "cowshed/bin/cowshed"), "run", "--", *command]
    if os.geteuid() == 0:
        without = shutil.which("setpriv")
        if not without:
            pytest.skip("no setpriv: the kernel opens map_files for privileged processes")
        command = [without, "--bounding-set=-all", "--inh-caps=-all", *command]
    env = {name: value for name, value in os.environ.items()
           if name not in ("LD_PRELOAD", "COWSHED_OPTIONS")}
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**env, "PYTHONPATH": package})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 own\n"


LENDER = "import sys; print(flush=True); sys.stdin.read()"


def test_a_descriptor_of_another_process(monkeypatch):
    """As with Ray: this process has closed its descriptor of an unlinked file."""
    no_descriptor(monkeypatch, "_by_map_files")
    fd, x = memfd()
    with subprocess.Popen([sys.executable, "-c", LENDER], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, pass_fds=[fd]) as lender:
        lender.stdout.readline()
        os.close(fd)
        mapping = _mappings.covering(*_writable._bounds(x))[0]
        assert _mappings.open_file(mapping, 0) is None  # no time to look
        for _ in range(2):
            found = _mappings.open_file(mapping, 60)
            os.close(found)
            assert _mappings._lenders[mapping.file()] == (lender.pid, fd)
        lender.communicate()
    assert _mappings.open_file(mapping, 60) is None
    assert mapping.file() not in _mappings._lenders


def test_another_file_of_the_name(path, monkeypatch):
    no_descriptor(monkeypatch, "_by_map_files", "_by_other_process")
    numbers().tofile(path)
    with open(path, "r+b") as file:
        x = mapped(file.fileno())
    os.rename(path, path + ".old")
    (-numbers()).tofile(path)
    check(x)  # the kernel tells the new name
    x[0] = 0
    os.unlink(path + ".old")
    before = foreign()
    assert (cowshed.writable(x) == numbers()).all()
    os.rename(path, path + ".old (deleted)")
    assert (cowshed.writable(x) == numbers()).all()
    os.mkfifo(path + ".old")  # opening it would wait
    assert (cowshed.writable(x) == numbers()).all()
    assert foreign() == before + 3


def test_a_file_system_with_two_numbers_for_a_device(path, monkeypatch):
    no_descriptor(monkeypatch, "_by_map_files", "_by_other_process")
    monkeypatch.setattr(_mappings, "_has_inode", lambda *_: False)
    numbers().tofile(path)
    with open(path, "r+b") as file:
        x = mapped(file.fileno())
    check(x)
    x[0] = 0
    os.unlink(path)
    (-numbers()).tofile(path + " (deleted)")  # the name that the kernel tells
    before = foreign()
    assert (cowshed.writable(x) == numbers()).all() and foreign() == before + 1


def test_a_mapping_in_pieces(path):
    """mprotect() of a part splits it; another file in the middle makes it none."""
    x = np.load(path, mmap_mode="r")
    low = x.ctypes.data - x.ctypes.data % PAGE
    assert LIBC.mprotect(low + 4 * PAGE, PAGE, 0) == 0
    assert len(_mappings.covering(*_writable._bounds(x))) == 3
    w = cowshed.writable(x)
    assert LIBC.mprotect(low + 4 * PAGE, PAGE, mmap.PROT_READ) == 0
    assert (w == x).all() and cowshed.storage_of(w).kind == "file"


def test_both_ways_to_ask_for_mappings(path, monkeypatch):
    x = np.load(path, mmap_mode="r")
    low, high = _writable._bounds(x)
    found = _mappings.covering(low, high)
    monkeypatch.setattr(_mappings, "_by_query", lambda maps: None)
    assert _mappings.covering(low, high) == found
    assert found[0].name == os.fsencode(path) and found[0].is_shared
    assert _mappings.covering(0, PAGE) is None
    assert _mappings.covering(low, 1 << 62) is None
    check(x)


def test_an_older_kernel(path, monkeypatch):
    monkeypatch.setattr(_mappings, "_PROCMAP_QUERY", 0xC0FFEE)
    check(np.load(path, mmap_mode="r"))


def test_without_proc(path, monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(_mappings, "covering", missing)
    before = foreign()
    assert (cowshed.writable(np.load(path, mmap_mode="r")) == numbers()).all()
    assert foreign() == before + 1


def test_names_with_a_line_feed(tmp_path, monkeypatch):
    path = tmp_path / "a\nb (deleted)"
    path.write_bytes(numbers().tobytes())
    x = np.memmap(path, "f8", "r")
    no_descriptor(monkeypatch, "_by_own_descriptor", "_by_map_files", "_by_other_process")
    check(x)
    monkeypatch.setattr(_mappings, "_by_query", lambda maps: None)
    check(x)
