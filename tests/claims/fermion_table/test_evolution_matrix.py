"""Each schema change x data x state of files, and every operation after it, against dicts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.kit.schema_changes import CHANGES, ROWS, START, carry_out

Row = dict[str, Any]

INF = float("inf")
DATA: dict[str, list[Row]] = {
    "values": ROWS,
    "nulls": [{"id": n, "a": None, "s": None, "l": None, "m": None, "z": None} for n in (1, 2, 3)],
    "extremes": [
        {"id": -(2**31), "a": 127, "s": {"x": -(2**15), "t": ""}, "l": [None, {"q": INF}],
         "m": [("", -(2**31))], "z": None},
        {"id": 2**31 - 1, "a": -128, "s": {"x": 2**15 - 1, "t": None}, "l": [{"q": -0.0}],
         "m": [("k", None), ("é", 2**31 - 1)], "z": None},
        {"id": 0, "a": 0, "s": {"x": None, "t": "\x00"}, "l": [{"q": None}], "m": [], "z": None},
    ],
    "nothing": [],
}  # fmt: skip
EXTRA: Row = {"id": 99, "a": 9, "s": {"x": 9, "t": "gone"}, "l": [], "m": [], "z": None}


def data(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=START)


def two_files(table: Table, rows: list[Row]) -> None:
    table.append(data(rows[:1]))
    table.append(data(rows[1:]))


def deleted(table: Table, rows: list[Row]) -> None:
    table.append(data([*rows, EXTRA]))
    table.delete("id = 99")


def compacted(table: Table, rows: list[Row]) -> None:
    two_files(table, rows)
    table.compact()


def batches(table: Table, rows: list[Row]) -> None:
    table.append_batches([(7, data(rows[:2])), (3, data(rows[2:]))])


def older_schemas(table: Table, rows: list[Row]) -> None:
    table.append(data(rows[:1]))
    table.add_columns({"n": pa.int64()}, defaults={"n": 5})
    table.append(data(rows[1:]))
    table.drop_columns(["n"])


def updated(table: Table, rows: list[Row]) -> None:
    table.append(data([*rows, EXTRA]))
    table.update("id = 99", {"a": 8})
    table.delete("a = 8 AND id = 99")


STATES: dict[str, Callable[[Table, list[Row]], Any]] = {
    "one file": lambda table, rows: table.append(data(rows)),
    "two files": two_files,
    "deletion vector": deleted,
    "compacted": compacted,
    "batches": batches,
    "older schemas": older_schemas,
    "updated": updated,
    "partitions": lambda table, rows: table.append(data(rows)),
}


def bag(rows: list[Row]) -> Counter[str]:
    """Rows in no order; as text, which tells null from NaN and zero from minus zero."""
    return Counter(map(repr, rows))


def read(table: Table, **question: Any) -> list[Row]:
    return table.scan(**question).to_arrow().to_pylist()


def cases() -> list[Any]:
    """All of them with every operation, and what routine runs take.

    These take one kind of data for each change and state of the files, and for three quarters of
    these pairs reads of whole versions only.
    """
    found = []
    places = itertools.product(enumerate(CHANGES), enumerate(STATES), enumerate(DATA))
    for (row, name), (column, state), (kind, given) in places:
        found.append(pytest.param(name, state, given, True, marks=pytest.mark.slow))
        if (row // 2 + column) % 4 == kind:
            found.append(pytest.param(name, state, given, (row + column) % 4 == 0))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("name", "state", "given", "everything"), cases())
def test_every_operation_after_a_change_agrees_with_the_rows(
    tmp_path: Path, name: str, state: str, given: str, everything: bool
) -> None:
    change, expected = CHANGES[name]
    rows = DATA[given]
    table = Table.create(
        tmp_path / "t",
        START,
        partition_by="bucket(2, id)" if state == "partitions" else None,
        durability="fast",
    )
    STATES[state](table, rows)
    before = table.snapshot.id
    assert bag(read(table)) == bag(rows)
    carry_out(change, table)
    model = [expected(row) for row in rows]

    # As a whole, and history under either schema.
    assert bag(read(table)) == bag(model)
    assert bag(read(table, snapshot_id=before)) == bag(rows)
    assert bag(read(table, snapshot_id=before, schema="current")) == bag(model)
    if everything:
        check_parts(table, model)
        model = written(table, rows, model, state)
        # The changes since lead here.
        names = table.schema.to_arrow(field_ids=False).names
        left = bag([expected(row) for row in rows])
        for row in table.scan_changes(before).to_arrow().to_pylist():
            sign = 1 if row.pop("_change_type") == "insert" else -1
            left[repr({column: row[column] for column in names})] += sign
        assert +left == bag(model)
        assert all(count >= 0 for count in left.values())
    table.restore(before)
    assert bag(read(table)) == bag(rows)
    assert table.verify(data=True).ok


def check_parts(table: Table, model: list[Row]) -> None:
    """Read column by column and through filters."""
    for column in table.schema.to_arrow(field_ids=False).names:
        alone = [{column: row[column]} for row in model]
        assert bag(read(table, columns=[column])) == bag(alone)
        for test in ("IS NULL", "IS NOT NULL"):
            chosen = [row for row in model if (row[column] is None) == (test == "IS NULL")]
            scan = table.scan(filter=f'"{column}" {test}')
            assert bag(scan.to_arrow().to_pylist()) == bag(chosen)
            assert scan.count() == len(chosen)


def written(table: Table, rows: list[Row], model: list[Row], state: str) -> list[Row]:
    """Each operation on what the others have left; the rows then."""
    schema = table.schema.to_arrow(field_ids=False)
    key = next(each.name for each in table.schema.fields if each.id == 1)
    if state == "batches":
        table.append_batch(5, pa.Table.from_pylist(model, schema))
        assert bag(table.lookup_batch(7).to_pylist()) == bag(model[:2])
        assert bag(table.lookup_batch(5).to_pylist()) == bag(model)
    else:
        table.append(pa.Table.from_pylist(model, schema))
    model = [*model, *model]
    assert bag(read(table)) == bag(model)
    first = rows[0]["id"] if rows else 1
    table.delete(f'"{key}" = {first}')
    model = [row for row in model if row[key] != first]
    assert bag(read(table)) == bag(model)
    last = rows[-1]["id"] if rows else 1
    table.update(f'"{key}" = {last}', {key: 77})
    model = [{**row, key: 77} if row[key] == last else row for row in model]
    assert bag(read(table)) == bag(model)
    table.compact()
    assert bag(read(table)) == bag(model)
    new = [{**row, key: 78} for row in model[:1]]
    table.overwrite(pa.Table.from_pylist(new, schema), filter=f'"{key}" = 77')
    model = [row for row in model if row[key] != 77] + new
    assert bag(read(table)) == bag(model)
    return model
