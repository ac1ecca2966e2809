"""The columns of a table, one a row, with what is known of their values: `Table.describe`."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.display import shortened
from fermion.engine import unwrapped, value_text
from fermion.errors import InvalidArgumentError
from fermion_table.inspection.entry_columns import field_bounds
from fermion_table.metadata.history import SchemaVersions
from fermion_table.planning.min_max import MinMax
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import Field, shown_type

DESCRIPTION = pa.schema(
    [
        ("column", pa.string()),
        ("type", pa.string()),
        ("nulls", pa.int64()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("distinct", pa.int64()),
        ("source", pa.string()),
    ]
)
SAMPLED_COLUMNS_MAX = 100
"""Columns of which rows are read; of more, statistics alone are shown."""
VALUE_LENGTH = 120
_Bounds = tuple[pa.Scalar, pa.Scalar]


def describe_columns(scan: Scan, sample: int) -> pa.Table:
    """See `Table.describe`, of the columns of a scan without filter and limit.

    Parameters
    ----------
    sample
        Rows that are drawn.
    """
    names = scan.schema.names
    looked_at = [(name,) for name in names[:SAMPLED_COLUMNS_MAX]]
    drawn = scan.select(looked_at).sample(sample, seed=0) if sample else None
    total = sum(entry.live_rows for entry in scan.entries[0])
    rows = []
    for name in names:
        field = scan.table_schema.by_name[name]
        values = None
        if drawn is not None and name in drawn.column_names:
            values = unwrapped(drawn.column(name))
        rows.append(_described(scan, field, values, total))
    return pa.Table.from_pylist(rows, schema=DESCRIPTION)


def known_nulls(scan: Scan, field: Field) -> tuple[int | None, bool]:
    """The nulls of a column as metadata tell them, and whether they are those of its rows.

    Where they are not, they are those of the rows that files store.
    """
    nulls, is_exact = 0, True
    for entry in scan.entries[0]:
        statistics = entry.stats.get(field.id)
        if (
            not entry.has_column(field.id) and field.stored_initial_default is None
        ) or entry.is_all_null(field.id):
            nulls += entry.live_rows
        elif statistics is None or statistics.null_count is None:
            return None, False
        else:
            nulls += statistics.null_count
            is_exact = is_exact and not entry.delete_rows and entry.bucket is None
    return nulls, is_exact


def _known_bounds(scan: Scan, field: Field) -> tuple[_Bounds | None, bool]:
    """Minimum and maximum as metadata tell them, and whether rows have these very values."""
    exact = scan.known_min_max((field.name,))
    if exact is not None:
        return exact, True
    entries = [
        entry
        for entry in scan.entries[0]
        if entry.has_column(field.id) and not entry.is_all_null(field.id)
    ]
    found = field_bounds(entries, field, SchemaVersions(scan.store, scan.snapshot))
    low, high = found.field("min"), found.field("max")
    if low.null_count or high.null_count:
        return None, False
    min_max = MinMax(field.type, [*low, *high])
    return min_max.result(), False


def _described(
    scan: Scan, field: Field, values: pa.ChunkedArray | None, total: int
) -> dict[str, Any]:
    """One row of the description; values are those that were drawn."""
    nulls, is_exact = known_nulls(scan, field)
    try:
        bounds, are_exact = _known_bounds(scan, field)
    except InvalidArgumentError:  # values without an order
        bounds, are_exact = (pa.scalar(None), pa.scalar(None)), True
    source: str | None = "exact" if is_exact and are_exact else "stored"
    if nulls is None or bounds is None:
        source = None
        nulls, bounds = None, None
        if values is not None:
            source, bounds = "sampled", _sampled_bounds(values)
            nulls = round(total * values.null_count / max(len(values), 1))
    low, high = (None, None) if bounds is None else map(_text, bounds)
    return {
        "column": field.name,
        "type": shown_type(field.type),
        "nulls": nulls,
        "min": low,
        "max": high,
        "distinct": None if values is None else _distinct(values, total),
        "source": source,
    }


def _sampled_bounds(values: pa.ChunkedArray) -> _Bounds | None:
    min_max = MinMax(values.type)
    try:
        for chunk in values.chunks:
            min_max.add(chunk)
        return min_max.result()
    except pa.ArrowException:  # values without an order
        return None


def _distinct(values: pa.ChunkedArray, total: int) -> int | None:
    """About how many values all rows have, from rows drawn at random: those of the rows drawn,
    and of the values that came once as many more as the square root of the rows for each drawn.

    M. Charikar, S. Chaudhuri, R. Motwani, V. Narasayya, "Towards Estimation Error Guarantees for
    Distinct Values", PODS 2000 (GEE).
    """
    if not len(values):
        return 0
    try:
        counts = pc.value_counts(values.drop_null()).field("counts")
    except pa.ArrowException:  # nested values are not compared
        return None
    once = pc.sum(pc.equal(counts, 1)).as_py() or 0
    ratio = max(total / len(values), 1.0)
    return min(round(len(counts) + (math.sqrt(ratio) - 1) * once), max(total, len(counts)))


def _text(value: pa.Scalar) -> str | None:
    return shortened(value_text(value), VALUE_LENGTH) if value.is_valid else None
