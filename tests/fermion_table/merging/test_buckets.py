"""Buckets: as mmh3 hashes the bytes of the specification, and as the transform for one column."""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Decimal
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.merging.buckets import bucket_numbers, hash_rows
from fermion_table.schema.transforms import transformed

PAGE = Path(__file__).resolve().parents[3] / "docs" / "table_format.md"
KINDS = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.decimal128(9, 2), st.decimals("-9999999", "9999999", places=2)),
    (pa.string(), st.text(max_size=12)),
    (pa.string_view(), st.text(max_size=12)),
    (pa.large_binary(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
]


def model_bytes(value: object) -> bytes:
    """Return a value's bytes, as the specification has them for several columns."""
    if isinstance(value, dt.date):
        value = (value - dt.date(1970, 1, 1)).days
    if isinstance(value, int):
        return struct.pack("<q" if value < 2**63 else "<Q", value)
    if isinstance(value, Decimal):
        number = int(value.scaleb(2))
        size = next(
            size for size in range(1, 20) if -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size - 1)
        )
        value = number.to_bytes(size, "big", signed=True)
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


@st.composite
def bucket_keys(draw: st.DrawFn, min_size: int = 2) -> tuple[list[pa.Array], list[tuple]]:
    """Draw columns, and their rows."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=min_size, max_size=4))
    rows = draw(st.lists(st.tuples(*(values for _, values in kinds)), max_size=20))
    rows *= draw(st.sampled_from([1, 1, 40]))
    return [pa.array([row[at] for row in rows], kind) for at, (kind, _) in enumerate(kinds)], rows


@given(bucket_keys(), st.integers(2, 5000))
def test_several_columns_hash_as_their_concatenated_bytes(drawn, count):
    columns, rows = drawn
    expected = [
        (mmh3.hash(b"".join(map(model_bytes, row)), 0, signed=False) & 0x7FFFFFFF) % count
        for row in rows
    ]
    found = bucket_numbers(columns, count)
    assert found.tolist() == expected
    assert found.dtype == np.int32


@given(
    st.sampled_from([kind for kind in KINDS if kind[0] != pa.bool_()]).flatmap(
        lambda kind: st.tuples(st.just(kind[0]), st.lists(kind[1], max_size=50))
    ),
    st.integers(2, 5000),
)
def test_one_column_hashes_as_the_transform_does(drawn, count):
    dtype, values = drawn
    column = pa.array([*values[:1], *values], dtype)[len(values[:1]) :]
    assert (
        bucket_numbers([column], count).tolist() == transformed("bucket", count, column).to_pylist()
    )


@given(st.lists(st.binary(max_size=40), max_size=30), st.sampled_from([1, 40]))
def test_byte_strings_hash_as_mmh3_does(values, repeats):
    texts = pa.array([b"skipped", *values * repeats], pa.large_binary())[1:]
    assert hash_rows(texts).tolist() == [
        mmh3.hash(each, 0, signed=False) for each in values * repeats
    ]


def test_widened_columns_keep_their_buckets():
    narrow = [pa.array([1, -2], pa.int8()), pa.array(["a", "b"])]
    wide = [narrow[0].cast(pa.int64()), narrow[1].cast(pa.large_string())]
    assert bucket_numbers(narrow, 1000).tolist() == bucket_numbers(wide, 1000).tolist()


def test_lengths_keep_columns_apart():
    pairs = [("ab", "c"), ("a", "bc")]
    columns = [pa.array(list(column)) for column in zip(*pairs, strict=True)]
    assert len(set(bucket_numbers(columns, 2**31 - 1).tolist())) == 2


def test_buckets_are_as_the_specification_says():
    """The rows of its table of test vectors: types and values as Python, bucket of 1,000."""
    section = PAGE.read_text(encoding="utf-8").split("### Buckets")[1].split("\n### ")[0]
    rows = re.findall(
        r"^\| `(.+)` \| `(.+)` \| `([0-9a-f]*)` \| (\d+) \| (\d+) \|$", section, re.MULTILINE
    )
    assert len(rows) >= 10
    names = {"Decimal": Decimal, "date": dt.date}
    names |= {name: getattr(pa, name) for name in dir(pa) if name[0].islower()}
    for types, values, raw, hashed, bucket in rows:
        row = [eval(each, names) for each in values.split("; ")]
        dtypes = [eval(each, names) for each in types.split("; ")]
        columns = [pa.array([each], dtype) for each, dtype in zip(row, dtypes, strict=True)]
        assert mmh3.hash(bytes.fromhex(raw), 0, signed=False) == int(hashed)
        assert bucket_numbers(columns, 1000).tolist() == [int(bucket)], (types, values)
        assert (int(hashed) & 0x7FFFFFFF) % 1000 == int(bucket)


@pytest.mark.parametrize(
    ("columns", "count", "error", "message"),
    [
        ([pa.array([1])], 0, InvalidArgumentError, "bucket"),
        ([pa.array([1])], 2**31, InvalidArgumentError, "bucket"),
        ([pa.array([1])], "4", TypeError, "bucket"),
        ([], 4, InvalidArgumentError, "columns"),
        ([pa.array([1]), pa.array([1, 2])], 4, InvalidArgumentError, "columns"),
        ([pa.array([1, None])], 4, InvalidArgumentError, "no nulls, found 1 in 2"),
        ([pa.array([1.0])], 4, InvalidArgumentError, "double"),
    ],
)
def test_bad_arguments_are_refused(columns, count, error, message):
    with pytest.raises(error, match=message):
        bucket_numbers(columns, count)
