"""What a writer keeps after a call is its own: callers refill their memory.

The data lie in memory that is overwritten after every call, and after every batch of a producer
that makes batches; the file must hold what was there during the call.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fermion
from fermion.columns.arrow_buffers import has_dictionary
from fermion.writing.stripe_limits import is_limited
from tests.kit import strategies
from tests.kit.arrow_limits import has_nested_wrappers, message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.refilled_memory import RefilledMemory, batches_of_one_memory

ROWS = 1000
SCHEMA = pa.schema([("x", pa.int64())])


def _of_buffer(view: memoryview) -> pa.Table:
    array = pa.Array.from_buffers(pa.int64(), len(view), [None, pa.py_buffer(view)])
    return pa.table([array], ["x"])


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "pandas": lambda numbers: pd.DataFrame({"x": numbers}, copy=False),
    "polars": lambda numbers: pl.DataFrame({"x": numbers}),
    "dict": lambda numbers: {"x": numbers},
    "table": lambda numbers: pa.table({"x": numbers}),
    "batch": lambda numbers: pa.record_batch({"x": numbers}),
    "reader": lambda numbers: pa.table({"x": numbers}).to_reader(),
    "batches": lambda numbers: pa.table({"x": numbers}).to_batches(max_chunksize=100),
    "memory view": lambda numbers: _of_buffer(memoryview(numbers)),
    "read-only view": lambda numbers: _of_buffer(memoryview(numbers).toreadonly()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_buffer_that_is_refilled_between_writes_is_stored_as_it_was(form: str) -> None:
    sink, numbers = io.BytesIO(), np.zeros(ROWS, np.int64)
    with fermion.Writer(sink, SCHEMA) as writer:
        for number in range(3):
            numbers[:] = number
            writer.write(FORMS[form](numbers))
        numbers[:] = -1
    _check_numbers(sink)


@pytest.mark.parametrize("form", FORMS)
def test_a_buffer_that_is_refilled_between_batches_is_stored_as_it_was(form: str) -> None:
    sink, numbers = io.BytesIO(), np.zeros(ROWS, np.int64)
    with fermion.Writer(sink, SCHEMA) as writer:
        for number in range(3):
            numbers[:] = number
            writer.append_batch(number, FORMS[form](numbers))
        numbers[:] = -1
    _check_numbers(sink)


@pytest.mark.parametrize("stripe_rows", [700, 10_000])
def test_a_producer_that_refills_its_buffer_is_stored_as_it_was(stripe_rows: int) -> None:
    sink, numbers = io.BytesIO(), np.zeros(ROWS, np.int64)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            numbers[:] = number
            yield pa.record_batch({"x": numbers})
            numbers[:] = -1

    fermion.write_table(batches(), sink, stripe_rows=stripe_rows)
    _check_numbers(sink)


def _check_numbers(sink: io.BytesIO) -> None:
    _check_rows(sink, np.repeat([0, 1, 2], ROWS).tolist())


def _check_rows(sink: io.BytesIO, expected: Iterable[int]) -> None:
    found = fermion.open(sink.getvalue()).read()["x"]
    assert found.to_pylist() == list(expected)


def test_columns_that_are_added_from_a_refilled_buffer_are_stored_as_they_were() -> None:
    sink, numbers = io.BytesIO(), np.zeros(ROWS, np.int64)
    fermion.write_table(pa.table({"y": pa.nulls(3 * ROWS)}), sink)
    added = io.BytesIO()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            numbers[:] = number
            yield pa.record_batch({"x": numbers})

    fermion.add_columns(sink.getvalue(), batches(), destination=added)
    _check_numbers(added)


def test_the_order_of_rows_is_checked_with_what_was_written() -> None:
    """The last row of a stripe is compared with the first of the next one, a call later."""
    options = fermion.WriteOptions(sorted_by=["x"], stripe_rows=10)
    numbers = np.arange(25)
    sink = io.BytesIO()
    with fermion.Writer(sink, SCHEMA, options=options) as writer:
        writer.write({"x": numbers})
        numbers[:] = 1000
        writer.write({"x": np.arange(25, 50)})
    _check_rows(sink, range(50))


def test_categories_that_are_refilled_are_stored_as_they_were() -> None:
    """Those of narrow indices are counted, and ordered ones are kept until the file ends."""
    for ordered in (False, True):
        dtype = pa.dictionary(pa.int8(), pa.int64(), ordered=ordered)
        codes, values = np.zeros(ROWS, np.int8), np.zeros(50, np.int64)
        sink = io.BytesIO()
        with fermion.Writer(sink, pa.schema([("x", dtype)])) as writer:
            for number in range(3):
                codes[:], values[:] = np.arange(ROWS) % 50, np.arange(50) + 50 * number
                array = pa.DictionaryArray.from_arrays(codes, values, ordered=ordered)
                writer.write(pa.table([array], "x"))
                codes[:], values[:] = 0, 0
        found = fermion.open(sink.getvalue()).read()["x"].cast(pa.int64()).to_pylist()
        assert found == [row % 50 + 50 * number for number in range(3) for row in range(ROWS)]


def test_equal_dictionaries_are_told_apart_by_their_bytes() -> None:
    """0.0 equals -0.0: the copy of one dictionary must not stand for the other."""
    dtype, sink = pa.dictionary(pa.int32(), pa.float64()), io.BytesIO()
    with fermion.Writer(sink, pa.schema([("x", dtype)])) as writer:
        for zero in (0.0, -0.0):
            writer.write({"x": pa.DictionaryArray.from_arrays(np.zeros(1, np.int32), [zero])})
    found = fermion.open(sink.getvalue()).read()["x"].cast(pa.float64()).to_numpy()
    assert np.signbit(found).tolist() == [False, True]


def _write_each(
    tables: Sequence[pa.Table], schema: pa.Schema, sink: io.BytesIO, options: fermion.WriteOptions
) -> None:
    with fermion.Writer(sink, schema, options=options) as writer:
        for table in tables:
            memory = RefilledMemory(table)
            writer.write(memory.table)
            memory.zero()


def _append_each(
    tables: Sequence[pa.Table], schema: pa.Schema, sink: io.BytesIO, options: fermion.WriteOptions
) -> None:
    with fermion.Writer(sink, schema, options=options) as writer:
        for number, batch in enumerate(_batches(tables)):
            parts = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3)])
            writer.append_batch(number, _reader([parts], schema))


def _write_reader(
    tables: Sequence[pa.Table], schema: pa.Schema, sink: io.BytesIO, options: fermion.WriteOptions
) -> None:
    fermion.write_table(_reader(tables, schema), sink, options=options)


def _add_columns(
    tables: Sequence[pa.Table], schema: pa.Schema, sink: io.BytesIO, options: fermion.WriteOptions
) -> None:
    if any(is_limited(dtype) or has_dictionary(dtype) for dtype in schema.types):
        _write_reader(tables, schema, sink, options)  # there may be too many values for a stripe
        return
    file, rows = io.BytesIO(), sum(table.num_rows for table in tables)
    first = pa.table({"first": pa.nulls(rows)})
    fermion.write_table(first, file, stripe_rows=options.stripe_rows)
    both = io.BytesIO()
    fermion.add_columns(file.getvalue(), _reader(tables, schema), destination=both, options=options)
    fermion.drop_columns(both.getvalue(), ["first"], destination=sink)


def _batches(tables: Iterable[pa.Table]) -> list[pa.RecordBatch]:
    return [batch for table in tables for batch in table.to_batches()]


def _reader(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches_of_one_memory(tables))


WAYS = [_write_each, _append_each, _write_reader, _add_columns]


@given(st.data(), st.integers(1, 60), st.booleans())
def test_memory_of_any_type_is_the_callers_again(
    data: st.DataObject, stripe_rows: int, shares_dictionaries: bool
) -> None:
    """Every way to write a file, from rows of any type that are overwritten after each call."""
    schema = data.draw(strategies.schemas(fewest=1, most=3)).remove_metadata()
    assume(message_can_hold(schema) and not any(map(has_nested_wrappers, schema.types)))
    tables = data.draw(st.lists(strategies.tables(schema), max_size=3))
    expected = pa.Table.from_batches(_batches(tables), schema=schema)
    names = [field.name for field in schema if pa.types.is_integer(field.type)]
    options = fermion.WriteOptions(
        stripe_rows=stripe_rows, global_dictionaries=names if shares_dictionaries else ()
    )
    for way in WAYS:
        sink = io.BytesIO()
        way(tables, schema, sink, options)
        assert_logically_equal(fermion.open(sink.getvalue()).read(), expected)
