# SPDX-License-Identifier: MIT
"""Tensors in messages: what is sent of them, and what arrives. One process is enough."""

import copy
import pickle
import warnings

import cowshed
import pytest

torch = pytest.importorskip("torch")

import cowshed.torch as ct  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from cowshed._pyobjects import _pickle  # noqa: E402

CLONE, ALIAS = _cowshed.CLONE, _cowshed.ALIAS
MODES = pytest.mark.parametrize("mode", [CLONE, ALIAS], ids=["clone", "alias"])


def there(x, mode=CLONE):
    """`x` as it arrives where the storages of the message are these."""
    data, parcels = _pickle.dumps(x, mode)
    return _pickle.loads(data, [parcel[0] for parcel in parcels])


def parcels(x, mode=CLONE):
    return len(_pickle.dumps(x, mode)[1])


def cdata(*tensors):
    return {t.untyped_storage()._cdata for t in tensors}


def equal(a, b):
    if a.is_quantized:
        a, b = a.dequantize(), b.dequantize()
    if a.is_nested:
        return all(torch.equal(x, y) for x, y in zip(a.unbind(), b.unbind()))
    return torch.equal(a.to_dense() if a.layout != torch.strided else a,
                       b.to_dense() if b.layout != torch.strided else b)


@MODES
@pytest.mark.parametrize("elements", [50, 1 << 18])
@pytest.mark.parametrize("make", [torch.arange, lambda n: ct.tensor(torch.arange(n))],
                         ids=["foreign", "ours"])
def test_views_of_one_storage_arrive_as_such(mode, elements, make):
    t = make(elements)
    views = [t, t[1:], t.view(-1, 2)[:, 1], t[2:5], t.as_strided((2, 2), (1, 1), 1), t[:0]]
    others = there(views, mode)
    assert len(cdata(*others[:-1])) == 1
    for view, other in zip(views, others):
        assert torch.equal(view, other) and view.stride() == other.stride()
    others[1][0] = -1
    assert others[0][1] == -1 and others[4][0, 0] == -1


@MODES
@pytest.mark.parametrize("elements", [50, 1 << 18])
def test_a_tensor_sent_twice_is_one(mode, elements):
    t = torch.arange(elements)
    a, b = there([t, t], mode)
    assert a is b


def test_an_alias_is_the_senders_tensor():
    t = torch.zeros(100)
    view = t[3:]
    other = there(view, ALIAS)
    assert cowshed.is_shared(t) and cowshed.is_shared(other)
    other[0] = 1
    assert t[3] == 1 and cdata(t) == cdata(other)


def test_a_clone_leaves_the_sender_alone():
    t = torch.zeros(1 << 18)
    address = t.data_ptr()
    there(t)
    assert t.data_ptr() == address and not cowshed.is_shared(t)


def test_a_shared_tensor_is_an_alias_in_any_mode():
    t = cowshed.share(torch.zeros(3))
    there(t, CLONE)[0] = 1
    assert t[0] == 1


@MODES
def test_kinds_of_tensors(mode):
    for t in (
        torch.tensor(5), torch.zeros(0, 3), torch.zeros(3, device="meta"),
        torch.rand(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(),
        torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
        torch.nested.nested_tensor([torch.rand(2), torch.rand(3)], layout=torch.jagged),
        torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag,
        torch.rand(4).to(torch.bfloat16), torch.rand(4) > 0.5, torch.rand(5).expand(3, 5),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ):
        other = there(t, mode)
        assert type(other) is type(t) and other.dtype == t.dtype and other.device == t.device
        if t.device.type != "meta":
            assert equal(other, t)
        if t.layout == torch.strided and not t.is_nested:
            assert other.size() == t.size() and other.stride() == t.stride()
            assert other.is_conj() == t.is_conj() and other.is_neg() == t.is_neg()


@MODES
@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
def test_quantized_tensors(mode):
    x = torch.rand(10, 10)
    assert equal(*(lambda q: (q, there(q, mode)))(
        torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)))
    assert equal(*(lambda q: (q, there(q, mode)))(torch.quantize_per_channel(
        x, torch.full((10,), 0.1), torch.zeros(10), 0, torch.qint8)))


