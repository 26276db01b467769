# SPDX-License-Identifier: MIT
"""What the wheel is to do wherever it was installed: hello, a fork, a clone, a send, the shim.

It needs the standard library alone. scripts/check-roots.sh runs it in other systems.
"""

import os
import socket
import subprocess
import sys
import sysconfig
import threading

import cowshed
from cowshed import _cowshed

LARGE = 8 << 20


def hello():
    a = _cowshed.new(LARGE, zero=True)
    memoryview(a)[:5] = b"hello"
    assert bytes(memoryview(a)[:5]) == b"hello" and cowshed.__version__


def clone():
    a = _cowshed.new(LARGE, zero=True)
    memoryview(a)[0] = 1
    b = a.clone()
    memoryview(b)[0] = 2
    assert memoryview(a)[0] == 1 and memoryview(b)[0] == 2 and memoryview(b)[LARGE - 1] == 0


def threads():
    """They clone one storage and write the clones. Without the GIL they do it at once."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled() and "abi3" not in _cowshed.__file__
    a = _cowshed.new(LARGE, zero=True)
    wrong = []

    def work(value):
        for _ in range(100):
            mine = a.clone()
            view = memoryview(mine)
            view[0] = view[LARGE - 1] = value
            if (view[0], view[1], view[LARGE - 1]) != (value, 0, value):
                wrong.append(value)

    together = [threading.Thread(target=work, args=(value,)) for value in range(1, 5)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert not wrong and memoryview(a)[0] == 0 == memoryview(a)[LARGE - 1]


def fork():
    a = _cowshed.new(LARGE, zero=True)
    view = memoryview(a)
    view[7] = 1
    pid = os.fork()
    if pid == 0:
        good = view[7] == 1
        view[7] = 2
        os._exit(0 if good and view[7] == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0 and view[7] == 1


def send():
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        a = _cowshed.new(LARGE, zero=True)
        memoryview(a)[LARGE - 1] = 9
        pid = os.fork()
        if pid == 0:
            channel = _cowshed.Channel(theirs.fileno())
            (parcel,), note = channel.receive(theirs.fileno())
            os._exit(0 if note == b"a note" and memoryview(parcel[0])[LARGE - 1] == 9 else 1)
        channel = _cowshed.Channel(ours.fileno())
        assert channel.send([(a, 0, LARGE, _cowshed.CLONE)], b"a note") == 1
        channel.flush(ours.fileno(), 10000)
        assert os.waitpid(pid, 0)[1] == 0
        del channel
        ours.close()
        theirs.close()


def shim():
    program = (
        "import sys; big = bytearray(64 << 20); maps = open('/proc/self/maps').read()\n"
        "assert 'libcowshed-preload.so' in maps and 'memfd:' in maps\n"
        "print(sys.argv[1:])\n")
    # Without the GIL CPython takes its memory by mmap(), not by malloc().
    options = {"COWSHED_OPTIONS": "mmap=1M"} if sysconfig.get_config_var("Py_GIL_DISABLED") else {}
    done = subprocess.run([sys.executable, "-m", "cowshed", "run", "-c", program, "1", "2 3"],
                          capture_output=True, text=True, check=False, env=os.environ | options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['1', '2 3']\n", ""), done


for test in hello, clone, threads, fork, send, shim:
    try:
        test()
    except Exception as error:
        print(f"not ok {sys.argv[1]}: {test.__name__} ({type(error).__name__}: {error})")
    else:
        print(f"ok {sys.argv[1]}: {test.__name__}")
