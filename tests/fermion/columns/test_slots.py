"""Selecting and joining rows of shredded columns, against slices of the Arrow arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns import slots
from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import column_node
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import arrow_arrays


def slices(array: pa.Array, starts: np.ndarray, stops: np.ndarray) -> pa.ChunkedArray:
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return pa.chunked_array([array.slice(start, stop - start) for start, stop in pairs], array.type)


@given(arrow_arrays(length=20), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_selected_ranges_are_slices_in_order(
    array: pa.Array, ranges: list[tuple[int, int]]
) -> None:
    node = column_node(pa.field("column", array.type))
    bounds = np.sort(np.array(ranges, np.int64).reshape(-1, 2), axis=1)
    starts, stops = bounds[:, 0].copy(), bounds[:, 1].copy()
    selected = slots.select(node, shred(array, node), starts, stops)
    result = pa.chunked_array([assemble(node, selected)], array.type)
    assert_logically_equal(result, slices(array, starts, stops))


@given(arrow_arrays(length=20), st.lists(st.integers(0, 19)))
def test_taken_slots_are_slices_of_one(array: pa.Array, indices: list[int]) -> None:
    node = column_node(pa.field("column", array.type))
    at = np.array(indices, np.int64)
    taken = slots.take(node, shred(array, node), at)
    result = pa.chunked_array([assemble(node, taken)], array.type)
    assert_logically_equal(result, slices(array, at, at + 1))


@given(arrow_arrays(length=20), st.lists(st.integers(0, 20), max_size=4))
def test_joined_parts_are_the_whole(array: pa.Array, cuts: list[int]) -> None:
    node = column_node(pa.field("column", array.type))
    bounds = [0, *sorted(cuts), 20]
    parts = [
        shred(array.slice(start, stop - start), node) for start, stop in itertools.pairwise(bounds)
    ]
    assert_logically_equal(assemble(node, slots.concatenate(node, parts)), array)
