# SPDX-License-Identifier: MIT
"""cowshed.arrow: buffers on storages, tables under names, messages."""

import datetime
import os
import pickle
import signal
import subprocess
import sys

import arrows
import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow.compute as pc  # noqa: E402

import cowshed  # noqa: E402
import cowshed.arrow  # noqa: E402
import cowshed.multiprocessing as multiprocessing  # noqa: E402
from cowshed import _cowshed  # noqa: E402
from cowshed._memory import _family  # noqa: E402
from cowshed._pyobjects import _pickle  # noqa: E402
from cowshed.multiprocessing import _strategy  # noqa: E402
from arrows import lies_in, rides  # noqa: E402

MIB = 1 << 20
runtime = arrows.runtime


def broker_pid(folder):
    """The process that listens in the folder."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"broker" in words and any(folder.encode() in word for word in words):
            return int(pid)
    raise AssertionError("no broker")


def kill_broker(folder):
    pid = broker_pid(folder)
    os.kill(pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{pid}") and not is_zombie(pid):
        os.sched_yield()


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True


def program(text, *args):
    """What a process prints that runs these lines."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, cowshed.arrow, pyarrow as pa\n" + text, *args],
        capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- Buffers -------------------------------------------------------------------------------


def test_storages_and_buffers_are_the_same_memory():
    storage = _cowshed.new(MIB)
    buffer = cowshed.arrow.buffer(storage)
    memoryview(storage)[5] = 7
    assert (buffer.address, buffer.size, buffer[5]) == (storage.address, MIB, 7)
    assert buffer.is_mutable and cowshed.arrow.storage(buffer) is storage
    assert cowshed.arrow.storage(storage) is storage


def test_arrays_are_buffers():
    x = cowshed.full((300, 500), 2.5)
    for view in x, x.T, x[10:]:
        buffer = cowshed.arrow.buffer(view)
        assert buffer.size == view.nbytes
        assert cowshed.arrow.storage(buffer) is cowshed.storage_of(x)
    column = pa.Array.from_buffers(pa.float64(), x.size, [None, cowshed.arrow.buffer(x)])
    x[0, 1] = 9
    assert column[1].as_py() == 9
    part = cowshed.arrow.buffer(x[10:])
    assert part.address - cowshed.arrow.storage(part).address == 10 * 500 * 8
    assert not cowshed.arrow.buffer(cowshed.freeze(x)).is_mutable


def test_a_buffer_keeps_its_storage():
    live = cowshed.stats()["storages_live"]
    buffer = cowshed.arrow.buffer(cowshed.full(1 << 17, 3, "u1"))
    assert cowshed.stats()["storages_live"] == live + 1 and buffer[-1] == 3
    del buffer
    assert cowshed.stats()["storages_live"] == live


def test_memory_of_others_is_copied_once():
    x = np.arange(MIB, dtype="u1")
    buffer = cowshed.arrow.buffer(x)
    assert buffer.to_pybytes() == x.tobytes()
    assert cowshed.arrow.storage(buffer) is cowshed.storage_of(buffer)
    theirs = pa.array(range(100000)).buffers()[1]
    storage = cowshed.arrow.storage(theirs)
    assert bytes(storage) == theirs.to_pybytes() and storage.nbytes == theirs.size
    assert cowshed.arrow.storage(pa.py_buffer(b"")).nbytes == 0


@pytest.mark.parametrize("dtype", ["datetime64[us]", ">i4", [("a", "u1"), ("b", ">f8")], "S3"])
def test_buffers_are_the_bytes_of_any_type(dtype):
    x = cowshed.zeros(5000, dtype)
    assert cowshed.arrow.buffer(x).size == x.nbytes
    assert cowshed.arrow.storage(cowshed.arrow.buffer(x)) is cowshed.storage_of(x)


def test_what_is_no_buffer():
    with pytest.raises(ValueError, match="gaps.*cowshed.array"):
        cowshed.arrow.buffer(cowshed.zeros((10, 10))[:, ::2])
    with pytest.raises(TypeError, match="Python objects"):
        cowshed.arrow.buffer(np.array([object()]))
    with pytest.raises(TypeError, match="NumPy array"):
        cowshed.arrow.buffer([1, 2])
    for wrong in pa.array([1]), "text", None:
        with pytest.raises(TypeError, match=r"pass one of the buffers\(\)"):
            cowshed.arrow.storage(wrong)
    for empty in cowshed.zeros((0, 3)), np.zeros(3, "V0"):
        assert cowshed.arrow.buffer(empty).size == 0


# ---- Names ---------------------------------------------------------------------------------


