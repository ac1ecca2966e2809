"""Counts and bounds in extension records: true, used by filters, shown, verified."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import chunk_details
from fermion.inspection import LeafStatistics, describe_statistics
from fermion.layout import ExtTag
from tests.fermion.features import FEATURES
from tests.fermion.file_anatomy import repair

FEATURE = "counts_and_long_bounds"


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


def statistics_of(data: bytes) -> dict[str, LeafStatistics]:
    with fermion.open(data) as file:
        return {".".join(leaf.path): leaf for leaf in describe_statistics(file.index)}


def records_of(data: bytes, name: str) -> dict[int, bytes]:
    with fermion.open(data) as file:
        (block,) = file.index.blocks([file.schema.names.index(name)])
        return block.extension(block.chunk(1, 0))


def test_a_feature_has_every_record():
    data = FEATURES[FEATURE]().stored()
    tags = [set(records_of(data, name)) for name in ("url", "cut", "real", "late")]
    bounds = {ExtTag.LONG_MIN, ExtTag.LONG_MAX}
    nulls = {ExtTag.PAGE_NULL_COUNTS}
    assert tags == [bounds | nulls, bounds, {ExtTag.NAN_COUNT}, nulls]


def test_bounds_of_long_strings_are_exact_up_to_64_bytes():
    """Over several stripes; what is longer is known by its beginning."""
    table = FEATURES[FEATURE]().table
    table = pa.concat_tables([table, table])
    found = statistics_of(stored(table, stripe_rows=240))
    low, high = pc.min_max(table["url"]).values()
    assert (found["url"].min, found["url"].max) == (low, high)
    assert found["url"].min_exact
    assert found["url"].max_exact
    texts = table["cut"].to_pylist()
    assert found["cut"].min.as_py() == min(texts)[:64]
    assert found["cut"].max.as_py() == max(texts)[:64]
    assert not found["cut"].min_exact
    assert not found["cut"].max_exact


TEXTS = st.lists(st.text("ab\0é", max_size=12), min_size=1, max_size=12)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_bounds_of_any_strings_in_any_stripes_are_those_of_the_values(stripes):
    """Every chunk has the records; the limit of a bound's bytes is 5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_details, "LONG_CHUNK_BYTES_MIN", 0)
        patch.setattr(chunk_details, "LONG_BOUND_BYTES_MAX", 10)
        sink = io.BytesIO()
        with fermion.Writer(sink, pa.schema([("s", pa.binary())])) as writer:
            for texts in stripes:
                writer.write(pa.table({"s": pa.array([each.encode() for each in texts])}))
                writer._flush()
        with fermion.open(sink.getvalue()) as file:
            assert file.verify().problems == ()
    values = [each.encode() for texts in stripes for each in texts]
    found = statistics_of(sink.getvalue())["s"]
    for bound, exact, actual in (
        (found.min, found.min_exact, min(values)),
        (found.max, found.max_exact, max(values)),
    ):
        assert bound.as_py() == actual if exact else actual.startswith(bound.as_py()[:8])
    with fermion.open(sink.getvalue()) as file:
        for value in {*values, b"", b"a", b"ab", b"bbbbbbbbbbbbb"}:
            assert file.count(fermion.col("s") == value) == values.count(value)


def test_a_string_outside_of_the_long_bounds_reads_no_data():
    """Its first 8 bytes are those of all others, which is all that keys tell."""
    data = FEATURES[FEATURE]().stored()
    with fermion.open(data) as file:
        before = file.io_stats.bytes_used
        for text in ("https://a", "https://example.org/zzz"):
            assert file.count(fermion.col("url") == text) == 0
            assert file.count(fermion.col("url").isin([text, text + "x"])) == 0
        assert file.io_stats.bytes_used == before


def test_nulls_are_found_by_the_counts_of_pages():
    """Pages of 80: the first all null, the second in part, the third without nulls."""
    feature = FEATURES[FEATURE]()
    data = feature.stored()
    assert np.frombuffer(records_of(data, "late")[ExtTag.PAGE_NULL_COUNTS], "<u4").tolist() == [
        80,
        21,
        0,
    ]
    used = {}
    for use in (True, False):
        options = fermion.ReadOptions(use_statistics=use)
        with fermion.open(data, options=options) as file:
            before = file.io_stats.bytes_used
            assert file.count("late IS NULL") == 101
            assert file.count("late IS NOT NULL") == 139
            used[use] = file.io_stats.bytes_used - before
    assert used[True] < used[False]
    whole = pa.table({"a": [None] * 40 + list(range(40))})
    with fermion.open(stored(whole, page_rows_max=40)) as file:
        before = file.io_stats.bytes_used
        assert file.count("a IS NULL") == file.count("a IS NOT NULL") == 40
        assert file.io_stats.bytes_used == before


def test_nan_are_counted():
    nan = float("nan")
    table = pa.table({"r": [nan, 1.0, None, nan], "n": [1.0, 2.0, 3.0, 4.0], "i": [1, 2, 3, 4]})
    found = statistics_of(stored(table, stripe_rows=3))
    assert {name: leaf.nan_count for name, leaf in found.items()} == {"r": 2, "n": 0, "i": 0}


@pytest.mark.parametrize(
    ("name", "tag", "message"),
    [
        ("real", ExtTag.NAN_COUNT, "NaN"),
        ("late", ExtTag.PAGE_NULL_COUNTS, "null counts of pages"),
        ("url", ExtTag.LONG_MIN, "expected values from"),
        ("cut", ExtTag.LONG_MAX, "expected values from"),
    ],
)
def test_verify_finds_records_that_are_untrue(name, tag, message):
    data = FEATURES[FEATURE]().stored()
    problem = problem_after(data, records_of(data, name)[tag], lambda record: record[-1] ^ 1)
    assert name in problem
    assert message in problem


def problem_after(data: bytes, record: bytes, change: Callable[[bytes], int]) -> str:
    """The one problem of a file whose record got another last byte."""
    damaged = bytearray(data)
    at = data.rindex(record) + len(record) - 1
    damaged[at] = change(record)
    repair(damaged)
    with fermion.open(damaged) as file:
        (problem,) = file.verify().problems
    return problem
