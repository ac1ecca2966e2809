"""Spark's expressions are read once, whatever they are translated to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from fermion_table import Table
from spark_ext.catalog import nodes
from spark_ext.catalog.nodes import NotTheSame
from spark_ext.catalog.translator import Translator

READ: Counter[str] = Counter()


class Spark:
    """An expression of Spark, which counts how often it is looked at."""

    def __init__(self, kind: str, name: str, *children: Spark, value: Any = None) -> None:
        self.kind, self._name, self._children, self._value = kind, name, children, value

    def name(self) -> str:
        return self._name

    def children(self) -> tuple[Spark, ...]:
        READ[self._name] += 1
        return self._children

    def value(self) -> Any:
        READ[self._name] += 1
        return self._value

    def dataType(self) -> st.DataType:  # noqa: N802 - Java's name
        return st.LongType()  # which has the methods of Java's that are called

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._name


def column(name: str) -> Spark:
    return Spark("FieldReference", name)


def literal(value: int) -> Spark:
    return Spark("LiteralValue", str(value), value=value)


def compared(name: str, left: Spark, right: Spark) -> Spark:
    return Spark("Predicate", name, left, right)


@pytest.fixture
def translator(table_path, monkeypatch) -> Translator:
    """Over two columns of integers, whose values are small."""
    READ.clear()
    monkeypatch.setattr(nodes, "kind_of", lambda node: node.kind)
    monkeypatch.setattr(nodes, "listed", list)
    table = Table.create(table_path, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append({"a": [1, 2, 3, None], "b": [1, 5, 9, 2]})
    return Translator(table)


def test_a_condition_that_can_not_prune_is_read_once(translator):
    """Its sum needs the bounds of the columns: it is translated three times, and read once."""
    total = Spark("GeneralScalarExpression", "+", column("a"), column("b"))
    chosen = translator.scan_filter(compared(">", total, literal(6)))
    assert READ == {">": 1, "+": 1, "6": 1}
    table = translator._table
    assert table.scan(filter=chosen).to_arrow()["a"].to_pylist() == [2, 3]


def test_a_condition_that_can_prune_is_an_expression_of_the_table(translator):
    chosen = translator.scan_filter(compared("<", literal(2), column("a")))
    assert READ == {"<": 1, "2": 1}
    assert chosen.to_sql() == "a > 2"


def test_rows_are_deleted_by_filters_that_can_prune_alone(translator):
    total = Spark("GeneralScalarExpression", "+", column("a"), column("b"))
    with pytest.raises(NotTheSame):
        translator.filter([compared(">", total, literal(6))])
    both = translator.filter(
        [compared("=", column("a"), literal(1)), compared("=", column("b"), literal(2))]
    )
    assert both is not None
    assert both.to_sql() == "a = 1 AND b = 2"
    assert translator.filter([Spark("AlwaysTrue", "ALWAYS_TRUE")]) is None


def test_what_spark_does_and_tasks_can_not_is_left_to_spark(translator):
    """An unknown operation is refused before its operands are asked for."""
    unknown = Spark("GeneralScalarExpression", "RAND", column("a"))
    with pytest.raises(NotTheSame, match="RAND"):
        translator.scan_filter(compared("=", unknown, literal(6)))
    assert READ["RAND"] == 0
