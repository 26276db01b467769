# SPDX-License-Identifier: MIT
"""freeze_objects(): immortal objects.

What is frozen stays, so each test is a program of its own. Each Python of 3.12 or newer runs it.
"""

import os
import subprocess
import sys

import pytest
from freezing import programs, run

import cowshed


@programs()
@pytest.mark.parametrize("roots", ["", "data"])
def test_a_child_reads_without_writing(python, roots):
    run(python, f'''
        data = make(40000)
        plain = dirtied(lambda: read(data))
        result = cowshed.freeze_objects({roots})
        assert result.objects > 300000 and result.bytes > 20e6, result
        frozen = dirtied(lambda: read(data))
        assert plain > 15000 and frozen < 1024, (plain, frozen)
    ''')


@programs()
def test_a_collection_in_a_child_writes_nothing_of_them(python):
    run(python, '''
        data = make(40000)
        cowshed.freeze_objects()
        assert not any(map(gc.is_tracked, data))
        frozen = dirtied(lambda: (gc.collect(), read(data), gc.collect()))
        assert frozen < 2048, frozen
    ''')


@programs()
def test_twice_freezes_what_was_added(python):
    run(python, '''
        data = make(1000)
        first = cowshed.freeze_objects(data)
        assert cowshed.freeze_objects(data) == (0, 0, 0)
        data.append({"new": Plain(a="b" * 99)})
        second = cowshed.freeze_objects(data)
        assert first.objects > 7000 and 3 <= second.objects <= 40 and second.left == 0, second
        assert second.bytes > 99
        cowshed.freeze_objects()
        before = data[-1]
        data.append("c" * 99)  # the list is in no list of the collector any more
        cowshed.freeze_objects()
        assert sys.getrefcount(data[-1]) > 1 << 30 and data[-2] is before
    ''')


@programs()
def test_only_what_the_roots_reach(python):
    run(python, '''
        kept, other = Plain(x=Plain()), Plain()
        refs = weakref.ref(kept.x), weakref.ref(other)
        cowshed.freeze_objects(kept)
        assert is_frozen(kept) and is_frozen(kept.x) and not is_frozen(other)
        del kept, other
        gc.collect()
        assert refs[0]() is not None and refs[1]() is None
    ''')


@programs()
def test_what_holds_no_others(python):
    run(python, '''
        import datetime
        zone = datetime.timezone(datetime.timedelta(seconds=4711))
        x = ["a" * 50, b"b" * 50, 1 << 90, 2.5, range(1 << 70), datetime.datetime.now(zone),
             datetime.date(2020, 2, 3), frozenset([1, "x" * 30]), bytearray(9), {"set" * 20},
             slice(1 << 80), 3j, memoryview(bytes(20))]
        cowshed.freeze_objects(x)
        alone = "root %s" % sys.argv
        assert cowshed.freeze_objects(alone).objects == 1 and sys.getrefcount(alone) > 1 << 30
        for y in [*x, x[4].start, x[4].stop, x[5].tzinfo, x[10].stop, *x[9]]:
            assert sys.getrefcount(y) > 1 << 30, y
    ''')


@programs()
def test_functions_and_classes(python):
    run(python, '''
        class Base:
            __slots__ = "a", "b"

        class Derived(Base):
            def add(self, n, more=("default" * 9,)):
                return self.a + n + len(more) + len("constant " * 20)

        def outer(free):
            return lambda: (free, "inner constant %s" % free)

        x = Derived()
        x.a, x.b = 1000, [outer("free" * 9), x]
        cowshed.freeze_objects(x)
        code = x.b[0].__code__
        for y in Derived, Base, Derived.add, Derived.add.__code__, code, code.co_consts, x, x.b:
            assert sys.getrefcount(y) > 1 << 30, y
        assert x.add(1) == 1002 + len("constant " * 20) and x.b[0]()[0] == "free" * 9
        assert in_child(lambda: x.add(1)) == x.add(1)
    ''')


@programs()
def test_hashes_are_computed(python):
    run(python, '''
        import ctypes, datetime
        if sys.abiflags.startswith("t"):
            sys.exit()  # another layout
        kept = lambda x, at: ctypes.c_ssize_t.from_address(id(x) + at).value
        text, data = "not yet %s" % sys.argv, b"not yet %d" % len(sys.argv)
        group = frozenset([text, (1, 2)])
        day = datetime.datetime(2020, 2, 3)
        names = "".join(map(chr, range(97, 200)))
        assert kept(names, 24) == -1 and kept(data, 24) == -1 and kept(day, 16) == -1
        assert kept(group, 48) == -1
        cowshed.freeze_objects([text, data, group, day, names])
        assert kept(names, 24) == hash(names) and kept(data, 24) == hash(data)
        assert kept(day, 16) == hash(day)
        assert kept(group, 48) == hash(group)
    ''')


@programs()
def test_no_code_of_the_program_runs(python):
    run(python, '''
        called = []

        def never(*_):
            called.append(1)
            raise AssertionError("called")

        class Meta(type):
            __hash__ = __eq__ = never

        class Odd(metaclass=Meta):
            __hash__ = __eq__ = __len__ = __sizeof__ = __getattr__ = __iter__ = never

        class Zone(__import__("datetime").tzinfo):
            utcoffset = never

        class Text(str):
            __hash__ = __sizeof__ = never

        class Map(dict):
            __iter__ = items = keys = __sizeof__ = __getitem__ = never

        odd = Odd()
        import datetime
        cowshed.freeze_objects([odd, Text("x"), (odd, 1), Map(a="b" * 40),
                                datetime.datetime(2020, 1, 1, tzinfo=Zone())])
        assert sys.getrefcount(odd) > 1 << 30 and not called
    ''')


