"""Engines with a sequence field: late rows, also after the oldest run was folded."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.merge_engines.key_groups import group_rows
from fermion_table.schema.field_functions import FieldFunction
from tests.kit import folds
from tests.kit.tables.merge_rows import KINDS, Row, batch_of, kinds_of

NAMES = ("sum", "product", "max", "min", "last_value")
SCHEMA = pa.schema({name: pa.int64() for name in ("k", "s", *NAMES)})
FUNCTIONS = {name: FieldFunction(name=name) for name in NAMES} | {
    "s": FieldFunction(name="last_value")
}
VALUES = st.none() | st.integers(-2, 3)


def rows_of(kinds: list[str]) -> st.SearchStrategy[list[Row]]:
    """Draw rows of few keys with sequences in any order."""
    row = dict.fromkeys(SCHEMA.names, VALUES) | {"k": st.integers(0, 2)}
    return st.lists(st.fixed_dictionaries(row | {"_kind": st.sampled_from(kinds)}), max_size=14)


CUTS = st.lists(st.integers(0, 14), max_size=4)


def folded_run_by_run(rows: list[Row], cuts: list[int], fold) -> list[Row]:
    """Return what is left where each run is folded with what the runs before it have left."""
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    left: list[Row] = []
    for start, stop in itertools.pairwise(bounds):
        left = fold(left + rows[start:stop])
    return left


def grouped(rows: list[Row], batch: pa.RecordBatch):
    """Return rows by key, in the order of their sequence."""
    keys = batch.column("k").to_numpy()
    return group_rows(keys, np.arange(len(rows)), sequence=[batch.column("s")])


@pytest.mark.parametrize("is_oldest", [True, False])
def test_aggregates_of_late_rows_do_not_depend_on_when_runs_were_folded(is_oldest):
    def fold(rows: list[Row], is_oldest: bool = is_oldest) -> list[Row]:
        batch = batch_of(rows, SCHEMA)
        found = folds.aggregation(batch, grouped(rows, batch), FUNCTIONS, is_oldest=is_oldest)
        return found.gather(batch).to_pylist()

    @given(rows_of(["+I"]), CUTS)
    def run(rows, cuts):
        whole = fold(rows, is_oldest=True)
        assert fold(folded_run_by_run(rows, cuts, fold), is_oldest=True) == whole

    run()


@given(rows_of(list(KINDS)), CUTS)
def test_late_rows_stay_deleted_as_long_as_the_deletion_is_kept(rows, cuts):
    """Every fold but the last one keeps retractions, as if older rows existed."""
    names = {number: kind for kind, number in KINDS.items()}

    def fold(rows: list[Row], is_oldest: bool = False) -> list[Row]:
        batch, kinds = batch_of(rows, SCHEMA), kinds_of(rows)
        found = folds.deduplicate(grouped(rows, batch), kinds, is_oldest=is_oldest)
        kept = [names[int(kinds[row])] for row in found.rows]
        left = found.gather(batch).to_pylist()
        return [row | {"_kind": kind} for row, kind in zip(left, kept, strict=True)]

    whole = fold(rows, is_oldest=True)
    assert fold(folded_run_by_run(rows, cuts, fold), is_oldest=True) == whole


def test_a_late_row_comes_back_where_the_deletion_was_dropped_too_early():
    """Why a tree with a sequence field keeps retractions at its top level."""
    rows = [{"k": 1, "s": 1}, {"k": 1, "s": 9, "_kind": "-D"}]
    late = [{"k": 1, "s": 5}]

    def fold(rows: list[Row]) -> list[Row]:
        batch = batch_of(rows, SCHEMA)
        return [rows[at] for at in folds.deduplicate(grouped(rows, batch), kinds_of(rows)).rows]

    assert fold(rows + late) == []
    assert fold(fold(rows) + late) == late
