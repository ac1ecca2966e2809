"""Metadata as Arrow tables: every row says what the snapshots, files and schemas say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.commit import next_snapshot
from fermion_table.inspection.tables import (
    FILES,
    HISTORY,
    PARTITIONS,
    REFERENCES,
    SCHEMAS,
    SNAPSHOTS,
)

SCHEMA = pa.schema({"a": pa.int32(), "p": pa.string(), "s": pa.struct([("x", pa.float64())])})


@pytest.fixture(autouse=True, scope="module")
def short_tails() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 3)
        yield


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 3 append two rows each, in two partitions."""
    made = Table.create(table_path, SCHEMA, durability="fast", partition_by=["p"])
    for value in range(3):
        append(made, value)
    return made


def append(table: Table, value: int) -> None:
    rows = pa.table({"a": pa.array([value, value * 10], pa.int32()), "p": ["x", None]})
    table.append(rows, message=f"rows {value}", commit_user="me", commit_identifier=value)


def test_snapshots_are_told_oldest_first(table: Table) -> None:
    found = table.inspect.snapshots()
    assert found.schema == SNAPSHOTS
    rows = found.to_pylist()
    assert [row["snapshot_id"] for row in rows] == [0, 1, 2, 3]
    assert [row["parent_id"] for row in rows] == [None, 0, 1, 2]
    last = rows[-1]
    snapshot = table.snapshot
    assert (last["kind"], last["message"], last["branch"]) == ("append", "rows 2", "main")
    assert last["committed_at"] == datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
    assert (last["files_added"], last["rows_added"], last["total_rows"]) == (2, 2, 6)
    assert (last["total_bytes"], last["hash"]) == (snapshot.totals.bytes, snapshot.hash)
    assert (last["commit_user"], last["commit_identifier"]) == ("me", "2")
    assert last["manifests"] == len(snapshot.manifests) > 0
    assert last["tail_entries"] == len(snapshot.tail)


def test_history_is_told_newest_first(table: Table) -> None:
    table.compact()
    found = table.inspect.history()
    assert found.schema == HISTORY
    rows = found.to_pylist()
    assert [row["kind"] for row in rows] == ["compact", "append", "append", "append", "create"]
    assert [row["rows"] for row in rows] == [6, 6, 4, 2, 0]
    assert [row["rows_change"] for row in rows] == [0, 2, 2, 2, 0]
    assert [row["files_change"] for row in rows] == [-4, 2, 2, 2, 0]


