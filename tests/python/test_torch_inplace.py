# SPDX-License-Identifier: MIT
"""install() hooks operations in place: what they rewrite beside a snapshot is copied in bulk, and
nobody notices anything else."""

import copy
import inspect
import os
import pickle
import signal
import warnings

import pytest

torch = pytest.importorskip("torch")

import cowshed  # noqa: E402
import cowshed.torch as ct  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from hooked import (  # noqa: E402, F401
    LARGE, LIST, METHOD, fails, iadd, imul, installed, numbers, own, rewritten)

BULK = [lambda x: x.add_(1), lambda x: x.sub_(x), lambda x: x.mul_(3), lambda x: x.div_(3), iadd,
        imul, lambda x: x.lerp_(torch.zeros(LARGE), 0.5), lambda x: x.zero_(),
        lambda x: x.fill_(7), lambda x: x.fill_(True), lambda x: x.copy_(torch.full((LARGE,), 3.0)),
        lambda x: x.copy_(torch.arange(LARGE)), lambda x: x.copy_(torch.zeros(())),
        lambda x: x.copy_(x.flip(0)), lambda x: x.copy_(x), lambda x: x.uniform_(),
        lambda x: x.normal_(2, 3), lambda x: x.view(2, -1).add_(1), lambda x: x.clamp_(0, 0.5),
        lambda x: torch._foreach_add_([x], 1), lambda x: torch._foreach_zero_((x,)),
        lambda x: torch._foreach_lerp_([x, torch.ones(3)], [torch.ones(LARGE), torch.ones(3)], 0.5),
        lambda x: torch._foreach_copy_([x], [torch.zeros(LARGE)]),
        lambda x: torch._foreach_mul_([torch.ones(3), x], [2.0, 3.0]),
        lambda x: torch.nn.init.trunc_normal_(x), lambda x: x.copy_(other=torch.zeros(LARGE))]


@pytest.mark.parametrize("number", range(len(BULK)))
def test_what_is_rewritten_is_copied_in_bulk(number):
    assert rewritten(BULK[number]) == 0
    ct.uninstall()
    x = ct.full((LARGE,), 1.0)
    clone = ct.clone(x)
    BULK[1](x)
    assert own(x) > 0.9, "without hooks it is copied by page"
    assert (clone == 1).all()


PARTS = [lambda x: x[1:1000].add_(1), lambda x: x[::2].zero_(), lambda x: x[0].fill_(3),
         lambda x: x.index_fill_(0, torch.tensor([3]), 5.0), lambda x: x.view(-1, 2)[:, 0].add_(1),
         lambda x: x.masked_fill_(x > 2, 1), lambda x: torch._foreach_zero_([x[:10]])]


@pytest.mark.parametrize("number", range(len(PARTS)))
def test_parts_are_written_as_ever(number):
    rewritten(PARTS[number])


def test_a_large_part():
    x = ct.full((4 * LARGE,), 1.0)
    assert rewritten(lambda x: x[LARGE : 3 * LARGE].zero_(), x) < 0.1
    assert rewritten(lambda x: x[5 : LARGE + 7].copy_(torch.zeros(LARGE + 2)), x) < 0.2


def test_orders_of_dimensions():
    x = ct.full((2, 64, 64, 128), 1.0).to(memory_format=torch.channels_last)
    x = ct.empty_like(x).fill_(1)
    assert not x.is_contiguous() and rewritten(lambda x: x.add_(1), x) == 0
    assert rewritten(lambda x: x.copy_(torch.zeros_like(x)), x) == 0
    assert rewritten(lambda x: x.T.mul_(3), ct.full((1024, 1024), 1.0)) == 0
    rewritten(lambda x: x.copy_(torch.arange(float(LARGE)).view(1024, 1024).T),
              ct.full((1024, 1024), 1.0))


