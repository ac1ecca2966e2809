"""Predicates of Flink select the same rows as filters, or have no counterpart."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from flink_ext.worker.filters import Node, NotTheSame, flink_filter

NAN = float("nan")
ROWS = pa.table(
    {
        "i": pa.array([1, 2, None, -3], pa.int32()),
        "u": pa.array([1, 2, None, 3], pa.uint8()),
        "f": pa.array([1.5, NAN, None, float("inf")]),
        "b": pa.array([True, False, None, True]),
        "s": pa.array(["a", "ab%", None, "ü"]),
        "d": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal(0)], pa.decimal128(9, 2)),
        "day": pa.array([dt.date(2024, 1, 1), dt.date(1900, 1, 1), None, dt.date(2024, 1, 2)]),
        "t": pa.array([dt.datetime(2024, 1, 1), dt.datetime(2025, 1, 1), None, None]),
        "z": pa.array([0, 1, None, 2], pa.timestamp("ns", "Europe/Paris")),
        "dict": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "bytes": pa.array([b"a", b"b", None, b"c"]),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(tmp_path_factory.mktemp("filters") / "t", ROWS.schema)
    made.append(ROWS)
    return made


def column(name: str) -> Node:
    return Node("column", column=name)


def literal(kind: str, value: Any) -> Node:
    return Node("literal", kind=kind, value=value)


def call(op: str, *args: Node) -> Node:
    return Node(op, args=list(args))


ONE = literal("integer", "1")


def is_one(op: str) -> Node:
    return call(op, column("i"), ONE)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (is_one("="), [0]),
        (is_one("<>"), [1, 3]),
        (is_one("<"), [3]),
        (is_one("<="), [0, 3]),
        (is_one(">"), [1]),
        (is_one(">="), [0, 1]),
        (call("<", ONE, column("i")), [1]),
        (call("=", column("u"), literal("integer", "2")), [1]),
        (call("in", column("i"), ONE, literal("integer", "2")), [0, 1]),
        (call("and", is_one(">="), is_one("<>"), is_one(">")), [1]),
        (call("or", is_one("="), call("is_null", column("i"))), [0, 2]),
        (call("not", is_one("=")), [1, 3]),
        (call("is_not_null", column("f")), [0, 1, 3]),
        (column("b"), [0, 3]),
        (call("not", column("b")), [1]),
        (call("=", column("b"), literal("boolean", "false")), [1]),
        (call("=", column("f"), literal("double", "1.5")), [0]),
        (call("<>", column("f"), literal("double", "1.5")), [1, 3]),
        (call(">", column("f"), literal("double", "0")), [0, 3]),
        (call("<", column("f"), literal("double", "0")), []),
        (call("=", column("s"), literal("text", "ü")), [3]),
        (call(">", column("s"), literal("text", "a")), [1, 3]),
        (call("starts_with", column("s"), literal("text", "ab%")), [1]),
        (call("=", column("d"), literal("decimal", "1.5")), [0]),
        (call(">=", column("day"), literal("date", "2024-01-01")), [0, 3]),
        (call("=", column("t"), literal("timestamp", "2024-01-01T00:00")), [0]),
        (call("=", column("z"), literal("instant", "1970-01-01T00:00:00Z")), [0]),
    ],
)
def test_a_predicate_selects_its_rows(table: Table, node: Node, expected: list[int]):
    """``<>`` selects NaN, other comparisons do not, as Java compares."""
    chosen = flink_filter(node, table.schema.to_arrow(field_ids=False))
    found = table.scan(filter=chosen, columns=["_row_id"]).to_arrow()
    assert found["_row_id"].to_pylist() == expected


@pytest.mark.parametrize(
    "node",
    [
        call("like", column("s"), literal("text", "%a")),
        call("=", column("missing"), ONE),
        call("=", column("i"), column("u")),
        call("=", call("plus", column("i"), ONE), ONE),
        call("=", column("i"), literal("integer", None)),
        call("=", column("i"), literal("decimal", "1.5")),
        call("=", column("i"), literal("text", "1")),
        call("in", column("i"), ONE, literal("integer", None)),
        call("=", column("f"), literal("double", "NaN")),
        call("not", call(">", column("f"), literal("double", "1"))),
        call("=", column("dict"), literal("text", "a")),
        call("=", column("bytes"), literal("bytes", "61")),
        call("=", column("day"), literal("date", "-0001-01-01")),
        call("=", column("day"), literal("date", "no date")),
        call("=", column("t"), literal("timestamp", "2024-01-01T00:00:00.123456789")),
        call("=", column("z"), literal("timestamp", "2024-01-01T00:00")),
        column("i"),
        ONE,
        call("and", is_one("="), call("like", column("s"), literal("text", "%a"))),
    ],
)
def test_what_has_no_exact_counterpart_stays_with_flink(table: Table, node: Node):
    with pytest.raises(NotTheSame):
        flink_filter(node, table.schema.to_arrow(field_ids=False))
