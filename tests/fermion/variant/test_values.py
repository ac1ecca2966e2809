"""Variant values: from JSON and to it, parts of them, and bytes that are none."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
import pickle
import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import variant
from fermion.columns.variants import STORAGE
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.variant import VariantType, values
from fermion_table import Table
from tests.kit.variant_model import decoded, metadata_size

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["x" * 63, "y" * 64, "é" * 40, '\0\x1f"\\/\u2028😀'])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def array_of(*pairs: tuple[bytes, bytes] | None) -> pa.Array:
    """Values of metadata and value bytes."""
    storage = VariantType().storage_type
    rows = [each and dict(zip(("metadata", "value"), each, strict=True)) for each in pairs]
    return pa.ExtensionArray.from_storage(VariantType(), pa.array(rows, storage))


def plain(array: pa.Array) -> list[Any]:
    """The values by the model."""
    return [
        None if each is None else (decoded(each["metadata"], each["value"]),)
        for each in array.storage.to_pylist()
    ]


def same(found: Any, expected: Any) -> bool:
    """Whether numbers, too, are the same; integers of JSON beyond 64 bits are decimals."""
    if isinstance(expected, dict):
        return list(found) == sorted(expected, key=str.encode) and all(
            same(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return float(found) == expected and math.copysign(1, found) == math.copysign(1, expected)
    if isinstance(expected, int) and not isinstance(expected, bool):
        small = -(2**63) <= expected < 2**63
        return found == expected and isinstance(found, int if small else decimal.Decimal)
    return type(found) is type(expected) and found == expected


@given(st.lists(st.none() | st.tuples(VALUES), max_size=5), st.booleans())
def test_json_becomes_what_the_specification_says_and_json_again(values, spaced):
    space = {"indent": 1} if spaced else {"separators": (",", ":")}
    texts = [each and json.dumps(each[0], ensure_ascii=spaced, **space) for each in values]
    made = variant.from_json(pa.array(texts, pa.string()))
    for found, expected in zip(plain(made), values, strict=True):
        assert (found is None) == (expected is None)
        assert found is None or same(found[0], expected[0])
    again = variant.to_json(made).to_pylist()
    for found, expected in zip(again, values, strict=True):
        assert (found is None) == (expected is None)
        if found is not None and "NaN" not in found:
            assert same(json.loads(found), json.loads(json.dumps(expected[0]))) or same_numbers(
                json.loads(found), expected[0]
            )


def same_numbers(found: Any, expected: Any) -> bool:
    """Whether JSON of Python gives equal values, whatever the type of a number is."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", -0.0),
        ("127", 127),
        ("-32769", -32769),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", decimal.Decimal(2**63)),
        ("0.1", 0.1),
        ("123456789012.345", 123456789012.345),
        ("1234567890123456.5", decimal.Decimal("1234567890123456.5")),
        ("-1e3", -1000.0),
        ("1" * 39, float("1" * 39)),
        ("0." + "0" * 30 + "1", 1e-31),
        ("1" + "0" * 37, decimal.Decimal(10**37)),
    ],
)
def test_numbers_have_the_types_that_keep_them(text, value):
    ((found,),) = plain(variant.from_json([text]))
    assert type(found) is type(value)
    assert str(found) == str(value)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a":1,"a":2}', 13, "a name twice"),
        ("[1,", 3, "ends early"),
        ('{"a" 1}', 6, "does not belong"),
        ("01", 2, "a number that is none"),
        ("-", 1, "a number that is none"),
        ("1.", 2, "a number that is none"),
        ("1e", 2, "a number that is none"),
        ("1e999", 5, "a number beyond those of 64-bit floats"),
        (r'"\x"', 3, "an escape"),
        (r'"\u12"', 3, "an escape"),
        (r'"\ud800"', 7, "an escape"),
        (r'"\udc00"', 7, "an escape"),
        ("nul", 0, "does not belong"),
        ("NaN", 0, "does not belong"),
        ("1 2", 2, "after the value"),
        ("[" * 65 + "]" * 65, 64, "nested too deep"),
        ('"\x01"', 2, "control character"),
        ('{"a":1,}', 8, "does not belong"),
        ("", 0, "ends early"),
        ("[1 2]", 4, "does not belong"),
    ],
)
def test_text_that_is_no_json_is_refused_by_row_and_byte(text, place, words):
    with pytest.raises(InvalidArgumentError, match=f"row 1, byte {place}: .*{words}"):
        variant.from_json(["1", text])


