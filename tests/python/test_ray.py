# SPDX-License-Identifier: MIT
"""cowshed.ray with the real Ray: worker processes, two nodes on this machine, killed workers.

Each scene is a program of its own (this file, run with its name): Ray leaves threads in its
process. No process of a scene may outlive it.
"""

import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import types

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
import cowshed.ray  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from cowshed._memory import _mappings  # noqa: E402

MIB = 1 << 20
N = 4 * MIB  # bytes of an array
STORE = 100 * MIB  # Ray wants 75 MiB at least
HOOK = {"worker_process_setup_hook": "cowshed.ray.install"}
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "COWSHED_TEST_SHIM": ""}


def run_scene(name):
    """A scene, in a session of its own. The processes that Ray starts know its folder."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **QUIET, "XDG_RUNTIME_DIR": folder, "TMPDIR": folder}
        scene = subprocess.Popen([sys.executable, __file__, name, folder], cwd=folder, env=env,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 start_new_session=True)
        try:
            said = scene.communicate(timeout=150)[0]
            left = wait_until(lambda: not processes_of(folder))
        finally:
            for pid in {scene.pid, *processes_of(folder)}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            scene.wait()
        assert scene.returncode == 0, said[-6000:]
        assert left, "processes are left"


def processes_of(folder):
    """Those that were started with the folder in their environment."""
    found, wanted = [], f"XDG_RUNTIME_DIR={folder}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def wait_until(what):
    end = time.monotonic() + 60
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


SCENES = ["workers", "kinds", "storages", "pin", "killed", "two_nodes"]


@pytest.mark.limit(240)
@pytest.mark.parametrize("name", SCENES)
def test_cluster(name):
    pytest.importorskip("ray", reason="Ray is not installed")
    run_scene(name)


# ---- Without a cluster ---------------------------------------------------------------------


def test_a_missing_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="cowshed.ray needs ray 2.60.*pip install ray"):
        cowshed.ray.install()
    assert not cowshed.ray.is_installed()


def fake_ray(monkeypatch, **names):
    """A Ray whose store gives what the test put there."""
    ray = types.ModuleType("ray")
    ray.__version__ = "9.9"
    ray.cloudpickle = types.ModuleType("ray.cloudpickle")
    ray.cloudpickle.CloudPickler = type("CloudPickler", (), {"dispatch": {}})
    ray._private = types.ModuleType("ray._private")
    ray._private.serialization = types.ModuleType("ray._private.serialization")
    vars(ray._private.serialization).update(names)
    for name, module in {"ray": ray, "ray._private": ray._private, "ray.cloudpickle":
                         ray.cloudpickle, "ray._private.serialization":
                         ray._private.serialization}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return ray._private.serialization


def test_a_ray_that_is_made_in_another_way(monkeypatch):
    theirs = fake_ray(monkeypatch)
    with pytest.raises(RuntimeError, match=r"ray 9.9 .*use ray 2.60, or cowshed.writable"):
        cowshed.ray.install()
    assert not cowshed.ray.is_installed() and not hasattr(theirs, "unpack_pickle5_buffers")


def test_install_twice_and_back(monkeypatch):
    def own(data):
        return data, [b"abc"]

    theirs = fake_ray(monkeypatch, unpack_pickle5_buffers=own)
    cowshed.ray.uninstall()  # does nothing
    for _ in range(2):
        cowshed.ray.install()
    ours = theirs.unpack_pickle5_buffers
    assert cowshed.ray.is_installed() and ours is not own
    body, (buffer,) = ours(b"body")
    buffer[0] = ord("x")
    assert (body, bytes(buffer)) == (b"body", b"xbc")
    for _ in range(2):
        cowshed.ray.uninstall()
    assert theirs.unpack_pickle5_buffers is own and not cowshed.ray.is_installed()
    assert ours(b"body") == (b"body", [b"abc"])  # a thread that had it already


def test_buffers_of_memory_that_is_no_file(monkeypatch):
    x = np.arange(N // 8)
    shaped = memoryview(np.ones((3, 4)))
    x.flags.writeable = False
    gaps = memoryview(bytes(10))[::2]
    theirs = fake_ray(monkeypatch,
                      unpack_pickle5_buffers=lambda data: (data, [x, shaped, b"", gaps]))
    before = cowshed.ray.stats()
    cowshed.ray.install()
    try:
        large, small, empty, same = theirs.unpack_pickle5_buffers(b"")[1]
    finally:
        cowshed.ray.uninstall()
    assert (large.format, small.shape, same) == (memoryview(x).format, (3, 4), gaps)
    large[5] = 7
    assert x[5] == 5 and large[6] == 6 and not empty.readonly
    after = cowshed.ray.stats()
    assert after["copied"] - before["copied"] == 3 and after["private"] == before["private"]


def test_a_storage_is_no_part_of_the_pickle():
    storage = _cowshed.new(MIB)
    memoryview(storage)[:3] = b"abc"
    rebuild, (buffer, readonly) = cowshed.ray._reduce_storage(storage)
    assert _cowshed.address_of(buffer)[0] == storage.address and readonly is False
    for data in bytes(buffer), memoryview(bytes(buffer)):
        made = rebuild(data, True)
        assert made.readonly and bytes(made) == bytes(storage)


# ---- The scenes ----------------------------------------------------------------------------


def start(folder, **more):
    import ray
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", runtime_env=HOOK,
             object_store_memory=STORE, _temp_dir=folder, **more)
    cowshed.ray.install()
    return ray


def foreign():
    return cowshed.stats()["fallbacks"].get("foreign", 0)


def scene_workers(folder):
    """Several readers of one object, each of which writes it."""
    ray = start(folder)
    marks = os.path.join(folder, "marks")
    os.mkdir(marks)

    @ray.remote
    def write(x, i):
        # A worker alone would do all of it before the second one runs.
        open(os.path.join(marks, str(os.getpid())), "w").close()
        wait_until(lambda: len(os.listdir(marks)) > 1)
        wrong = [x[0] != 1, x[-1] != 1, not x.flags.writeable, cowshed.ray.stats()["copied"]]
        x[0] = x[-1] = i
        return any(wrong), os.getpid(), int(x[0])

    reference = ray.put(np.ones(N, "u1"))
    mine = ray.get(reference)
    mine[5] = 77
    said = ray.get([write.remote(reference, i) for i in range(20)])
    assert [first for _, _, first in said] == list(range(20)), said
    assert not any(wrong for wrong, _, _ in said) and len({pid for _, pid, _ in said}) > 1
    assert (mine[0], mine[5], mine[-1]) == (1, 77, 1)
    again = ray.get(reference)
    assert (again == 1).all() and foreign() == 0 and cowshed.ray.stats()["private"] == 2
    child = os.fork()
    if child == 0:
        mine[6] = 5
        os._exit((mine[5], mine[6], mine[7]) != (77, 5, 1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and mine[6] == 1

    @ray.remote
    class Keeper:
        def __init__(self, x):
            self.x = x

        def add(self):
            self.x += 1
            return self.x

    keeper = Keeper.remote(reference)
    for i in range(2, 5):
        x = ray.get(keeper.add.remote())
        assert (x == i).all()
        x[:] = 0
    cowshed.ray.uninstall()
    assert not ray.get(reference).flags.writeable and (mine[5], mine[6]) == (77, 1)


def scene_kinds(folder):
    """What is an array, what consists of arrays, and what can't be put."""
    import threading

    import pandas
    import pyarrow

    ray = start(folder)
    big = np.arange(N // 8)
    for x in (np.arange(5), np.zeros((0, 3)), np.array(5.0), big.reshape(1024, -1).T, big[::3],
              big.astype(">i8"), big.astype("M8[s]"), np.zeros(10**5, "u1,>f8"),
              np.zeros(10**5, "S7"), np.array(["a", "b"])):
        y = ray.get(ray.put(x))
        assert y.flags.writeable and y.dtype == x.dtype and y.shape == x.shape, x.dtype
        assert (y == x).all() and y.flags.f_contiguous == x.copy("K").flags.f_contiguous
        if x.size:
            y[...] = y.flat[-1]
    objects = ray.get(ray.put(np.array([1, {"a": big}], object)))
    objects[1]["a"][0] = 7
    many = ray.get(ray.put([big[i : i + 50000] for i in range(0, 500000, 50000)]))
    many[3][0] = -1
    assert [int(x[0]) for x in many] == [0, 50000, 100000, -1, *range(200000, 500000, 50000)]
    assert cowshed.storage_of(many[0]) is cowshed.storage_of(many[9])
    frame = ray.get(ray.put(pandas.DataFrame({"x": big, "s": ["a"] * len(big)})))
    frame.loc[3, "x"] = -5
    assert frame["x"].tolist()[2:5] == [2, -5, 4]
    table = ray.get(ray.put(pyarrow.table({"x": big})))
    table.validate(full=True)
    assert table["x"][-1].as_py() == N // 8 - 1
    assert ray.get(ray.put({"text": "x" * MIB, "bytes": b"y" * MIB}))["bytes"] == b"y" * MIB
    assert foreign() == 0
    for wrong in threading.Lock(), (x for x in []):
        try:
            ray.put(wrong)
        except TypeError as error:
            assert "serialize" in str(error) or "pickle" in str(error)
        else:
            raise AssertionError(f"{wrong} was put")


def scene_storages(folder):
    import ray.cloudpickle as cloudpickle

    ray = start(folder)

    @ray.remote
    def look(storage):
        bytes_ = memoryview(storage)
        first = bytes_[0]
        if not storage.readonly:
            bytes_[0] = 9
        return first, storage.nbytes, storage.readonly, foreign()

    storage = cowshed.storage_of(cowshed.full(N, 3, "u1"))
    before = cowshed.stats()["bytes_copied"]
    beside = []
    data = cloudpickle.dumps([storage], protocol=5, buffer_callback=beside.append)
    assert len(data) < 1024 and _cowshed.address_of(beside[0])[0] == storage.address
    assert cowshed.stats()["bytes_copied"] == before
    for given in (storage, storage.clone(readonly=True), _cowshed.new(100, zero=True),
                  _cowshed.new(0)):
        readonly = bool(given.readonly)
        reference = ray.put({"s": given})
        got = ray.get(reference)["s"]
        assert bytes(got) == bytes(given) and bool(got.readonly) == readonly
        if given.nbytes and not readonly:
            memoryview(got)[0] = 8
        if given.nbytes:
            wanted = bytes(given)[0], given.nbytes, readonly, 0
            assert ray.get(look.remote(given)) == wanted == ray.get(look.remote(given))
        assert bytes(ray.get(reference)["s"]) == bytes(given)
    packed = cowshed.pack([{"id": i, "x": np.full(1000, i)} for i in range(1000)])
    back = ray.get(ray.put(packed))
    assert back == packed and back[7]["x"][-1] == 7
    assert foreign() == 0
    # A program without install() reads it, too.
    made = pickle.loads(cloudpickle.dumps(storage, protocol=5))
    assert bytes(made) == bytes(storage)


def file_of(x):
    """The file of the store that an array lies in."""
    address = x.__array_interface__["data"][0]
    return _mappings.covering(address, address + 1)[0].file()


def is_free(store):
    """Whether most of the store is free. An object that does not fit gets a file of its own."""
    import ray

    return file_of(ray.get(ray.put(np.zeros(STORE * 8 // 10, "u1")))) == store


def scene_pin(folder):
    """The store keeps an object as long as what was made of it lives, and no longer."""
    ray = start(folder)
    size = 30 * MIB
    reference = ray.put(np.full(size, 5, "u1"))
    mine = ray.get(reference)
    store = file_of(mine)
    mine[0] = 1
    part = mine[size // 2 :].view("u8")
    del reference, mine
    gc.collect()
    # More than the store holds: the object's place would be taken.
    for i in range(8):
        other = ray.get(ray.put(np.full(size, i, "u1")))
        assert (other == i).all()
        del other
    assert (part == 0x0505050505050505).all() and not is_free(store)
    part[0] = 0
    del part
    gc.collect()
    assert wait_until(lambda: is_free(store))

    storage = ray.get(ray.put(cowshed.storage_of(cowshed.full(size, 6, "u1")).clone(readonly=True)))
    for i in range(8):
        ray.get(ray.put(np.full(size, i, "u1")))
    assert storage.readonly and bytes(storage) == b"\6" * size
    del storage
    gc.collect()
    assert wait_until(lambda: is_free(store))


def scene_killed(folder):
    """A worker that is killed with pages of its own harms no reader, and leaves no pin."""
    ray = start(folder)
    size = 30 * MIB

    @ray.remote(max_restarts=0)
    class Holder:
        def hold(self, x):
            self.x = x[0]
            self.x[:] = 9
            return os.getpid()

    reference = ray.put(np.full(size, 5, "u1"))
    mine = ray.get(reference)
    store = file_of(mine)
    mine[0] = 1
    holder = Holder.remote()
    os.kill(ray.get(holder.hold.remote([ray.get(reference)])), signal.SIGKILL)
    try:
        ray.get(holder.hold.remote([1]))
    except ray.exceptions.RayActorError:
        pass
    assert mine[0] == 1 and (mine[1:] == 5).all() and (ray.get(reference) == 5).all()
    del reference, mine
    gc.collect()
    assert wait_until(lambda: is_free(store))


def scene_two_nodes(folder):
    """Two stores: Ray carries the object, and both sides map what they have."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(num_cpus=1, object_store_memory=STORE, resources={"far": 1})
    ray.init(address=cluster.address, runtime_env=HOOK, logging_level="error")
    cowshed.ray.install()
    try:
        @ray.remote(resources={"far": 0.1}, num_cpus=0)
        def far(x):
            was = int(x[0]), x.flags.writeable
            x[0] = 9
            stats = cowshed.ray.stats()
            return was, np.full(N, 4, "u1"), stats["private"], stats["copied"], (
                ray.get_runtime_context().get_node_id())

        reference = ray.put(np.ones(N, "u1"))
        for i in range(1, 3):
            answer = far.remote(reference)
            was, made, private, copied, where = ray.get(answer)
            assert (was, private, copied) == ((1, True), i, 0), (was, private, copied)
            assert where != ray.get_runtime_context().get_node_id()
            made[0] = 5
            assert (made[1:] == 4).all() and (ray.get(answer)[1] == 4).all()
        assert (ray.get(reference) == 1).all() and foreign() == 0
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    globals()["scene_" + sys.argv[1]](sys.argv[2])
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