def test_another_process_opens_a_table(runtime):
    table = rides()
    ours = cowshed.arrow.publish("rides", table)
    assert ours.equals(table) and cowshed.arrow.names() == ["rides"]
    said = program("""
table = cowshed.arrow.open("rides")
table.validate(full=True)
storage = cowshed.arrow.storage(table["id"].chunk(0).buffers()[1])
low, high = storage.address, storage.address + storage.nbytes
inside = all(low <= b.address < high for c in table.columns for k in c.chunks for b in k.buffers()
             if b is not None and b.size)
print(table.num_rows, table["fare"][5], table["place"][1001], inside, storage.readonly,
      cowshed.stats()["bytes_copied"])
""")
    assert said == f"{table.num_rows} 1.25 place 1 True True 0"


def test_a_table_is_written_once_and_sealed():
    table = pa.table({"x": np.arange(MIB), "y": np.ones(MIB)})
    before = cowshed.stats()
    ours = cowshed.arrow.publish("t", table)
    storage = cowshed.arrow.storage(ours["x"].chunk(0).buffers()[1])
    after = cowshed.stats()
    assert after["bytes_copied"] == before["bytes_copied"]
    assert after["storages_live"] == before["storages_live"] + 1
    assert all(lies_in(storage, column.chunk(0)) for column in ours.columns)
    x = ours["x"].to_numpy()
    assert not x.flags.writeable and storage.readonly
    fd, _ = storage.export(_cowshed.SEALED)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
    finally:
        os.close(fd)
    w = cowshed.writable(x)
    w[0] = 5
    assert x[0] == 0 and cowshed.arrow.open("t")["x"][0].as_py() == 0


def test_what_is_open_outlives_its_name():
    ours = cowshed.arrow.publish("t", {"x": np.arange(MIB)})
    theirs = cowshed.arrow.open("t")
    cowshed.arrow.unpublish("t")
    del ours
    assert theirs["x"][-1].as_py() == MIB - 1 and cowshed.arrow.names() == []
    for call in cowshed.arrow.open, cowshed.arrow.unpublish:
        with pytest.raises(FileNotFoundError, match="no table has this name"):
            call("t")


@pytest.mark.parametrize("lasting", [False, True])
def test_a_name_goes_with_its_publisher_unless_it_lasts(lasting):
    _strategy.broker()
    program(f"cowshed.arrow.publish('t', {{'x': [1, 2]}}, lasting={lasting})")
    if lasting:
        assert cowshed.arrow.open("t")["x"].to_pylist() == [1, 2]
        cowshed.arrow.unpublish("t")
    else:
        assert cowshed.arrow.names() == []


def test_names_that_are_taken_or_wrong():
    cowshed.arrow.publish("t", {"x": [1]})
    with pytest.raises(FileExistsError, match=r"unpublish\(\) it first.*'t'"):
        cowshed.arrow.publish("t", {"x": [2]})
    assert cowshed.arrow.open("t")["x"][0].as_py() == 1
    for wrong in "", "x" * 64:
        with pytest.raises(ValueError, match="use 1 to 63 bytes"):
            cowshed.arrow.publish(wrong, {"x": [1]})
    for call in cowshed.arrow.open, cowshed.arrow.unpublish:
        with pytest.raises(TypeError, match="takes a name first, not bytes"):
            call(b"0123456789abcdef")
    assert cowshed.arrow.names() == ["t"]


def test_without_a_broker():
    assert cowshed.arrow.names() == []
    for call in cowshed.arrow.open, cowshed.arrow.unpublish:
        with pytest.raises(FileNotFoundError, match="no table has this name"):
            call("t")
    assert _strategy._broker is None


def test_a_killed_broker_takes_no_table(runtime):
    ours = cowshed.arrow.publish("t", {"x": np.arange(MIB)})
    theirs = cowshed.arrow.open("t")
    kill_broker(runtime)
    assert theirs.equals(ours)
    cowshed.arrow.publish("u", {"x": [1]})  # starts another broker, which gets both
    assert cowshed.arrow.names() == ["t", "u"]
    assert program("print(cowshed.arrow.open('t')['x'][-1])") == str(MIB - 1)


def test_other_items_of_the_broker_are_no_tables():
    at = _strategy.broker()
    kept = at.put(_family.lone_alias(MIB), "shared", _cowshed.ALIAS)
    at.put(b"plain bytes", "bytes", _cowshed.SEALED)
    at.put(b"ARROW1\0\0" + bytes(1000), "cut", _cowshed.SEALED)
    at.put(b"", "empty", _cowshed.SEALED)
    at.put(b"ARROW1", "short", _cowshed.SEALED)
    for name, why in [("shared", "other processes may write"), ("bytes", "is no Arrow table"),
                      ("cut", "is damaged"), ("empty", "is no Arrow table"),
                      ("short", "is damaged")]:
        with pytest.raises(ValueError, match=f"'{name}'.*{why}"):
            cowshed.arrow.open(name)
    cowshed.arrow.publish("t", {"x": [1]})
    assert "t" in cowshed.arrow.names() and not {"shared", "bytes"} & {*cowshed.arrow.names()}
    for name in "shared", "bytes", "cut", "empty", "short":
        at.drop(name)
    del kept


