"""What the command line prints of sizes, counts and values."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fermion import variant
from fermion.cli.console import counted, size_text
from fermion.reading.value_text import json_value, value_text


def test_sizes_and_counts_read_well():
    assert [size_text(size) for size in (0, 1, 1023, 1024, 1_048_530, 2**20, 3 * 2**40)] == [
        "0 bytes",
        "1 byte",
        "1,023 bytes",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 MiB",
        "3.0 TiB",
    ]
    assert [counted(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


VALUES = [
    (pa.scalar(None, pa.int8()), None, "null"),
    (pa.scalar(True), True, "true"),
    (pa.scalar(2**64 - 1, pa.uint64()), 2**64 - 1, str(2**64 - 1)),
    (pa.scalar(float("nan")), "nan", "nan"),
    (pa.scalar(float("-inf"), pa.float32()), "-inf", "-inf"),
    (pa.scalar(np.float16(1.5), pa.float16()), 1.5, "1.5"),
    (pa.scalar(Decimal("1.50")), "1.50", "1.50"),
    (pa.scalar(b"\x00\xff"), "00ff", "00ff"),
    (pa.scalar(b"ab", pa.binary(2)), "6162", "6162"),
    (pa.scalar("text", pa.string_view()), "text", "text"),
    (pa.scalar(1, pa.timestamp("ns")), *["1970-01-01 00:00:00.000000001"] * 2),
    (pa.scalar(0, pa.timestamp("s", "UTC")), *["1970-01-01 00:00:00Z"] * 2),
    (pa.scalar(0, pa.date32()), *["1970-01-01"] * 2),
    (pa.scalar(1, pa.time64("ns")), *["00:00:00.000000001"] * 2),
    (pa.scalar(5, pa.duration("ms")), *["5 ms"] * 2),
    (pa.scalar(pa.MonthDayNano([1, 2, 3])), *["1 months 2 days 3 ns"] * 2),
    (pa.array(["a"]).dictionary_encode()[0], "a", "a"),
    (pa.RunEndEncodedArray.from_arrays([2], [7])[1], 7, "7"),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))[0], [["k", 1]], "[[k, 1]]"),
    (pa.array([[1, None]], pa.list_view(pa.int8()))[0], [1, None], "[1, null]"),
    (pa.array([b"0" * 16], pa.uuid())[0], *["30" * 16] * 2),
    (pa.scalar(2**62, pa.timestamp("s")), *[None] * 2),
]


@pytest.mark.parametrize(
    ("scalar", "as_json", "text"), VALUES, ids=[str(v[0].type) for v in VALUES]
)
def test_values_of_every_type_can_be_printed(scalar, as_json, text):
    """Those that Arrow itself cannot write out come as numbers with their type."""
    if text is None and scalar.is_valid:
        assert str(2**62) in json_value(scalar)
        return
    assert json_value(scalar) == as_json
    assert value_text(scalar) == text


def test_text_that_is_no_utf8_can_be_printed():
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"a\xff"]).buffers())
    assert json_value(broken[0]) == "a\\xff"


def test_variants_are_printed_as_json():
    """Within structs, too. Bytes that are no Variant stay bytes."""
    text = '{"a":0.1,"b":[true,null,"x"],"c":123456789012345678901.5}'
    event = variant.from_json([text, "null"])
    value = {"a": 0.1, "b": [True, None, "x"], "c": "123456789012345678901.5"}
    assert json_value(event[0]) == value
    assert json_value(event[1]) is None
    assert value_text(event[0]) == "{a: 0.1, b: [true, null, x], c: 123456789012345678901.5}"
    rows = pa.StructArray.from_arrays([event], fields=[pa.field("e", event.type)])
    assert json_value(rows[0]) == {"e": value}
    storage = pa.array([{"metadata": b"\x11", "value": b"\xff"}], event.type.storage_type)
    broken = pa.ExtensionArray.from_storage(event.type, storage)
    assert json_value(broken[0]) == {"metadata": "11", "value": "ff"}
