"""Filters that select whole partitions, by every transform: exact, and never too many."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion import col
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.commit.replacement import TableDefinition
from fermion_table.planning.filters import selected, table_filter
from fermion_table.planning.partition_pruning import partitions_replaced
from fermion_table.schema import value_codec
from fermion_table.schema.transforms import parse_transform

ZONED = pa.timestamp("ms", "Europe/Oslo")


def times(dtype: pa.DataType, *texts: str) -> list[Any]:
    zone = UTC if getattr(dtype, "tz", None) else None
    found = [datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]
    return [each.date() for each in found] if pa.types.is_date(dtype) else found


# transform, type, values of four partitions beside null, where the second begins and the fourth
CASES: list[tuple[str, pa.DataType, list[Any], Any, Any]] = []
for kind, values in {
    "year": ["1969-12-31", "1970-01-01", "2023-12-31 23:59:59", "2024-01-01"],
    "month": ["1969-12-31", "1970-01-01", "2024-01-31 23:59:59", "2024-02-01"],
    "day": ["1969-12-31 23:59:59", "1970-01-01", "2024-02-29", "2024-03-01"],
    "hour": ["1969-12-31 23:59:59", "1970-01-01", "2024-02-29 12:59", "2024-02-29 13:00"],
}.items():
    for dtype in (pa.date32(), pa.timestamp("s"), pa.timestamp("ns"), ZONED):
        if kind != "hour" or not pa.types.is_date(dtype):
            found = times(dtype, *values)
            CASES.append((f"{kind}(at)", dtype, found, found[1], found[3]))
CASES += [
    ("truncate(10, at)", pa.int32(), [-1, 0, 9, 25, 30], 0, 30),
    ("truncate(10, at)", pa.int64(), [-(2**63), -5, 25, 2**63 - 1], -10, 2**63 - 8),
    ("truncate(10, at)", pa.uint64(), [0, 15, 25, 2**64 - 1], 10, 2**64 - 6),
    ("at", pa.int64(), [0, 1, 2, 3], 1, 3),
    ("at", pa.string(), ["a", "b", "c", "d"], "b", "d"),
]


def replaced(transform: str, dtype: pa.DataType, values: list[Any], expression: Any) -> Any:
    """Return the values whose partitions a filter replaces; None: it selects no whole ones."""
    arrow = pa.schema([("at", dtype), ("v", pa.int64())])
    schema = TableDefinition(schema=arrow, partition_by=[transform]).first_schema()
    found = parse_transform(transform).values(pa.array(values, dtype))
    partitions = [(value_codec.encode_value(each),) for each in found]
    chosen = table_filter(expression, schema, where="test")
    assert chosen is not None
    gone = partitions_replaced(partitions, schema, chosen)
    return (
        None if gone is None else [v for v, p in zip(values, partitions, strict=True) if p in gone]
    )


@pytest.mark.parametrize(("transform", "dtype", "values", "second", "last"), CASES, ids=str)
def test_a_filter_from_the_begin_of_partitions_to_the_end_replaces_them(
    transform, dtype, values, second, last
):
    every = [None, *values]

    def found(expression: Any) -> Any:
        return replaced(transform, dtype, every, expression)

    at, inside = col("at"), [value for value in values if second <= value < last]
    assert inside
    assert found((at >= second) & (at < last)) == inside
    assert found(at >= last) == [value for value in values if value >= last]
    assert found(at < second) == [value for value in values if value < second]
    assert found((at < second) | (at >= last)) == [v for v in values if not second <= v < last]
    assert found(~(at >= second)) == [value for value in values if value < second]
    assert found(at.is_null()) == [None]
    assert found(at.is_valid()) == values
    assert found(at.is_null() | (at >= last)) == [None, *(v for v in values if v >= last)]
    assert found((at >= second) & (col("v") > 0)) is None
    assert found(col("v") > 0) is None


@pytest.mark.parametrize("kind", ["year", "month", "day", "hour"])
def test_a_filter_that_cuts_a_partition_replaces_none(kind):
    """One tick of the column's unit beside its begin."""
    dtype, tick = pa.timestamp("us"), timedelta(microseconds=1)
    begin = datetime(2024, 1, 1)
    values = [begin - tick, begin]
    assert replaced(f"{kind}(at)", dtype, values, col("at") >= begin) == [begin]
    assert replaced(f"{kind}(at)", dtype, values, col("at") > begin - tick) == [begin]
    for cut in (begin + tick, begin - tick):
        assert replaced(f"{kind}(at)", dtype, values, col("at") >= cut) is None
        assert replaced(f"{kind}(at)", dtype, values, col("at") < cut) is None
    assert replaced(f"{kind}(at)", dtype, values, col("at") == begin) is None