def test_sources_that_are_clones_or_overlap():
    x = ct.tensor(torch.arange(float(2 * LARGE)))
    clone = ct.clone(x)
    x.zero_()
    x.copy_(clone)  # its own bytes of earlier
    assert torch.equal(x, torch.arange(float(2 * LARGE)))
    snapshot = cowshed.snapshot({"x": x})
    x.add_(1)
    x.copy_(snapshot.state["x"])
    assert torch.equal(x, clone)
    again = ct.clone(x)
    x[:LARGE].copy_(x[LARGE:])  # of one storage
    assert torch.equal(x[:LARGE], again[LARGE:]) and torch.equal(x[LARGE:], again[LARGE:])
    third, memory = ct.clone(x), torch.from_numpy(x.numpy())  # another storage on these bytes
    x.copy_(memory)
    assert torch.equal(x, third)


class Refuses(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("copy_", "add_"):
            raise RuntimeError("not with me")
        return super().__torch_function__(function, types, args, kwargs or {})


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise RuntimeError("nothing is done here")


class Seen(torch.overrides.TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(getattr(function, "__name__", str(function)))
        raise RuntimeError("nothing is done here")


def dispatched(x):
    with Mode():
        x.zero_()


FAILING = [lambda x: x.copy_(torch.zeros(LARGE - 1)), lambda x: x.copy_(),
           lambda x: x.copy_(torch.zeros(LARGE), wrong=1), lambda x: x.zero_(1),
           lambda x: x.fill_("no"), lambda x: x.fill_(torch.zeros(2)), lambda x: x.fill_(1j),
           lambda x: x.copy_(torch.zeros(LARGE).as_subclass(Refuses)),
           lambda x: x.copy_(torch.zeros(LARGE, device="meta").to_sparse()),
           lambda x: x.add_(torch.zeros(LARGE).as_subclass(Refuses)), lambda x: x.add_(None),
           lambda x: x.normal_(0, -1), lambda x: x.uniform_(1, 0), dispatched,
           lambda x: torch._foreach_zero_([x, 3]), lambda x: torch._foreach_add_([x], []),
           lambda x: torch._foreach_copy_([x], [torch.zeros(3)]), lambda x: x.mul_(1j),
           lambda x: torch.func.vmap(lambda y: x.copy_(y))(torch.zeros(2, LARGE)),
           lambda x: torch.func.grad(lambda y: x.copy_(y.expand(LARGE)).sum())(torch.ones(1))]


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_an_operation_that_fails_loses_nothing(number):
    fails(FAILING[number])


def test_autograd_refuses():
    for number in 0, 4, 7, 8, 10, 18, 20:
        fails(BULK[number], torch.nn.Parameter(numbers()))
    fails(lambda x: x.fill_(1e9), ct.tensor(torch.arange(2.0 * LARGE).half()))


def test_a_mode_sees_the_operation_alone():
    x = numbers()
    clone, seen = ct.clone(x), Seen()
    with seen, pytest.raises(RuntimeError):
        x.zero_()
    assert seen.names == ["zero_"] and torch.equal(x, clone)


def test_a_signal_during_an_operation():
    """An exception of a handler comes before the operation or after it, not in between."""
    def handle(number, frame):
        raise KeyboardInterrupt

    x, before = ct.full((4 * LARGE,), 1.0), signal.signal(signal.SIGALRM, handle)
    wrong = 0
    try:
        for turn in range(20):
            clone = ct.clone(x)
            value = float(x[0])
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + 97 * turn))
                if turn % 2:
                    x.fill_(float(turn))
                else:
                    x.mul_(0).add_(turn)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            wrong += not ((x == value).all() or (x == float(turn)).all() or (x == 0).all())
            wrong += not (clone == value).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong


def test_gradients_are_those_without_hooks():
    def gradient():
        x = torch.ones(LARGE, requires_grad=True)
        y = ct.tensor(torch.zeros(LARGE))
        clone = ct.clone(y)
        y.copy_(x)
        y.mul_(3)
        y += x
        y.sum().backward()
        assert not clone.any()
        return x.grad

    with_hooks = gradient()
    ct.uninstall()
    assert torch.equal(with_hooks, gradient())
    y = ct.full((LARGE,), 2.0)
    weight = torch.ones(LARGE, requires_grad=True)
    product = weight * y  # saves y
    ct.install()
    clone = ct.clone(y)
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    assert (clone == 2).all()
    product = weight * y
    kept = ct.clone(y)
    y.add_(1)  # on other pages
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    assert not kept.any()


