"""Tables as data frames: exactly the columns, rows and version asked for."""

from __future__ import annotations

import datetime
import os
import time

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

import fermion
import spark_ext
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, TableNotFound, VersionNotFound
from spark_ext.catalog import frames, scans
from spark_ext.catalog.frames import NAMED_COLUMNS_MAX
from spark_ext.catalog.scans import NESTED_PRUNING
from spark_ext.catalog.translator import FEW_COLUMNS_MAX
from spark_ext.errors import UnsupportedBySpark
from spark_ext.reading.table import frame_of
from spark_ext.session import settings
from spark_ext.versions import BARE_ROWS, SPARK, SparkVersion
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("place", pa.struct({"city": pa.string(), "zip": pa.uint32()})),
        pa.field("tags", pa.list_(pa.string_view())),
    ]
)


def rows(start: int, stop: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": i, "place": {"city": f"c{i % 3}", "zip": i}, "tags": [str(i)] * (i % 3)}
            for i in range(start, stop)
        ],
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A table of three appends (ids 0 to 29) and then a new column."""
    made = tmp_path_factory.mktemp("read") / "table"
    table = Table.create(made, SCHEMA)
    for start in (0, 10, 20):
        table.append(rows(start, start + 10))
    table.add_columns({"score": pa.float32()})
    return made


def ids(frame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def plan(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def test_every_row_and_value_arrives(spark, path):
    frame = spark_ext.read_table(spark, path)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,place:struct<city:string,zip:bigint>,tags:array<string>,score:float>"
    )
    assert not frame.schema["id"].nullable
    found = sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["id"])
    assert found == [{**row, "score": None} for row in rows(0, 30).to_pylist()]


def test_columns_are_given_in_the_order_asked_down_into_structs(spark, path):
    frame = spark_ext.read_table(spark, path, columns=["place.zip", "id"])
    assert frame.schema.simpleString() == "struct<place:struct<zip:bigint>,id:bigint>"
    assert frame.where("id = 7").collect()[0].place.zip == 7


@needs(BARE_ROWS)
def test_no_columns_still_have_rows(spark, path):
    frame = spark_ext.read_table(spark, path, columns=[], filter="id >= 25")
    assert frame.columns == []
    assert frame.count() == 5


@needs(BARE_ROWS)
def test_rows_alone_are_counted_without_a_task_of_python(spark, path, tmp_path):
    """Spark's plan of such a frame has no Python in it; rows that are gone do not count."""
    frame = spark_ext.read_table(spark, path, columns=[])
    assert (frame.columns, frame.count(), len(frame.collect())) == ([], 30, 30)
    assert "MapInArrow" not in plan(frame)
    filtered = spark_ext.read_table(spark, path, columns=[], filter="id > 3")
    assert "MapInArrow" in plan(filtered)
    table = Table.create(tmp_path / "table", SCHEMA)
    assert spark_ext.read_table(spark, tmp_path / "table", columns=[]).count() == 0
    table.append(rows(0, 10))
    table.delete("id IN (3, 4)")
    assert spark_ext.read_table(spark, tmp_path / "table", columns=[]).count() == 8


def test_what_one_task_reads_is_not_shuffled(spark, path, tmp_path):
    """Spark's plan of a sum has no exchange, and the sum is right; of no rows at all too."""
    total = spark_ext.read_table(spark, path, columns=["id"], snapshot_id=1).groupBy().sum()
    assert "Exchange" not in plan(total)
    assert total.collect()[0][0] == sum(range(10))
    Table.create(tmp_path / "table", SCHEMA)
    total = spark_ext.read_table(spark, tmp_path / "table", columns=["id"]).groupBy().sum()
    assert total.collect()[0][0] is None


def test_a_filter_is_exact_and_files_it_rules_out_are_not_read(spark, path):
    """Files that the filter rules out are taken away: nobody misses them."""
    frame = spark_ext.read_table(spark, path, filter="id BETWEEN 12 AND 15 OR id = 18")
    table = Table.open(path)
    wanted = {split.location for split in table.scan(filter="id BETWEEN 10 AND 19").plan().splits}
    others = {split.location for split in table.scan().plan().splits} - wanted
    assert (len(wanted), len(others)) == (1, 2)
    for name in others:
        os.rename(name, name + ".away")
    try:
        assert ids(frame) == [12, 13, 14, 15, 18]
    finally:
        for name in others:
            os.rename(name + ".away", name)


