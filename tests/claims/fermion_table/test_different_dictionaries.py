"""Rows whose dictionaries differ from batch to batch, through everything that joins batches.

Arrow mixes up dictionaries of half floats when it joins them, and joins none of lists and structs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion.predicate import col
from fermion_table import Table


def coded(values: Any, dtype: pa.DataType, *, ordered: bool = False) -> pa.DictionaryArray:
    indices = pa.array(range(len(values)), pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, dtype), ordered=ordered)


HALVES = pa.float16()
LISTS = pa.list_(pa.int64())
STRUCTS = pa.struct([("x", pa.string())])
PAIRS = {
    "half floats": (
        coded(np.array([1.5, 2.5], np.float16), HALVES),
        coded(np.array([3.5, 1.5], np.float16), HALVES),
    ),
    "lists": (coded([[1], [2]], LISTS), coded([[3], [1]], LISTS)),
    "structs": (
        coded([{"x": "a"}, {"x": "b"}], STRUCTS),
        coded([{"x": "c"}, {"x": "a"}], STRUCTS),
    ),
    "text": (coded(["a", "b"], pa.string()), coded(["c", "a"], pa.string())),
    "orders that contradict": (
        coded(["a", "b"], pa.string(), ordered=True),
        coded(["b", "a"], pa.string(), ordered=True),
    ),
}
Model = dict[int, Any]


def rows(ids: list[int], values: pa.Array) -> pa.Table:
    return pa.table({"id": ids, "a": values})


def found(table: Table, name: str = "a") -> Model:
    return {row["id"]: row[name] for row in table.scan().to_arrow().to_pylist()}


def swapped(pair: tuple[pa.Array, pa.Array]) -> Callable[[pa.RecordBatch], pa.ChunkedArray]:
    """A function that gives rows 0 and 1 the second array's values, and 2 and 3 the first's."""
    first, second = pair
    given = [second[:1], second[1:], first[:1], first[1:]]
    return lambda batch: pa.chunked_array([given[number] for number in batch["id"].to_pylist()])


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[pa.Array, pa.Array]:
    return PAIRS[request.param]


@pytest.fixture
def table(tmp_path: Path, pair: tuple[pa.Array, pa.Array]) -> Table:
    """Rows 0 and 1 in a file, rows 2 and 3 in another."""
    first, second = pair
    table = Table.create(tmp_path / "t", rows([0, 1], first).schema)
    table.append(rows([0, 1], first))
    table.append(rows([2, 3], second))
    return table


@pytest.fixture
def model(pair: tuple[pa.Array, pa.Array]) -> Model:
    first, second = pair
    return dict(enumerate(first.to_pylist() + second.to_pylist()))


def test_compaction(table: Table, model: Model) -> None:
    table.compact()
    assert found(table) == model


def test_sorting_compaction(table: Table, model: Model) -> None:
    table.compact(sort_by=["id"])
    assert found(table) == model


def test_update(table: Table, model: Model, pair: tuple[pa.Array, pa.Array]) -> None:
    """Both a column that is set and one that is taken along."""
    second = pair[1]
    table.update(col("id") == 1, {"a": lambda batch: second.take([0] * batch.num_rows)})
    table.update(col("id") == 2, {"id": 7})
    assert found(table) == {0: model[0], 1: model[2], 7: model[2], 3: model[3]}


def test_update_by_a_function_that_gives_chunks(
    table: Table, model: Model, pair: tuple[pa.Array, pa.Array]
) -> None:
    table.compact()
    table.update("TRUE", {"a": swapped(pair)})
    assert found(table) == {0: model[2], 1: model[3], 2: model[0], 3: model[1]}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_merge(
    table: Table, model: Model, pair: tuple[pa.Array, pa.Array], *, is_compacted: bool
) -> None:
    """The source has two dictionaries, and so have the rows that stay."""
    if is_compacted:
        table.compact()
    source = pa.concat_tables([rows([1, 8], pair[1]), rows([2, 9], pair[0])])
    table.merge(source, on="id").when_matched_update().when_not_matched_insert().execute()
    new = {1: model[2], 8: model[3], 2: model[0], 9: model[1]}
    assert found(table) == {**model, **new}


def test_filled_columns(table: Table, model: Model, pair: tuple[pa.Array, pa.Array]) -> None:
    source = pa.concat_tables([rows([1], pair[1][:1]), rows([2], pair[0][:1])])
    table.fill_columns(source, on=["id"])
    assert found(table) == {**model, 1: model[2], 2: model[0]}


def test_computed_columns(table: Table, model: Model, pair: tuple[pa.Array, pa.Array]) -> None:
    """Row 1 is deleted, so that the others are spread among nulls; the function gives chunks."""
    table.compact()
    table.delete(col("id") == 1)
    schema = pa.schema([("b", pair[0].type)])
    table.add_columns_with(swapped(pair), read=["id"], schema=schema)
    assert found(table, "b") == {0: model[2], 2: model[0], 3: model[1]}
    table.compact(column_files_max=0)
    assert found(table, "b") == {0: model[2], 2: model[0], 3: model[1]}


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "id"},
    "partial update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation"},
    "first row": {"merge-engine": "first-row"},
    "changelog": {"changelog-producer": "full-compaction"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_keyed_tables(tmp_path: Path, pair: tuple[pa.Array, pa.Array], engine: str) -> None:
    first, second = pair
    properties = {"bucket": "1", **ENGINES[engine]}
    schema = rows([0, 1], first).schema
    table = Table.create(tmp_path / "t", schema, primary_key=["id"], properties=properties)
    table.upsert(pa.concat_tables([rows([0, 1], first), rows([2, 3], second)]))
    model = dict(enumerate(first.to_pylist() + second.to_pylist()))
    assert found(table) == model
    table.upsert(pa.concat_tables([rows([2, 8], first), rows([1, 9], second)]))
    new = {2: model[0], 8: model[1], 1: model[2], 9: model[3]}
    model = {**new, **model} if engine == "first row" else {**model, **new}
    assert found(table) == model
    keys = [9, 1, 8, 0, 2]
    assert table.lookup(keys).to_pydict() == {"id": keys, "a": [model[key] for key in keys]}
    table.compact(full=True)
    assert found(table) == model
    assert table.lookup(keys).to_pydict() == {"id": keys, "a": [model[key] for key in keys]}


def test_too_many_values_for_the_indices(tmp_path: Path) -> None:
    """Indices of one byte number 128 values: two appends have 100 different ones each."""
    dtype = pa.dictionary(pa.int8(), pa.list_(pa.string()))
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("a", dtype)]))
    parts = [
        pa.table(
            {
                "id": range(100 * at, 100 * at + 100),
                "a": coded([[f"{at} {n}"] for n in range(100)], dtype.value_type),
            }
        )
        for at in range(2)
    ]
    for part in parts:
        table.append(part)
    with pytest.raises(ValueError, match=r"can't be sorted together.*200 distinct values.*int8"):
        table.compact(sort_by=["id"])
    with pytest.raises(ValueError, match=r"source.*200 distinct values.*int8.*fewer rows"):
        table.merge(pa.concat_tables(parts), on="id").when_matched_delete().execute()
    assert table.scan().to_arrow().num_rows == 200
