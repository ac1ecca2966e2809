"""A warehouse as a catalog of Spark SQL: what statements do, and what reads leave unread."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import socket
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

import spark_ext
from fermion_table import Table
from spark_ext.errors import UnsupportedBySpark
from spark_ext.session import settings
from spark_ext.versions import PARTIAL_INSERT, SPARK, SparkVersion
from tests.kit.spark.counting import destroyed_columns, files_away, tasks_started

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("fine", pa.timestamp("ns")),
        ("price", pa.decimal128(10, 2)),
        ("small", pa.uint8()),
        ("flag", pa.bool_()),
        ("place", pa.struct({"city": pa.string(), "zip": pa.int32()})),
        ("dotted.name", pa.int32()),
    ]
)


ZEROS = {22: 0.0, 23: -0.0}


def rows(start: int, stop: int) -> pa.Table:
    """Nulls, NaN, zeros of both signs and, of `fine`, nanoseconds that Spark cannot see."""
    epoch = datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    made = []
    for i in range(start, stop):
        moment = epoch + datetime.timedelta(hours=i)
        made.append(
            {
                "id": i,
                "name": None if i % 7 == 3 else f"n{i % 10}",
                "x": math.nan if i % 5 == 0 else None if i % 5 == 1 else ZEROS.get(i, i / 4),
                "day": moment.date(),
                "at": moment,
                "wall": moment.replace(tzinfo=None),
                "fine": 1_000_000 * i + 999,
                "price": Decimal(i) / 4,
                "small": i % 250,
                "flag": None if i % 4 == 0 else i % 4 == 1,
                "place": None if i % 9 == 0 else {"city": f"c{i % 3}", "zip": i},
                "dotted.name": i % 6,
            }
        )
    arrays = [pa.array([row[field.name] for row in made], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `lake`."""
    directory = tmp_path_factory.mktemp("warehouse")
    spark_ext.install_catalog(spark, "lake", directory)
    return directory


@pytest.fixture(scope="module")
def events(spark, warehouse):
    """Three appends of 20 rows as `lake.db.events`; the same rows in Parquet as view `plain`."""
    table = Table.create(warehouse / "db" / "events", SCHEMA)
    for start in (0, 20, 40):
        table.append(rows(start, start + 20))
    table.tags.create("first", version=1)
    plain = warehouse / "plain.parquet"
    unseen = rows(0, 60)
    place = unseen.schema.get_field_index("fine")
    coarse = unseen["fine"].cast(pa.timestamp("us"), safe=False)
    unseen = unseen.set_column(place, "fine", coarse)
    pq.write_table(unseen, plain)
    spark.read.parquet(str(plain)).createOrReplaceTempView("plain")
    # Spark's Parquet reader loses NaN where it pushes `= NaN` down.
    with settings(spark, {"spark.sql.parquet.filterPushdown": "false"}):
        yield table


def found(spark, query: str) -> list[tuple]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


CONDITIONS = [
    "id > 55 OR id = 3",
    "id BETWEEN 18 AND 22",
    "NOT (id < 58)",
    "58 <= id",
    "name = 'n4'",
    "name <> 'n4'",
    "NOT (name = 'n4')",
    "name <=> 'n4'",
    "NOT (name <=> 'n4')",
    "name <=> NULL",
    "name IS NULL AND id < 20",
    "name IN ('n1', 'n2', NULL)",
    "NOT (name IN ('n1', 'n2'))",
    "name LIKE 'n1%'",
    "name LIKE '%1'",
    "x > 12.5",
    "x >= 12.5",
    "x < 2",
    "NOT (x > 12.5)",
    "x = 'NaN'",
    "x > 'NaN' OR x <= 'NaN'",
    "x <> 12.5",
    "x IN (double('NaN'), 12.5)",
    "x NOT IN (double('NaN'), 12.5)",
    "x IN (0D, 2D, 12.5D)",
    "x NOT IN (-0D, 2D, 12.5D)",
    "x IN (-0D, 1D, 2D, 3D, 4D, 5D, 6D, 7D, 8D, 9D, 10D, 11D, 12D, 13D)",
    "x NOT IN (0D, 1D, 2D, 3D, 4D, 5D, 6D, 7D, 8D, 9D, 10D, 11D, 12D, 13D)",
    "day = DATE'2024-03-01'",
    "day >= DATE'2024-03-02' AND at < TIMESTAMP'2024-03-02 03:00:00Z'",
    "wall > TIMESTAMP_NTZ'2024-03-02 06:00:00'",
    "day < DATE'-0044-03-15' OR at > TIMESTAMP'9999-12-31 00:00:00Z'",
    "fine = TIMESTAMP_NTZ'1970-01-01 00:00:00.007'",
    "fine <= TIMESTAMP_NTZ'1970-01-01 00:00:00.007'",
    "price = 3.25",
    "price > 14.1",
    "small = 8",
    "flag",
    "NOT flag",
    "flag IS NULL",
    "place.city = 'c1' AND place.zip > 30",
    "place IS NULL",
    "place.city IS NULL",
    "`dotted.name` = 5",
    "length(name) = 2 AND id < 4",
    "false",
]


