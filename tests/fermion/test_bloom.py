"""Bloom filters skip chunks that lack a value, and never one that has it."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion

COLUMNS = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f32": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, -3.25, float("inf"), float("nan")])),
    "f64": (pa.float64(), st.sampled_from([0.0, -0.0, 0.1, -1e300, float("nan")])),
    "s": (pa.string(), st.text(max_size=12)),
    "b": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "d64": (pa.decimal64(10, 2), st.integers(-(10**8), 10**8).map(lambda n: Decimal(n) / 100)),
    "d128": (pa.decimal128(30, 2), st.integers(-(10**20), 10**20).map(lambda n: Decimal(n) / 100)),
    "d256": (pa.decimal256(60, 2), st.integers(-(10**20), 10**20).map(lambda n: Decimal(n) / 100)),
    "t": (pa.timestamp("us"), st.datetimes(datetime.datetime(1990, 1, 1))),
    "bool": (pa.bool_(), st.booleans()),
}


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_equality_and_in_select_the_same_rows_with_a_filter(name, data):
    """Compared with a file without bloom filters, for values that are there and others."""
    dtype, values = COLUMNS[name]
    items = data.draw(st.lists(values | st.none(), max_size=30))
    asked = data.draw(st.lists(values, min_size=1, max_size=3))
    table = pa.table({"c": pa.array(items, dtype), "row": np.arange(len(items))})
    column = fermion.col("c")
    with (
        fermion.open(stored(table, stripe_rows=7, bloom_filters=["c"])) as with_blooms,
        fermion.open(stored(table, stripe_rows=7)) as without,
    ):
        for expression in (column == asked[0], column.isin(asked), ~column.isin(asked)):
            expected = without.read(["row"], filter=expression)
            assert with_blooms.read(["row"], filter=expression).equals(expected)


def test_a_value_that_is_nowhere_reads_no_data():
    """Within the bounds of every stripe, so only the bloom filters can tell."""
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(0, 2**62, 20_000)) * 2
    rng.shuffle(keys)
    data = stored(pa.table({"key": keys}), stripe_rows=5_000, bloom_filters=["key"])
    absent = int(np.median(keys)) | 1
    with fermion.open(data) as file:
        file.read(["key"], filter=fermion.col("key") == absent)
        before = file.io_stats.bytes_used
        for step in range(0, 200, 2):
            assert file.count(fermion.col("key") == absent + step) == 0
        false_positives = file.io_stats.bytes_used - before
        chunk = file.column("key").streams[1].chunks[0].length
    assert false_positives <= 20 * chunk  # 400 questions at one false positive in a hundred


def test_a_null_or_nan_is_never_found_in_a_filter():
    table = pa.table({"c": pa.array([None, float("nan"), 1.0])})
    with fermion.open(stored(table, bloom_filters=["c"])) as file:
        assert file.count(fermion.col("c") == float("nan")) == 0
        assert file.count(fermion.col("c").is_null()) == 1
        assert file.count(fermion.col("c").is_nan()) == 1


def test_a_damaged_filter_is_noticed():
    table = pa.table({"c": pa.array(np.arange(1000) * 2)})
    plain, data = stored(table), bytearray(stored(table, bloom_filters=["c"]))
    with fermion.open(plain) as file:
        end = file.column("c").streams[1].chunks[0]
    data[(end.offset + end.length + 7) // 8 * 8 + 40] ^= 1
    with fermion.open(bytes(data)) as file, pytest.raises(fermion.ChecksumError, match="bloom"):
        file.count(fermion.col("c") == 501)


def test_a_list_cannot_have_a_filter():
    table = pa.table({"l": [[1]]})
    with pytest.raises(fermion.InvalidArgumentError, match="'l'"):
        stored(table, bloom_filters=["l"])