def test_filters_of_every_form_give_the_same_rows(spark, path):

    for form in (
        "id > 27",
        fermion.col("id") > 27,
        [("id", ">", 27)],
        pa.compute.field("id") > 27,
    ):
        assert ids(spark_ext.read_table(spark, path, filter=form)) == [28, 29]


def test_old_snapshots_are_read_under_their_own_schema(spark, path):
    frame = spark_ext.read_table(spark, path, snapshot_id=2)
    assert "score" not in frame.columns
    assert ids(frame) == list(range(20))


def test_a_tag_names_a_snapshot(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 2))
    table.tags.create("first")
    table.append(rows(2, 4))
    assert ids(spark_ext.read_table(spark, tmp_path / "t", tag="first")) == [0, 1]
    loaded = spark.read.format("fermion").option("tag", "first").load(str(tmp_path / "t"))
    assert ids(loaded) == [0, 1]
    with pytest.raises(InvalidArgumentError, match="expected one of them"):
        spark_ext.read_table(spark, tmp_path / "t", tag="first", snapshot_id=1)


def test_a_frame_stays_at_its_snapshot(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 3))
    frame = spark_ext.read_table(spark, tmp_path / "t", columns=["id"])
    before = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    table.append(rows(3, 5))
    assert ids(frame) == [0, 1, 2]
    assert ids(spark_ext.read_table(spark, tmp_path / "t", as_of=before)) == [0, 1, 2]
    assert ids(spark_ext.read_table(spark, tmp_path / "t")) == [0, 1, 2, 3, 4]


def test_a_table_without_rows_has_none(spark, tmp_path):
    Table.create(tmp_path / "t", SCHEMA)
    frame = spark_ext.read_table(spark, tmp_path / "t")
    assert frame.count() == 0
    assert frame.columns == SCHEMA.names


def test_what_does_not_exist_is_said_before_any_task(spark, path, tmp_path):
    with pytest.raises(TableNotFound):
        spark_ext.read_table(spark, tmp_path / "nothing")
    with pytest.raises(VersionNotFound):
        spark_ext.read_table(spark, path, snapshot_id=99)
    with pytest.raises(ColumnNotFoundError, match="closest matches: 'place'"):
        spark_ext.read_table(spark, path, columns=["plase"])


def test_a_column_that_spark_cannot_have_is_named_and_can_be_left_out(spark, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("noon", pa.time32("s"))])
    Table.create(tmp_path / "t", schema).append(pa.table({"id": [1], "noon": [43200]}, schema))
    with pytest.raises(UnsupportedBySpark, match="column 'noon'"):
        spark_ext.read_table(spark, tmp_path / "t")
    assert ids(spark_ext.read_table(spark, tmp_path / "t", columns=["id"])) == [1]


def test_a_table_is_never_broadcast_by_mistake(spark, path):
    """Spark must not take the size of the splits for the size of the table: it knows how large the
    table is, or nothing."""
    known = spark_ext.read_table(spark, path, columns=["id"])
    alone = frame_of(spark, Table.open(path).scan(columns=["id"]))
    sizes = [
        frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
        for frame in (known, alone)
    ]
    assert sizes[0] == 30 * 8
    assert sizes[1] > 2**40


def test_columns_that_a_caller_names_by_the_thousand_are_read_by_tasks_alone(spark, tmp_path):
    """Spark's planning of them all would take longer than reading them."""
    names = [f"c{number}" for number in range(NAMED_COLUMNS_MAX + 1)]
    table = Table.create(tmp_path / "t", pa.schema([(name, pa.int8()) for name in names]))
    table.append({name: [3] for name in names})
    named = spark_ext.read_table(spark, tmp_path / "t", columns=names)
    assert "MapInArrow" in plan(named)
    assert named.collect() == [tuple([3] * len(names))]
    fewer = spark_ext.read_table(spark, tmp_path / "t", columns=names[1:])
    assert "MapInArrow" not in plan(fewer.select("c1"))


