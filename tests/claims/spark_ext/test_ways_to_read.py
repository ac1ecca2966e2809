"""The three ways to read a table give the same rows, and leave unread what they can."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

import spark_ext
from fermion_table import Table
from spark_ext.versions import BARE_ROWS
from tests.kit.spark.counting import destroyed_columns, files_away, tasks_started
from tests.kit.spark.served import served
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("s", pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})),
    ]
)
Way = Callable[..., DataFrame]


def rows(start: int, stop: int) -> pa.Table:
    made = [
        {"id": i, "text": f"t{i}", "s": None if i % 6 == 5 else {"a": i % 4, "b": [str(i)] * 2}}
        for i in range(start, stop)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def by_function(spark: SparkSession, table: Table, **chosen: Any) -> DataFrame:
    return spark_ext.read_table(spark, table.location, **chosen)


def by_format(spark: SparkSession, table: Table, **chosen: Any) -> DataFrame:
    names = {"snapshot_id": "snapshotId", "as_of": "asOf", "batch_id": "batchId"}
    reader = spark.read.format("fermion")
    for key, value in chosen.items():
        text = ",".join(value) if key == "columns" else value
        text = value.isoformat() if key == "as_of" else text
        reader = reader.option(names.get(key, key), text)
    return reader.load(table.location)


def by_catalog(spark: SparkSession, table: Table, **chosen: Any) -> DataFrame:
    catalog = "remote" if "://" in table.location else "ways"
    name = f"{catalog}." + table.location.rsplit("/", 1)[-1]
    version = chosen.get("snapshot_id", chosen.get("tag"))
    if version is not None:
        name += f" VERSION AS OF '{version}'"
    if "as_of" in chosen:
        name += f" TIMESTAMP AS OF '{chosen['as_of'].isoformat()}'"
    if "batch_id" in chosen:
        name += f" WITH ('batchId' = {chosen['batch_id']})"
    columns = ", ".join(chosen.get("columns", ["*"])) or "1"
    return spark.sql(f"SELECT {columns} FROM {name} WHERE {chosen.get('filter', 'true')}")


@pytest.fixture(
    scope="module", params=[by_function, by_format, by_catalog], ids=lambda d: d.__name__
)
def way(request, spark, warehouse) -> Way:
    return request.param


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ways")
    spark_ext.install_catalog(spark, "ways", directory)
    return directory


@pytest.fixture(scope="module")
def table(warehouse):
    """Three appends of ten rows, the first tagged."""
    made = Table.create(warehouse / "plain", SCHEMA)
    for start in (0, 10, 20):
        made.append(rows(start, start + 10))
    made.tags.create("first", version=1)
    return made


@pytest.fixture(scope="module")
def batches(warehouse):
    """Two files: batches 0 to 2, and 3 alone."""
    made = Table.create(warehouse / "batches", SCHEMA)
    made.append_batches((number, rows(number * 5, number * 5 + 5)) for number in range(3))
    made.append_batch(3, rows(15, 20))
    return made


@pytest.fixture(scope="module")
def remote(spark, tmp_path_factory):
    """A server, and of a table that it serves three files of 1,000 ids and 3 MB of noise each.

    Beside it maps of a hundred keys, of which three have columns.
    """
    directory = tmp_path_factory.mktemp("remote")
    made = Table.create(directory / "noisy", pa.schema([("id", pa.int64()), ("x", pa.binary())]))
    noise = np.random.default_rng(7).bytes(3_000_000)
    values = [noise[start : start + 3_000] for start in range(0, len(noise), 3_000)]
    for start in (0, 1_000, 2_000):
        made.append(pa.table({"id": range(start, start + 1_000), "x": values}))
    count, keys = 2_000, 100
    names = pa.array([f"k{at:02}" for at in range(keys)] * count)
    offsets = np.arange(0, count * keys + 1, keys, dtype=np.int32)
    values = pa.array(np.random.default_rng(7).random(count * keys))
    maps = pa.table({"id": range(count), "m": pa.MapArray.from_arrays(offsets, names, values)})
    Table.create(directory / "maps", maps, properties={"fermion.shred.m": "k07,k08,k09"})
    with served(directory) as server:
        spark_ext.install_catalog(spark, "remote", server.url)
        yield server, Table.open(f"{server.url}/noisy")


def found(frame: DataFrame) -> list[dict]:
    listed = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(listed, key=lambda row: row.get("id", 0))


def test_the_same_rows_and_types_come_through_each_way(spark, table, way):
    frame = way(spark, table)
    assert found(frame) == rows(0, 30).to_pylist()
    assert frame.schema.simpleString() == (
        "struct<id:bigint,text:string,s:struct<a:int,b:array<string>>>"
    )


def test_columns_that_are_not_asked_for_are_not_read(spark, table, way):
    """Their pages are destroyed; a query that needs one fails."""
    with destroyed_columns(table, [("id",), ("s", "a")]):
        frame = way(spark, table, columns=["id", "s.a"], filter="id < 20")
        assert len(frame.collect()) == 20
        with pytest.raises(PySparkException):
            way(spark, table, columns=["text"]).collect()


def test_files_without_a_row_of_the_filter_are_not_read(spark, table, way):
    """They are taken away."""
    with files_away(table, "id >= 10") as away:
        assert away == 2
        chosen = found(way(spark, table, columns=["id"], filter="id < 10 AND s.a = 3"))
        assert [row["id"] for row in chosen] == [3, 7]


@needs(BARE_ROWS)
def test_rows_are_counted_without_a_data_file(spark, table, way):
    """All are taken away; nobody asks for a column."""
    with files_away(table, "TRUE") as away:
        assert away == 3
        assert way(spark, table, columns=[]).count() == 30


def test_versions_are_read_through_each_way(spark, table, way):
    assert len(way(spark, table, snapshot_id=2).collect()) == 20
    assert len(way(spark, table, tag="first").collect()) == 10
    time_ms = table.snapshots()[2].time_ms
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    assert len(way(spark, table, as_of=moment).collect()) == 20


def test_a_batch_is_read_without_the_files_of_others(spark, batches, way):
    with files_away(batches, "batch_id = 3"):
        chosen = found(way(spark, batches, columns=["id"], batch_id=1))
        assert [row["id"] for row in chosen] == [5, 6, 7, 8, 9]


def test_virtual_columns_are_read_through_each_way(spark, batches, way):
    columns = ["batch_id", "index_in_batch", "id"]
    chosen = found(way(spark, batches, columns=columns, filter="batch_id >= 2 AND id <> 12"))
    assert [tuple(row[name] for name in columns) for row in chosen] == [
        (2 + (i >= 15), i % 5, i) for i in range(10, 20) if i != 12
    ]
    assert "batch_id" not in way(spark, batches).columns


def test_a_query_may_ask_a_door_for_no_column(spark, table, way):
    assert way(spark, table, columns=["id"], filter="id >= 25").selectExpr("1").count() == 5


@pytest.mark.parametrize(
    ("columns", "filter", "files", "share_max"),
    [
        (["id"], "TRUE", 3, 0.3),
        (["id"], "id >= 2000", 1, 0.1),
        (["id", "x"], "id = 1500", 1, 0.34),
    ],
)
def test_a_door_asks_the_storage_for_what_a_scan_asks(
    spark, remote, way, columns, filter, files, share_max
):
    """Each request for a data file is counted, with its bytes; Spark adds none."""
    server, table = remote
    server.taken()
    scan = table.scan(columns=columns, filter=filter)
    rows = scan.to_arrow().num_rows
    expected = server.taken()
    assert len(expected) == scan.io_stats["requests"]
    assert len({path for path, _ in expected}) == files
    assert sum(size for _, size in expected) < share_max * table.snapshot.totals.bytes
    assert len(way(spark, table, columns=columns, filter=filter).collect()) == rows
    assert server.taken() == expected


def test_a_key_of_maps_costs_through_each_way_what_it_costs_a_scan(spark, remote, way):
    """It has a column of its own; SQL of a catalog has the keys that a property names."""
    server, noisy = remote
    table = Table.open(noisy.location.replace("noisy", "maps"))
    values = table.scan(columns=["m['k07']"]).to_arrow()["m['k07']"].to_numpy()
    server.taken()
    scan = table.scan(columns=["id", "m['k07']"], filter="m['k07'] > 0.5 AND m['k08'] < 0.5")
    expected = scan.to_arrow().to_pylist()
    asked = server.taken()
    assert sum(size for _, size in asked) < 0.5 * table.snapshot.totals.bytes
    tick = "`" if way is by_catalog else ""
    k07, k08 = (f"{tick}m['{key}']{tick}" for key in ("k07", "k08"))
    frame = way(spark, table, columns=["id", k07], filter=f"{k07} > 0.5 AND {k08} < 0.5")
    assert found(frame) == expected
    assert server.taken() == asked
    if way is by_catalog:
        sums = f"SELECT count({k08}), max({k07}) FROM remote.maps WHERE {k07} IS NOT NULL"
        plan = spark.sql(f"EXPLAIN {sums}").collect()[0][0]
        assert "aggregated in one task" in plan
        assert spark.sql(sums).collect()[0] == (len(values), values.max())
        assert sum(size for _, size in server.taken()) < 0.5 * table.snapshot.totals.bytes
        assert spark.table("remote.maps").columns == ["id", "m"]


@pytest.mark.parametrize("planned", [by_function, by_catalog])
def test_what_a_query_asks_for_later_is_pushed_down(spark, remote, planned):
    """Requests for data files are counted: with a limit one file, columns and rows that a query
    needs, and none for what metadata know. A task returns a sum, not rows."""
    server, table = remote
    server.taken()
    frame = planned(spark, table)
    assert len(frame.limit(5).select("id").collect()) == 5
    assert len({path for path, _ in server.taken()}) == 1
    aggregates = functions.count("*"), functions.max("id")
    assert frame.agg(*aggregates).collect() == [(3_000, 2_999)]
    assert frame.count() == 3_000
    assert server.taken() == []
    counted = []
    total = frame.agg(functions.sum("id"))
    assert tasks_started(spark, lambda: counted.extend(total.collect())) == 1
    assert counted == [(sum(range(3_000)),)]
    taken = server.taken()
    assert len({path for path, _ in taken}) == 3
    assert sum(size for _, size in taken) < 0.3 * table.snapshot.totals.bytes
    grouped = frame.where("id >= 2000").groupBy((frame["id"] % 2).alias("odd")).agg(*aggregates)
    assert sorted(grouped.collect()) == [(0, 500, 2_998), (1, 500, 2_999)]
    taken = server.taken()
    assert len({path for path, _ in taken}) == 1
    assert sum(size for _, size in taken) < 0.1 * table.snapshot.totals.bytes
