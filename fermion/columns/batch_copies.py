"""Copies of record batches, for rows that are kept while their caller may change the memory.

Who else can write to the memory of an Arrow array is not known: a buffer of NumPy's is as mutable
as one of Arrow's own, neither names an owner, and buffers of other libraries look immutable
whatever lies behind them. So rows that wait after a call, or while their producer makes its next
batch, are copied, unless the caller promises to leave them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.arrow_buffers import list_ranges
from fermion.columns.arrow_input import is_in_memory, record_batch_reader
from fermion.columns.types import is_list_view
from fermion.errors import InvalidArgumentError

IPC_LEVELS_MAX = 32
"""Arrow's IPC refuses types nested deeper than 64 levels."""


class BatchCopier:
    """Copies batches of one schema: their rows alone, not all of the buffers that these lie in.

    Neighbouring batches with the same dictionary share one copy of it, as they shared it before.

    Parameters
    ----------
    schema
        Of the batches, which may have other columns of plain types after its own.
    special
        Ordinals of the columns whose type is not plain (`is_plain`); None: they are looked for.
    """

    def __init__(self, schema: pa.Schema, special: Iterable[int] | None = None) -> None:
        if special is None:
            types = schema.types  # of which a wide schema has few
            unlike = {dtype for dtype in set(types) if not is_plain(dtype)}
            special = [at for at, dtype in enumerate(types) if dtype in unlike] if unlike else ()
        self._special = {place: _copier(schema.field(place).type) for place in special}

    def copy(self, batch: pa.RecordBatch, places: Iterable[int] | None = None) -> pa.RecordBatch:
        """A batch with the same rows, and no memory that anyone else has.

        Parameters
        ----------
        places
            Copy only these columns; None: all.

        Raises
        ------
        InvalidArgumentError
            An array is not well-formed, as one of another library may be.
        """
        try:
            batch.validate()  # or what an offset says would be copied, wherever it lies
        except pa.ArrowInvalid as error:
            raise InvalidArgumentError(f"not a well-formed Arrow array: {error}") from error
        if places is None and not self._special:
            return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
        columns = batch.columns
        chosen = range(len(columns)) if places is None else list(places)
        plain = [place for place in chosen if place not in self._special]
        for place, column in zip(plain, _copied([columns[at] for at in plain]), strict=True):
            columns[place] = column
        for place in chosen:
            if place in self._special:
                columns[place] = self._special[place].copy(columns[place])
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch


def read_all(data: Any, *, schema: pa.Schema | None = None) -> pa.Table:
    """All rows of any Arrow producer: views of data that lie in memory, else copies of the batches.

    Parameters
    ----------
    data, schema
        As for `record_batch_reader`.

    Raises
    ------
    InvalidArgumentError
        See `record_batch_reader`.
    """
    reader = record_batch_reader(data, schema=schema)
    if is_in_memory(data):
        return reader.read_all()
    copier = BatchCopier(reader.schema)
    return pa.Table.from_batches(map(copier.copy, reader), schema=reader.schema)


def copied_array(array: pa.Array) -> pa.Array:
    """An array with the same values, and no memory that anyone else has."""
    batch = pa.RecordBatch.from_arrays([array], [""])
    return BatchCopier(batch.schema).copy(batch).column(0)


def is_plain(dtype: pa.DataType, levels: int = IPC_LEVELS_MAX) -> bool:
    """Whether Arrow's IPC copies the rows of an array and nothing else, in one message.

    Of views it copies whole buffers, and dictionaries are messages of their own.
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return is_plain(dtype.storage_type, levels)
    if levels == 0 or _is_view(dtype) or pat.is_dictionary(dtype):
        return False
    below = (dtype.field(at).type for at in range(dtype.num_fields))
    return all(is_plain(each, levels - 1) for each in below)


class _ArrayCopier(Protocol):
    """Copies the arrays of one type."""

    def copy(self, array: pa.Array) -> pa.Array:
        """The same values in other memory."""


def _copier(dtype: pa.DataType) -> _ArrayCopier:
    if is_plain(dtype):
        return _PlainCopier()
    if isinstance(dtype, pa.BaseExtensionType):
        return _ExtensionCopier(dtype)
    if _is_view(dtype):
        return _ViewCopier(dtype)
    if pat.is_dictionary(dtype):
        return _DictionaryCopier(dtype)
    return _RunsCopier(dtype) if pat.is_run_end_encoded(dtype) else _NestedCopier(dtype)


def _is_view(dtype: pa.DataType) -> bool:
    return pat.is_string_view(dtype) or pat.is_binary_view(dtype)


def _copied(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Arrays of one length and of plain types, copied into one piece of memory."""
    batch = pa.RecordBatch.from_arrays(arrays, [""] * len(arrays))
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema).columns if arrays else []


