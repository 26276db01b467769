# SPDX-License-Identifier: MIT
"""cowshed.dask in clusters of processes: unmodified code, workers and brokers that die, hosts.

Each scene is a program of its own (this file, run with its name), since a cluster leaves
threads and an event loop in its process.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("numpy")
pytest.importorskip("distributed")

MIB = 1 << 20


def run_scene(name, tmp_path, *prefix):
    """A scene, in a session of its own that ends with it."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path),
           "COWSHED_TEST_SHIM": ""}
    scene = subprocess.Popen([*prefix, sys.executable, __file__, name], cwd=tmp_path, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    try:
        said = scene.communicate(timeout=100)[0]
    finally:
        try:
            os.killpg(scene.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        scene.wait()
    assert scene.returncode == 0, said[-6000:]


SCENES = ["rechunk", "plugin", "kinds", "spill", "killed_worker", "killed_broker"]


@pytest.mark.limit(110)
@pytest.mark.parametrize("name", SCENES)
def test_cluster(name, tmp_path):
    run_scene(name, tmp_path)


def can_unshare():
    try:
        return subprocess.run(["unshare", "-n", "-m", "ip", "link", "set", "lo", "up"],
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


@pytest.mark.limit(110)
@pytest.mark.skipif(not can_unshare(), reason="no network namespaces of our own")
def test_two_hosts(tmp_path):
    run_scene("two_hosts", tmp_path, "unshare", "-n", "-m")


# ---- The scenes ---------------------------------------------------------------------------


def sent():
    import cowshed.dask
    return cowshed.dask.stats().get("bytes", 0)


def waits():
    import cowshed.dask
    stats = cowshed.dask.stats()
    return stats.get("unread", 0) + stats.get("waiting_bytes", 0)


def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def cluster(workers=2, reduce=True, **more):
    """`reduce=False`: who sent something keeps it, and so does who received it. By default Dask
    looks every two seconds, and drops one of the two."""
    import dask.config
    from distributed import LocalCluster
    dask.config.set({"distributed.scheduler.active-memory-manager.start": reduce})
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True,
                        dashboard_address=None, **more)


def held():
    """What the broker holds that is no probe and no ledger."""
    from cowshed.dask import _host

    return [item for item in _host.broker().list() if item["nbytes"] > 100000]


def nothing_is_left():
    until(lambda: not held())


def array(side=2048, chunk=1024):
    import dask.array as da
    return da.arange(side * side, chunks=chunk * chunk).reshape(side, side).rechunk(chunk)


def scene_rechunk():
    """Dask's own code, the workers under the shim. The client is told by install() alone."""
    import cowshed.dask
    cowshed.dask.install()
    import dask.array as da
    from distributed import Client, wait
    with cluster(4) as c, Client(c) as client:
        x = da.random.random((2048, 2048), chunks=(1024, 1024)).persist()
        wait(x)
        for method in "tasks", "p2p":
            y = x.rechunk((256, -1), method=method)
            assert abs(float((x.sum() - y.sum()).compute())) < 1e-6
            assert bool((x == y).all().compute())
        assert sum(client.run(sent).values()) > 8 * MIB
        del x, y
        until(lambda: not any(client.run(waits).values()))
    nothing_is_left()


def scene_plugin():
    """A cluster that was there before."""
    import numpy as np
    import cowshed.dask
    from distributed import Client
    with cluster() as c, Client(c) as client:
        cowshed.dask.install(client)
        first, second = client.scheduler_info()["workers"]
        x = client.submit(np.arange, MIB, workers=[first])
        assert client.submit(np.sum, x, workers=[second]).result() == MIB * (MIB - 1) // 2
        assert client.run(sent)[first] == 8 * MIB
        # Straight to and from the client.
        back = client.gather(x)
        assert back.flags.writeable and back[-1] == MIB - 1
        assert sum(client.run(sent).values()) == 16 * MIB  # either has it by now
        y = client.scatter(np.ones(MIB), direct=True)
        assert client.submit(np.sum, y).result() == MIB
        assert cowshed.dask.stats()["bytes"] == 8 * MIB
        del x, y
        until(lambda: not any(client.run(waits).values()))
    until(lambda: not waits())
    nothing_is_left()


def scene_kinds():
    """By way of the scheduler, or not; data frames; what is nested."""
    import numpy as np
    import pandas as pd
    import cowshed.dask
    cowshed.dask.install()
    from distributed import Client
    for direct in None, True:
        with cluster() as c, Client(c, direct_to_workers=direct) as client:
            first, second = client.scheduler_info()["workers"]
            frame = pd.DataFrame({"a": np.arange(MIB), "b": np.arange(MIB) / 3})
            things = {"frame": frame, "list": [np.ones(MIB), ("x", np.zeros((1000, 1000)))]}
            future = client.scatter([things])[0]
            local = client.submit(lambda t: t, future, workers=[first])
            moved = client.submit(lambda t: t["frame"], local, workers=[second])
            pd.testing.assert_frame_equal(moved.result(), frame)
            assert client.run(sent)[first] > 16 * MIB
            got = client.gather(local)
            assert (got["list"][0] == 1).all() and (got["list"][1][1] == 0).all()


def scene_spill():
    import numpy as np
    import cowshed.dask
    cowshed.dask.install()
    from distributed import Client

    def evict(dask_worker):
        while dask_worker.data.fast:
            dask_worker.data.evict()
        return len(dask_worker.data.slow)

    with cluster(reduce=False) as c, Client(c) as client:
        first, second = client.scheduler_info()["workers"]
        x = client.submit(np.arange, MIB, workers=[first])
        y = client.submit(lambda a: a, x, workers=[second])  # received, and kept
        assert y.result()[5] == 5
        evicted = client.run(evict)
        assert evicted[first] == 1 and evicted[second] == 2
        z = client.submit(lambda a, b: int((a == b).all()), x, y, workers=[second])
        assert z.result() == 1


def scene_killed_worker():
    """Its memory and its tokens end with it; its nanny starts another."""
    import numpy as np
    import cowshed.dask
    cowshed.dask.install()
    import dask.config
    from distributed import Client, wait
    dask.config.set({"distributed.comm.timeouts.connect": "3s"})
    with cluster(reduce=False) as c, Client(c) as client:
        # Bound to no worker: when its own is killed another one makes it again.
        x = client.submit(np.arange, 4 * MIB)
        wait(x)
        [first] = client.who_has(x)[x.key]
        [second] = set(client.scheduler_info()["workers"]) - {first}
        y = client.submit(lambda a: a + 1, x, workers=[second])
        assert y.result()[0] == 1
        assert held()
        pid = client.run(os.getpid)[first]
        os.kill(pid, signal.SIGKILL)
        assert client.submit(lambda a: int(a[-1]), x, workers=[second]).result() == 4 * MIB - 1

        def both_are_there():
            # Until the scheduler knows of its death it is asked, too, and has no answer.
            pids = list(client.run(os.getpid, on_error="return").values())
            return len(pids) == 2 and pid not in pids and all(type(p) is int for p in pids)

        until(both_are_there)
        third = next(w for w in client.scheduler_info()["workers"] if w != second)
        assert client.submit(lambda a: int(a[0]), y, workers=[third]).result() == 1
    nothing_is_left()


def scene_killed_broker():
    import dask.array as da
    import cowshed.dask
    cowshed.dask.install()
    from cowshed.dask import _host
    from distributed import Client, wait
    sys.path.insert(0, os.path.dirname(__file__))
    from test_dask import kill_brokers
    with cluster() as c, Client(c):
        x = da.random.random((2048, 2048), chunks=(512, 512)).persist()
        wait(x)
        for rows in 64, 128, 256, 32:
            y = x.rechunk((rows, -1), method="tasks").persist()
            kill_brokers(_host.address())
            assert bool((x == y).all().compute())
    nothing_is_left()


def scene_two_hosts():
    """Two workers of this machine that can't reach the same broker: hosts of their own."""
    def start(*command, **more):
        return subprocess.Popen(command, **more)

    def here(*command):
        subprocess.run(command, check=True)

    here("ip", "link", "set", "lo", "up")
    other = start("unshare", "-n", "-m", "sleep", "1000")
    until(lambda: os.readlink(f"/proc/{other.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
    there = ("nsenter", "-t", str(other.pid), "-n", "-m")
    here("ip", "link", "add", "cow0", "type", "veth", "peer", "name", "cow1")
    here("ip", "link", "set", "cow1", "netns", str(other.pid))
    here("ip", "addr", "add", "10.99.0.1/24", "dev", "cow0")
    here("ip", "link", "set", "cow0", "up")
    here(*there, "ip", "addr", "add", "10.99.0.2/24", "dev", "cow1")
    here(*there, "ip", "link", "set", "cow1", "up")
    here(*there, "ip", "link", "set", "lo", "up")
    runtime = os.path.join(os.environ["XDG_RUNTIME_DIR"], "other")
    os.mkdir(runtime, 0o700)
    worker = (sys.executable, "-m", "distributed.cli.dask_worker", "tcp://10.99.0.1:8786",
              "--nthreads", "1", "--no-dashboard", "--preload", "cowshed.dask")
    started = [
        start(sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "10.99.0.1",
              "--port", "8786", "--no-dashboard"),
        start(*worker, "--name", "a", "--host", "10.99.0.1"),
        start(*worker, "--name", "b", "--host", "10.99.0.1"),
        start(*there, *worker, "--name", "c", "--host", "10.99.0.2",
              env={**os.environ, "XDG_RUNTIME_DIR": runtime}),
    ]
    import numpy as np
    from distributed import Client
    with Client("tcp://10.99.0.1:8786", timeout=60) as client:
        client.wait_for_workers(3, timeout=60)
        x = client.submit(np.arange, MIB, workers=["a"])
        total = MIB * (MIB - 1) // 2
        assert client.submit(np.sum, x, workers=["b"]).result() == total
        one = sum(client.run(sent).values())
        assert one == 8 * MIB
        assert client.submit(np.sum, x, workers=["c"], pure=False).result() == total
        y = client.submit(np.arange, 5, MIB, workers=["c"])
        assert client.submit(np.sum, y, workers=["a"]).result() == total - 10
        assert sum(client.run(sent).values()) == one
    for process in [*started, other]:
        process.terminate()
    for process in [*started, other]:
        process.wait()


if __name__ == "__main__":
    globals()["scene_" + sys.argv[1]]()
