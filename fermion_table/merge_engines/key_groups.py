"""Rows of one key side by side in order of time, and what a merge engine makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.engine import array_of, one_batch, stable_order, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.schema.conversion import empty_columns
from fermion_table.schema.key_encoding import direct_keys, is_number
from fermion_table.schema.transforms import plain

# Values of `_row_kind`, kept in data files: never to be changed.
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
ABSENT = -1
"""Stands for null where a value is picked from a row."""


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """Rows by key, and within a key from the oldest to the newest.

    order: Row numbers: ``int64``, shape (n,).
    starts: Where each key's rows begin in `order`, ascending: ``int64``, shape (g,).
    """

    order: np.ndarray
    starts: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """Where each key's rows end in `order`, exclusive: ``int64``, shape (g,)."""
        return np.append(self.starts[1:], len(self.order))[: len(self.starts)]

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each key: ``int64``, shape (g,)."""
        return self.ends - self.starts

    def between(self, start: int, stop: int) -> KeyGroups:
        """The keys from one number up to another, exclusive; at least one."""
        first, last = int(self.starts[start]), int(self.ends[stop - 1])
        return KeyGroups(self.order[first:last], self.starts[start:stop] - first)

    @property
    def numbers(self) -> np.ndarray:
        """The number of the key of each row of `order`: ``int64``, shape (n,)."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    def rows_where(self, kept: np.ndarray) -> KeyGroups:
        """The groups with fewer rows; keys without any are left out.

        kept: ``bool``, shape (n,), along `order`.
        """
        numbers = self.numbers[kept]
        is_first = np.ones(len(numbers), bool)
        is_first[1:] = numbers[1:] != numbers[:-1]
        return KeyGroups(self.order[kept], np.flatnonzero(is_first))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows that a merge engine folds.

    rows: Columns to fold, and those that decide: sequences, and the key's.
    groups: The rows by key, and within a key from the oldest to the newest.
    key_columns: Names of the key's columns.
    kinds: Of all rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest: Whether no older rows of these keys exist; otherwise what a later fold needs is kept.
    """

    rows: pa.RecordBatch
    groups: KeyGroups
    key_columns: Sequence[str]
    kinds: np.ndarray | None
    is_oldest: bool


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows that a merge engine makes, in the order of their keys.

    rows: The row that each result is taken from: ``int64``, shape (m,).
    values: By column, where a value is not that of the row: numbers of other rows (``int64``, shape
        (m,), `ABSENT` for null), or the values themselves.
    kinds: Kinds of the results: ``int8``, shape (m,); None: no retraction is among them.
    """

    rows: np.ndarray
    values: Mapping[str, np.ndarray | pa.Array] = field(default_factory=dict)
    kinds: np.ndarray | None = None

    def gather(self, batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The results' columns, made of those that the fold has read.

        columns: Those wanted; None: all of the batch.
        """
        names = batch.schema.names if columns is None else columns
        if not names:
            return empty_columns(pa.schema([]), len(self.rows))
        rows = _indices(self.rows)
        arrays = [self._column(name, batch.column(name), rows) for name in names]
        fields = [batch.schema.field(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, name: str, column: pa.Array, rows: pa.Array) -> pa.Array:
        values = self.values.get(name)
        if isinstance(values, pa.Array):
            return values
        try:
            return column.take(rows if values is None else _indices(values))
        except pa.ArrowNotImplementedError:  # views and run-end encoding
            return _taken(column, self.rows if values is None else values)


def _indices(rows: np.ndarray) -> pa.Array:
    """Numbers of rows as Arrow takes them: `ABSENT` is null."""
    is_absent = rows == ABSENT
    return pa.array(rows, mask=is_absent) if is_absent.any() else array_of(rows, pa.int64())


def _taken(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """Values by row number, `ABSENT` for null, of types that Arrow does not take."""
    is_absent = rows == ABSENT
    parts = [column]
    if is_absent.any():
        parts.append(pa.nulls(1, column.type))
        rows = np.where(is_absent, len(column), rows)
    batch = one_batch([pa.RecordBatch.from_arrays([part], names=[""]) for part in parts])
    return take_batch_rows(batch, rows).column(0)


def group_rows(
    keys: np.ndarray,
    times: np.ndarray,
    *,
    sequence: Sequence[pa.Array] = (),
    is_descending: bool = False,
) -> KeyGroups:
    """Rows by key, and within a key in order.

    Rows of one key are in the order of the sequence fields, nulls first, NaN as the greatest value;
    of those that are equal, and without sequence fields, times decide, whatever kind a row is of.

    keys: Numbers that order as the keys do: ``int64``, shape (n,).
    times: Numbers that order as the rows came: ``int64``, shape (n,); rows of the same number are
        in order of time already.
    is_descending: Whether the smallest value of a sequence field is the newest; nulls stay the
        oldest.
    Raises InvalidArgumentError: Arrays of different lengths, or a sequence field whose type has no
        order.
    """
    lengths = {len(keys), len(times), *map(len, sequence)}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"rows to group: expected equal lengths, found {sorted(lengths)}"
        )
    levels = [times]
    for column in reversed(sequence):
        numbers = order_numbers(column)
        levels.append(~numbers if is_descending else numbers)
        if column.null_count:
            levels.append(column.is_valid().to_numpy(zero_copy_only=False))
    if len(levels) == 1 and bool((times[1:] >= times[:-1]).all()):
        order = stable_order(keys)
    else:
        order = np.lexsort([*levels, keys])
    sorted_keys = keys[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = sorted_keys[1:] != sorted_keys[:-1]
    return KeyGroups(order, np.flatnonzero(is_first))


def is_retraction(kinds: np.ndarray) -> np.ndarray:
    """Whether each row takes something back: ``bool``, of the shape of `kinds`."""
    return (kinds == UPDATE_BEFORE) | (kinds == DELETE)


def order_numbers(column: pa.Array) -> np.ndarray:
    """Numbers that order as the values do: ``int64``, shape (n,); nulls are 0.

    Floats order as in IEEE 754 from the negative to the positive, 0.0 above -0.0, NaN above all.

    Raises InvalidArgumentError: Values of this type have no order.
    """
    column = plain(column)
    dtype = column.type
    if column.null_count:
        filled = np.zeros(len(column), np.int64)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        filled[valid] = order_numbers(column.drop_null())
        return filled
    if pat.is_floating(dtype):
        bits = column.cast(pa.float64()).to_numpy().copy()
        bits[np.isnan(bits)] = np.nan
        signed = bits.view(np.int64)
        return np.where(signed < 0, signed ^ np.int64(2**63 - 1), signed)
    if is_number(dtype):
        return direct_keys(column)
    if pat.is_boolean(dtype):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    try:
        return pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
        raise InvalidArgumentError(f"values of {dtype} have no order") from None


def one_by_one(groups: KeyGroups, marked: np.ndarray) -> KeyGroups:
    """The same rows, those of a key with a marked row each in a group of its own.

    marked: ``bool``, by row number.
    """
    if not len(groups.starts):
        return groups
    is_apart = np.logical_or.reduceat(marked[groups.order], groups.starts)
    is_first = np.repeat(is_apart, groups.lengths)
    is_first[groups.starts] = True
    return KeyGroups(groups.order, np.flatnonzero(is_first))


def after_deletions(groups: KeyGroups, kinds: np.ndarray) -> KeyGroups:
    """The rows after the last deletion of each key; keys that end with it are left out."""
    if not len(groups.starts):
        return groups
    places = np.arange(len(groups.order))
    deleted = np.where(kinds[groups.order] == DELETE, places, -1)
    last = np.maximum.reduceat(deleted, groups.starts)
    return groups.rows_where(places > np.repeat(last, groups.lengths))


class GroupOverflow(Exception):
    """An aggregate has no value of its column's type.

    groups: Numbers of the groups, ascending: ``int64``.
    """

    def __init__(self, message: str, groups: np.ndarray) -> None:
        super().__init__(message)
        self.groups = groups


class Unfoldable(InvalidArgumentError):
    """Some keys have no row, as an aggregate has no value; the message names the first.

    rows: The number of a row of each key: ``int64``.
    """

    def __init__(self, message: str, rows: np.ndarray) -> None:
        super().__init__(message)
        self.rows = rows


class GroupedColumn:
    """A column's values in groups, for aggregate functions. Masks are along the groups' order.

    taken_back: Which rows are retractions: ``bool``, shape (n,); None: none is.
    ignores: Whether retractions are left out.
    """

    def __init__(
        self,
        values: pa.Array,
        groups: KeyGroups,
        taken_back: np.ndarray | None = None,
        *,
        ignores: bool = False,
    ) -> None:
        self.values = values
        self.groups = groups
        self.taken_back = None if ignores else taken_back
        everything = np.ones(len(groups.order), bool)
        self.is_used = ~taken_back if ignores and taken_back is not None else everything

    @property
    def is_valid(self) -> np.ndarray:
        """Where values are not null: ``bool``, shape (n,)."""
        return self.values.is_valid().to_numpy(zero_copy_only=False)[self.groups.order]

    def reduced(self, function: np.ufunc, numbers: np.ndarray) -> np.ndarray:
        """One number a group, of numbers along the order; shape (g,)."""
        return function.reduceat(numbers, self.groups.starts) if len(numbers) else numbers[:0]

    def first_where(self, mask: np.ndarray) -> np.ndarray:
        """Each group's first place in the order where a mask holds, else `ABSENT`; shape (g,)."""
        none = len(mask)
        found = self.reduced(np.minimum, np.where(mask, np.arange(len(mask)), none))
        return np.where(found == none, ABSENT, found)

    def last_where(self, mask: np.ndarray) -> np.ndarray:
        """Each group's last place in the order where a mask holds, else `ABSENT`; shape (g,)."""
        return self.reduced(np.maximum, np.where(mask, np.arange(len(mask)), ABSENT))

    def rows_at(self, places: np.ndarray) -> np.ndarray:
        """The row numbers at places of the order; `ABSENT` stays."""
        return np.where(places == ABSENT, ABSENT, self.groups.order[places])
