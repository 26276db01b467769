# SPDX-License-Identifier: MIT
"""torch.multiprocessing after cowshed.torch.install(): what PyTorch's users rely on.

The rows of PyTorch's own test of multiprocessing, and what it lacks: senders that exit first,
one tensor in many places, managers. test_torch_install.py has the rest.
"""

import os

import pytest

torch = pytest.importorskip("torch")

import cowshed.torch as ct  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

PATIENCE = 50


@pytest.fixture(autouse=True)
def installed():
    ct.install()
    yield
    ct.uninstall()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("torch_")]


# A new interpreter that imports PyTorch takes seconds: few tests start one.
FORK = ["fork"]
ALL = ["fork", "spawn", "forkserver"]


@pytest.fixture(params=FORK)
def context(request):
    return mp.get_context(request.param)


def on(methods):
    return pytest.mark.parametrize("context", methods, indirect=True)


@pytest.fixture
def start(context):
    """start(function, *arguments): a process that ends well before the test does."""
    processes = []

    def run(function, *arguments):
        process = context.Process(target=function, args=arguments)
        process.start()
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.join(PATIENCE)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        assert code == 0


# ---- Tensors between processes -----------------------------------------------------------


def fill(inbox, outbox):
    for tensor in inbox.get():
        tensor[:] = 4
    outbox.put("done")


@on(ALL)
def test_sharing(context, start):
    inbox, outbox = context.Queue(), context.Queue()
    x = torch.zeros(5, 5)
    inbox.put([x, x[:, 1]])
    start(fill, inbox, outbox)
    assert outbox.get(timeout=PATIENCE) == "done"
    assert torch.equal(x, torch.full((5, 5), 4.0)) and x.is_shared()


def send_twice(outbox, inbox):
    x = torch.ones(5, 5)
    outbox.put(x)
    outbox.put(x)
    assert inbox.get() == "received"


@on(ALL)
def test_received_twice_is_one_storage(context, start):
    inbox, outbox = context.Queue(), context.Queue()
    start(send_twice, inbox, outbox)
    a, b = inbox.get(timeout=PATIENCE), inbox.get(timeout=PATIENCE)
    outbox.put("received")
    assert torch.equal(a, torch.ones(5, 5))
    assert a.untyped_storage()._cdata == b.untyped_storage()._cdata
    a[0] = 7
    assert b[0, 0] == 7


# Children of fork() must not start threads of PyTorch's if their parent has: it is one that
# hangs then, with or without cowshed. So what they compute is small.


def send_and_exit(outbox, elements):
    torch.set_num_threads(1)
    outbox.put(torch.full((elements,), 3.0))


@pytest.mark.parametrize("elements", [5, 1 << 20])
def test_sender_exits_first(context, start, elements):
    outbox = context.Queue()
    process = start(send_and_exit, outbox, elements)
    process.join(PATIENCE)
    x = outbox.get(timeout=PATIENCE)
    assert torch.equal(x, torch.full((elements,), 3.0))
    x[0] = 1
    outbox.put(x)
    assert outbox.get(timeout=PATIENCE)[0] == 1


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_preserve_sharing(context, kind):
    queue = getattr(context, kind)()
    x = torch.randn(5, 5)
    data = [x.untyped_storage(), x, x[2], x[:, 1]]
    queue.put(data)
    new = queue.get()
    assert new[0]._cdata == x.untyped_storage()._cdata
    for a, b in zip(data[1:], new[1:]):
        assert torch.equal(a, b) and b.untyped_storage()._cdata == new[0]._cdata
    if kind == "JoinableQueue":
        queue.task_done()
        queue.join()


def add(tensor):
    tensor.fill_(4)
    return tensor.add(1)


@on(ALL)
def test_pool(context):
    buffers = [torch.zeros(2, 2) for _ in range(4)]
    with context.Pool(2) as pool:
        results = pool.map(add, buffers, 1)
        results.append(pool.apply_async(add, (buffers[0],)).get(PATIENCE))
        pool.close()
        pool.join()
    for r in results:
        assert torch.equal(r, torch.full((2, 2), 5.0))
    for b in buffers:
        assert torch.equal(b, torch.full((2, 2), 4.0))


class Adds(mp.Process):
    """A subclass with a tensor in it, made before anything is installed."""

    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor
        self.daemon = True

    def run(self):
        self.tensor.add_(3)


def add_three(tensor):
    tensor.add_(3)


@on(ALL)
def test_inherit_tensor(context, start):
    t = torch.zeros(5, 5).share_memory_()
    start(add_three, t).join(PATIENCE)
    assert torch.equal(t, torch.full((5, 5), 3.0))


def test_inherit_tensor_in_a_subclass():
    t = torch.zeros(5, 5).share_memory_()
    process = Adds(t)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    process.close()
    assert torch.equal(t, torch.full((5, 5), 3.0))


def spawned(i, tensor):
    tensor[i] = i + 1
    assert ct.is_installed() and tensor.is_shared()
    assert ct.storage_of(torch.zeros(3).share_memory_()).kind == "alias"


def test_spawn():
    t = torch.zeros(2)
    mp.spawn(spawned, (t,), nprocs=2)
    assert t.tolist() == [1, 2]


def fail(i):
    raise ValueError(f"number {i}")


def test_spawn_tells_of_exceptions():
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: number 0"):
        mp.start_processes(fail, nprocs=1, start_method="fork")


