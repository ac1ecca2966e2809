"""Pages are cut by bytes and slots, and never inside a batch."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fermion.pages.cuts import cut_batches, cut_fixed, cut_offsets

LIMITS = {"page_bytes": 1000, "page_rows_max": 64}


@given(st.integers(0, 5_000), st.sampled_from([1 / 8, 1, 8, 2_000]))
def test_fixed_cuts_cover_all_slots_within_the_limits(slots, width):
    cuts = cut_fixed(slots, width, **LIMITS)
    assert cuts[0] == 0
    assert cuts[-1] == slots
    rows = np.diff(cuts)
    assert (rows > 0).all()
    assert (rows <= 64).all()
    assert ((rows * width <= 1000) | (rows == 1)).all()


@given(st.lists(st.integers(0, 3_000), max_size=200))
def test_offset_cuts_cover_all_slots_within_the_limits(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    cuts = cut_offsets(offsets, **LIMITS)
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    for start, stop in itertools.pairwise(cuts):
        assert 0 < stop - start <= 64
        assert offsets[stop] - offsets[start] <= 1000 or stop - start == 1


@given(st.lists(st.integers(0, 100), max_size=100))
def test_batch_cuts_fall_only_where_a_batch_ends(lengths):
    ends = np.cumsum(np.asarray(lengths, np.int64))
    cuts = cut_batches(ends, ends * 8, **LIMITS)
    total = int(ends[-1]) if len(ends) else 0
    assert cuts[0] == 0
    assert cuts[-1] == total
    assert (np.diff(cuts) > 0).all()
    assert set(cuts.tolist()) <= {0, *ends.tolist()}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=100))
def test_a_page_of_several_batches_keeps_to_the_limits(lengths):
    ends = np.cumsum(np.asarray(lengths, np.int64))
    cuts = cut_batches(ends, ends * 8, **LIMITS)
    for start, stop in itertools.pairwise(cuts):
        batches = int(((ends > start) & (ends <= stop)).sum())
        assert batches == 1 or (stop - start <= 64 and (stop - start) * 8 <= 1000)
