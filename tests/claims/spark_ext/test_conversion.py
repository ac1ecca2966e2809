"""Parquet into tables and back, by tasks that read and write the files themselves."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table
from spark_ext.jobs import from_parquet, program, to_parquet

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.uint64()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("at", pa.timestamp("ns", "UTC")),
        ("tags", pa.list_(pa.struct({"k": pa.string(), "v": pa.float32()}))),
    ]
)


def rows(start: int, stop: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": 2**63 + i, "kind": "ab"[i % 2], "at": i, "tags": [{"k": "x", "v": i}] * (i % 3)}
            for i in range(start, stop)
        ],
        schema=SCHEMA,
    )


def by_id(table: pa.Table) -> list[dict]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def parquet(tmp_path):
    """Three files of ten rows at two levels."""
    directory = tmp_path / "parquet"
    (directory / "deeper").mkdir(parents=True)
    for number, place in enumerate(("a.parquet", "b.parquet", "deeper/c.parquet")):
        pq.write_table(rows(number * 10, number * 10 + 10), directory / place)
    (directory / "_SUCCESS").touch()
    return directory


def test_parquet_files_make_a_table_of_exactly_their_types(spark, parquet, table_path):
    snapshot = spark_ext.from_parquet(spark, parquet, table_path)
    table = Table.open(table_path)
    assert (snapshot.id, snapshot.deltas.rows_added) == (1, 30)
    assert table.schema.to_arrow(field_ids=False).equals(SCHEMA)
    assert by_id(table.scan().to_arrow()) == rows(0, 30).to_pylist()
    assert table.verify(data=True).ok


def test_names_of_directories_are_columns_and_may_partition_the_table(spark, tmp_path, table_path):
    data = pa.table({"n": [1, 2, 3], "year": [2000, 2001, 2001]})
    ds.write_dataset(
        data,
        tmp_path / "hive",
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive"),
    )
    spark_ext.from_parquet(spark, tmp_path / "hive", table_path, partition_by="year")
    table = Table.open(table_path)
    assert table.schema.partition_by[0].name == "year"
    assert table.snapshot.totals.files == 2
    assert sorted(table.scan(filter="year = 2001").to_arrow()["n"].to_pylist()) == [2, 3]
    with pytest.raises(InvalidArgumentError, match="is partitioned by"):
        spark_ext.from_parquet(spark, tmp_path / "hive", table_path, partition_by="n")


def test_the_same_files_under_the_same_commit_are_appended_once(spark, parquet, table_path):
    commit = {"commit_user": "import", "commit_identifier": "1"}
    first = spark_ext.from_parquet(spark, parquet, table_path, **commit)
    assert spark_ext.from_parquet(spark, parquet, table_path, **commit).id == first.id
    assert Table.open(table_path).snapshot.totals.rows == 30


def test_files_that_do_not_fit_or_do_not_agree_are_refused(spark, parquet, table_path, tmp_path):
    Table.create(table_path, pa.schema([("id", pa.string())]))
    with pytest.raises(SchemaMismatch, match="~ id"):
        spark_ext.from_parquet(spark, parquet, table_path)
    pq.write_table(pa.table({"id": ["x"]}), parquet / "other.parquet")
    with pytest.raises(InvalidArgumentError, match="do not agree"):
        spark_ext.from_parquet(spark, parquet, tmp_path / "new")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgumentError, match="no Parquet files"):
        spark_ext.from_parquet(spark, tmp_path / "empty", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_damaged_file_fails_the_job_and_leaves_no_new_table(spark, parquet, table_path):
    damaged = bytearray((parquet / "b.parquet").read_bytes())
    damaged[4:200] = bytes(196)
    (parquet / "b.parquet").write_bytes(damaged)
    with pytest.raises(PySparkException):
        spark_ext.from_parquet(spark, parquet, table_path)
    assert not Table.exists(table_path)  # the other task, which Spark kills, may leave a file


def test_a_table_becomes_parquet_files_that_others_read(spark, tmp_path, table_path):
    """Old files lack a column and have another's old name; Parquet gets the new ones."""
    table = Table.create(table_path, SCHEMA)
    table.append(rows(0, 10))
    table.rename_column("kind", "sort")
    table.add_columns({"extra": pa.int8()})
    table.append(rows(10, 20).rename_columns(["id", "sort", "at", "tags"]))
    with pytest.raises(PySparkException, match="would lose data"):
        spark_ext.to_parquet(spark, table_path, tmp_path / "out")
    result = spark_ext.to_parquet(
        spark, table_path, tmp_path / "out", compression="zstd", coerce_timestamps=None
    )
    assert (result.files, result.rows, result.snapshot_id) == (2, 20, table.snapshot.id)
    assert (tmp_path / "out" / "_SUCCESS").exists()
    found = ds.dataset(tmp_path / "out", format="parquet").to_table()
    assert found.schema.names == ["id", "sort", "at", "tags", "extra"]
    assert by_id(found) == by_id(table.scan().to_arrow())


def test_parts_of_a_table_can_be_exported_to_a_new_place_only(spark, tmp_path, table_path):
    table = Table.create(table_path, SCHEMA)
    table.append(rows(0, 10))
    result = spark_ext.to_parquet(
        spark, table_path, tmp_path / "out", columns=["id"], filter="kind = 'a'"
    )
    assert result.rows == 5
    assert pq.read_table(tmp_path / "out").schema.names == ["id"]
    with pytest.raises(InvalidArgumentError, match="new or empty directory"):
        spark_ext.to_parquet(spark, table_path, tmp_path / "out")


def test_both_are_programs(spark, parquet, table_path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "_start", lambda name, options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def say(main, *arguments):
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    planned = say(from_parquet.main, parquet, table_path, "--dry-run")
    assert (planned["files"], planned["columns"]) == (3, SCHEMA.names)
    assert not table_path.exists()
    assert say(from_parquet.main, parquet, table_path)["rows_added"] == 30
    out = tmp_path / "out"
    assert say(to_parquet.main, table_path, out, "--dry-run")["rows_before_filter"] == 30
    assert not out.exists()
    chosen = ["--filter", "kind = 'b'", "--nanoseconds"]
    assert say(to_parquet.main, table_path, out, *chosen)["rows"] == 15


def test_timestamps_of_spark_survive_both_ways(spark, tmp_path, table_path):
    """Spark writes instants as INT96 by default: 1583 and noon in New York come back."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        written = spark.sql(
            "SELECT * FROM VALUES (1, timestamp '2024-07-01 12:00:00', "
            "array(timestamp '1583-01-01'), timestamp_ntz '2024-07-01 12:00:00'), "
            "(2, NULL, NULL, NULL), (3, timestamp '9999-12-31 23:59:59.999999', array(NULL), "
            "timestamp_ntz '0001-01-01 00:00:00') t(id, at, ats, local)"
        )
        written.write.parquet(str(tmp_path / "in"))
        spark_ext.from_parquet(spark, tmp_path / "in", table_path)
        schema = Table.open(table_path).schema.to_arrow(field_ids=False)
        assert schema.field("at").type == pa.timestamp("us", "UTC")
        assert schema.field("local").type == pa.timestamp("us")
        spark_ext.to_parquet(spark, table_path, tmp_path / "out")
        assert shown(spark.read.parquet(str(tmp_path / "in"))) == shown(written)
        assert shown(spark_ext.read_table(spark, table_path)) == shown(written)
        assert shown(spark.read.parquet(str(tmp_path / "out"))) == shown(written)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def shown(frame):
    texts = [f"string({name})" for name in frame.columns]
    return frame.orderBy("id").selectExpr(*texts).collect()
