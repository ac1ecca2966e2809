"""Every Arrow type has a type of Flink, and what Flink says of it is read back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fermion.columns.exchange import convert
from flink_ext.errors import UnsupportedByFlink
from flink_ext.types import arrow_field, flink_type
from tests.kit.arrow_samples import CASES

IDS = [str(dtype)[:60] for dtype, _ in CASES]


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=IDS)
def test_values_of_every_type_travel_to_flink_and_back(dtype: pa.DataType, values: list[Any]):
    """As the type in which they travel, which Flink's own type leads to."""
    array = pa.array(values, dtype)
    travelling = arrow_field("c", flink_type(dtype, "c")).type
    there = convert(array, travelling)
    there.validate(full=True)
    assert there.type == travelling
    assert convert(there, dtype).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=IDS)
def test_a_table_made_of_flinks_type_shows_it_again(dtype: pa.DataType, values: list[Any]):
    shown = flink_type(dtype, "c")
    assert flink_type(arrow_field("c", shown).type, "c") == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT", pa.field("c", pa.int32())),
        ("INT NOT NULL", pa.field("c", pa.int32(), False)),
        ("int null", pa.field("c", pa.int32())),
        ("DOUBLE PRECISION", pa.field("c", pa.float64())),
        ("VARCHAR(2147483647)", pa.field("c", pa.string())),
        ("VARBINARY(2147483647)", pa.field("c", pa.binary())),
        ("BINARY(16)", pa.field("c", pa.binary(16))),
        ("DECIMAL(38, 18)", pa.field("c", pa.decimal128(38, 18))),
        ("DECIMAL(5)", pa.field("c", pa.decimal128(5, 0))),
        ("DECIMAL", pa.field("c", pa.decimal128(10, 0))),
        ("TIMESTAMP", pa.field("c", pa.timestamp("us"))),
        ("TIMESTAMP(0) WITHOUT TIME ZONE", pa.field("c", pa.timestamp("s"))),
        ("TIMESTAMP(1)", pa.field("c", pa.timestamp("ms"))),
        ("TIMESTAMP(9)", pa.field("c", pa.timestamp("ns"))),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.field("c", pa.timestamp("ms", "UTC"))),
        ("TIMESTAMP_LTZ(6) NOT NULL", pa.field("c", pa.timestamp("us", "UTC"), False)),
        ("TIME", pa.field("c", pa.time32("s"))),
        ("TIME(3) WITHOUT TIME ZONE", pa.field("c", pa.time32("ms"))),
        ("INTERVAL DAY(2) TO SECOND(6)", pa.field("c", pa.duration("ms"))),
        ("INTERVAL SECOND(3)", pa.field("c", pa.duration("ms"))),
        (
            "MAP<STRING, INT>",
            pa.field("c", pa.map_(pa.string(), pa.field("value", pa.int32()))),
        ),
        (
            "ARRAY<BIGINT NOT NULL>",
            pa.field("c", pa.list_(pa.field("element", pa.int64(), False))),
        ),
        (
            "ROW<`a b` INT 'it''s, a <description>', `x``y` ROW<z BOOLEAN> NOT NULL>",
            pa.field(
                "c",
                pa.struct(
                    [
                        pa.field("a b", pa.int32()),
                        pa.field("x`y", pa.struct([pa.field("z", pa.bool_())]), False),
                    ]
                ),
            ),
        ),
        ("ROW(a INT, b STRING)", pa.field("c", pa.struct({"a": pa.int32(), "b": pa.string()}))),
    ],
)
def test_types_as_flink_writes_them_are_read(text, expected):
    assert arrow_field("c", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CHAR(3)", "column 'c': type CHAR(3): tables keep no length of texts; use STRING"),
        ("VARCHAR(20)", "use STRING"),
        ("VARBINARY(20)", "use BYTES"),
        ("TIME(6)", "use TIME(3)"),
        ("TIMESTAMP(6) WITH TIME ZONE", "use TIMESTAMP_LTZ"),
        ("INTERVAL YEAR(4) TO MONTH", "use INT"),
        ("MULTISET<INT>", "tables have no MULTISET"),
        ("RAW('x', 'y')", "tables have no RAW"),
        ("ROW<a ARRAY<MAP<INT, CHAR(1)>>>", "column 'c'.a.element.value: "),
        ("", "tables have no such type"),
        ("ARRAY<INT", "expected >, found its end"),
        ("ARRAY INT", "expected <, found INT"),
        ("INT INT", "expected its end, found INT"),
        ("DECIMAL(x)", "expected a number, found 'x'"),
        ("DECIMAL(1, 2, 3)", "expected ), found ,"),
        ("INT; DROP", "expected a type of Flink at character 3"),
        ("ROW<`a INT>", "expected a type of Flink at character 4"),
    ],
)
def test_other_types_are_refused_by_column(text, expected):
    with pytest.raises(UnsupportedByFlink) as refused:
        arrow_field("c", text)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    "dtype", [pa.month_day_nano_interval(), pa.decimal256(39, 0), pa.decimal128(38, -1)]
)
def test_what_flink_has_no_type_for_is_refused_by_column(dtype):
    with pytest.raises(UnsupportedByFlink, match=r"column 'c'\.element: Flink has no type"):
        flink_type(pa.list_(dtype), "column 'c'")