def test_texts_come_in_many_forms():
    texts = ['{"a":[1,2]}', None, '"é"', "null"]
    expected = ['{"a":[1,2]}', None, '"é"', "null"]
    for dtype in (pa.string(), pa.large_string(), pa.string_view()):
        array = pa.array(["x", *texts], dtype)[1:]
        made = variant.from_json(array)
        assert variant.to_json(made).to_pylist() == expected
        assert variant.to_json(made[2:]).to_pylist() == expected[2:]
        chunked = variant.from_json(pa.chunked_array([array[:1], array[1:]]))
        assert variant.to_json(chunked).to_pylist() == expected
    assert len(variant.from_json([])) == len(variant.from_json(pa.nulls(0))) == 0
    assert variant.to_json(variant.from_json(pa.nulls(2))).to_pylist() == [None, None]
    assert made.type == pickle.loads(pickle.dumps(made.type)) == VariantType()
    with pytest.raises(TypeError, match="expected strings, found int64"):
        variant.from_json(pa.array([1]))
    with pytest.raises(TypeError, match="expected an array of VariantType, found string"):
        variant.to_json(pa.array(["1"]))
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 3)), pa.py_buffer(b'"\xff"')]
    )
    with pytest.raises(InvalidArgumentError, match="UTF8"):
        variant.from_json(damaged)


def test_values_of_equal_names_have_equal_metadata():
    made = variant.from_json(['{"b":1,"a":{"c":2}}', '{"a":{"c":"x"},"b":null}'])
    first, second = made.storage.field("metadata").to_pylist()
    assert first == second


