"""Arrow types ⇄ Spark's: which Spark type holds a column, and the exact Arrow type Spark takes.

===============================================  ==================================================
Arrow                                            Spark
===============================================  ==================================================
bool, int8-64, float32/64, date32                the same
uint8, uint16, uint32                            short, int, long
uint64                                           decimal(20, 0)
float16                                          float
date64                                           date
decimal32/64/128, decimal256 of 38 digits        decimal(p, s)
timestamp without, with a zone                   timestamp_ntz, timestamp; microseconds
duration                                         interval day to second; microseconds
time32, time64                                   time, if it is enabled in Spark
string, large_string, string_view                string
binary, large_binary, binary_view, fixed-size    binary
list in every form                               array
map, struct, null                                map, struct, void
``fermion.variant.VariantType``                  variant
dictionary, run-end encoded, other extension     the type of their values
===============================================  ==================================================

Timestamps and durations finer than microseconds are rounded down. All other types are an error that
names the column.

From Spark into a table, `check_type` is called before a table is created, written or altered. It
accepts the types that a table returns unchanged. Others are an error with the path of the column,
before anything is written.

===============================================  ==================================================
Spark                                            in a table
===============================================  ==================================================
the types of the table above                     the Arrow type of the same name
timestamp, timestamp_ntz                         timestamp in microseconds, in UTC, without a zone
interval day to second                           duration in microseconds
time(0), time(3), time(6), time(9)               time32 s, time32 ms, time64 us, time64 ns
void                                             null, if it is nullable
char, varchar, collated string, geometry,        refused
geography, other intervals, other times,
user-defined types
===============================================  ==================================================
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from fermion.engine import VariantType, is_variant, strip_wrappers
from spark_ext.errors import UnsupportedBySpark
from spark_ext.versions import (
    SPARK,
    TIME_TYPE,
    GeographyType,
    GeometryType,
    TimeType,
    to_arrow_schema,
    to_arrow_type,
)

DECIMAL_DIGITS_MAX = 38
TIME_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
TIME_UNITS = {0: pa.time32("s"), 3: pa.time32("ms"), 6: pa.time64("us"), 9: pa.time64("ns")}
"""By digits of the second; a table would return Spark's other times with more digits."""
BINARY_COLLATION = "UTF8_BINARY"
TIME_SETTING = "spark.sql.timeType.enabled"

_SAME: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
    pa.null(): st.NullType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.string_view(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.binary_view(): st.BinaryType(),
}

_REFUSED: dict[type[st.DataType], str] = {
    GeometryType: "convert it first, with st_asbinary",
    GeographyType: "convert it first, with st_asbinary",
    st.CharType: "use STRING",
    st.VarcharType: "use STRING",
    st.YearMonthIntervalType: "cast it to an integer or STRING",
    st.CalendarIntervalType: "cast it to STRING",
    st.UserDefinedType: "convert it to the type that it is stored as",
}
"""Types that a table would not return unchanged, with what to do instead."""


def spark_schema(schema: pa.Schema, *, time_enabled: bool = True, where: str) -> st.StructType:
    """The Spark schema that holds every column of an Arrow schema.

    schema: A table's schema, or the part of it that is read.
    time_enabled: Whether Spark's TIME type may be used (setting ``spark.sql.timeType.enabled``).
    where: The table, for messages.
    Raises UnsupportedBySpark: Spark has no type for a column; the message names the column.
    """
    return st.StructType(
        [_spark_field(each, time_enabled, f"{where}: column {each.name!r}") for each in schema]
    )


def _spark_field(field: pa.Field, time_enabled: bool, where: str) -> st.StructField:
    dtype = _spark_type(field.type, time_enabled, where)
    return st.StructField(field.name, dtype, field.nullable, _comment(field))