def test_training_code():
    """What PyTorch's own helpers rewrite beside a snapshot, compared with what they write alone."""
    def model():
        torch.manual_seed(3)
        made = torch.nn.Linear(1024, 1024, bias=False)
        made.weight.data = ct.tensor(made.weight.data)
        made.weight.grad = ct.full((1024, 1024), 3.0)
        return made

    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    one, two = model(), AveragedModel(model(), multi_avg_fn=get_ema_multi_avg_fn())
    two.module.weight.data = ct.tensor(two.module.weight.data)
    for _ in range(2):
        two.update_parameters(one)
        one.weight.data.add_(1)
        held = [ct.clone(t) for t in (one.weight.data, one.weight.grad, two.module.weight.data)]
        want = two.module.weight.detach().lerp(one.weight.detach(), 1 - 0.999)
        two.update_parameters(one)
        assert torch.allclose(two.module.weight, want) and own(two.module.weight) == 0
        torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        assert own(one.weight.grad) == 0 and one.weight.grad.norm() < 1.01
        assert (held[1] > one.weight.grad).all()
        held.append(ct.clone(one.weight.grad))
        optimizer = torch.optim.SGD(one.parameters())
        optimizer.zero_grad(set_to_none=False)
        assert own(one.weight.grad) == 0 and not one.weight.grad.any() and held[-1].any()
        one.load_state_dict({"weight": torch.full((1024, 1024), 5.0)})
        assert own(one.weight) == 0 and (one.weight == 5).all() and not (held[0] == 5).all()
        one.weight.grad.fill_(3)


def test_kinds_of_memory():
    """What has no write intent is written as ever: shared, read-only, foreign, small memory."""
    shared = ct.tensor(torch.ones(LARGE)).share_memory_()
    held = ct.clone(ct.full((LARGE,), 1.0))
    for x in shared, torch.ones(LARGE), torch.ones(3), held, torch.ones(0), torch.ones(()):
        x.add_(1)
        assert (x == 2).all()
        x.copy_(torch.full_like(x, 7))
        assert (x == 7).all()
    frozen = ct.freeze(ct.full((LARGE,), 5.0))
    clone = ct.clone(frozen)
    clone.zero_()
    assert (frozen == 5).all() and not clone.any()


def test_layouts_without_sizes_or_strides():
    """Plain PyTorch takes them, so the hooks do."""
    kept = ct.clone(ct.full((LARGE,), 1.0))  # something is copy-on-write
    sparse, dense = torch.eye(1000).to_sparse(), torch.ones(LARGE)
    torch._foreach_mul_([dense, sparse], 2.0)
    assert (dense == 2).all() and sparse.sum() == 2000
    a, b = (torch.nested.nested_tensor([torch.full((LARGE,), v), torch.full((9,), v)])
            for v in (1.0, 2.0))
    a.copy_(b)
    assert all((x == 2).all() for x in a.unbind())
    a.zero_()
    assert not any(x.any() for x in a.unbind()) and (kept == 1).all()


