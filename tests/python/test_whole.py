# SPDX-License-Identifier: MIT
"""Objects that consist of arrays and tensors: modules of PyTorch, data frames of pandas."""

import pytest

np = pytest.importorskip("numpy")

import cowshed  # noqa: E402

N = 1 << 20


class Holder:
    """An object of the program, with an array and a tensor somewhere in it."""

    def __init__(self, *held):
        self.held = {"deep": [held]}


def own(x):
    storage = cowshed.storage_of(x)
    return storage.info()["bytes_own"] / storage.nbytes


# ---- Data frames ---------------------------------------------------------------------------


def frame():
    pandas = pytest.importorskip("pandas")
    values = cowshed.array(np.arange(4.0 * N).reshape(4, N))
    x = pandas.DataFrame(values.T, columns=list("abcd"), copy=False)
    x["s"] = "text"
    x["o"] = [None] * N
    x.attrs["unit"] = "m"
    return x


def test_a_clone_of_a_frame():
    x = frame()
    y = cowshed.clone(x)
    assert type(y) is type(x) and y.equals(x) and (y.dtypes == x.dtypes).all()
    assert y.attrs == {"unit": "m"} and list(y.columns) == list("abcdso")
    assert cowshed.storage_of(y["b"].to_numpy()) is not None
    y.loc[5, "b"] = -1.0
    x.loc[6, "b"] = -2.0
    assert x["b"][5] == N + 5 and y["b"][6] == N + 6


def test_a_clone_of_a_series():
    x = frame()["c"]
    y = cowshed.clone(x, writes="auto")
    assert y.equals(x) and y.name == "c"
    y.iloc[5] = -1.0
    assert x.iloc[5] == 2 * N + 5


def test_a_frame_can_not_be_shared():
    with pytest.raises(TypeError, match="DataFrame"):
        cowshed.share(frame())


def test_the_bytes_of_a_frame_are_counted_and_limited(monkeypatch):
    import copy

    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"a": np.zeros(N), "b": np.zeros(N, "i4")})
    kept = cowshed.snapshot({"x": x})
    assert 12 * N <= kept.copied_bytes < 13 * N and kept.cloned_bytes == 0
    del kept
    monkeypatch.setattr(copy, "deepcopy", lambda *args: pytest.fail("it was copied"))
    with pytest.raises(MemoryError):
        cowshed.snapshot({"x": x}, limit=12 * N - 1)


def test_the_bytes_of_objects_are_counted_and_limited():
    x = Holder(np.ones(N), np.array([np.ones(N), None], object))
    kept = cowshed.snapshot([x, np.matrix(np.ones((2, N)))])
    assert 8 * 4 * N <= kept.copied_bytes < 8 * 4 * N + 1000
    assert (kept.state[0].held["deep"][0][0] == 1).all()
    with pytest.raises(MemoryError):
        cowshed.snapshot(x, limit=8 * 2 * N - 1)
    x.held["me"] = x  # a cycle
    assert cowshed.snapshot(x).state.held["me"].held["deep"][0][0][5] == 1


# ---- Modules -------------------------------------------------------------------------------


def module():
    torch = pytest.importorskip("torch")
    import cowshed.torch

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(1024, 1024)
            self.last = torch.nn.Linear(1024, 1024)
            self.last.weight = self.first.weight
            self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
            self.size = 1024

        def forward(self, x):
            return self.last(self.first(x))

    result = Tied()
    result.first.weight.data = cowshed.torch.full((1024, 1024), 0.5)
    result.first.bias.requires_grad_(False)
    return torch, result


@pytest.mark.limit(120)
@pytest.mark.parametrize("clone", [cowshed.clone, lambda x: cowshed.snapshot([x]).state[0]],
                         ids=["clone", "snapshot"])
def test_a_clone_of_a_module(clone):
    torch, x = module()
    x(torch.ones(2, 1024)).sum().backward()
    y = clone(x)
    assert type(y) is type(x) and y.size == 1024 and y.last.weight is y.first.weight
    assert type(y.first.weight) is torch.nn.Parameter and y.first.weight.requires_grad
    assert not y.first.bias.requires_grad and y.first.weight.grad is None
    assert own(y.first.weight) < 0.1
    assert all(torch.equal(a, b) for a, b in zip(x.state_dict().values(),
                                                 y.state_dict().values(), strict=True))
    optimizer = torch.optim.SGD(y.parameters(), 0.1)
    y(torch.ones(2, 1024)).sum().backward()
    optimizer.step()
    y.seen += 1
    assert (x.first.weight == 0.5).all() and not x.seen.any()
    assert not (y.first.weight == 0.5).any()


@pytest.mark.limit(120)
def test_a_snapshot_counts_the_bytes_of_a_module():
    torch, x = module()
    kept = cowshed.snapshot({"model": x})
    assert kept.cloned_bytes >= 4 << 20 and 8192 <= kept.copied_bytes < 100_000
    with pytest.raises(MemoryError):
        cowshed.snapshot({"model": x}, limit=4 << 20)
    h = Holder(torch.ones(N), np.ones(N))
    kept = cowshed.snapshot(h)  # under the shim PyTorch's memory is a storage
    assert kept.copied_bytes + kept.cloned_bytes == 12 * N and kept.copied_bytes >= 8 * N


@pytest.mark.limit(120)
def test_a_module_is_shared_in_place():
    torch, x = module()
    weight = x.first.weight
    assert cowshed.share(x) is x and x.first.weight is weight
    assert all(cowshed.is_shared(t) for t in (*x.parameters(), *x.buffers()))
    assert (weight == 0.5).all()