@pytest.fixture(scope="module")
def selected(spark, events):
    """Conditions, and what each selects from tables and Parquet: a scan each, all in one query."""

    def ids(source: str) -> list[list[int]]:
        scans = [
            f"SELECT {number} AS number, id FROM {source} WHERE {condition}"
            for number, condition in enumerate(CONDITIONS)
        ]
        found: list[list[int]] = [[] for _ in CONDITIONS]
        for row in spark.sql(" UNION ALL ".join(scans)).collect():
            found[row.number].append(row.id)
        return [sorted(chosen) for chosen in found]

    return list(zip(CONDITIONS, ids("lake.db.events"), ids("plain"), strict=True))


@pytest.mark.parametrize("number", range(len(CONDITIONS)), ids=CONDITIONS)
def test_a_condition_selects_the_rows_it_selects_from_parquet(selected, number):
    condition, ours, theirs = selected[number]
    assert ours == theirs, condition


def test_every_value_comes_back_as_from_parquet(spark, events):
    ours, theirs = (found(spark, f"SELECT * FROM {name}") for name in ("lake.db.events", "plain"))
    assert repr(ours) == repr(theirs)  # NaN is not equal to itself
    assert not spark.table("lake.db.events").schema["id"].nullable


def test_one_view_serves_queries_with_different_filters(spark, events):
    frame = spark.table("lake.db.events")
    frame.createOrReplaceTempView("shared")
    assert frame.where("id < 5").count() == 5
    assert frame.count() == 60
    assert spark.sql("SELECT count(*) FROM shared WHERE id >= 50").collect()[0][0] == 10
    assert spark.sql("SELECT count(id) FROM shared").collect()[0][0] == 60
    both = spark.sql(
        "SELECT count(*) FROM shared a JOIN shared b ON a.id = b.id WHERE a.id < 30 AND b.id > 10"
    )
    assert both.collect()[0][0] == 19


def test_columns_that_a_query_does_not_need_are_not_read(spark, events):
    """Their pages are destroyed, down to fields of structs: nobody misses them."""
    keep = [("id",), ("place", "zip")]
    with destroyed_columns(events, keep):
        query = "SELECT sum(place.zip) FROM lake.db.events WHERE id < 20"
        assert spark.sql(query).collect()[0][0] == sum(i for i in range(20) if i % 9)
        with pytest.raises(PySparkException):
            spark.sql("SELECT max(name) FROM lake.db.events").collect()


def test_files_that_a_filter_rules_out_are_not_read(spark, events):
    """They are taken away."""
    with files_away(events, "id >= 20"):
        assert spark.sql("SELECT max(id) FROM lake.db.events WHERE id < 20").collect()[0][0] == 19


def test_a_limit_reads_no_more_files_than_it_needs(spark, events):
    with files_away(events, "id >= 40"):
        assert len(spark.sql("SELECT id FROM lake.db.events LIMIT 30").collect()) == 30


def test_rows_are_counted_from_metadata(spark, events):
    """No file is there to be read; one task turns the count into Spark's row."""
    with files_away(events, "TRUE"):
        counted = []
        query = "SELECT count(*), count(1) FROM lake.db.events"
        started = tasks_started(spark, lambda: counted.extend(spark.sql(query).collect()))
    assert tuple(counted[0]) == (60, 60)
    assert started <= 1


def test_extremes_come_from_metadata(spark, events):
    """No file is there to be read."""
    query = (
        "SELECT min(id), max(id), count(*), max(day), min(at), max(wall), min(price), max(price),"
        " max(small), min(flag), max(flag), max(place.zip), min(`dotted.name`) FROM {}"
    )
    expected = found(spark, query.format("plain"))
    with files_away(events, "TRUE"):
        assert found(spark, query.format("lake.db.events")) == expected


