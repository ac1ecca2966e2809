"""Sessions that come from one with catalogs: those of `foreachBatch`, and `newSession()`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import spark_ext
from fermion_table import Table
from spark_ext.versions import OPTIONS_OF_TABLES, READ_LIMITS, SPARK
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
COLUMNS = "id BIGINT, n BIGINT"


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    """A session of its own: other tests have catalogs of the same names."""
    return spark.newSession()


def rows(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row.id, row.n) for row in spark.table(table).collect())


def sort_columns(path: Path) -> list[str]:
    schema = Table.open(path).schema
    return [schema.by_id[number].name for number in schema.sort_by]


def run(spark: SparkSession, source: Table, place: Path, function: Callable) -> None:
    stream = spark.readStream.format("fermion")
    if SPARK.has(READ_LIMITS):
        stream = stream.option("maxFilesPerTrigger", 1)
    writer = stream.load(source.location).writeStream.foreachBatch(function)
    writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
    assert writer.start().awaitTermination(300)


@pytest.mark.long
@needs(OPTIONS_OF_TABLES)
def test_foreach_batch_upserts_once_also_if_a_stream_ends_between_its_commits(
    spark: SparkSession, tmp_path: Path
):
    """Each way to write, with the batch's number as identifier. The first run dies when the first
    micro-batch is committed in all tables, but not in the checkpoint: the next one repeats it. Each
    merge adds, so that nothing may come twice or be missing.
    """
    spark_ext.install_catalog(spark, "fermion", tmp_path / "lake")
    names = ["merged", "merged_by_frame", "updated", "appended"]
    for name in names:
        spark.sql(f"CREATE TABLE fermion.db.{name} ({COLUMNS})")
    keyed = f"({COLUMNS}) TBLPROPERTIES ('primary_key' = 'id')"
    for name in ("upserted", "merged_by_key"):
        spark.sql(f"CREATE TABLE fermion.db.{name} {keyed}")
    spark.sql("INSERT INTO fermion.db.updated VALUES (0, 0)")
    source = Table.create(tmp_path / "source", SCHEMA)
    parts = [[(1, 10), (2, 20)], [(2, 5), (3, 30)]]
    for part in parts:
        source.append(pa.Table.from_pylist([{"id": k, "n": n} for k, n in part], SCHEMA))
    run_batches, dies_in = [], 0

    def upsert(df: DataFrame, batch_id: int) -> None:
        session, lake = df.sparkSession, tmp_path / "lake" / "db"
        identity = {"commit_user": "stream", "commit_identifier": batch_id}
        given = f"WITH ('commitUser' = 'stream', 'commitIdentifier' = '{batch_id}')"
        run_batches.append(batch_id)
        df.createOrReplaceTempView("batch")
        for name in ("merged", "merged_by_key"):
            session.sql(
                f"MERGE INTO fermion.db.{name} AS t {given} USING batch AS s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT *"
            )
        session.sql(f"UPDATE fermion.db.updated {given} SET n = n + (SELECT count(*) FROM batch)")
        writer = df.writeTo("fermion.db.appended").option("commitUser", "stream")
        writer.option("commitIdentifier", batch_id).append()
        merge = spark_ext.merge(session, lake / "merged_by_frame", df, ["id"], **identity)
        merge = merge.when_matched_update({"n": "target.n + source.n"})
        merge.when_not_matched_insert().execute()
        spark_ext.upsert(df, lake / "upserted", **identity)
        if batch_id == dies_in:
            raise RuntimeError("the driver dies")

    with pytest.raises(StreamingQueryException, match="the driver dies"):
        run(spark, source, tmp_path / "checkpoint", upsert)
    dies_in = None
    run(spark, source, tmp_path / "checkpoint", upsert)
    assert run_batches == [0, 0, 1]
    sums, added = [(1, 10), (2, 25), (3, 30)], sorted(row for part in parts for row in part)
    for name in ("merged", "merged_by_key", "merged_by_frame"):
        assert rows(spark, f"fermion.db.{name}") == sums, name
    assert rows(spark, "fermion.db.appended") == added
    assert rows(spark, "fermion.db.upserted") == [(1, 10), (2, 5), (3, 30)]
    assert rows(spark, "fermion.db.updated") == [(0, 4)]


@pytest.mark.long
@needs(READ_LIMITS)
def test_a_merge_of_a_frame_finds_the_catalog_in_foreach_batch(spark: SparkSession, tmp_path: Path):
    """`mergeInto`, a procedure, and a catalog that is installed while the stream runs."""
    spark_ext.install_catalog(spark, "lake", tmp_path / "lake")
    spark.sql(f"CREATE TABLE lake.t ({COLUMNS})")
    source = Table.create(tmp_path / "source", SCHEMA)
    source.append({"id": [1, 2], "n": [1, 2]})
    source.append({"id": [2, 3], "n": [5, 3]})
    files = []

    def merge(df: DataFrame, batch_id: int) -> None:
        found = df.alias("s").mergeInto("lake.t", col("lake.t.id") == col("s.id"))
        found.whenMatched().updateAll().whenNotMatched().insertAll().merge()
        files.append(df.sparkSession.sql("CALL lake.system.compact('t')").first().files_before)
        if batch_id == 0:
            spark_ext.install_catalog(spark, "late", tmp_path / "late")
        else:
            df.writeTo("late.t").create()

    run(spark, source, tmp_path / "checkpoint", merge)
    assert rows(spark, "lake.t") == [(1, 1), (2, 5), (3, 3)]
    assert rows(spark, "late.t") == [(2, 5), (3, 3)]
    assert len(files) == 2


@pytest.mark.long
def test_a_session_has_the_catalogs_of_the_one_it_comes_from_and_no_others(
    spark: SparkSession, tmp_path: Path
):
    """Two sessions with catalogs of one name: each statement goes where its session says."""
    one, other = spark.newSession(), spark.newSession()
    for number, session in enumerate((one, other)):
        spark_ext.install_catalog(session, "lake", tmp_path / str(number))
        session.sql(f"CREATE TABLE lake.t ({COLUMNS})")
        session.sql(f"INSERT INTO lake.t VALUES ({number}, {number})")
    spark_ext.install_catalog(other, "more", tmp_path / "more")
    assert rows(one.newSession(), "lake.t") == [(0, 0)]
    derived = other.newSession()
    derived.sql("UPDATE lake.t SET n = n + 1 WHERE id % 2 = 1")
    assert rows(other, "lake.t") == [(1, 2)]
    derived.range(3).writeTo("more.ids").create()
    assert other.table("more.ids").count() == 3
    for session in (spark, one, one.newSession()):
        with pytest.raises(AnalysisException):
            session.table("more.ids")
    spark_ext.install_catalog(derived, "lake", tmp_path / "0")
    assert rows(derived, "lake.t") == [(0, 0)]
    assert rows(derived.newSession(), "lake.t") == [(0, 0)]
    assert rows(other, "lake.t") == [(1, 2)]

    source = Table.create(tmp_path / "source", SCHEMA)
    source.append({"id": [7], "n": [7]})
    seen = []

    def merge(df: DataFrame, batch_id: int) -> None:
        df.writeTo("lake.t").append()
        spark_ext.install_catalog(df.sparkSession, "lake", tmp_path / "0")  # its own from now on
        seen.append(rows(df.sparkSession, "lake.t"))

    run(other, source, tmp_path / "checkpoint", merge)
    assert rows(other, "lake.t") == [(1, 2), (7, 7)]
    source.append({"id": [8], "n": [8]})
    run(other, source, tmp_path / "checkpoint", merge)
    assert rows(other, "lake.t") == [(1, 2), (7, 7), (8, 8)]
    assert seen == [[(0, 0)]] * 2


def test_a_statement_follows_the_settings_of_the_session_that_runs_it(
    spark: SparkSession, tmp_path: Path
):
    """Not of the one in which the catalog was installed; temporary views are its own, too."""
    spark_ext.install_catalog(spark, "lake", tmp_path)
    derived = spark.newSession()
    derived.conf.set("spark.sql.caseSensitive", "true")
    derived.sql("CREATE TABLE lake.cases (`a` INT, `A` INT) TBLPROPERTIES ('sort_by' = 'A')")
    assert sort_columns(tmp_path / "cases") == ["A"]
    spark.sql("CREATE TABLE lake.plain (a INT) TBLPROPERTIES ('sort_by' = 'A')")
    assert sort_columns(tmp_path / "plain") == ["a"]
    derived.range(3).createOrReplaceTempView("chosen")
    derived.sql("INSERT INTO lake.plain VALUES (1), (2), (5)")
    derived.sql("UPDATE lake.plain SET a = a * 10 WHERE a IN (SELECT id FROM chosen)")
    assert sorted(row.a for row in derived.table("lake.plain").collect()) == [5, 10, 20]
    derived.sql("CALL lake.system.compact('plain')")
    derived.sql("USE lake")
    assert derived.sql("CALL lake.system.create_tag('plain', 'v1')").count() == 1
    derived.sql("ALTER TABLE plain RENAME TO lake.renamed")
    assert derived.table("renamed").count() == 3
    assert derived.table("lake.renamed.tags").count() == 1
