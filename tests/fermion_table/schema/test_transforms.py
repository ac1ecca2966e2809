"""Partition transforms: published hashes, Python's calendar, and filters that name no partition."""

from __future__ import annotations

import datetime
from decimal import Decimal

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.schema.transforms import (
    PartitionTransform,
    bucket,
    bucket_of,
    day,
    hash_integers,
    hour,
    identity,
    month,
    parse_transform,
    source_range,
    transformed,
    truncate,
    year,
)

EPOCH = datetime.datetime(1970, 1, 1)
MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))


def values_of(transform: PartitionTransform, values: list, dtype: pa.DataType) -> list:
    return transformed(transform.kind, transform.parameter, pa.array(values, dtype)).to_pylist()


def test_integers_hash_as_mmh3_does_and_as_iceberg_publishes():
    """34 and its hash are from the Iceberg specification, appendix B."""
    numbers = np.array([34, -1, 0, 2**63 - 1, -(2**63)], np.int64)
    expected = [mmh3.hash(int(n).to_bytes(8, "little", signed=True), signed=False) for n in numbers]
    assert hash_integers(numbers).tolist() == expected
    assert expected[0] == 2017239379


def test_buckets_of_texts_and_decimals_are_those_iceberg_publishes():
    """The hashes of "iceberg", of four bytes and of 14.20, from the same table."""
    assert values_of(bucket(2**31 - 1, "x"), ["iceberg", None], pa.string()) == [1210000089, None]
    raw = b"\x00\x01\x02\x03"
    expected = (-188683207 & 0x7FFFFFFF) % (2**31 - 1)
    assert values_of(bucket(2**31 - 1, "x"), [raw], pa.binary()) == [expected]
    found = values_of(bucket(2**31 - 1, "x"), [Decimal("14.20")], pa.decimal128(9, 2))
    assert found == [(-500754589 & 0x7FFFFFFF) % (2**31 - 1)]


@given(st.lists(st.one_of(st.none(), MOMENTS), max_size=8), st.sampled_from(["s", "ms", "us"]))
def test_times_are_counted_as_the_calendar_has_them(moments, unit):
    moments = [each and each.replace(microsecond=0) for each in moments]
    dtype = pa.timestamp(unit, "UTC" if unit == "ms" else None)
    expected = {
        year: lambda each: each.year - 1970,
        month: lambda each: (each.year - 1970) * 12 + each.month - 1,
        day: lambda each: (each - EPOCH).days,
        hour: lambda each: (each - EPOCH) // datetime.timedelta(hours=1),
    }
    for transform, count in expected.items():
        wanted = [None if each is None else count(each) for each in moments]
        assert values_of(transform("t"), moments, dtype) == wanted
        if transform is not hour:
            dates = [None if each is None else each.date() for each in moments]
            assert values_of(transform("t"), dates, pa.date32()) == wanted
            assert values_of(transform("t"), dates, pa.date64()) == wanted


@given(
    st.lists(st.one_of(st.none(), st.integers(-128, 127)), max_size=8),
    st.integers(1, 300),
    st.sampled_from([pa.int8(), pa.int64(), pa.decimal128(5, 1), pa.decimal32(5, 1)]),
)
def test_truncated_numbers_are_the_multiples_below(numbers, width, dtype):
    is_decimal = pa.types.is_decimal(dtype)
    values = [n if n is None or not is_decimal else Decimal(n) / 10 for n in numbers]
    found = values_of(truncate(width, "n"), values, dtype)
    raw = [v if v is None or not is_decimal else int(v * 10) for v in found]
    assert raw == [None if n is None else n // width * width for n in numbers]


def test_truncation_stops_at_the_least_integer():
    least = -(2**63)
    assert values_of(truncate(1000, "n"), [least, least + 7, least + 999], pa.int64()) == [
        least,
        least,
        least + 999 - (least + 999) % 1000,
    ]
    assert values_of(truncate(10, "n"), [2**64 - 1], pa.uint64()) == [2**64 - 6]


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.string_view()])
def test_truncated_strings_keep_whole_characters(dtype):
    values = ["Größe", "Gr", "", None, "日本語"]
    assert values_of(truncate(3, "s"), values, dtype) == ["Grö", "Gr", "", None, "日本語"]


