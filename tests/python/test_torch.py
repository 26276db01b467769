# SPDX-License-Identifier: MIT
"""cowshed.torch: tensors on storages, made, cloned, shared and frozen."""

import subprocess
import sys
import threading

import cowshed
import pytest

torch = pytest.importorskip("torch")

import cowshed.torch as ct  # noqa: E402

LARGE = 1 << 20  # elements: far above what is copied at once

DTYPES = [getattr(torch, name) for name in (
    "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "bool", "float16",
    "bfloat16", "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2") if hasattr(torch, name)]


def same(a, b):
    """Are these alike in all that can be seen, and have they the same bytes?"""
    assert a.dtype == b.dtype and a.size() == b.size() and a.stride() == b.stride()
    return bytes_of(a) == bytes_of(b)


def bytes_of(t):
    return bytes(t.contiguous().resolve_conj().resolve_neg().view(-1).view(torch.uint8).tolist())


# ---- Making ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    t = ct.zeros(3, 5, dtype=dtype)
    assert ct.storage_of(t).kind == "own"
    assert same(t, torch.zeros(3, 5, dtype=dtype))
    t.fill_(1)
    assert same(cowshed.clone(t), torch.ones(3, 5, dtype=dtype))
    large = ct.empty(LARGE, dtype=dtype).fill_(1)
    clone = cowshed.clone(large)
    large.fill_(0)
    assert same(clone[:3], torch.ones(3, dtype=dtype))


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_memory_formats(format):
    t = ct.empty(2, 3, 4, 5, memory_format=format)
    assert t.stride() == torch.empty(2, 3, 4, 5, memory_format=format).stride()
    assert ct.zeros_like(t).stride() == ct.empty_like(t).stride() == t.stride()
    assert cowshed.clone(t).stride() == t.stride()


@pytest.mark.parametrize("size", [(0,), (0, 3), (3, 0, 2), ()])
def test_sizes_of_nothing_and_one(size):
    for t in ct.empty(size), ct.zeros(*size), ct.full(size, 2.0), ct.tensor(torch.ones(size)):
        assert t.size() == size
        assert same(cowshed.clone(t), t) and same(cowshed.freeze(t), t)
        assert cowshed.share(t) is t


def test_made_of_values():
    assert same(ct.full((2, 3), 7), torch.full((2, 3), 7))
    assert same(ct.full((2,), True), torch.full((2,), True))
    assert same(ct.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]]))
    assert same(ct.tensor([1.5], dtype=torch.bfloat16), torch.tensor([1.5], dtype=torch.bfloat16))
    t = ct.tensor([1.5], requires_grad=True)
    (2 * t).sum().backward()
    assert t.grad.item() == 2


def test_shared_ones():
    assert cowshed.is_shared(ct.zeros(10, shared=True))
    assert not cowshed.is_shared(ct.zeros(10))
    cowshed.set_sharing_mode("alias")
    try:
        assert cowshed.is_shared(ct.zeros(10))
        assert not cowshed.is_shared(ct.zeros(10, shared=False))
    finally:
        cowshed.set_sharing_mode("clone")


def test_from_storage():
    storage = ct.storage_of(ct.tensor(torch.arange(100, dtype=torch.int32)))
    assert ct.from_storage(storage).size() == (400,)
    t = ct.from_storage(storage, torch.int32, (3, 2), offset=40)
    assert t.tolist() == [[10, 11], [12, 13], [14, 15]]
    assert ct.from_storage(storage, torch.int32, (3,), (10,)).tolist() == [0, 10, 20]
    # Both know that they are views of the same memory.
    assert t.untyped_storage()._cdata == ct.from_storage(storage).untyped_storage()._cdata
    for wrong in ({"offset": 2}, {"size": (101,)}, {"size": (2,), "stride": (100,)},
                  {"offset": 404}, {"offset": -4}):
        with pytest.raises(ValueError):
            ct.from_storage(storage, torch.int32, **wrong)
    with pytest.raises(TypeError, match="takes a Storage"):
        ct.from_storage(b"x")


def test_a_tensor_of_a_readonly_storage_has_pages_of_its_own():
    storage = cowshed.freeze(ct.storage_of(ct.full((LARGE,), 3, dtype=torch.uint8)))
    assert storage.readonly
    t = ct.from_storage(storage)
    t[0] = 1
    assert storage.readonly and bytes(memoryview(storage)[:2]) == b"\3\3" and t[1] == 3
    other = ct.from_storage(storage)
    assert other[0] == 3 and other.data_ptr() != t.data_ptr()


def test_a_tensor_keeps_its_storage():
    t = ct.full((LARGE,), 3.0)
    part = t[5:7]
    del t
    assert part.tolist() == [3, 3] and ct.storage_of(part) is not None


def test_resized_tensors_leave_their_storage():
    t = ct.zeros(4)
    with pytest.raises(RuntimeError, match="resiz"):
        t.resize_(LARGE)


