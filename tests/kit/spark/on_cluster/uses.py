"""What tasks do, on executors that share nothing but the storage."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

import spark_ext
from fermion_table import Table

ROWS = 4_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])


def frame(spark: SparkSession, start: int = 0, stop: int = ROWS) -> DataFrame:
    """Numbers in four tasks, and each number modulo eight."""
    ids = spark.range(start, stop, numPartitions=4)
    return ids.select("id", (functions.col("id") % 8).alias("part"))


def ids(table: Table | DataFrame) -> list[int]:
    """The numbers of a table or a frame, sorted."""
    if isinstance(table, Table):
        table.refresh()
        return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    return sorted(row.id for row in table.select("id").collect())


def expect(found: object, expected: object) -> None:
    """Compare; both are in the message."""
    assert found == expected, f"found {str(found)[:300]}, expected {str(expected)[:300]}"


def keyed(path: str, **properties: str) -> Table:
    """A primary-key table of eight buckets."""
    settings = {"bucket": "8", **properties}
    return Table.create(path, SCHEMA, primary_key=["id"], properties=settings)


def executors_are_apart(spark: SparkSession) -> None:
    """Two JVMs of their own, in folders of their own."""

    def whereabouts(_: int) -> tuple[int, str, str]:
        return os.getppid(), str(Path.cwd()), os.environ["TMPDIR"]

    found = set(spark.sparkContext.parallelize(range(40), 40).map(whereabouts).collect())
    expect(len({daemon for daemon, _, _ in found}), 2)
    expect(len({place for _, place, _ in found}), 2)
    assert str(Path.cwd()) not in {place for _, place, _ in found}
    assert os.environ.get("TMPDIR") not in {temporary for _, _, temporary in found}


def append_and_read(spark: SparkSession) -> None:
    """Into partitions, in the sort order, as batches, with a new column; then parts of it."""
    Table.create("appended", SCHEMA, partition_by=["part"], sort_by=["id"])
    spark_ext.append(frame(spark, 0, 2_000), "appended")
    wide = frame(spark, 2_000, ROWS).withColumn("text", functions.col("id").cast("string"))
    spark_ext.append(wide, "appended", schema_mode="merge")
    expect(ids(spark_ext.read_table(spark, "appended")), list(range(ROWS)))
    some = spark_ext.read_table(spark, "appended", columns=["id"], filter="id >= 10 AND part = 3")
    expect(ids(some), list(range(11, ROWS, 8)))
    expect(spark_ext.read_table(spark, "appended", columns=[]).count(), ROWS)
    Table.create("batches", SCHEMA)
    spark_ext.append(frame(spark), "batches", batch_id_column="part")
    expect(ids(spark_ext.read_table(spark, "batches", batch_id=2)), list(range(2, ROWS, 8)))


def overwrite(spark: SparkSession) -> None:
    """All rows, those of a filter, those of partitions; the new rows are read from the table."""
    spark_ext.write(frame(spark), "overwritten", partition_by=["part"])
    some = spark_ext.read_table(spark, "overwritten", filter="id < 100")
    spark_ext.overwrite(some, "overwritten", filter="part = 1")
    kept = [n for n in range(ROWS) if n % 8 != 1] + list(range(100))
    expect(ids(Table.open("overwritten")), sorted(kept))
    spark_ext.overwrite(frame(spark, 0, 8), "overwritten", dynamic=True)
    expect(ids(Table.open("overwritten")), list(range(8)))
    spark_ext.overwrite(frame(spark, 0, 5), "overwritten")
    expect(ids(Table.open("overwritten")), list(range(5)))


def upsert_and_compact(spark: SparkSession) -> None:
    """Rows with change types; read before and after the trees are merged, and as changes."""
    table = keyed("upserted")
    spark_ext.upsert(frame(spark), "upserted")
    kind = functions.when(functions.col("id") < 100, "delete").otherwise("insert")
    changes = frame(spark, 0, 2_000).withColumn("part", functions.lit(9))
    spark_ext.upsert(changes.withColumn("op", kind), "upserted", change_type="op")
    rows = {n: 9 if n < 2_000 else n % 8 for n in range(100, ROWS)}
    for full in (False, True):
        spark_ext.compact(spark, "upserted", full=full)
        found = spark_ext.read_table(spark, "upserted").collect()
        expect({row.id: row.part for row in found}, rows)
    expect(table.refresh().totals.files, 8)
    changes = spark_ext.read_changes(spark, "upserted", 1, 2).groupBy("_change_type").count()
    counts = {"delete": 100, "update_preimage": 1_900, "update_postimage": 1_900}
    expect({row._change_type: row["count"] for row in changes.collect()}, counts)
    few = spark_ext.read_table(spark, "upserted", filter="part = 9 AND id < 110")
    expect(ids(few), list(range(100, 110)))


def compact(spark: SparkSession) -> None:
    """Small files, of which one has deleted rows, become one for each partition."""
    table = Table.create("compacted", SCHEMA, partition_by=["part"])
    for start in range(0, ROWS, 1_000):
        spark_ext.append(frame(spark, start, start + 1_000), "compacted")
    table.refresh()
    table.delete("id = 7")
    result = spark_ext.compact(spark, "compacted", max_groups_per_commit=2)
    expect((result.groups, len(result.snapshots)), (8, 4))
    expect(ids(table), [n for n in range(ROWS) if n != 7])
    expect(table.snapshot.totals.files, 8)


def catalog(spark: SparkSession) -> None:
    """SQL: tables made and written, filters, aggregates, a join, rows deleted."""
    spark_ext.install_catalog(spark, "lake", "warehouse")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql("CREATE TABLE lake.db.t (id BIGINT, part BIGINT) PARTITIONED BY (part)")
    spark.sql(f"INSERT INTO lake.db.t SELECT id, id % 4 FROM range({ROWS})")
    spark.sql("CREATE TABLE lake.db.copy AS SELECT * FROM lake.db.t WHERE id < 100")
    query = "SELECT part, count(*), sum(id) FROM lake.db.t WHERE id >= 8 GROUP BY part ORDER BY 1"
    expected = [(p, ROWS // 4 - 2, sum(range(8 + p, ROWS, 4))) for p in range(4)]
    expect([tuple(row) for row in spark.sql(query).collect()], expected)
    expect(tuple(spark.sql("SELECT count(*), max(id) FROM lake.db.t").first()), (ROWS, ROWS - 1))
    joined = spark.sql("SELECT t.id FROM lake.db.t JOIN lake.db.copy USING (id)")
    expect(ids(joined), list(range(100)))
    spark.sql("DELETE FROM lake.db.copy WHERE part = 3")
    spark.sql("INSERT OVERWRITE lake.db.t SELECT * FROM lake.db.copy")
    expect(ids(spark.table("lake.db.t")), [n for n in range(100) if n % 4 != 3])


def source(spark: SparkSession) -> None:
    """``format("fermion")``: appended, overwritten, read."""
    Table.create("source", SCHEMA)
    path = str(Path("source").absolute())
    writer = frame(spark).write.format("fermion")
    writer.mode("append").save(path)
    some = spark.read.format("fermion").option("columns", '["id"]').option("filter", "part = 2")
    expect(ids(some.load(path)), list(range(2, ROWS, 8)))
    frame(spark, 0, 10).write.format("fermion").mode("overwrite").save(path)
    expect(ids(spark.read.format("fermion").load(path)), list(range(10)))


def conversion(spark: SparkSession) -> None:
    """A table to Parquet files and back; of a table with deleted rows, and of sorted runs."""
    for name, table in (("exported", Table.create("exported", SCHEMA)), ("runs", keyed("runs"))):
        for start in (0, 1_000):
            spark_ext.append(frame(spark, start, start + 2_000), name)
        table.refresh()
        table.delete("id = 7")
        result = spark_ext.to_parquet(spark, name, f"{name}-parquet")
        spark_ext.from_parquet(spark, f"{name}-parquet", f"{name}-copy")
        expect(ids(Table.open(f"{name}-copy")), ids(table))
        expect(result.rows, len(ids(table)))


def streams(spark: SparkSession) -> None:
    """From a table into a table, into a primary-key table, and between tables of the catalog."""
    spark_ext.write(frame(spark), "streamed")
    Table.create("stream-copy", SCHEMA)
    keyed("stream-keyed")
    for name in ("stream-copy", "stream-keyed"):
        stream = spark.readStream.format("fermion").option("maxFilesPerTrigger", 2)
        writer = stream.load(str(Path("streamed").absolute())).writeStream.format("fermion")
        writer = writer.option("path", str(Path(name).absolute()))
        writer = writer.option("checkpointLocation", f"{Path.cwd()}/{name}.checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        expect(ids(Table.open(name)), list(range(ROWS)))
    spark_ext.install_catalog(spark, "streams", ".")
    spark.sql("CREATE TABLE streams.`table-copy` (id BIGINT, part BIGINT)")
    writer = spark.readStream.table("streams.streamed").writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{Path.cwd()}/table-copy.checkpoint")
    writer.toTable("streams.`table-copy`").awaitTermination()
    expect(ids(Table.open("table-copy")), list(range(ROWS)))


CASES = (
    executors_are_apart,
    append_and_read,
    overwrite,
    upsert_and_compact,
    compact,
    catalog,
    source,
    conversion,
    streams,
)