def test_arrow_files_of_the_command(runtime, tmp_path):
    command = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
    table = rides(1000)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    subprocess.run([command, "publish", str(tmp_path / "a.arrow"), "file"], check=True)
    assert cowshed.arrow.open("file").equals(table)
    cowshed.arrow.publish("back", table)
    subprocess.run([command, "get", "back", str(tmp_path / "b.arrow")], check=True)
    with pa.memory_map(str(tmp_path / "b.arrow")) as source:
        assert pa.ipc.open_file(source).read_all().equals(table)
    cowshed.arrow.unpublish("file")


# ---- What is published ---------------------------------------------------------------------


def test_tables_of_all_forms():
    whole = rides(1000)
    batches = whole.to_batches(max_chunksize=100)
    forms = {
        "batch": (batches[0], whole.slice(0, 100)),
        "chunks": (pa.Table.from_batches(batches), whole),
        "reader": (pa.RecordBatchReader.from_batches(whole.schema, batches), whole),
        "slice": (whole.slice(17, 300), whole.slice(17, 300)),
        "no rows": (whole.slice(0, 0), whole.slice(0, 0)),
        "no columns": (whole.select([]), whole.select([])),
        "same column twice": (whole.select(["id", "id"]), whole.select(["id", "id"])),
        "nulls": (pa.table({"x": pa.nulls(5)}), pa.table({"x": pa.nulls(5)})),
    }
    for name, (given, wanted) in forms.items():
        assert cowshed.arrow.publish(name, given).equals(wanted), name
        assert cowshed.arrow.open(name).equals(wanted), name


def test_a_slice_is_published_without_the_rest():
    table = pa.table({"x": np.arange(MIB)})
    ours = cowshed.arrow.publish("t", table.slice(1000, 10))
    storage = cowshed.arrow.storage(ours["x"].chunk(0).buffers()[1])
    assert storage.nbytes < 64 << 10 and ours["x"][0].as_py() == 1000


def test_dictionaries_become_one_for_each_column():
    chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", "a"])]
    ours = cowshed.arrow.publish("t", pa.table({"x": pa.chunked_array(chunks)}))
    assert ours["x"].to_pylist() == ["a", "b", "c", "a"]
    small = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.array(map(str, range(first, first + 100))).dictionary_encode().cast(small)
              for first in (0, 100)]
    with pytest.raises(ValueError, match="Cast a column with dictionaries to a larger index type"):
        cowshed.arrow.publish("u", pa.table({"x": pa.chunked_array(chunks)}))
    assert cowshed.arrow.names() == ["t"]


def test_arrays_in_a_dict():
    columns = {"strided": np.arange(20)[::2], "dates": np.arange(10).astype("datetime64[s]"),
               "list": list("abcdefghij")}
    assert cowshed.arrow.publish("t", columns).to_pydict() == {
        "strided": list(range(0, 20, 2)),
        "dates": [datetime.datetime(1970, 1, 1, 0, 0, i) for i in range(10)],
        "list": list("abcdefghij")}


@pytest.mark.parametrize("column", [
    np.array([object(), object()]), np.arange(3, dtype=">i4"), np.zeros((2, 2)),
    np.array([{1, 2}, "x"], dtype=object),
], ids=["objects", "byte order", "two axes", "mixed"])
def test_arrays_that_are_no_columns(column):
    live = cowshed.stats()["storages_live"]
    with pytest.raises(TypeError, match="Arrow can't make a table of this dict.*Pass columns of"):
        cowshed.arrow.publish("t", {"x": column})
    for wrong in 5, "text", [1, 2], np.zeros(3), None:
        with pytest.raises(TypeError, match=r"pass pyarrow.table\("):
            cowshed.arrow.publish("t", wrong)
    assert cowshed.stats()["storages_live"] == live and cowshed.arrow.names() == []


