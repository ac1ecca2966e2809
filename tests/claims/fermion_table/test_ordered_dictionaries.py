"""Ordered dictionaries in tables: appends, compactions, rows that change, clones of schemas."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.kit.equality import assert_logically_equal

LEVELS = pa.array(["low", "mid", "high"])
OTHER = LEVELS.take([2, 1, 0])


def rows(codes, entries=LEVELS) -> pa.Table:
    indices = pa.array(codes, pa.int8())
    level = pa.DictionaryArray.from_arrays(indices, entries, ordered=True)
    nested = pa.StructArray.from_arrays([level], ["level"])
    return pa.table({"id": range(len(codes)), "level": level, "nested": nested})


def dictionaries(table: pa.Table) -> list[list[str]]:
    found = [chunk.dictionary.to_pylist() for chunk in table["level"].chunks]
    nested = [chunk.field("level").dictionary.to_pylist() for chunk in table["nested"].chunks]
    assert found == nested
    return found


@pytest.fixture
def table(table_path) -> Table:
    return Table.create(table_path, rows([0]).schema)


def test_compaction_keeps_one_order_and_all_values(table):
    """Of two files: one has all values, one a part of them."""
    table.append(rows([2, None, 0]))
    table.append(rows([1], LEVELS[1:]))
    table.compact(min_input_files=2)
    found = table.scan().to_arrow()
    assert table.snapshot.totals.files == 1
    assert found["level"].to_pylist() == ["high", None, "low", "high"]
    assert dictionaries(found) == [LEVELS.to_pylist()]
    assert table.verify(data=True).ok


def test_compaction_keeps_orders_that_differ(table):
    """Every row keeps the dictionary that it was written with."""
    table.append(rows([2, 0]))
    table.append(rows([2, 0], OTHER))
    before = table.scan().to_arrow()
    table.compact(min_input_files=2)
    found = table.scan().to_arrow()
    assert_logically_equal(found, before)
    assert dictionaries(found) == dictionaries(before) == [LEVELS.to_pylist(), OTHER.to_pylist()]


def test_deleted_and_updated_rows_leave_the_order(table):
    table.append(rows([2, 1, 0, 1]))
    table.delete("id = 0")
    table.update("id = 1", {"id": 7})
    found = table.scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [2, 3, 7]
    assert all(each == LEVELS.to_pylist() for each in dictionaries(found))