def test_other_zones_and_hidden_orders_are_cut_where_they_are():
    """A month of Oslo is none of UTC; a hash says nothing about an order."""
    oslo = datetime.fromisoformat("2024-02-01T00:00:00+01:00")
    assert replaced("month(at)", ZONED, [oslo], col("at") >= oslo) is None
    utc = datetime(2024, 2, 1, tzinfo=UTC)
    assert replaced("month(at)", ZONED, [oslo, utc], col("at") >= utc) == [utc]
    assert replaced("bucket(4, at)", pa.int64(), [1, 2, None], col("at") == 1) is None
    assert replaced("bucket(4, at)", pa.int64(), [1, None], col("at").is_null()) == [None]
    digits = pa.decimal128(9, 2)
    assert replaced("truncate(100, at)", digits, [Decimal("1.50")], col("at") > 1.2) is None
    assert replaced("truncate(1, at)", pa.string(), ["ab", "b"], col("at") >= "ab") is None


NUMBERS = st.integers(-400, 400)
FILTERS = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), NUMBERS),
        st.just(("null", 0)),
    ),
    lambda each: st.tuples(st.sampled_from(["and", "or", "not"]), each, each),
    max_leaves=4,
)


def expression(drawn: Any, literal: Any) -> Any:
    at = col("at")
    match drawn:
        case ("null", _):
            return at.is_null()
        case ("not", one, _):
            return ~expression(one, literal)
        case ("and" | "or" as word, one, other):
            both = expression(one, literal), expression(other, literal)
            return both[0] & both[1] if word == "and" else both[0] | both[1]
        case (sign, number):
            value = literal(number)
            signs = {"<": at < value, "<=": at <= value, ">": at > value, ">=": at >= value}
            return (signs | {"=": at == value, "!=": at != value})[sign]
    raise AssertionError(drawn)


@given(FILTERS, st.sampled_from(["year(at)", "month(at)", "day(at)", "truncate(7, at)"]))
def test_a_filter_selects_all_rows_of_what_it_replaces_and_none_of_others(drawn, transform):
    """Of all days, or numbers, around 1970."""
    is_number = transform.startswith("truncate")
    dtype = pa.int32() if is_number else pa.date32()

    def literal(number: int) -> Any:
        return number if is_number else date(1970, 1, 1) + timedelta(number)

    values = [None, *map(literal, range(-450, 450))]
    chosen = expression(drawn, literal)
    gone = replaced(transform, dtype, values, chosen)
    if gone is not None:
        schema = TableDefinition(schema=pa.schema([("at", dtype)])).first_schema()
        asked = table_filter(chosen, schema, where="test")
        batch = pa.record_batch({"at": pa.array(values, dtype)})
        mask = selected(asked.expression, batch).tolist()
        assert gone == [value for value, is_in in zip(values, mask, strict=True) if is_in]


@pytest.mark.parametrize(
    "properties", [{"merge_engine": "first_row"}, {"sequence.field": "v"}, {}], ids=str
)
def test_partitions_of_months_are_overwritten_by_a_filter_on_the_column(properties, table_path):
    """Also where rows can't be deleted; their partitions then have the new number of buckets."""
    arrow = pa.schema([("at", pa.timestamp("us")), ("id", pa.int64()), ("v", pa.int64())])
    table = Table.create(
        table_path,
        arrow,
        primary_key=["at", "id"],
        partition_by=["month(at)"],
        properties={"bucket": "1", **properties},
        durability="fast",
    )
    days = [datetime(2024, month, day) for month in (1, 2, 3) for day in (1, 15)]
    table.upsert({"at": days, "id": range(6), "v": [9] * 6})
    table.set_properties({"bucket": "2"})
    new = {"at": [datetime(2024, 2, 15)], "id": [3], "v": [1]}
    if properties:
        with pytest.raises(InvalidArgumentError, match=r"overwrite|delete"):
            table.overwrite(new, filter="at >= '2024-02-02' AND at < '2024-03-01'")
    table.overwrite(new, filter="at >= '2024-02-01' AND at < '2024-03-01'")
    found = table.scan().to_arrow().sort_by("at").to_pylist()
    assert [(row["id"], row["v"]) for row in found] == [(0, 9), (1, 9), (3, 1), (4, 9), (5, 9)]
    assert sorted(table.inspect.files()["total_buckets"].to_pylist()) == [1, 1, 2]