@MODES
@pytest.mark.parametrize("elements", [5, 1 << 18])
def test_storages_themselves(mode, elements):
    t = torch.arange(elements, dtype=torch.float32)
    untyped, typed, legacy = t.untyped_storage(), t._typed_storage(), torch.FloatStorage([1, 2])
    a, b, c, d = there([untyped, typed, legacy, t], mode)
    assert a._cdata == b._untyped_storage._cdata == d.untyped_storage()._cdata
    assert torch.equal(d, t) and b.dtype == torch.float32 and c.tolist() == [1, 2]
    assert there(torch.UntypedStorage(0), mode).nbytes() == 0
    assert len(there(torch.FloatStorage(), mode)) == 0


# ---- What is kept, dropped, refused ------------------------------------------------------


@MODES
@pytest.mark.parametrize("elements", [5, 1 << 18])
def test_requires_grad_and_parameters(mode, elements):
    for t in (torch.ones(elements), torch.ones(elements, requires_grad=True),
              torch.nn.Parameter(torch.ones(elements)),
              torch.nn.Parameter(torch.ones(elements), requires_grad=False),
              torch.nn.Parameter(torch.ones(elements, dtype=torch.int32), requires_grad=False)):
        if t.requires_grad:
            t.grad = torch.zeros(elements)
        other = there(t, mode)
        assert type(other) is type(t) and other.requires_grad == t.requires_grad
        assert other.is_leaf and other.grad is None and torch.equal(other, t)


@MODES
def test_a_tensor_with_history_is_refused(mode):
    t = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="requires_grad"):
        there(t, mode)
    assert torch.equal(there(t.detach(), mode), t)


@MODES
def test_hooks_are_dropped_with_a_warning(mode):
    t = torch.ones(3, requires_grad=True)
    t.register_hook(print)
    with pytest.warns(UserWarning, match="hook"):
        assert not there(t, mode)._backward_hooks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there(torch.ones(3, requires_grad=True), mode)


def test_named_tensors_are_refused():
    try:
        t = torch.zeros(3, names=("a",))
    except TypeError:
        pytest.skip("this PyTorch has none any more")
    with pytest.raises(RuntimeError, match="named"):
        there(t)


class Labelled(torch.Tensor):
    """A subclass with something of its own."""


@MODES
@pytest.mark.parametrize("elements", [5, 1 << 18])
def test_subclasses_keep_what_they_are(mode, elements):
    t = torch.ones(elements).as_subclass(Labelled)
    t.label = "x"
    other = there(t, mode)
    assert type(other) is Labelled and other.label == "x" and torch.equal(other, t)


@MODES
def test_modules_and_optimizers(mode):
    model = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.BatchNorm1d(30))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(4, 30)).sum().backward()
    optimizer.step()
    model.zero_grad()
    state = [model.state_dict(), optimizer.state_dict()]
    expected = copy.deepcopy(state)
    other = there([model, state], mode)
    for a, b in zip(torch.utils._pytree.tree_leaves([expected, dict(model.state_dict())]),
                    torch.utils._pytree.tree_leaves([other[1], dict(other[0].state_dict())])):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_tied_weights_stay_tied():
    a, b = torch.nn.Linear(300, 300), torch.nn.Linear(300, 300)
    b.weight = a.weight
    c, d = there([a, b])
    assert c.weight is d.weight


# ---- How much is sent --------------------------------------------------------------------


def test_small_ones_are_sent_in_the_pickle_and_large_ones_beside_it():
    assert parcels(torch.zeros(10)) == 0
    assert parcels(torch.zeros(1 << 18)) == 1
    assert parcels(torch.zeros(10), ALIAS) == 1
    t = ct.zeros(1 << 18)
    assert parcels([t, t[5:], t.view(512, 512)[3:]]) == 1


@pytest.mark.parametrize("t", [torch.arange(6).view(2, 3).bfloat16(), torch.ones(3, 2, 4).bool(),
                               torch.tensor(2.5), torch.randn(5, dtype=torch.complex64),
                               torch._neg_view(torch.ones(3)), torch.ones(3, 4).t().clone()],
                         ids=lambda t: str(tuple(t.shape)))
