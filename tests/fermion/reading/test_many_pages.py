"""A few rows of columns of many pages: one kernel call a column and stripe, no object a page."""

from __future__ import annotations

import uuid
import weakref
from collections import Counter

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ReadOptions, WriteOptions, kernels
from fermion.errors import FermionError
from fermion.io.source import CountingSource
from fermion.reading import column as columns_read
from fermion.reading import plan as plans
from fermion.reading.many_pages import PickedRead
from tests.kit.equality import assert_logically_equal
from tests.kit.read_strategies import without

ROWS = 6_000
WORDS = np.array(["", "a", "final deposits", "carefully ironic requests sleep"])
TAKEN = np.arange(3, ROWS, 250)


def table() -> pa.Table:
    random = np.random.default_rng(3)
    numbers = random.integers(0, 2**40, ROWS)
    return pa.table(
        {
            "number": numbers,
            "price": pa.array(numbers).cast(pa.decimal128(22, 2)),
            "text": WORDS[random.integers(0, 4, ROWS)],
            "large": pa.array(WORDS[random.integers(0, 4, ROWS)], pa.large_string()),
            "comment": [f"{WORDS[n % 4]} {n}" for n in range(ROWS)],
        }
    )


def written(data: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    chosen = {"page_rows_max": 500, "stripe_rows": ROWS // 2, **options}
    fermion.write_table(data, sink, options=WriteOptions(**chosen))
    return sink.getvalue().to_pybytes()


def taken(data: bytes, rows: np.ndarray = TAKEN) -> tuple[pa.Table, fermion.IoStats]:
    with fermion.open(data, options=ReadOptions(threads=1)) as file:
        return file.take(rows), file.io_stats


def around(data: bytes, rows: np.ndarray = TAKEN) -> tuple[pa.Table, fermion.IoStats]:
    with without(PickedRead):
        return taken(data, rows)


def outcome(read, *arguments) -> object:
    try:
        return read(*arguments)[0]
    except FermionError as error:
        return type(error), str(error)


@pytest.mark.parametrize("profile", ["balanced", "fast", "random"])
def test_a_take_is_one_kernel_call_a_column_and_stripe(profile, monkeypatch):
    """Counts kernel calls, pages given to them, and the objects of the general way."""
    data, calls = written(table(), profile=profile), Counter()
    expected, asked = around(data)
    pick_pages = kernels.pick_pages

    def counted(pages, *arguments):
        calls["calls"] += 1
        calls["pages"] += len(pages)
        return pick_pages(pages, *arguments)

    def made(self, *arguments, **named):
        calls["tasks"] += 1

    monkeypatch.setattr(kernels, "pick_pages", counted)
    monkeypatch.setattr(columns_read.ColumnTask, "__init__", made)
    monkeypatch.setattr(plans, "plan_stream", None)
    found, requested = taken(data)
    found.validate(full=True)
    assert_logically_equal(found, expected)
    assert_logically_equal(found, table().take(pa.array(TAKEN)))
    assert calls == {"calls": 5 * 2, "pages": 5 * 12}
    # A column that lies in the end of the file, which is here already, is not asked for.
    assert requested.bytes_requested <= asked.bytes_requested
    assert requested.bytes_used <= asked.bytes_used


def test_pages_of_a_column_are_let_go_before_those_of_the_next_are_read(tmp_path, monkeypatch):
    """So that their memory, which is next to the processor, is used again."""
    path = tmp_path / "rows.fmn"
    path.write_bytes(written(table()))
    read, held, most = CountingSource.read_chunk, [], 0

    def counted(self, ranges):
        nonlocal most
        most = max(most, sum(page() is not None for page in held))
        pages = read(self, ranges)
        held.extend(map(weakref.ref, pages))
        return pages

    monkeypatch.setattr(CountingSource, "read_chunk", counted)
    with fermion.open(path, options=ReadOptions(threads=1)) as file:
        assert_logically_equal(file.take(TAKEN), table().take(pa.array(TAKEN)))
    assert len(held) > most == 0


@pytest.mark.parametrize("rows", [[777], [777, 778, 779], [499, 500]])
def test_a_row_alone_is_picked_too(rows, monkeypatch):
    """Also a few that lie side by side: no page is planned as an object."""
    data = written(table())
    monkeypatch.setattr(plans, "plan_stream", None)
    monkeypatch.setattr("fermion.reading.column.read_columns", None)
    found = taken(data, np.array(rows))[0]
    assert_logically_equal(found, table().take(pa.array(rows)))


def test_only_pages_with_wanted_rows_are_asked_for():
    """Two rows of two pages: of twelve pages of a column the others are left alone."""
    data = written(table().select(["number"]), encodings={"number": "plain"}, stripe_rows=ROWS)
    with fermion.open(
        data, options=ReadOptions(threads=1, coalesce_gap_bytes=0, prefetch_bytes=512)
    ) as file:
        file.take([0], columns=["number"])
        before = file.io_stats
        file.take([600, 5_999], columns=["number"])
        pages = 2 * (500 * 8 + 24)
        assert file.io_stats.requests - before.requests == 2
        assert file.io_stats.bytes_requested - before.bytes_requested <= pages


def test_columns_that_the_kernels_do_not_know_lie_beside_the_others():
    """Nulls, booleans, structs, views; dictionaries that the stripes share."""
    random = np.random.default_rng(5)
    numbers = random.integers(0, 9, ROWS)
    some = {
        "nulls": pa.array(numbers, mask=numbers == 3),
        "flags": numbers > 4,
        "pairs": pa.StructArray.from_arrays([pa.array(numbers)], ["a"]),
        "views": pa.array(WORDS[numbers % 4], pa.string_view()),
        "shared": WORDS[numbers % 4],
        "number": numbers * 10**9,
    }
    data = written(pa.table(some), global_dictionaries=["shared"])
    expected = around(data)[0]
    assert_logically_equal(taken(data)[0], expected)
    assert expected["number"].to_pylist() == (numbers * 10**9)[TAKEN].tolist()


@pytest.mark.parametrize("rows", [400, ROWS])
def test_columns_of_a_remote_file_are_fetched_together_whichever_way_they_are_decoded(
    rows, monkeypatch
):
    """Rounds of requests for pages: with nulls and without, structs, one page and several."""
    whole = table().slice(0, rows)
    nulls = pa.array(np.arange(rows), mask=np.arange(rows) % 3 == 0)
    pairs = pa.StructArray.from_arrays([nulls], ["a"])
    whole = whole.append_column("nulls", nulls).append_column("pairs", pairs)
    data = written(whole, stripe_rows=ROWS)
    url = f"memory://{uuid.uuid4().hex}.fmn"
    with fsspec.open(url, "wb") as file:
        file.write(bytes(data))
    rounds, read_places = Counter(), CountingSource.read_places

    def counted(self, ranges, **named):
        rounds["all"] += bool((ranges[:, 1] > 0).any())
        return read_places(self, ranges, **named)

    monkeypatch.setattr(CountingSource, "read_places", counted)
    for columns in (["number", "text"], None):
        rounds.clear()
        with fermion.open(url, options=ReadOptions(prefetch_bytes=512)) as file:
            found = file.take(np.arange(0, rows, 90), columns=columns)
        assert rounds == {"all": 1}, columns
        assert found.num_rows == -(-rows // 90)


@pytest.mark.parametrize("checksum", ["crc32c", "none"])
@pytest.mark.parametrize("seed", range(40))
def test_damage_is_told_in_the_same_words_both_ways(seed, checksum):
    """A bit anywhere; without checksums, what is damaged may lie beside the rows."""
    random = np.random.default_rng(seed)
    small = table().slice(0, 300).select(["text", "number", "comment"])
    data = bytearray(written(small, page_rows_max=60, stripe_rows=200, checksum=checksum))
    data[random.integers(0, len(data))] ^= 1 << int(random.integers(0, 8))
    rows = np.array([7, 70, 71, 199, 240])
    assert_same(outcome(taken, data, rows), outcome(around, data, rows), small, rows)


def assert_same(found: object, expected: object, whole: pa.Table, rows: np.ndarray) -> None:
    if isinstance(found, pa.Table) and isinstance(expected, tuple):
        expected = whole.take(pa.array(rows))  # what is wrong was of no use for these rows
    if isinstance(found, pa.Table):
        assert_logically_equal(found, expected)
    else:
        assert found == expected