class _PlainCopier:
    """Copies arrays of plain types."""

    def copy(self, array: pa.Array) -> pa.Array:
        """See `_ArrayCopier`."""
        return _copied([array])[0]


class _ExtensionCopier:
    """Copies arrays of extension types whose storage is of no plain type."""

    def __init__(self, dtype: pa.BaseExtensionType) -> None:
        self._dtype, self._storage = dtype, _copier(dtype.storage_type)

    def copy(self, array: pa.ExtensionArray) -> pa.Array:
        """See `_ArrayCopier`."""
        return pa.ExtensionArray.from_storage(self._dtype, self._storage.copy(array.storage))


class _ViewCopier:
    """Copies string views and binary views: of their buffers only what the rows refer to."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._dtype = dtype
        self._wide = pa.large_string() if pat.is_string_view(dtype) else pa.large_binary()

    def copy(self, array: pa.Array) -> pa.Array:
        """See `_ArrayCopier`."""
        return _copied([array.cast(self._wide)])[0].cast(self._dtype)


class _DictionaryCopier:
    """Copies dictionary arrays; a dictionary only when a byte of it is not as in the last one."""

    def __init__(self, dtype: pa.DictionaryType) -> None:
        self._dtype = dtype
        self._values = _copier(dtype.value_type)
        self._is_compared = is_plain(dtype.value_type) or _is_view(dtype.value_type)
        self._bytes: pa.Buffer | None = None
        self._dictionary: pa.Array | None = None

    def copy(self, array: pa.DictionaryArray) -> pa.Array:
        """See `_ArrayCopier`."""
        (indices,), values = _copied([array.indices]), array.dictionary
        found = None
        if self._is_compared:
            found = pa.RecordBatch.from_arrays([values], [""]).serialize()
        # Not by their values, of which 0.0 equals -0.0.
        if found is None or self._bytes is None or not found.equals(self._bytes):
            self._bytes, self._dictionary = found, self._values.copy(values)
        return pa.DictionaryArray.from_arrays(
            indices, self._dictionary, ordered=self._dtype.ordered, safe=False
        )


class _RunsCopier:
    """Copies run-end encoded arrays."""

    def __init__(self, dtype: pa.RunEndEncodedType) -> None:
        self._dtype, self._values = dtype, _copier(dtype.value_type)

    def copy(self, array: pa.RunEndEncodedArray) -> pa.Array:
        """See `_ArrayCopier`."""
        first, count = array.find_physical_offset(), array.find_physical_length()
        ends = array.run_ends.to_numpy()[first : first + count].astype(np.int64) - array.offset
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(np.minimum(ends, len(array)), self._dtype.run_end_type),
            self._values.copy(array.values.slice(first, count)),
            self._dtype,
        )


class _NestedCopier:
    """Copies structs, lists and maps: their own buffers, and of their children what rows have."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._dtype = dtype
        self._children = [_copier(dtype.field(at).type) for at in range(dtype.num_fields)]

    def copy(self, array: pa.Array) -> pa.Array:
        """See `_ArrayCopier`."""
        valid = _copied([array.is_valid()])[0]
        buffers, children = [valid.buffers()[1] if array.null_count else None], []
        if pat.is_struct(self._dtype):
            children = [array.field(at) for at in range(len(self._children))]
        elif pat.is_fixed_size_list(self._dtype):
            size = self._dtype.list_size
            children = [array.values.slice(array.offset * size, len(array) * size)]
        else:
            own, low, high = self._list_buffers(array, valid.to_numpy(zero_copy_only=False))
            buffers += own
            children = [array.values.slice(low, high - low)]
        copied = [each.copy(child) for each, child in zip(self._children, children, strict=True)]
        return pa.Array.from_buffers(self._dtype, len(array), buffers, children=copied)

    def _list_buffers(self, array: pa.Array, valid: np.ndarray) -> tuple[list[pa.Buffer], int, int]:
        """Where the lists begin and end among their elements, and which of those they have."""
        width = array.offsets.type.to_pandas_dtype()
        if not is_list_view(self._dtype):
            offsets = array.offsets.to_numpy()
            low, high = int(offsets[0]), int(offsets[-1])
            return [pa.py_buffer(offsets - width(low))], low, high
        starts, lengths = list_ranges(array)
        lengths = np.where(valid, lengths, 0)
        has_any = lengths > 0
        low = int(starts[has_any].min(initial=len(array.values)))
        high = int((starts + lengths)[has_any].max(initial=low))
        starts = np.where(has_any, starts - low, 0)
        return [pa.py_buffer(each.astype(width)) for each in (starts, lengths)], low, high
