"""Rows of Arrow arrays by mask or number, also for types on which Arrow itself cannot do that.

Arrow 26 has no `take` and no `filter` for string views, binary views and run-end encoding, nor for
types that hold them: it raises ArrowNotImplementedError. The array is then shredded, its rows are
picked from the streams, and assembled. The error decides, not a list of types, as later versions of
Arrow know more types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion import kernels
from fermion.columns import slots
from fermion.columns.arrow_buffers import array_of, has_dictionary, is_same_memory
from fermion.columns.assemble import assemble
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Bits, Node, column_node, strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, dataclass

if TYPE_CHECKING:
    from fermion.columns import ordered_dictionaries, shred
else:
    ordered_dictionaries = LoadedWhenAskedFor("fermion.columns.ordered_dictionaries")
    shred = LoadedWhenAskedFor("fermion.columns.shred")


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """What a filter says of some rows of a stripe.

    mask: ``bool``, shape (rows,): which of them match.
    arrays: The filter's columns over them; None where it was tested on pages as they are encoded.
    pages: These pages, by offset and length.
    """

    around: RowRanges
    mask: np.ndarray
    arrays: list[pa.Array] | None
    pages: dict[tuple[int, int], memoryview] = dataclasses.field(default_factory=dict)

    def count(self) -> int:
        """How many rows match."""
        return int(np.count_nonzero(self.mask))

    def is_sparse(self, fraction: float) -> bool:
        """Whether no more than a fraction of the rows match."""
        return self.count() <= fraction * len(self.mask)

    def within(self, start: int, stop: int) -> Matches:
        """The same of the rows from ``start`` to ``stop``, exclusive; views."""
        first, inside = self.around.clip(0, start).total, self.around.clip(start, stop)
        last = first + inside.total
        arrays = self.arrays and [each.slice(first, last - first) for each in self.arrays]
        return Matches(inside, self.mask[first:last], arrays, self.pages)


def empty_columns(rows: int) -> pa.RecordBatch:
    """A record batch without columns that has so many rows."""
    struct = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(struct)


def filter_arrays(
    arrays: Sequence[pa.Array], mask: np.ndarray, node_of: Callable[[int], Node | None]
) -> list[pa.Array]:
    """The rows of some columns where ``mask``, bool of shape (rows,), is true.

    node_of: Gives the tree of the type of an array, by its place; None for a primitive type.
    Returns: The arrays themselves if the mask is all true.
    """
    if mask.all():
        return list(arrays)
    flags, found = _flags(mask), []
    for place, array in enumerate(arrays):
        try:
            found.append(pc.filtered(array, flags))
        except pa.ArrowNotImplementedError:  # views and run-end encoding
            found.append(_rearranged(array, np.flatnonzero(mask), node_of(place)))
    return found


def _flags(mask: np.ndarray) -> pa.BooleanArray:
    """The mask as an Arrow array, packed many times faster than Arrow does it."""
    packed = pa.py_buffer(Bits.pack(mask).data)
    return pa.BooleanArray.from_buffers(pa.bool_(), len(mask), [None, packed])


def take_rows(array: pa.ChunkedArray, indices: np.ndarray, node: Node | None) -> pa.ChunkedArray:
    """The rows with these numbers, int64, in their order, repeats allowed.

    Dictionaries that differ by chunk are joined here, as Arrow mixes up those of half floats.
    """
    if has_dictionary(array.type) and not _has_one_dictionary(array):
        return _joined(array, indices, node)
    try:
        return pc.taken(array, array_of(indices, pa.int64()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # the second: dictionaries with nulls
        return _joined(array, indices, node)


def take_table_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Some rows of a table; as `take_rows` for each column."""
    if not any(map(has_dictionary, set(table.schema.types))):
        try:
            return pc.taken(table, array_of(rows, pa.int64()))  # all columns in one call
        except pa.ArrowNotImplementedError:  # views and run-end encoding
            pass
    columns = [
        take_rows(column, rows, column_node(field.with_nullable(True)))
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def unwrapped(column: Any) -> Any:
    """A column without extension types, run ends and dictionaries around its values.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        The column itself if nothing is around its values.
    """
    dtype = column.type
    if isinstance(column, pa.ChunkedArray):
        plain = strip_wrappers(dtype)
        return column if dtype == plain else pa.chunked_array(map(unwrapped, column.chunks), plain)
    if isinstance(dtype, pa.BaseExtensionType):
        return unwrapped(column.storage)
    if pat.is_run_end_encoded(dtype):

        def repeated(values: pa.Array) -> pa.Array:
            # Run ends count from the start of the array that this one may be a slice of.
            whole = pa.RunEndEncodedArray.from_arrays(column.run_ends, values)
            return pc.run_end_decode(whole.slice(column.offset, len(column)))

        return _decoded(unwrapped(column.values), repeated)
    if pat.is_dictionary(dtype):
        return _decoded(unwrapped(column.dictionary), lambda values: values.take(column.indices))
    return column


def field_within(column: Any, names: Sequence[str]) -> Any:
    """The field of a struct at a path, by its exact name; null where a struct above is.

    column: An array or a chunked one.
    Raises KeyError: There is no struct with this field, or one with several.
    """
    for name in names:
        column = unwrapped(column)
        if not pat.is_struct(column.type) or len(column.type.get_all_field_indices(name)) != 1:
            raise KeyError(name)
        if column.null_count or isinstance(column, pa.ChunkedArray):
            column = pc.struct_field(column, [name])  # takes a look at all fields of the struct
        else:
            column = column.field(name)
    return column


def _decoded(values: pa.Array, decode: Callable[[pa.Array], pa.Array]) -> pa.Array:
    try:
        return decode(values)
    except pa.ArrowNotImplementedError:
        if not (pat.is_string_view(values.type) or pat.is_binary_view(values.type)):
            raise
    wide = pa.large_string() if pat.is_string_view(values.type) else pa.large_binary()
    return decode(values.cast(wide)).cast(values.type)


def joined_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Batches of one schema as one; as they are if a column has a dictionary, or would get more
    than 2 GiB of text, bytes or items."""
    if len(batches) < 2 or any(map(has_dictionary, set(batches[0].schema.types))):
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowInvalid:  # offsets of 32 bits overflow
        return batches


RUNS_MERGED_MAX = 128
"""Sorted runs that NumPy merges in less time than their numbers are sorted by digits."""


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """The places of numbers in ascending order, equal ones as they come: ``int64``, shape (n,).

    The same as ``np.argsort(numbers, kind="stable")``, in a third of the time if they come in no
    order.

    numbers: ``int64``, shape (n,).
    """
    descents = np.count_nonzero(numbers[1:] < numbers[:-1])
    if descents < RUNS_MERGED_MAX or len(numbers) >> 32:
        return np.argsort(numbers, kind="stable")
    out = np.empty(len(numbers), np.int64)
    kernels.stable_order(numbers, out)
    return out


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of batches of one schema in one; a copy where there are several.

    Dictionaries that differ are joined here, as Arrow mixes up those of half floats and joins none
    of lists and structs. Ordered ones that contradict each other keep the order in which their
    values occur.

    Parameters
    ----------
    batches
        At least one.

    Raises
    ------
    pyarrow.ArrowInvalid
        A column gets more than 2 GiB of text, bytes or items, or more dictionary values than its
        indices can number.
    """
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    if not any(map(has_dictionary, set(schema.types))):
        return pa.concat_batches(batches)
    columns = [[batch.column(place) for batch in batches] for place in range(len(schema))]
    try:
        arrays = list(map(_one_array, schema, columns))
    except InvalidArgumentError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _one_array(field: pa.Field, chunks: Sequence[pa.Array]) -> pa.Array:
    column = pa.chunked_array(chunks, field.type)
    if not has_dictionary(field.type) or _has_one_dictionary(column):
        return pa.concat_arrays(chunks)
    node = column_node(field.with_nullable(True))
    array = assemble(node, shred.shred(column, node))
    orders = ordered_dictionaries.orders_of(node, chunks)
    return array if orders is None else orders.restore(0, node, 0, array, where="rows")


def take_batch_rows(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Some rows of a batch; a copy.

    Parameters
    ----------
    rows
        ``int64``, shape (n,): row numbers in any order, repeats allowed.
    """
    indices = array_of(rows, pa.int64())
    arrays = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            arrays.append(column.take(indices))
        except pa.ArrowNotImplementedError:  # views and run-end encoding
            node = column_node(field.with_nullable(True))
            arrays.append(_rearranged(column, rows, node))
    if not arrays:
        return batch.slice(0, len(rows))
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def filter_batch_rows(batch: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    """The rows where ``mask``, bool of shape (num_rows,), is true; the batch if it is all true."""
    return batch if mask.all() else take_batch_rows(batch, np.flatnonzero(mask))


def drop_batch_rows(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """A batch without some rows; the batch itself if these are none.

    Rows that stay are copied by a mask, which is faster than `filter_batch_rows` if most stay.

    Parameters
    ----------
    rows
        ``int64``, shape (n,): row numbers, ascending.
    """
    if not len(rows):
        return batch
    mask = np.ones(batch.num_rows, bool)
    mask[rows] = False
    schema = batch.schema
    arrays = filter_arrays(
        batch.columns, mask, lambda place: column_node(schema.field(place).with_nullable(True))
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(array: pa.ChunkedArray, indices: np.ndarray, node: Node | None) -> pa.ChunkedArray:
    """Rows of chunks with dictionaries of their own, in one chunk; more where orders differ."""
    assert node is not None
    if ordered_dictionaries.orders_of(node, array.chunks) is not None:
        return pa.chunked_array([_rearranged(array, indices, node)])
    ends = np.cumsum([len(chunk) for chunk in array.chunks])
    owners = np.searchsorted(ends, indices, side="right")
    parts = []
    for run in np.split(np.arange(len(indices)), np.flatnonzero(np.diff(owners)) + 1):
        chunk = array.chunk(int(owners[run[0]]))
        start = int(ends[owners[run[0]]]) - len(chunk)
        parts.append(_rearranged(chunk, indices[run] - start, node))
    return pa.chunked_array(parts)


def _has_one_dictionary(array: pa.ChunkedArray) -> bool:
    """Whether all chunks have the very same dictionary, or there is but one chunk."""
    if array.num_chunks < 2:
        return True
    if not pat.is_dictionary(array.type):
        return False
    first, *others = (chunk.dictionary for chunk in array.chunks)
    return all(is_same_memory(first, each) for each in others)


def _rearranged(
    array: pa.Array | pa.ChunkedArray, indices: np.ndarray, node: Node | None
) -> pa.Array:
    assert node is not None
    if node.type != array.type:  # a dictionary that was kept
        node = replace(node, type=array.type)
    found = assemble(node, slots.take(node, shred.shred(array, node), indices))
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    orders = ordered_dictionaries.orders_of(node, chunks)
    assert orders is not None
    return orders.restore(0, node, 0, found, where="rows")


def ordered_decimals(values: Any) -> Any:
    """Values in a type that Arrow compares, in the same order.

    values (pyarrow.Array or pyarrow.ChunkedArray): Without wrappers around the type.
    Returns: A view of decimals of a negative scale as their unscaled numbers; others as they are.
    """
    dtype = values.type
    if not pat.is_decimal(dtype) or dtype.scale >= 0:
        return values
    unscaled = getattr(pa, f"decimal{dtype.bit_width}")(dtype.precision, 0)
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(unscaled) for chunk in values.chunks], unscaled)
    return values.view(unscaled)
