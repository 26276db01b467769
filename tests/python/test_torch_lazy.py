# SPDX-License-Identifier: MIT
"""Lazy clones of PyTorch: no question and no copy of ours makes PyTorch copy one."""

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
if not hasattr(torch._C, "_is_cow_tensor"):
    pytest.skip("this PyTorch has no lazy clones", allow_module_level=True)

import cowshed  # noqa: E402
import cowshed.torch as ct  # noqa: E402

N = 1 << 18


@pytest.fixture
def pair():
    """A tensor and its lazy clone. Under the shim they lie in a storage."""
    x = torch.arange(N, dtype=torch.float32)
    y = x._lazy_clone()
    assert lazy(x) and lazy(y)
    return x, y


def lazy(x):
    return torch._C._is_cow_tensor(x)


ASKS = {
    "storage_of": lambda x: cowshed.storage_of(x),
    "torch.storage_of": lambda x: ct.storage_of(x),
    "is_shared": lambda x: cowshed.is_shared(x),
    "is_shared of a view": lambda x: cowshed.is_shared(x[5:]),
    "write_intent": lambda x: cowshed.write_intent([x]),
}
READS = {
    "clone": lambda x: cowshed.clone(x),
    "clone of a view": lambda x: torch.cat([cowshed.clone(x[:7]), cowshed.clone(x[7:])]),
    "freeze": lambda x: cowshed.freeze(x),
    "writable": lambda x: cowshed.writable(x),
    "snapshot": lambda x: cowshed.snapshot({"x": x}).state["x"],
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_question_copies_nothing(pair, ask):
    for x in pair:
        assert not ASKS[ask](x)
        assert lazy(x)


@pytest.mark.parametrize("read", READS)
def test_what_reads_it_leaves_it_lazy(pair, read):
    x, y = pair
    got = READS[read](y)
    assert lazy(x) and lazy(y)
    assert torch.equal(got, torch.arange(N, dtype=torch.float32))
    got.fill_(7)
    assert y[5] == 5 and x[5] == 5
