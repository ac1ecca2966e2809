"""`Table.upsert` of changes as Debezium gives them: envelopes, flat rows, tombstones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table

SCHEMA = pa.schema(
    [pa.field("id", pa.int64()), pa.field("city", pa.string(), nullable=False), ("n", pa.int32())]
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Rows 1 and 2."""
    made = Table.create(tmp_path / "t", SCHEMA, primary_key="id", durability="fast")
    made.upsert({"id": [1, 2], "city": ["Oslo", "Rome"], "n": [1, 2]})
    return made


def row(id: int, city: str | None, n: int | None = 0) -> dict[str, Any]:
    return {"id": id, "city": city, "n": n}


def change(op: Any, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, **more}


CHANGES = [
    change("r", None, row(3, "Bern")),
    change("c", None, row(4, "Lima")),
    change("u", row(1, "Oslo"), row(1, "Bergen")),
    change(None),  # a tombstone
    change("u", None, row(3, "Basel")),
    change("d", {"id": 2, "city": None, "n": None}, None),
    change("d", row(4, "Lima"), None),
    change("c", None, row(4, "Cusco")),
]
EXPECTED = {1: "Bergen", 3: "Basel", 4: "Cusco"}


def shown(table: Table) -> dict[int, str]:
    return {each["id"]: each["city"] for each in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("wrapped", [False, True])
def test_envelopes_are_applied_in_their_order(table: Table, wrapped: bool) -> None:
    """The last change of a key counts; columns of the envelope are no columns of the table."""
    changes = [{**each, "ts_ms": 5, "source": {"lsn": 1}} for each in CHANGES]
    data: list[Any] = [{"payload": each} for each in changes] if wrapped else changes
    table.upsert(data, format="debezium")
    assert shown(table) == EXPECTED
    assert table.columns == ["id", "city", "n"]


def test_a_file_of_envelopes_is_applied_at_once(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in CHANGES))
    table.upsert(str(path), change_type="op", format="debezium")
    assert shown(table) == EXPECTED


def test_flat_changes_are_applied_in_batches(table: Table) -> None:
    flat = [{**((each["after"] or each["before"]) or {}), "__op": each["op"]} for each in CHANGES]
    batches = pa.Table.from_pylist(flat).to_batches(max_chunksize=3)
    assert len(batches) == 3
    table.upsert(iter(batches), change_type="__op", format="debezium")
    assert shown(table) == EXPECTED


def test_a_transaction_and_new_columns_take_them_too(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.upsert(CHANGES, format="debezium")
    assert shown(table) == EXPECTED
    more = change("c", None, {**row(5, "Kyiv"), "extra": 1.5})
    table.upsert([more], format="debezium", schema_mode="merge")
    assert table.columns == ["id", "city", "n", "extra"]
    assert table.count("extra = 1.5") == 1


def test_columns_of_the_envelope_order_rows_where_the_table_has_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts_ms", pa.int64())])
    made = Table.create(
        tmp_path / "s",
        schema,
        primary_key="id",
        properties={"sequence.field": "ts_ms"},
        durability="fast",
    )
    late = change("u", None, {"id": 1, "city": "late"}, ts_ms=9)
    early = change("u", None, {"id": 1, "city": "early"}, ts_ms=3)
    made.upsert([late, early], format="debezium")
    assert made.to_arrow().to_pylist() == [{"id": 1, "city": "late", "ts_ms": 9}]


def test_a_deletion_alone_has_no_row_after_it(table: Table) -> None:
    table.upsert([change("d", {"id": 2})], format="debezium")
    assert shown(table) == {1: "Oslo"}
    table.upsert(pa.table({"op": ["d"], "id": [1]}), format="debezium")
    assert shown(table) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [change("c", None, row(7, "x")), change("t")],
            r"row 1: expected one of c, r, u, d; found 't'",
        ),
        ([change(None, None, row(7, "x"))], r"row 0: expected one of c, r, u, d; found None"),
        (
            [change("c", row(7, "x"), None), change("d", row(7, "x"))],
            r"row 0 .*value of 'after'.*null",
        ),
        ([change("d", None, row(7, "x"))], r"row 0 .*value of 'before' in a deletion"),
        ([{"op": "c", "after": 5}], r"column 'after' .*expected structs, found int64"),
        ([{"id": 1}], r"change_type='op': expected one column of this name.*\['id'\]"),
        ([{"op": 5, "id": 1}], r"column 'op' is int64, expected text"),
        ([change(None)], "expected structs 'before' or 'after'"),
    ],
)
def test_a_change_that_can_not_be_applied_is_named_and_nothing_is_written(
    table: Table, changes: list[Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.upsert(changes, format="debezium")
    assert Table.open(table.location).snapshot.id == table.snapshot.id


def test_rows_are_numbered_over_batches(table: Table) -> None:
    good = pa.table({"id": [1, 2], "city": ["a", "b"], "op": ["c", "c"]})
    bad = pa.table({"id": [1, 2], "city": ["a", "b"], "op": ["c", "x"]})
    with pytest.raises(InvalidArgumentError, match=r"row 3: expected one of .* found 'x'"):
        table.upsert([good, bad], format="debezium")


def test_wrong_arguments_are_refused(table: Table) -> None:
    with pytest.raises(InvalidArgumentError, match="format='avro': expected None or 'debezium'"):
        table.upsert(CHANGES, format="avro")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="change_type"):
        table.upsert(CHANGES, change_type=5, format="debezium")  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatch, match="extra"):
        table.upsert([change("c", None, {**row(5, "Kyiv"), "extra": 1})], format="debezium")
    with pytest.raises(SchemaMismatch, match="'city' is NOT NULL"):
        table.upsert([change("c", None, row(5, None))], format="debezium")
