"""A reader written from the specification alone reads what the package writes."""

from __future__ import annotations

import decimal
import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from tests.equality import assert_logically_equal
from tests.fermion.features import FEATURES
from tests.fermion.independent_reader import File, storage
from tests.strategies import message_can_hold, tables

ROWS = 3_000


def unwrapped(array: pa.Array) -> pa.Array:
    """A column's chunk in its storage type."""
    while array.type != storage(array.type):
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = array.dictionary.take(array.indices)
        else:
            array = pc.run_end_decode(array)
    return array


def assert_reads(data: bytes, table: pa.Table) -> None:
    file = File(data)
    assert file.schema.equals(table.schema, check_metadata=True)
    assert file.num_rows == table.num_rows
    for ordinal in range(table.num_columns):
        column = file.column(ordinal)
        column.validate(full=True)
        expected = map(unwrapped, table.column(ordinal).chunks)
        assert_logically_equal(column, pa.chunked_array(expected, column.type))


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_every_feature_is_read_by_the_specification_alone(name):
    feature = FEATURES[name]()
    data = feature.stored()
    assert_reads(data, feature.table)
    assert File(data).key_values == feature.metadata


def test_batches_are_read_by_the_specification_alone():
    feature = FEATURES["batches"]()
    expected = [(1001, 3), (1002, 2), (1003, 0), (7, 10), (1002, 5)]
    assert File(feature.stored()).batches() == expected


@pytest.mark.parametrize("profile", ["balanced", "compact", "fast", "random"])
def test_blocks_lanes_and_frames_are_read_by_the_specification_alone(profile):
    """Columns of several blocks: full ones are packed in lanes, some values are patched."""
    rng = np.random.default_rng(7)
    walk = np.cumsum(rng.integers(-3, 9, ROWS))
    outliers = np.where(rng.random(ROWS) < 0.01, 2**31 - 1, rng.integers(0, 50, ROWS))
    words = np.array(["carefully", "final", "deposits", "sleep", "above", "the", "ironic"])
    columns = {
        "walk": walk,
        "narrow": rng.integers(-100, 100, ROWS).astype(np.int8),
        "short": rng.integers(0, 1000, ROWS).astype(np.uint16),
        "outliers": outliers.astype(np.int32),
        "wide": rng.integers(0, 2**63, ROWS).astype(np.uint64),
        "money": rng.integers(0, 10**6, ROWS) / 100,
        "real": rng.random(ROWS).astype(np.float32),
        "runs": np.repeat(rng.integers(0, 9, ROWS // 50), 50),
        "text": [" ".join(rng.choice(words, 4)) for _ in range(ROWS)],
        "word": rng.choice(words, ROWS),
        "sparse": pa.array([i if i % 5 == 0 else None for i in range(ROWS)]),
        "decimal": pa.array([decimal.Decimal(i * i) for i in range(ROWS)], pa.decimal128(20, 0)),
    }
    table = pa.table(columns)
    sink = io.BytesIO()
    fermion.write_table(table, sink, profile=profile, page_rows_max=2_500)
    assert_reads(sink.getvalue(), table)


@pytest.mark.parametrize("encoding", ["for_bitpack", "delta", "pcodec", "rle", "dictionary"])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_every_width_is_read_by_the_specification_alone(encoding, dtype):
    limits = np.iinfo(dtype)
    values = np.arange(1_100).astype(dtype)
    values[5:9] = limits.min, limits.max, limits.max, limits.min
    table = pa.table({"a": values})
    sink = io.BytesIO()
    fermion.write_table(table, sink, encodings={"a": encoding})
    assert_reads(sink.getvalue(), table)


def is_plain(dtype: pa.DataType) -> bool:
    """Whether a type has wrappers at the top at most, and there none that Arrow cannot take off."""
    below = storage(dtype)
    children = [below.field(index).type for index in range(below.num_fields)]
    top = dtype == below or isinstance(dtype, pa.BaseExtensionType)
    return top and all(child == storage(child) and is_plain(child) for child in children)


def is_taken(table: pa.Table) -> bool:
    return all(map(is_plain, table.schema.types)) and message_can_hold(table.schema)


@given(
    tables().filter(is_taken),
    st.sampled_from([{}, {"page_bytes": 64, "stripe_rows": 7}, {"profile": "compact"}]),
)
def test_any_table_is_read_by_the_specification_alone(table, options):
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    assert_reads(sink.getvalue(), table)
