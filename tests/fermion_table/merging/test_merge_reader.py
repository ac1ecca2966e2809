"""Merging sorted runs gives what sorting all of their rows gives, a batch a run in memory."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.errors import CorruptMetadata
from fermion_table.merging.merge_reader import hidden_rows, merge_runs
from fermion_table.schema.schema import KEY_COLUMN
from tests.kit import folds


def batch_of(rows: list[tuple], is_direct: bool) -> pa.RecordBatch:
    """Return rows of (key, id, sequence) as a batch."""
    keys = [row[0] for row in rows]
    texts = [b"\0" * (key % 3) + f"{key:03}".encode() for key in keys]
    column = pa.array(keys, pa.int64()) if is_direct else pa.array(texts, pa.large_binary())
    ids, sequence = [row[1] for row in rows], [row[2] for row in rows]
    return pa.record_batch(
        [column, pa.array(ids, pa.int64()), pa.array(sequence, pa.int64())], [KEY_COLUMN, "id", "s"]
    )


def key_of(number: int, is_direct: bool) -> object:
    """Return the key of a number."""
    return batch_of([(number, 0, 0)], is_direct)[KEY_COLUMN][0].as_py()


@st.composite
def runs_of(draw: st.DrawFn) -> tuple[list[list[pa.RecordBatch]], list[tuple]]:
    """Draw runs from the newest to the oldest, and all of their rows with the run's number."""
    is_direct = draw(st.booleans())
    runs, rows, number = [], [], 0
    for run in range(draw(st.integers(0, 4))):
        drawn = draw(st.lists(st.integers(0, 30), max_size=25))
        keys = sorted(
            drawn, key=lambda key: batch_of([(key, 0, 0)], is_direct)[KEY_COLUMN][0].as_py()
        )
        listed = []
        for key in keys:
            listed.append((key, number, draw(st.none() | st.integers(0, 2))))
            number += 1
        cuts = sorted(draw(st.lists(st.integers(0, len(listed)), max_size=5)))
        bounds = [0, *cuts, len(listed)]
        parts = [listed[a:b] for a, b in itertools.pairwise(bounds)]
        runs.append([batch_of(part, is_direct) for part in parts])
        rows += [(-run, *row) for row in listed]
    return runs, rows


@given(runs_of(), st.booleans())
def test_merging_gives_the_rows_by_key_and_within_a_key_by_time(drawn, sequenced):
    runs, rows = drawn
    columns = ["s"] if sequenced else []
    found = []
    keys = []
    for part in merge_runs(runs, sequence_columns=columns):
        assert part.batch.num_rows == len(part.groups.order) > 0
        ids = part.batch.column("id").to_numpy()[part.groups.order]
        found += [each.tolist() for each in np.split(ids, part.groups.starts[1:])]
        firsts = pa.array(part.groups.order[part.groups.starts])
        keys += part.batch.column(KEY_COLUMN).take(firsts).to_pylist()
    by_key: dict[int, list[tuple]] = {}
    for run, key, number, sequence in rows:
        place = (-1 if sequence is None else sequence,) if sequenced else ()
        by_key.setdefault(key, []).append((*place, run, number))
    expected = {tuple(each[-1] for each in sorted(group)) for group in by_key.values()}
    assert {tuple(group) for group in found} == expected
    assert len(found) == len(expected)
    assert keys == sorted(set(keys))


@given(runs_of())
def test_deduplicating_while_merging_keeps_the_newest_row(drawn):
    runs, rows = drawn
    newest: dict[int, tuple] = {}
    for run, key, number, _ in rows:
        newest[key] = max(newest.get(key, (-9, -1)), (run, number))
    found = []
    for part in merge_runs(runs):
        found += folds.deduplicate(part.groups).gather(part.batch, ["id"]).column("id").to_pylist()
    assert sorted(found) == sorted(number for _, number in newest.values())


