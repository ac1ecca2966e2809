"""Changes read by Spark: the rows of `Table.scan_changes`, whatever the table and its history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

import spark_ext
from fermion_table import Table, VersionNotFound
from fermion_table.engine import ChangeScan
from spark_ext.errors import UnsupportedBySpark
from tests.kit.tables.change_histories import KINDS, SCHEMA, random_table

pytestmark = pytest.mark.spark

LABELS = ("_commit_version", "_commit_timestamp")


Compared = list[tuple[DataFrame, ChangeScan]]


def shown(rows: list[dict[str, Any]]) -> list[str]:
    for row in rows:
        row["_commit_timestamp"] = row["_commit_timestamp"].replace(tzinfo=None)
    return sorted(map(repr, rows))


def same(compared: Compared) -> None:
    """Each frame has the names and the rows of its changes; one job reads all of them."""
    frames = []
    for number, (frame, changes) in enumerate(compared):
        assert frame.columns == changes.schema.names
        frames.append(frame.withColumn("number", functions.lit(number)))
    found = reduce(DataFrame.unionAll, frames).toArrow().to_pylist()
    numbers = [row.pop("number") for row in found]
    for number, (_, changes) in enumerate(compared):
        rows = [row for row, its in zip(found, numbers, strict=True) if its == number]
        assert shown(rows) == shown(changes.to_arrow().to_pylist())


def frame_of(spark, table: Table, *versions: Any, **query: Any) -> DataFrame:
    return spark_ext.read_changes(spark, table.location, *versions, **query)


def test_every_kind_of_table_gives_its_changes(spark, tmp_path):
    compared: Compared = []
    for seed, kind in enumerate(KINDS):
        table = random_table(tmp_path / kind, kind, commits=6, seed=seed)
        query: dict[str, Any] = {"filter": "k < 12 AND v > 0"} if seed % 3 == 2 else {}
        compared.append((frame_of(spark, table, 1, **query), table.scan_changes(1, **query)))
    same(compared)
    query = {"columns": ["v", "k"], "filter": "p = 1"}
    same([(frame_of(spark, table, 0, 2, **query), table.scan_changes(0, 2, **query))])


def test_versions_and_branches_are_named_as_in_a_table(spark, table_path):
    table = random_table(table_path, "deduplicate", commits=3)
    table.tags.create("early", version=1)
    table.branches.create("dev", version=2)
    dev = Table.open(table_path, branch="dev")
    dev.upsert({"p": [0], "k": [99], "v": [1], "s": ["dev"]})
    moment = datetime.fromtimestamp(table.snapshot.time_ms / 1000, UTC)
    same(
        [
            (frame_of(spark, table, "early"), table.scan_changes(1)),
            (frame_of(spark, table, 0, moment), table.scan_changes(0)),
            (frame_of(spark, table, 2, branch="dev"), dev.scan_changes(2)),
        ]
    )
    nothing = frame_of(spark, table, table.snapshot.id, columns=[])
    assert (nothing.count(), nothing.columns[0]) == (0, "_change_type")


def test_an_upsert_of_the_changes_repeats_the_table(spark, tmp_path):
    """The same rows of a key in their order, though several tasks read them."""
    source = random_table(tmp_path / "source", "deduplicate", commits=7, seed=3)
    settings = {"bucket": "2"}
    copy = Table.create(tmp_path / "copy", SCHEMA, primary_key=["p", "k"], properties=settings)
    changes = frame_of(spark, source, 0).drop(*LABELS)
    spark_ext.upsert(changes, copy.location, change_type="_change_type")
    copy.refresh()
    found, wanted = (sorted(map(repr, t.scan().to_arrow().to_pylist())) for t in (copy, source))
    assert found == wanted


def test_a_frame_of_expired_snapshots_fails_and_says_so(spark, table_path):
    table = random_table(table_path, "deduplicate", commits=3)
    frame = frame_of(spark, table, 1)
    table.compact(full=True)
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    with pytest.raises(PySparkException, match="it has expired"):
        frame.collect()
    with pytest.raises(VersionNotFound, match="no snapshot 1"):
        frame_of(spark, table, 1)


def test_a_column_that_spark_has_no_type_for_is_named(spark, tmp_path: Path):
    schema = pa.schema([("id", pa.int64()), ("x", pa.month_day_nano_interval())])
    table = Table.create(tmp_path / "t", schema)
    table.append(pa.table({"id": [1], "x": pa.nulls(1, schema.field("x").type)}))
    with pytest.raises(UnsupportedBySpark, match="column 'x'"):
        frame_of(spark, table, 0)
    assert frame_of(spark, table, 0, columns=["id"]).count() == 1
