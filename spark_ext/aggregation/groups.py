"""Partial results of aggregates: one row a group, or rows unchanged where that is better.

Spark adds the partial results up, so a task may return any number of rows of a group: a row alone
is the partial result of itself. Rows are returned alone where groups are nearly as many as rows,
and where a sum might not fit into 64 bits: then Spark adds them up, and finds the overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import types as st

from fermion.exports import dataclass
from spark_ext.aggregation.expression import (
    Evaluator,
    Expression,
    arrow_type,
    decimals,
    floats_of,
    ordered,
)
from spark_ext.aggregation.runs import joined_runs
from spark_ext.errors import ConversionError

COUNT, SUM, MIN, MAX = "count", "sum", "min", "max"
CHUNK_ROWS = 262_144
"""Rows that are grouped together."""
CHUNK_BYTES = 64 * 1024 * 1024
"""Or so many bytes, if they are fewer."""
PENDING_CHUNKS = 4
"""Partial results that are kept, in chunks, to be merged with later ones."""
REDUCED = 0.6
"""Grouping pays if there are at most so many groups per row."""
SKIPPED_CHUNKS = 7
"""Chunks whose rows are returned alone after one in which grouping did not pay."""
_SUMS_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function of an expression; without one it counts rows. Picklable."""

    kind: str
    of: Expression | None = None

    @property
    def type(self) -> st.DataType:
        """Of the partial results, in Spark: of sums of decimals that of one value."""
        if self.kind == COUNT or self.of is None:
            return st.LongType()
        if self.kind != SUM or isinstance(self.of.type, st.DecimalType):
            return self.of.type
        return st.LongType() if self.of.is_exact else st.DoubleType()


@dataclass(frozen=True, slots=True)
class Grouping:
    """An aggregation: keys and aggregates. Picklable."""

    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]

    def columns(self) -> set[tuple[str, ...]]:
        """The paths of all columns."""
        of = [aggregate.of for aggregate in self.aggregates if aggregate.of is not None]
        return {path for expression in [*self.keys, *of] for path in expression.columns()}

    def schema(self) -> st.StructType:
        """The columns of partial results: the keys, then the aggregates."""
        keys = [st.StructField(f"key_{n}", key.type) for n, key in enumerate(self.keys)]
        return st.StructType(
            keys + [st.StructField(f"result_{n}", a.type) for n, a in enumerate(self.aggregates)]
        )