def test_one_batch_of_each_run_is_held():
    """Rows loaded and not given away yet, after each step: a batch and what a key needs, a run."""
    loaded = 0

    def run(offset: int):
        nonlocal loaded
        for at in range(50):
            loaded += 100
            yield batch_of([(at * 300 + each * 3 + offset, at, 0) for each in range(100)], True)

    given_away, most = 0, 0
    for part in merge_runs([run(0), run(1), run(2)]):
        most = max(most, loaded - given_away)
        given_away += part.batch.num_rows
    assert given_away == loaded == 3 * 50 * 100
    assert most <= 3 * 101


@pytest.mark.parametrize("is_direct", [True, False])
def test_windows_are_about_as_large_as_a_batch(is_direct):
    """Also where the batches of all runs end at almost the same key."""
    rows = batch_of([(key, 0, 0) for key in range(800)], is_direct).sort_by(KEY_COLUMN)
    runs = [
        [rows.take(pa.array(range(first, first + 200, 4))) for first in range(start, 800, 200)]
        for start in range(4)
    ]
    sizes = [part.batch.num_rows for part in merge_runs(runs)]
    assert sum(sizes) == 800
    assert max(sizes) < 2 * 50
    assert min(sizes[:-1]) >= 50 // 4


def test_a_key_longer_than_a_batch_stays_whole():
    one = [batch_of([(5, at, 0)], True) for at in range(9)]
    (part,) = merge_runs([one, [batch_of([(5, 99, 0)], True)]])
    assert part.batch.column("id").take(pa.array(part.groups.order)).to_pylist() == [99, *range(9)]


def test_runs_end_when_the_reader_stops():
    closed = []

    def run(number: int):
        try:
            while True:
                yield batch_of([(number, number, 0)], True)
                number += 2
        finally:
            closed.append(number)

    merged = merge_runs([run(0), run(1)])
    next(merged)
    merged.close()
    assert len(closed) == 2


@pytest.mark.parametrize(
    "batches",
    [
        [batch_of([(2, 0, 0), (1, 1, 0)], True)],
        [batch_of([(2, 0, 0)], True), batch_of([(1, 1, 0)], True)],
        [batch_of([(3, 0, 0), (1, 1, 0)], False)],
    ],
)
def test_runs_that_are_not_sorted_are_refused(batches):
    with pytest.raises(CorruptMetadata, match="run 0 of a tree: expected rows sorted by key"):
        list(merge_runs([batches]))


@pytest.mark.parametrize("values", [[1, None], [1.0, 2.0], ["a", "b"]])
def test_other_key_columns_are_refused(values):
    with pytest.raises(InvalidArgumentError, match=f"'{KEY_COLUMN}' of run 0"):
        list(merge_runs([[pa.record_batch([pa.array(values)], [KEY_COLUMN])]]))


def test_no_runs_and_empty_batches_give_nothing():
    assert list(merge_runs([])) == []
    assert list(merge_runs([[], [batch_of([], True)]])) == []


@given(runs_of(), st.booleans())
def test_picking_rows_takes_those_that_folding_gives(drawn, oldest_wins):
    runs, _ = drawn
    unique = []
    for run in runs:  # of each key the first row, as runs without repeats have
        seen: set = set()
        kept = []
        for batch in run:
            keys = batch[KEY_COLUMN].to_pylist()
            mask = [not (key in seen or seen.add(key)) for key in keys]  # type: ignore[func-returns-value]
            kept.append(batch.filter(pa.array(mask, pa.bool_())))
        unique.append(kept)
    expected = []
    for part in merge_runs(unique):
        fold = folds.first_row if oldest_wins else folds.deduplicate
        expected += fold(part.groups).gather(part.batch, ["id"])["id"].to_pylist()
    found = []
    for run, hidden in zip(unique, hidden_rows(unique, oldest_wins=oldest_wins), strict=True):
        ids = [number for batch in run for number in batch["id"].to_pylist()]
        found += np.delete(ids, hidden).tolist()
    assert sorted(found) == sorted(expected)
