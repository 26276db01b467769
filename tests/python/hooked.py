# SPDX-License-Identifier: MIT
"""What the tests of hooked operations share: the hooks are in force, and what an operation did."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import cowshed  # noqa: E402
import cowshed.torch as ct  # noqa: E402

LARGE = 1 << 20  # elements of 4 bytes: two chunks of 2 MiB
METHOD, LIST = torch.Tensor.add_, torch._foreach_add_


@pytest.fixture(autouse=True)
def installed():
    if "backing" in cowshed.stats()["fallbacks"]:
        pytest.skip("after forks new memory is from elsewhere, and clones are copies")
    ct.install()
    yield
    ct.uninstall()
    assert torch.Tensor.add_ is METHOD and torch._foreach_add_ is LIST
    assert "add_" not in vars(torch.Tensor)


def own(x):
    """How much of a tensor lies in pages that were copied one by one, from 0 to 1."""
    storage = ct.storage_of(x)
    return storage.info()["bytes_own"] / storage.nbytes if storage.info()["frozen"] else 0


def rewritten(operation, x=None, others=None):
    """Calls the operation beside a clone. Asserts that it wrote what it writes without hooks."""
    x = ct.full((LARGE,), 1.0) if x is None else x
    want = x.detach().clone()
    ct.uninstall()
    torch.manual_seed(5)
    operation(want)
    ct.install()
    clone, before = ct.clone(x.detach()), x.detach().clone()
    torch.manual_seed(5)
    operation(x)
    assert torch.equal(x, want) and torch.equal(clone, before)
    return own(x)


def iadd(x):
    x += 2


def imul(x):
    x *= 2


turns = itertools.count()


def numbers():
    """Others each time: memory that is used again may have the bytes of an earlier test."""
    return ct.tensor(torch.arange(float(LARGE)) + 0.5 * next(turns))


def fails(operation, x=None, error=(RuntimeError, TypeError)):
    """The operation raises, and no byte is lost."""
    x = numbers() if x is None else x
    clone, want = ct.clone(x.detach()), x.detach().clone()
    with pytest.raises(error):
        operation(x)
    assert torch.equal(x, want) and torch.equal(clone, want)
