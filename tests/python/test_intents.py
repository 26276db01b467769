# SPDX-License-Identifier: MIT
"""Write intents: what is rewritten beside a snapshot is copied in bulk, and the snapshot stays."""

import threading

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402
from cowshed import _cowshed  # noqa: E402

try:
    import torch

    import cowshed.torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")

LARGE = 1 << 20


def from_elsewhere():
    """After forks beside which much was rewritten the engine has new memory from elsewhere."""
    return "backing" in cowshed.stats()["fallbacks"]


def test_a_state_is_rewritten_again_and_again():
    state = {"w": cowshed.full((LARGE,), 0.0), "deep": [cowshed.full((2 * LARGE,), 0.0)],
             "small": cowshed.full((10,), 0.0), "foreign": np.zeros(LARGE), "number": 3}
    arrays = [state["w"], state["deep"][0], state["small"], state["foreign"]]
    for turn in range(1, 6):
        snapshot = cowshed.snapshot(state)
        copied = cowshed.write_intent(state)
        if not from_elsewhere():
            assert copied >= 3 * LARGE * 8
            assert snapshot.cloned_bytes >= 3 * LARGE * 8
        for x in arrays:
            assert (x == turn - 1).all()
            x += 1
        for x in [snapshot.state["w"], snapshot.state["deep"][0], snapshot.state["small"],
                  snapshot.state["foreign"]]:
            assert (x == turn - 1).all()
    assert cowshed.write_intent(state) == 0 or from_elsewhere()


def test_overwrite_copies_nothing():
    x = cowshed.full((LARGE,), 1.0)
    clone = cowshed.clone(x)
    assert cowshed.write_intent(x, overwrite=True) == 0
    x[:] = 2
    assert (clone == 1).all() and (x == 2).all()


def test_what_it_leaves_alone():
    x = cowshed.full((LARGE, 2), 1.0)
    clone = cowshed.clone(x)
    frozen = cowshed.freeze(cowshed.full((LARGE,), 5.0))
    shared = cowshed.array(np.ones(LARGE), shared=True)
    assert cowshed.write_intent([x[:, 0], x[::2], frozen, shared, 7, "text", None, {}]) == 0
    assert cowshed.write_intent([]) == 0
    assert (clone == 1).all() and (x == 1).all() and (frozen == 5).all()
    with pytest.raises(ValueError):
        _cowshed.write_intent([(4096, (1 << 63) - 1), ((1 << 64) - 4096, 8192)], False)
    with pytest.raises(TypeError):
        _cowshed.write_intent([1], False)
    with pytest.raises(TypeError):
        _cowshed.write_intent(None, False)


def test_others_read_meanwhile():
    x = cowshed.full((4 * LARGE,), 1.0)
    wrong, over = [], threading.Event()

    def read():
        while not over.is_set():
            if not (x == 1).all():
                wrong.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        clone = cowshed.clone(x)
        cowshed.write_intent(x)
        del clone
    over.set()
    reader.join()
    assert not wrong


def train(parameters, steps, each=lambda: None):
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    for _ in range(steps):
        each(optimizer) if each.__code__.co_argcount else each()
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
    return optimizer


@needs_torch
def test_optimizers_say_so_after_install():
    """Parameters and states move to storages, once, and each snapshot is of its moment."""
    plain = [torch.nn.Parameter(torch.zeros(LARGE)) for _ in range(3)]
    before = [id(p) for p in plain]
    snapshots = []

    def take(optimizer):
        state = [plain, optimizer.state_dict()["state"]]
        snapshots.append((cowshed.snapshot(state), [p.detach().clone() for p in plain]))

    cowshed.torch.install()
    try:
        optimizer = train(plain, 6, take)
        copied = [s.copied_bytes for s, _ in snapshots]
    finally:
        cowshed.torch.uninstall()
    assert [id(p) for p in plain] == before
    for snapshot, want in snapshots:
        for have, p in zip(snapshot.state[0], want):
            assert torch.equal(have, p)
    for p in plain:
        assert cowshed.storage_of(p) is not None
        assert cowshed.storage_of(optimizer.state[p]["exp_avg"]) is not None
    if not from_elsewhere():
        assert max(copied[3:]) < LARGE, copied
    want = [torch.nn.Parameter(torch.zeros(LARGE)) for _ in range(3)]
    train(want, 6)
    assert all(torch.equal(a, b) for a, b in zip(plain, want))


@needs_torch
def test_tensors_that_others_see_do_not_move():
    whole = torch.zeros(3 * LARGE)
    parts = [torch.nn.Parameter(whole[i * LARGE : (i + 1) * LARGE]) for i in range(3)]
    alone = torch.nn.Parameter(torch.zeros(LARGE))
    alias = alone.detach()
    cowshed.torch.install()
    try:
        train([*parts, alone], 3)
    finally:
        cowshed.torch.uninstall()
    assert whole[0] == parts[0][0] != 0 and alias[0] == alone[0] != 0
    assert parts[1].data_ptr() == whole.data_ptr() + 4 * LARGE
    assert alias.data_ptr() == alone.data_ptr()


@needs_torch
def test_memory_of_numpy_does_not_move():
    array = np.zeros(LARGE, dtype="float32")
    p = torch.nn.Parameter(torch.from_numpy(array))
    q = torch.nn.Parameter(torch.zeros(LARGE))
    seen = q.detach().numpy()
    cowshed.torch.install()
    try:
        train([p, q], 3)
    finally:
        cowshed.torch.uninstall()
    assert array[0] == p[0] != 0 and seen[0] == q[0] != 0


@needs_torch
def test_sparse_gradients_and_closures():
    embedding = torch.nn.Embedding(LARGE // 8, 16, sparse=True)
    cowshed.torch.install()
    try:
        optimizer = torch.optim.SparseAdam(embedding.parameters())
        for _ in range(3):
            snapshot = cowshed.snapshot(list(embedding.parameters()))
            want = embedding.weight.detach().clone()
            optimizer.zero_grad()
            embedding(torch.tensor([1, 5])).sum().backward()
            optimizer.step()
            assert torch.equal(snapshot.state[0], want)
            assert not torch.equal(embedding.weight, want)
        weight = torch.nn.Parameter(torch.zeros(LARGE))
        closure = torch.optim.LBFGS([weight], max_iter=2)
        closure.step(lambda: weight.square().sum().backward() or weight.square().sum())
    finally:
        cowshed.torch.uninstall()


@needs_torch
def test_tensors_in_other_orders():
    """A tensor that is dense in another order of its dimensions is rewritten whole, too."""
    dense = cowshed.torch.empty_like(
        torch.zeros(2, 64, 64, 128).to(memory_format=torch.channels_last)).fill_(1)
    turned = cowshed.torch.full((1024, 1024), 1.0).T
    clones = [cowshed.clone(dense), cowshed.clone(turned)]
    copied = cowshed.write_intent([dense, turned])
    assert from_elsewhere() or copied == dense.nbytes + turned.nbytes
    clones += [cowshed.clone(dense), cowshed.clone(turned)]
    holes = [dense[:, :32], turned[::2], turned[:, :512][:, ::2], turned.expand(2, 1024, 1024)]
    assert cowshed.write_intent(holes) == 0
    dense += 1
    turned += 1
    for clone in clones:
        assert (clone == 1).all()