def test_a_small_tensor_that_is_alone(t):
    plain = t.is_contiguous() and not t.is_neg()
    assert (b"rebuild_small" in bytes(_pickle.dumps(t)[0])) == plain
    other = there([t, t])
    assert other[0] is other[1]
    other = other[0]
    assert torch.equal(t, other) and (other.dtype, other.stride()) == (t.dtype, t.stride())
    assert other.resize_(5000).untyped_storage().nbytes() >= 5000
    # Not alone: who else has its PyTorch storage shall have it over there.
    whole = t.untyped_storage()
    other, same = there([t, whole])
    assert cdata(other) == {same._cdata}


@pytest.mark.parametrize("make", [torch.zeros, ct.zeros], ids=["foreign", "ours"])
def test_little_of_a_large_storage_is_sent_alone(make):
    t = make(1 << 20)
    assert there(t[100:110]).untyped_storage().nbytes() < 4096
    assert there(t[100:50000]).untyped_storage().nbytes() < 1 << 20
    a, b = there([t[100:50000], t[200:300]])
    assert torch.equal(a[100:200], b)


def test_thousands_of_aliases_in_one_message():
    tensors = [torch.full((10,), float(i)) for i in range(3000)]
    assert parcels(tensors, ALIAS) < 1000
    others = there(tensors, ALIAS)
    assert all(cowshed.is_shared(t) for t in tensors)
    for t, other in zip(tensors, others):
        assert torch.equal(t, other) and other.untyped_storage().nbytes() == 40
    others[2500][0] = -1
    assert tensors[2500].tolist() == [-1, *[2500] * 9]


def unwritable(array):
    """A tensor on a frozen array: on a storage that must not be written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says so
        return torch.from_numpy(array)


def test_a_frozen_array_arrives_as_a_tensor_that_can_be_written():
    numpy = pytest.importorskip("numpy")
    array = cowshed.freeze(cowshed.full((1 << 18,), 1.0))
    t = unwritable(array)
    a, b = there([t, t[5:]])
    a[5] = 2
    assert b[0] == 2 and array[5] == 1 and isinstance(array, numpy.ndarray)


def test_what_is_written_of_one_message_is_not_in_the_next():
    pytest.importorskip("numpy")
    array = cowshed.freeze(cowshed.full((1 << 18,), 1.0))
    t = unwritable(array)
    tensor, whole = there([t, t.untyped_storage()])
    tensor[0] = 77
    assert whole.data_ptr() == tensor.data_ptr()
    others = there(t), torch.empty(0, dtype=t.dtype).set_(there(t.untyped_storage()))
    assert others[0][0] == others[1][0] == array[0] == 1
    assert len(cdata(tensor, *others)) == 3


class Within:
    """Reads a message while another one is read."""

    def __init__(self, array):
        self.array = array

    def __reduce__(self):
        return within, (self.array,)


def within(array):
    return there(unwritable(array))


def test_messages_in_messages_are_written_alone():
    pytest.importorskip("numpy")
    array = cowshed.freeze(cowshed.full((1 << 18,), 1.0))
    t = unwritable(array)
    before, inner, after = there([t, Within(array), t[5:]])
    assert len(cdata(before, after)) == 1
    assert len(cdata(before, inner)) == 2


def test_files_that_are_mapped_shared(tmp_path):
    path = str(tmp_path / "file")
    torch.from_file(path, shared=True, size=1000).fill_(1)
    t = torch.from_file(path, shared=True, size=1000)
    there(t, ALIAS)[0] = 5
    assert t[0] == 5
    there(t, CLONE)[0] = 6
    assert t[0] == 5


def test_plain_pickle_and_copy_are_as_ever():
    t = ct.tensor(torch.arange(1 << 18))
    for other in pickle.loads(pickle.dumps(t)), copy.deepcopy(t):
        assert torch.equal(other, t) and ct.storage_of(other) is not ct.storage_of(t)


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_parts_whose_elements_begin_at_any_byte(at):
    storage = cowshed.array(bytearray(range(256)) * 8000)
    t = torch.frombuffer(storage, dtype=torch.float32, count=500_000, offset=at)[5000:5500]
    assert there(t).view(torch.int32).equal(t.view(torch.int32))