def test_a_forked_child():
    x = ct.full((LARGE,), 1.0)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            torch.set_num_threads(1)  # the parent's threads are not here
            x.fill_(3)
            code = 0 if bool((x == 3).all()) else 1
        finally:
            os._exit(code)
    x.fill_(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and (x == 2).all()


# ---- A hook looks as the function ---------------------------------------------------------


def test_looks():
    for hook, function in (torch.Tensor.add_, METHOD), (torch._foreach_add_, LIST):
        assert type(hook) is _cowshed.Hook and hook is not function
        assert hook == function and function == hook and {function: 3}[hook] == 3
        assert {hook: 3}[function] == 3 and hook != torch.Tensor.mul_ and hook != 3
        assert hook.__name__ == function.__name__ and hook.__doc__ == function.__doc__
        assert repr(hook) == repr(function) and inspect.isroutine(hook)
        assert copy.deepcopy(hook) == function and hook.__wrapped__ is function
        assert pickle.loads(pickle.dumps(hook)) == function
        with pytest.raises(ValueError):
            inspect.signature(hook)
    x = torch.ones(3)
    assert type(x.add_) is type(x.zero_) and x.add_.__self__ is x
    assert x.add_(1) is x and torch.Tensor.add_(x, other=1).tolist() == [3, 3, 3]
    assert functions_are_overridable()


def functions_are_overridable():
    return torch.overrides.is_tensor_method_or_property(torch.Tensor.add_)


def test_errors_are_the_functions():
    def error(call):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            call()
        return str(caught.value), len(caught.traceback)

    x = torch.ones(3)
    calls = [lambda: x.add_(torch.ones(2)), lambda: x.add_(), lambda: torch.Tensor.add_(),
             lambda: torch.Tensor.add_(3, 3), lambda: torch._foreach_add_(3), lambda: x.add_(y=3)]
    got = [error(call) for call in calls]
    ct.uninstall()
    assert got == [error(call) for call in calls]


def test_subclasses():
    seen = []

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = ct.full((LARGE,), 1.0)
    clone = ct.clone(x)
    x.as_subclass(Sub).add_(1)
    assert seen[-1] is torch.Tensor.add_ and METHOD in seen
    assert (x == 2).all() and (clone == 1).all()
    buffer = torch.nn.Parameter(x, requires_grad=False)
    assert rewritten(lambda p: p.copy_(torch.zeros(LARGE)), buffer) == 0


def program(a, b):
    a = a * 1
    a.add_(1)
    a += b
    a.copy_(b)
    torch._foreach_add_([a], [b])
    return a


def test_tracing_and_compiling():
    clone = ct.clone(ct.full((LARGE,), 1.0))  # something is copy-on-write
    a, b = torch.ones(3), torch.full((3,), 4.0)
    want = program(a, b)
    traced = torch.fx.symbolic_trace(program)
    assert torch.equal(traced(a, b), want)
    assert torch.equal(pickle.loads(pickle.dumps(traced))(a, b), want)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(torch.jit.trace(program, (a, b))(a, b), want)
        torch.jit.script(program)(a, b)  # drops operations on lists, also without hooks
    mapped = torch.func.vmap(lambda a, b: (a * 1).add_(1).copy_(b))
    assert torch.equal(mapped(a[None], b[None])[0], b)
    try:
        compiled = torch.compile(program, backend="eager", fullgraph=True)(a, b)
    except RuntimeError as error:
        if "Dynamo is not supported" not in str(error):
            raise
    else:
        assert torch.equal(compiled, want)
    assert (clone == 1).all()


def test_a_hook_of_its_own():
    got = []

    def plan(args, names):
        got.append((len(args), names))
        if names:
            assert args[-1] == 3
            raise {"word": KeyboardInterrupt, "other": LookupError}[names[0]]("no plan")
        return ([("wrong",)], False) if len(args) == 1 else None

    hook = _cowshed.Hook(lambda *args, **kwargs: (args, kwargs), plan, (torch.Tensor,), int, 16)
    x = torch.ones(LARGE)
    held = ct.full((LARGE,), 1.0)
    clone = ct.clone(held)
    got.clear()
    assert hook(x)[1] == {} and hook(x, 1)[0] == (x, 1) and got == [(1, None), (2, None)]
    assert hook([3, x])[1] == {} and hook((x,))[1] == {} and len(got) == 4
    for small in (), (3,), ([],), (None,), (torch.ones(3),), ([3, "x"],):
        assert hook(*small) == (small, {})
    assert len(got) == 4
    with pytest.raises(KeyboardInterrupt):
        hook(x, word=3)
    assert hook(x, other=3) == ((x,), {"other": 3})  # its errors are no errors of the function
    for wrong in (), (1,), (1, 2, 3, 4, 5), (1, 2, (), 4, "5"):
        with pytest.raises(TypeError):
            _cowshed.Hook(*wrong)
    assert (clone == 1).all()
