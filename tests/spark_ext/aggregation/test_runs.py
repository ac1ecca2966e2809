"""Runs of equal keys become one row before anything is hashed."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from spark_ext.aggregation.expression import COLUMN, Expression
from spark_ext.aggregation.groups import COUNT, MAX, MIN, SUM, Aggregate, Grouping, Groups
from spark_ext.aggregation.runs import joined_runs
from spark_ext.types import exchange_schema

STATES = [("s", "sum"), ("least", "min"), ("most", "max")]


def batch(keys, values, **others):
    columns = {**keys, "s": values, "least": values, "most": values, **others}
    return pa.RecordBatch.from_pydict(columns)


def expected(rows, keys):
    """By a loop over the rows."""
    made = []
    runs = itertools.groupby(rows.to_pylist(), lambda row: [row[name] for name in keys])
    for key, run in runs:
        values = [row["s"] for row in run]
        made.append([*key, sum(values), min(values), max(values)])
    return made


def test_runs_are_joined_as_a_loop_joins_them():
    """One key, two keys, none; the ends of 64 bits; a slice."""
    chance = np.random.default_rng(4)
    values = chance.integers(-50, 50, 300)
    one = np.sort(chance.integers(0, 40, 300))
    other = np.repeat([7, -(2**63), 2**63 - 1], 100)
    for keys in ({"a": one}, {"a": one, "b": other}, {}, {"a": one.astype(np.uint8)}):
        for rows in (batch(keys, values), batch(keys, values).slice(3, 200)):
            joined = joined_runs(rows, list(keys), STATES)
            assert joined.schema == rows.schema
            assert joined.num_rows < rows.num_rows
            assert [list(row.values()) for row in joined.to_pylist()] == expected(rows, keys)


def test_rows_that_cannot_be_joined_or_are_better_hashed_are_left():
    """Nulls in a key or a state, floats, strings, keys that rarely repeat, no rows."""
    sorted_keys, values = np.repeat(np.arange(50), 4), np.arange(200)
    null = pa.array([None, *range(199)], pa.int64())
    for left in (
        batch({"a": pa.array([None, *sorted_keys[1:]], pa.int64())}, values),
        batch({"a": sorted_keys}, null),
        batch({"a": sorted_keys}, values.astype(float)),
        batch({"a": sorted_keys.astype(str)}, values),
        batch({"a": np.arange(200) // 1.5 // 1}, values),
        batch({"a": np.arange(200)}, values),
        batch({"a": sorted_keys}, values).slice(0, 0),
    ):
        assert joined_runs(left, ["a"], STATES) is left


def test_sorted_keys_are_hashed_once_a_run(monkeypatch):
    """A quarter of the rows is hashed, and the partial results are those of all."""
    hashed = []
    grouped = Groups._grouped

    def counted(self, rows):
        hashed.append(rows.num_rows)
        return grouped(self, rows)

    monkeypatch.setattr(Groups, "_grouped", counted)
    bounds = (-(2**40), 2**40)
    key, value = (Expression(COLUMN, st.LongType(), value=(n,), bounds=bounds) for n in "kv")
    kinds = [Aggregate(COUNT), *(Aggregate(kind, value) for kind in (SUM, MIN, MAX))]
    grouping = Grouping((key,), tuple(kinds))
    schema = exchange_schema(grouping.schema())
    collected = Groups(grouping, schema)
    rows = pa.RecordBatch.from_pydict({"k": np.repeat(np.arange(1_000), 4), "v": np.arange(4_000)})
    made = [*collected.add(rows), *collected.finish()]
    assert hashed == [1_000]
    found = pa.Table.from_batches(made, schema).to_pylist()
    first = [4, 0 + 1 + 2 + 3, 0, 3]
    assert list(found[0].values()) == [0, *first]
    assert sum(row["result_0"] for row in found) == 4_000
    assert sum(row["result_1"] for row in found) == sum(range(4_000))
