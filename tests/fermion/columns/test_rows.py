"""Rows of columns by mask or number, also of types that Arrow's own functions leave out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fermion.columns.rows import filter_arrays, stable_order, take_rows
from fermion.columns.types import column_node
from tests.kit.arrow_samples import ARRAYS

MASK = np.array([True, False, False, True, True, False])


@pytest.mark.parametrize("name", ARRAYS)
def test_a_mask_keeps_the_rows_of_an_array_where_it_is_true(name: str) -> None:
    array = ARRAYS[name]
    node = column_node(pa.field("a", array.type))
    (found,) = filter_arrays([array], MASK, lambda _: node)
    found.validate(full=True)
    assert found.type == array.type
    assert found.to_pylist() == [array.to_pylist()[row] for row in (0, 3, 4)]


@pytest.mark.parametrize("name", ARRAYS)
def test_numbers_of_rows_count_through_all_chunks(name: str) -> None:
    array = ARRAYS[name]
    column = pa.chunked_array([array, array.slice(2)])
    found = take_rows(column, np.array([8, 0, 5, 8]), column_node(pa.field("a", array.type)))
    found.validate(full=True)
    assert found.type == array.type
    values = column.to_pylist()
    assert found.to_pylist() == [values[row] for row in (8, 0, 5, 8)]


@pytest.mark.parametrize("runs", [1, 5, 200, 5_000])
def test_the_order_of_numbers_is_that_of_numpy(runs: int) -> None:
    """Few sorted runs, which NumPy merges, and many, which the kernel sorts."""
    numbers = np.random.default_rng(runs).integers(-100, 2_000, (runs, 10_000 // runs))
    joined = np.sort(numbers, axis=1).reshape(-1)
    order = stable_order(joined)
    assert order.dtype == np.int64
    assert np.array_equal(order, np.argsort(joined, kind="stable"))
    assert stable_order(joined[:0]).tolist() == []