# ---- clone -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.full, ct.full], ids=["foreign", "ours"])
@pytest.mark.parametrize("elements", [10, LARGE])
def test_clone_is_isolated(make, elements):
    t = make((elements,), 1.0)
    clone = cowshed.clone(t)
    t[3] = 2
    clone[4] = 3
    assert t[2:6].tolist() == [1, 2, 1, 1] and clone[2:6].tolist() == [1, 1, 3, 1]


def test_clone_costs_no_copy():
    t = ct.full((LARGE,), 1.0)
    before = cowshed.stats()
    clone = cowshed.clone(t)
    after = cowshed.stats()
    assert after["bytes_copied"] == before["bytes_copied"]
    # The clone may hold pages that would else be thawed.
    assert {**after["fallbacks"], "held": 0} == {**before["fallbacks"], "held": 0}
    assert torch.equal(clone, t)


def test_clone_of_foreign_memory_is_counted():
    t = torch.ones(LARGE)
    if ct.storage_of(t) is not None:
        pytest.skip("under the shim it is not foreign")
    before = cowshed.stats()["fallbacks"].get("foreign", 0)
    clone = cowshed.clone(t)
    assert cowshed.stats()["fallbacks"]["foreign"] == before + 1
    assert ct.storage_of(clone) is not None


@pytest.mark.parametrize("make", [torch.full, ct.full], ids=["foreign", "ours"])
def test_clone_of_views(make):
    t = make((1024, 1024), 1.0)
    t += torch.arange(1024)
    for view in (t.t(), t[3:], t[:, 5], t[::7, 2:9], t[5].expand(4, 1024), t[7, 7],
                 t.as_strided((3, 3), (1, 1), 9), t[:0]):
        assert same(cowshed.clone(view), view)


def test_clone_of_a_clone():
    t = ct.zeros(LARGE)
    clones = [t]
    for i in range(20):
        clones.append(cowshed.clone(clones[-1]))
        clones[-1][i] = i + 1
    for i, clone in enumerate(clones):
        assert clone[:20].tolist() == [*range(1, i + 1), *[0] * (20 - i)]


def test_clone_has_no_history():
    t = ct.full((LARGE,), 2.0, requires_grad=True)
    y = cowshed.clone(t * 3)
    assert not y.requires_grad and y.is_leaf
    parameter = torch.nn.Parameter(ct.full((LARGE,), 2.0))
    clone = cowshed.clone(parameter)
    assert type(clone) is torch.Tensor and not clone.requires_grad
    with torch.no_grad():
        clone[0] = 9
    assert parameter[0] == 2 and parameter.requires_grad


def test_clone_keeps_conjugate_and_negative_bits():
    t = torch.tensor([1 + 2j, 3 - 1j])
    for view in t.conj(), t.imag, t.conj().imag:
        clone = cowshed.clone(view)
        assert torch.equal(clone, view)
        assert clone.is_conj() == view.is_conj() and clone.is_neg() == view.is_neg()


def test_clone_of_a_subclass():
    class Labelled(torch.Tensor):
        pass

    t = ct.zeros(LARGE).as_subclass(Labelled)
    assert type(cowshed.clone(t)) is Labelled
    assert type(cowshed.clone(torch.nn.Buffer(torch.zeros(3)))) is torch.Tensor


TINY = {
    "plain": lambda: torch.arange(20.0), "scalar": lambda: torch.tensor(5),
    "transposed": lambda: torch.arange(20.0).view(4, 5).t(),
    "gaps": lambda: torch.arange(100)[3::7], "column": lambda: torch.arange(20.0).view(4, 5)[:, 2],
    "expanded": lambda: torch.arange(5.0).expand(4, 5),
    "overlapping": lambda: torch.arange(9).as_strided((3, 3), (2, 1), 1),
    "channels": lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "parameter": lambda: torch.nn.Parameter(torch.ones(5)),
    "history": lambda: torch.nn.Parameter(torch.ones(5)) * 3,
    "row": lambda: torch.zeros(1000, 1000)[7, :20], "complex": lambda: torch.ones(3) * 1j,
    "view": lambda: torch.ones(3, requires_grad=True)[1:],
    "lazy": lambda: torch.ones(9)._lazy_clone(),
}


@pytest.mark.parametrize("clone", [
    cowshed.clone, ct.clone, lambda t: cowshed.clone(t, writes="all")],
    ids=["clone", "torch.clone", "all"])
@pytest.mark.parametrize("make", TINY.values(), ids=TINY.keys())
def test_clone_of_a_tiny_tensor(make, clone):
    t = make()
    new = clone(t)
    assert type(new) is torch.Tensor and new.is_leaf and not new.requires_grad
    assert same(new, t.detach()) and new.grad_fn is None and not new._is_view()
    # It has no more bytes than the tensor spans, and PyTorch may resize it: no page of ours.
    assert new.untyped_storage().nbytes() <= 8 * 93 and new.untyped_storage().resizable()
    before = bytes_of(t.detach())
    new.as_strided((), ()).fill_(9)
    assert bytes_of(t.detach()) == before


