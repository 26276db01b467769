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
    assert not cowshed.is_shared(x) and not cowshed.is_shared(torch.nn.ReLU())
    assert cowshed.share(x) is x and x.first.weight is weight
    assert cowshed.is_shared(x)
    x.first.weight = torch.nn.Parameter(weight.detach().clone())
    assert not cowshed.is_shared(x)
    x.first.weight = weight
    assert all(cowshed.is_shared(t) for t in (*x.parameters(), *x.buffers()))
    assert (weight == 0.5).all()


# ---- Optimizers ----------------------------------------------------------------------------


OPTIMIZERS = {"Adam": {}, "SGD": {"momentum": 0.9}, "AdamW": {"amsgrad": True}}


def step(torch, model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 1024)).square().sum().backward()
    optimizer.step()


def training(name):
    torch, model = module()
    optimizer = getattr(torch.optim, name)(
        [{"params": [p], "lr": 1e-6 * (i + 1)} for i, p in enumerate(model.parameters())
         if p.requires_grad], **OPTIMIZERS[name])
    step(torch, model, optimizer)
    for state in optimizer.state.values():  # a large state lies in storages, as under install()
        for key, value in state.items():
            if value.nbytes > 1 << 20:
                state[key] = cowshed.torch.tensor(value)
    return torch, model, optimizer


def values(optimizer):
    return [value.clone() for state in optimizer.state.values() for value in state.values()]


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clone", [cowshed.clone, lambda x: tuple(cowshed.snapshot([*x]).state)],
                         ids=["clone", "snapshot"])
def test_a_clone_of_a_module_and_its_optimizer(name, clone):
    torch, model, optimizer = training(name)
    before, state = [p.detach().clone() for p in model.parameters()], values(optimizer)
    m, o = clone((model, optimizer))
    assert type(m) is type(model) and type(o) is type(optimizer)
    mine, ours = ([p for group in x.param_groups for p in group["params"]] for x in (o, optimizer))
    of = {id(p): q for p, q in zip(model.parameters(), m.parameters(), strict=True)}
    assert all(of[id(p)] is q for p, q in zip(ours, mine, strict=True))
    assert all(p is q for p, q in zip(o.state, mine, strict=True))
    assert [group["lr"] for group in o.param_groups] == [g["lr"] for g in optimizer.param_groups]
    large = [value for s in o.state.values() for value in s.values() if value.nbytes > 1 << 20]
    assert large and all(own(value) < 0.1 for value in large)
    step(torch, m, o)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, values(optimizer), strict=True))
    step(torch, model, optimizer)  # both have gone the same way
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), m.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(values(o), values(optimizer), strict=True))


@pytest.mark.limit(120)
def test_a_scheduler_comes_along():
    torch, model, optimizer = training("SGD")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    m, o, s = cowshed.clone((model, optimizer, scheduler))
    assert s.optimizer is o
    step(torch, m, o)
    s.step()
    assert o.param_groups[0]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"] / 10)


@pytest.mark.limit(120)
def test_an_optimizer_without_its_module_is_refused():
    torch, model, optimizer = training("Adam")
    other = torch.nn.Linear(3, 3)
    for wrong in optimizer, (optimizer,), (other, optimizer):
        with pytest.raises(TypeError, match=r"Adam.*cowshed\.clone\(\(model, optimizer\)\)"):
            cowshed.clone(wrong)
    for wrong in optimizer, (model, optimizer):
        with pytest.raises(TypeError, match=r"share\(model\)"):
            cowshed.share(wrong)
    with pytest.raises(TypeError, match="snapshot"):
        cowshed.clone((1, 2))


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_snapshots_of_an_optimizer(name, tmp_path):
    torch, model, optimizer = training(name)
    before = values(optimizer)
    alone = cowshed.snapshot(optimizer)
    kept = cowshed.snapshot({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert alone.cloned_bytes >= 8 << 20 and kept.cloned_bytes >= 8 << 20
    kept.save(tmp_path / "x.pt")
    step(torch, model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before, values(alone.state), strict=True))
    for state in kept.state, cowshed.open(tmp_path / "x.pt"):
        optimizer.load_state_dict(state["optimizer"])
        assert all(torch.equal(a, b) for a, b in zip(before, values(optimizer), strict=True))
