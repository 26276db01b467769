# SPDX-License-Identifier: MIT
"""cowshed.torch.install() and uninstall(), and the limits that PyTorch's sharing runs into:
descriptors, a full /dev/shm, a receiver that is killed."""

import os
import queue as standard_queue
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import cowshed.torch as ct  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

PATIENCE = 50


@pytest.fixture(autouse=True)
def installed():
    ct.install()
    yield
    ct.uninstall()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("torch_")]


@pytest.fixture
def context():
    return mp.get_context("fork")


# ---- install() itself --------------------------------------------------------------------


def test_install_twice_and_uninstall():
    ct.install()
    assert ct.is_installed()
    share_memory_ = torch.UntypedStorage.share_memory_
    ct.uninstall()
    ct.uninstall()
    assert not ct.is_installed() and torch.UntypedStorage.share_memory_ is not share_memory_
    import multiprocessing

    assert mp.Process is multiprocessing.Process
    assert mp.Queue.__self__ is multiprocessing.Queue.__self__
    t = torch.zeros(3).share_memory_()
    assert ct.storage_of(t) is None and t.is_shared()
    queue = multiprocessing.SimpleQueue()
    queue.put(t)
    assert torch.equal(queue.get(), t)
    queue.close()
    from multiprocessing import resource_sharer

    resource_sharer.stop()


def test_the_first_snapshot_imports_nothing(tmp_path):
    program = """if True:
        import sys, torch, cowshed.torch
        cowshed.torch.install()
        state = {"w": cowshed.torch.full((1 << 20,), 1.0)}
        before = set(sys.modules)
        cowshed.snapshot(state).save_async(sys.argv[1]).wait()
        print(*(set(sys.modules) - before))
    """
    path = tmp_path / "state.safetensors"
    got = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True,
                         check=True)
    assert got.stdout.split() == []


def test_start_method_is_the_standard_librarys():
    script = """if True:
        import multiprocessing, torch, cowshed.torch
        cowshed.torch.install()
        multiprocessing.set_start_method("spawn")
        import torch.multiprocessing as mp
        assert mp.get_start_method() == "spawn" and mp.get_context()._name == "spawn"
        assert mp.Pool(1)._ctx._name == "spawn"
        mp.set_start_method("fork", force=True)
        assert multiprocessing.get_start_method() == "fork" == mp.get_context()._name
        assert type(mp.get_context("forkserver")).__module__.startswith("cowshed.")
    """
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)


def test_sharing_strategies_are_accepted(context):
    before = mp.get_sharing_strategy()
    try:
        for strategy in mp.get_all_sharing_strategies():
            mp.set_sharing_strategy(strategy)
            assert mp.get_sharing_strategy() == strategy
            queue = context.SimpleQueue()
            x = torch.zeros(3)
            queue.put(x)
            queue.get()[0] = 1
            assert x[0] == 1
    finally:
        mp.set_sharing_strategy(before)
    assert not managers()


def managers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as name:
                if name.read().startswith("torch_shm_mana"):
                    found.append(pid)
        except OSError:
            pass
    return found


# ---- Plain multiprocessing --------------------------------------------------------------


def add_three(tensor):
    tensor.add_(3)


def test_plain_multiprocessing_queues():
    """A queue of the standard library sends tensors without /dev/shm, too."""
    import multiprocessing

    queue = multiprocessing.get_context("fork").Queue()
    x = torch.zeros(100)
    queue.put([x, x[3:]])
    a, b = queue.get(timeout=PATIENCE)
    a[3] = 1
    assert x[3] == 1 and b[0] == 1 and x.is_shared() and ct.storage_of(x).kind == "alias"
    queue.close()
    queue.join_thread()
    from multiprocessing import resource_sharer

    resource_sharer.stop()


def test_plain_multiprocessing_spawn():
    import multiprocessing

    x = torch.zeros(3)
    process = multiprocessing.get_context("spawn").Process(target=add_three, args=(x,))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0 and x.tolist() == [3, 3, 3]
    process.close()


def test_memory_that_pytorch_shared_before(context):
    ct.uninstall()
    x = torch.zeros(1000).share_memory_()
    ct.install()
    assert x.is_shared() and ct.storage_of(x) is None
    queue = context.SimpleQueue()
    queue.put(x)
    y = queue.get()
    y[0] = 1
    assert x[0] == 1
    from multiprocessing import resource_sharer

    resource_sharer.stop()


# ---- Limits -----------------------------------------------------------------------------


MANY = """if True:
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    import torch, cowshed.torch
    cowshed.torch.install()
    import torch.multiprocessing as mp
    queue = mp.get_context("fork").Queue()
    done = mp.get_context("fork").SimpleQueue()
    def child():
        kept = [queue.get() for _ in range(3000)]
        for x in kept:
            x += 1
        done.put(sum(int(x[0]) for x in kept))
    process = mp.get_context("fork").Process(target=child)
    process.start()
    tensors = [torch.full((1024,), float(i)) for i in range(3000)]
    for t in tensors:
        queue.put(t)
    assert done.get() == 3000 * 3001 // 2
    assert all(t[0] == i + 1 for i, t in enumerate(tensors))
    process.join()
    assert process.exitcode == 0
"""


def test_thousands_of_tensors_with_64_descriptors():
    subprocess.run([sys.executable, "-c", MANY], check=True, timeout=PATIENCE)


TINY = """if True:
    import os, torch, cowshed.torch
    assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize <= 1 << 20
    cowshed.torch.install()
    import torch.multiprocessing as mp
    from torch.utils.data import DataLoader, TensorDataset
    x = torch.zeros(8 << 20).share_memory_()
    x += 1
    queue = mp.get_context("fork").Queue()
    queue.put(torch.ones(8 << 20))
    assert torch.equal(queue.get(), x)
    data = TensorDataset(torch.arange(64).view(64, 1).expand(64, 40000).contiguous())
    got = torch.cat([b[0] for b in DataLoader(data, batch_size=16, num_workers=2)])
    assert torch.equal(got, data.tensors[0])
    assert os.listdir("/dev/shm") == []
"""


def test_a_tiny_dev_shm():
    space = ["unshare", "-r", "-m"]
    mount = ["sh", "-c", 'mount -t tmpfs -o size=1M tmpfs /dev/shm && exec "$@"', "sh"]
    try:
        subprocess.run([*space, *mount, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mount namespace: {error}")
    subprocess.run([*space, *mount, sys.executable, "-c", TINY], check=True, timeout=PATIENCE)


def test_a_killed_receiver_harms_nobody(context):
    queue, ready = context.Queue(), context.SimpleQueue()
    process = context.Process(target=hang_with_one, args=(queue, ready))
    process.start()
    x = torch.zeros(1 << 18)
    queue.put(x)
    assert ready.get() == "mine"
    process.kill()
    process.join()
    process.close()
    x[0] = 1
    queue.put(x)
    assert queue.get(timeout=PATIENCE)[0] == 1
    with pytest.raises(standard_queue.Empty):
        queue.get(timeout=0.01)


def hang_with_one(queue, ready):
    x = queue.get()
    x[:10] += 1
    ready.put("mine")
    signal.pause()
