"""Upserts from Spark: rows of a tree are written by one task, in the frame's order."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table
from spark_ext.jobs import program
from spark_ext.jobs import upsert as job

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.int64()),
    ]
)
DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]


def keyed(path, **properties: str) -> Table:
    """A table of two days and four buckets."""
    return Table.create(
        path,
        SCHEMA,
        primary_key=["day", "id"],
        partition_by=["day"],
        properties={"bucket": "4", **properties},
    )


def frame(spark, rows: list[tuple[Any, ...]], parts: int = 4, extra: str = ""):
    made = spark.createDataFrame(rows, f"day date, id int, v long{extra}")
    return made.repartitionByRange(parts, "v")


def rows(table: Table) -> dict[tuple[datetime.date, int], int]:
    table.refresh()
    return {(row["day"], row["id"]): row["v"] for row in table.scan().to_arrow().to_pylist()}


def test_a_task_writes_a_tree_and_the_last_row_of_a_key_wins(spark, table_path):
    """Keys come back in later tasks of the frame; each tree gets one file for each of its runs."""
    table = keyed(table_path)
    given = [(DAYS[n % 2], n % 100, n) for n in range(1_000)]
    snapshot = spark_ext.upsert(frame(spark, given), table_path, message="first")
    assert (snapshot.id, snapshot.message) == (1, "first")
    assert rows(table) == {(day, n): v for day, n, v in given}
    assert snapshot.totals.files == 2 * 4
    spark_ext.append(frame(spark, [(DAYS[0], 0, 7), (DAYS[0], 200, 8)]), table_path)
    expected = {(day, n): v for day, n, v in given} | {(DAYS[0], 0): 7, (DAYS[0], 200): 8}
    assert rows(table) == expected
    unordered = spark_ext.upsert(frame(spark, given), table_path, cluster=False)
    assert unordered.deltas.files_added > 2 * 4
    assert table.verify(data=True).ok


def test_partitions_keep_their_number_of_buckets_until_they_are_overwritten(spark, table_path):
    """Each tree is still written by one task, with either number."""
    table = keyed(table_path)
    given = [(DAYS[n % 2], n, n) for n in range(100)]
    spark_ext.upsert(frame(spark, given), table_path)
    table.set_properties({"bucket": "8"})
    snapshot = spark_ext.upsert(frame(spark, given), table_path)
    assert snapshot.deltas.files_added == 2 * 4
    first = frame(spark, given[::2])
    spark_ext.overwrite(first, table_path, filter=f"day = '{DAYS[0]}'")
    table.refresh()
    files = table.inspect.files().to_pylist()
    found = {(file["partition"]["day"], file["total_buckets"]) for file in files}
    assert found == {(DAYS[0], 8), (DAYS[1], 4)}
    second = frame(spark, given[1::2]).write.format("fermion").mode("overwrite")
    second.option("partitionOverwriteMode", "dynamic").save(str(table_path))
    assert rows(table) == {(day, n): v for day, n, v in given}
    assert set(table.inspect.files()["total_buckets"].to_pylist()) == {8}
    assert table.lookup([(DAYS[n % 2], n) for n in range(100)]).num_rows == 100
    assert table.verify(data=True).ok


@pytest.mark.slow
def test_the_driver_compacts_after_its_commit_or_leaves_it_to_the_job(spark, table_path):
    """With each writer: copy on write leaves one run a tree, at the top level."""

    def levels() -> set[int]:
        table.refresh()
        return set(table.inspect.files().column("level").to_pylist())

    settings = {"compaction": "inline", "full_compaction.delta_commits": "1"}
    table = keyed(table_path, **settings)
    given = frame(spark, [(DAYS[n % 2], n % 10, n) for n in range(40)])
    snapshot = spark_ext.upsert(given, table_path)
    assert (snapshot.id, snapshot.kind, levels()) == (1, "append", {5})
    given.write.format("fermion").mode("append").save(str(table_path))
    assert levels() == {5}
    table.set_properties({"write_only": "true"})
    spark_ext.upsert(given, table_path)
    assert levels() == {0, 5}
    assert spark_ext.compact(spark, table_path).groups
    assert levels() == {5}
    assert len(rows(table)) == 10


def test_change_types_delete_and_new_columns_join(spark, table_path):
    table = keyed(table_path)
    table.upsert({"day": [DAYS[0]] * 3, "id": [1, 2, 3], "v": [1, 2, 3]})
    changes = [(DAYS[0], 1, 0, "delete"), (DAYS[0], 2, 5, "+U"), (DAYS[1], 9, 6, "insert")]
    changed = frame(spark, changes, extra=", op string").withColumnRenamed("v", "V")
    spark_ext.upsert(changed, table_path, change_type="op")
    expected = {(DAYS[0], 2): 5, (DAYS[0], 3): 3, (DAYS[1], 9): 6}
    assert rows(table) == expected
    more = frame(spark, [(DAYS[1], 9, 1, "-D", "x")], extra=", op string, note string")
    spark_ext.upsert(more, table_path, change_type="op", schema_mode="merge")
    del expected[DAYS[1], 9]
    assert rows(table) == expected
    assert table.schema.to_arrow().names == ["day", "id", "v", "note"]


def test_an_identity_is_upserted_once(spark, table_path):
    table = keyed(table_path, merge_engine="aggregation", **{"fields.v.aggregate_function": "sum"})
    for _ in range(2):
        spark_ext.upsert(
            frame(spark, [(DAYS[0], 1, 2)]), table_path, commit_user="job", commit_identifier=1
        )
    assert rows(table) == {(DAYS[0], 1): 2}


def test_wrong_upserts_publish_nothing(spark, table_path, tmp_path):
    table = keyed(table_path)
    good = frame(spark, [(DAYS[0], 1, 1, "insert")], extra=", op string")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (good, {}, "op"),
        (good, {"change_type": "kind"}, "change_type='kind': expected one column"),
        (good, {"change_type": "V"}, "change_type='V': expected a column beside those"),
        (good.withColumn("op", good.v), {"change_type": "op"}, "bigint; expected string"),
        (good, {"change_type": 5}, "change_type=5: expected text"),
        (good.drop("id"), {"change_type": "op"}, "id"),
    ]
    for given, options, message in cases:
        with pytest.raises((InvalidArgumentError, SchemaMismatch, TypeError), match=message):
            spark_ext.upsert(given, table_path, **options)
    with pytest.raises(PySparkException, match=r"upsert of a row|change_type|'upserted'"):
        spark_ext.upsert(
            frame(spark, [(DAYS[0], 1, 1, "upserted")], extra=", op string"),
            table_path,
            change_type="op",
        )
    with pytest.raises(PySparkException, match="NOT NULL"):
        spark_ext.upsert(frame(spark, [(DAYS[0], None, 1)]), table_path)
    plain = Table.create(tmp_path / "plain", SCHEMA)
    with pytest.raises(InvalidArgumentError, match="upsert needs a table with a primary key"):
        spark_ext.upsert(good, plain.location, change_type="op")
    table.refresh()
    assert table.snapshot.id == plain.snapshot.id == 0
    assert not list(table_path.rglob("*.fermion"))


def test_the_program_upserts_files(spark, table_path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "_start", lambda name, options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    table = keyed(table_path)
    table.upsert({"day": [DAYS[0]], "id": [1], "v": [1]})
    source = tmp_path / "changes.csv"
    source.write_text("day,id,v,op\n2024-01-01,1,0,delete\n2024-01-02,2,5,insert\n")
    given = [str(table_path), str(source), "--format", "csv", "--option", "header=true"]
    given += ["--schema", "day date, id bigint, v bigint, op string", "--change-type", "op"]
    assert job.main([*given, "--dry-run"]) == 0
    assert rows(table) == {(DAYS[0], 1): 1}
    assert job.main(given) == 0
    assert rows(table) == {(DAYS[1], 2): 5}
    assert "rows added" in capsys.readouterr().out
    assert job.main([str(table_path), str(source), "--schema", "x ("]) == 1


def test_the_job_takes_changes_of_debezium(spark, table_path, tmp_path, monkeypatch, capsys):
    """A dry run names the columns of the rows, not those of the envelopes."""
    monkeypatch.setattr(program, "_start", lambda name, options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    table = Table.create(table_path, {"id": [1, 2], "name": ["a", "b"]}, primary_key="id")
    source = tmp_path / "changes.jsonl"
    changes = [
        {"op": "u", "before": None, "after": {"id": 1, "name": "A"}},
        {"op": "d", "before": {"id": 2, "name": "b"}, "after": None},
    ]
    source.write_text("".join(json.dumps(change) + "\n" for change in changes))
    given = [str(table_path), str(source), "--format", "json", "--change-format", "debezium"]
    assert job.main([*given, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["id", "name"]
    assert job.main(given) == 0
    assert Table.open(table.location).to_arrow().to_pylist() == [{"id": 1, "name": "A"}]