@programs()
def test_bytes_count_tables(python):
    run(python, '''
        import collections
        for kind in dict, collections.OrderedDict, type("Map", (dict,), {}):
            x = kind.fromkeys(range(1000))
            assert cowshed.freeze_objects(x).bytes >= sys.getsizeof(dict(x)) > 30000
    ''')


@programs()
def test_never_freed(python):
    run(python, '''
        called = []
        x = Plain()
        x.me = x
        refs = weakref.ref(x, called.append), weakref.WeakValueDictionary(a=x)
        weakref.finalize(x, print, "at exit")
        cowshed.freeze_objects(x)
        del x
        gc.collect()
        assert refs[0]() is refs[1]["a"] and not called
        print("end")
    ''') == "end\nat exit\n"


@programs()
def test_finalizers_run(python, tmp_path):
    said = run(python, f'''
        class Final:
            def __init__(self, name):
                self.name, self.data = name, ["data"]
            def __del__(self):
                print(self.name, flush=True)

        def generate():
            try:
                yield 1
                yield 2
            finally:
                print("generator", flush=True)

        file = open({str(tmp_path / "file")!r}, "w")
        file.write("all of it")
        at_end, dropped, in_list = Final("at end"), Final("dropped"), [Final("in a list")]
        going = generate()
        next(going)
        result = cowshed.freeze_objects()
        assert sys.getrefcount(dropped) < 10 and sys.getrefcount(dropped.data) > 1 << 30
        assert result.left >= 5, result
        del dropped
        in_list.clear()
        assert next(going) == 2
        del going
        print("end", flush=True)
    ''')
    assert said == "dropped\nin a list\ngenerator\nend\nat end\n"
    assert (tmp_path / "file").read_text() == "all of it"


@programs()
def test_children_drop_and_change(python):
    run(python, '''
        data, x = make(2000), Plain(a=[1], b="text")
        cowshed.freeze_objects()
        copy = repr(data)

        def change():
            global data
            for row in data[:1000]:
                row["name"] += "!"
                row["new"] = [row.pop("tags")]
                del row["of"]
            data[500:] = []
            x.c = x.__dict__.pop("a")
            n = len(data) + len(x.c)
            data = None
            gc.collect()
            return n

        assert in_child(change) == 501 and repr(data) == copy and x.a == [1]
        assert change() == 501 and x.c == [1]
    ''')


@programs()
def test_deep_and_cyclic(python):
    run(python, '''
        top = last = []
        for _ in range(300000):
            last.append([])
            last = last[0]
        last.append(top)
        assert cowshed.freeze_objects(top) == (300001, cowshed.freeze_objects(top).bytes or
                                               300001 * sys.getsizeof(top), 0)
    ''')


@programs()
def test_garbage_is_collected_first(python):
    run(python, '''
        gc.disable()
        x = Plain()
        x.me = x
        ref = weakref.ref(x)
        del x
        cowshed.freeze_objects()
        assert ref() is None
    ''')


@programs()
def test_other_interpreters(python):
    run(python, '''
        try:
            import _interpreters as other
        except ImportError:
            import _xxsubinterpreters as other
        one = other.create()
        before = "kept = [{str(i): [i]} for i in range(1000)]; import json, collections"
        other.run_string(one, before)
        data = make(100)
        cowshed.freeze_objects()
        after = "assert kept[7] == {'7': [7]}; del kept; json.dumps([1]); import decimal"
        assert other.run_string(one, after) is None
        other.destroy(one)
        two = other.create()
        other.run_string(two, before)
        other.destroy(two)
        assert read(data) >= 0
    ''')


@programs()
def test_with_a_debugging_allocator(python):
    run(python, '''
        data = make(1000)
        cowshed.freeze_objects()
        del data[:500]
        gc.collect()
        cowshed.freeze_objects()
    ''', PYTHONMALLOC="debug", PYTHONDEVMODE="1")


@pytest.mark.skipif(bool(os.environ.get("COWSHED_TEST_SHIM")),
                    reason="the limit is on addresses, and the shim has reserved its own")
@programs()
def test_no_memory(python):
    run(python, '''
        import resource
        data = [[] for _ in range(1 << 20)]
        alone = Plain(data=data)
        with open("/proc/self/statm") as words:
            now = int(words.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20), -1))
        try:
            cowshed.freeze_objects(alone)
        except MemoryError:
            pass
        else:
            assert False
        assert not is_frozen(alone) and sys.getrefcount(data[5]) < 9 and gc.is_tracked(alone)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert cowshed.freeze_objects(alone).objects > 1 << 20
    ''')


@programs()
def test_arrays_of_objects(python):
    said = run(python, '''
        try:
            import numpy as np
        except ImportError:
            sys.exit("no numpy")
        inner = np.array([{"in": "inner %s" % sys.argv}], object)
        outer = np.array([["a" * 40, [1]], [inner, None]], object)
        pairs = np.array([(1, "p" * 40)], [("n", "i4"), ("o", "O")])
        data = {"x": outer, "numbers": np.ones(5), "pairs": pairs, "view": outer[:1]}
        cowshed.freeze_objects(data)
        for y in outer[0, 0], outer[0, 1], inner, inner[0], inner[0]["in"], pairs[0]["o"]:
            assert sys.getrefcount(y) > 1 << 30, y
        cowshed.freeze_objects()
    ''') if _has_numpy(python) else None
    if said is None:
        pytest.skip("no NumPy for this Python")


def _has_numpy(python):
    return subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python has immortal objects")
def test_an_older_python_names_pack():
    with pytest.raises(NotImplementedError, match=r"3\.11.*3\.12 or newer.*cowshed\.pack\("):
        cowshed.freeze_objects([])
