"""Planning a query asks the JVM little, however many columns the table has."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_ext
from fermion_table import Table
from spark_ext.catalog import nodes
from spark_ext.catalog.nodes import NotTheSame, read_expression

COLUMNS = 300
CALLS_MAX = 330
"""Of a query with ten sums and two filters; each call costs some 0.1 ms."""


class Reference:
    """What Spark names a column with."""

    def __init__(self, *names):
        self.names = names

    def toString(self):  # noqa: N802 - Java's name
        plain = [name if name.isidentifier() else f"`{name}`" for name in self.names]
        return ".".join(plain)

    def fieldNames(self):  # noqa: N802 - Java's name
        return self.names


def test_a_column_is_found_without_a_look_at_the_others(monkeypatch):
    """Plain, nested, with a dot in its name, and one that is not there."""
    schema = pa.schema(
        [("a", pa.int32()), ("a.b", pa.int8()), ("s", pa.struct({"a": pa.string()}))]
    )
    monkeypatch.setattr(nodes, "kind_of", lambda node: "FieldReference")
    monkeypatch.setattr(nodes, "listed", list)
    monkeypatch.setattr(pa, "struct", None)  # would be one of all columns
    assert read_expression(Reference("a"), schema).column == (("a",), pa.int32())
    assert read_expression(Reference("a.b"), schema).column == (("a.b",), pa.int8())
    assert read_expression(Reference("s", "a"), schema).column == (("s", "a"), pa.string())
    for missing in (Reference("b"), Reference("a", "b"), Reference("s", "b")):
        with pytest.raises(NotTheSame):
            read_expression(missing, schema)


@pytest.mark.spark
def test_a_query_of_many_columns_calls_the_jvm_a_few_hundred_times(spark, tmp_path, jvm_calls):
    """The columns of a table are handed over once, and each item of a plan is asked for once."""
    names = [f"c{number}" for number in range(COLUMNS)]
    rows = pa.table({name: pa.array([1, 2, None], pa.int64()) for name in names})
    Table.create(tmp_path / "t", rows.schema).append(rows)
    spark_ext.install_catalog(spark, "calls", tmp_path)
    sums = ", ".join(f"sum(c{number}) AS s{number}" for number in range(10))
    query = f"SELECT {sums} FROM calls.t WHERE c20 >= 1 AND c21 < 3"
    jvm_calls.clear()
    assert list(spark.sql(query).collect()[0]) == [3] * 10
    handed = sum("structTypeToV2Columns" in command for command in jvm_calls)
    jvm_calls.clear()
    assert list(spark.sql(query).collect()[0]) == [3] * 10
    assert handed == 2  # the method is looked up, and called
    assert not any("structTypeToV2Columns" in command for command in jvm_calls)
    assert 0 < len(jvm_calls) < CALLS_MAX
