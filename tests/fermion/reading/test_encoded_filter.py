"""Filters tested on pages as they are encoded: the same rows as from decoded columns."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ReadOptions, col, kernels
from fermion.errors import InvalidFileError
from fermion.layout import NODE_HEADER, PAGE_HEADER
from fermion.reading import encoded_filter, stripe
from fermion.reading.encoded_filter import EncodedFilter
from tests.kit.equality import assert_logically_equal
from tests.kit.files.damage import outcome
from tests.kit.files.predicate_model import expressions, rows, table_of, truth
from tests.kit.paged_columns import written

ROWS = 6_000
OPTIONS = ReadOptions(threads=2, use_statistics=False)


@pytest.fixture(scope="module", autouse=True)
def not_together() -> Iterator[None]:
    """Small stripes are filtered as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stripe, "TOGETHER_COLUMNS_MAX", 0)
        yield


def found(data: bytes, chosen: object) -> pa.Table:
    with fermion.open(data, options=OPTIONS) as file:
        return file.read(filter=chosen)


def around(data: bytes, chosen: object) -> pa.Table:
    """The same by columns that are decoded and compared by Arrow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodedFilter, "find", lambda *_: None)
        return found(data, chosen)


@given(st.data())
def test_any_filter_selects_the_same_rows_both_ways(data):
    """Every type, with nulls and without, and the model that says which rows these are."""
    expression = data.draw(expressions())
    records = data.draw(rows(expression.columns() or {("i",)}))
    if data.draw(st.booleans()):
        records = [each for each in records if None not in each.values()] or records
    table = table_of(records * data.draw(st.integers(1, 4)))
    profile = data.draw(st.sampled_from(["balanced", "compact", "fast", "random"]))
    forced = data.draw(st.sampled_from([None, "dictionary", "plain"]))
    encodings = (
        {}
        if forced is None
        else {name: forced for name in table.column_names if name not in ("t", "n", "st", "b")}
    )
    page_rows = data.draw(st.sampled_from([1, 3, 100]))
    file = written(table, page_rows_max=page_rows, profile=profile, encodings=encodings)
    kept = [row for row, record in enumerate(records) if truth(expression, record)]
    repeats = table.num_rows // len(records)
    expected = [row + len(records) * i for i in range(repeats) for row in kept]
    selected = [table.slice(0, 0), *(table.slice(row, 1) for row in expected)]
    assert_logically_equal(found(file, expression), pa.concat_tables(selected))
    assert_logically_equal(around(file, expression), pa.concat_tables(selected))


def table() -> pa.Table:
    """A column for each encoding that the kernels look into."""
    random = np.random.default_rng(5)
    words = np.array(["AIR", "RAIL", "TRUCK", "SHIP"])
    cents = random.integers(-(10**6), 10**6, ROWS)
    numbers = random.integers(0, 1_000, ROWS)
    numbers[::701] = 10**6  # patches
    return pa.table(
        {
            "number": numbers,
            "small": random.integers(-100, 100, ROWS).astype(np.int8),
            "unsigned": random.integers(2**63, 2**64 - 1, ROWS, np.uint64),
            "day": random.integers(8_000, 10_500, ROWS).astype("M8[D]"),
            "sorted": np.sort(random.integers(0, 10**9, ROWS)),
            "runs": np.sort(random.integers(0, 40, ROWS)).astype(np.int16),
            "codes": random.integers(0, 9, ROWS) * 10**9,
            "price": pa.array([Decimal(int(n)).scaleb(-2) for n in cents], pa.decimal128(15, 2)),
            "float": cents / 4,
            "narrow": (cents / 4).astype(np.float32),
            "noise": random.normal(size=ROWS),
            "same": np.full(ROWS, 7),
            "mode": words[random.integers(0, 4, ROWS)],
            "url": [f"https://example.org/{n}/{n % 7}" for n in random.permutation(ROWS).tolist()],
            "text": pa.array([f"{n}é" * (n % 4) for n in range(ROWS)], pa.large_string()),
            "bytes": [bytes([n % 251, n % 7, 255])[: n % 5] for n in range(ROWS)],
        }
    )


FORCED = {
    "number": "for_bitpack", "small": "for_bitpack", "unsigned": "for_bitpack",
    "day": "for_bitpack", "sorted": "delta", "runs": "rle", "codes": "dictionary",
    "price": "narrow", "float": "alp", "narrow": "alp", "noise": "plain", "same": "constant",
    "mode": "dictionary", "url": "fsst", "text": "plain", "bytes": "split_lengths",
}  # fmt: skip
FILTERS = [
    (col("number") >= 100) & (col("number") < 130),
    col("number") == 10**6,
    ~((col("small") > -50) & (col("small") <= 3)),
    col("unsigned") > 2**63 + 2**62,
    (col("day") >= datetime.date(1995, 3, 1)) & (col("day") < datetime.date(1995, 4, 1)),
    col("sorted").between(10**8, 2 * 10**8),
    col("runs") != 20,
    col("codes").isin([10**9, 5 * 10**9]),
    (col("codes") < 3 * 10**9) & (col("codes") > 0),
    col("price") < Decimal("-9000.005"),
    col("float") >= 0.25,
    col("narrow") < 0.1,
    (col("noise") > 1) | (col("noise") < -1),
    col("same") == 7,
    col("mode") == "AIR",
    (col("mode") != "RAIL") & (col("mode") > "AIR") & (col("number") < 500),
    col("mode").isin(["SHIP", "none"]),
    col("mode").starts_with("T"),
    col("number").isin([3, 10**6, 10**19]),
    ~col("small").isin([-128, 5, 99, 7]),
    col("unsigned").isin([0, 2**63 + 1]) | (col("small") == 9),
    col("day").isin([datetime.date(1995, 3, 1), datetime.date(1991, 12, 31)]),
    col("sorted").isin(range(0, 10**9, 10**5)),
    col("runs").isin([0, 20, -(2**15)]),
    col("price").isin([Decimal("1.00"), Decimal("-9000.01"), Decimal("0.001")]),
    col("url") == "https://example.org/4711/0",
    col("url") != "https://example.org/17/3",
    col("url").isin([f"https://example.org/{n}/{n % 7}" for n in range(0, 9_000, 11)]),
    col("url").starts_with("https://example.org/59"),
    (col("url") > "https://example.org/5") & (col("url") <= "https://example.org/500/3"),
    col("text").isin(["", "5é", "5é5é5é"]),
    col("text") < "1",
    col("text") >= "9é",
    col("bytes").starts_with(b"\xff"),
    col("bytes").starts_with(b"\x07\x00\xff"),
    col("bytes").isin([b"", b"\x01\x01", b"\x02\x02\xff"]),
]
NOTHING = [
    col("price") == Decimal("1e30"),
    (col("same") == 7) & (col("same") > 7),
    (col("number") < 100) & (col("number") > 900),
    col("number").isin([10**19, -(10**19)]),
    col("url").isin(["https://example.org/", "https://example.org/1/1 "]),
    col("text").starts_with("é"),
]


def encodings(columns: set[str]) -> dict[str, str]:
    return {name: FORCED[name] for name in columns}


@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_filters_on_these_encodings_decode_no_column(chosen, monkeypatch):
    """No Arrow array of the filter's columns: only entries of dictionaries are evaluated."""
    data = written(table(), page_rows_max=500, encodings=FORCED)
    expected = around(data, chosen)
    evaluated = Counter()
    evaluate = encoded_filter.evaluate

    def counted(leaf, entries):
        evaluated["entries"] += entries.num_rows
        return evaluate(leaf, entries)

    monkeypatch.setattr(encoded_filter, "evaluate", counted)
    monkeypatch.setattr("fermion.reading.stripe.evaluate", None)
    assert_logically_equal(found(data, chosen), expected)
    assert evaluated["entries"] <= 9 * 3


