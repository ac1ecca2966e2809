"""The columns of a table, one a row, with what is known of their values: `Table.describe`."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.display import shortened, type_text
from fermion.engine import unwrapped, value_text
from fermion.errors import InvalidArgumentError
from fermion_table.inspection.entry_columns import field_bounds
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry, schema_holding
from fermion_table.planning.min_max import MinMax
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import Field
from fermion_table.schema.widening import is_binary, is_text

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
Bounds = tuple[str | None, str | None]


def describe_columns(scan: Scan, sample: int) -> pa.Table:
    """See `Table.describe`, of the columns of a scan without filter and limit.

    sample: Rows that are drawn.
    """
    names = scan.schema.names
    looked_at = [(name,) for name in names[:SAMPLED_COLUMNS_MAX]]
    drawn = scan.select(looked_at).sample(sample, seed=0) if sample else None
    total = sum(entry.live_rows for entry in scan.entries[0])
    known, rows = KnownValues(scan), []
    for name in names:
        field = scan.table_schema.by_name[name]
        values = None
        if drawn is not None and name in drawn.column_names:
            values = unwrapped(drawn.column(name))
        rows.append(_described(known, field, values, total))
    return pa.Table.from_pylist(rows, schema=DESCRIPTION)


class KnownValues:
    """What metadata tell of the values of columns, of a scan without filter and limit."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._schemas = SchemaVersions(scan.store, scan.snapshot)
        self._entries = scan.entries[0]
        self._is_merged = len(scan.unmerged) < len(self._entries)

    def nulls(self, field: Field) -> tuple[int | None, bool]:
        """The nulls of a column, and whether they are those of its rows.

        Where they are not, they are those of the rows that files store: there are no more.
        """
        if self._is_computed(field):
            return None, False
        nulls, is_exact = 0, not self._is_merged
        for entry in self._entries:
            statistics = entry.stats.get(field.id)
            if entry.is_all_null(field.id) or (
                field.stored_initial_default is None and self._is_absent(field, entry)
            ):
                nulls += entry.live_rows
            elif statistics is None or statistics.null_count is None:
                return None, False
            else:
                nulls += statistics.null_count
                is_exact = is_exact and not entry.delete_rows
        return nulls, is_exact

    def bounds(self, field: Field) -> tuple[Bounds | None, bool]:
        """Minimum and maximum, and whether rows have these very values.

        Where they have not, all values lie within; a text whose end was cut ends in ``…``.

        Raises InvalidArgumentError: The values have no order.
        """
        exact = self._scan.known_min_max((field.name,))
        if exact is not None:
            return _texts(exact), True
        present = [entry for entry in self._entries if not self._is_absent(field, entry)]
        has_default = field.stored_initial_default is not None
        if self._is_computed(field) or (has_default and len(present) < len(self._entries)):
            return None, False
        present = [entry for entry in present if not entry.is_all_null(field.id)]
        found = field_bounds(present, field, self._schemas)
        low, high = found.field("min"), found.field("max")
        if low.null_count or high.null_count:
            return None, False
        least, greatest = _texts(MinMax(field.type, [*low, *high]).result())
        cut = found.filter(pc.invert(found.field("max_is_exact"))).field("max")
        may_be_cut = is_text(field.type) or is_binary(field.type)
        if greatest is not None and len(cut) and may_be_cut:
            starts = [text for text in map(_text, cut) if text and greatest.startswith(text)]
            greatest = f"{min([greatest, *starts], key=len)}…"
        return (least, greatest), False

    def _is_absent(self, field: Field, entry: Entry) -> bool:
        """Whether a file holds no values of a column, which was perhaps added later."""
        version = schema_holding(entry.schema_id, entry.layout, field.id)
        return not entry.has_column(field.id) or field.id not in self._schemas[version].by_id

    def _is_computed(self, field: Field) -> bool:
        """Whether rows may have other values than those that are stored, such as their sums."""
        key = self._scan.key
        if key is None or not self._is_merged:
            return False
        return key.engine.has_functions and field.id not in self._schemas.current.primary_key


def _described(
    known: KnownValues, field: Field, values: pa.ChunkedArray | None, total: int
) -> dict[str, Any]:
    """One row of the description; values are those that were drawn."""
    nulls, is_exact = known.nulls(field)
    try:
        bounds, are_exact = known.bounds(field)
    except InvalidArgumentError:  # values without an order
        bounds, are_exact = (None, None), True
    source: str | None = "exact" if is_exact and are_exact else "stored"
    if nulls is None or bounds is None:
        source = None
        nulls, bounds = None, None
        if values is not None:
            source, bounds = "sampled", _sampled_bounds(values)
            nulls = round(total * values.null_count / max(len(values), 1))
    low, high = bounds or (None, None)
    return {
        "column": field.name,
        "type": type_text(field.type),
        "nulls": nulls,
        "min": low,
        "max": high,
        "distinct": None if values is None else _distinct(values, total),
        "source": source,
    }


def _texts(bounds: tuple[pa.Scalar, pa.Scalar]) -> Bounds:
    return _text(bounds[0]), _text(bounds[1])


def _sampled_bounds(values: pa.ChunkedArray) -> Bounds | None:
    min_max = MinMax(values.type)
    try:
        for chunk in values.chunks:
            min_max.add(chunk)
        return _texts(min_max.result())
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
