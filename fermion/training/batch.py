"""Batches for models: columns as NumPy arrays where they can be, others as Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.columns.rows import one_batch
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass

if TYPE_CHECKING:
    import torch

Values: TypeAlias = np.ndarray | pa.Array


class TrainingBatch:
    """Some rows: ``batch["x"]`` is a column.

    Numbers, booleans, dates, timestamps and durations are NumPy arrays of shape (rows,), lists of
    a fixed size of numbers of shape (rows, size); other columns are Arrow arrays. They are the
    caller's: nothing else refers to them.

    Attributes
    ----------
    epoch, step
        Where in the order the batch stands; ``step`` counts from 0 in each epoch.
    num_rows
        Rows of this rank; 0 where the others have the last ones.
    schema
        Of the columns.
    """

    __slots__ = ("_columns", "_nulls", "epoch", "num_rows", "schema", "step")

    def __init__(
        self,
        schema: pa.Schema,
        columns: Mapping[str, Values],
        nulls: Mapping[str, np.ndarray],
        *,
        num_rows: int,
        epoch: int,
        step: int,
    ) -> None:
        self.schema, self.num_rows, self.epoch, self.step = schema, num_rows, epoch, step
        self._columns, self._nulls = columns, nulls

    def __getitem__(self, name: str) -> Values:
        """A column: a NumPy array, or an Arrow array where NumPy has no such type."""
        if name not in self._columns:
            raise ColumnNotFoundError(f"no column {name!r} in the batch: {_names(self.schema)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self.num_rows

    def keys(self) -> Sequence[str]:
        """The names of the columns, so that ``dict(batch)`` works."""
        return self.schema.names

    def mask(self, name: str) -> np.ndarray:
        """Where a column is null: bool, shape (rows,). The reader was made with ``mask=True``."""
        if name in self._nulls:
            return self._nulls[name]
        values = self[name]
        if isinstance(values, np.ndarray):
            raise InvalidArgumentError(f"{name!r}: the reader was not made with mask=True")
        return values.is_null().to_numpy(zero_copy_only=False)

    def to_arrow(self) -> pa.RecordBatch:
        """The rows as a record batch; a null that was filled is what it was filled with."""
        arrays = [
            _as_arrow(self._columns[field.name], field.type, self._nulls.get(field.name))
            for field in self.schema
        ]
        if not arrays:
            return pa.record_batch([pa.nulls(self.num_rows)], [""]).select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def to_torch(self) -> dict[str, torch.Tensor | pa.Array]:
        """Tensors by name, which share memory with the columns where torch has their type.

        Dates, timestamps and durations are ``int64`` in units of their columns; lists of numbers
        become jagged nested tensors. Other columns stay as they are.
        """
        import torch  # optional, and slow to import

        return {name: _as_tensor(self._columns[name], torch) for name in self.schema.names}

    def __repr__(self) -> str:
        return (
            f"TrainingBatch of {self.num_rows} rows, epoch {self.epoch}, step {self.step}: "
            f"{_names(self.schema)}"
        )


@dataclass(frozen=True)
class NullRule:
    """What becomes of nulls in columns that are NumPy arrays.

    fill: Values to put in their places, by column.
    mask: Whether batches tell where they were; zeros stand in the places that `fill` does not name.
    """

    fill: Mapping[str, Any]
    mask: bool

    def filled(self, array: pa.Array, field: pa.Field) -> pa.Array:
        """A column without nulls.

        Raises InvalidArgumentError: There are nulls, and nothing says what becomes of them.
        """
        if not array.null_count and not _has_null_items(array):
            return array
        name = field.name
        if name not in self.fill and not self.mask:
            raise InvalidArgumentError(
                f"column {name!r} has nulls, which NumPy arrays can't hold: expected "
                f"fill={{{name!r}: ...}}, mask=True, or a filter such as '\"{name}\" IS NOT NULL'"
            )
        value = fill_scalar(self.fill.get(name, 0), field)
        if not pat.is_fixed_size_list(field.type):
            return pc.fill_null(array, value)
        size = field.type.list_size
        items = pc.fill_null(_all_items(array), value)
        return pa.FixedSizeListArray.from_arrays(items, size)


def fill_scalar(value: Any, field: pa.Field) -> pa.Scalar:
    """What stands for a null, in the type of a column or of its items.

    Raises InvalidArgumentError: The value has another type.
    """
    kind = field.type.value_type if pat.is_fixed_size_list(field.type) else field.type
    try:
        if value is None:
            raise TypeError("null")
        if pat.is_float16(kind):
            return pa.scalar(np.float16(value))
        scalar = pa.scalar(bool(value) if value in (0, 1) and pat.is_boolean(kind) else value, kind)
        if pat.is_integer(kind) and scalar.as_py() != value:
            raise ValueError("another number")
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"fill={{{field.name!r}: {value!r}}}: expected a value of {kind}"
        ) from error
    return scalar


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a column of a type is a NumPy array in a batch."""
    if pat.is_fixed_size_list(kind):
        kind = kind.value_type
        return pat.is_integer(kind) or pat.is_floating(kind)
    return (
        pat.is_integer(kind)
        or pat.is_floating(kind)
        or pat.is_boolean(kind)
        or pat.is_date(kind)
        or pat.is_timestamp(kind)
        or pat.is_duration(kind)
    )


