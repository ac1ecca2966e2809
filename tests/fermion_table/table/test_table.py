"""The table as a user holds it: made, opened, moved on, looked back at, verified."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table, TableExists, TableNotFound, VersionNotFound
from fermion_table.schema.property_kinds import parse_size

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_table_is_made_once(table_path):
    assert not Table.exists(table_path)
    with pytest.raises(TableNotFound):
        Table.open(table_path)
    table = Table.create(table_path, SCHEMA, properties={"k.k": "v"})
    assert Table.exists(table_path)
    assert (table.snapshot.id, table.snapshot.kind) == (0, "create")
    assert table.scan().to_arrow().equals(SCHEMA.empty_table())
    with pytest.raises(TableExists):
        Table.create(table_path, SCHEMA)
    again = Table.create(table_path, pa.schema([("other", pa.int8())]), mode="ignore")
    assert again.schema == table.schema
    assert again.properties == {"k.k": "v"}


@pytest.mark.parametrize(
    "options",
    [{"mode": "replace"}, {"properties": {"target_file_size": "big"}}],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(table_path, options):
    with pytest.raises(InvalidArgumentError):
        Table.create(table_path, SCHEMA, **options)
    assert not table_path.exists()


def test_a_table_works_where_fsspec_keeps_it():
    table = Table.create("memory://tables/one", SCHEMA)
    for value in range(3):
        table.append({"a": [value]})
    assert table.compact().files_after == 1
    again = Table.open("memory://tables/one")
    assert again.scan(filter="a > 0").to_arrow().column("a").to_pylist() == [1, 2]
    assert again.verify(data=True).ok


def test_an_object_sees_its_snapshot_until_it_moves_on(table_path):
    table = Table.create(table_path, SCHEMA)
    other = Table.open(table_path)
    other.append({"a": [1]})
    assert (table.snapshot.id, table.scan().count()) == (0, 0)
    scan = table.scan()
    assert table.refresh().id == 1
    assert (table.scan().count(), scan.count()) == (1, 0)
    other.append({"a": [2]})
    table.append({"a": [3]})
    assert (table.snapshot.id, table.scan().count()) == (3, 3)


def test_the_past_is_found_by_id_and_by_time(table_path):
    table = Table.create(table_path, SCHEMA)
    for value in range(3):
        table.append({"a": [value]}, message=f"number {value}")
    second = table.snapshots()[2]
    at = datetime.datetime.fromtimestamp(second.time_ms / 1000, datetime.UTC)
    for question in ({"snapshot_id": 2}, {"as_of": at}, {"as_of": at.isoformat()}):
        assert table.scan(**question).to_arrow().column("a").to_pylist() == [0, 1]
    assert Table.open(table_path, version=1).scan().count() == 1
    assert Table.open(table_path, version="main~2").scan().count() == 1
    with pytest.raises(VersionNotFound, match=r"earliest.* 0 .*latest.* 3 "):
        table.scan(snapshot_id=9)
    with pytest.raises(VersionNotFound):
        table.scan(as_of=datetime.datetime(1999, 1, 1))


def test_history_says_who_did_what_newest_first(table_path):
    table = Table.create(table_path, SCHEMA, message="begin")
    table.append({"a": [1, 2]}, message="rows", properties={"job": "7"})
    table.add_columns({"c": pa.int8()})
    rows = list(table.history())
    assert [row["kind"] for row in rows] == ["schema", "append", "create"]
    assert [row["message"] for row in rows] == [None, "rows", "begin"]
    assert [snapshot.id for snapshot in table.snapshots()] == [0, 1, 2]
    assert table.snapshots()[1].properties == {"job": "7"}


def test_settings_change_as_a_snapshot_and_are_read_back(table_path):
    table = Table.create(table_path, SCHEMA, properties={"k.k": "v", "to.keep": "1"})
    table.set_properties({"target_file_size": "1MB"}, remove=["k.k"])
    again = Table.open(table_path)
    assert again.properties == {"to.keep": "1", "target_file_size": "1MB"}
    assert again.snapshot.kind == "schema"


def test_a_change_that_changes_nothing_makes_no_snapshot(table_path):
    table = Table.create(table_path, SCHEMA)
    table.alter_column("a", type=pa.int64())
    table.rename_column("a", "a")
    assert table.refresh().id == 0


def test_verifying_names_the_data_file_that_is_damaged(table_path):
    table = Table.create(table_path, SCHEMA)
    table.append(pa.table({"a": range(1000), "b": ["x"] * 1000}))
    (path,) = (table_path / "data").iterdir()
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    assert table.verify().ok
    report = table.verify(data=True)
    assert not report.ok
    assert path.name in str(report)
    path.unlink()
    assert not table.verify().ok


@pytest.mark.parametrize(
    ("text", "size"),
    [(1, 1), ("7", 7), ("1k", 1024), ("256MB", 2**28), ("2 GiB", 2**31), ("1TB", 2**40)],
)
def test_sizes_are_bytes_or_texts(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", [0, -1, "", "MB", "1.5MB", "1PB", "x"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="not a size"):
        parse_size(text)
