"""Counts and bounds in extension records: true, used by filters, shown, verified."""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.layout import FOOTER, ExtTag
from fermion.reading.inspection import LeafStatistics, describe_file, describe_statistics
from fermion.statistics import bounds as chunk_details
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import repair

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
    bounds = {ExtTag.LONG_MIN, ExtTag.LONG_MAX, ExtTag.DECODED_BYTES}
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
        # Opened by a short tail, which holds none of the data.
        options = fermion.ReadOptions(use_statistics=use, prefetch_bytes=512)
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
    end = len(data) - FOOTER.itemsize  # whose random identity may look like a record
    at = data.rindex(record, 0, end) + len(record) - 1
    damaged[at] = change(record)
    repair(damaged)
    with fermion.open(damaged) as file:
        (problem,) = file.verify().problems
    return problem


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30),
    st.sampled_from(["int64", "int8", "uint64", "bool", "money", "wide", "real", "text"]),
    st.sampled_from([4, 100]),
)
def test_sums_counts_and_sizes_are_those_of_the_values(numbers, kind, stripe_rows):
    """Against Python's own; and `verify` finds nothing."""
    dtype, value = {
        "int64": (pa.int64(), lambda n: n),
        "int8": (pa.int8(), lambda n: n % 256 - 128),
        "uint64": (pa.uint64(), lambda n: n + 2**63),
        "bool": (pa.bool_(), lambda n: n % 2 == 1),
        "money": (pa.decimal64(18, 2), lambda n: decimal.Decimal(n % 10**17).scaleb(-2)),
        "wide": (pa.decimal256(60, 3), lambda n: decimal.Decimal(n * 10**17).scaleb(-3)),  # 30 fit
        "real": (pa.float64(), lambda n: float(n % 5)),
        "text": (pa.string(), lambda n: f"{n % 7}" * 2000),
    }[kind]
    with decimal.localcontext(prec=80):
        rows = [None if each is None else value(each) for each in numbers]
        held = [each for each in rows if each is not None]
        total = sum(held) if kind != "text" else None
    sink = io.BytesIO()
    table = pa.table({"c": pa.array(rows, dtype)})
    options = {"summaries": ["c"], "stripe_rows": stripe_rows, "encodings": {"c": "plain"}}
    if kind == "bool":
        del options["encodings"]
    fermion.write_table(table, sink, **options)
    with fermion.open(sink.getvalue()) as file:
        assert file.verify().problems == ()
        (leaf,) = describe_statistics(file.index)
        (layout,) = describe_file(file.index).columns
    if kind in ("real", "text"):
        assert leaf.sum is None
    else:
        assert leaf.sum == (total if held else None)
    if stripe_rows == 100 and held:
        assert leaf.distinct_count == len(set(held))
    if kind == "text" and stripe_rows == 100 and len(held) > 2:
        validity = -(-len(rows) // 8) if None in rows else 0
        assert layout.arrow_bytes == 2000 * len(held) + 4 * len(rows) + validity


def test_a_sum_that_does_not_fit_is_left_out():
    values = [decimal.Decimal(10**60 - 1)] * 3
    sink = io.BytesIO()
    fermion.write_table(pa.table({"c": pa.array(values, pa.decimal256(60))}), sink, summaries=["c"])
    with fermion.open(sink.getvalue()) as file:
        (leaf,) = describe_statistics(file.index)
        assert (leaf.sum, leaf.distinct_count) == (None, 1)
        assert file.verify().problems == ()


@pytest.mark.parametrize("tag", ["SUM", "DISTINCT_COUNT", "DECODED_BYTES"])
def test_verify_finds_wrong_sums_counts_and_sizes(monkeypatch, tag):
    original = chunk_details.content_records

    def wrong(*arguments, **options):
        found = original(*arguments, **options)
        if ExtTag[tag] in found:
            found[ExtTag[tag]] = bytes([found[ExtTag[tag]][0] ^ 1]) + found[ExtTag[tag]][1:]
        return found

    monkeypatch.setattr("fermion.writing.column.content_records", wrong)
    table = pa.table({"n": range(9), "t": [np.random.default_rng(i).bytes(999) for i in range(9)]})
    sink = io.BytesIO()
    fermion.write_table(table, sink, summaries=["n"])
    with fermion.open(sink.getvalue()) as file:
        (found,) = file.verify().problems
    assert f"{tag}: expected" in found
