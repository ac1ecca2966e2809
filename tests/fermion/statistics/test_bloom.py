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
from fermion.columns.types import column_node
from fermion.statistics import bloom

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

KINDS = [
    {"bloom_filters": ["c"]},
    {"page_bloom_filters": ["c"], "page_rows_max": 3},
    {"page_bloom_filters": ["c"], "bloom_filters": ["c"], "page_rows_max": 3},
    {"page_bloom_filters": ["c"], "page_rows_max": 3, "statistics": False},
]


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data(), options=st.sampled_from(KINDS))
def test_equality_and_in_select_the_same_rows_with_a_filter(name, data, options):
    """Compared with a file without bloom filters, for values that are there and others."""
    dtype, values = COLUMNS[name]
    items = data.draw(st.lists(values | st.none(), max_size=30))
    asked = data.draw(st.lists(values, min_size=1, max_size=3))
    table = pa.table({"c": pa.array(items, dtype), "row": np.arange(len(items))})
    column = fermion.col("c")
    with (
        fermion.open(stored(table, stripe_rows=7, **options)) as with_blooms,
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


def test_equality_reads_single_pages():
    """Values all over the range of every page, so only the filters of pages can tell."""
    keys = np.random.default_rng(1).permutation(20_000) * 2
    table = pa.table({"key": keys})
    data = stored(table, page_rows_max=1_000, page_bloom_filters=["key"])
    with fermion.open(data) as file, fermion.open(stored(table, page_rows_max=1_000)) as without:
        pages = [page.length for page in file.column("key").streams[1].chunks[0].pages]
        assert len(pages) == 20
        read = kept = 0
        for row in range(0, 20_000, 1_000):
            equal = fermion.col("key") == int(keys[row])
            kept += file.prune(equal).rows_kept
            assert without.prune(equal).rows_kept == 20_000
            before = file.io_stats.bytes_used
            assert file.find(equal).to_indices().tolist() == [row]
            read += (file.io_stats.bytes_used - before) if row else 0
        assert kept <= 30_000  # 20 pages that have the key, and one of a hundred of 380 others
        assert read <= 30 * max(pages)
        either = fermion.col("key").isin([int(keys[0]), int(keys[10_000]), 7])
        assert file.prune(either).rows_kept <= 4_000
        assert file.find(either).total == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record[:-4], "expected blocks of 3 pages"),
        (lambda record: record[:-4] + bytes(4), "expected blocks of 3 pages"),
        (lambda record: record[:20] + bytes([2, 0, 0, 0] * 3), "expected blocks of 3 pages"),
        (lambda record: record[:16] + bytes([1]) + record[17:], "unknown bloom filter algorithm 1"),
        (lambda record: record[:10], "bloom record of 10 bytes"),
    ],
)
def test_a_record_of_page_filters_that_makes_no_sense_is_refused(change, message):
    built = bloom.build_page_blooms(
        np.arange(9), None, column_node(pa.field("c", pa.int64())), np.array([0, 3, 6, 9])
    )
    record = built.record(16)
    assert bloom.parse_page_bloom_record(record, 3, 1000, "x")[3].tolist() == [1, 1, 1]
    with pytest.raises(fermion.FermionError, match=message):
        bloom.parse_page_bloom_record(change(record), 3, 1000, "x")


def test_verify_finds_a_page_whose_filter_lacks_a_value(monkeypatch):
    original = bloom.build_page_blooms

    def wrong(values, validity, node, cuts):
        return original(values[::-1].copy(), validity, node, cuts)

    monkeypatch.setattr("fermion.writing.column.build_page_blooms", wrong)
    data = stored(pa.table({"c": range(12)}), page_rows_max=4, page_bloom_filters=["c"])
    with fermion.open(data) as file:
        (found,) = file.verify().problems
    assert "the bloom filter of page 0 lacks a value of the page" in found


@pytest.mark.parametrize("option", ["bloom_filters", "page_bloom_filters"])
def test_a_list_cannot_have_a_filter(option):
    table = pa.table({"l": [[1]]})
    with pytest.raises(fermion.InvalidArgumentError, match=f"^{option}: column 'l'"):
        stored(table, **{option: ["l"]})
