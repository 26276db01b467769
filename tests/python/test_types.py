# SPDX-License-Identifier: MIT
"""What a type checker says of programs that use the package."""

import re

import checkers
import pytest

RIGHT = """
from typing import Any, assert_type

import numpy
import torch
from numpy.typing import NDArray

import cowshed
import cowshed.arrow
import cowshed.dask
import cowshed.multiprocessing as mp
import cowshed.ray
import cowshed.torch
from cowshed.multiprocessing.connection import Connection, Listener, wait
from cowshed.multiprocessing.managers import DictProxy, ListProxy, SyncManager, ValueProxy
from cowshed.multiprocessing.pool import MaybeEncodingError, ThreadPool
from cowshed.multiprocessing.queues import Empty, JoinableQueue, Queue, SimpleQueue
from cowshed.multiprocessing.shared_memory import ShareableList, SharedMemory
from cowshed.multiprocessing.sharedctypes import RawArray, Value
from cowshed.multiprocessing.templates import Template, TemplateProcess

a = cowshed.zeros((2, 3), "float32", shared=True)
assert_type(a, NDArray[Any])
assert_type(cowshed.clone(a), NDArray[Any])
assert_type(cowshed.empty(5), NDArray[numpy.float64])
f = cowshed.zeros((2, 3), numpy.float32)
assert_type(f, NDArray[numpy.float32])
assert_type(cowshed.ones(3, numpy.dtype(numpy.int8)), NDArray[numpy.int8])
assert_type(cowshed.full(3, 1.5, numpy.float32), NDArray[numpy.float32])
assert_type(cowshed.clone(f), NDArray[numpy.float32])
assert_type(cowshed.freeze(f), NDArray[numpy.float32])
assert_type(cowshed.share(f), NDArray[numpy.float32])
assert_type(cowshed.writable(f), NDArray[numpy.float32])
assert_type(cowshed.zeros_like(f), NDArray[numpy.float32])
assert_type(cowshed.empty_like(f, numpy.int8), NDArray[numpy.int8])
assert_type(cowshed.array(f), NDArray[numpy.float32])
assert_type(cowshed.arange(5), NDArray[Any])
model = torch.nn.Linear(2, 3)
assert_type(cowshed.clone(model), torch.nn.Linear)
assert_type(cowshed.share(model), torch.nn.Linear)
optimizer = torch.optim.Adam(model.parameters())
assert_type(cowshed.clone((model, optimizer)), tuple[torch.nn.Linear, torch.optim.Adam])
model, optimizer = cowshed.clone((model, optimizer))
assert_type(cowshed.writable(a), NDArray[Any])
block = SharedMemory(create=True, size=10)
assert_type(block.name, str)
assert_type(cowshed.writable(block.buf), memoryview)
assert_type(ShareableList([1, 2]).shm, SharedMemory)
template = mp.get_context("template").Template("math:sqrt", (2,))
assert_type(template, Template)
assert_type(template.Process(target=print), TemplateProcess)
assert_type(mp.get_context("spawn").Process(target=print).exitcode, int | None)
template.reset(template.Process(target=print))
assert_type(cowshed.array([1, 2], numpy.int8), NDArray[numpy.int8])
assert_type(cowshed.is_shared(a), bool)
t = cowshed.torch.zeros(2, 3, dtype=torch.float32)
assert_type(t, torch.Tensor)
assert_type(cowshed.freeze(t), torch.Tensor)
assert_type(cowshed.clone(torch.nn.Parameter(t)), torch.Tensor)
assert_type(cowshed.writable(t), torch.Tensor)
assert_type(cowshed.share(torch.nn.Parameter(t)), torch.nn.Parameter)
assert_type(cowshed.torch.share(torch.nn.Parameter(t)), torch.nn.Parameter)
assert_type(cowshed.torch.full((2, 3), 1.5), torch.Tensor)
s = cowshed.storage_of(t)
assert_type(s, cowshed.Storage | None)
if s is not None:
    assert_type(cowshed.clone(s), cowshed.Storage)
    assert_type(cowshed.torch.from_storage(s), torch.Tensor)
assert_type(cowshed.snapshot({"t": t}).save_async("x.npz").wait(), str)
assert_type(cowshed.checkpoint({"t": t}, "x.npz").error, BaseException | None)
assert_type(cowshed.open("x.npy", "r"), Any)
saving = cowshed.checkpoint({"t": t}, "x.npz")
assert_type(saving.result(5), str)
assert_type(saving.exception(), BaseException | None)


async def wait_for(saving: cowshed.Saving) -> None:
    assert_type(await saving, str)


cowshed.save("x.npy", a)
assert_type(cowshed.freeze_objects(a, t), cowshed.FrozenObjects)
packed = cowshed.pack([{"a": 1}])
assert_type(packed, cowshed.Packed[dict[str, int]])
assert_type(packed[0], dict[str, int])
assert_type(packed[1:], cowshed.Packed[dict[str, int]])
assert_type([row["a"] for row in packed], list[int])
packed.save("x.pack")
assert_type(cowshed.Packed.open("x.pack"), cowshed.Packed[Any])
with cowshed.sharing_mode("alias"):
    mp.set_sharing_strategy("fd")
queue = mp.get_context("fork").Queue()
queue.put(a)
process = mp.Process(target=print, args=(a,))
process.start()
with mp.Pool(2) as pool:
    assert_type(pool.map(len, ["a"]), list[int])
receiving, sending = mp.Pipe(duplex=False)
manager = mp.Manager()
assert_type(cowshed.dask.stats(), dict[str, int])
assert_type(cowshed.ray.stats(), dict[str, int])
assert_type(cowshed.arrow.names(), list[str])
assert_type(cowshed.arrow.storage(a), cowshed.Storage)
assert_type(cowshed.__version__, str)
"""

WRONG = """
import cowshed
import cowshed.arrow
import cowshed.multiprocessing as mp
import cowshed.torch

cowshed.zeros("many")
cowshed.zeros(3, order="K")
cowshed.set_sharing_mode("copy")
mp.set_sharing_strategy("file_system")
cowshed.torch.zeros(3, dtype="float32")
cowshed.snapshots({})
cowshed.torch.clone([1, 2])
cowshed.clone([1, 2])
cowshed.clone((1, 2))
cowshed.share("text")
cowshed.pack(5)
mp.fork_bomb()
cowshed.arrow.publish(b"t", {})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("types")


@pytest.mark.limit(300)
@pytest.mark.parametrize("checker", checkers.NAMES)
def test_right_programs(checker, folder):
    path = folder / "right.py"
    path.write_text(RIGHT)
    done = checkers.run(checker, path)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@pytest.mark.limit(300)
@pytest.mark.parametrize("checker", checkers.NAMES)
def test_every_mistake_is_found(checker, folder):
    """One line is wrong in itself each time, so each has an error, and nothing else has."""
    path = folder / "wrong.py"
    path.write_text(WRONG)
    lines = [i for i, line in enumerate(WRONG.splitlines(), 1) if "(" in line]
    done = checkers.run(checker, path)
    said = re.findall(r"wrong\.py:(\d+):.*\berror: ", done.stdout)
    assert done.returncode == 1 and sorted({int(line) for line in said}) == lines, done