def test_truncated_binary_keeps_bytes():
    assert values_of(truncate(2, "b"), [b"abc", b""], pa.binary()) == [b"ab", b""]
    assert values_of(truncate(2, "b"), [b"abc"], pa.binary(3)) == [b"ab"]


@pytest.mark.parametrize(
    ("text", "transform"),
    [
        ("city", identity("city")),
        ("day(ts)", day("ts")),
        ("Days( ts )", day("ts")),
        ("bucket(16, id)", bucket(16, "id")),
        ("bucket(id, 16)", bucket(16, "id")),
        ("truncate(4,name)", truncate(4, "name")),
        ("hour(a b)", hour("a b")),
    ],
)
def test_transforms_are_read_from_text(text, transform):
    assert parse_transform(text) == transform


@pytest.mark.parametrize(
    "text", ["bucket(id)", "bucket(0, id)", "week(ts)", "truncate(, x)", "bucket(99999999999, x)"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidArgumentError):
        parse_transform(text)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (pa.string(), "day(x)"),
        (pa.date32(), "hour(x)"),
        (pa.float64(), "bucket(4, x)"),
        (pa.float64(), "truncate(4, x)"),
        (pa.list_(pa.int8()), "bucket(4, x)"),
        (pa.time32("s"), "month(x)"),
    ],
)
def test_columns_that_a_transform_is_not_made_for_are_refused(table_path, dtype, text):
    with pytest.raises(InvalidArgumentError, match="partition_by"):
        Table.create(table_path, pa.schema([("x", dtype)]), partition_by=text)
    assert not Table.exists(table_path)


def test_the_schema_keeps_transforms_and_directories_say_them(table_path):
    schema = pa.schema([("ts", pa.timestamp("us")), ("id", pa.int32()), ("name", pa.string())])
    by = [
        "hour(ts)",
        "bucket(8, id)",
        truncate(2, "name"),
        PartitionTransform("ts", "year", 0, "y"),
    ]
    Table.create(table_path, schema, partition_by=by)
    table = Table.open(table_path)
    assert [(each.transform, each.parameter, each.name) for each in table.schema.partition_by] == [
        ("hour", 0, "ts_hour"),
        ("bucket", 8, "id_bucket_8"),
        ("truncate", 2, "name_truncate_2"),
        ("year", 0, "y"),
    ]
    moment = datetime.datetime(2024, 2, 29, 13, 59)
    table.append({"ts": [moment], "id": [34], "name": ["Ärger"]})
    (entry,) = table.scan().entries[0]
    number = 2017239379 % 8
    assert entry.path.startswith(
        f"data/ts_hour=2024-02-29-13/id_bucket_8={number}/name_truncate_2=%C3%84r/y=2024/"
    )
    assert entry.partition == ((moment - EPOCH) // datetime.timedelta(hours=1), number, "Är", 54)


def test_a_column_whose_name_looks_like_a_transform_is_taken_as_it_is(table_path):
    table = Table.create(table_path, pa.schema([("day(x)", pa.int8())]), partition_by="day(x)")
    assert table.schema.partition_by[0].transform == "identity"


@given(
    st.sampled_from(["identity", "year", "month", "day", "hour", "truncate"]),
    st.lists(MOMENTS, min_size=1, max_size=5),
    st.sampled_from(["s", "ms", "us"]),
    st.integers(1, 10**9),
)
def test_partition_values_bound_their_column(kind, moments, unit, width):
    dtype = pa.timestamp(unit)
    column = pa.array([each.replace(microsecond=0) for each in moments], dtype)
    if kind == "truncate":
        column, dtype = column.cast(pa.int64()), pa.int64()
    found = transformed(kind, width if kind == "truncate" else 0, column)
    if kind == "identity":
        found = found.cast(pa.int64())
    low, high = min(found.to_pylist()), max(found.to_pylist())
    first, last = source_range(kind, width, dtype, low, high)
    raws = column.cast(pa.int64()).to_pylist()
    assert first <= min(raws)
    assert max(raws) <= last


SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("v", pa.int32()),
    ]
)
SPECS = [
    ["day(ts)"],
    ["month(ts)", "bucket(4, id)"],
    ["bucket(3, name)", "truncate(2, name)"],
    ["truncate(10, id)"],
    ["truncate(100, price)", "bucket(2, price)"],
    ["v", "year(ts)", "hour(ts)"],
]
FILTERS = [
    "ts >= '2023-12-31 12:00:00' AND ts < '2024-01-02'",
    "ts = '2024-01-01 00:00:00'",
    "id = 17 OR id IN (3, 40)",
    "id IN (5) AND v > 0",
    "NOT (id = 17)",
    "name = 'abc' OR name >= 'c'",
    "name IN ('abd', 'zzz')",
    "price = 1.05",
    "price BETWEEN 0.99 AND 2.5",
    "ts IS NULL",
    "id IS NOT NULL AND name IS NULL",
    "v = 2 AND ts > '2024-01-01'",
]