def test_readers_and_closed_files(tmp_path):
    table = rides(10)
    for name, make, read in [("s", pa.ipc.new_stream, pa.ipc.open_stream),
                             ("f", pa.ipc.new_file, pa.ipc.open_file)]:
        with make(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
        with pa.OSFile(str(tmp_path / name)) as source:
            assert cowshed.arrow.publish(name, read(source)).equals(table)
            source.seek(0)
            closed = read(source)
        with pytest.raises(ValueError, match="can't be read to its end.*Open its file again"):
            cowshed.arrow.publish("t", closed)
    assert cowshed.arrow.names() == ["f", "s"]


# ---- Messages ------------------------------------------------------------------------------


def answer(conn):
    table = conn.recv()
    storage = cowshed.arrow.storage(table["id"].chunk(0).buffers()[1])
    conn.send((table.num_rows, table["place"][1001].as_py(), storage.readonly, storage.nbytes))
    conn.send(table)
    conn.send(table.slice(1000, 1 << 16).select(["id", "place"]))
    conn.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_tables_travel_by_handle(method):
    context = multiprocessing.get_context(method)
    ours = cowshed.arrow.publish("t", rides())
    storage = cowshed.arrow.storage(ours["id"].chunk(0).buffers()[1])
    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    child.start()
    there.close()
    copied = cowshed.stats()["bytes_copied"]
    here.send(ours)
    rows, place, readonly, nbytes = here.recv()
    assert (rows, place, readonly, nbytes) == (ours.num_rows, "place 1", True, storage.nbytes)
    back = here.recv()
    assert back.equals(ours)
    assert cowshed.arrow.storage(back["fare"].chunk(0).buffers()[1]).nbytes == storage.nbytes
    part = here.recv()
    assert part.equals(ours.slice(1000, 1 << 16).select(["id", "place"]))
    assert cowshed.arrow.storage(part["id"].chunk(0).buffers()[1]).nbytes == storage.nbytes
    assert cowshed.stats()["bytes_copied"] == copied
    child.join()
    here.close()


def test_a_table_is_a_short_message():
    ours = cowshed.arrow.publish("t", pa.concat_tables([rides(100)] * 300))
    data, parcels = _pickle.dumps(ours)
    assert len(data) < 1024 and len(parcels) == 1
    assert _pickle.loads(data, [parcel[0] for parcel in parcels]).equals(ours)
    data, parcels = _pickle.dumps([rides(), ours.slice(5)])  # of Arrow's memory, and a part
    assert _pickle.loads(data, [parcel[0] for parcel in parcels])[0].equals(rides())
    assert pickle.loads(pickle.dumps(ours)).equals(ours)


def test_chunks_of_one_buffer_are_sent_once():
    """Arrow's own pickle has the whole buffer once for each chunk."""
    # In Arrow's own memory: under the shim that of NumPy is a storage, which needs no copy.
    whole = pa.table({"x": pc.add(pa.array(np.arange(MIB)), 0)})
    for table in pa.Table.from_batches(whole.to_batches(max_chunksize=MIB // 16)), whole[5:25]:
        data, parcels = _pickle.dumps(table)
        assert len(data) + sum(parcel[0].nbytes for parcel in parcels) < table.nbytes + (64 << 10)
        back = _pickle.loads(data, [parcel[0] for parcel in parcels])
        assert back.equals(table)
    small = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.array(map(str, range(first, first + 100))).dictionary_encode().cast(small)
              for first in (0, 100)]
    table = pa.table({"x": pa.chunked_array(chunks * 3000)})  # no file can hold it
    data, parcels = _pickle.dumps(table)
    assert _pickle.loads(data, [parcel[0] for parcel in parcels]).equals(table)


def test_a_forked_child_reads_and_does_not_hold_the_name():
    ours = cowshed.arrow.publish("t", {"x": np.arange(MIB)})
    child = os.fork()
    if child == 0:
        wrong = ours["x"][-1].as_py() != MIB - 1 or cowshed.arrow.names() != ["t"]
        mine = cowshed.arrow.publish("u", {"x": np.arange(MIB)})  # Arrow's threads are the parent's
        os._exit(wrong or not mine.equals(ours) or cowshed.arrow.names() != ["t", "u"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cowshed.arrow.names() == ["t"]


# ---- Without pyarrow ----------------------------------------------------------------------


def test_a_missing_pyarrow():
    done = subprocess.run([sys.executable, "-c", """
import sys
sys.modules["pyarrow"] = None
import cowshed
try:
    cowshed.arrow
except ImportError as error:
    print(error)
print("arrow" in dir(cowshed))
"""], capture_output=True, text=True, timeout=50)
    assert "cowshed.arrow needs pyarrow" in done.stdout and "pip install pyarrow" in done.stdout
    assert done.stdout.endswith("False\n") and not done.stderr


def test_nothing_is_imported_before():
    assert program("print('pyarrow' in sys.modules)") == "True"
    done = subprocess.run([sys.executable, "-c", "import sys, cowshed; dir(cowshed)\n"
                           "print('pyarrow' in sys.modules, 'ray' in sys.modules)"],
                          capture_output=True, text=True, timeout=50)
    assert done.stdout == "False False\n"
