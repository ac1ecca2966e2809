"""Stripes side by side: the same rows, errors and requests as one after the other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ReadOptions, WriteOptions
from fermion.errors import FermionError
from fermion.reading import row_batches, stripe
from fermion.reading.stripe import StripeFilter, StripeReader
from tests.kit.equality import assert_logically_equal

STRIPES, STRIPE_ROWS = 6, 20_000
ROWS = STRIPES * STRIPE_ROWS


def table() -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "day": random.integers(0, 1_000, ROWS).astype(np.int32),
            "text": [f"row {place % 97} of a stripe" for place in range(ROWS)],
            "half": pa.array([None if place % 3 else place for place in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("stripes") / "rows.fmn")
    fermion.write_table(table(), path, options=WriteOptions(stripe_rows=STRIPE_ROWS))
    return path


@pytest.fixture(autouse=True)
def few_columns_are_worth_it(monkeypatch):
    monkeypatch.setattr(row_batches, "CHUNKS_MIN", 1)


def opened(path: str, threads: int = 2, **options) -> fermion.FermionFile:
    return fermion.open(path, options=ReadOptions(threads=threads, **options))


READERS: dict[str, Callable[..., StripeReader]] = {
    "_matched": lambda _, reader, *__: reader,
    "choose": lambda chosen, *_: chosen._stripes,
    "batch": lambda reader, *_: reader,
}
"""Of methods that read or choose rows: which reader they use."""


def counted_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Counter:
    """How many stripes a thread reads alone, and how many with columns side by side, by calls."""
    monkeypatch.setattr(stripe, "FEW_ROWS", 0)  # no stripe is small
    counts: Counter = Counter()
    alone, readers_alone = StripeReader.alone, []

    def counted(self: StripeReader) -> StripeReader:
        reader = alone(self)
        readers_alone.append(reader)
        return reader

    home = StripeReader if name == "batch" else StripeFilter
    plain = getattr(home, name)

    def called(*arguments, **named):
        used = READERS[name](*arguments)
        counts["alone" if any(used is reader for reader in readers_alone) else "together"] += 1
        return plain(*arguments, **named)

    monkeypatch.setattr(StripeReader, "alone", counted)
    monkeypatch.setattr(home, name, called)
    return counts


DAY = fermion.col("day")
FILTERS = {
    "few": DAY == 17,
    "many": DAY < 900,
    "none": (DAY == 17) & (DAY == 18),
    "some stripes": (fermion.col("id") > 50_000) & (DAY < 9),
    "whole stripes": fermion.col("id") < 45_000,
    "nulls": fermion.col("half").is_null() & (DAY < 5),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("columns", [None, ["id", "text"], []])
@pytest.mark.parametrize("memory_map", [False, True])
def test_a_filter_selects_the_same_rows(stored, name, columns, memory_map):
    """Beside one thread, and all rows filtered by Arrow."""
    chosen = FILTERS[name]
    with opened(stored, memory_map=memory_map) as file, opened(stored, 1) as slow:
        found = file.read(columns, filter=chosen)
        expected = slow.read(columns, filter=chosen)
    found.validate(full=True)
    assert_logically_equal(found, expected)
    assert found.num_rows == fermion.open(stored).count(chosen)


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_rows_by_number_are_the_same(stored, threads):
    """In any order, with repeats, of some and of all stripes."""
    random = np.random.default_rng(5)
    for rows in (random.integers(0, ROWS, 500), random.integers(30_000, 99_000, 7), [3, 3, 1]):
        with opened(stored, threads) as file:
            assert_logically_equal(file.take(rows), table().take(pa.array(rows)))


def test_few_rows_of_many_stripes_are_read_a_stripe_a_thread(stored, monkeypatch):
    readers = counted_calls(monkeypatch, "_matched")
    with opened(stored) as file:
        file.read(filter=FILTERS["few"])
    assert readers == {"alone": STRIPES}


def test_stripes_of_which_many_rows_are_wanted_are_read_with_columns_side_by_side(
    stored, monkeypatch
):
    """Only one of them is in memory decoded."""
    readers = counted_calls(monkeypatch, "_matched")
    with opened(stored) as file:
        file.read(["id", "text"], filter=FILTERS["many"])
    assert readers["together"] == STRIPES


def test_few_stripes_of_many_threads_are_read_with_columns_side_by_side(stored, monkeypatch):
    readers = counted_calls(monkeypatch, "batch")
    with opened(stored, 16) as file:
        file.take(np.arange(0, 3 * STRIPE_ROWS, 999))
    assert readers == {"together": 3}


def test_stripes_come_in_order_while_few_are_under_way(stored, monkeypatch):
    """No more than the threads and one that is waited for."""
    under_way, most, lock = 0, 0, threading.Lock()
    plain = StripeFilter.choose

    def choose(self, *arguments, **named):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        found = plain(self, *arguments, **named)
        with lock:
            under_way -= 1
        return found

    monkeypatch.setattr(StripeFilter, "choose", choose)
    with opened(stored) as file:
        found = file.read(["id"], filter=FILTERS["few"])
    assert most <= 2
    ids = found["id"].to_numpy()
    assert (ids[1:] > ids[:-1]).all()


@pytest.mark.parametrize("way", ["filter", "take"])
def test_damage_of_one_stripe_is_told_as_with_one_thread(stored, tmp_path, way):
    """Bits of the data are turned here and there; no thread is left over."""
    data = Path(stored).read_bytes()
    for place in range(1_000, len(data) * 3 // 4, len(data) // 40):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        path = tmp_path / "damaged.fmn"
        path.write_bytes(damaged)
        told = []
        for threads in (1, 2):
            try:
                with opened(str(path), threads) as file:
                    if way == "take":
                        told.append(file.take(np.arange(0, ROWS, 1_001)))
                    else:
                        told.append(file.read(filter=FILTERS["few"]))
            except FermionError as error:
                told.append((type(error), str(error)))
        if isinstance(told[0], tuple):
            assert told[0] == told[1]
        else:
            assert_logically_equal(told[0], told[1])


@pytest.mark.parametrize(
    "least", [{"STRIPE_ROWS_MIN": STRIPE_ROWS + 1}, {"CHUNKS_MIN": 4 * STRIPES + 1}], ids=str
)
def test_small_reads_start_no_threads(least, stored, monkeypatch):
    def started(threads: int) -> None:
        raise AssertionError(f"{threads} threads were started")

    readers = counted_calls(monkeypatch, "choose")
    monkeypatch.setattr("fermion.forks.executor", started)
    for name, value in least.items():
        monkeypatch.setattr(row_batches, name, value)
    with opened(stored) as file:
        file.read(filter=FILTERS["few"])
    assert set(readers) == {"together"}
