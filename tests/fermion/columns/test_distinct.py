"""Numbers of equal values and runs, against comparing every pair of slots."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given

from fermion.columns import distinct
from fermion.columns.shred import shred
from fermion.columns.types import column_node
from tests.kit.equality import is_logically_equal
from tests.kit.strategies import arrow_arrays


def first_equal(array: pa.Array) -> list[int]:
    """For each slot the first one that holds the same, by comparing all pairs."""
    ones = [array.slice(index, 1) for index in range(len(array))]
    return [
        next(other for other in range(index + 1) if is_logically_equal(ones[other], ones[index]))
        for index in range(len(array))
    ]


@given(arrow_arrays(length_max=8))
def test_slots_have_the_same_number_exactly_when_they_are_equal(array: pa.Array) -> None:
    node = column_node(pa.field("column", array.type))
    codes, first = distinct.codes(node, shred(array, node), len(array))
    expected = first_equal(array)
    null = codes == -1
    assert first[codes[~null]].tolist() == np.array(expected, np.int64)[~null].tolist()
    assert len({expected[index] for index in np.flatnonzero(null)}) <= 1
    assert first.tolist() == sorted({expected[index] for index in np.flatnonzero(~null)})


@given(arrow_arrays(length_max=8))
def test_runs_start_where_a_slot_differs_from_the_one_before(array: pa.Array) -> None:
    node = column_node(pa.field("column", array.type))
    starts = distinct.run_starts(node, shred(array, node), len(array))
    expected = first_equal(array)
    changes = [i for i in range(len(array)) if i == 0 or expected[i] != expected[i - 1]]
    assert starts.tolist() == changes