NAMELESS = b"\x11\0\0"
CENTS, TENTH = decimal.Decimal("-12.34"), decimal.Decimal("0.1")
MOMENT = struct.pack("<q", 1_500_000)
UTC = datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, datetime.UTC)
NAIVE = UTC.replace(tzinfo=None)
NUMBER = uuid.UUID(bytes=bytes(range(16)))
PRIMITIVES: list[tuple[bytes, str, pa.DataType, Any]] = [
    (b"\x00", "null", pa.int64(), None),
    (b"\x04", "true", pa.bool_(), True),
    (b"\x08", "false", pa.bool_(), False),
    (b"\x0c\xff", "-1", pa.int64(), -1),
    (b"\x10" + struct.pack("<h", -300), "-300", pa.int16(), -300),
    (b"\x14" + struct.pack("<i", 70000), "70000", pa.float64(), 70000.0),
    (b"\x18" + struct.pack("<q", -(2**63)), str(-(2**63)), pa.int64(), -(2**63)),
    (b"\x1c" + struct.pack("<d", 2.5), "2.5", pa.float32(), 2.5),
    (b"\x1c" + struct.pack("<d", math.nan), '"NaN"', pa.string(), '"NaN"'),
    (b"\x1c" + struct.pack("<d", -math.inf), '"-Infinity"', pa.float64(), -math.inf),
    (b"\x20\x02" + struct.pack("<i", -1234), "-12.34", pa.decimal128(5, 2), CENTS),
    (b"\x24\x00" + struct.pack("<q", 10**17), str(10**17), pa.int64(), 10**17),
    (b"\x28\x26" + (10**37).to_bytes(16, "little"), "0.1" + "0" * 37, pa.decimal128(38, 1), TENTH),
    (b"\x2c" + struct.pack("<i", 1), '"1970-01-02"', pa.date32(), datetime.date(1970, 1, 2)),
    (b"\x30" + MOMENT, '"1970-01-01 00:00:01.500000+00:00"', pa.timestamp("ms", "UTC"), UTC),
    (b"\x34" + MOMENT, '"1970-01-01 00:00:01.500000"', pa.timestamp("us"), NAIVE),
    (b"\x38" + struct.pack("<f", 0.5), "0.5", pa.float32(), 0.5),
    (b"\x38" + struct.pack("<f", 0.1), "0.1", pa.string(), "0.1"),
    (b"\x3c\x02\0\0\0ab", '"YWI="', pa.binary(), b"ab"),
    (b"\x40\x02\0\0\0ab", '"ab"', pa.string(), "ab"),
    (b"\x44" + MOMENT, '"00:00:01.500000"', pa.time64("us"), UTC.time()),
    (b"\x48" + struct.pack("<q", 1), '"1970-01-01 00:00:00.000000001+00:00"', pa.int64(), 1),
    (b"\x4c" + struct.pack("<q", 1), '"1970-01-01 00:00:00.000000001"', pa.int64(), 1),
    (b"\x50" + NUMBER.bytes, f'"{NUMBER}"', pa.string(), str(NUMBER)),
    (b"\x09ab", '"ab"', pa.large_string(), "ab"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text", "dtype", "expected"), PRIMITIVES)
def test_primitive_values_of_every_type(value, text, dtype, expected):
    made = array_of((NAMELESS, value), None, (NAMELESS, value))
    assert variant.to_json(made).to_pylist() == [text, None, text]
    found = variant.get(made, "$", dtype)
    assert found.type == dtype
    found = found.to_pylist()
    if text != '"NaN"':
        assert found == [expected, None, expected]
    assert variant.to_json(variant.get(made, [])).to_pylist() == [text, None, text]


EVENTS = variant.from_json(
    [
        '{"user":{"id":7,"tags":["x",{"y":1.5}]},"a.b":"12"}',
        None,
        '{"user":null}',
        '{"user":{"id":"8"}}',
        "[[1,2],3]",
    ]
)


@pytest.mark.parametrize(
    ("path", "dtype", "expected"),
    [
        ("$.user.id", pa.int64(), [7, None, None, 8, None]),
        ("$.user.id", pa.string(), ["7", None, None, "8", None]),
        ("$.user.tags[0]", pa.string(), ["x", None, None, None, None]),
        ("$.user.tags[1].y", pa.float64(), [1.5, None, None, None, None]),
        ("$['a.b']", pa.int32(), [12, None, None, None, None]),
        ('$["a.b"]', pa.float32(), [12.0, None, None, None, None]),
        ("$[0][1]", pa.int8(), [None, None, None, None, 2]),
        (["user", "tags", 1], pa.large_string(), ['{"y":1.5}', None, None, None, None]),
        ("$.user.tags[2]", pa.int64(), [None] * 5),
        ("$.none.none", pa.int64(), [None] * 5),
    ],
)
def test_a_path_gives_a_column(path, dtype, expected):
    found = variant.get(EVENTS, path, dtype)
    assert found.type == dtype
    assert found.to_pylist() == expected
    assert variant.get(EVENTS[1:], path, dtype).to_pylist() == expected[1:]
    chunked = variant.get(pa.chunked_array([EVENTS[:2], EVENTS[2:]]), path, dtype)
    assert chunked.to_pylist() == expected


def test_a_value_of_another_type_is_an_error_or_null():
    with pytest.raises(InvalidArgumentError, match=r"row 0: \$.user: expected .* int64, found \{"):
        variant.get(EVENTS, "$.user", pa.int64())
    mixed = variant.from_json(["1", '"2"', '"x"', "1.5", "300", "null", "{}"])
    with pytest.raises(InvalidArgumentError, match=r"row 1: \$: expected .* int8, found x"):
        variant.get(mixed[1:3], "$", pa.int8())
    found = variant.get(mixed, "$", pa.int8(), strict=False)
    assert found.to_pylist() == [1, 2, None, None, None, None, None]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("user", InvalidArgumentError),
        ("$.", InvalidArgumentError),
        ("$.a[", InvalidArgumentError),
        ("$[-1]", InvalidArgumentError),
        ("", InvalidArgumentError),
        (["a", -1], InvalidArgumentError),
        (["a", 1.5], TypeError),
        (["a", None], TypeError),
    ],
)
def test_paths_that_are_none_are_refused(path, error):
    with pytest.raises(error):
        variant.get(EVENTS, path, pa.int64())


