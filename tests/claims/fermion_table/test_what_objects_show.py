"""What `repr`, HTML and `explain` show of objects of a table with ten thousand columns: little."""

from __future__ import annotations

import dataclasses
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import fermion
import fermion_table
from fermion_table import Catalog, Table
from fermion_table.engine import SchemaUpdate, stage_table

COLUMNS = 10_000
ROWS = 64
REPR_LENGTH_MAX = 1_200
LINE_LENGTH_MAX = 320
HTML_LENGTH_MAX = 40_000
SCRIPT = "<script>alert('&')</script>"
LONG = "x" * 5_000
NUMBERS_ALONE = {
    "BatchRange",
    "ColumnStatistics",
    "Effort",
    "FilePruning",
    "IoStats",
    "MergeCounts",
    "ReadOptions",
}
"""Classes of a few numbers, whose generated `repr` is short."""


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Some rows: names that are HTML, or long, a wide struct, many plain columns."""
    plain = pa.array(range(ROWS), pa.int32())
    nested = pa.StructArray.from_arrays(
        [plain] * 300, names=[f"n{number}" for number in range(300)]
    )
    columns = [plain, plain, nested, pa.nulls(ROWS, pa.list_(nested.type))]
    names = [SCRIPT, LONG, "struct", "list"]
    return pa.table(
        [*columns, *[plain] * COLUMNS], names=[*names, *(f"c{n}" for n in range(COLUMNS))]
    )


def objects_of_files(directory: Path, rows: pa.Table) -> list[Any]:
    """What a file, its writer and options give."""
    encodings = dict.fromkeys(rows.column_names, "plain")
    options = fermion.WriteOptions(encodings=encodings, sorted_by=["c0"], codec="lz4")
    path = directory / "wide.fermion"
    info = fermion.write_table(rows, path)
    file = fermion.open(path)
    column = file.column("struct")
    closed = fermion.open(path)
    closed.close()
    in_many_values = fermion.col("c0").isin(range(10_000))
    report = fermion.VerifyReport(LONG, (SCRIPT,) * 1_000, 5, 5, 5)
    return [
        info,
        file,
        closed,
        column,
        column.streams[0],
        column.streams[0].chunks[0],
        file.io_stats,
        file.prune("c0 = 1", columns=["c0"]),
        report,
        options,
        fermion.SortKey(LONG),
        fermion.ReadOptions(),
        in_many_values,
        in_many_values & (fermion.col("c1") > 5),
    ]


def objects_of_tables(directory: Path, rows: pa.Table) -> list[Any]:
    """What a table and a catalog give, at each step of reading and writing."""
    path = directory / LONG[:200]
    table = Table.create(path, rows.schema, durability="fast", message=LONG)
    table.append(rows, message=SCRIPT, properties=dict.fromkeys(map(str, range(500)), LONG))
    before = table.snapshot
    with table.writer() as writer:
        writer.write(rows)
        messages = writer.prepare_commit()
        after = table.commit(messages, commit_user="me", commit_identifier=LONG)
    table.tags.create("t" * 100)
    table.branches.create("side", message=LONG)
    scan = table.scan(columns=rows.column_names[2:], filter=fermion.col("c0").isin(range(5_000)))
    changes = table.scan_changes(before.id)
    difference = table.diff(before.id, after.id)
    catalog = Catalog.open(directory / "warehouse", durability="fast")
    catalog.create_table("db.t", pa.schema([("a", pa.int64())]))
    kept = catalog.snapshots.create("kept", message=LONG)
    plan = scan.plan()
    updating = table.update_schema()
    staged = stage_table(directory / "staged", rows.schema)
    schema = table.schema
    listed = [
        *(table, table.snapshot, schema, *schema.fields[:5], table.history(), messages[0]),
        *(messages[0].entries[0], *table.tags.list(), *table.branches.list(), scan, plan),
        *(
            plan.splits,
            plan.splits[0],
            scan.reader,
            changes,
            changes.plan(),
            changes.plan().splits[0],
        ),
        *(difference, difference.files_added[0], table.merge(rows, ["c0"])),
        *(table.compact(dry_run=True), table.expire_snapshots(dry_run=True), catalog, kept, staged),
        *(
            catalog.snapshots,
            table.tags,
            table.branches,
            plan.explain(),
            writer,
            updating,
            table.store,
            table.inspect,
            staged.definition,
        ),
        fermion_table.MaintenanceResult(paths=(LONG,) * 10_000),
        fermion_table.RepairResult(actions=(LONG,) * 99, problems=(SCRIPT,) * 99, dry_run=True),
        fermion_table.engine.DroppedTable(files=1, bytes=1, left=(SCRIPT,) * 9_999, location=LONG),
        fermion_table.engine.CompactionGroup(messages[0].entries * 1_000),
        fermion_table.engine.CommitMetadata(message=LONG, properties={LONG: LONG}),
        fermion_table.StorageAccess(allowed_roots=[f"/{number}" for number in range(1_000)]),
        fermion_table.WriteSettings(file_options=fermion.WriteOptions(bloom_filters=["a"] * 9_999)),
    ]
    assert isinstance(updating, SchemaUpdate)
    return listed


class Tags(HTMLParser):
    """The tags and the text of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_repr_is_short_and_html_is_escaped_however_wide_the_table_is(tmp_path, rows):
    """Every public object that a file, a table and a catalog give."""
    with_html = set()
    for each in (*objects_of_files(tmp_path, rows), *objects_of_tables(tmp_path, rows)):
        name = type(each).__name__
        text = repr(each)
        assert len(text) <= REPR_LENGTH_MAX, f"{name}: {text[:500]}"
        assert max(map(len, text.splitlines())) <= LINE_LENGTH_MAX, f"{name}: {text}"
        if hasattr(each, "_repr_html_"):
            with_html.add(name)
            html = each._repr_html_()
            assert len(html) <= HTML_LENGTH_MAX, name
            assert Tags(html).tags <= {
                "pre",
                "div",
                "b",
                "table",
                "thead",
                "tbody",
                "tr",
                "th",
                "td",
            }
    wanted = {"Branches", "CatalogSnapshots", "ShownText", "TableDiff", "Tags"}
    wanted |= {"FermionFile", "HistoryLog", "Scan", "Snapshot", "Table", "TableSchema"}
    assert wanted <= with_html
    assert SCRIPT in Tags(Table.open(tmp_path / LONG[:200]).schema._repr_html_()).text


