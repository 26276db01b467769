# SPDX-License-Identifier: MIT
"""Tensors of mapped files, and of parts of storages: whose memory they are, and what they cost."""

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import cowshed  # noqa: E402
import cowshed.torch as ct  # noqa: E402


def tensors(path, mode):
    return cowshed.open(path, mode, framework="torch")


# ---- Clones of parts -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["r", "c", "r+", "shared"])
@pytest.mark.parametrize("most", [False, True])
def test_a_clone_of_a_part_costs_the_part(tmp_path, kind, most):
    """Of memory whose clones are copies. Where they cost nothing it shares all pages."""
    numbers = np.arange(1 << 20, dtype="f4")
    if kind == "shared":
        whole = cowshed.share(torch.from_numpy(numbers.copy()))
    else:
        path = str(tmp_path / "x.safetensors")
        cowshed.save(path, {"x": numbers, "y": numbers})
        whole = tensors(path, kind)["x"]
    part = whole[1000 : (1 << 20) - 1000 if most else 200_000]
    c = cowshed.clone(part)
    nbytes = c.untyped_storage().nbytes()
    assert ct.storage_of(c).nbytes == part.nbytes == nbytes
    assert torch.equal(c, part) and not cowshed.is_shared(c)
    c[0] = -1
    assert part[0] == 1000
    assert torch.equal(cowshed.freeze(part), part)
    assert ct.storage_of(cowshed.freeze(part)).nbytes < part.nbytes + (1 << 16)


def test_a_clone_of_a_part_of_ones_own_copies_nothing():
    whole = ct.full((1 << 20,), 1.0)
    before = cowshed.stats()["clones_eager"]
    c = cowshed.clone(whole[1000:200_000])
    assert cowshed.stats()["clones_eager"] == before
    assert ct.storage_of(c).nbytes == whole.nbytes
