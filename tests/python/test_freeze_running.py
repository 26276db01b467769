# SPDX-License-Identifier: MIT
"""freeze_objects() while functions, generators, threads and coroutines run."""

import pytest
from freezing import programs, run


@programs()
def test_frames_end(python):
    run(python, '''
        frames = []

        def inner():
            frames.append(sys._getframe())
            cowshed.freeze_objects()
            later = Plain()
            return weakref.ref(later)

        def outer():
            frames.append(sys._getframe())
            refs = [inner()]
            later = Plain()
            return [*refs, weakref.ref(later)]

        refs = outer()
        frames.clear()
        gc.collect()
        assert [ref() for ref in refs] == [None, None]
    ''')


@programs()
@pytest.mark.parametrize("made", [
    "tuple(values())", "frozenset(values())", "list(values())", "{x: 1 for x in values()}",
    "''.join(map(str, values()))", "sorted(values(), key=lambda x: -x)", "[*values()]",
    "(*values(), 5)", "dict(zip(values(), values()))", "max(values())",
    "tuple(map(lambda *x: x, values(), values()))", "__import__('itertools').chain(*[values()])"])
def test_what_is_being_made(python, made):
    run(python, f'''
        def values():
            for i in range(40):
                if i in (0, 3, 20):
                    cowshed.freeze_objects()
                yield i

        def again():
            global values
            made = {made}
            values = lambda: iter(range(40))
            return repr(made) == repr({made}) or list(made) == list({made})

        assert again()
    ''')


@programs()
def test_local_variables_of_running_functions(python):
    run(python, '''
        import threading
        ready, go = threading.Event(), threading.Event()

        def other():
            held = dict.fromkeys(["in the thread"], "value %s" % sys.argv)
            gc.collect()
            ready.set()
            go.wait()
            assert sys.getrefcount(held) > 1 << 30 < sys.getrefcount(held["in the thread"])

        def caller():
            names = tuple("name %d" % i for i in range(9))
            gc.collect()
            assert not gc.is_tracked(names)
            cowshed.freeze_objects()
            assert all(sys.getrefcount(name) > 1 << 30 for name in names)
            return names

        failed = []
        threading.excepthook = failed.append
        thread = threading.Thread(target=other)
        thread.start()
        ready.wait()
        assert len(caller()) == 9
        go.set()
        thread.join()
        assert not failed
    ''')


@programs()
def test_a_thread_that_only_freezes(python):
    run(python, '''
        import _thread, threading
        done, x, failed = threading.Event(), Plain(), []
        _thread.start_new_thread(lambda: (cowshed.freeze_objects(), done.set()), ())
        assert done.wait(40) and is_frozen(x)
        y = Plain()
        sys.unraisablehook = failed.append
        _thread.start_new_thread(cowshed.freeze_objects, ())
        while not is_frozen(y) and not failed:
            os.sched_yield()
        assert not failed
    ''')


@programs()
def test_beside_threads(python):
    run(python, '''
        import threading
        stop, failed = threading.Event(), []

        def work():
            kept = {}
            i = 0
            while not stop.is_set():
                i += 1
                kept[i % 50] = tuple({"a": [i], "b": frozenset((str(i), j))} for j in range(5))
                assert [x["a"] for x in kept[i % 50]] == [[i]] * 5
                assert len("".join(str(x) for x in range(i % 30))) >= 0

        threading.excepthook = failed.append
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            cowshed.freeze_objects()
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed
    ''')


@programs()
def test_a_loop_of_coroutines(python):
    run(python, '''
        import asyncio

        async def count(queue):
            total = 0
            while (x := await queue.get()) is not None:
                total += len(x)
            return total

        async def main():
            queue = asyncio.Queue()
            tasks = [asyncio.create_task(count(queue)) for _ in range(3)]
            for i in range(30):
                await queue.put("x" * i)
                if i % 10 == 5:
                    await asyncio.sleep(0)
                    cowshed.freeze_objects()
            for _ in tasks:
                await queue.put(None)
            return sum(await asyncio.gather(*tasks))

        assert asyncio.run(main()) == sum(range(30))
        cowshed.freeze_objects()
    ''')