def test_clone_of_tiny_tensors_of_tensors():
    seen = []
    torch.vmap(lambda t: seen.append(cowshed.clone(t, writes="some")) or t)(torch.ones(3, 4))
    assert len(seen) == 1
    with torch.inference_mode():
        t = torch.ones(4)
        assert torch.equal(cowshed.clone(t), t)
    assert same(cowshed.clone(t), torch.ones(4))


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
def test_clone_of_quantized_tensors():
    x = torch.rand(100, 100)
    one = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    many = torch.quantize_per_channel(x, torch.full((100,), 0.1), torch.zeros(100), 0, torch.qint8)
    for q in one, many:
        assert torch.equal(cowshed.clone(q).dequantize(), q.dequantize())


@pytest.mark.parametrize("what", [cowshed.clone, cowshed.freeze])
def test_what_has_no_bytes_is_refused(what):
    for t in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.zeros(3, device="meta"),
              torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])):
        with pytest.raises(TypeError, match="pass"):
            what(t)
    assert cowshed.storage_of(torch.zeros(3, device="meta")) is None
    assert cowshed.storage_of(torch.eye(3).to_sparse()) is None


# ---- share -------------------------------------------------------------------------------


def test_share_moves_a_tensor_and_its_views():
    t = torch.arange(1000.0)
    view, address = t[10:20], t.data_ptr()
    parameter = torch.nn.Parameter(t)
    assert not cowshed.is_shared(t)
    assert cowshed.share(t) is t
    assert cowshed.is_shared(t) and cowshed.is_shared(view) and cowshed.is_shared(parameter)
    assert t.data_ptr() != address and torch.equal(t, torch.arange(1000.0))
    t[10] = -1
    assert view[0] == -1 and parameter[10] == -1
    address = t.data_ptr()
    assert cowshed.share(t) is t and t.data_ptr() == address


def test_share_of_a_tensor_on_a_storage():
    t = ct.full((LARGE,), 1.0)
    clone = cowshed.clone(t)
    cowshed.share(t)
    t[0] = 2
    assert cowshed.is_shared(t) and not cowshed.is_shared(clone) and clone[0] == 1
    assert not cowshed.is_shared(cowshed.clone(t))


def test_share_in_autograd():
    parameter = torch.nn.Parameter(torch.ones(10))
    loss = (parameter * parameter).sum()
    cowshed.share(parameter)
    loss.backward()
    assert parameter.grad.tolist() == [2] * 10 and parameter.requires_grad


def test_share_of_a_module_and_its_tied_weights():
    a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    b.weight = a.weight
    for tensor in [*a.parameters(), *b.parameters()]:
        cowshed.share(tensor)
    with torch.no_grad():
        a.weight.fill_(2)
    assert b.weight.sum() == 18 and cowshed.is_shared(b.weight)


def test_share_of_pieces():
    for t in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(),
              torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])):
        cowshed.share(t)
        assert cowshed.is_shared(t)


def test_share_in_several_threads():
    """One of them copies; all come back to a tensor that is shared (issue 95606)."""
    t = torch.arange(LARGE)
    views = [t[i:] for i in range(8)]
    threads = [threading.Thread(target=cowshed.share, args=(view,)) for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({view.untyped_storage().data_ptr() for view in views}) == 1
    assert torch.equal(t, torch.arange(LARGE)) and cowshed.is_shared(t)


def test_a_shared_array_in_the_middle():
    numpy = pytest.importorskip("numpy")
    array = cowshed.zeros((1000,), "float32", shared=True)
    t = torch.from_numpy(array[100:])
    assert cowshed.is_shared(t)
    address = t.data_ptr()
    assert cowshed.share(t) is t and t.data_ptr() == address
    t[0] = 1
    assert array[100] == 1 and isinstance(array, numpy.ndarray)


# ---- freeze ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.full, ct.full], ids=["foreign", "ours"])
def test_freeze(make):
    t = make((LARGE,), 1.0)
    frozen = cowshed.freeze(t)
    t[0] = 2
    assert frozen[0] == 1
    frozen[1] = 3
    assert t[1] == 1 and same(cowshed.freeze(frozen), frozen)
    assert same(cowshed.freeze(t[10:20:3]), t[10:20:3])


def test_imported_where_tensors_are_of_another_device():
    """What is plain does not depend on defaults that the program has at the import."""
    run = subprocess.run([sys.executable, "-c", """
import torch
torch.set_default_device("meta")
import cowshed.torch
try:
    cowshed.torch.clone(torch.empty(1 << 20))
except TypeError as error:
    print(error)
import cowshed
ct = cowshed.torch
made = [ct.full((1 << 20,), 2.0), ct.zeros(3), ct.tensor([1.0, 2.0]), ct.empty(3)]
made += [ct.clone(made[0]), cowshed.snapshot({"x": made[0]}).state["x"]]
with torch.inference_mode():
    made += [ct.clone(made[0]), ct.clone(ct.full((1 << 20,), 2.0))]
assert all(t.device.type == "cpu" for t in made)
assert all(t[-1] == 2 for t in made if t.numel() > 3)
"""], capture_output=True, text=True, check=True)
    assert "got a tensor on meta" in run.stdout
