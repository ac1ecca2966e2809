"""Deletion vectors with every merge engine: rows of old files are merged, and marked there."""

from __future__ import annotations

from typing import Any

import pytest

from fermion_table import Table
from fermion_table.engine import FileSplit
from fermion_table.metadata.manifest import Entry
from tests.kit.tables.runs import entries, expected, shown, table_of, write_run

MANY = 3_000
MARKING = {"deletion_vectors.enabled": "true", "bucket": "1", "target_file_size": "4kb"}
SUM = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"}
BY_SEQUENCE = {"sequence.field": "s"}
OLD = [{"k": k, "p": None, "s": 5, "v": k**5 % 99991} for k in range(MANY)]

# Settings; newer rows; how many of the old rows are marked then.
CASES: dict[str, tuple[dict[str, str], list[dict[str, Any]], int]] = {
    "deduplicate": ({}, [{"k": 1, "v": 7}, {"k": 2, "_kind": "-D"}, {"k": MANY, "v": 8}], 2),
    "late rows lose": (BY_SEQUENCE, [{"k": 1, "s": 4, "v": 7}, {"k": 2, "s": 3, "_kind": "-D"}], 0),
    "some are late": (
        BY_SEQUENCE,
        [{"k": 1, "s": 4}, {"k": 1, "s": 6, "v": 7}, {"k": 2, "s": 5, "_kind": "-D"}, {"k": 3}],
        2,
    ),
    "first_row": ({"merge_engine": "first_row"}, [{"k": 1, "v": 7}, {"k": MANY, "v": 8}], 0),
    "partial_update": ({"merge_engine": "partial_update"}, [{"k": 1, "p": 4}, {"k": 2, "v": 1}], 2),
    "partial_update removes": (
        {"merge_engine": "partial_update", "partial_update.remove_record_on_delete": "true"},
        [{"k": 1, "p": 4}, {"k": 2, "_kind": "-D"}, {"k": 3, "_kind": "-D"}, {"k": 3, "p": 1}],
        3,
    ),
    "aggregation": (SUM, [{"k": 1, "v": 7}, {"k": 1, "v": 1}, {"k": 2, "v": 5, "_kind": "-D"}], 2),
}


def marking(path: Any, **properties: str) -> Table:
    """Return a table with the old rows in several large files of the top level."""
    table = table_of(path, {**MARKING, **properties})
    write_run(table, OLD)
    table.compact(full=True)
    return table


def levels(table: Table) -> dict[int, list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for entry in entries(table):
        found.setdefault(entry.level, []).append(entry)
    return found


@pytest.mark.parametrize("case", CASES)
def test_old_rows_are_merged_and_marked_where_they_are(case, tmp_path):
    properties, new, marked = CASES[case]
    table = marking(tmp_path / "t", **properties)
    before = {entry.file for entry in entries(table)}
    assert len(before) > 2
    write_run(table, new)
    rows = expected(table, [*OLD, *new])
    assert shown(table) == rows
    table.compact()
    assert shown(table) == rows
    found = levels(table)
    assert {entry.file for entry in found[max(found)]} == before  # none was written again
    assert sum(entry.delete_rows for entry in found.pop(max(found))) == marked
    assert 0 not in found
    scan = table.scan(columns=["k"], filter="v >= 0")
    assert scan.to_arrow().num_rows == scan.count() == sum(row["v"] is not None for row in rows)
    raw = [split for split in scan.plan().splits if isinstance(split, FileSplit)]
    assert len(raw) >= len(before)
    for split in raw:
        assert set(scan.reader.plan(split).columns) == {("k",)}
        assert scan.reader.plan(split).pushed is not None
    if case != "some are late":  # keeps a deletion, as earlier rows may come yet
        assert "merge: 0 of" in scan.explain()
    write_run(table, [{"k": 2, "s": 6, "v": 1}, {"k": 3, "s": 1, "v": 2}])
    rows = expected(table, [*OLD, *new, {"k": 2, "s": 6, "v": 1}, {"k": 3, "s": 1, "v": 2}])
    for is_full in (False, True):
        table.compact(full=is_full)
        assert shown(table) == rows
        assert table.lookup(range(5)).to_pylist() == [row for row in rows if row["k"] < 5]
    assert not any(entry.delete_rows for entry in entries(table))
    assert table.verify(data=True).ok


def test_rows_that_are_kept_for_late_ones_lie_in_one_file(tmp_path):
    """A sum takes a value back that an older level holds; a later row may come before both."""
    settings = {**SUM, **BY_SEQUENCE, "fields.p.aggregate_function": "last_value"}
    table = marking(tmp_path / "t", **settings)
    rows = list(OLD)
    for new in (
        [{"k": 1, "s": 9, "v": 3, "p": 1, "_kind": "-D"}],
        [{"k": 1, "s": 7, "v": 5, "p": 2}, {"k": 2, "s": 1, "v": 1, "p": 8}],
        [{"k": 1, "s": 10, "v": 2, "p": 3}, {"k": 1, "s": 8, "v": 2, "p": 3, "_kind": "-U"}],
    ):
        write_run(table, new)
        rows += new
        table.compact()
        assert shown(table) == expected(table, rows)
        assert 0 not in levels(table)
        holding = [entry for entry in entries(table) if entry.retractions and entry.live_rows]
        assert len(holding) == 1
    assert holding[0].keys_repeated


def test_a_new_file_without_older_rows_moves_up_as_it_is(tmp_path):
    table = marking(tmp_path / "t", **SUM)
    far = [{"k": k, "s": 1, "v": k**5 % 99991} for k in range(MANY, 2 * MANY)]
    write_run(table, [*far, {"k": 1, "v": 1}])
    result = table.compact()
    assert result.files_upgraded > 0
    assert shown(table) == expected(table, [*OLD, *far, {"k": 1, "v": 1}])
