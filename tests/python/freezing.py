# SPDX-License-Identifier: MIT
"""What the programs of test_freeze_objects.py begin with, and how they are run."""

import textwrap

import pythons

HEAD = textwrap.dedent('''
    import cowshed, gc, os, sys, weakref

    class Plain:
        def __init__(self, **names):
            self.__dict__.update(names)

    def make(n):
        return [{"id": i, "name": f"name {i}", "tags": [f"tag {i}", i * 1.5], "of": (i, str(i))}
                for i in range(n)]

    def read(x):
        if isinstance(x, dict):
            return sum(read(key) + read(value) for key, value in x.items())
        if isinstance(x, (list, tuple)):
            return sum(map(read, x))
        return hash(x) & 1

    def in_child(function):
        """What the function returns in a forked child, as an integer."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.write(writer, str(function()).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        with open(reader) as lines:
            said = lines.read()
        assert os.waitpid(pid, 0)[1] == 0
        return int(said)

    def dirty():
        with open("/proc/self/smaps_rollup") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

    def dirtied(function):
        def run():
            before = dirty()
            function()
            return dirty() - before
        return in_child(run)

    def is_frozen(x):
        alone = weakref.ref(x)
        count = sys.getrefcount(x)
        return count > 1 << 30 and alone() is x
''')


def programs():
    """A mark: each Python that has immortal objects runs the program of the test."""
    return pythons.each(12)


def run(python, program, **more):
    return pythons.run(python, HEAD + textwrap.dedent(program), **more)