def test_extremes_that_metadata_do_not_know_come_from_the_files(spark, warehouse, events):
    """Texts, NaN and nanoseconds are left to Spark; so are files that lost rows, and filters."""
    query = "SELECT min(name), max(name), max(x), min(x), min(fine), max(id), count(name) FROM {}"
    assert repr(found(spark, query.format("lake.db.events"))) == repr(
        found(spark, query.format("plain"))
    )
    query = "SELECT max(id), max(DISTINCT small), min(id + 1) FROM {} WHERE id < 30"
    assert found(spark, query.format("lake.db.events")) == found(spark, query.format("plain"))
    table = Table.create(warehouse / "shorter", SCHEMA)
    assert found(spark, "SELECT max(id), min(day), count(*) FROM lake.shorter") == [(None, None, 0)]
    table.append(rows(0, 9))
    table.delete("id = 8")
    assert found(spark, "SELECT max(id), count(*) FROM lake.shorter") == [(7, 8)]


def test_what_is_pushed_down_is_shown(spark, events):
    plan = spark.sql("EXPLAIN SELECT name FROM lake.db.events WHERE id >= 45").collect()[0][0]
    assert "snapshot 3, 1 of 3 files, filter id >= 45" in plan


def test_joins_are_chosen_from_the_tables_statistics(spark, events):
    plan = spark.sql(
        "EXPLAIN SELECT * FROM lake.db.events a JOIN range(1000000000) b ON a.id = b.id"
    ).collect()[0][0]
    assert "BroadcastHashJoin" in plan


def test_sql_travels_in_time(spark, events):
    def ids(version):
        return len(spark.sql(f"SELECT id FROM lake.db.events {version}").collect())

    assert ids("VERSION AS OF 2") == 40
    assert ids("VERSION AS OF 'first'") == 20
    assert ids("VERSION AS OF 'main~1'") == 40
    moment = datetime.datetime.fromtimestamp(events.snapshots()[2].time_ms / 1000, datetime.UTC)
    assert ids(f"TIMESTAMP AS OF '{moment.isoformat()}'") == 40
    with pytest.raises(PySparkException, match="99"):
        ids("VERSION AS OF 99")


def test_a_batch_and_its_columns_are_read(spark, warehouse):
    table = Table.create(warehouse / "batches", pa.schema([("n", pa.int64())]))
    for number in range(3):
        table.append_batch(number, pa.table({"n": [number, number * 10]}))
    assert found(spark, "SELECT * FROM lake.batches WITH ('batchId' = 2)") == [(2,), (20,)]
    assert found(spark, "SELECT n, index_in_batch FROM lake.batches WHERE batch_id = 1") == [
        (1, 0),
        (10, 1),
    ]
    assert spark.table("lake.batches").columns == ["n"]


def test_tables_are_made_written_and_dropped(spark, warehouse):
    spark.sql(
        "CREATE TABLE lake.made.t (id BIGINT NOT NULL COMMENT 'of it', kind STRING, at TIMESTAMP)"
        " PARTITIONED BY (kind, days(at), bucket(4, id)) TBLPROPERTIES ('owner.team' = 'us')"
    )
    table = Table.open(warehouse / "made" / "t")
    assert [each.name for each in table.schema.partition_by] == ["kind", "at_day", "id_bucket_4"]
    assert table.properties == {"owner.team": "us"}
    spark.sql(
        "INSERT INTO lake.made.t SELECT id, concat('k', id % 2), timestamp_seconds(id * 86400)"
        " FROM range(4)"
    )
    some = "(kind, id) VALUES ('k9', 9)"
    if not SPARK.has(PARTIAL_INSERT):
        some = "(kind, id, at) VALUES ('k9', 9, NULL)"
    spark.sql(f"INSERT INTO lake.made.t {some}")
    assert found(spark, "SELECT id, kind FROM lake.made.t WHERE kind <> 'k0'") == [
        (1, "k1"),
        (3, "k1"),
        (9, "k9"),
    ]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE TABLE lake.made.t (id INT)")
    spark.sql("CREATE TABLE IF NOT EXISTS lake.made.t (id INT)")
    spark.sql("CREATE TABLE lake.made.copy AS SELECT id, kind FROM lake.made.t WHERE id > 1")
    assert [row.tableName for row in spark.sql("SHOW TABLES IN lake.made").collect()] == [
        "copy",
        "t",
    ]
    spark.sql("CREATE OR REPLACE TABLE lake.made.copy AS SELECT 1 AS one")
    assert found(spark, "SELECT * FROM lake.made.copy") == [(1,)]
    spark.sql("DROP TABLE lake.made.copy")
    assert not (warehouse / "made" / "copy").exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.made.copy")
    spark.sql("DROP TABLE IF EXISTS lake.made.copy")