# ---- Kinds of tensors --------------------------------------------------------------------


def test_empty_tensors(context):
    queue = context.Queue()
    for t in (torch.empty(0), torch.ones(0, 2), torch.ones(2, 0, 3, dtype=torch.int32),
              torch.ones(5, device="meta"), torch.ones(0, device="meta"),
              torch.sparse_coo_tensor(size=(2, 3)), torch.zeros(0, requires_grad=True)):
        queue.put(t)
        other = queue.get(timeout=PATIENCE)
        assert other.size() == t.size() and other.dtype == t.dtype and other.device == t.device
        assert other.layout == t.layout and other.requires_grad == t.requires_grad
    for t in torch.tensor([]), torch.zeros(0, 3):
        t.share_memory_()
        assert t.numel() == 0


def test_is_shared():
    t = torch.randn(5, 5)
    assert not t.is_shared() and not t.untyped_storage().is_shared()
    assert t.share_memory_() is t
    assert t.is_shared() and t.untyped_storage().is_shared() and t[2].is_shared()
    assert not t.clone().is_shared()
    assert torch.FloatStorage([1.0]).share_memory_().is_shared()
    model = torch.nn.Linear(3, 3).share_memory()
    assert all(p.is_shared() and type(p) is torch.nn.Parameter for p in model.parameters())


def test_share_memory_keeps_the_storage():
    """The same PyTorch storage, so that all who view it go along."""
    t = torch.randn(1000)
    whole, view = t.untyped_storage(), t[10:]
    count = torch._C._storage_Use_Count(whole._cdata)
    t.share_memory_()
    assert view.untyped_storage()._cdata == whole._cdata and view.is_shared()
    assert torch._C._storage_Use_Count(whole._cdata) == count
    address = t.data_ptr()
    t.share_memory_()
    assert t.data_ptr() == address
    with pytest.raises(RuntimeError, match="not resizable"):
        t.resize_(10000)


def check_variable(inbox, outbox, parameter):
    var = inbox.get()
    outbox.put("got")
    assert inbox.get() == "written"
    expected = torch.arange(25.0).view(5, 5)
    expected[0, 0] = 1000
    good = torch.equal(var.data, expected) and var.grad is None and not var._backward_hooks
    good = good and (type(var) is torch.nn.Parameter) == parameter
    var.data[:] = 1
    outbox.put((good, var.requires_grad))


@pytest.mark.parametrize("parameter, grad", [(False, False), (False, True), (True, True),
                                             (True, False)])
def test_variable_sharing(context, start, parameter, grad):
    inbox, outbox = context.Queue(), context.Queue()
    var = torch.arange(25.0).view(5, 5).requires_grad_(grad)
    if parameter:
        var = torch.nn.Parameter(var.detach(), requires_grad=grad)
    if grad:
        var.grad = torch.zeros(5, 5)
    inbox.put(var)
    start(check_variable, inbox, outbox, parameter)
    assert outbox.get(timeout=PATIENCE) == "got"
    var.data[0, 0] = 1000
    inbox.put("written")
    assert outbox.get(timeout=PATIENCE) == (True, grad)
    assert torch.equal(var.data, torch.ones(5, 5))


def test_non_leaf_variable_sharing(context):
    queue = context.SimpleQueue()
    with pytest.raises(RuntimeError, match="requires_grad"):
        queue.put(torch.randn(5, 5, requires_grad=True) + 1)


def test_integer_parameter(context, start):
    start(add_three, torch.nn.Parameter(torch.arange(3), requires_grad=False))


# ---- What the tests of PyTorch don't ask -------------------------------------------------


def test_one_tensor_in_several_queues(context, start):
    t = torch.zeros(1000)
    inboxes, outbox = [context.Queue() for _ in range(4)], context.Queue()
    for inbox, part in zip(inboxes, t.chunk(4)):
        inbox.put([part])
        start(fill, inbox, outbox)
    for _ in inboxes:
        outbox.get(timeout=PATIENCE)
    assert torch.equal(t, torch.full((1000,), 4.0))


def total(inbox, outbox):
    sum_ = 0
    while (x := inbox.get()) is not None:
        sum_ += int(x)
    outbox.put(sum_)


def test_send_many(context, start):
    inbox, outbox = context.Queue(), context.Queue()
    processes = [start(total, inbox, outbox) for _ in range(2)]
    for i in range(2000):
        inbox.put(torch.tensor(i))
    for _ in processes:
        inbox.put(None)
    assert sum(outbox.get(timeout=PATIENCE) for _ in processes) == 1999 * 1000


def test_manager():
    """Proxies that get a tensor, change it and put it back (issue 77732)."""
    with mp.Manager() as manager:
        shared = manager.dict(x=torch.zeros(3), many=[torch.ones(2)] * 2)
        for _ in range(3):
            x = shared["x"]
            shared["x"] = x + 1
        assert shared["x"].tolist() == [3, 3, 3] and len(shared["many"]) == 2
        queue = manager.Queue()
        queue.put(torch.arange(100000))
        assert torch.equal(queue.get(), torch.arange(100000))


def test_pipe(context):
    a, b = mp.Pipe()
    with a, b:
        x = torch.zeros(4)
        a.send({"x": x})
        b.recv()["x"][1] = 5
        assert x.tolist() == [0, 5, 0, 0]