def test_explain_is_short_however_many_columns_and_values_are_asked_for(tmp_path, rows):
    """The first columns, the beginning of the filter."""
    table = Table.create(tmp_path / "t", rows.schema, durability="fast")
    text = table.scan(filter=fermion.col("c0").isin(range(5_000))).explain()
    assert len(text) < 2_000
    assert "... 9,994 more columns" in text
    assert repr(text) == str(text)
    assert text.count("\n") == text._repr_html_().count("\n") > 3


@pytest.mark.parametrize("package", [fermion, fermion_table, fermion_table.engine])
def test_no_public_class_of_values_has_the_repr_that_is_generated(package):
    """That one shows every field in full; a new class gets `short_repr`."""
    generated = [
        name
        for name in package.__all__
        if inspect.isclass(kind := getattr(package, name))
        and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))
        and (hasattr(kind.__repr__, "__wrapped__") or not inspect.isfunction(kind.__repr__))
        and name not in NUMBERS_ALONE
    ]
    assert generated == []


def test_a_short_repr_names_what_is_set_and_shows_no_credentials():
    """Defaults are left out; of a collection the first items and how many follow."""
    info = fermion.FileInfo(
        path="s3://key:secret@bucket/a?token=b",
        size=5,
        tail_length=4,
        num_rows=3,
        num_columns=2,
        num_stripes=1,
        columns_with_data=frozenset(),
        statistics={},
        sort_order=(fermion.SortKey("a", descending=True),),
    )
    assert re.sub(r"\s+", " ", repr(info)) == (
        "FileInfo( path='s3://bucket/a?...', size=5, tail_length=4, num_rows=3, num_columns=2, "
        "num_stripes=1, sort_order=(SortKey(name='a', descending=True),) )"
    )
    options = fermion.WriteOptions(bloom_filters=["a", "b", "c", "d"])
    assert repr(options) == ("WriteOptions(bloom_filters=('a', 'b', 'c', ... 1 more))")


def test_rows_that_are_deleted_are_not_counted_as_rows(tmp_path):
    table = Table.create(tmp_path / "t", {"a": range(10)})
    table.delete("a < 3")
    assert table.snapshot.totals.files == 1, "a deletion vector, the rows are stored still"
    totals = table.snapshot.totals
    assert (totals.rows, totals.rows_deleted, totals.live_rows) == (10, 3, 7)
    assert "snapshot 2: 7 rows in 1 file" in repr(table)
    assert ", 7 rows in 1 files>" in repr(table.snapshot)
    assert "10" not in repr(table).rpartition("snapshot")[2]


def test_rows_of_a_primary_key_table_are_said_to_be_stored(tmp_path):
    table = Table.create(tmp_path / "k", {"a": [1, 2]}, primary_key="a")
    table.upsert({"a": [1]})
    for each in (table, table.snapshot):
        assert "3 stored rows in 2 files" in repr(each)
        assert "stored rows" in each._repr_html_()
