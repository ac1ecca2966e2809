"""Sequence groups of partial_update: a model, and the examples of Paimon's documentation."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.merging.fold import columns_to_merge, fold
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.key_options import KeyOptions
from tests.kit import folds
from tests.kit.tables.merge_rows import (
    KINDS,
    Row,
    as_rows,
    batch_of,
    by_key,
    check,
    groups_of,
    kinds_of,
    runs_folded,
)
from tests.kit.tables.paimon_histories import histories, options_of
from tests.kit.tables.partial_update_model import updated

COLUMNS = ("k", "s", "t", "a", "sum", "u", "b", "last", "c")
SCHEMA = pa.schema({name: pa.int64() for name in COLUMNS})
GROUPS = (
    SequenceGroup(
        sequence=("s", "t"), columns=("a", "sum"), functions={"sum": FieldFunction(name="sum")}
    ),
    SequenceGroup(
        sequence=("u",),
        columns=("b", "last"),
        functions={"last": FieldFunction(name="last_value")},
    ),
)
VALUES = st.none() | st.integers(0, 3)
ROWS = st.lists(
    st.fixed_dictionaries(
        dict.fromkeys(COLUMNS, VALUES)
        | {"k": st.integers(0, 2), "_kind": st.sampled_from([*KINDS, "+I", "+I"])}
    ),
    max_size=14,
)


@pytest.mark.parametrize("removing", [frozenset(), frozenset("u"), frozenset("tu")])
@given(rows=ROWS, cuts=st.lists(st.integers(0, 14), max_size=3))
def test_groups_are_merged_as_in_the_model_however_rows_are_grouped(removing, rows, cuts):
    def fold(batch, groups, kinds, *, is_oldest=True):
        return folds.partial_update(
            batch,
            groups,
            ["k"],
            kinds,
            is_oldest=is_oldest,
            sequence_groups=GROUPS,
            removing=removing,
        )

    expected = [
        updated(group, COLUMNS[1:], GROUPS, removing=removing) for group in by_key(rows).values()
    ]
    whole = fold(batch_of(rows, SCHEMA), groups_of(rows), kinds_of(rows))
    check(whole, rows, expected, SCHEMA)
    left, kinds = runs_folded(rows, cuts, SCHEMA, fold)
    keys = [{"k": key} for key in left.column("k").to_pylist()]
    again = fold(left, groups_of(keys), kinds).gather(left)
    assert as_rows(again) == as_rows(whole.gather(batch_of(rows, SCHEMA)))


def test_the_examples_of_paimons_documentation(shared_data):
    compared = 0
    for history in histories("refused", shared_data):
        functions = json.dumps(history["options"])
        inexact = "first_value" in functions or "last_non_null" in functions
        if not history["name"].startswith("refused/sequence-group") or inexact:
            continue
        schema, options = options_of(history)
        rows: list[Row] = []
        for commit, expected in zip(history["commits"], history["documented_after"], strict=True):
            rows += commit
            batch = batch_of(rows, schema)
            found = folds.partial_update(
                batch, groups_of(rows, "id"), ["id"], sequence_groups=options.sequence_groups
            )
            if expected is not None:
                assert found.gather(batch).to_pylist() == expected, history["name"]
                compared += 1
    assert compared >= 5


@pytest.mark.parametrize("kind", ["+I", "-D"])
def test_a_late_row_changes_sums_but_not_columns(kind):
    first = {"k": 1, "s": 5, "t": 1, "a": 1, "sum": 10, "_kind": "+I"}
    late = {"k": 1, "s": 4, "t": 9, "a": 2, "sum": 3, "_kind": kind}
    batch = batch_of([first, late], SCHEMA)
    found = folds.partial_update(
        batch, groups_of([first, late]), ["k"], kinds_of([first, late]), sequence_groups=GROUPS
    )
    (row,) = found.gather(batch).to_pylist()
    assert (row["s"], row["a"], row["sum"]) == (5, 1, 13 if kind == "+I" else 7)


@given(ROWS, st.lists(st.sampled_from(COLUMNS), unique=True), st.booleans())
def test_groups_of_which_few_columns_are_read_are_merged_all_the_same(rows, wanted, removes):
    options = KeyOptions(
        merge_engine="partial_update",
        sequence_groups=GROUPS,
        removing_sequences=frozenset("u" if removes else ()),
    )
    key = PrimaryKey(names=("k",), types=(pa.int64(),), options=options)
    whole, groups, kinds = batch_of(rows, SCHEMA), groups_of(rows), kinds_of(rows)
    names = columns_to_merge(key, wanted)
    expected = fold(whole, groups, key, kinds, is_oldest=True).gather(whole, wanted)
    read = whole.select(names)
    found = fold(read, groups, key, kinds, is_oldest=True).gather(read, wanted)
    assert found.num_rows == expected.num_rows
    assert found.to_pylist() == expected.to_pylist()