class Window:
    """Rows that were read for a window of the order, in the order in which they come.

    batches: The rows of the window's blocks.
    order: ``int64``: the numbers of those rows, in the order in which they come; None: as they are.
    rows_before: ``int64``, shape (slots + 1,): rows before each place of the window's order; None:
        every place has one.
    rule: For nulls.
    """

    __slots__ = ("_columns", "_nulls", "_rows_before")

    def __init__(
        self,
        batches: Sequence[pa.RecordBatch],
        order: np.ndarray | None,
        rows_before: np.ndarray | None,
        rule: NullRule,
    ) -> None:
        rows = one_batch(batches)
        self._rows_before = rows_before
        self._columns: list[Values] = []
        self._nulls: list[np.ndarray | None] = []
        for array, field in zip(rows.columns, rows.schema, strict=True):
            nulls = None
            if not is_numeric(field.type):
                self._columns.append(array if order is None else array.take(pa.array(order)))
            else:
                if rule.mask:
                    nulls = _in_order(array.is_null().to_numpy(zero_copy_only=False), order)
                values = _as_numpy(rule.filled(array, field))
                self._columns.append(_in_order(values, order))
            self._nulls.append(nulls)

    def bounds(self, start: int, stop: int) -> slice:
        """The rows between two places of the window's order, stop exclusive."""
        if self._rows_before is None:
            return slice(start, stop)
        return slice(int(self._rows_before[start]), int(self._rows_before[stop]))


def make_batch(
    schema: pa.Schema,
    pieces: Sequence[tuple[Window, slice]],
    rule: NullRule,
    *,
    epoch: int,
    step: int,
) -> TrainingBatch:
    """The rows of pieces of windows, in this order."""
    columns: dict[str, Values] = {}
    nulls: dict[str, np.ndarray] = {}
    for place, field in enumerate(schema):
        parts = [window._columns[place][rows] for window, rows in pieces]
        if is_numeric(field.type):
            columns[field.name] = np.concatenate(parts or [_as_numpy(pa.array([], field.type))])
        else:
            columns[field.name] = _joined(parts, field.type)
        if rule.mask and is_numeric(field.type):
            found = [window._nulls[place][rows] for window, rows in pieces]  # type: ignore[index]
            nulls[field.name] = np.concatenate(found) if found else np.zeros(0, np.bool_)
    rows = sum(each.stop - each.start for _, each in pieces)
    return TrainingBatch(schema, columns, nulls, num_rows=rows, epoch=epoch, step=step)


def _names(schema: pa.Schema) -> str:
    names = schema.names
    more = f", ... ({len(names)} columns)" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _in_order(values: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return values if order is None else values[order]


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else pa.array([], kind)
    batches = [pa.record_batch([part], [""]) for part in parts]
    return one_batch(batches).column(0)


def _all_items(array: pa.FixedSizeListArray) -> pa.Array:
    """The items of all rows, of null ones, too."""
    size = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    if not array.null_count:
        return items
    is_null = np.repeat(array.is_null().to_numpy(zero_copy_only=False), size)
    return pc.if_else(pa.array(is_null), pa.scalar(None, items.type), items)


def _has_null_items(array: pa.Array) -> bool:
    if not pat.is_fixed_size_list(array.type):
        return False
    size = array.type.list_size
    return bool(array.values.slice(array.offset * size, len(array) * size).null_count)


def _as_numpy(array: pa.Array) -> np.ndarray:
    """Values without nulls; a view where they are stored as NumPy has them."""
    if pat.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = _all_items(array).to_numpy(zero_copy_only=False)
        return items.reshape(len(array), size)
    return array.to_numpy(zero_copy_only=False)


def _as_arrow(values: Values, kind: pa.DataType, nulls: np.ndarray | None) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pat.is_fixed_size_list(kind):
        items = pa.array(values.reshape(-1), kind.value_type)
        mask = None if nulls is None else pa.array(nulls)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    if pat.is_timestamp(kind) and kind.tz is not None:
        return pa.array(values, pa.timestamp(kind.unit), mask=nulls).cast(kind)
    return pa.array(values, kind, mask=nulls)


def _as_tensor(values: Values, torch: Any) -> Any:
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "mM":  # torch has no times
            values = values.view(np.int64)
        return torch.from_numpy(values) if values.dtype.kind in "biuf" else values
    kind = values.type
    is_list = pat.is_list(kind) or pat.is_large_list(kind)
    if not is_list or not is_numeric(kind.value_type) or pat.is_fixed_size_list(kind.value_type):
        return values
    items = values.flatten()
    if (
        values.null_count
        or items.null_count
        or not (pat.is_integer(items.type) or pat.is_floating(items.type))
    ):
        return values
    offsets = values.offsets.to_numpy().astype(np.int64)
    return torch.nested.nested_tensor_from_jagged(
        torch.from_numpy(items.to_numpy(zero_copy_only=False).copy()),
        torch.from_numpy(offsets - offsets[0]),
    )
