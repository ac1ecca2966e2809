"""Compactions that mark rows as deleted, beside other commits: both stand, or nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fermion_table import Table
from fermion_table.compaction import marking
from fermion_table.engine import compact_group
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash, CrashingStore
from tests.kit.tables.runs import entries, expected, shown, table_of, write_run

MARKING = {"deletion_vectors.enabled": "true", "bucket": "1", "target_file_size": "2kb"}
REMOVING = "partial_update.remove_record_on_delete"
SUM = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "s"},
    "first_row": {"merge_engine": "first_row"},
    "partial_update": {"merge_engine": "partial_update", REMOVING: "true"},
    "sum": SUM | {"aggregation.remove_record_on_delete": "true"},
}
OLD = [{"k": k, "p": None, "s": 5, "v": k**5 % 99991} for k in range(800)]
NEW = [{"k": 1, "s": 6, "v": 1}, {"k": 2, "s": 4, "v": 2}, {"k": 900, "s": 1, "v": 3}]


def marked(path: Path, engine: str = "deduplicate") -> Table:
    """Return a table with old rows at the top level, and newer ones at level 0."""
    table = table_of(path, MARKING | ENGINES[engine])
    write_run(table, OLD)
    table.compact(full=True)
    write_run(table, NEW)
    return table


def vectors(table: Table) -> tuple[set[str], set[str]]:
    """Return the files of deletion vectors that there are, and those that are needed."""
    folder = Path(table.location) / "deletion"
    there = {f"deletion/{path.name}" for path in folder.iterdir()} if folder.exists() else set()
    return there, {each.deletion_vector.path for each in entries(table) if each.deletion_vector}


def compacted(table: Table, between: Callable[[], Any]) -> int:
    """Plan and rewrite, let others commit, then commit; return how many groups were dropped."""
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction()]
    between()
    return table.commit_compaction(messages, base).groups_dropped


@pytest.mark.parametrize("engine", ENGINES)
def test_an_upsert_between_plan_and_commit_is_merged_with_what_was_marked(engine, tmp_path):
    """It has keys that the compaction has marked, and keys that it has written."""
    table = marked(tmp_path / "t", engine)
    late = [{"k": 1, "s": 6, "v": 7}, {"k": 2, "s": 7, "v": 8}, {"k": 3, "s": 4, "v": 9}]
    if engine != "first_row":
        late += [{"k": 900, "s": 2, "_kind": "-D"}, {"k": 4, "s": 9, "_kind": "-D"}]
    assert compacted(table, lambda: write_run(table, late)) == 0
    rows = expected(table, [*OLD, *NEW, *late])
    assert shown(table) == rows
    assert table.lookup([1, 2, 3, 4, 900]).to_pylist() == [
        row for row in rows if row["k"] in (1, 2, 3, 4, 900)
    ]
    for _ in range(2):
        table.compact()
        assert shown(table) == rows
    table.compact(full=True)
    assert shown(table) == rows
    assert not any(entry.deletion_vector for entry in entries(table))


@pytest.mark.parametrize("engine", ["deduplicate", "partial_update", "sum"])
def test_rows_that_a_filter_deletes_meanwhile_stay_deleted(engine, tmp_path):
    """The filter selects rows that the compaction marks, writes, and leaves alone."""
    table = marked(tmp_path / "t", engine)
    other = Table.open(table.location, durability="fast")
    gone = "k IN (1, 3, 900)"
    assert compacted(table, lambda: other.delete(gone)) == 0
    rows = [row for row in expected(table, [*OLD, *NEW]) if row["k"] not in (1, 3, 900)]
    for is_full in (False, False, True):
        assert shown(table) == rows
        table.compact(full=is_full)
    assert shown(table) == rows
    assert table.scan(mode="read_optimized").count() == len(rows)


def test_a_delete_decides_again_only_if_keys_were_written(tmp_path):
    """A compaction changes no row: a delete that has read what it marks stands."""
    table = marked(tmp_path / "t")
    with table.transaction() as transaction:
        transaction.delete("v = 1")
        Table.open(table.location, durability="fast").compact()
    rows = [row for row in expected(table, [*OLD, *NEW]) if row["v"] != 1]
    assert shown(table) == rows
    table.compact()
    assert shown(table) == rows


@pytest.mark.parametrize("change", ["overwrite", "restore", "compact"])
def test_marks_on_files_that_others_replaced_are_dropped(change, tmp_path):
    table = marked(tmp_path / "t")
    other = Table.open(table.location, durability="fast")
    changes: dict[str, Callable[[], Any]] = {
        "overwrite": lambda: other.overwrite(other.scan(filter="k < 3").to_arrow()),
        "restore": lambda: other.restore(2),
        "compact": lambda: other.compact(full=True),
    }
    assert compacted(table, changes[change]) == 1
    rows = expected(table, [*OLD, *NEW] if change != "restore" else OLD)
    assert shown(table) == [row for row in rows if change != "overwrite" or row["k"] < 3]
    there, needed = vectors(table)
    assert there == needed == set()
    assert table.verify(data=True).ok


def test_a_failure_of_marking_leaves_no_files(tmp_path, monkeypatch):
    table = marked(tmp_path / "t", "sum")
    before = {path for path in Path(table.location).rglob("*") if path.is_file()}

    def fail(*arguments: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(marking, "write_vectors", fail)
    with pytest.raises(OSError, match="the disk is full"):
        table.compact()
    assert {path for path in Path(table.location).rglob("*") if path.is_file()} == before


def test_a_crash_leaves_all_marks_or_none(tmp_path):
    template = marked(tmp_path / "template", "sum")
    rows, before = shown(template), [entry.file for entry in entries(template)]
    outcomes = []
    for calls in range(1, 100):
        shutil.copytree(template.location, tmp_path / f"{calls}")
        table = Table.open(tmp_path / f"{calls}", durability="fast")
        store = CrashingStore(LocalStore(table.location, durability="fast"), 10**9)
        crashing = Table(store, table.snapshot)
        store.calls_left = calls
        try:
            crashing.compact(threads=1)
        except Crash:
            assert shown(table) == rows
            assert table.verify(data=True).ok
            outcomes.append([entry.file for entry in entries(table)] != before)
            assert vectors(table)[1] <= vectors(table)[0]
            assert bool(vectors(table)[1]) == outcomes[-1]
            continue
        break
    assert {False, True} == set(outcomes)
    assert outcomes == sorted(outcomes)
