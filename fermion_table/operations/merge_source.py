"""The source of a merge: any Arrow producer, its schema known at once and its rows when asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.arguments import first_repeated
from fermion.engine import BatchCopier, is_in_memory, record_batch_reader, strip_wrappers
from fermion.errors import InvalidArgumentError, column_not_found
from fermion.predicate import Column, Expression
from fermion_table.argument_checks import check_columns, check_text
from fermion_table.errors import SchemaMismatch
from fermion_table.operations.assignments import whole_table
from fermion_table.planning.filters import conjunction
from fermion_table.planning.min_max import MinMax
from fermion_table.schema.conversion import convert, plan_column
from fermion_table.schema.matching import matching
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.widening import is_text

IN_LIST_MAX = 1000
"""Keys up to so many are looked for one by one in files' statistics; more by their range."""


def check_join_type(name: str, dtype: pa.DataType) -> None:
    """Refuse a type whose values can't be looked up.

    Raises InvalidArgumentError.
    """
    storage = strip_wrappers(dtype)
    if pat.is_nested(storage) or pat.is_interval(storage):
        raise InvalidArgumentError(
            f"merge: on: column {name!r} is {dtype}: expected a number, boolean, date, time, "
            "timestamp, duration, string or binary"
        )


class SourceKeys:
    """The keys of a source, by which rows of a table are looked up.

    columns: One or more, all of one length; of the types that the table's columns have.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[np.ndarray] = []
        codes = self._add_column(columns[0])
        for column in columns[1:]:
            others = self._add_column(column)
            both = _paired(codes, others, len(self._values[-1]))
            self._pairs.append(np.unique(both[both >= 0]))
            codes = _place(self._pairs[-1], both)
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(self._num_keys + 1))

    @property
    def distinct(self) -> list[pa.Array]:
        """The values of each column, each once, without null."""
        return self._values

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Two rows of the source of one key, neither null; None if there are none."""
        again = np.flatnonzero(np.diff(self._starts) > 1)
        if not len(again):
            return None
        first = self._starts[again[0]]
        return int(self._order[first]), int(self._order[first + 1])

    def match(self, columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of rows with equal keys.

        columns: Keys of rows of the table.
        Returns: Row numbers of the table's rows, ascending, and those of the source's: ``int64``.
        """
        codes = _codes(self._values[0], columns[0])
        for column, values, pairs in zip(columns[1:], self._values[1:], self._pairs, strict=True):
            codes = _place(pairs, _paired(codes, _codes(values, column), len(values)))
        rows = np.flatnonzero(codes >= 0)
        found = codes[rows]
        starts = self._starts[found]
        counts = self._starts[found + 1] - starts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(rows, counts), self._order[np.repeat(starts, counts) + within]

    @property
    def _num_keys(self) -> int:
        return len(self._pairs[-1]) if self._pairs else len(self._values[0])

    def _add_column(self, column: pa.Array) -> np.ndarray:
        self._values.append(pc.unique(matching(column).drop_null()))
        return _codes(self._values[-1], column)


def key_filter(
    names: Sequence[str], keys: SourceKeys, types: Mapping[str, pa.DataType]
) -> Expression:
    """What the keys of a table's rows must be like to be among the source's.

    names: The table's columns, in the order of the keys.
    """
    parts = [
        _values_filter(Column((name,)), values, types[name])
        for name, values in zip(names, keys.distinct, strict=True)
    ]
    chosen = conjunction(parts)
    assert chosen is not None
    return chosen


def _values_filter(column: Column, values: pa.Array, dtype: pa.DataType) -> Expression:
    if not len(values):
        return column.isin(())
    storage = strip_wrappers(dtype)
    if is_text(storage):
        values = values.cast(pa.large_string())  # they are looked up as bytes
    if len(values) <= IN_LIST_MAX and not pat.is_floating(values.type):
        return column.isin(list(values))
    bounds = MinMax(values.type)
    bounds.add(values)
    low, high = bounds.result()
    inside = column.between(low, high) if low.is_valid else column.isin(())
    if pat.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return inside | column.is_nan()
    return inside


def _codes(values: pa.Array, column: pa.Array) -> np.ndarray:
    """Where each value stands among some: ``int64``; -1 for null and what is not among them."""
    found = pc.fill_null(pc.index_in(matching(column), value_set=values), -1)
    return found.to_numpy(zero_copy_only=False).astype(np.int64)


def _paired(codes: np.ndarray, others: np.ndarray, count: int) -> np.ndarray:
    """One number for two codes, the second of which is below ``count``; -1 if either is."""
    return np.where((codes < 0) | (others < 0), -1, codes * count + others)


def _place(known: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Where each number stands among those known, which are sorted; -1 if it is not there."""
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[places] == numbers, places, -1)


