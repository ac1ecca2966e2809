"""Runs of equal values, compiled and in NumPy."""

from __future__ import annotations

from itertools import groupby
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.kernel_cases import BOTH, INTEGERS, few, seeds

FIXED = [*INTEGERS, "f2", "f4", "f8", "V1", "V3", "V16"]


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@few
@given(seed=seeds, length=st.sampled_from([1, 2, 40]))
def test_runs_are_found_and_expanded(k: ModuleType, dtype: str, seed: int, length: int):
    rng = np.random.default_rng(seed)
    pool = np.frombuffer(rng.bytes(3 * np.dtype(dtype).itemsize), dtype)
    values = np.repeat(pool[rng.integers(0, 3, 30)], rng.integers(1, length + 1, 30))
    lengths = [len(list(run)) for _, run in groupby(value.tobytes() for value in values)]
    ends = np.cumsum(lengths)
    starts = np.empty(k.count_runs(values), np.int64)
    k.run_starts(values, starts)
    assert starts.tolist() == [0, *ends[:-1].tolist()]
    first, stop = np.sort(rng.integers(0, len(values) + 1, 2)).tolist()
    for start, end in ((0, len(values)), (first, stop)):
        out = np.empty(end - start, dtype)
        k.expand_runs(values[starts], ends, start, end, out)
        assert out.tobytes() == values[start:end].tobytes()


@BOTH
def test_runs_may_be_empty_but_must_not_go_back(k: ModuleType):
    values, out = np.array([5, 6, 7, 8]), np.empty(3, np.int64)
    k.expand_runs(values, np.array([0, 2, 2, 3]), 0, 3, out)
    assert out.tolist() == [6, 6, 8]
    assert k.count_runs(values[:0]) == 0
    k.run_starts(values[:0], values[:0])
    k.expand_runs(values[:0], values[:0], 0, 0, values[:0])
    for ends in ([0, 2, 1, 3], [0, 2, 2, 2], [-1, 0, 0, 3], [1, 2, 3]):
        with pytest.raises(ValueError):
            k.expand_runs(values, np.array(ends), 0, 3, out)
    with pytest.raises(ValueError):
        k.expand_runs(values, np.array([0, 2, 2, 3]), 0, 2, out)
    with pytest.raises(ValueError):
        k.run_starts(values, out)
