"""Keys as bytes: their order is that of the values, they read back, and they are as specified."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.key_encoding import (
    check_key_type,
    decode_keys,
    direct_keys,
    encode_keys,
    keeps_keys,
    key_ranks,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "table_format.md"


def integers_of(dtype: pa.DataType) -> st.SearchStrategy[int]:
    """Draw integers of a type, extremes often."""
    info = np.iinfo(dtype.to_pandas_dtype())
    edges = [int(info.min), int(info.max), 0, 1]
    return st.sampled_from(edges) | st.integers(int(info.min), int(info.max))


TEXTS = st.text(st.sampled_from("\x00\x01a\x7fé日🙂\uffff"), max_size=9)
BINARY = st.binary(max_size=4) | st.lists(st.sampled_from(b"\x00\x01\xff"), max_size=9).map(bytes)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Draw decimals of a type, extremes often."""
    most = 10**precision - 1
    drawn = st.sampled_from([most, -most, 0, -1, 1]) | st.integers(-most, most)
    return drawn.map(
        lambda unscaled: Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    )


INTEGERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]
TIMES = [
    *(pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
]
DECIMALS = [
    pa.decimal32(9, 2),
    pa.decimal64(18, 0),
    pa.decimal128(38, 10),
    pa.decimal256(76, 3),
    pa.decimal256(9, 2),
]
COLUMNS = [
    st.tuples(st.just(pa.bool_()), st.just(st.booleans())),
    st.sampled_from([(each, integers_of(each)) for each in INTEGERS]),
    st.sampled_from([(each, st.integers(0, 86_399)) for each in TIMES]),
    st.sampled_from([(each, st.integers(-(2**63), 2**63 - 1)) for each in TIMES[5:]]),
    st.sampled_from([(each, decimals(each.precision, each.scale)) for each in DECIMALS]),
    st.sampled_from([(each, TEXTS) for each in (pa.string(), pa.large_string(), pa.string_view())]),
    st.sampled_from(
        [(each, BINARY) for each in (pa.binary(), pa.large_binary(), pa.binary_view())]
    ),
    st.just((pa.binary(3), st.binary(min_size=3, max_size=3))),
    st.just((pa.binary(0), st.just(b""))),
]


def array_of(values: list, dtype: pa.DataType) -> pa.Array:
    """Return an array that starts in the middle of its buffers."""
    if pa.types.is_temporal(dtype):
        ticks = pa.array([0, *values], pa.int32() if dtype.bit_width == 32 else pa.int64())
        return ticks.view(dtype)[1:]
    return pa.array([*values[:1], *values], dtype)[len(values[:1]) :]


def comparable(value: object) -> object:
    """Return a value that compares as the key's column does: texts by their UTF-8."""
    return value.encode() if isinstance(value, str) else value


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[pa.Array], list[tuple]]:
    """Draw key columns, and their rows."""
    kinds = draw(st.lists(st.one_of(COLUMNS), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*(values for _, values in kinds)), max_size=30))
    columns = [array_of([row[at] for row in rows], dtype) for at, (dtype, _) in enumerate(kinds)]
    return columns, [tuple(map(comparable, row)) for row in rows]


@given(keys())
def test_the_order_of_bytes_is_the_order_of_values(drawn):
    columns, rows = drawn
    found = encode_keys(columns).to_pylist()
    by_bytes = sorted(range(len(rows)), key=lambda at: (found[at], at))
    assert by_bytes == sorted(range(len(rows)), key=lambda at: (rows[at], at))
    assert len(set(found)) == len(set(rows))


@given(keys())
def test_keys_read_back(drawn):
    columns, _ = drawn
    encoded = encode_keys(columns)
    assert decode_keys(encoded, [column.type for column in columns]) == columns
    if len(encoded) > 2:
        assert decode_keys(encoded[1:-1], [each.type for each in columns]) == [
            column[1:-1] for column in columns
        ]


@given(keys())
def test_ranks_are_places_among_the_distinct_keys(drawn):
    columns, rows = drawn
    places = {row: at for at, row in enumerate(sorted(set(rows)))}
    encoded = encode_keys(columns)
    assert key_ranks(encoded).tolist() == [places[row] for row in rows]
    assert (
        key_ranks(encoded[1:]).tolist()
        == key_ranks(pa.array(encoded[1:].to_pylist(), pa.binary())).tolist()
    )


@given(st.lists(st.binary(max_size=3) | st.binary(min_size=60, max_size=70), max_size=20))
def test_ranks_of_long_keys_agree(values):
    places = {value: at for at, value in enumerate(sorted(set(values)))}
    found = key_ranks(pa.array(values, pa.large_binary()))
    assert found.tolist() == [places[value] for value in values]