@pytest.mark.parametrize("chosen", NOTHING, ids=str)
def test_filters_that_no_value_passes_select_nothing(chosen):
    data = written(table(), page_rows_max=500, encodings=FORCED)
    assert found(data, chosen).num_rows == 0


def test_pages_that_statistics_rule_out_are_not_read_and_others_once():
    """Bytes of a sorted column, and of what the rows need beside it."""
    data = written(table().select(["sorted"]), page_rows_max=500, encodings={"sorted": "delta"})
    with fermion.open(data, options=ReadOptions(threads=1, prefetch_bytes=512)) as file:
        (chunk,) = file.column("sorted").streams[1].chunks
        pages = [page.length for page in chunk.pages]
        value = int(file.take([1_234])["sorted"][0].as_py())
        before = file.io_stats.bytes_used
        assert file.read(filter=(col("sorted") >= value) & (col("sorted") <= value)).num_rows
        assert file.io_stats.bytes_used - before == pages[2]


def test_blocks_that_their_base_and_width_decide_are_not_unpacked():
    """Damage in the packed values of a block, where no checksum tells, changes no answer."""
    numbers = np.concatenate([np.arange(1024) % 64, 5_000 + np.arange(1024) % 64])
    data = bytearray(
        written(
            pa.table({"a": np.tile(numbers, 2)}),
            page_rows_max=2048,
            encodings={"a": "for_bitpack"},
            checksum="none",
        )
    )
    with fermion.open(bytes(data)) as file:
        (chunk,) = file.column("a").streams[1].chunks
    data[chunk.offset + 100] ^= 0xFF
    with fermion.open(bytes(data), options=OPTIONS) as file:
        assert file.count(col("a") < 1_000) == 2048
        assert file.count(col("a") < 10) != 2 * 160


