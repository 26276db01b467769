# SPDX-License-Identifier: MIT
"""DataLoader after cowshed.torch.install(): each batch is what plain PyTorch makes of it."""

import collections
import os
import signal

import pytest

torch = pytest.importorskip("torch")

import cowshed.torch as ct  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

# They end by the loader's own threads, and PyTorch's workers by a check every five seconds.
pytestmark = pytest.mark.limit(120)

Point = collections.namedtuple("Point", "x y")


@pytest.fixture(autouse=True)
def installed():
    ct.install()
    yield
    ct.uninstall()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("torch_")]


def numbers(n=64, width=1000):
    return TensorDataset(torch.arange(n * width, dtype=torch.float32).view(n, width),
                         torch.arange(n))


def tensors(x):
    """All tensors in nested containers."""
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def same(a, b):
    """Are two batches alike, in types and in every element?"""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool((a == b).all()) if hasattr(a, "shape") else a == b


def compare(data, ours=(), **options):
    """What a loader with workers gives is what one without gives."""
    plain = list(DataLoader(data, **options))
    batches = list(DataLoader(data, num_workers=2, **dict(ours), **options))
    assert len(batches) == len(plain) and all(map(same, batches, plain))
    for t in tensors(batches):
        assert t.numel() == 0 or (t.is_shared() and ct.storage_of(t).kind == "alias")
    return batches


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method):
    compare(numbers(), {"multiprocessing_context": method}, batch_size=16)


def test_standard_contexts():
    """A context of the standard library means ours."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    compare(numbers(), {"multiprocessing_context": context}, batch_size=16)
    with pytest.raises(ValueError, match="valid start method"):
        DataLoader(numbers(), num_workers=1, multiprocessing_context="nonsense")
    with pytest.raises(TypeError, match="valid context"):
        DataLoader(numbers(), num_workers=1, multiprocessing_context=3)


@pytest.mark.parametrize("options", [
    {"batch_size": 7}, {"batch_size": 7, "drop_last": True}, {"batch_size": None}, {},
    {"batch_sampler": [[1, 2], [3], [60, 5, 4]]}, {"sampler": [3, 1, 2], "batch_size": 2},
], ids=str)
def test_batches(options):
    compare(numbers(20 if not options.get("batch_sampler") else 64, 10), **options)


def test_shuffled():
    data = numbers()
    plain = list(DataLoader(data, 8, True, generator=torch.Generator().manual_seed(3)))
    ours = list(DataLoader(data, 8, True, num_workers=2,
                           generator=torch.Generator().manual_seed(3)))
    assert all(map(same, ours, plain))


class Things(Dataset):
    """Items of all kinds that collate knows."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        import numpy

        return {"array": numpy.full((2, 3), i, "int16"), "scalar": numpy.float64(i), "int": i,
                "float": i / 2, "text": str(i), "bytes": b"x" * i, "empty": torch.zeros(0, 2),
                "point": Point(torch.tensor(i), torch.full((3,), i > 4)),
                "list": [torch.tensor([i], dtype=torch.bfloat16), (i, i)],
                "complex": torch.tensor([i, 1j * i])}


def test_collate_of_all_kinds():
    pytest.importorskip("numpy")
    compare(Things(), batch_size=5)


def test_without_collate():
    compare(Things(), {}, batch_size=4, collate_fn=list)


def double(batch):
    return {k: v * 2 if isinstance(v, torch.Tensor) else v
            for k, v in default_collate(batch).items()}


def test_a_collate_of_ones_own():
    compare(Things(), batch_size=4, collate_fn=double)


class Unequal(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.zeros(2 + i)


def test_unequal_sizes_fail_as_ever():
    with pytest.raises(RuntimeError) as plain:
        list(DataLoader(Unequal(), batch_size=2))
    with pytest.raises(RuntimeError, match="equal size|resize") as ours:
        list(DataLoader(Unequal(), batch_size=2, num_workers=1))
    assert plain.type is ours.type


class Counting(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(torch.arange(info.id * 100, info.id * 100 + 50).split(5))


def test_iterable():
    ours = list(DataLoader(Counting(), batch_size=3, num_workers=2))
    ct.uninstall()
    plain = list(DataLoader(Counting(), batch_size=3, num_workers=2))
    assert len(ours) == len(plain) and all(map(same, ours, plain))


def test_persistent_workers():
    loader = DataLoader(numbers(), 16, num_workers=2, persistent_workers=True)
    plain = list(DataLoader(numbers(), 16))
    pids = set()
    for _ in range(3):
        assert all(map(same, loader, plain))
        pids.add(tuple(w.pid for w in loader._iterator._workers))
    assert len(pids) == 1
    loader._iterator._shutdown_workers()


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_pin_memory():
    """Without a device it does nothing, but there is a thread more."""
    plain = list(DataLoader(numbers(), 16))
    assert all(map(same, DataLoader(numbers(), 16, num_workers=2, pin_memory=True), plain))


def test_batches_stay_after_the_workers():
    kept = compare(numbers(), batch_size=8)
    kept[0][0][0] = -1
    assert kept[0][0][0, 0] == -1 and kept[1][0][0, 0] == 8000


def test_thrown_away_in_the_middle():
    loader = iter(DataLoader(numbers(1000, 10), 1, num_workers=2, prefetch_factor=8))
    assert torch.equal(next(loader)[0][0], torch.arange(10.0))
    del loader


class Fails(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 5:
            raise KeyError("number five")
        return torch.tensor(i)


def test_exceptions_of_workers():
    loader = iter(DataLoader(Fails(), batch_size=2, num_workers=2))
    assert next(loader).tolist() == [0, 1] and next(loader).tolist() == [2, 3]
    with pytest.raises(KeyError, match="number five"):
        next(loader)
    del loader


class Dies(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(i)


def test_killed_workers():
    with pytest.raises(RuntimeError, match="worker .*exited unexpectedly|killed by signal"):
        list(DataLoader(Dies(), batch_size=2, num_workers=2))


def start(worker):
    info = get_worker_info()
    info.dataset.offset = 100 * worker
    assert ct.is_installed()


class Offset(Dataset):
    offset = 0

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.tensor(self.offset + i)


def test_worker_init():
    batches = DataLoader(Offset(), 2, num_workers=2, worker_init_fn=start)
    assert [b.tolist() for b in batches] == [[0, 1], [102, 103]]


class Shared(Dataset):
    """A dataset whose tensor all workers write."""

    def __init__(self):
        self.seen = torch.zeros(40, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 40

    def __getitem__(self, i):
        self.seen[i] += 1
        return i


def test_a_shared_tensor_in_the_dataset():
    data = Shared()
    for _ in DataLoader(data, 4, num_workers=2):
        pass
    assert data.seen.tolist() == [1] * 40


def test_large_batches():
    compare(numbers(16, 1 << 18), batch_size=4)
