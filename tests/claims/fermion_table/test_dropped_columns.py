"""Changes over columns that were dropped and came back with a restore, whatever was compacted."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.change_feed import change_plan
from tests.kit.tables.change_histories import KINDS
from tests.kit.tables.keyed_versions import replayed

SCHEMA = pa.schema([("p", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])
ADDED = {"s": pa.string(), "n": pa.struct({"a": pa.int64(), "b": pa.string()})}
EXACT = sorted(KINDS.keys() - {"input"})
"""Kinds of tables whose changes say what became of each row."""


def make(path: Path, kind: str) -> Table:
    """Return a table with the columns p, k, v, s and n, of which s has a default."""
    settings = KINDS[kind]
    keyed: dict[str, Any] = {}
    if settings is not None:
        keyed = {"primary_key": ["p", "k"], "properties": {"bucket": "1", **settings}}
    table = Table.create(path, SCHEMA, partition_by=["p"], durability="fast", **keyed)
    table.append(rows(table, random.Random(0)))
    table.add_columns(ADDED, defaults={"s": "-"})
    table.append(rows(table, random.Random(1)))
    return table


def rows(table: Table, chosen: random.Random) -> pa.Table:
    """Return a few rows of the columns that a table has now."""
    count = chosen.randint(1, 6)
    texts = [chosen.choice("xyz") for _ in range(count)]
    numbers = [chosen.randint(0, 3) for _ in range(count)]
    columns = {
        "p": [chosen.randint(0, 1) for _ in range(count)],
        "k": [chosen.randint(0, 6) for _ in range(count)],
        "v": numbers,
        "s": texts,
        "n": [{"a": number, "b": text} for number, text in zip(numbers, texts, strict=True)],
    }
    arrow = table.schema.to_arrow(field_ids=False)
    arrays = []
    for field in arrow:
        values = columns[field.name]
        if field.name == "n":
            names = [child.name for child in field.type]
            values = [{name: value[name] for name in names} for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=arrow)


def commit(table: Table, kind: str, chosen: random.Random) -> None:
    """Commit something: mostly what has to do with columns."""
    names = table.schema.by_name
    what = chosen.choice(["append", "append", "drop", "drop", "compact", "restore", "delete"])
    if what == "append":
        table.append(rows(table, chosen))
    elif what == "compact":
        table.compact(**({} if KINDS[kind] is None else {"full": True}))
    elif what == "restore":
        table.restore(chosen.randint(3, table.snapshot.id))
    elif what == "delete" and kind != "first_row":
        table.delete(f"k = {chosen.randint(0, 6)}")
    elif what == "drop" and "s" in names and chosen.random() < 0.5:
        table.drop_columns("s")
    elif what == "drop" and "n" in names:
        is_whole = len(names["n"].children) == 1 or chosen.random() < 0.5
        table.drop_columns("n" if is_whole else [("n", chosen.choice("ab"))])


def check(table: Table, first: int, last: int, **words: Any) -> None:
    """The changes from one version to another, applied to its rows, give the rows of the other."""
    end = Table.open(table.location, version=last, durability="fast")
    before = end.scan(snapshot_id=first, schema="current", **words).to_arrow().to_pylist()
    after = end.scan(**words).to_arrow().to_pylist()
    changes = table.scan_changes(first, last, **words)
    found = changes.to_arrow().to_pylist()
    reader = changes.reader
    divided = [row for split in changes.plan().splits for row in rows_of(reader.read(split))]
    assert sorted(map(repr, divided)) == sorted(map(repr, found))
    if table.schema.primary_key:
        assert shown(replayed(before, found, ["p", "k"])) == shown(after)
        return
    left = Counter(map(repr, before))
    for row in found:
        kind, *_ = (row.pop(name) for name in list(row) if name.startswith("_c"))
        left[repr(row)] += 1 if kind == "insert" else -1
        assert left[repr(row)] >= 0
    assert +left == Counter(map(repr, after))


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def shown(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.long
@pytest.mark.parametrize("kind", EXACT)
def test_each_change_finds_the_row_that_earlier_ones_made(kind, table_path, monkeypatch):
    """Between versions of a random history; also as tasks read it."""
    monkeypatch.setattr(change_plan, "SPLIT_BYTES", 1)
    chosen = random.Random(EXACT.index(kind))
    table = make(table_path, kind)
    for _ in range(4):
        commit(table, kind, chosen)
    table.restore(3)
    drop_and_restore(table)
    for _ in range(4):
        commit(table, kind, chosen)
    table.restore(3)
    last = table.snapshot.id
    for _ in range(3):
        first = chosen.randint(0, last)
        check(table, first, chosen.randint(first, last))
    check(table, 1, last)
    check(table, 1, last, filter="v > 0 AND k < 5")


def drop_and_restore(table: Table) -> None:
    """Drop a column, write, compact (other rows, too) and go back to the version before."""
    first = table.snapshot.id
    table.drop_columns("s")
    table.append(pa.table({"p": [0, 0, 1, 1], "k": [0, 6, 0, 6], "v": [9] * 4}))
    table.compact(full=True) if table.schema.primary_key else table.compact()
    table.restore(first)


@pytest.mark.parametrize("kind", EXACT)
def test_a_column_is_gone_in_all_rows_while_it_was_dropped(kind, table_path):
    """Whether their file was written again since then or not."""
    table = make(table_path, kind)
    first = table.snapshot.id
    drop_and_restore(table)
    for number in range(first + 1, first + 4):
        scan = table.scan(snapshot_id=number, schema="current", columns=["s"])
        assert set(scan.to_arrow()["s"].to_pylist()) <= {"-"}
        asked = table.scan(snapshot_id=number, schema="current", filter="s = '-'")
        assert asked.count() == scan.count()
        assert table.scan(snapshot_id=number, schema="current", filter="s = 'x'").count() == 0
    found = table.scan_changes(first, columns=["p", "k", "v"]).to_arrow()["_commit_version"]
    assert first + 1 not in found.to_pylist()  # the column was not asked for
    check(table, first, table.snapshot.id)


def test_the_difference_of_two_versions_takes_columns_that_came_back_into_account(table_path):
    table = make(table_path, "deduplicate")
    first = table.snapshot.id
    drop_and_restore(table)
    assert table.diff(first).rows().count() == 0
    found = table.diff(first + 3).rows().to_arrow().to_pylist()
    before = table.scan(snapshot_id=first + 3, schema="current").to_arrow().to_pylist()
    after = table.scan().to_arrow().to_pylist()
    assert shown(replayed(before, found, ["p", "k"])) == shown(after)