class Groups:
    """Collects the groups of a task; the schema is that of partial results, as Spark takes them."""

    def __init__(self, grouping: Grouping, schema: pa.Schema) -> None:
        self._grouping = grouping
        self._schema = schema
        self._keys = [f"k{number}" for number in range(len(grouping.keys))]
        self._states = [f"s{number}" for number in range(len(grouping.aggregates))]
        self._how = [
            (name, SUM if aggregate.kind == COUNT else aggregate.kind)
            for name, aggregate in zip(self._states, grouping.aggregates, strict=True)
        ]
        self._chunk: list[pa.RecordBatch] = []
        self._pending: list[pa.Table] = []
        self._largest = [0] * len(self._states)
        self._skipped = 0
        self._is_empty = True

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows, in the types that Spark takes; returns partial results that are not kept."""
        if not batch.num_rows:
            return
        try:
            rows = self._evaluated(Evaluator(batch))
        except pa.ArrowInvalid:  # too large for 64 bits
            yield from self._results(self._wide(batch))
            return
        largest = self._largest_sums(rows)
        if any(total > _SUMS_MAX for total in largest):
            yield from self._results(rows)
            return
        sums = [old + new for old, new in zip(self._largest, largest, strict=True)]
        if any(total > _SUMS_MAX for total in sums):
            yield from self.flush()
            sums = largest
        self._largest = sums
        self._chunk.append(joined_runs(rows, self._keys, self._how))
        if _is_full(self._chunk, 1):
            yield from self._group()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The partial results that are left; without keys at least one row.

        Spark counts by adding: without any row the count would be null.
        """
        yield from self.flush()
        if self._is_empty and not self._keys:
            yield from self._results(self._nothing())

    def flush(self) -> Iterator[pa.RecordBatch]:
        """All partial results that are kept."""
        self._skipped = 0
        yield from self._group()
        if self._pending:
            yield from self._results(self._merged())
        self._pending = []
        self._largest = [0] * len(self._states)

    def _evaluated(self, evaluator: Evaluator) -> pa.RecordBatch:
        """The keys, and each aggregate of each row alone."""
        keys = [evaluator.array(key) for key in self._grouping.keys]
        states = [self._state(evaluator, aggregate) for aggregate in self._grouping.aggregates]
        if not keys and not states:
            raise ValueError("neither keys nor aggregates")
        return pa.RecordBatch.from_arrays([*keys, *states], names=[*self._keys, *self._states])

    def _wide(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return self._evaluated(Evaluator(batch, is_wide=True))
        except pa.ArrowInvalid as error:
            raise ConversionError(
                f"[NUMERIC_VALUE_OUT_OF_RANGE] a decimal has more than 38 digits: {error}"
            ) from error

    def _state(self, evaluator: Evaluator, aggregate: Aggregate) -> pa.Array:
        if aggregate.of is None:
            return evaluator.ones
        values = evaluator.array(aggregate.of)
        if aggregate.kind == COUNT:
            return values.is_valid().cast(pa.int64()) if values.null_count else evaluator.ones
        if not pat.is_floating(values.type):
            return values
        return values.cast(pa.float64()) if aggregate.kind == SUM else ordered(values)

    def _largest_sums(self, rows: pa.RecordBatch) -> list[int]:
        """For each aggregate the largest sum, without its sign, of any of the rows."""
        largest = []
        for name, aggregate in zip(self._states, self._grouping.aggregates, strict=True):
            values = rows[name]
            if aggregate.kind == SUM and pat.is_integer(values.type):
                bounds = pc.min_max(values)
                low, high = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
                largest.append(max(-low, high) * rows.num_rows)
            else:
                largest.append(0)
        return largest

    def _group(self) -> Iterator[pa.RecordBatch]:
        """Group the rows of the chunk."""
        if not self._chunk:
            return
        rows, self._chunk = pa.Table.from_batches(self._chunk), []
        if self._skipped:
            self._skipped -= 1
            yield from self._results(rows)
            return
        groups = self._grouped(rows)
        if groups.num_rows > REDUCED * rows.num_rows and _is_full([rows], 1):
            self._skipped = SKIPPED_CHUNKS
            yield from self._results(rows)
            return
        self._pending.append(groups)
        if _is_full(self._pending, PENDING_CHUNKS):
            before = sum(part.num_rows for part in self._pending)
            merged = self._merged()
            if merged.num_rows > REDUCED * before:
                yield from self._results(merged)
                self._pending = []
            else:
                self._pending = [merged]

    def _merged(self) -> pa.Table:
        if len(self._pending) == 1:
            return self._pending[0]
        return self._grouped(pa.concat_tables(self._pending))

    def _grouped(self, rows: pa.Table) -> pa.Table:
        grouped = rows.group_by(self._keys, use_threads=False).aggregate(self._how)
        columns = [f"{name}_{kind}" for name, kind in self._how]
        return pa.Table.from_arrays(
            [grouped[name] for name in [*self._keys, *columns]],
            names=[*self._keys, *self._states],
        )

    def _nothing(self) -> pa.RecordBatch:
        """The aggregates of no row."""
        arrays = [
            pa.array([0 if aggregate.kind == COUNT else None], pa.int64())
            for aggregate in self._grouping.aggregates
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self._states)

    def _results(self, rows: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Partial results in the types that Spark takes."""
        batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
        types = [key.type for key in self._grouping.keys]
        for batch in batches:
            self._is_empty = False
            keys = [
                _finished(batch[name], dtype) for name, dtype in zip(self._keys, types, strict=True)
            ]
            for states in self._parts([batch[name] for name in self._states]):
                taken, columns = states
                columns = [
                    _finished(column, aggregate.type)
                    for column, aggregate in zip(columns, self._grouping.aggregates, strict=True)
                ]
                mine = keys if taken is None else [key.take(taken) for key in keys]
                yield pa.RecordBatch.from_arrays([*mine, *columns], schema=self._schema)

    def _parts(self, states: list[pa.Array]) -> Iterator[tuple[pa.Array | None, list[pa.Array]]]:
        """States, and then more rows for decimal sums that are too large for one row.

        Spark takes each partial sum in the type of one value. Yields which rows the states are of
        (None: all), and the states.
        """
        first, rest = list(states), []
        for number, aggregate in enumerate(self._grouping.aggregates):
            of = aggregate.of
            if aggregate.kind != SUM or of is None or not isinstance(of.type, st.DecimalType):
                continue
            if not pat.is_integer(states[number].type):  # sums of one value
                continue
            most = 10**of.type.precision - 1
            if most > _SUMS_MAX or not _exceeds(states[number], most):
                continue
            first[number], taken, values = _cut(states[number], most)
            rest.append((number, taken, values))
        yield None, first
        for number, taken, values in rest:
            yield taken, self._only(number, values, states)

    def _only(self, number: int, values: pa.Array, states: Sequence[pa.Array]) -> list[pa.Array]:
        """States of one aggregate; those of others are of no row."""
        columns = []
        for other, aggregate in enumerate(self._grouping.aggregates):
            if other == number:
                columns.append(values)
            elif aggregate.kind == COUNT:
                columns.append(pa.repeat(pa.scalar(0, pa.int64()), len(values)))
            else:
                columns.append(pa.nulls(len(values), states[other].type))
        return columns


def _is_full(held: Sequence[pa.Table | pa.RecordBatch], chunks: int) -> bool:
    rows, size = sum(part.num_rows for part in held), sum(part.nbytes for part in held)
    return rows >= chunks * CHUNK_ROWS or size >= chunks * CHUNK_BYTES


def _exceeds(sums: pa.Array, most: int) -> bool:
    bounds = pc.min_max(sums)
    return max(-(bounds["min"].as_py() or 0), bounds["max"].as_py() or 0) > most


def _cut(sums: pa.Array, most: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Sums up to a limit, then the rest: which rows it is of, and values up to the limit."""
    values = sums.fill_null(0).to_numpy()
    signs = np.sign(values)
    head = np.clip(values, -most, most)
    left = np.abs(values - head)
    places = np.flatnonzero(left)
    left = left[places]
    rows = -(-left // most)
    taken = np.repeat(places, rows)
    more = np.full(len(taken), most, np.int64)
    more[np.cumsum(rows) - 1] = left - (rows - 1) * most
    first = pa.array(head, mask=sums.is_null().to_numpy(zero_copy_only=False))
    return first, pa.array(taken), pa.array(more * signs[taken])


def _finished(values: Any, dtype: st.DataType) -> pa.Array:
    """Results in the Arrow type of their Spark type."""
    target = arrow_type(dtype)
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    if pat.is_decimal(target):
        return decimals(values, target) if values.type != target else values
    if pat.is_floating(target) and pat.is_integer(values.type):
        return floats_of(values, target)
    return values.cast(target)
