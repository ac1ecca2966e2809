"""Entries with column files: which files a query opens, and that it sees what counts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion_table import Scan, Table
from fermion_table.commit import next_snapshot
from fermion_table.errors import CorruptMetadata, UnsafeStorage, UnsupportedFeature
from fermion_table.metadata import manifest_store, snapshot
from fermion_table.metadata.history import SchemaVersions
from fermion_table.scanning.scan import FileScan

ROWS, FILES = 40, 3
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("s", pa.struct([("x", pa.string())]))])
NEW = pa.schema([("c", pa.int64()), ("d", pa.string())])


def new_columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"c": pc.multiply(rows["a"], -1), "d": pc.cast(rows["a"], pa.string())}


def made(path: Path, *, in_batches: bool = False) -> Table:
    """Three files of `a` from 0 to 119, with `c` = -a and `d` beside; `b` of two filled anew."""
    table = Table.create(path, SCHEMA, durability="fast")
    for number in range(FILES):
        values = range(number * ROWS, (number + 1) * ROWS)
        rows = {"a": values, "b": [1.0] * ROWS, "s": [{"x": f"x{each}"} for each in values]}
        if in_batches:
            half = ROWS // 2
            parts = [
                {name: list(each)[at : at + half] for name, each in rows.items()}
                for at in (0, half)
            ]
            table.append_batches([(10 * number + place, part) for place, part in enumerate(parts)])
        else:
            table.append(rows)
    table.delete("a IN (3, 50, 51)")
    table.add_columns_with(new_columns, read=["a"], schema=NEW, batch_rows=7)
    table.fill_columns({"a": [0, 41], "b": [-7.5, None]}, on="a")
    return table


def model() -> list[dict[str, Any]]:
    return [
        {"a": a, "b": {0: -7.5, 41: None}.get(a, 1.0), "s": {"x": f"x{a}"}, "c": -a, "d": str(a)}
        for a in range(ROWS * FILES)
        if a not in (3, 50, 51)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return made(tmp_path_factory.mktemp("columns") / "t")


QUERIES: list[tuple[list[str], str | None, int, Any]] = [
    # columns, filter, files that are opened, what the filter selects
    (["a"], None, 3, lambda r: True),
    (["c"], None, 3, lambda r: True),
    (["a", "c"], None, 6, lambda r: True),
    (["d", "a", "b", "c"], None, 8, lambda r: True),
    (["b"], None, 3, lambda r: True),
    (["c"], "c = -45", 1, lambda r: r["c"] == -45),
    (["a"], "c = -45", 2, lambda r: r["c"] == -45),
    (["c"], "a = 45", 2, lambda r: r["a"] == 45),
    (
        ["d"],
        "a < 60 AND c < -40 AND b = 1.0",
        3,
        lambda r: r["a"] < 60 and r["c"] < -40 and r["b"] == 1.0,
    ),
    (["a"], "b = -7.5", 2, lambda r: r["b"] == -7.5),
    (["a"], "b IS NULL", 2, lambda r: r["b"] is None),
    (["a"], "b > 5", 0, lambda r: False),
    (
        ["a"],
        "c = -1 OR a = 119",
        6,
        lambda r: r["c"] == -1 or r["a"] == 119,
    ),
    (["s", "c"], "s.x = 'x7'", 4, lambda r: r["s"]["x"] == "x7"),
]


@pytest.mark.parametrize(("columns", "condition", "files", "selects"), QUERIES)
def test_a_query_opens_only_the_files_whose_columns_it_names(
    table: Table, columns: list[str], condition: str | None, files: int, selects: Any
) -> None:
    scan = table.scan(columns=columns, filter=condition, threads=1)
    wanted = [{name: row[name] for name in columns} for row in model() if selects(row)]
    assert scan.to_arrow().to_pylist() == wanted
    opened = scan.io_stats["files"]
    assert opened <= files
    if condition is None or " OR " not in condition:
        assert opened == files, (columns, condition)
    assert table.scan(filter=condition).count() == len(wanted)
    assert table.scan(filter=condition, columns=columns, limit=2).to_arrow().num_rows == min(
        2, len(wanted)
    )


def test_a_column_that_another_file_hides_is_never_read(table: Table) -> None:
    """The bytes of the data files are gone: what column files have can still be read."""
    scan = table.scan(columns=["c", "d"])
    assert scan.io_stats["files"] == 0
    entries = scan.entries[0]
    for entry in entries:
        path = Path(table.location, entry.path)
        path.rename(path.with_suffix(".gone"))
    try:
        assert scan.to_arrow().num_rows == len(model())
        assert table.scan(filter="c = -45", columns=["d"]).to_arrow().to_pylist() == [{"d": "45"}]
        filled = [entry for entry in entries if len(entry.column_files) == 2]
        assert len(filled) == 2
        reading = FileScan(
            store=table.store, snapshot=table.snapshot, schemas=table.scan().schemas,
            table_schema=table.schema, columns=("b",), files=tuple(filled),
        )  # fmt: skip
        found = reading.to_arrow()["b"].to_pylist()
        assert sorted(found, key=repr).count(1.0) == len(found) - 2
    finally:
        for entry in entries:
            path = Path(table.location, entry.path)
            path.with_suffix(".gone").rename(path)


def test_row_ids_bounds_and_counts_are_those_of_the_rows(table: Table) -> None:
    found = table.scan(columns=["_row_id", "c", "a"], filter="c < -100").to_arrow().to_pylist()
    assert [row["_row_id"] for row in found] == [row["a"] for row in found] == list(range(101, 120))
    ids = table.scan(columns=["d"], filter="_row_id IN (7, 90) AND c > -100").to_arrow()
    assert ids["d"].to_pylist() == ["7", "90"]
    low, high = table.scan().min_max("c")
    assert (low.as_py(), high.as_py()) == (-119, 0)
    low, high = table.scan().min_max("b")
    assert (low.as_py(), high.as_py()) == (-7.5, 1.0)
    assert table.scan(filter="c <= 0").count() == table.scan().count() == len(model())
    scan = table.scan(filter="a < 60 AND c < -20", columns=["d"])
    assert "stripes" in scan.explain(files=3)
    statistics = table.inspect.files()["statistics"].to_pylist()
    assert [each["c"]["min"] for each in statistics] == [-39, -79, -119]


def test_splits_with_column_files_are_read_elsewhere(table: Table) -> None:
    """What engines send to tasks: splits, parts of them, and their reader, pickled."""
    scan = table.scan(columns=["d", "b", "a"], filter="c < -30")
    reader, splits = pickle.loads(pickle.dumps((scan.reader, scan.plan().splits)))
    parts = [part for each in splits for part in (each.part(0, 13), each.part(13, ROWS))]
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == scan.to_arrow().to_pylist()
    assert len(found) == len([row for row in model() if row["c"] < -30])


def test_schema_changes_reach_column_files(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with table.update_schema() as update:
        update.rename_column("c", "c2")
        update.drop_column("d")
    table.add_columns({"c": pa.string()})
    rows = table.scan(filter="c2 = -45").to_arrow().to_pylist()
    assert rows == [{"a": 45, "b": 1.0, "s": {"x": "x45"}, "c2": -45, "c": None}]
    inner = pa.schema([("t", pa.struct([("p", pa.int32()), ("q", pa.string())]))])
    table.add_columns_with(
        lambda rows: pa.StructArray.from_arrays(
            [rows["c2"].cast(pa.int32()), pc.cast(rows["a"], pa.string())], ["p", "q"]
        ),
        read=["c2", "a"],
        schema=inner,
    )
    with table.update_schema() as update:
        update.alter_column(("t", "p"), type=pa.int64())
        update.rename_column(("t", "q"), "r")
        update.add_column(("t", "z"), pa.float64())
    scan = table.scan(columns=["t.r", "a"], filter="t.p = -45")
    assert scan.to_arrow().to_pylist() == [{"t": {"r": "45"}, "a": 45}]
    assert table.scan(filter="t.p > 0").entries[0] == []
    assert table.scan(columns=["t"], filter="a = 1").to_arrow().to_pylist() == [
        {"t": {"p": -1, "r": "1", "z": None}}
    ]
    table.fill_columns({"_row_id": [1], "t": [{"p": 2**40, "r": "new", "z": 0.5}]})
    assert table.scan(columns=["a"], filter="t.p > 0").to_arrow().to_pylist() == [{"a": 1}]
    before = table.scan().to_arrow()
    table.compact(column_files_max=0)
    assert table.scan().to_arrow() == before
    assert not any(entry.column_files for entry in table.scan().entries[0])


def test_batches_stay_batches(tmp_path: Path) -> None:
    table = made(tmp_path / "t", in_batches=True)
    assert table.scan(columns=["c"], batch_id=11).to_arrow()["c"].to_pylist() == [
        -a for a in range(60, 80)
    ]
    rows = (
        table.scan(batch_id=10, columns=["batch_id", "index_in_batch", "c"]).to_arrow().to_pylist()
    )
    assert [row["c"] for row in rows] == [-a for a in range(40, 60) if a not in (50, 51)]
    split = table.scan().plan().splits[1]
    reader = table.scan(columns=["c"]).reader
    found = [reader.batches(each, rows=None) for each in (split, *split.column_files)]
    rows = [(ids.tolist(), lengths.tolist()) for ids, lengths in found]
    assert rows == [([10, 11], [18, 20]), *[([10, 11], [20, 20])] * 2]  # two rows are deleted
    table.compact(column_files_max=0)
    assert table.scan(columns=["c"], batch_id=11).to_arrow()["c"].to_pylist() == [
        -a for a in range(60, 80)
    ]


def test_packed_manifests_tell_of_column_files(tmp_path: Path, table: Table) -> None:
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 1),
    ):
        packed = made(tmp_path / "t")
    assert {each.kind for each in packed.snapshot.manifests} == {"packed"}
    for columns, condition, files, _ in QUERIES:
        scan = packed.scan(columns=columns, filter=condition, threads=1)
        assert scan.to_arrow() == table.scan(columns=columns, filter=condition).to_arrow()
        assert scan.io_stats["files"] <= files
    assert packed.verify(data=True).ok


def scan_of(table: Table, state: snapshot.Snapshot) -> Scan:
    schemas = SchemaVersions(table.store, table.snapshot)
    return Scan(store=table.store, snapshot=state, schemas=schemas, table_schema=table.schema)


def _changed(entry: Any, **changes: Any) -> Any:
    first, *others = entry.column_files
    return msgspec.structs.replace(
        entry, column_files=(msgspec.structs.replace(first, **changes), *others)
    )


HOSTILE = {
    "rows": ({"rows": 41}, "column files of 40 rows"),
    "unknown field": ({"fields": ((5, 9),)}, "a field with id 7"),
    "no fields": ({"fields": ()}, "a column file without fields"),
    "runs backwards": ({"fields": ((6, 5),)}, "fields from id 6 to 5"),
    "endless runs": ({"fields": ((5, 2**62),)}, "a field with id 7"),
    "another file": ({"file_id": "0" * 32}, "another file"),
    "a way out": ({"path": "../x.fermion"}, "within the table's directory"),
    "foreign": ({"path": "", "external_path": "/etc/passwd"}, "outside of the table"),
    "unknown schema": ({"schema_id": 77}, "no id 77"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_column_files_are_refused(table: Table, name: str) -> None:
    changes, message = HOSTILE[name]
    entries = [_changed(entry, **changes) for entry in table.scan().entries[0]]
    bad = msgspec.structs.replace(table.snapshot, manifests=(), tail=tuple(entries))
    with pytest.raises((CorruptMetadata, UnsafeStorage), match=message):
        scan_of(table, bad).to_arrow()


def test_column_files_need_their_feature_no_bucket_and_different_names(table: Table) -> None:
    bare = msgspec.structs.replace(table.snapshot, reader_features=())
    with pytest.raises(CorruptMetadata, match="reader feature 'column-files'"):
        snapshot.encode_snapshot(bare)
    (entry, *_) = table.scan().entries[0]
    twice = msgspec.structs.replace(entry, column_files=entry.column_files[:1] * 2)
    keyed = msgspec.structs.replace(entry, bucket=0)
    for bad, message in ((twice, "different paths"), (keyed, "no column files in a primary-key")):
        state = msgspec.structs.replace(table.snapshot, manifests=(), tail=(bad,))
        with pytest.raises(CorruptMetadata, match=message):
            scan_of(table, state).to_arrow()
    data = snapshot.encode_snapshot(table.snapshot)
    with (
        mock.patch.object(snapshot, "KNOWN_READER_FEATURES", frozenset({"primary-key"})),
        pytest.raises(UnsupportedFeature, match="column-files"),
    ):
        snapshot.decode_snapshot(data, "old reader")


def test_a_table_without_column_files_is_written_as_before(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append({"a": [1]})
    assert b"column_files" not in Path(table.location, "snapshot", f"{1:020}.json").read_bytes()
    assert table.snapshot.reader_features == ()
    packed = manifest_store.packed_table(table.snapshot.tail)
    assert "column_files" not in packed.schema.names