@given(
    st.sampled_from(INTEGERS + TIMES[5:]).flatmap(
        lambda dtype: st.tuples(
            st.just(dtype),
            st.lists(integers_of(dtype if dtype in INTEGERS else pa.int64()), max_size=20),
        )
    )
)
def test_direct_keys_order_as_the_bytes_do(drawn):
    dtype, values = drawn
    column = array_of(values, dtype)
    direct = direct_keys(column)
    assert direct.dtype == np.int64
    assert (
        np.argsort(direct, kind="stable").tolist()
        == np.argsort(key_ranks(encode_keys([column])), kind="stable").tolist()
    )
    raw = [int.from_bytes(each, "big") - 2**63 for each in encode_keys([column]).to_pylist()]
    assert direct.tolist() == raw


def test_keys_are_as_the_specification_says():
    """The rows of its table of test vectors: types and values as Python, bytes in hexadecimal."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("### Key bytes")[1].split("\n### ")[0]
    rows = re.findall(r"^\| `(.+)` \| `(.+)` \| `([0-9a-f]*)` \|$", section, re.MULTILINE)
    assert len(rows) >= 15
    names = {"Decimal": Decimal, "date": dt.date}
    names |= {name: getattr(pa, name) for name in dir(pa) if name[0].islower()}
    for types, values, expected in rows:
        dtypes = [eval(each, names) for each in types.split("; ")]
        row = [eval(each, names) for each in values.split("; ")]
        columns = [pa.array([each], dtype) for each, dtype in zip(row, dtypes, strict=True)]
        assert encode_keys(columns)[0].as_py().hex() == expected, (types, values)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.float64(),
        pa.float16(),
        pa.list_(pa.int8()),
        pa.struct([]),
        pa.null(),
        pa.duration("s"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.string(), pa.int8()),
        pa.uuid(),
    ],
)
def test_types_without_an_order_of_bytes_are_refused(dtype):
    with pytest.raises(InvalidArgumentError, match="key column 'id' is"):
        check_key_type("id", dtype)
    with pytest.raises(InvalidArgumentError, match="key column"):
        encode_keys([pa.array([], dtype)])


def test_no_keys_may_come_without_offsets():
    """Arrow streams leave out the one offset of an array without rows."""
    empty = pa.py_buffer(b"")
    nothing = pa.Array.from_buffers(pa.large_binary(), 0, [None, empty, empty])
    assert key_ranks(nothing).tolist() == []
    assert decode_keys(nothing, [pa.int64(), pa.string()]) == [
        pa.array([], pa.int64()),
        pa.array([], pa.string()),
    ]


def test_nulls_and_columns_of_different_lengths_are_refused():
    with pytest.raises(InvalidArgumentError, match="'b': expected no nulls, found 1 in 2 rows"):
        encode_keys([pa.array([1, 2]), pa.array(["x", None])], ["a", "b"])
    with pytest.raises(InvalidArgumentError, match="'a': expected no nulls"):
        direct_keys(pa.array([1, None]), "a")
    with pytest.raises(InvalidArgumentError, match="is string"):
        direct_keys(pa.array(["a"]), "a")
    for columns in ([], [pa.array([1]), pa.array([1, 2])]):
        with pytest.raises(InvalidArgumentError, match="one or more of one length"):
            encode_keys(columns)


@pytest.mark.parametrize(
    ("raw", "types"),
    [
        (b"\x80" * 7, [pa.int64()]),
        (b"\x80" * 9, [pa.int64()]),
        (b"\x80" + b"\0" * 6 + b"\1\0", [pa.int8(), pa.bool_(), pa.bool_()]),
        (b"\x81" + b"\0" * 7, [pa.int8()]),
        (b"\2", [pa.bool_()]),
        (b"ab", [pa.string(), pa.string()]),
        (b"a\0\1", [pa.string(), pa.string()]),
        (b"\xff", [pa.string()]),
        (b"\xff" * 16, [pa.decimal128(5, 2)]),
        (b"\xff" * 16, [pa.decimal32(5, 2)]),
        (b"ab", [pa.binary(3)]),
    ],
)
def test_bytes_that_are_no_key_are_refused(raw, types):
    with pytest.raises(CorruptMetadata, match="a key"):
        decode_keys(pa.array([raw]), types)


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.uint8(), pa.uint64(), True),
        (pa.uint32(), pa.int64(), False),
        (pa.date32(), pa.timestamp("s"), False),
        (pa.timestamp("s"), pa.timestamp("us"), False),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), True),
        (pa.decimal128(38, 2), pa.decimal256(39, 2), False),
        (pa.decimal128(9, 2), pa.decimal128(12, 3), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
        (pa.binary(3), pa.binary(), False),
        (pa.binary(3), pa.binary(3), True),
    ],
)
def test_what_a_key_column_may_widen_to(old, new, keeps):
    assert keeps_keys(old, new) is keeps
