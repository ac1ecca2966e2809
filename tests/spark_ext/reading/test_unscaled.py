"""Short decimals travel as integers, and Spark has the decimals."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as st

import spark_ext
from fermion_table import Table
from spark_ext.catalog import scans
from spark_ext.reading.unscaled import UnscaledTask, unscaled_schema
from spark_ext.types import exchange_schema, spark_schema

MONEY = pa.decimal128(15, 2)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("one", pa.decimal128(1, 0)),
        ("tiny", pa.decimal128(18, 18)),
        ("whole", pa.decimal128(18, 0)),
        ("wide", pa.decimal128(19, 2)),
        ("widest", pa.decimal128(38, 0)),
        ("small", pa.decimal32(5, 1)),
        ("s", pa.struct({"a": pa.decimal128(7, 2)})),
        ("list", pa.list_(pa.decimal128(7, 2))),
    ]
)


def most(digits, sign, scale=0):
    """The largest or the smallest decimal."""
    return Decimal((sign < 0, (9,) * digits, -scale))


def row(number, sign):
    cents = Decimal(sign * (number + 1)).scaleb(-2)
    return {
        "id": number,
        "one": most(1, sign),
        "tiny": most(18, sign, 18),
        "whole": most(18, sign),
        "wide": most(19, sign, 2),
        "widest": most(38, sign),
        "small": Decimal("-0.1"),
        "s": {"a": cents},
        "list": [cents, None],
    }


ROWS = [row(0, 1), row(1, -1), {"id": 2}, {**row(3, 1), "whole": Decimal(7), "s": {"a": None}}]
"""The largest, the smallest, nulls, and others."""


def test_a_task_gives_integers_where_its_schema_has_them():
    """Of a slice, with nulls, both signs; other columns, and wide decimals, are what they were."""
    schema = spark_schema(
        pa.schema([("m", MONEY), ("w", pa.decimal128(19, 2)), ("i", pa.int32())]), where="t"
    )
    sent = unscaled_schema(schema)
    assert [field.dataType for field in sent] == [st.LongType(), *(f.dataType for f in schema[1:])]
    bare = st.StructType(schema.fields[1:])
    assert unscaled_schema(bare) is bare
    values = [Decimal("1.23"), Decimal("-0.01"), None, Decimal("-9999999999999.99")]
    batch = pa.record_batch(
        [
            pa.array([Decimal(9), *values], MONEY),
            pa.array([Decimal(9), *values], pa.decimal128(19, 2)),
            pa.array(range(5), pa.int32()),
        ],
        schema=exchange_schema(schema),
    ).slice(1)
    task = pickle.loads(pickle.dumps(UnscaledTask(iter_of, exchange_schema(sent))))
    (made,) = task(iter([batch]))
    made.validate(full=True)
    assert made.schema == exchange_schema(sent)
    assert made["m"].to_pylist() == [123, -1, None, -(10**15 - 1)]
    assert made["w"].to_pylist() == values
    assert made["i"].to_pylist() == [1, 2, 3, 4]


def iter_of(batches):
    """A task that returns what it gets."""
    yield from batches


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """`unscaled.t`, in two files, one of them with a deleted row."""
    root = tmp_path_factory.mktemp("unscaled")
    table = Table.create(root / "t", SCHEMA)
    table.append(pa.Table.from_pylist(ROWS[:2], SCHEMA))
    table.append(pa.Table.from_pylist([*ROWS[2:], {"id": 9}], SCHEMA))
    table.delete("id = 9")
    spark_ext.install_catalog(spark, "unscaled", root)
    return spark


@pytest.mark.spark
def test_rows_of_a_catalog_have_their_decimals(lake, monkeypatch):
    """All types and places; as rows, in a join, sorted, cached, and where nothing is generated."""
    told = []
    monkeypatch.setattr(
        scans,
        "UnscaledTask",
        lambda task, schema: told.append(schema) or UnscaledTask(task, schema),
    )
    expected = [{name: each.get(name) for name in SCHEMA.names} for each in ROWS]

    def found(frame):
        return [each.asDict(recursive=True) for each in frame.orderBy("id").collect()]

    table = lake.table("unscaled.t")
    assert [field.dataType for field in table.schema][1:4] == [
        st.DecimalType(1, 0),
        st.DecimalType(18, 18),
        st.DecimalType(18, 0),
    ]
    assert found(table) == expected
    assert [str(each.type) for each in told[-1]][1:6] == [
        "int64",
        "int64",
        "int64",
        "decimal128(19, 2)",
        "decimal128(38, 0)",
    ]
    whole = lake.table("unscaled.t").select("id", "whole")
    joined = [each for each in expected if each["whole"] is not None]
    assert found(table.join(whole, ["id", "whole"])) == joined
    cached = table.select("id", "tiny", "small").cache()
    assert [each["tiny"] for each in found(cached)] == [each["tiny"] for each in expected]
    cached.unpersist()
    computed = table.selectExpr("id", "tiny + 1 as t", "-whole as w", "cast(one as string) as o")
    lake.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        assert [each["w"] for each in found(computed)] == [
            None if e["whole"] is None else -e["whole"] for e in expected
        ]
    finally:
        lake.conf.unset("spark.sql.codegen.wholeStage")
