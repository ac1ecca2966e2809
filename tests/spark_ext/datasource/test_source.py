"""format("fermion"): Spark's own readers, writers and SQL on tables."""

from __future__ import annotations

import datetime
import json
import threading
import time

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.datasource import DataSourceReader

import spark_ext
from fermion_table import Table
from spark_ext.datasource.batch import FermionReader
from spark_ext.versions import BARE_ROWS
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.uint32(), nullable=False),
        pa.field("place", pa.struct({"city": pa.string(), "zip": pa.string()})),
        pa.field("comma, and.dot", pa.int8()),
    ]
)


def rows(start: int, stop: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": i, "place": {"city": f"c{i % 3}", "zip": str(i)}, "comma, and.dot": i % 5}
            for i in range(start, stop)
        ],
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A table of three appends, ids 0 to 29."""
    made = tmp_path_factory.mktemp("source") / "table"
    table = Table.create(made, SCHEMA)
    for start in (0, 10, 20):
        table.append(rows(start, start + 10))
    return str(made)


def ids(frame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@needs(BARE_ROWS)
def test_one_task_counts_rows_alone(spark, path):
    frame = spark.read.format("fermion").option("columns", "[]").load(path)
    assert (frame.columns, frame.rdd.getNumPartitions(), frame.count()) == ([], 1, 30)


def test_spark_finds_the_format_without_being_told(spark, path):
    """Nobody called `register` before: the module `pyspark_fermion` is enough."""
    frame = spark.read.format("fermion").load(path)
    found = sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["id"])
    assert found == rows(0, 30).to_pylist()
    assert not frame.schema["id"].nullable


def test_registering_by_hand_works_too(spark, path):
    spark_ext.register(spark)
    assert spark.read.format("fermion").load(path).count() == 30


def test_options_choose_columns_rows_and_version(spark, path):
    def load(**options):
        return spark.read.format("fermion").options(**options).load(path)

    assert load(columns="id").columns == ["id"]
    assert load(columns='["comma, and.dot", "place.zip"]').columns == ["comma, and.dot", "place"]
    assert ids(load(filter="id >= 12 AND place.city = 'c0'", columns="id")) == [
        12,
        15,
        18,
        21,
        24,
        27,
    ]
    assert load(snapshotId=2).count() == 20
    first = Table.open(path).snapshots()[1].time_ms / 1000
    moment = datetime.datetime.fromtimestamp(first, datetime.UTC).isoformat()
    assert load(asOf=moment).count() == 10


def test_a_schema_of_the_users_own_chooses_columns_and_fields(spark, path):
    schema = "place struct<zip: string>, id bigint"
    frame = spark.read.schema(schema).format("fermion").load(path)
    assert frame.columns == ["place", "id"]
    assert sorted(tuple(row) for row in frame.where("id < 2").collect()) == [
        (("0",), 0),
        (("1",), 1),
    ]


def test_an_option_that_does_not_exist_is_refused(spark, path):
    with pytest.raises(PySparkException, match="did you mean 'snapshotId'"):
        spark.read.format("fermion").option("snapshot-id", 1).load(path)


def test_a_filter_of_one_query_does_not_leak_into_another(spark, path):
    """What Spark's filter pushdown gets wrong, and why the reader does not take part in it."""
    frame = spark.read.format("fermion").option("columns", "id").load(path)
    assert frame.where("id < 5").count() == 5
    assert frame.count() == 30
    assert frame.where("id >= 25").count() == 5
    readers = (FermionReader, DataSourceReader)
    own, inherited = (getattr(reader, "pushFilters", None) for reader in readers)  # none in 4.0
    assert own is inherited


def test_the_snapshot_is_fixed_when_the_frame_is_made(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 3))
    frame = spark.read.format("fermion").load(str(tmp_path / "t"))
    table.append(rows(3, 5))
    assert frame.count() == 3


def test_sql_views_read_and_insert(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 4))
    spark.sql(
        f"create or replace temporary view places using fermion options (path '{tmp_path / 't'}')"
    )
    found = spark.sql("select place.city, count(*) n from places where id > 0 group by 1").collect()
    assert sorted(tuple(row) for row in found) == [("c0", 1), ("c1", 1), ("c2", 1)]
    spark.sql("insert into places select 9, named_struct('city', 'x', 'zip', 'y'), 1")
    assert sorted(table.refresh() and table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 9]


def test_writing_appends_once(spark, tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    frame = spark.range(0, 100, numPartitions=3).select(functions.col("id"))
    writer = frame.write.format("fermion").mode("append")
    writer.option("commitUser", "w").option("commitIdentifier", "1").save(str(tmp_path / "t"))
    writer.option("commitUser", "w").option("commitIdentifier", "1").save(str(tmp_path / "t"))
    table.refresh()
    assert (table.snapshot.id, table.snapshot.totals.rows, table.snapshot.totals.files) == (
        1,
        100,
        3,
    )
    assert len(list((tmp_path / "t" / "data").glob("*"))) == 3


def test_another_thread_writes_once_it_has_registered_the_format(spark, tmp_path):
    """Spark looks for the format in the thread's active session, and new threads have none."""
    table = Table.create(tmp_path / "t", SCHEMA)
    frame = spark.range(3)
    said = []

    def write() -> None:
        for prepare in (lambda: None, lambda: spark_ext.register(spark)):
            prepare()
            try:
                frame.write.format("fermion").mode("append").save(str(tmp_path / "t"))
            except Exception as error:  # noqa: BLE001 - py4j's own
                said.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert len(said) == 1
    assert "DATA_SOURCE_NOT_FOUND" in said[0]
    assert table.refresh().totals.rows == 3


def test_a_failed_write_leaves_nothing_visible(spark, tmp_path):
    """Where the driver has not heard of the finished task yet, that task's file is left over."""
    table = Table.create(tmp_path / "t", SCHEMA)

    made = tmp_path / "t" / "data"

    @functions.udf("long")
    def check(number):
        if number == 39_999:
            while not list(made.glob("*.fermion")):
                time.sleep(0.05)
            time.sleep(1)  # the news of the finished task reach the driver
            raise RuntimeError("a row that cannot be made")
        return number

    frame = spark.range(0, 40_000, numPartitions=2).select(check("id").alias("id"))
    with pytest.raises(PySparkException, match="cannot be made"):
        frame.write.format("fermion").mode("append").save(str(tmp_path / "t"))
    assert table.refresh().id == 0
    assert table.scan().count() == 0
    assert len(list(made.glob("*"))) <= 1


def test_what_cannot_be_written_is_refused_before_any_task(spark, tmp_path):
    Table.create(tmp_path / "t", SCHEMA)
    frame = spark.range(1)
    with pytest.raises(PySparkException, match=r"\+ other: string: not in the table"):
        frame.selectExpr("id", "'x' other").write.format("fermion").mode("append").save(
            str(tmp_path / "t")
        )


def test_storage_options_reach_the_storage_and_stay_secret(spark, path):
    options = json.dumps({"secret": "hunter2"})
    frame = spark.read.format("fermion").option("storageOptions", options).load(path)
    assert frame.count() == 30
    assert "hunter2" not in frame._jdf.queryExecution().toString()
