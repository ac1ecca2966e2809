"""Single rows whose values hang on those before them: differences, and strings behind strings.

NumPy and Arrow take the rows from the table that was written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import kernels
from fermion.reading.column import ColumnTask
from tests.kit.equality import assert_logically_equal
from tests.kit.paged_columns import written

ROWS = 5_000
TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def steps(random: np.random.Generator, bits: int, spikes: int, dtype: np.dtype) -> np.ndarray:
    """Differences of so many bits, of which some are larger: those become patches."""
    room = 8 * dtype.itemsize
    found = random.integers(0, 1 << min(bits, room - 1, 62), ROWS, dtype=np.int64)
    if spikes:
        places = random.choice(ROWS, spikes, replace=False)
        found[places] += random.integers(1, 1 << min(bits + 9, room - 1, 62), spikes)
        found[::1024] += random.integers(0, 2, len(found[::1024])) << min(bits + 4, room - 2)
    return found


def picked_by_kernels(data: bytes, rows: np.ndarray) -> pa.Table:
    """The rows; fails where a column is read in another way."""
    with pytest.MonkeyPatch.context() as patch, fermion.open(data) as file:
        patch.setattr(ColumnTask, "__init__", lambda *_, **__: pytest.fail("read another way"))
        return file.take(rows)


@settings(max_examples=60)
@given(
    st.sampled_from(TYPES),
    st.integers(0, 62),
    st.integers(0, 200),
    st.sampled_from([3, 60, 250]),
    st.integers(0, 2**32),
)
def test_single_values_of_differences_are_those_that_were_written(kind, bits, spikes, picks, seed):
    """Every width of differences, with patches; few and many rows of a block, the last one too."""
    random, dtype = np.random.default_rng(seed), np.dtype(kind)
    with np.errstate(over="ignore"):
        values = steps(random, bits, spikes, dtype).astype(dtype).cumsum(dtype=dtype)
    table = pa.table({"x": values})
    data = written(table, encodings={"x": "delta"}, page_rows_max=2_500)
    rows = np.sort(random.choice(ROWS, picks, replace=False))
    found = picked_by_kernels(data, rows)
    assert np.array_equal(found["x"].to_numpy(), values[rows])


@pytest.mark.parametrize("kind", TYPES)
def test_every_single_value_of_a_block_of_one_bit_is_right(kind):
    """Of each lane and row, and of the first and last."""
    random, dtype = np.random.default_rng(1), np.dtype(kind)
    ones = random.integers(0, 2, 1024 * 3).astype(dtype)
    values = ones.cumsum(dtype=dtype)
    data = written(pa.table({"x": values}), encodings={"x": "delta"})
    for start in range(61):
        rows = np.arange(start, len(values), 61)
        found = picked_by_kernels(data, rows)
        assert np.array_equal(found["x"].to_numpy(), values[rows])


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(0, 60), st.integers(1, 90), st.integers(0, 2**32))
def test_single_strings_of_symbols_are_those_that_were_written(length, longer, picks, seed):
    """Lengths of every width, a few of them much longer; text that symbols fit, and bytes that
    are escaped."""
    random = np.random.default_rng(seed)
    words = ["carefully ", "final ", "deposits ", "é", "\x00", "zz", "ÿ"]
    texts = [
        "".join(words[each] for each in random.integers(0, 7, random.integers(0, length) // 4))
        for _ in range(ROWS)
    ]
    for place in random.choice(ROWS, longer, replace=False):
        texts[place] += "deposits sleep " * 40
    table = pa.table({"x": texts})
    data = written(table, encodings={"x": "fsst"}, page_rows_max=4_000)
    rows = np.sort(random.choice(ROWS, picks, replace=False))
    assert_logically_equal(picked_by_kernels(data, rows), table.take(pa.array(rows)))


@given(st.data(), st.sampled_from(TYPES), st.integers(0, 63), st.integers(0, 2**32))
def test_a_part_of_a_block_is_a_slice_of_all_of_it(data, kind, bits, seed):
    """Any first and last value, across blocks too, with patches and a short last block."""
    random, dtype = np.random.default_rng(seed), np.dtype(kind)
    values = steps(random, bits, data.draw(st.integers(0, 90)), dtype).astype(dtype)
    payload = kernels.bitpack_encode(values)
    start = data.draw(st.integers(0, ROWS))
    stop = data.draw(st.integers(start, min(start + 2_100, ROWS)))
    out = np.empty(stop - start, dtype)
    kernels.bitpack_decode(payload, ROWS, start, stop, out)
    assert np.array_equal(out, values[start:stop])