def check_on(on: Any, schema: TableSchema) -> dict[str, str]:
    """Columns of the source by those of the table that they are compared with.

    Raises
    ------
    TypeError, InvalidArgumentError
        Neither names nor a mapping, none at all, or a column twice or of a type without equality.
    ColumnNotFoundError
        The table lacks a column.
    """
    if isinstance(on, Mapping):
        pairs = [(check_text(key, "a key of on"), check_text(on[key], "on")) for key in on]
    else:
        names = [on] if isinstance(on, str) else check_columns(on, "on")
        pairs = [(check_text(name, "an item of on"), check_text(name, "on")) for name in names]
    if not pairs:
        raise InvalidArgumentError("on: expected at least one column")
    chosen = dict(pairs)
    if len(chosen) < len(pairs):
        raise InvalidArgumentError(f"on={on!r}: a column is named twice")
    for name in chosen:
        if name not in schema.by_name:
            raise column_not_found(name, schema.names, where="merge: on: the table")
        check_join_type(name, schema.by_name[name].type)
    return chosen


class MergeSource:
    """The source of a merge.

    data: Any Arrow producer. Rows that lie in memory are copied at once, as the caller may change
        them before they are merged; those of others are read when `rows` is called first.
    on: See `check_on`.
    schema: Of the table: says what data without types of their own are read as.
    Raises InvalidArgumentError: No Arrow producer, or several columns of one name.
    Raises ColumnNotFoundError: A column of `on` is not there.
    Raises SchemaMismatch: Its type does not fit that of the table's column.
    """

    def __init__(self, data: Any, on: Mapping[str, str], schema: TableSchema) -> None:
        try:
            reader = record_batch_reader(data, schema=_expected(data, on, schema))
        except InvalidArgumentError as error:
            reason = str(error).removeprefix("data: ")
            raise InvalidArgumentError(f"source: {reason}") from error
        self._rows: pa.RecordBatch | None = None
        self._batches = map(BatchCopier(reader.schema).copy, reader)
        self.schema = reader.schema
        names = dict.fromkeys(self.schema.names)
        repeated = first_repeated(self.schema.names)
        if repeated is not None:
            raise InvalidArgumentError(f"source: more than one column is named {repeated!r}")
        for name in on.values():
            if name not in names:
                raise column_not_found(name, names, where="merge: on: the source")
        for name, found in on.items():
            with _naming(found):
                plan_column(schema.by_name[name], self.schema.field(found).type)
        if is_in_memory(data):
            self.rows()

    def rows(self) -> pa.RecordBatch:
        """All rows.

        Raises InvalidArgumentError: Some column is too large for one array.
        """
        if self._rows is None:
            rows = pa.Table.from_batches(self._batches, schema=self.schema)
            self._rows = whole_table(rows, "source")
        return self._rows


def source_keys(rows: pa.RecordBatch, on: Mapping[str, str], schema: TableSchema) -> list[pa.Array]:
    """The keys of a source in the types of the table's columns.

    Raises SchemaMismatch: A type does not fit, or a value does not.
    """
    keys = []
    for name, found in on.items():
        with _naming(found):
            conversion = plan_column(schema.by_name[name], rows.schema.field(found).type)
            keys.append(convert(conversion, rows.column(found)))
    return keys


@contextlib.contextmanager
def _naming(column: str) -> Iterator[None]:
    try:
        yield
    except SchemaMismatch as error:
        raise SchemaMismatch(f"merge: on: column {column!r} of the source: {error}") from None


def _expected(data: Any, on: Mapping[str, str], schema: TableSchema) -> pa.Schema | None:
    """What data without types of its own (a dict, an empty iterable) is read as."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return None
    fields = {on.get(field.name, field.name): field for field in schema.to_arrow(field_ids=False)}
    known = {name: field.with_name(name) for name, field in fields.items()}
    if isinstance(data, dict):
        return pa.schema([known[name] for name in data]) if known.keys() >= data.keys() else None
    return pa.schema(list(known.values()))
