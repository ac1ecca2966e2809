"""Which Spark type stands for which Arrow type, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from fermion.variant import VariantType
from spark_ext.errors import UnsupportedBySpark
from spark_ext.types import arriving_schema, exchange_schema, spark_schema, table_schema
from spark_ext.versions import SPARK, TIME_TYPE
from tests.kit.spark.versions import needs


def test_nullability_survives_at_every_level():
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    schema = pa.schema(
        [
            pa.field("id", pa.uint32(), nullable=False),
            pa.field("l", pa.large_list(pa.field("item", inner, nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))),
        ]
    )
    spark = spark_schema(schema, where="t")
    assert spark.simpleString() == (
        "struct<id:bigint,l:array<struct<x:int>>,m:map<string,tinyint>>"
    )
    assert not spark["id"].nullable
    assert not spark["l"].dataType.containsNull
    assert not spark["m"].dataType.valueContainsNull
    exchanged = exchange_schema(spark)
    assert not exchanged.field("id").nullable
    assert not exchanged.field("l").type.value_field.nullable
    assert not exchanged.field("l").type.value_type.field("x").nullable


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.decimal256(50, 2), "at most 38 digits"),
        (pa.decimal128(38, -1), "at most 38 digits"),
    ],
)
def test_a_type_without_a_place_in_spark_is_refused_by_column(dtype, said):
    nested = pa.struct({"deep": pa.list_(dtype)})
    schema = pa.schema([("fine", pa.int64()), ("bad", nested)])
    with pytest.raises(UnsupportedBySpark, match=said) as caught:
        spark_schema(schema, where="table t")
    assert "table t: column 'bad'.deep.element" in str(caught.value)
    assert "columns=" in str(caught.value)


@needs(TIME_TYPE)
def test_times_need_the_setting_that_switches_them_on():
    schema = pa.schema([("t", pa.time32("ms"))])
    assert spark_schema(schema, where="t")["t"].dataType == st.TimeType(3)
    with pytest.raises(UnsupportedBySpark, match=r"spark\.sql\.timeType\.enabled=true"):
        spark_schema(schema, time_enabled=False, where="t")


def test_a_decimal_of_negative_scale_is_read_with_all_its_zeros():
    schema = pa.schema([("d", pa.decimal128(5, -2))])
    assert spark_schema(schema, where="t")["d"].dataType == st.DecimalType(7, 0)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.uint8(),
        pa.float16(),
        pa.timestamp("ns", "Europe/Paris"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.uint64(), 3),
        pa.map_(pa.large_string(), pa.uint16()),
        pa.struct({"a": pa.struct({"b": pa.string_view()})}),
        VariantType(),
        pa.map_(pa.string(), pa.large_list(VariantType())),
    ],
)
def test_a_frame_read_from_a_table_arrives_in_the_tables_own_types(dtype):
    table = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("c", dtype)])
    frame = spark_schema(table, where="t")
    assert arriving_schema(frame, table) == table


def test_other_types_arrive_as_spark_has_them():
    table = pa.schema([("a", pa.uint8()), ("s", pa.struct({"x": pa.uint8(), "y": pa.int8()}))])
    nested = st.StructType().add("x", st.ShortType()).add("z", st.StringType())
    frame = st.StructType().add("a", st.LongType()).add("s", nested).add("n", st.DateType())
    assert arriving_schema(frame, table) == pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct({"x": pa.uint8(), "z": pa.string()})),
            ("n", pa.date32()),
        ]
    )


class Point(st.UserDefinedType):
    """Stored as a list."""

    @classmethod
    def sqlType(cls):  # noqa: N802 - Spark's name
        return st.ArrayType(st.DoubleType(), False)

    @classmethod
    def module(cls):
        return __name__


REFUSED = [
    st.CharType(5),
    st.VarcharType(5),
    st.StringType("UTF8_LCASE"),
    st.YearMonthIntervalType(),
    st.DayTimeIntervalType(1, 2),
    st.CalendarIntervalType(),
    *([st.TimeType(4)] if SPARK.has(TIME_TYPE) else []),
    Point(),
    st.ArrayType(st.NullType(), False),
]


@pytest.mark.parametrize("dtype", REFUSED, ids=lambda dtype: type(dtype).__name__)
def test_one_gate_refuses_what_a_table_would_not_give_back(dtype):
    """At create and at append, on top and inside, by path and type."""
    inside = st.MapType(st.StringType(), st.StructType().add("deep", st.ArrayType(dtype)))
    named = "void" if isinstance(dtype, st.ArrayType) else dtype.simpleString()
    named = "Point" if isinstance(dtype, Point) else named
    for bad, path in ((dtype, "column 'bad'"), (inside, "column 'bad'.value.deep.element")):
        frame = st.StructType().add("fine", st.LongType()).add("bad", bad)
        for check in (table_schema, lambda schema: arriving_schema(schema, pa.schema([]))):
            with pytest.raises(UnsupportedBySpark) as caught:
                check(frame)
            assert path in str(caught.value)
            assert named in str(caught.value)


def test_every_other_type_comes_back_from_a_table_as_it_was():
    leaves = [
        *(st.BooleanType(), st.ByteType(), st.ShortType(), st.IntegerType(), st.LongType()),
        *(st.FloatType(), st.DoubleType(), st.DecimalType(38, 10), st.StringType()),
        *(st.BinaryType(), st.DateType(), st.TimestampType(), st.TimestampNTZType()),
        *(st.DayTimeIntervalType(), st.NullType(), st.VariantType()),
    ]
    if SPARK.has(TIME_TYPE):
        leaves += [st.TimeType(digits) for digits in (0, 3, 6, 9)]
    frame = st.StructType()
    for number, leaf in enumerate(leaves):
        frame.add(f"c{number}", leaf, metadata={"comment": f"words {number}"})
        frame.add(f"l{number}", st.ArrayType(leaf))
        frame.add(f"s{number}", st.StructType().add("x", st.MapType(st.StringType(), leaf)))
    made = table_schema(frame)
    back = spark_schema(made, where="t")
    assert [(each.name, each.dataType, each.nullable) for each in back] == [
        (each.name, each.dataType, each.nullable) for each in frame
    ]
    assert made.field("c3").metadata == {b"comment": b"words 3"}
    assert arriving_schema(frame, made).equals(made)
