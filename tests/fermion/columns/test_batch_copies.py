"""Copies of batches have nothing in common with the batches, and take no more than their rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from fermion.columns.arrow_buffers import is_same_memory
from fermion.columns.arrow_input import BatchCopier, copied_array, is_in_memory, read_all
from fermion.errors import InvalidArgumentError
from tests.kit import strategies
from tests.kit.equality import assert_logically_equal
from tests.kit.refilled_memory import batches_of_one_memory

ROWS = 10_000


@given(strategies.tables())
def test_a_copy_shares_no_memory(table: pa.Table) -> None:
    """No address of a copy lies in a buffer of what was copied, at any depth."""
    copier = BatchCopier(table.schema)
    for batch in table.to_batches():
        copy = copier.copy(batch)
        copy.validate(full=True)
        assert_logically_equal(copy, batch)
        for before, after in zip(batch.columns, copy.columns, strict=True):
            for start, stop in _spans(after):
                assert all(stop <= low or high <= start for low, high in _spans(before))


def _spans(array: pa.Array) -> Iterator[tuple[int, int]]:
    """First and last address of every buffer, those of children and dictionaries too."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            yield buffer.address, buffer.address + buffer.size
    if isinstance(array, pa.DictionaryArray):
        yield from _spans(array.dictionary)
    elif isinstance(array, pa.StructArray):
        for place in range(array.type.num_fields):
            yield from _spans(array.field(place))
    elif array.type.num_fields:
        yield from _spans(array.values)


def _texts(dtype: pa.DataType) -> pa.Array:
    return pa.array([f"a text of many bytes, number {row}" for row in range(ROWS)], dtype)


LISTS = pa.array(np.arange(0, ROWS + 1, 2), pa.int64())
LARGE = {
    "numbers": pa.array(np.arange(ROWS)),
    "texts": _texts(pa.string()),
    "views": _texts(pa.string_view()),
    "lists of views": pa.LargeListArray.from_arrays(LISTS, _texts(pa.string_view())),
    "list views": pa.LargeListViewArray.from_arrays(
        LISTS[:-1], pa.array([2] * (ROWS // 2)), _texts(pa.string_view())
    ),
    "fixed lists": pa.FixedSizeListArray.from_arrays(_texts(pa.string_view()), 2),
    "maps": pa.MapArray.from_arrays(LISTS.cast("int32"), _texts("string"), _texts("string_view")),
    "structs": pa.StructArray.from_arrays([_texts(pa.string_view())], ["a"]),
    "runs": pa.RunEndEncodedArray.from_arrays(
        pa.array(np.arange(1, ROWS + 1), pa.int32()), _texts(pa.string_view())
    ),
    "extension": pa.ExtensionArray.from_storage(
        pa.opaque(pa.string_view(), "kind", "vendor"), _texts(pa.string_view())
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_copy_of_few_rows_is_small(name: str) -> None:
    rows = LARGE[name].slice(1000, 2)
    copy = copied_array(rows)
    assert copy.to_pylist() == rows.to_pylist()
    assert sum(stop - start for start, stop in _spans(copy)) < 2000


@pytest.mark.parametrize("dtype", [pa.string(), pa.string_view(), pa.float64()])
def test_batches_with_one_dictionary_share_a_copy(dtype: pa.DataType) -> None:
    """So that many small batches of a large dictionary take no more memory than they did."""
    values = pa.array(np.arange(1000.0)).cast(dtype)
    indices = pa.array([1, 2], pa.int16())
    schema = pa.schema([("a", pa.dictionary(pa.int16(), dtype))])
    copier = BatchCopier(schema)
    one, same, other = (
        copier.copy(pa.record_batch([pa.DictionaryArray.from_arrays(indices, each)], schema))[0]
        for each in (values, values, pa.concat_arrays([values.slice(1), values.slice(0, 1)]))
    )
    assert is_same_memory(one.dictionary, same.dictionary)
    assert not is_same_memory(one.dictionary, values)
    assert other.dictionary[0].as_py() == values[1].as_py()


def test_an_array_that_is_not_well_formed_is_refused() -> None:
    """Arrow takes such arrays from other libraries without a look, and would copy other memory."""

    class Foreign:
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            ends = pa.array([0, 1_000_000_000, 3], pa.int32())
            good = pa.Array.from_buffers(
                pa.string(), 2, [None, ends.buffers()[1], pa.py_buffer(b"abc")]
            )
            return pa.StructArray.from_arrays([good], ["a"]).slice(0, 1).__arrow_c_array__()

    batch = pa.record_batch(Foreign())
    with pytest.raises(InvalidArgumentError, match="not a well-formed Arrow array"):
        BatchCopier(batch.schema).copy(batch)


def test_columns_without_rows_and_rows_without_columns_are_copied() -> None:
    empty = pa.record_batch({"a": pa.array([], pa.string_view())})
    assert BatchCopier(empty.schema).copy(empty).equals(empty)
    bare = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 7, [None]))
    assert BatchCopier(bare.schema).copy(bare).num_rows == 7


def test_what_runs_code_between_batches_does_not_lie_in_memory() -> None:
    table = pa.table({"a": [1]})
    batch = table.to_batches()[0]
    for data in (table, batch, table["a"], {"a": [1]}, pd.DataFrame({"a": [1]}), [batch, table]):
        assert is_in_memory(data)
    for data in (table.to_reader(), iter([batch]), (each for each in [table]), [table.to_reader()]):
        assert not is_in_memory(data)


def test_all_rows_of_a_producer_that_refills_its_memory_are_read() -> None:
    tables = [pa.table({"a": [number], "b": [f"text {number}"]}) for number in range(5)]
    expected = pa.concat_tables(tables)
    assert read_all(batches_of_one_memory(tables)).equals(expected)
    numbers = np.arange(3)
    table = read_all({"a": numbers})
    assert table["a"].chunk(0).buffers()[1].address == numbers.ctypes.data  # not copied
