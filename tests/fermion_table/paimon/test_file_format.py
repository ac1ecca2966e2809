"""Fermion files in tables of Paimon, written and read by pypaimon after `register()`."""

from __future__ import annotations

import random
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table.paimon import from_paimon, register
from tests.kit.tables.paimon_tables import (
    catalog_at,
    create,
    ordered,
    pypaimon,
    read,
    rows_of,
    rows_of_every_type,
    write,
)

from pypaimon.schema.schema_change import SchemaChange  # isort: skip

FORMAT = {"file.format": "fermion"}
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int32())])


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    register()
    register()  # again is no error


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return catalog_at(tmp_path / "warehouse")


def files_of(table: Any) -> list[Path]:
    return sorted(Path(table.table_path).glob("**/data-*.fermion"))


def numbers(start: int, stop: int, v: int = 0) -> pa.Table:
    rows = [{"id": i, "day": f"d{i % 3}", "v": i + v} for i in range(start, stop)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def wide_rows(count: int) -> pa.Table:
    """Rows with a text that takes most of the bytes."""
    draw = random.Random(7)
    texts = [f"{draw.getrandbits(128):032x}" for _ in range(count)]
    return pa.table({"id": range(count), "wide": texts, "v": pa.array([1] * count, pa.int32())})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[fermion.FermionFile]:
    """The files that were opened, in order."""
    files: list[fermion.FermionFile] = []
    open_file = fermion.open

    def remember(*arguments: Any, **keywords: Any) -> fermion.FermionFile:
        files.append(open_file(*arguments, **keywords))
        return files[-1]

    monkeypatch.setattr(fermion, "open", remember)
    return files


@pytest.mark.parametrize("key", [None, ["number"]])
def test_values_of_every_type_are_those_that_parquet_gives(catalog, key):
    rows = rows_of_every_type()
    tables = [
        create(
            catalog, name, rows.schema, key=key, options={"bucket": "1" if key else "-1"} | options
        )
        for name, options in (("ours", FORMAT), ("parquet", {}))
    ]
    found = [read(write(table, rows)) for table in tables]
    assert len(files_of(tables[0])) == 1
    assert not files_of(tables[1])
    assert found[0].schema == found[1].schema
    assert found[0].sort_by("number").equals(found[1].sort_by("number"))
    assert found[0]["string"].to_pylist()[0] == ""
    with fermion.open(files_of(tables[0])[0]) as file:
        assert file.num_rows == rows.num_rows


def test_projection_and_filter_go_down_to_the_file(catalog, opened):
    """Columns that are not wanted, and pages that can't match, are not read."""
    count = 200_000
    rows = wide_rows(count)
    texts = rows["wide"].to_pylist()
    table = write(create(catalog, "t", rows.schema, options=FORMAT), rows)
    size = files_of(table)[0].stat().st_size
    assert read(table, columns=["v"])["v"].to_pylist() == [1] * count
    whole = opened[-1].io_stats.bytes_requested
    assert whole < size / 20
    predicates = table.new_read_builder().new_predicate_builder()
    few = read(table, predicate=predicates.between("id", 1000, 1002))
    assert few["id"].to_pylist() == [1000, 1001, 1002]
    assert opened[-1].io_stats.bytes_requested < size / 5
    both = predicates.and_predicates(
        [predicates.is_in("id", [5, 7, count]), predicates.startswith("wide", texts[7][:4])]
    )
    assert read(table, columns=["wide"], predicate=both)["wide"].to_pylist() == [texts[7]]


def test_a_filter_that_we_do_not_know_gives_the_same_rows(catalog, monkeypatch):
    table = write(create(catalog, "t", SCHEMA, options=FORMAT), numbers(0, 100))
    predicates = table.new_read_builder().new_predicate_builder()
    iterate = fermion.FermionFile.iter_batches
    refused = []

    def refuse(self: Any, columns: Any = None, *, filter: Any = None, **options: Any) -> Any:
        if filter is not None:
            refused.append(filter)
            raise InvalidArgumentError("filter: unknown")
        return iterate(self, columns, filter=filter, **options)

    monkeypatch.setattr(fermion.FermionFile, "iter_batches", refuse)
    found = read(table, columns=["v"], predicate=predicates.greater_than("id", 96))
    assert found["v"].to_pylist() == [97, 98, 99]
    assert refused


@pytest.mark.parametrize("partition_by", [None, ["day"]])
def test_a_keyed_table_is_merged_and_changed(catalog, partition_by):
    """As a table of Parquet: upserts, deletions, changes of columns, overwritten partitions."""
    shown = []
    for name, options in (("ours", FORMAT), ("parquet", {})):
        options = options | {"bucket": "2", "rowkind.field": "kind"}
        schema = SCHEMA.append(pa.field("kind", pa.string()))
        table = create(
            catalog, name, schema, key=["id", "day"], partition_by=partition_by, options=options
        )
        for rows, kind in (
            (numbers(0, 50), "+I"),
            (numbers(20, 60, v=100), "+U"),
            (numbers(5, 9), "-D"),
        ):
            write(table, rows.append_column("kind", pa.array([kind] * rows.num_rows)))
        catalog.alter_table(f"db.{name}", [SchemaChange.rename_column("v", "w")], False)
        table = catalog.get_table(f"db.{name}")
        write(table, [{"id": 1, "day": "d1", "w": -1, "kind": "+I"}])
        predicates = table.new_read_builder().new_predicate_builder()
        shown.append(
            [
                rows_of(table),
                rows_of(table, scan__snapshot_id="1"),
                ordered(
                    read(table, columns=["w"], predicate=predicates.equal("w", -1)).to_pylist()
                ),
            ]
        )
        if name == "ours":
            assert files_of(table)
    assert shown[0] == shown[1]
    assert len(shown[0][0]) == 56


def test_rows_are_deleted_by_vectors_and_columns_updated_by_row_id(catalog):
    shown = []
    for name, options in (("ours", FORMAT), ("parquet", {})):
        options = options | {
            "row-tracking.enabled": "true",
            "data-evolution.enabled": "true",
            "deletion-vectors.enabled": "true",
        }
        table = create(catalog, name, SCHEMA, options=options)
        write(table, numbers(0, 100))
        builder = table.new_batch_write_builder()
        messages = builder.new_update().delete_by_row_id([3, 4, 50])
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()
        predicates = table.new_read_builder().new_predicate_builder()
        less = predicates.less_than("id", 10)
        shown.append([rows_of(table), ordered(read(table, predicate=less).to_pylist())])
    assert shown[0] == shown[1]
    assert [row["id"] for row in shown[0][1]] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_shard_reads_its_rows_alone(catalog):
    table = write(create(catalog, "t", SCHEMA, options=FORMAT), numbers(0, 1000))
    found = []
    for shard in range(3):
        builder = table.new_read_builder()
        splits = builder.new_scan().with_shard(shard, 3).plan().splits()
        found.append(builder.new_read().to_arrow(splits)["id"].to_pylist())
    assert [len(part) for part in found] == [334, 333, 333]
    assert sorted(chain(*found)) == list(range(1000))


def test_a_write_that_fails_leaves_no_file_and_no_snapshot(catalog, monkeypatch):
    table = write(create(catalog, "t", SCHEMA, options=FORMAT), numbers(0, 10))
    before, files = rows_of(table), files_of(table)
    write_table = fermion.write_table

    def fail(data: Any, stream: Any, **options: Any) -> None:
        write_table(data, stream, **options)
        raise OSError("the disk is full")

    monkeypatch.setattr(fermion, "write_table", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write(table, numbers(10, 20))
    assert files_of(table) == files
    assert rows_of(table) == before
    assert table.snapshot_manager().get_latest_snapshot().id == 1


def test_files_of_storages_that_only_paimon_reads_are_read_by_ranges(catalog, opened, monkeypatch):
    """A path with a scheme is read through pypaimon's own client, no more of it than is needed."""
    rows = wide_rows(400_000)
    table = write(create(catalog, "t", rows.schema, options=FORMAT), rows)
    asked: list[int] = []
    file_io = table.file_io
    ranges = type(file_io).read_file_range

    def remember(self: Any, path: str, offset: int, length: int) -> Any:
        asked.append(length)
        return ranges(self, path, offset, length)

    monkeypatch.setattr(type(file_io), "read_file_range", remember)
    monkeypatch.setattr("fermion_table.paimon.file_format.urlsplit", lambda path: _Remote())
    assert read(table, columns=["v"]).num_rows == 400_000
    assert 0 < sum(asked) < files_of(table)[0].stat().st_size / 5
    assert isinstance(opened[-1], fermion.FermionFile)


class _Remote:
    scheme = "oss"


def test_such_a_table_is_imported(catalog, tmp_path):
    table = create(catalog, "t", SCHEMA, key=["id"], options=FORMAT | {"bucket": "2"})
    write(table, numbers(0, 30))
    write(table, numbers(10, 40, v=5))
    ours = from_paimon(table, tmp_path / "ours")
    assert ordered(ours.to_arrow().to_pylist()) == rows_of(table)


def test_other_versions_of_pypaimon_are_refused(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "3.0.1")
    with pytest.raises(InvalidArgumentError, match=r"expected pypaimon 2\.1, found 3\.0\.1"):
        register()

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(InvalidArgumentError, match=r"register: needs pypaimon: pip install"):
        register()
    assert pypaimon