def made_up_rows(seed: int, count: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def some(values: list) -> list:
        return [
            None if rng.integers(9) == 0 else values[rng.integers(len(values))]
            for _ in range(count)
        ]

    hours = [datetime.datetime(2023, 12, 31) + datetime.timedelta(hours=int(h)) for h in range(60)]
    return pa.table(
        {
            "ts": some(hours),
            "id": some(list(range(50))),
            "name": some(["abc", "abd", "ab", "b", "", "ça", "zz"]),
            "price": some([Decimal(n) / 100 for n in range(-200, 300, 7)]),
            "v": some([0, 1, 2]),
        },
        schema=SCHEMA,
    )


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.sampled_from(SPECS))
def test_hidden_partitions_prune_and_change_no_answer(tmp_path_factory, seed, spec):
    """Against the same rows in a table without partitions."""
    rows = made_up_rows(seed, 50)
    path = tmp_path_factory.mktemp("transforms")
    plain = Table.create(path / "plain", SCHEMA, durability="fast")
    table = Table.create(path / "table", SCHEMA, partition_by=spec, durability="fast")
    plain.append(rows)
    table.append(rows)
    order = [(name, "ascending") for name in SCHEMA.names]
    for text in FILTERS:
        expected = plain.scan(filter=text).to_arrow().sort_by(order)
        assert table.scan(filter=text).to_arrow().sort_by(order).equals(expected), text


def test_buckets_rule_out_what_bounds_cannot(table_path):
    table = Table.create(table_path, pa.schema([("id", pa.int64())]), partition_by="bucket(8, id)")
    table.append({"id": range(1000)})
    assert table.snapshot.totals.files == 8
    for text, numbers in {
        "id = 500": [500],
        "id IN (500, 501)": [500, 501],
        "id = 500 OR id = 501": [500, 501],
    }.items():
        scan = table.scan(filter=text)
        buckets = {bucket_of(number, pa.int64(), 8) for number in numbers}
        assert {split.partition[0] for split in scan.plan().splits} == buckets
        assert sorted(scan.to_arrow().column("id").to_pylist()) == numbers
    assert "partitioned by id_bucket_8" in table.scan(filter="id = 500").explain()


def test_days_rule_out_whole_manifests(table_path):
    schema = pa.schema([("ts", pa.timestamp("s")), ("v", pa.int64())])
    table = Table.create(table_path, schema, partition_by="day(ts)", durability="fast")
    for number in range(98):
        moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=number)
        table.append({"ts": [moment], "v": [number]})
    manifests = len(table.snapshot.manifests)
    assert manifests > 1
    scan = table.scan(filter="ts >= '2024-01-02 00:00:00' AND ts < '2024-01-03 00:00:00'")
    assert scan.to_arrow().column("v").to_pylist() == [1]
    assert scan.plan().steps[0].after == 1
    assert f"manifests: 1 of {manifests} manifests" in scan.explain()


def test_a_partitioned_column_widens_without_moving_rows(table_path):
    table = Table.create(table_path, pa.schema([("id", pa.int8())]), partition_by=["bucket(4, id)"])
    table.append({"id": [-1, 1, None]})
    table.alter_column("id", type=pa.int64())
    table.append({"id": [-1, 2**40]})
    scan = table.scan(filter="id = -1")
    assert scan.to_arrow().column("id").to_pylist() == [-1, -1]
    assert len({split.partition for split in scan.plan().splits}) == 1
