# SPDX-License-Identifier: MIT
"""Hooked operations that write their result on other pages: beside a clone they copy nothing."""

import copy
import os
import signal

import pytest

torch = pytest.importorskip("torch")

import cowshed  # noqa: E402
import cowshed.torch as ct  # noqa: E402
from hooked import (  # noqa: E402, F401
    LARGE, fails, iadd, imul, installed, numbers, own, rewritten)

ELSEWHERE = [lambda x: x.add_(1), lambda x: x.add_(torch.ones(LARGE), alpha=3),
             lambda x: x.sub_(x), lambda x: x.mul_(torch.full((), 3.0)), lambda x: x.div_(3),
             lambda x: x.div_(3, rounding_mode="floor"), iadd, imul,
             lambda x: x.lerp_(torch.zeros(LARGE), 0.5),
             lambda x: x.lerp_(torch.zeros(LARGE), weight=torch.full((LARGE,), 0.25)),
             lambda x: x.addcmul_(x, torch.ones(LARGE), value=2),
             lambda x: x.addcdiv_(torch.ones(LARGE), torch.full((LARGE,), 4.0), value=-1),
             lambda x: x.clamp_(0, 0.5), lambda x: x.clamp_(max=0.5),
             lambda x: x.add_(torch.ones(LARGE, dtype=torch.int32)),
             lambda x: x.add_(torch.ones(1)), lambda x: x.add_(other=2.5)]


def copied():
    return cowshed.stats()["bytes_copied"]


@pytest.mark.parametrize("number", range(len(ELSEWHERE)))
def test_what_reads_each_element_once_copies_nothing(number):
    x = numbers()
    address, version = x.data_ptr(), x._version
    got = []

    def operation(x):
        before = copied()
        result = ELSEWHERE[number](x)
        got.append((copied() - before, x.data_ptr(), x._version, result is x or result is None))

    assert rewritten(operation, x) == 0
    assert got[-1] == (0, address, version + 1, True)


OPTIMIZERS = [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
              lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=0.1),
              lambda p: torch.optim.AdamW(p, lr=0.1), lambda p: torch.optim.Adam(p, amsgrad=True),
              lambda p: torch.optim.Adam(p, foreach=True), lambda p: torch.optim.RMSprop(p)]


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_a_step_beside_a_snapshot(number):
    def train(held):
        torch.manual_seed(7)
        p = torch.nn.Parameter(ct.tensor(torch.rand(LARGE)))
        optimizer = OPTIMIZERS[number]([p])
        before = []
        for _ in range(4):
            p.grad = torch.rand(LARGE)
            before.append(copied())
            optimizer.step()
            before[-1] = copied() - before[-1]
            if held is not None:
                state = [p.detach(), optimizer.state_dict()["state"]]
                held.append((cowshed.snapshot(state), copy.deepcopy(state)))
        assert own(p) == 0
        return p.detach(), before

    held = []
    p, bytes_copied = train(held)
    for snapshot, want in held:
        assert torch.equal(snapshot.state[0], want[0])
        for mine, one in zip(snapshot.state[1].values(), want[1].values()):
            assert all(torch.equal(mine[key], one[key]) for key in one if torch.is_tensor(one[key]))
    assert min(bytes_copied[1:]) > 0  # the optimizer's hook copies in bulk
    ct.uninstall()
    alone = train(None)[0]
    ct.install()
    assert torch.equal(p, alone)


def test_columns_of_bytes_and_rows():
    x = ct.tensor(torch.arange(float(LARGE)).view(1024, 1024))
    before, clone = copied(), ct.clone(x)
    x += torch.arange(1024.0)
    x.mul_(torch.ones(1024, 1))
    assert copied() == before
    assert torch.equal(x, clone + torch.arange(1024.0))
    turned = ct.clone(x).T
    turned.add_(1)
    assert torch.equal(turned, x.T + 1)
    halves = ct.full((LARGE,), 1.0).half()
    halves = ct.tensor(halves)
    kept = ct.clone(halves)
    halves.add_(torch.full((LARGE,), 3.0))
    assert (halves == 4).all() and (kept == 1).all()


def test_operands_that_overlap():
    x = ct.tensor(torch.arange(float(2 * LARGE)))
    clone = ct.clone(x)
    x.add_(x)
    assert torch.equal(x, clone + clone)
    kept = ct.clone(x)
    with pytest.raises(RuntimeError, match="memory"):
        x[:-1].add_(x[1:])
    with pytest.raises(RuntimeError, match="memory"):
        x.view(2, -1).add_(x[:LARGE])
    assert torch.equal(x, kept)
    low, high = x[:LARGE], ct.tensor(torch.ones(LARGE))
    other = ct.clone(high)
    high.mul_(low)
    assert torch.equal(high, low) and (other == 1).all()


def test_autograd_refuses():
    for operation in ELSEWHERE:
        fails(operation, torch.nn.Parameter(numbers()))


def test_a_handler_that_writes_during_an_operation():
    """What it writes is not lost: it runs before the operation, or behind it."""
    x = ct.full((16 * LARGE,), 1.0)
    writes = []

    def handle(number, frame):
        x[0] += 1000
        writes.append(1)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for turn in range(30):
            clone = ct.clone(x)
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + turn))
            x.add_(1)
            signal.setitimer(signal.ITIMER_REAL, 0)
            del clone
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert float(x[0]) == 31 + 1000 * len(writes) and (x[1:] == 31).all()


def test_a_handler_that_forks_during_an_operation():
    """The child goes on with the operation, as it would without hooks."""
    torch.set_num_threads(1)  # a child lacks the parent's
    x = ct.full((4 * LARGE,), 1.0)
    parent, codes = os.getpid(), []

    def handle(number, frame):
        pid = os.fork()
        if pid:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for turn in range(12):
            clone = ct.clone(x)
            want = float(x[0]) + 1
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + turn))
            x.add_(1)
            if os.getpid() != parent:
                os._exit(0 if bool((x == want).all()) else 1)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert (x == want).all() and (clone == want - 1).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not any(codes)
