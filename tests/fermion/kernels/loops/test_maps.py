"""The kernels that take maps apart by their keys and join them: each against plain Python."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion import kernels as compiled
from tests.kit.numpy_kernels import maps as reference_maps

BOTH = pytest.mark.parametrize("k", [compiled, reference_maps], ids=["compiled", "reference"])
NONE = np.empty(0, np.uint8)


@BOTH
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([0, 1, 7, 63, 64, 65, 200]),
    dtype=st.sampled_from(["u1", "u2", "u4", "u8", "V16"]),
    share=st.sampled_from([0.0, 0.1, 0.8, 1.0]),
)
def test_entries_become_columns_and_entries_again(
    k: ModuleType, seed: int, rows: int, dtype: str, share: float
):
    """Some keys have columns; the others, and null values, are the rest, in a random order."""
    rng, keys, columns = np.random.default_rng(seed), 9, 6
    has = rng.random((rows, keys)) < share
    row_of, codes = np.nonzero(has)
    order = np.lexsort((rng.random(len(codes)), row_of))
    codes = codes[order].astype(np.uint32)
    values = np.frombuffer(rng.bytes(len(codes) * np.dtype(dtype).itemsize), dtype)
    valid = rng.random(len(codes)) < 0.9
    bits = NONE if valid.all() else np.packbits(valid, bitorder="little")
    counts = np.zeros(keys, np.int64)
    assert k.count_keys(codes, row_of, bits, counts) == -1
    assert counts.tolist() == [int((codes[valid] == key).sum()) for key in range(keys)]
    places = np.where(np.arange(keys) < columns, np.arange(keys), -1)[::-1].copy()
    out = np.zeros(columns * rows, dtype)
    out_bits = np.zeros(columns * ((rows + 7) // 8), np.uint8)
    k.spread_keys(values, codes, row_of, bits, places, rows, out, out_bits)
    inside = valid & (places[codes] >= 0)
    expected = {
        (int(places[code]), int(row)): value.tobytes()
        for code, row, value in zip(codes[inside], row_of[inside], values[inside], strict=True)
    }
    flags = np.unpackbits(out_bits.reshape(columns, -1), axis=1, count=rows, bitorder="little")
    assert flags.sum() == len(expected)
    for (column, row), value in expected.items():
        assert flags[column, row]
        assert out[column * rows + row].tobytes() == value

    ranks = np.arange(columns, dtype=np.uint32) * 3
    rest = np.flatnonzero(~inside)
    rest = rest[np.lexsort((codes[rest], row_of[rest] >> 6))]
    rest_ranks = codes[rest] * 2
    offsets, places = np.empty(rows + 1, np.int64), np.empty(len(rest), np.int64)
    joined, out_ranks = np.zeros(len(codes), dtype), np.empty(len(codes), np.uint32)
    k.join_keys(
        out,
        np.packbits(flags.astype(bool), bitorder="little"),
        ranks,
        rows,
        row_of[rest],
        rest_ranks,
        offsets,
        out_ranks,
        joined,
        places,
    )
    joined[places] = values[rest]
    entries = [(row, int(ranks[column]), 0, value) for (column, row), value in expected.items()]
    entries += [
        (int(row_of[at]), int(codes[at] * 2), 1, values[at].tobytes()) for at in rest.tolist()
    ]
    entries.sort(key=lambda entry: entry[:3])
    assert out_ranks.tolist() == [rank for _, rank, _, _ in entries]
    assert joined.tobytes() == b"".join(value for *_, value in entries)
    assert np.diff(offsets).tolist() == np.bincount(row_of, minlength=rows).tolist()


@BOTH
def test_the_first_entry_with_a_key_that_its_row_has_is_found(k: ModuleType):
    codes, rows = np.array([0, 1, 0, 1, 1, 0], np.uint32), np.array([0, 0, 1, 1, 1, 1])
    assert k.count_keys(codes, rows, NONE, np.zeros(2, np.int64)) == 4
    assert k.count_keys(codes[:4], rows[:4], NONE, np.zeros(2, np.int64)) == -1


@BOTH
def test_what_does_not_fit_together_is_refused(k: ModuleType):
    codes, rows, two = np.array([0, 1], np.uint32), np.array([0, 1]), np.zeros(2, np.int64)
    four, byte, one = np.zeros(4, np.int64), np.zeros(2, np.uint8), np.zeros(1, np.int64)

    def join(values=four, bits=NONE, ranks=codes, rest=(one, codes[:1]), sizes=(3, 5, 5, 1)):
        offsets, out_ranks, out, places = (np.empty(size, np.int64) for size in sizes)
        out_ranks = out_ranks.astype(np.uint32)
        k.join_keys(values, bits, ranks, 2, *rest, offsets, out_ranks, out, places)

    join()
    for call in (
        lambda: k.count_keys(codes, rows[:1], NONE, two),
        lambda: k.count_keys(codes, rows, NONE, one),
        lambda: k.spread_keys(two, codes, rows, NONE, one, 2, four, byte),
        lambda: k.spread_keys(one, codes, rows, NONE, two, 2, four, byte),
        lambda: k.spread_keys(two, codes, rows, NONE, two, 1, four, np.zeros(4, np.uint8)),
        lambda: k.spread_keys(two, codes, rows[::-1], NONE, two, 2, four, byte),
        lambda: k.spread_keys(two, codes, rows, NONE, two, 2, four, byte[:1]),
        lambda: k.spread_keys(two, codes, rows, NONE, two, 2, four.astype(np.int32), byte),
        lambda: k.spread_keys(two, codes, rows, NONE, two, 3, four, byte),
        lambda: join(values=four[:3]),
        lambda: join(ranks=codes[:1]),
        lambda: join(rest=(one + 2, codes[:1])),
        lambda: join(rest=(one - 1, codes[:1])),
        lambda: join(sizes=(2, 5, 5, 1)),
        lambda: join(sizes=(3, 4, 5, 1)),
        lambda: join(sizes=(3, 5, 6, 1)),
    ):
        with pytest.raises(ValueError):
            call()
