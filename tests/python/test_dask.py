# SPDX-License-Identifier: MIT
"""cowshed.dask: what travels by handle, what does not, and how long it is there.

Here one process is both ends: what it makes for a reader on this host it reads itself. Real
clusters are in test_dask_cluster.py.
"""

import gc
import os
import pickle
import signal
import subprocess
import time
from collections import deque

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("distributed")

import dask.config  # noqa: E402
from distributed.protocol import deserialize, serialize  # noqa: E402

import cowshed  # noqa: E402
import cowshed.dask  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from cowshed.dask import _host, _shelf, _wire  # noqa: E402

MIB = 1 << 20
PROGRAM = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")

# Dask makes threads and an event loop when it is imported.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def start_broker(path):
    broker = subprocess.Popen([PROGRAM, "broker", "--socket", path, "-v"], stdout=subprocess.PIPE)
    assert broker.stdout.readline()
    return broker


def stop_broker(broker):
    broker.kill()
    broker.wait()
    broker.stdout.close()


def kill_brokers(path):
    """Also those that were started on demand."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"broker" in words and path.encode() in words:
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def here(tmp_path):
    """A broker, and this process as one that sends to itself: the context of such a message."""
    path = str(tmp_path / "broker")
    broker = start_broker(path)
    with dask.config.set({"cowshed.broker": path}):
        cowshed.dask.install(shim=False)
        yield {"recipient": {"cowshed": _host.announcement()}}
        gc.collect()
        cowshed.dask._close()
    stop_broker(broker)
    kill_brokers(path)


def tokens():
    """How many objects the broker holds besides the probe and the ledger."""
    return len(_host.broker().list()) - 2


def until(what):
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


class Parts:
    def __init__(self, whole, first, second, third):
        self.whole, self.first, self.second, self.third = whole, first, second, third


def by_handle(header):
    return "cowshed" in header or any(map(by_handle, header.get("sub-headers", ())))


def there_and_back(x, context):
    header, frames = serialize(x, context=context)
    assert by_handle(header)
    assert sum(memoryview(f).nbytes for f in frames) < 100000
    return deserialize(header, frames)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(MIB),
        lambda: np.asfortranarray(np.arange(MIB).reshape(1024, 1024)),
        lambda: np.arange(4 * MIB).reshape(2048, 2048)[:, 100:1500],
        lambda: cowshed.array(np.arange(4 * MIB)).reshape(2048, 2048)[:, 100:1500],
        lambda: cowshed.array(np.arange(4 * MIB)).reshape(2048, 2048)[::-1, ::-2],
        lambda: cowshed.array(np.arange(4 * MIB))[MIB:],
        lambda: np.arange(MIB).astype("datetime64[s]"),
        lambda: np.zeros(MIB, [("a", "f4"), ("b", "i2")]),
        lambda: np.ma.masked_array(np.arange(MIB), np.arange(MIB) % 3 == 0),
    ],
)
def test_an_array_arrives_as_it_was(here, make):
    x = make()
    y = there_and_back(x, here)
    assert type(y) is type(x) and y.dtype == x.dtype and y.shape == x.shape
    assert np.array_equal(np.asarray(x), np.asarray(y))
    assert y.flags.writeable


def test_read_only_stays_so(here):
    x = np.arange(MIB)
    x.flags.writeable = False
    assert not there_and_back(x, here).flags.writeable


def test_objects_with_arrays_in_them(here):
    pd = pytest.importorskip("pandas")
    names = ["x", "y"] * (MIB // 2)
    frame = pd.DataFrame({"a": np.arange(MIB), "b": np.arange(MIB) / 2, "c": names})
    pd.testing.assert_frame_equal(there_and_back(frame, here), frame)
    nested = {"k": [np.arange(MIB), ("t", np.ones(MIB))], "b": b"x" * MIB, "n": 5}
    header, frames = serialize(nested, context=here)
    back = deserialize(header, frames)
    assert np.array_equal(back["k"][0], np.arange(MIB)) and back["k"][1][0] == "t"
    assert back["b"] == nested["b"] and back["n"] == 5


def test_each_side_has_its_own_bytes(here):
    for x in np.zeros(MIB), cowshed.zeros(MIB):
        header, frames = serialize(x, context=here)
        x[:] = 1
        y, z = deserialize(header, list(frames)), deserialize(header, list(frames))
        y[:] = 2
        assert (x == 1).all() and (z == 0).all()
        # And again, of what was written since.
        assert (there_and_back(x, here) == 1).all()


def test_parts_of_one_array_have_bytes_of_their_own(here):
    """Frames that overlap on one storage: as they come by Dask's own way."""
    x = cowshed.full(2 * MIB, 7.0)
    back = there_and_back(Parts(x, x[:MIB], x[MIB:], x[MIB // 2 :]), here)
    back.whole[:] = -1
    assert (back.first == 7).all() and (back.second == 7).all() and (back.third == 7).all()
    back.third[:] = 2
    assert (back.first == 7).all() and (back.second == 7).all() and (x == 7).all()


def test_blocks_of_the_engine_are_not_copied(here, monkeypatch):
    monkeypatch.setattr(_shelf, "LINGER", 0.0)
    x = cowshed.full(MIB, 7.0)
    before = cowshed.stats()["bytes_copied"]
    for part in x, x[: MIB // 2], x.reshape(1024, 1024)[:, ::2], x:
        assert (there_and_back(part, here) == 7).all()
    assert cowshed.stats()["bytes_copied"] - before < 100000
    assert cowshed.dask.stats()["given"] == 1 and tokens() == 1
    del x, part
    until(lambda: tokens() == 0)


def test_slices_of_a_rechunk_are_not_copied(here):
    chunk = pytest.importorskip("dask.array.chunk")
    from cowshed.dask import _slices
    from distributed.worker import thread_state

    own = chunk.getitem
    x = cowshed.full((1024, 1024), 7.0)
    index = slice(None), slice(256)

    def shares(task, block, index=index):
        thread_state.key = task
        try:
            return np.shares_memory(chunk.getitem(block, index), block)
        finally:
            del thread_state.key

    assert not shares("rechunk-split-1", x)
    _slices.install()
    assert shares("rechunk-split-1", x) and shares(("rechunk-split-1", 0, 1), x)
    assert (there_and_back(x[index], here) == 7).all()
    # All else is as it was: other tasks, small parts, memory of others, what is wrong.
    assert not shares("getitem-1", x)
    assert not shares("rechunk-split-1", x, (slice(None), slice(32)))
    assert not shares("rechunk-split-1", np.broadcast_to(np.ones(1), (1024, 1024)))
    with pytest.raises(ValueError):
        shares("rechunk-split-1", x, (0, 0, 0))
    assert pickle.loads(pickle.dumps(chunk.getitem)) is chunk.getitem
    cowshed.dask.uninstall()
    assert chunk.getitem is own


def test_small_parts_keep_nothing_large(here):
    x = cowshed.zeros(8 * MIB)
    y = there_and_back(x[: 64 << 10], here)
    assert cowshed.storage_of(y).nbytes <= MIB


@pytest.mark.parametrize("said", [None, {}, {"version": 99}, "elsewhere", "another boot"])
def test_bytes_for_who_is_not_here(here, said, tmp_path):
    """Another host, another container, a scheduler, somebody without cowshed."""
    other = None
    announced = here["recipient"]["cowshed"]
    if said == "elsewhere":
        other = start_broker(str(tmp_path / "other"))
        far = _cowshed.Broker(str(tmp_path / "other"))
        said = {**announced, "probe": far.put(b"there")["token"]}
    elif said == "another boot":
        said = {**announced, "boot": "0"}
    x = np.arange(MIB)
    for context in None, {}, {"recipient": {"cowshed": said}}, {"recipient": {}}:
        header, frames = serialize(x, context=context)
        assert not by_handle(header)
        assert np.array_equal(deserialize(header, frames), x)
    if other:
        del far
        stop_broker(other)


def test_what_is_small_travels_as_ever(here):
    header, _ = serialize(np.arange(100), context=here)
    assert not by_handle(header)


def test_a_message_is_read_after_its_object(here, monkeypatch):
    monkeypatch.setattr(_shelf, "LINGER", 0.0)
    x = cowshed.full(2 * MIB, 3.0)
    header, frames = serialize(x, context=here)
    del x
    gc.collect()
    y = deserialize(header, frames)
    assert (y == 3).all()
    until(lambda: tokens() == 0)
    assert (y == 3).all()


def test_a_message_is_read_twice(here):
    x = np.full(MIB // 8, 5.0)  # small: lingers
    header, frames = serialize(x, context=here)
    del x
    for _ in range(2):
        assert (deserialize(header, list(frames)) == 5).all()


def test_a_message_that_nobody_reads(here, monkeypatch):
    monkeypatch.setattr(_shelf, "GRACE", 0.05)
    monkeypatch.setattr(_shelf, "LINGER", 0.0)
    for x in np.zeros(MIB), cowshed.zeros(MIB):
        header, _ = serialize(x, context=here)
        assert by_handle(header)
    assert tokens() == 2
    del x
    until(lambda: tokens() == 0)
    assert cowshed.dask.stats()["unread"] == 0
    assert cowshed.dask.stats()["waiting_bytes"] == 0


def test_too_much_that_nobody_reads(here, monkeypatch):
    monkeypatch.setattr(_shelf, "UNREAD_BYTES", 20 * MIB)
    sent = 0
    # A thread learns that the arrays are gone, and may be late.
    while sent < 1000 and by_handle(serialize(np.zeros(MIB), context=here)[0]):
        sent += 1
    assert 2 <= sent < 1000


def test_copies_that_no_message_could_be_made_of_are_gone(here, monkeypatch):
    shelf = cowshed.dask._shelf_of()
    before = tokens()
    monkeypatch.setattr(shelf, "_free", deque())  # as if too many messages waited to be read
    monkeypatch.setattr(shelf, "give", lambda storage, owner, whole: shelf.copy(storage))
    for x in cowshed.full((2048, 2048), 3.0)[:, 100:1500], np.full(MIB, 3.0):
        header, frames = serialize(x, context=here)
        assert not by_handle(header)
        assert (deserialize(header, frames) == 3).all()
    assert tokens() == before


@pytest.mark.parametrize("error", [MemoryError, BlockingIOError, PermissionError])
def test_what_a_broker_refuses_goes_another_way(here, monkeypatch, error):
    def refuse(*args, **kwargs):
        raise error

    shelf = cowshed.dask._shelf_of()
    for how in "copy", "give":
        monkeypatch.setattr(shelf, how, refuse)
    for x in cowshed.full((2048, 2048), 3.0)[:, 100:1500], np.full(MIB, 3.0):
        header, frames = serialize(x, context=here)
        assert not by_handle(header)
        assert (deserialize(header, frames) == 3).all()


def test_a_broker_that_was_killed(here, tmp_path):
    """What was sent is there again: its sender registers it with the next one."""
    x = cowshed.full(MIB, 3.0)
    header, frames = serialize(x, context=here)
    copied, copied_frames = serialize(np.full(MIB, 4.0), context=here)
    kill_brokers(str(tmp_path / "broker"))
    assert (deserialize(header, frames) == 3).all()
    assert (deserialize(copied, copied_frames) == 4).all()
    assert (there_and_back(x, here) == 3).all()


def test_a_broker_that_never_comes_back(here, monkeypatch, tmp_path):
    class Gone:
        def __getattr__(self, name):
            def call(*args, **kwargs):
                raise ConnectionRefusedError
            return call

    x = cowshed.full(MIB, 3.0)
    header, frames = serialize(x, context=here)
    shelf = cowshed.dask._shelf_of()
    real = shelf.broker
    monkeypatch.setattr(_wire, "PATIENCE", 0.1)
    monkeypatch.setattr(shelf, "broker", Gone())
    monkeypatch.setattr(_host, "_broker", Gone())
    with pytest.raises(OSError):  # Dask asks the sender again,
        deserialize(header, list(frames))
    again, frames = serialize(x, context=here)  # who sends bytes
    assert not by_handle(again)
    assert (deserialize(again, frames) == 3).all()
    monkeypatch.setattr(shelf, "broker", real)


def test_the_family_by_name(here):
    x = np.arange(MIB)
    header, frames = serialize(x, serializers=["cowshed", "dask", "pickle"], context=here)
    assert header["serializer"] == "cowshed"
    assert np.array_equal(deserialize(header, frames), x)
    header, frames = serialize(x, serializers=["cowshed", "dask", "pickle"])
    assert header["serializer"] == "dask"


def test_schedulers_say_nothing(here):
    class Comm:
        deserialize = True
        same_host = True

    from distributed.comm.core import Comm as Base
    comm = Comm()
    assert "cowshed" in Base.handshake_info(comm)
    comm.deserialize = False
    assert "cowshed" not in Base.handshake_info(comm)
    cowshed.dask.uninstall()
    comm.deserialize = True
    assert "cowshed" not in Base.handshake_info(comm)


def test_a_child_begins_anew(here):
    assert there_and_back(np.zeros(MIB), here) is not None
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            context = {"recipient": {"cowshed": _host.announcement()}}
            status = not (there_and_back(np.ones(MIB), context) == 1).all()
            cowshed.dask._close()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
