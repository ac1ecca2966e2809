"""A primary-key table as a plain list of rows: each key's rows are folded one by one, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fermion_table.schema.key_options import KeyOptions
from tests.kit.tables.aggregate_model import Row, aggregated, place
from tests.kit.tables.partial_update_model import updated


def merged(
    rows: Sequence[Row], columns: Sequence[str], key: Sequence[str], options: KeyOptions
) -> list[Row]:
    """Return the rows that a scan returns, in the order in which their keys came first.

    Parameters
    ----------
    rows
        All that were ever written, in order of time; `_kind` is the kind, an insertion without it.
    columns
        The table's, those of the key included.
    """
    by_key: dict[tuple, list[Row]] = {}
    for row in rows:
        if not (options.ignore_delete and is_retraction(row)):
            by_key.setdefault(tuple(row[name] for name in key), []).append(row)
    found = []
    for values, group in by_key.items():
        one = folded(group, columns, key, options)
        if one is not None:
            named: Mapping[str, Any] = {**one, **dict(zip(key, values, strict=True))}
            found.append({name: named.get(name) for name in columns})
    return found


def folded(
    rows: Sequence[Row], columns: Sequence[str], key: Sequence[str], options: KeyOptions
) -> Row | None:
    """Return the row of one key; None where it has none."""
    rows = in_order(rows, options.sequence_fields, is_descending=options.sequence_descending)
    removes = options.remove_record_on_delete
    match options.merge_engine:
        case "first_row":
            return rows[0]
        case "deduplicate":
            return None if is_retraction(rows[-1]) else rows[-1]
        case "aggregation":
            return aggregated(rows, dict(options.functions), removes=removes)
    others = [name for name in columns if name not in key]
    return updated(
        rows,
        others,
        options.sequence_groups,
        removes=removes,
        removing=options.removing_sequences,
    )


def in_order(
    rows: Sequence[Row], sequence: Sequence[str], *, is_descending: bool = False
) -> list[Row]:
    """Return rows of a key from the oldest to the newest; of a sequence, nulls are the oldest."""
    ordered = list(rows)
    for name in reversed(sequence):
        first = [row for row in ordered if row.get(name) is None]
        others = [row for row in ordered if row.get(name) is not None]
        others.sort(key=lambda row: place(row[name]), reverse=is_descending)
        ordered = first + others
    return ordered


def is_retraction(row: Row) -> bool:
    """Whether a row takes something back."""
    return (row.get("_kind") or "+I")[0] == "-"