def test_files_are_told_in_the_order_of_their_rows(table: Table) -> None:
    found = table.inspect.files()
    assert found.schema.names[: len(FILES)] == FILES.names
    rows = found.to_pylist()
    assert [row["path"] for row in rows] == [split.file for split in table.scan().plan().splits]
    assert [row["partition"] for row in rows] == [{"p": "x"}, {"p": None}] * 3
    assert [row["statistics"]["a"]["max"] for row in rows] == [0, 0, 1, 10, 2, 20]
    assert [row["statistics"]["p"]["min"] for row in rows] == ["x", None] * 3
    assert rows[0]["statistics"]["p"]["null_count"] == 0
    assert rows[1]["statistics"]["p"]["null_count"] == 1
    assert [row["added_snapshot"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [row["row_id_base"] for row in rows] == list(range(6))
    assert sum(row["bytes"] for row in rows) == table.snapshot.totals.bytes
    assert all(row["batches"] is None and not row["is_external"] for row in rows)


def test_bounds_are_of_the_current_type(table_path: Path) -> None:
    schema = pa.schema(
        {
            "i": pa.int8(),
            "d": pa.date32(),
            "t": pa.timestamp("ms"),
            "n": pa.decimal128(5, 2),
            "text": pa.string(),
            "gone": pa.int8(),
        }
    )
    table = Table.create(table_path, schema, durability="fast")
    row = {"i": 5, "d": datetime(2020, 1, 1).date(), "t": datetime(2020, 1, 1), "n": Decimal("1.5"),
           "text": "a long text of many letters", "gone": 1}  # fmt: skip
    table.append(pa.Table.from_pylist([row], schema=schema))
    with table.update_schema() as update:
        update.alter_column("i", type=pa.int64())
        update.alter_column("d", type=pa.timestamp("us"))
        update.alter_column("t", type=pa.timestamp("ns"))
        update.alter_column("n", type=pa.decimal128(10, 3))
        update.rename_column("text", "words")
        update.drop_column("gone")
    (found,) = table.inspect.files()["statistics"].combine_chunks().to_pylist()
    assert list(found) == ["i", "d", "t", "n", "words"]
    assert found["i"]["min"] == found["i"]["max"] == 5
    assert found["d"]["min"] == datetime(2020, 1, 1)
    assert found["t"]["max"] == datetime(2020, 1, 1)
    assert found["n"]["max"] == Decimal("1.500")
    assert found["i"]["min_is_exact"]
    assert not found["words"]["min_is_exact"]
    assert found["words"]["min"] < "a long text of many letters"
    assert found["words"]["max"].startswith("a long ")  # the first bytes of an upper bound


def test_batches_and_nested_columns_are_told(table_path: Path) -> None:
    table = Table.create(table_path, SCHEMA, durability="fast")
    rows = pa.table({"s": pa.array([{"x": 1.5}], SCHEMA.field("s").type)})
    table.append_batches([(7, rows), (9, rows)])
    (found,) = table.inspect.files().to_pylist()
    assert (found["batch_id_min"], found["batch_id_max"], found["batches"]) == (7, 9, 2)
    assert found["statistics"]["s.x"]["max"] == 1.5
    assert "partition" not in found
    (part,) = table.inspect.partitions().to_pylist()
    assert (part["files"], part["rows"]) == (1, 2)
    (tail,) = table.inspect.manifests().to_pylist()
    assert (tail["kind"], tail["batch_id_min"], tail["batch_id_max"]) == ("tail", 7, 9)


def test_manifests_hold_all_entries(table: Table) -> None:
    rows = table.inspect.manifests().to_pylist()
    assert sum(row["entries"] - row["entries_dead"] for row in rows) == 6
    assert sum(row["rows"] for row in rows) == 6
    assert rows[-1]["kind"] == "tail"
    assert rows[-1]["path"] == "snapshot/00000000000000000003.json"
    assert {row["kind"] for row in rows[:-1]} == {"loose"}
    assert all(row["path"].startswith("manifest/") and row["size"] > 0 for row in rows[:-1])
    assert all(row["partition_min"] == {"p": "x"} for row in rows)


def test_partitions_count_what_is_live(table: Table) -> None:
    found = table.inspect.partitions()
    assert found.schema.names == ["partition", *PARTITIONS.names]
    one, other = found.to_pylist()
    assert (one["partition"], other["partition"]) == ({"p": "x"}, {"p": None})
    assert (one["files"], one["rows"], one["last_added_snapshot"]) == (3, 3, 3)
    assert one["bytes"] + other["bytes"] == table.snapshot.totals.bytes


def test_schemas_say_what_changed(table: Table) -> None:
    table.add_columns({"b": pa.int64()})
    table.set_properties({"target_file_size": "64MB"})
    found = table.inspect.schemas()
    assert found.schema == SCHEMAS
    rows = found.to_pylist()
    assert [row["schema_id"] for row in rows] == [0, 1, 2]
    assert [row["is_current"] for row in rows] == [False, False, True]
    assert [row["changes"] for row in rows] == [
        [],
        ["+ b: int64"],
        ["~ target_file_size property: None -> 64MB"],
    ]
    assert rows[1]["fields"][-1] == "5: b: int64"
    assert rows[2]["properties"] == [("target_file_size", "64MB")]


def test_branches_and_tags_are_told(table: Table) -> None:
    table.tags.create("v1", version=1, message="first", keep=timedelta(days=1))
    table.branches.create("dev", version=2)
    found = table.inspect.refs()
    assert found.schema == REFERENCES
    rows = {row["name"]: row for row in found.to_pylist()}
    assert list(rows) == ["main", "dev", "v1"]
    assert (rows["main"]["type"], rows["main"]["snapshot_id"]) == ("branch", 3)
    assert (rows["dev"]["parent"], rows["dev"]["left_after"]) == ("main", 2)
    tag = rows["v1"]
    assert (tag["type"], tag["snapshot_id"], tag["message"]) == ("tag", 1, "first")
    assert tag["expires_at"] - tag["created_at"] == timedelta(days=1)
    assert rows["main"]["created_at"] is None


def test_an_empty_table_has_its_tables_too(table_path: Path) -> None:
    inspect = Table.create(table_path, SCHEMA, durability="fast", partition_by=["p"]).inspect
    for name in ("files", "manifests", "partitions"):
        assert getattr(inspect, name)().num_rows == 0
    for name in ("snapshots", "history", "schemas", "refs"):
        assert getattr(inspect, name)().num_rows == 1


def test_an_older_version_is_inspected_as_it_was(table: Table) -> None:
    older = Table.open(table.location, version=1).inspect
    assert older.files().num_rows == 2
    assert older.snapshots().num_rows == 2


def test_partitions_of_transforms_and_clones_are_told(table_path: Path, tmp_path: Path) -> None:
    schema = pa.schema({"t": pa.timestamp("us"), "i": pa.int64()})
    partition_by = ["year(t)", "bucket(4, i)"]
    table = Table.create(table_path, schema, durability="fast", partition_by=partition_by)
    table.append(pa.table({"t": [datetime(2020, 5, 1)], "i": [1]}, schema=schema))
    (part,) = table.inspect.partitions()["partition"].combine_chunks().to_pylist()
    year, bucket = part.values()
    assert year == 50
    assert 0 <= bucket < 4
    (file,) = table.clone(tmp_path / "clone").inspect.files().to_pylist()
    assert file["is_external"]
    assert file["source"] == "clone"
    assert file["partition"] == part


def test_levels_and_buckets_may_be_any_numbers(table: Table) -> None:
    """Of metadata that something else has written: Arrow's own error was raised."""
    append(table, 1)
    entry = table.snapshot.tail[0]
    big = 2**40
    changed = msgspec.structs.replace(
        entry, bucket=big, level=big, total_buckets=big + 1, column_files=()
    )
    snapshot = msgspec.structs.replace(table.snapshot, tail=(changed,))
    row = next(
        each for each in Table(table.store, snapshot).inspect.files().to_pylist() if each["level"]
    )
    assert (row["bucket"], row["level"], row["total_buckets"]) == (big, big, big + 1)
