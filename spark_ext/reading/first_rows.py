"""The first rows that a task reads: in any order, or in one that Spark sorts by."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion import col, engine
from fermion.exports import dataclass
from fermion.predicate import Expression
from spark_ext.aggregation.expression import column_of, ordered
from spark_ext.reading.task import ReadTask

SORTED_ROWS_MAX = 65_536
"""Rows that a task keeps to sort them, at most: of more rows Spark alone keeps the first."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column, or a field within structs, and its order. Picklable."""

    path: tuple[str, ...]
    is_descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        direction = "DESC" if self.is_descending else "ASC"
        return f"{'.'.join(self.path)} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"

    def columns(self, batch: pa.RecordBatch) -> list[tuple[pa.Array, str]]:
        """What Arrow sorts by, and how: nulls by themselves, floats as Spark orders them."""
        values = column_of(batch, self.path)
        if pat.is_floating(values.type):  # added to zero, -0.0 becomes 0.0: the two are equal
            values = ordered(pc.add(values, 0.0))
        columns = [(values, "descending" if self.is_descending else "ascending")]
        if values.null_count:
            nulls = values.is_null().cast(pa.int8())
            columns.insert(0, (nulls, "descending" if self.nulls_first else "ascending"))
        return columns

    def not_after(self, last: pa.Scalar) -> Expression | None:
        """What selects all values that do not come after one; None: nothing tells them."""
        column = col(*self.path)
        if not last.is_valid:
            return column.is_null() if self.nulls_first else None
        try:
            value = last.as_py()
        except (OverflowError, ValueError):  # Python has only the years 1 to 9999
            return None
        if value != value:
            chosen = column.is_nan() if self.is_descending else ~column.is_null()
        elif not self.is_descending:
            chosen = column <= value
        else:
            chosen = column >= value
            if isinstance(value, float):
                chosen = chosen | column.is_nan()
        return chosen | column.is_null() if self.nulls_first else chosen


@dataclass(frozen=True, slots=True)
class FirstRowsTask:
    """Reads the first rows of its splits. Picklable.

    First it reads the columns of the order alone. Then only rows are read that do not come after
    the last one wanted, as far as the first of these columns tells: statistics skip the others.

    task: Reads all columns.
    keys: Reads the columns of the order; None: `task` reads hardly more than these.
    order: Of the rows; empty: any rows will do.
    limit: How many rows are wanted.
    """

    task: ReadTask
    keys: ReadTask | None
    order: tuple[SortKey, ...]
    limit: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first rows of the pickled splits that the rows of some batches hold."""
        splits = [
            split
            for batch in batches
            for pickled in batch.column(0)
            for split in pickle.loads(pickled.as_py())
        ]
        if not self.order:
            yield from self._any(splits)
            return
        last = None if self.keys is None else self._last(self._first(self.keys, splits, None))
        yield self._first(self.task, splits, last)

    def _any(self, splits: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for batch in self.task.read(splits):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _first(
        self, task: ReadTask, splits: Sequence[Any], known: Expression | None
    ) -> pa.RecordBatch:
        """The first rows in order; each split is asked only for what may still be among them."""
        found = pa.RecordBatch.from_pylist([], task.schema)
        for split in splits:
            more = self._last(found)
            chosen = more if known is None else known if more is None else known & more
            reader: Any = task.reader
            if chosen is not None:
                reader = reader.where(chosen)
            for batch in replace(task, reader=reader).read([split]):
                found = self._cut(engine.one_batch([found, self._cut(batch)]))
        return found

    def _cut(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first rows, in order."""
        columns = [column for key in self.order for column in key.columns(rows)]
        names = [str(number) for number in range(len(columns))]
        keys = pa.RecordBatch.from_arrays([values for values, _ in columns], names)
        how = [(name, order) for name, (_, order) in zip(names, columns, strict=True)]
        return rows.take(pc.select_k_unstable(keys, self.limit, how))

    def _last(self, found: pa.RecordBatch) -> Expression | None:
        """What all rows meet that may be among the first; None: any may be."""
        if found.num_rows < self.limit:
            return None
        return self.order[0].not_after(column_of(found, self.order[0].path)[-1])
