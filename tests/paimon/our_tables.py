"""Histories carried out on tables of our own, and rows and changes in a form to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from fermion_table import Table
from tests.kit.tables.merge_rows import Row, batch_of
from tests.kit.tables.paimon_histories import (
    comparable,
    properties_of,
    rows_of,
    schema_of,
    shown,
)

KINDS = {"insert": "+I", "delete": "-D", "update_preimage": "-U", "update_postimage": "+U"}
TRIGGER = {"num_sorted_run.compaction_trigger": "2"}


def create(history: dict, path: Path, *, records: bool = False) -> Table:
    """Make the table of a history; `records`: with its changelog producer."""
    producer = history["options"].get("changelog-producer", "none") if records else "none"
    return Table.create(
        path,
        schema_of(history, with_nulls=True),
        primary_key=history["primary_key"],
        partition_by=history["partition"] or None,
        properties=properties_of(history) | TRIGGER | {"changelog_producer": producer},
        durability="fast",
    )


def write(table: Table, history: dict, number: int) -> None:
    """Carry out a commit: by keys where it only deletes, without kinds where it only adds."""
    schema, key = schema_of(history), history["primary_key"]
    rows = rows_of(history["commits"][number], schema)
    kinds = {row["_kind"] or "+I" for row in rows}
    batch = batch_of(rows, schema)
    # A recorded deletion has the values that it was given.
    removes = not any("sequence" in name for name in history["options"]) and not (
        table.properties["changelog_producer"] == "input"
        or history["options"].get("merge-engine") == "aggregation"
    )
    if kinds == {"+I"}:
        table.append(batch)
    elif kinds == {"-D"} and removes:
        table.delete_keys(batch.select(key))
    else:
        column = pa.array([row["_kind"] or "+I" for row in rows], pa.string())
        data = pa.Table.from_batches([batch]).append_column("_kind", column)
        table.upsert(data, change_type="_kind")


def step(table: Table, history: dict, number: int) -> None:
    """Carry out a commit and the compaction that comes after it.

    A table that records what compaction changes is compacted after each commit, as Paimon's is.
    """
    write(table, history, number)
    if table.properties["changelog_producer"] in ("lookup", "full-compaction"):
        table.compact(full=table.properties["changelog_producer"] == "full-compaction")
        return
    if compaction := history["our_compactions"][number]:
        table.compact(full=compaction == "full")


def comparable_rows(rows: Iterable[Row], history: dict, unordered: Iterable[str] = ()) -> list[Row]:
    """Rows in the order of their keys, with values that can be compared.

    Parameters
    ----------
    unordered
        Columns of lists whose order does not count.
    """
    found = shown(list(rows), history["primary_key"])
    for row in found:
        for name in unordered:
            if row[name] is not None:
                row[name] = sorted(row[name], key=repr)
    return found


def paimons_rows(rows: list[dict], history: dict, unordered: Iterable[str] = ()) -> list[Row]:
    """Rows that Paimon returned, as `comparable_rows`."""
    schema = schema_of(history)
    return comparable_rows(batch_of(rows_of(rows, schema), schema).to_pylist(), history, unordered)


def our_changes(table: Table, start: int, end: int) -> list[Row]:
    """What `scan_changes` returns, with `_kind`."""
    found = table.scan_changes(start, end).to_arrow().to_pylist()
    return [
        {"_kind": KINDS[row["_change_type"]]}
        | {name: value for name, value in row.items() if not name.startswith("_")}
        for row in found
    ]


def paimons_changes(rows: list[dict], history: dict) -> list[Row]:
    """Changes that Paimon's reader got, with `_kind`.

    The first row of a key is an insertion; Paimon passes on the kind that was written.
    """
    schema = schema_of(history)
    if history["options"].get("merge-engine") == "first-row":
        rows = [row | {"_kind": "+I"} for row in rows]
    values = batch_of(rows_of(rows, schema), schema).to_pylist()
    return [{"_kind": row["_kind"]} | value for row, value in zip(rows, values, strict=True)]


def counted(changes: list[Row]) -> Counter[str]:
    """Changes in no order, as texts that begin with their kind."""
    found: Counter[str] = Counter()
    for row in changes:
        values = {name: comparable(row[name]) for name in row if name != "_kind"}
        found[row["_kind"] + repr(sorted(values.items()))] += 1
    return found


def effective(changes: Counter[str]) -> Counter[str]:
    """Counted changes without the updates that change nothing."""
    before = Counter({text[2:]: count for text, count in changes.items() if text[:2] == "-U"})
    after = Counter({text[2:]: count for text, count in changes.items() if text[:2] == "+U"})
    same = before & after
    return changes - Counter(
        {kind + text: count for text, count in same.items() for kind in ("-U", "+U")}
    )


def replayed(before: list[Row], changes: list[Row], key: list[str]) -> list[Row]:
    """Rows after changes, in their order."""
    rows = {tuple(row[name] for name in key): row for row in before}
    for change in changes:
        place = tuple(change[name] for name in key)
        if change["_kind"][0] == "+":
            rows[place] = {name: value for name, value in change.items() if name != "_kind"}
        else:
            rows.pop(place, None)
    return list(rows.values())