def test_damaged_bytes_are_refused_or_give_other_values():
    """Every byte of a value and its metadata, changed and cut off."""
    made = variant.from_json(
        ['{"a":{"b":[1,2.5,"text",null]},"c":"' + "x" * 70 + '","d":12345678901234567.5}']
    )
    (row,) = made.storage.to_pylist()
    refused = 0
    for name, data in row.items():
        changed = [data[:at] for at in range(len(data))]
        changed += [
            data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            for at in range(len(data))
            for mask in (1, 2, 4, 0x10, 0x40, 0xFF)
        ]
        for each in changed:
            pair = {**row, name: each}
            array = array_of((pair["metadata"], pair["value"]))
            for call in (
                lambda array=array: variant.to_json(array).validate(full=True),
                lambda array=array: variant.get(array, "$.a.b[2]", pa.string(), strict=False),
            ):
                try:
                    call()
                except (InvalidArgumentError, pa.ArrowInvalid):
                    refused += 1
    assert refused > 200


def test_small_bytes_that_stand_for_much_are_refused():
    deep = b"\x03\x01\x00\x01" * 200 + b"\x00"
    shared = b"\x00"
    for _ in range(30):  # an array of the same item twice, thirty levels deep
        shared = (
            b"\x03\x02\x00\x00" + bytes([len(shared)]) + shared if len(shared) < 256 else shared
        )
    for value in (
        b"\x13\xff\xff\xff\x7f\x00\x00\x00\x00",
        b"\x42\xff\xff\xff\x7f\x00\x00\x00\x00",
        b"\x40\xff\xff\xff\x7fab",
        deep,
        shared,
        b"\x54",
        b"\xff",
    ):
        with pytest.raises(InvalidArgumentError, match="row 0"):
            variant.to_json(array_of((NAMELESS, value)))


def test_values_that_others_wrote(shared_data):
    folder = shared_data / "parquet-testing" / "shredded_variant"
    files = sorted(folder.glob("*.variant.bin"))
    pairs = []
    for file in files:
        data = file.read_bytes()
        size = metadata_size(data)
        pairs.append((data[:size], data[size:]))
    texts = variant.to_json(array_of(*pairs)).to_pylist()
    assert len(texts) > 80
    for text, pair in zip(texts, pairs, strict=True):
        assert is_json_of(json.loads(text), decoded(*pair))


