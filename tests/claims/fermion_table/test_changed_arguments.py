"""What a caller changes after a statement of a transaction counts no more, even on a retry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fermion_table import Table, lit

SCHEMA = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64())), ("bytes", pa.binary())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three rows."""
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append({"id": [1, 2, 3], "list": [[1], [2], [3]], "bytes": [b"1", b"2", b"3"]})
    return table


def overtaken(table: Table) -> None:
    """Other commits come first, of the same file and of the schema: all is decided again."""
    other = Table.open(table.location, durability="fast")
    other.delete("id = 3")
    other.add_columns({"new": pa.int64()})


def rows(table: Table) -> list[dict[str, Any]]:
    return Table.open(table.location).scan().to_arrow().sort_by("id").to_pylist()


Made = Callable[[], tuple[Any, Callable[[], Any]]]
"""A value, and what the caller does to it later."""


def _ids() -> tuple[Any, Callable[[], Any]]:
    ids = [1]
    return [("id", "in", ids)], lambda: ids.append(2)


def _conjuncts() -> tuple[Any, Callable[[], Any]]:
    conjuncts = [("id", ">=", 1), ("id", "<=", 1)]
    return conjuncts, conjuncts.pop


def _array() -> tuple[Any, Callable[[], Any]]:
    ids = np.array([1])
    return [("id", "in", ids)], lambda: ids.fill(2)


@pytest.mark.parametrize("made", [_ids, _conjuncts, _array])
def test_a_filter_that_is_changed_after_its_statement_deletes_what_it_was_asked_to(
    table: Table, made: Made
) -> None:
    filter, change = made()
    with table.transaction() as transaction:
        transaction.delete(filter)
        change()
        overtaken(table)
    assert [row["id"] for row in rows(table)] == [2]


def _numbers() -> tuple[Any, Callable[[], Any]]:
    value = np.array([7, 8])
    return value, lambda: value.fill(0)


def _list() -> tuple[Any, Callable[[], Any]]:
    value = [7, 8]
    return value, value.clear


def _series() -> tuple[Any, Callable[[], Any]]:
    value = pd.Series([7, 8])
    return value, lambda: value.update(pd.Series([0, 0]))


def _scalar() -> tuple[Any, Callable[[], Any]]:
    memory = np.array([7, 8])
    value = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(memory))[0]
    return value, lambda: memory.fill(0)


@pytest.mark.parametrize("made", [_numbers, _list, _series, _scalar])
@pytest.mark.parametrize("statement", ["update", "merge"])
def test_a_value_that_is_changed_after_its_statement_is_set_as_it_was(
    table: Table, statement: str, made: Made
) -> None:
    value, change = made()
    memory = bytearray(b"x")
    values = {"list": value, "bytes": lit(memory)}
    with table.transaction() as transaction:
        if statement == "update":
            transaction.update("id = 1", values)
        else:
            merge = transaction.merge({"id": [1]}, on="id")
            merge.when_matched_update(set=values).execute()
        change()
        memory[:] = b"yyy"
        values["id"] = 99
        overtaken(table)
    assert rows(table) == [
        {"id": 1, "list": [7, 8], "bytes": b"x", "new": None},
        {"id": 2, "list": [2], "bytes": b"2", "new": None},
    ]


def test_the_condition_and_the_source_of_a_merge_are_kept_as_they_were(table: Table) -> None:
    ids, keys = [1], np.array([1, 2])
    with table.transaction() as transaction:
        merge = transaction.merge(pa.table({"id": keys}), on="id")
        merge.when_matched_delete([("target.id", "in", ids)]).execute()
        ids.append(2)
        keys[:] = 2
        overtaken(table)
    assert [row["id"] for row in rows(table)] == [2]
