"""Rows of record batches, also of types that Arrow's own `take` leaves out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fermion.columns.rows import filter_batch_rows, take_batch_rows
from tests.kit.arrow_samples import ARRAYS

ROWS = [[], [0, 1, 2, 3, 4, 5], [3, 0, 0, 2], [5], [1, 2, 3]]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("sliced", [False, True])
def test_rows_are_those_with_the_numbers_in_their_order(name, rows, sliced):
    """Beside a required column; types stay, and Arrow finds nothing wrong."""
    array = ARRAYS[name]
    if sliced:
        array = array.slice(2)
        rows = [row % len(array) for row in rows]
    schema = pa.schema([pa.field("a", array.type), pa.field("n", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([array, pa.array(range(len(array)))], schema=schema)
    found = take_batch_rows(batch, np.array(rows, np.int64))
    found.validate(full=True)
    assert found.schema == schema
    values = array.to_pylist()
    assert found.column("a").to_pylist() == [values[row] for row in rows]
    assert found.column("n").to_pylist() == rows


@pytest.mark.parametrize("name", ARRAYS)
def test_a_mask_keeps_the_rows_where_it_is_true(name):
    batch = pa.record_batch({"a": ARRAYS[name]})
    mask = np.array([True, False, False, True, True, False])
    found = filter_batch_rows(batch, mask).column("a").to_pylist()
    assert found == [ARRAYS[name].to_pylist()[row] for row in (0, 3, 4)]
    assert filter_batch_rows(batch, np.ones(6, bool)) is batch
    assert filter_batch_rows(batch, np.zeros(6, bool)).num_rows == 0


def test_a_batch_without_columns_keeps_its_number_of_rows():
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([])))
    assert take_batch_rows(batch, np.array([3, 1])).num_rows == 2
