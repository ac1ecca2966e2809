"""Filters that a function computes from whole columns."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion import col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import Computed, bind, evaluate, rename_columns
from fermion.predicate.arrow_expression import to_pyarrow

ROWS = pa.table(
    {
        "a": pa.array([1, 2, None, 4, 5, 6], pa.int64()),
        "s": pa.array([{"b": n} for n in (1, 1, 3, None, 5, 7)], pa.struct([("b", pa.int64())])),
        "other": ["x"] * 6,
    }
)


def differ(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    assert isinstance(left, pa.Array)
    assert left.type == right.type == pa.int64()
    return pc.not_equal(left, right)


DIFFER = Computed(differ, (("a",), ("s", "b")), "a <> s.b")


@pytest.mark.parametrize(
    ("filter", "selected"),
    [
        (DIFFER, [1, 5]),
        (~DIFFER, [0, 4]),
        (DIFFER & (col("a") > 2), [5]),
        (DIFFER | col("a").is_null(), [1, 2, 5]),
    ],
)
def test_it_combines_with_others_and_nulls_are_not_selected(tmp_path, filter, selected):
    """On a table, a batch, a file of several stripes, and after a pickle."""
    expected = ROWS.take(selected)
    bound = bind(filter, ROWS.schema)
    assert ROWS.filter(evaluate(bound, ROWS)) == expected
    (batch,) = ROWS.combine_chunks().to_batches()
    assert batch.filter(evaluate(bound, batch)) == expected.combine_chunks().to_batches()[0]
    path = tmp_path / "x.fermion"
    fermion.write_table(ROWS, path, options=fermion.WriteOptions(stripe_rows=4))
    for each in (filter, pickle.loads(pickle.dumps(filter))):
        for columns in (["other"], ["a", "other"], None):
            found = fermion.read_table(path, columns=columns, filter=each)
            assert found == (expected if columns is None else expected.select(columns))


def test_it_follows_renamed_columns():
    names = {("a",): ("z",), ("s",): ("t",)}
    renamed = rename_columns(DIFFER, names)
    assert renamed.columns() == {("z",), ("t", "b")}
    table = ROWS.rename_columns(["z", "t", "other"])
    assert table.filter(evaluate(renamed, table)).num_rows == 2


def test_its_columns_must_exist_and_it_is_no_pyarrow_expression():
    with pytest.raises(ColumnNotFoundError, match="nowhere"):
        bind(Computed(differ, (("a",), ("nowhere",)), "a <> nowhere"), ROWS.schema)
    with pytest.raises(InvalidArgumentError, match=r"a <> s\.b has no pyarrow form"):
        to_pyarrow(DIFFER & (col("a") > 2))
    assert repr(DIFFER) == "<fermion filter a <> s.b>"


def test_it_is_computed_only_for_the_rows_that_the_other_conditions_select(tmp_path):
    """Where these are found without decoding: of columns without nulls."""
    rows = pa.table({"k": range(100_000), "v": [number * 7 % 1000 for number in range(100_000)]})
    path = tmp_path / "x.fermion"
    fermion.write_table(rows, path)
    seen = []

    def even(values: pa.Array) -> pa.BooleanArray:
        seen.append(len(values))
        return pc.equal(pc.bit_wise_and(values, 1), 0)

    filter = (col("k") >= 99_900) & Computed(even, (("v",),), "v % 2 = 0") & (col("v") < 500)
    found = fermion.read_table(path, filter=filter)
    expected = [row for row in rows.to_pylist() if row["k"] >= 99_900 and row["v"] < 500]
    assert found.to_pylist() == [row for row in expected if row["v"] % 2 == 0]
    assert sum(seen) == len(expected) < 100