def is_json_of(found: Any, expected: Any) -> bool:
    """Whether JSON stands for a value of any type."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(
            map(is_json_of, found.values(), expected.values())
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_json_of, found, expected))
    if isinstance(expected, (float, decimal.Decimal)) and not isinstance(found, str):
        return found == pytest.approx(float(expected), rel=1e-7)
    if isinstance(expected, (datetime.date, datetime.datetime, datetime.time, uuid.UUID)):
        return str(found)[:8] == str(expected)[:8]
    if isinstance(expected, bytes):
        return base64.b64decode(found) == expected
    return isinstance(found, str) or (type(found) is type(expected) and found == expected)


def test_variants_are_columns_of_files_and_tables(tmp_path):
    rows = pa.table({"id": range(5), "event": EVENTS})
    fermion.write_table(rows, tmp_path / "f")
    assert fermion.read_table(tmp_path / "f").equals(rows)
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)
    table.append(rows)
    table.compact()
    found = table.scan().to_arrow()
    assert found.schema == rows.schema
    expected = variant.to_json(EVENTS).to_pylist() * 2
    assert variant.to_json(found["event"]).to_pylist() == expected


def test_an_unsorted_dictionary_may_have_a_name_twice():
    value = b"\x02\x01\x01\x00\x02\x0c\x05"  # one field, of the second name
    made = array_of((b"\x01\x02\x00\x01\x02aa", value))
    assert variant.to_json(made).to_pylist() == ['{"a":5}']
    assert variant.get(made, "$.a", pa.int64()).to_pylist() == [5]


def test_places_in_arrays_are_numbers_in_python_too():
    rows = pa.table({"event": EVENTS})
    buffer = io.BytesIO()
    fermion.write_table(rows, buffer)
    tags = fermion.col("event")["user"]["tags"]
    with fermion.open(buffer.getvalue()) as file:
        assert file.count(tags[0].cast(pa.string()) == "x") == 1
        assert file.count(pickle.loads(pickle.dumps(tags[1]["y"].cast(pa.float64()))) > 1) == 1
        assert file.count(fermion.col("event")[0][1].cast(pa.int64()) == 2) == 1


def test_values_that_can_not_be_are_null_in_little_time(monkeypatch):
    """Each was tried by itself."""
    texts = pa.array(json.dumps("x" if at % 2 else str(at)) for at in range(2_000))
    calls = []
    cast = values._cast
    monkeypatch.setattr(
        values, "_cast", lambda *given, **named: calls.append(1) or cast(*given, **named)
    )
    found = variant.get(variant.from_json(texts), "$", pa.int64(), strict=False)
    assert found.to_pylist() == [None if at % 2 else at for at in range(2_000)]
    assert len(calls) < 10
    numbers = variant.from_json(pa.array(str(at / 2) for at in range(2_000)))
    assert variant.get(numbers, "$", pa.int64(), strict=False).null_count == 1_000
    assert len(calls) < 20


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (b"\x09\xff\xfe", pa.string()),
        (b"\x28\x32" + bytes(16), pa.decimal128(38, 2)),
        (b"\x28\x00" + b"\xff" * 15 + b"\x7f", pa.int64()),
    ],
)
def test_values_that_are_none_are_refused_in_any_mode(value, dtype):
    made = array_of((NAMELESS, value))
    for strict in (True, False):
        try:
            found = variant.get(made, "$", dtype, strict=strict)
        except InvalidArgumentError:
            continue
        assert not strict
        assert found.to_pylist() == [None]


def test_what_has_no_bytes_or_is_shredded_is_no_value():
    with pytest.raises(InvalidArgumentError, match="row 1: a Variant value without bytes"):
        variant.to_json(array_of((NAMELESS, b"\x00"), (NAMELESS, b"")))
    with pytest.raises(InvalidArgumentError, match="text of a Variant value"):
        variant.to_json(array_of((NAMELESS, b"\x09\xff\xfe")))
    with pytest.raises(InvalidArgumentError, match="no Variant value"):
        variant.to_json(array_of((NAMELESS, b"\x30" + struct.pack("<q", -(2**63)))))
    with pytest.raises(ValueError, match="expected metadata and value"):
        VariantType(pa.int64())
    fields = [pa.field(name, pa.binary()) for name in ("metadata", "value", "typed_value")]
    shredded = VariantType(pa.struct(fields))
    with pytest.raises(InvalidArgumentError, match="shredded as in Parquet"):
        variant.to_json(
            pa.ExtensionArray.from_storage(shredded, pa.nulls(1, shredded.storage_type))
        )
    with pytest.raises(InvalidArgumentError, match="surrogates"):
        variant.get(EVENTS, ["\ud800"], pa.int64())
    assert variant.get(EVENTS, "$.user.id", pa.string_view()).to_pylist()[0] == "7"


def test_values_that_can_not_be_cast_are_null_among_others_of_their_kind():
    """Some are ruled out at a glance, as 1.5 is, and some only by a cast, as 1e300."""
    mixed = variant.from_json(
        ["1.5", "1e300", "2.0", "3.0", '"x"', '"99999999999999999999"', '"7"']
    )
    found = variant.get(mixed, "$", pa.int64(), strict=False)
    assert found.to_pylist() == [None, None, 2, 3, None, None, 7]


def test_numbers_are_cast_to_no_infinity():
    """Of floats of 16 and 32 bits; what is infinite stays so."""
    numbers = variant.from_json(["65504", "100000", "1e300", "1.5", '"1e50"', '"-inf"'])
    found = variant.get(numbers, "$", pa.float16(), strict=False)
    assert found.to_pylist() == [65504, None, None, 1.5, None, float("-inf")]
    found = variant.get(numbers, "$", pa.float32(), strict=False)
    assert found.to_pylist() == [65504, 100000, None, 1.5, None, float("-inf")]
    with pytest.raises(InvalidArgumentError, match=r"row 1: .* halffloat, found 100000"):
        variant.get(numbers, "$", pa.float16())


def test_floats_of_16_bits_take_no_integer_that_they_round():
    numbers = variant.from_json(["2048", "2049", "-2049", "2050", "null"])
    found = variant.get(numbers, "$", pa.float16(), strict=False)
    assert found.to_pylist() == [2048, None, None, 2050, None]
    with pytest.raises(InvalidArgumentError, match=r"row 1: .* halffloat, found 2049"):
        variant.get(numbers, "$", pa.float16())


def test_filters_name_parts_as_columns_of_them_are_named(tmp_path):
    """Of files and tables; a column of this name comes first."""
    name = "variant_get(event, '$.a', 'bigint')"
    rows = pa.table({"event": variant.from_json(['{"a": 1}', '{"a": 2}', None])})
    fermion.write_table(rows, tmp_path / "a.fermion")
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)
    with fermion.open(tmp_path / "a.fermion") as file:
        for count in (file.count, table.count):
            assert count(fermion.col(name) == 2) == 1
            assert count([(name, "in", [1, 2])]) == 2
            assert count(fermion.col(name).is_null() | (fermion.col(name) < 2)) == 2
            with pytest.raises(ColumnNotFoundError, match="no column 'other'"):
                count(fermion.col("variant_get(other, '$', 'int')") == 2)
    own = pa.table({name: [5, 2], "event": rows["event"][:2]})
    fermion.write_table(own, tmp_path / "b.fermion")
    with fermion.open(tmp_path / "b.fermion") as file:
        assert file.count(fermion.col(name) == 5) == 1


def test_views_and_times_that_python_has_none_of():
    texts = variant.from_json(['"x"', "null"])
    for dtype in (pa.binary_view(), pa.string_view()):
        found = variant.get(texts, "$", dtype)
        assert found.type == dtype
        assert found.cast(pa.string()).to_pylist() == ["x", None]
    far = {"metadata": b"\x11\0\0", "value": b"\x34" + bytes(7) + b"\x80"}
    times = pa.ExtensionArray.from_storage(
        variant.VariantType(), pa.array([far], variant.VariantType().storage_type)
    )
    with pytest.raises(
        InvalidArgumentError, match=r"row 0: .*of type bool, found -9223372036854775808"
    ):
        variant.get(times, "$", pa.bool_())


def test_names_and_texts_of_all_kinds_come_back():
    """More names than are known, over rows and in one; long ones; special bytes at any place."""
    rows = [{f"n{at}_{row}": at for at in range(row % 40)} for row in range(200)]
    rows += [{f"w{at}": {f"w{at + 1}": at} for at in range(1_500)}, {"x" * 2**20: 1, "b": 2}]
    rows += [{"b": 1, "a": [{"c": 1, "b": 2}] * 3}]
    for size in range(20):
        for special in '"\\\n\x1f\x7f\u00e9\u4e2d':
            text = "a" * size + special + "b" * (size // 2)
            rows.append(
                {text: [text, text + special, "a" * size], "-": [-(2**63), -size, 2**63 - 1]}
            )
    for ascii in (True, False):
        array = variant.from_json([json.dumps(row, ensure_ascii=ascii) for row in rows])
        assert [json.loads(text) for text in variant.to_json(array).to_pylist()] == rows
    twice = json.dumps(rows[200])[:-1] + ', "w7": 1}'
    with pytest.raises(InvalidArgumentError, match="an object has a name twice"):
        variant.from_json([twice])


def test_a_number_is_cast_in_one_way_whatever_its_width():
    """To decimals by its value, to no times; Parquet's rules of equality know no widths."""
    kinds = ((3, 1), (4, 2), (5, 4), (6, 8))
    values = [bytes((kind << 2,)) + (100).to_bytes(size, "little") for kind, size in kinds]
    storage = pa.array([{"metadata": b"\x01\0\0", "value": each} for each in values], STORAGE)
    array = pa.ExtensionArray.from_storage(VariantType(), storage)
    for dtype in (pa.decimal128(5, 2), pa.decimal32(3, 0), pa.decimal256(70, 3), pa.int8()):
        assert variant.get(array, "$", dtype).to_pylist() == [100] * 4
    assert variant.get(array, "$", pa.string()).to_pylist() == ["100"] * 4
    narrow = (pa.decimal128(4, 2), pa.decimal32(2, 0))
    for dtype in (*narrow, pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.duration("s")):
        assert variant.get(array, "$", dtype, strict=False).null_count == 4
        for row in range(4):
            with pytest.raises(InvalidArgumentError, match="found 100"):
                variant.get(array[row : row + 1], "$", dtype)
    large = variant.from_json([str(2**32), "4294967296.0000000001", "7"])
    assert variant.get(large, "$", pa.decimal32(9, 0), strict=False).to_pylist() == [None, None, 7]
