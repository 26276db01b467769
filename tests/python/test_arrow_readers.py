# SPDX-License-Identifier: MIT
"""What pandas, polars and DuckDB copy of a published table: nothing."""

import arrows
import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import cowshed  # noqa: E402
import cowshed.arrow  # noqa: E402
from arrows import lies_in  # noqa: E402

MIB = 1 << 20
runtime = arrows.runtime


def numbers(n=MIB):
    return pa.table({"x": np.arange(n), "y": np.arange(n) / 2})


def address(x):
    return x.__array_interface__["data"][0]


def test_pandas_reads_without_a_copy():
    pd = pytest.importorskip("pandas")
    ours = cowshed.arrow.publish("t", pd.DataFrame({"x": range(1000), "s": ["a", "b"] * 500}))
    assert ours["s"].to_pylist() == ["a", "b"] * 500
    table = cowshed.arrow.publish("n", numbers())
    frame = table.to_pandas(split_blocks=True)
    for name in "x", "y":
        assert address(frame[name].to_numpy()) == table[name].chunk(0).buffers()[1].address
    whole = table.to_pandas(types_mapper=pd.ArrowDtype)
    column = whole["x"].array.__arrow_array__()
    storage = cowshed.arrow.storage(table["x"].chunk(0).buffers()[1])
    assert all(lies_in(storage, chunk) for chunk in getattr(column, "chunks", [column]))


def test_a_frame_of_python_objects():
    pd = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="Arrow can't make a table of this DataFrame"):
        cowshed.arrow.publish("t", pd.DataFrame({"x": [object(), 5]}))


def test_polars_reads_without_a_copy():
    pl = pytest.importorskip("polars")
    table = cowshed.arrow.publish("t", numbers())
    frame = pl.from_arrow(table)
    for name in "x", "y":
        assert address(frame[name].to_numpy()) == table[name].chunk(0).buffers()[1].address
    words = pl.DataFrame({"s": [f"a long string with number {i}" for i in range(10000)]})
    ours = cowshed.arrow.publish("s", words)
    back = pl.from_arrow(ours)
    assert back.equals(words)
    view = back["s"].to_arrow(compat_level=pl.CompatLevel.newest()).buffers()
    assert view[1].address == ours["s"].chunk(0).buffers()[1].address


def private_bytes():
    """Anonymous memory of this process."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous")) << 10


def test_duckdb_reads_without_a_copy():
    duckdb = pytest.importorskip("duckdb")
    table = cowshed.arrow.publish("t", numbers(8 << 20))  # 128 MiB
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rides", table)
    connection.execute("select sum(x) from (select 1 as x)").fetchall()
    before = private_bytes()
    total, most = connection.execute("select sum(x), max(y) from rides").fetchall()[0]
    grown = private_bytes() - before
    assert (total, most) == ((8 << 20) * ((8 << 20) - 1) // 2, ((8 << 20) - 1) / 2)
    assert grown < 32 << 20
    ours = cowshed.arrow.publish("d", connection.sql("select x % 10 as k, count(*) as n from rides "
                                                     "group by k order by k"))
    assert ours["k"].to_pylist() == list(range(10))
    connection.close()