def test_spark_compares_whole_columns_of_wide_tables_and_has_its_setting_again(
    spark, tmp_path, monkeypatch
):
    """For columns and for aggregates; not where columns have fields, or are few."""
    held = []

    def spied(of, values):
        held.append(values)
        return settings(of, values)

    monkeypatch.setattr(scans, "settings", spied)
    for number, kind in enumerate((pa.int8(), pa.list_(pa.int8()))):
        names = [f"c{each}" for each in range(FEW_COLUMNS_MAX + 1)]
        schema = pa.schema([pa.field("c0", kind), *((name, pa.int8()) for name in names[1:])])
        Table.create(tmp_path / str(number), schema)
        frame = spark_ext.read_table(spark, tmp_path / str(number))
        assert frame.select("c1").collect() == []
        assert frame.groupBy().max("c2").collect() == [(None,)]
        assert spark.conf.get(NESTED_PRUNING) == "true"
        assert all(values == {NESTED_PRUNING: "false"} for values in held)
        assert bool(held) != number
        held.clear()


@pytest.mark.skipif(SPARK.series < (4, 1), reason="Spark 4.0 looks for formats to register one")
def test_the_first_query_of_a_session_does_not_look_for_the_format(spark, path):
    """Spark's list of formats that it finds by itself, by a process of Python, is not made."""
    session = SparkSession(spark.sparkContext, spark._jsparkSession.newSession())  # no catalogs
    assert spark_ext.read_table(session, path, columns=["id"]).where("id > 27").count() == 2
    manager = session._jsparkSession.sessionState().dataSourceManager()
    field = manager.getClass().getDeclaredField("bitmap$0")
    field.setAccessible(True)
    assert not field.get(manager)


def test_a_spark_that_cannot_plan_reads_by_tasks_alone(spark, path, monkeypatch):
    """A version that nobody has tried, and one whose JVM cannot call this process."""
    for name, broken in (("SPARK", SparkVersion("9.9.9")), ("listen", None)):
        with monkeypatch.context() as changed:
            changed.setattr(frames, name, broken)
            frames._planning_jvm.cache_clear()
            frame = spark_ext.read_table(spark, path, filter="id > 27")
            assert "MapInArrow" in plan(frame)
            assert ids(frame) == [28, 29]
    frames._planning_jvm.cache_clear()


def test_a_view_answers_sql(spark, path):
    spark_ext.read_table(spark, path, columns=["id", "place"]).createOrReplaceTempView("places")
    found = spark.sql("select place.city, count(*) n from places group by 1 order by 1").collect()
    assert [tuple(row) for row in found] == [("c0", 10), ("c1", 10), ("c2", 10)]


def test_appending_what_was_read_doubles_the_table(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 10))
    spark_ext.append(spark_ext.read_table(spark, tmp_path / "t"), tmp_path / "t")
    table.refresh()
    found = table.scan().to_arrow()
    assert found.schema.equals(SCHEMA)
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        row for row in rows(0, 10).to_pylist() for _ in range(2)
    ]


def test_many_small_files_share_few_tasks(spark, tmp_path):
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    for number in range(12):
        table.append(pa.table({"id": [number]}))
    frame = spark_ext.read_table(spark, tmp_path / "t")
    assert frame.rdd.getNumPartitions() <= 4
    assert frame.agg(functions.sum("id")).collect()[0][0] == 66


def test_a_big_file_is_read_by_several_tasks(spark, tmp_path, monkeypatch):
    """Each reads a range of rows: filters and deleted rows are as ever."""
    monkeypatch.setattr("fermion_table.planning.split.PIECE_ROWS", 100)
    monkeypatch.setattr("fermion_table.planning.split.OPEN_COST_BYTES", 0)
    monkeypatch.setattr("fermion_table.planning.split.OPEN_COST_BYTES", 0)
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 2_000))
    table.delete("id BETWEEN 490 AND 509")
    frame = spark_ext.read_table(spark, tmp_path / "t", columns=["id"])
    assert frame.rdd.getNumPartitions() == 2
    assert ids(frame) == [i for i in range(2_000) if not 490 <= i <= 509]
    chosen = spark_ext.read_table(spark, tmp_path / "t", filter="id > 480 AND place.city = 'c1'")
    assert ids(chosen) == [i for i in range(481, 2_000) if i % 3 == 1 and not 490 <= i <= 509]