def table_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema, with comments, of a new table for a Spark schema.

    Raises UnsupportedBySpark: As `arrow_type`, for a column or a field within it.
    """
    return pa.schema([_table_field(field, _column(field.name)) for field in schema])


def table_type(dtype: st.DataType, where: str) -> pa.DataType:
    """The Arrow type of a table's new column.

    Raises UnsupportedBySpark: As `arrow_type`.
    """
    check_type(dtype, where)
    return _table_type(dtype, where)


def exchange_schema(schema: st.StructType) -> pa.Schema:
    """The exact Arrow schema, nullability included, that Spark takes for a Spark schema.

    Raises UnsupportedBySpark: Spark itself cannot exchange a column's type through Arrow (calendar
        intervals).
    """
    try:
        return to_arrow_schema(schema)
    except PySparkException:
        for field in schema:
            arrow_type(field.dataType, f"column {field.name!r}")
        raise


def arrow_type(dtype: st.DataType, where: str) -> pa.DataType:
    """The Arrow type in which Spark passes a column to a table.

    where: The column, for messages.
    Raises UnsupportedBySpark: Spark cannot exchange the type through Arrow, or a table would not
        return it unchanged. The message has the path of the field that is the cause.
    """
    check_type(dtype, where)
    try:
        return _with_variants(to_arrow_type(dtype))
    except PySparkException as error:
        raise UnsupportedBySpark(
            f"{where}: Spark cannot convert type {dtype.simpleString()} to Arrow; "
            "cast the column to another type first"
        ) from error


def _with_variants(dtype: pa.DataType) -> pa.DataType:
    """The extension type in place of the structs that Spark marks as Variant, at any depth."""
    if pat.is_struct(dtype):
        if any(b"variant" in (field.metadata or {}) for field in dtype):
            return VariantType()
        return pa.struct([field.with_type(_with_variants(field.type)) for field in dtype])
    if pat.is_map(dtype):
        item = dtype.item_field
        return pa.map_(_with_variants(dtype.key_type), item.with_type(_with_variants(item.type)))
    if pat.is_list(dtype):
        value = dtype.value_field
        return pa.list_(value.with_type(_with_variants(value.type)))
    return dtype


def check_type(dtype: st.DataType, where: str, *, nullable: bool = True) -> None:
    """Refuse a type that a table would not return unchanged, at any depth.

    Raises UnsupportedBySpark.
    """
    if isinstance(dtype, st.StructType):
        for field in dtype:
            check_type(field.dataType, f"{where}.{field.name}", nullable=field.nullable)
    elif isinstance(dtype, st.ArrayType):
        check_type(dtype.elementType, f"{where}.element", nullable=dtype.containsNull)
    elif isinstance(dtype, st.MapType):
        check_type(dtype.keyType, f"{where}.key", nullable=False)
        check_type(dtype.valueType, f"{where}.value", nullable=dtype.valueContainsNull)
    else:
        why = _why_refused(dtype, nullable)
        if why is not None:
            raise UnsupportedBySpark(
                f"{where}: tables cannot hold Spark's type {_named(dtype)}: {why}"
            )


def _why_refused(dtype: st.DataType, nullable: bool) -> str | None:
    """What to do instead of a type that a table would not return unchanged; None if it would."""
    for kind, instead in _REFUSED.items():
        if isinstance(dtype, kind):
            return instead
    if isinstance(dtype, st.StringType) and dtype.collation != BINARY_COLLATION:
        return f"a collation would be lost; cast it with COLLATE {BINARY_COLLATION}"
    if isinstance(dtype, st.DayTimeIntervalType) and dtype != st.DayTimeIntervalType():
        return "cast it to INTERVAL DAY TO SECOND"
    if isinstance(dtype, TimeType) and dtype.precision not in TIME_UNITS:
        return "cast it to TIME(0), TIME(3), TIME(6) or TIME(9)"
    if isinstance(dtype, st.NullType) and not nullable:
        return "nothing says what it holds; cast it, as in CAST(array() AS ARRAY<INT>)"
    return None


def _named(dtype: st.DataType) -> str:
    if isinstance(dtype, st.UserDefinedType):
        return f"{type(dtype).__name__} (user-defined)"
    return dtype.simpleString()


def _table_field(field: st.StructField, where: str) -> pa.Field:
    check_type(field.dataType, where, nullable=field.nullable)
    comment = field.metadata.get("comment")
    metadata = {"comment": comment} if comment else None
    dtype = _table_type(field.dataType, where)
    return pa.field(field.name, dtype, field.nullable, metadata=metadata)


def _table_type(dtype: st.DataType, where: str) -> pa.DataType:
    if isinstance(dtype, st.StructType):
        return pa.struct([_table_field(field, f"{where}.{field.name}") for field in dtype])
    if isinstance(dtype, st.ArrayType):
        element = _table_type(dtype.elementType, f"{where}.element")
        return pa.list_(pa.field("element", element, dtype.containsNull))
    if isinstance(dtype, st.MapType):
        key, value = dtype.keyType, dtype.valueType
        item = pa.field("value", _table_type(value, f"{where}.value"), dtype.valueContainsNull)
        return pa.map_(_table_type(key, f"{where}.key"), item)
    if isinstance(dtype, TimeType):
        return TIME_UNITS[dtype.precision]
    return arrow_type(dtype, where)


def _column(name: str) -> str:
    return f"column {name!r}"


def arriving_schema(schema: st.StructType, table: pa.Schema) -> pa.Schema:
    """The Arrow schema in which a data frame's rows reach a table's writer.

    A column of the Spark type that the table's column is read as gets the table's exact type (the
    inverse of `spark_schema`, also within structs, lists and maps). Any other column keeps Spark's
    own Arrow type; the table's writer then widens, adds or refuses it.

    schema: Of the data frame.
    table: Of the table.
    Raises UnsupportedBySpark: As `arrow_type`.
    """
    fields = []
    for column in schema:
        where = _column(column.name)
        check_type(column.dataType, where, nullable=column.nullable)
        arrives = pa.field(column.name, arrow_type(column.dataType, where), column.nullable)
        index = table.get_field_index(column.name)
        fields.append(arrives if index < 0 else _matched(arrives, table.field(index)))
    return pa.schema(fields)


def _matched(arrives: pa.Field, stored: pa.Field) -> pa.Field:
    dtype = _matched_type(arrives.type, stored.type)
    # Spark calls nearly every column nullable; the writer refuses nulls that the table forbids.
    return pa.field(arrives.name, dtype, stored.nullable)


def _matched_type(arrives: pa.DataType, stored: pa.DataType) -> pa.DataType:
    if is_variant(pa.field("", stored)):
        return stored if is_variant(pa.field("", arrives)) else arrives
    bare = strip_wrappers(stored)
    if pat.is_struct(arrives) and pat.is_struct(bare):
        return _matched_struct(arrives, stored, bare)
    if pat.is_map(arrives) and pat.is_map(bare):
        key = _matched(arrives.key_field, bare.key_field)
        item = _matched(arrives.item_field, bare.item_field)
        same = (key.type, item.type) == (bare.key_type, bare.item_type)
        return stored if same else pa.map_(key, item)
    if pat.is_list(arrives) and hasattr(bare, "value_field"):
        value = _matched(arrives.value_field, bare.value_field)
        return stored if value.type == bare.value_type else pa.list_(value)
    try:
        read_as = arrow_type(_spark_type(stored, True, ""), "")
    except UnsupportedBySpark:
        return arrives
    return stored if read_as == arrives else arrives


def _matched_struct(
    arrives: pa.StructType, stored: pa.DataType, bare: pa.StructType
) -> pa.DataType:
    children = []
    for child in arrives:
        index = bare.get_field_index(child.name)
        children.append(child if index < 0 else _matched(child, bare.field(index)))
    matched = pa.struct(children)
    return stored if matched == bare else matched


def _spark_type(dtype: pa.DataType, time_enabled: bool, where: str) -> st.DataType:
    if is_variant(pa.field("", dtype)):
        return st.VariantType()
    dtype = strip_wrappers(dtype)
    if dtype in _SAME:
        return _SAME[dtype]
    if pat.is_timestamp(dtype):
        return st.TimestampNTZType() if dtype.tz is None else st.TimestampType()
    if pat.is_duration(dtype):
        return st.DayTimeIntervalType()
    if pat.is_fixed_size_binary(dtype):
        return st.BinaryType()
    if pat.is_decimal(dtype):
        return _decimal(dtype, where)
    if pat.is_time(dtype):
        SPARK.require(TIME_TYPE, where)
        if time_enabled:
            return TimeType(TIME_DIGITS[dtype.unit])
        raise UnsupportedBySpark(
            f"{where}: Arrow type {dtype} is Spark's TIME, which is not enabled; "
            f"set {TIME_SETTING}=true or leave the column out with columns="
        )
    if pat.is_struct(dtype):
        return st.StructType(
            [_spark_field(child, time_enabled, f"{where}.{child.name}") for child in dtype]
        )
    if pat.is_map(dtype):
        return st.MapType(
            _spark_type(dtype.key_type, time_enabled, f"{where}.key"),
            _spark_type(dtype.item_type, time_enabled, f"{where}.value"),
            dtype.item_field.nullable,
        )
    if hasattr(dtype, "value_field"):
        element = _spark_type(dtype.value_type, time_enabled, f"{where}.element")
        return st.ArrayType(element, dtype.value_field.nullable)
    raise UnsupportedBySpark(
        f"{where}: Spark has no type for Arrow's {dtype}; leave the column out with columns="
    )


def _comment(field: pa.Field) -> dict[str, str] | None:
    """A field's comment, as Spark's metadata of a column."""
    text = (field.metadata or {}).get(b"comment")
    return None if text is None else {"comment": text.decode()}


def _decimal(dtype: pa.DataType, where: str) -> st.DecimalType:
    digits, scale = dtype.precision, dtype.scale
    if scale < 0:  # 12 * 10**2 needs two more digits when written without an exponent
        digits, scale = digits - scale, 0
    digits = max(digits, scale)
    if digits > DECIMAL_DIGITS_MAX:
        raise UnsupportedBySpark(
            f"{where}: Spark's decimals have at most {DECIMAL_DIGITS_MAX} digits, {dtype} needs "
            f"{digits}; leave the column out with columns="
        )
    return st.DecimalType(digits, scale)