@pytest.mark.parametrize("checksum", ["crc32c", "xxh3", "none"])
def test_damage_is_told_in_the_same_words_both_ways(checksum):
    """A bit of a page flipped; where no checksum tells, other rows may match, but the same ones."""
    whole = table()
    for seed in range(48):
        random = np.random.default_rng(seed)
        chosen = [*FILTERS, *NOTHING][seed % (len(FILTERS) + len(NOTHING))]
        names = sorted({path[0] for path in chosen.columns()})
        data = written(
            whole.select(names),
            page_rows_max=2_000,
            encodings=encodings(set(names)),
            checksum=checksum,
        )
        with fermion.open(data) as file:
            (chunk,) = file.column(names[0]).streams[1].chunks
        damaged = bytearray(data)
        at = chunk.offset + int(random.integers(0, min(chunk.length, 60 << seed % 9)))
        damaged[at] ^= 1 << int(random.integers(0, 8))
        if checksum == "none" and at >= chunk.offset + 40:
            outcome(found, damaged, chosen)  # blocks that are not looked into may hold anything
            continue
        assert same(outcome(found, damaged, chosen), outcome(around, damaged, chosen)), seed


def test_bug_error_of_arrow_out_of_the_entries_of_a_dictionary():
    """Arrow compares decimals only where they have as many digits as their type says."""
    prices = pa.array([Decimal(n % 4 + 1) for n in range(2_000)], pa.decimal32(9, 0))
    options = {"encodings": {"d": "dictionary"}, "page_rows_max": 1_000, "checksum": "none"}
    data = bytearray(written(pa.table({"d": prices}), **options))
    with fermion.open(bytes(data)) as file:
        (chunk,) = file.column("d").streams[1].chunks
    entry = chunk.offset + PAGE_HEADER.itemsize + NODE_HEADER.itemsize
    assert data[entry : entry + 4] == b"\1\0\0\0"
    data[entry : entry + 4] = (2**31 - 1).to_bytes(4, "little")
    with pytest.raises(InvalidFileError, match="cannot be compared"):
        found(data, col("d") > 0.5)
    assert outcome(found, data, col("d") > 0.5) == outcome(around, data, col("d") > 0.5)


def test_a_list_of_values_is_looked_at_once_for_all_stripes(monkeypatch):
    """And each filter of a file that stays open has its own."""
    made = Counter()
    wanted_numbers = kernels.wanted_numbers

    def counted(values, width):
        made["sets"] += 1
        return wanted_numbers(values, width)

    monkeypatch.setattr(kernels, "wanted_numbers", counted)
    numbers = np.random.default_rng(2).permutation(40_000)
    data = written(
        pa.table({"a": numbers, "b": numbers * 2}), stripe_rows=10_000, page_rows_max=2_000
    )
    with fermion.open(data, options=ReadOptions(threads=2, use_statistics=False)) as file:
        assert file.num_stripes == 4
        assert file.count(col("a").isin(range(0, 500, 2))) == 250
        assert made["sets"] == 1
        for start in range(40):
            chosen = file.read(filter=col("a").isin([start, start + 1, -5]))
            assert sorted(chosen["a"].to_pylist()) == [start, start + 1]
        assert made["sets"] == 41


def same(left: object, right: object) -> bool:
    return left.equals(right) if isinstance(left, pa.Table) else left == right


def test_windows_of_a_filtered_stripe_have_the_same_rows():
    """Batches of a window of rows at a time, of which few match."""
    random = np.random.default_rng(3)
    whole = pa.table({"a": random.integers(0, 1_000, 300_000), "b": np.arange(300_000)})
    data = written(whole, page_rows_max=10_000)
    chosen = (col("a") >= 5) & (col("a") < 9)
    with fermion.open(data) as file:
        batches = list(file.iter_batches(filter=chosen))
    mask = (np.asarray(whole["a"]) >= 5) & (np.asarray(whole["a"]) < 9)
    assert pa.Table.from_batches(batches).equals(whole.filter(pa.array(mask)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"counts": [10, 10]}, "counts"),
        ({"counts": [-1]}, "page 0 of -1 slots"),
        ({"letter": "f", "width": 2}, "have no order here"),
        ({"letter": "V", "width": 8}, "have no order here"),
        ({"bounds": [4, 3]}, "expected them to ascend"),
        ({"bounds": [4]}, "bounds"),
        ({"out": np.zeros(8, np.uint8)}, "out"),
        ({"page_offsets": []}, "page_offsets"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(changed, said):
    given_ = {"counts": [10], "letter": "i", "width": 8, "bounds": [3, 4], "page_offsets": [0]}
    given_ |= {"out": np.zeros(10, np.uint8)} | changed
    with pytest.raises(ValueError, match=said):
        kernels.match_pages(
            [bytes(40)],
            np.array(given_["counts"], np.int64),
            np.array(given_["page_offsets"], np.int64),
            kernels.PageTest(
                ord(given_["letter"]),
                given_["width"],
                np.array(given_["bounds"], np.int64),
                np.zeros(0, np.uint8),
            ),
            kernels.PageReader(None, None, True, 0),
            given_["out"],
        )