def test_a_failing_create_as_select_leaves_no_table(spark, warehouse):
    with pytest.raises(PySparkException, match="no good"):
        spark.sql("CREATE TABLE lake.broken AS SELECT raise_error('no good') AS a")
    assert not (warehouse / "broken").exists()


def test_data_frames_write_through_the_catalog(spark, warehouse):
    spark.range(5).writeTo("lake.frames").create()
    spark.range(5, 7).writeTo("lake.frames").append()
    spark.range(7, 8).write.mode("append").saveAsTable("lake.frames")
    spark.range(1).write.insertInto("lake.frames")
    assert [number for (number,) in found(spark, "SELECT id FROM lake.frames")] == [
        0, 0, 1, 2, 3, 4, 5, 6, 7,
    ]  # fmt: skip


def test_insert_overwrite_replaces_all_a_partition_or_a_filter(spark, warehouse):
    spark.sql("CREATE TABLE lake.over (id BIGINT, p STRING) PARTITIONED BY (p)")
    spark.sql("INSERT INTO lake.over VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql("INSERT OVERWRITE lake.over PARTITION (p = 'a') SELECT 10L")
    assert found(spark, "SELECT * FROM lake.over") == [(10, "a"), (2, "b"), (3, "c")]
    spark.sql("INSERT INTO lake.over REPLACE WHERE id < 5 VALUES (4, 'd')")
    assert found(spark, "SELECT * FROM lake.over") == [(10, "a"), (4, "d")]
    spark.sql("SELECT 5L id, 'd' p").writeTo("lake.over").overwritePartitions()
    assert found(spark, "SELECT * FROM lake.over") == [(10, "a"), (5, "d")]
    spark.sql("INSERT OVERWRITE lake.over VALUES (6, 'e')")
    assert found(spark, "SELECT * FROM lake.over") == [(6, "e")]
    spark.sql("TRUNCATE TABLE lake.over")
    assert found(spark, "SELECT * FROM lake.over") == []


def test_rows_are_deleted_by_conditions_that_mean_the_same_here(spark, warehouse, events):
    table = Table.create(warehouse / "gone", SCHEMA)
    table.append(rows(0, 30))
    spark.sql("DELETE FROM lake.gone WHERE id < 10 AND x > 1 OR name = 'n9'")
    condition = "id < 10 AND x > 1 OR name = 'n9'"
    left = f"SELECT id FROM plain WHERE id < 30 AND NOT coalesce({condition}, false)"
    assert found(spark, "SELECT id FROM lake.gone") == found(spark, left)
    spark.sql("DELETE FROM lake.gone WHERE length(name) = 2 AND id < 20")
    left += " AND NOT coalesce(length(name) = 2 AND id < 20, false)"
    assert found(spark, "SELECT id FROM lake.gone") == found(spark, left)
    spark.sql("DELETE FROM lake.gone")
    assert table.refresh().totals.files == 0


def test_alter_table_changes_columns_and_settings(spark, warehouse):
    spark.sql("CREATE TABLE lake.alter_it (a INT, b STRING, s STRUCT<x: INT>)")
    spark.sql("INSERT INTO lake.alter_it VALUES (1, 'one', named_struct('x', 5))")
    for change in (
        "ADD COLUMNS (c DOUBLE COMMENT 'later', s.y STRING)",
        "ADD COLUMN first_one INT FIRST",
        "RENAME COLUMN b TO text",
        "ALTER COLUMN a TYPE BIGINT",
        "ALTER COLUMN text COMMENT 'words'",
        "ALTER COLUMN c AFTER a",
        "DROP COLUMN IF EXISTS nothing",
        "DROP COLUMN s.x",
        "SET TBLPROPERTIES ('target_file_size' = '64MB')",
    ):
        spark.sql(f"ALTER TABLE lake.alter_it {change}")
    assert spark.table("lake.alter_it").schema.simpleString() == (
        "struct<first_one:int,a:bigint,c:double,text:string,s:struct<y:string>>"
    )
    assert found(spark, "SELECT a, text, s FROM lake.alter_it") == [(1, "one", (None,))]
    table = Table.open(warehouse / "alter_it")
    assert table.properties == {"target_file_size": "64MB"}
    spark.sql("ALTER TABLE lake.alter_it UNSET TBLPROPERTIES ('target_file_size')")
    table.refresh()
    assert table.properties == {}
    with pytest.raises(PySparkException, match="NOT_SUPPORTED_CHANGE_COLUMN"):
        spark.sql("ALTER TABLE lake.alter_it ALTER COLUMN a TYPE INT")


def test_names_do_not_lead_out_of_the_warehouse(spark, warehouse, tmp_path):
    outside = os.path.relpath(tmp_path / "t", warehouse)
    with pytest.raises(PySparkException, match="not a name for a directory"):
        spark.sql(f"CREATE TABLE lake.`{outside}` (a INT)")
    with pytest.raises(PySparkException, match="not a name for a directory"):
        spark.sql("SELECT * FROM lake.`..`.t")


def test_namespaces_are_directories(spark, warehouse):
    def namespaces(inside=""):
        return [row.namespace for row in spark.sql(f"SHOW NAMESPACES IN lake{inside}").collect()]

    spark.sql("CREATE NAMESPACE lake.space.inner")
    spark.sql("CREATE TABLE lake.space.t AS SELECT 1 AS a")
    spark.sql("CREATE TABLE lake.space.inner.u AS SELECT 2 AS a")
    assert "space" in namespaces()
    assert namespaces(".space") == ["space.inner"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN lake.space").collect()] == ["t"]
    described = spark.sql("DESCRIBE NAMESPACE lake.space").collect()
    assert str(warehouse / "space") in {row.info_value for row in described}
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        spark.sql("CREATE NAMESPACE lake.space")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.space")
    with pytest.raises(PySparkException, match=r"have no \['comment'\]"):
        spark.sql("CREATE NAMESPACE lake.other COMMENT 'words'")
    with pytest.raises(PySparkException, match="have no properties"):
        spark.sql("ALTER NAMESPACE lake.space SET PROPERTIES ('a' = 'b')")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql("SHOW NAMESPACES IN lake.nowhere")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        spark.sql("DROP NAMESPACE lake.space")
    spark.sql("DROP NAMESPACE lake.space CASCADE")
    assert not (warehouse / "space").exists()
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql("DROP NAMESPACE lake.space")


def test_only_the_jvm_can_call_back(spark, warehouse):
    """A stranger who connects is turned away before a call is looked at; the JVM goes on."""
    gateway = spark.sparkContext._gateway
    with socket.create_connection(("127.0.0.1", gateway._callback_server.port), 10) as stranger:
        stranger.sendall(b"c\np0\ntoString\ne\n")
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
    with socket.create_connection(("127.0.0.1", gateway._callback_server.port), 10) as stranger:
        stranger.sendall(b"A\nnot the secret\ne\n")
        assert not stranger.recv(100).startswith(b"!yv")
    spark_ext.install_catalog(spark, "again", warehouse)  # which keeps the secret
    assert spark.sql("SHOW NAMESPACES IN again").collect() is not None


def test_another_series_of_spark_is_pointed_to_the_other_doors(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("spark_ext.catalog.install.SPARK", SparkVersion("4.4.0"))
    said = r"made for Spark 4\.0, 4\.1, 4\.2, 4\.3, this is 4\.4\.0; .*read_table or format"
    with pytest.raises(UnsupportedBySpark, match=said):
        spark_ext.install_catalog(spark, "never", tmp_path)


def test_a_trial_that_fails_installs_nothing(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("spark_ext.catalog.translator.predicate_filter", lambda *_: 1 / 0)
    with pytest.raises(UnsupportedBySpark, match="does not work with this Spark"):
        spark_ext.install_catalog(spark, "never", tmp_path)
    monkeypatch.undo()
    with pytest.raises(PySparkException):
        spark.sql("SELECT * FROM never.t")


def test_a_partition_of_booleans_is_overwritten(spark, warehouse):
    """Spark makes other nodes of the literals TRUE and FALSE than of all others."""
    spark.sql("CREATE TABLE lake.flags (v INT, flag BOOLEAN) PARTITIONED BY (flag)")
    spark.sql("INSERT INTO lake.flags VALUES (1, true), (2, false), (3, NULL)")
    for value in ("true", "false", "NULL"):
        spark.sql(f"INSERT OVERWRITE lake.flags PARTITION (flag = {value}) VALUES (9)")
    found = spark.table("lake.flags").collect()
    assert sorted(map(repr, found)) == sorted(
        f"Row(v=9, flag={flag})" for flag in (True, False, None)
    )
