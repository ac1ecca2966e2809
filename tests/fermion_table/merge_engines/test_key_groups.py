"""Key groups, and the engines that keep one row as it is: deduplicate and first_row."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import group_rows, is_retraction, order_numbers
from tests.kit import folds
from tests.kit.tables.merge_rows import KINDS, batch_of, by_key, groups_of, kinds_of

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64(), "s": pa.float64()})
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(-3, 3),
            "v": st.integers(0, 99),
            "s": FLOATS,
            "_kind": st.sampled_from([*KINDS]),
        }
    ),
    max_size=30,
)


def place(value: float | None, descending: bool) -> tuple:
    """Return what a sequence field is compared by: nulls first, then -0.0, 0.0 and NaN in order."""
    if value is None:
        return (0,)
    number = (
        math.isnan(value),
        0 if math.isnan(value) else value,
        math.copysign(1, value) if value == 0 else 0,
    )
    return (1, *(-each for each in number)) if descending else (1, *number)


@given(ROWS, st.booleans())
def test_groups_are_the_rows_of_each_key_in_order(rows, descending):
    rows = [dict(row, v=at) for at, row in enumerate(rows)]
    expected = [
        sorted(
            group,
            key=lambda row: (place(row["s"], descending), row["v"]),
        )
        for group in by_key(rows).values()
    ]
    column = pa.array([row["s"] for row in rows], pa.float64())
    groups = groups_of(rows, sequence=[column], is_descending=descending)
    found = [groups.order[a:b].tolist() for a, b in zip(groups.starts, groups.ends, strict=True)]
    assert found == [[row["v"] for row in group] for group in expected]


@given(ROWS)
def test_deduplicate_keeps_the_last_row_unless_it_is_a_retraction(rows):
    batch, kinds, groups = batch_of(rows, SCHEMA), kinds_of(rows), groups_of(rows)
    last = [group[-1] for group in by_key(rows).values()]
    expected = [row for row in last if row["_kind"][0] == "+"]
    found = folds.deduplicate(groups, kinds)
    assert repr(found.gather(batch).to_pylist()) == repr(batch_of(expected, SCHEMA).to_pylist())
    assert found.kinds is None
    assert folds.deduplicate(groups).rows.tolist() == groups.order[groups.ends - 1].tolist()


@given(ROWS)
def test_first_row_keeps_the_first_row(rows):
    expected = [group[0]["v"] for group in by_key(rows).values()]
    found = folds.first_row(groups_of(rows)).gather(batch_of(rows, SCHEMA), ["v"])
    assert found.column("v").to_pylist() == expected


@given(ROWS, st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_folding_runs_first_changes_no_result(rows, cuts, sequenced):
    """Each run alone, as one that is not the oldest; then what is left."""
    batch = batch_of(rows, SCHEMA)
    kinds = kinds_of(rows)

    def fold(numbers: np.ndarray, is_oldest: bool) -> np.ndarray:
        sequence = [batch.column("s").take(pa.array(numbers))] if sequenced else []
        keys = batch.column("k").to_numpy()[numbers]
        groups = group_rows(keys, np.arange(len(keys)), sequence=sequence)
        return numbers[folds.deduplicate(groups, kinds[numbers], is_oldest=is_oldest).rows]

    every = np.arange(len(rows))
    runs = np.split(every, sorted(min(cut, len(rows)) for cut in cuts))
    left = np.concatenate([fold(run, is_oldest=False) for run in runs])
    assert fold(left, is_oldest=True).tolist() == fold(every, is_oldest=True).tolist()


def test_retractions_stay_while_older_rows_exist():
    rows = [{"k": 1, "v": 1}, {"k": 1, "v": 2, "_kind": "-D"}, {"k": 2, "v": 3}]
    found = folds.deduplicate(groups_of(rows), kinds_of(rows), is_oldest=False)
    assert (found.rows.tolist(), found.kinds.tolist()) == ([1, 2], [3, 0])
    assert is_retraction(found.kinds).tolist() == [True, False]


def test_first_row_refuses_retractions_and_names_the_options():
    rows = [{"k": 1, "v": 1}, {"k": 1, "v": 1, "_kind": "-U"}]
    with pytest.raises(InvalidArgumentError, match=r"ignore_delete=true.*merge_engine=deduplicate"):
        folds.first_row(groups_of(rows), kinds_of(rows))


def test_no_rows_make_no_groups():
    groups = groups_of([])
    assert folds.deduplicate(groups, kinds_of([])).rows.tolist() == []
    assert folds.first_row(groups).gather(batch_of([], SCHEMA)).num_rows == 0


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, -1, 3]),
        pa.array(["b", None, "", "b"], pa.string_view()),
        pa.array([b"b", None, b"", b"b"]),
        pa.array([True, None, False, True]),
        pa.array([3, None, -1, 3], pa.decimal32(3, 0)),
        pa.array([3, None, -1, 3], pa.decimal256(50, 0)),
        pa.array([3, None, -1, 3], pa.timestamp("ns")),
        pa.array([3, None, 1, 3], pa.uint64()),
        pa.array([3, None, 1, 3], pa.time32("s")),
        pa.array([3, None, 1, 3], pa.date32()),
        pa.array([3, None, 1, 3], pa.float16()),
    ],
    ids=lambda values: str(values.type),
)
def test_every_plain_type_has_an_order(values):
    first, _, third, last = order_numbers(values).tolist()
    assert third < first == last


def test_rows_of_which_no_column_is_wanted_are_still_counted():
    rows = [{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}]
    found = folds.deduplicate(groups_of(rows)).gather(batch_of(rows, SCHEMA), [])
    assert (found.num_rows, found.num_columns) == (2, 0)


def test_lists_have_no_order_and_lengths_must_agree():
    with pytest.raises(InvalidArgumentError, match="list"):
        order_numbers(pa.array([[1], [2]]))
    with pytest.raises(InvalidArgumentError, match="equal lengths"):
        group_rows(np.zeros(2, np.int64), np.zeros(3, np.int64))
