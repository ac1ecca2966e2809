"""Updates of whole columns: written beside the data files where that costs less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion import col
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table
from fermion_table.metadata.snapshot import COLUMN_FILES

SCHEMA = pa.schema([("id", pa.int64()), *((f"f{number}", pa.float64()) for number in range(8))])


def rows(first: int, count: int) -> dict[str, Any]:
    ids = list(range(first, first + count))
    features = {f"f{number}": [each + number / 10 for each in ids] for number in range(8)}
    return {"id": ids, **features}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files of ten rows; the first has lost row 3."""
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(0, 10))
    table.append(rows(10, 10))
    table.delete("id = 3")
    return table


def values(table: Table, name: str) -> dict[int, Any]:
    found = table.scan(columns=["id", name]).to_arrow().to_pydict()
    return dict(zip(found["id"], found[name], strict=True))


IDS = [each for each in range(20) if each != 3]
ASSIGNMENTS: dict[str, tuple[Any, dict[int, Any]]] = {
    "a value": (7, dict.fromkeys(IDS, 7.0)),
    "null": (None, dict.fromkeys(IDS)),
    "another column": (col("f1"), {each: each + 0.1 for each in IDS}),
    "an expression": (pc.field("id") * 2, {each: 2.0 * each for each in IDS}),
    "a function": (lambda batch: pc.negate(batch["f0"]), {each: -1.0 * each for each in IDS}),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_all_rows_of_few_columns_are_set_beside_the_data_files(table: Table, name: str) -> None:
    """No data file is written again; row ids, other columns, history and pruning stay right."""
    value, expected = ASSIGNMENTS[name]
    before = table.snapshot
    ids = values(table, "_row_id")
    files = {each.file for each in table.scan().entries[0]}
    snapshot = table.update("TRUE", {"f0": value})
    assert values(table, "f0") == expected
    assert {each.file for each in table.scan().entries[0]} == files
    assert [len(each.column_files) for each in table.scan().entries[0]] == [1, 1]
    assert COLUMN_FILES in snapshot.reader_features
    assert snapshot.kind == "upsert"
    assert values(table, "_row_id") == ids
    assert values(table, "f7") == {each: each + 0.7 for each in IDS}
    assert table.scan(filter="f0 = 7", columns=["id"]).count() == (
        19 if name == "a value" else 1 if name != "null" and 7.0 in expected.values() else 0
    )
    assert table.scan_changes(before.id, columns=["f7"]).count() == 0
    assert table.scan(snapshot_id=before.id).to_arrow()["f0"].to_pylist() == [float(i) for i in IDS]
    assert table.verify(data=True).ok


def test_rows_that_are_not_all_of_a_file_are_written_again(table: Table) -> None:
    """The first file loses some rows to a new one, the second one gets a column file."""
    table.update("id >= 8", {"f0": -1})
    assert sorted(len(each.column_files) for each in table.scan().entries[0]) == [0, 0, 1]
    assert values(table, "f0") == {each: -1.0 if each >= 8 else float(each) for each in IDS}
    table.update("TRUE", dict.fromkeys(["f0", "f1", "f2"], 0))  # a third of the columns
    assert not any(each.column_files for each in table.scan().entries[0])
    assert set(values(table, "f2").values()) == {0.0}
    assert table.verify(data=True).ok


def test_a_transaction_goes_on_with_the_columns(table: Table) -> None:
    with table.transaction() as changes:
        changes.append(rows(20, 2))
        changes.update("TRUE", {"f0": 1})
        changes.update("TRUE", {"f0": col("f1")})
        changes.delete("f0 > 18 AND f0 < 20")
        changes.update("id = 5", {"f0": 50})
    expected = {each: each + 0.1 for each in [*IDS, 20, 21]} | {5: 50}
    del expected[18], expected[19]
    assert values(table, "f0") == expected
    assert table.verify(data=True).ok
    table.compact(column_files_max=0)
    assert values(table, "f0") == expected


def test_another_commit_comes_first(table: Table) -> None:
    """A delete in the same file: set again without the row. An append: its rows are set, too."""
    with table.transaction() as changes:
        changes.update("TRUE", {"f0": pc.field("id") * 2})
        other = Table.open(table.location, durability="fast")
        other.delete("id = 5")
        other.append(rows(30, 2))
    expected = {each: 2.0 * each for each in [*IDS, 30, 31] if each != 5}
    assert values(table, "f0") == expected
    live = {each.path for entry in table.scan().entries[0] for each in entry.column_files}
    stored = {each.path for each in table.store.list("data") if "/columns-" in each.path}
    assert stored == live
    assert table.verify(data=True).ok


def test_values_that_do_not_fit_publish_nothing(table: Table) -> None:
    before = table.snapshot
    with pytest.raises(SchemaMismatch, match="f0"):
        table.update("TRUE", {"f0": lambda batch: pa.array(["x"] * batch.num_rows)})
    with pytest.raises(InvalidArgumentError, match="found 1 values for"):
        table.update("TRUE", {"f0": lambda batch: [1.0]})
    with pytest.raises(ZeroDivisionError):
        table.update("TRUE", {"f0": lambda batch: 1 / 0})
    assert Table.open(table.location).snapshot == before
    assert not any("/columns-" in each.path for each in table.store.list("data"))


def test_columns_that_place_rows_and_required_ones_of_files_with_deletions(tmp_path: Path) -> None:
    """The rows are written again: elsewhere, or because a deleted row has no value."""
    fields = [pa.field("id", pa.int64(), nullable=False), *list(SCHEMA)[1:]]
    table = Table.create(
        tmp_path / "t", pa.schema(fields), partition_by=["f7"], sort_by=["f6"], durability="fast"
    )
    table.append({**rows(0, 4), "f7": [1.0] * 4})
    for name, value in (("f7", 2.0), ("f6", 5.0)):
        table.update("TRUE", {name: value})
        assert not any(each.column_files for each in table.scan().entries[0])
    table.update("TRUE", {"id": 1})
    assert all(each.column_files for each in table.scan().entries[0])
    with pytest.raises(SchemaMismatch, match="id"):
        table.update("TRUE", {"id": None})
    table.delete("f1 < 1")
    table.update("TRUE", {"id": 2})
    assert not any(each.column_files for each in table.scan().entries[0])
    assert table.scan(columns=["id", "f7"]).to_arrow().to_pylist() == [{"id": 2, "f7": 2.0}] * 3


def test_batches_keep_their_rows(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append_batches([(7, rows(0, 3)), (8, rows(3, 5))])
    table.update("TRUE", {"f0": pc.field("id") * 2})
    assert all(each.column_files for each in table.scan().entries[0])
    assert table.lookup_batch(8)["f0"].to_pylist() == [2.0 * each for each in range(3, 8)]
    assert table.verify(data=True).ok


def test_files_that_were_appended_later_get_the_values_of_a_computed_column(table: Table) -> None:
    """Only their column is written; the other files stay as they are."""
    twice = pc.field("id") * 2
    table.add_columns_with({"g": twice}, read=["id"], schema=pa.schema([("g", pa.int64())]))
    before = {each.file: each for each in table.scan().entries[0]}
    table.append(rows(20, 5))
    table.update("g IS NULL", {"g": twice})
    assert values(table, "g") == {each: 2 * each for each in [*IDS, *range(20, 25)]}
    entries = {each.file: each for each in table.scan().entries[0]}
    assert {file: entries[file] for file in before} == before
    (added,) = entries.keys() - before.keys()
    assert len(entries[added].column_files) == 1
