"""The minimum and maximum of a column, from manifest entries where their bounds are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.exports import dataclass
from fermion_table.metadata.manifest import Entry, FieldStatistics, schema_holding
from fermion_table.planning.filters import same_ids
from fermion_table.schema.schema import Field, TableSchema


@dataclass(slots=True)
class MinMax:
    """The minimum and maximum of the values added so far; NaN and null are not counted."""

    type: pa.DataType
    values: list[pa.Scalar] = field(default_factory=list)

    def add(self, values: pa.Array) -> None:
        """Add an array of values."""
        if pa.types.is_floating(self.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        values = values.cast(self._compared)
        bounds = pc.min_max(values)
        self.values += [bounds["min"], bounds["max"]]

    def result(self) -> tuple[pa.Scalar, pa.Scalar]:
        """The least and the greatest value; null where there is none."""
        values = [value.cast(self._compared) for value in self.values]
        bounds = pc.min_max(pa.array(values, self._compared))
        return bounds["min"].cast(self.type), bounds["max"].cast(self.type)

    @property
    def _compared(self) -> pa.DataType:
        """What values are compared as: Arrow compares neither half floats nor durations."""
        if pa.types.is_duration(self.type):
            return pa.int64()
        return pa.float32() if pa.types.is_float16(self.type) else self.type


def add_exact_bounds(
    entries: Sequence[Entry],
    schemas: Mapping[int, TableSchema],
    chain: Sequence[Field],
    min_max: MinMax,
) -> list[Entry]:
    """Add the exact bounds of files in which no row is deleted.

    chain: The column, and the fields below it down to the one asked about.
    Returns: The files that have to be read.
    """
    undecided = []
    for entry in entries:
        written = schemas[schema_holding(entry.schema_id, entry.layout, chain[0].id)]
        bounds = _bounds(entry, written, chain)
        if bounds is None:
            undecided.append(entry)
        else:
            min_max.values += [value.cast(min_max.type) for value in bounds]
    return undecided


def _bounds(
    entry: Entry, written: TableSchema, chain: Sequence[Field]
) -> tuple[pa.Scalar, ...] | None:
    """Exact bounds, nothing for a file without values; None if only the file knows."""
    if entry.rows == 0:
        return ()
    top = written.by_id.get(chain[0].id)
    inside = None if top is None else same_ids((top,), chain)
    if inside is None:
        has_default = any(field.stored_initial_default is not None for field in chain)
        return None if has_default else ()
    if not entry.has_column(chain[0].id):
        return ()
    statistics = entry.stats.get(chain[-1].id)
    if entry.delete_rows or statistics is None:
        return None
    if entry.is_all_null(chain[-1].id):
        return ()
    return _exact(statistics, inside[-1].type)


def _exact(statistics: FieldStatistics, dtype: pa.DataType) -> tuple[pa.Scalar, ...] | None:
    known = statistics.bounds()
    if known is None:
        return None
    low, high = known.min_value(dtype, exact=True), known.max_value(dtype, exact=True)
    return None if low is None or high is None else (low, high)
