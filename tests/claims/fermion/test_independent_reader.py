"""A reader written from the specification alone reads what the package writes."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.features import FEATURES, LARGE_FEATURES
from tests.kit.files.independent_reader import File, storage
from tests.kit.strategies import tables


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


@pytest.mark.parametrize("name", ["batches", "batch_positions", "changed_batch_positions"])
def test_positions_in_batches_are_read_by_the_specification_alone(name):
    feature = FEATURES[name]()
    assert File(feature.stored()).index_in_batch() == feature.index_in_batch()


def test_the_sort_order_is_read_by_the_specification_alone():
    assert File(FEATURES["sort_order"]().stored()).sort_order == [(0, 0), (1, 3)]


@pytest.mark.parametrize("name", sorted(LARGE_FEATURES))
def test_blocks_lanes_and_frames_are_read_by_the_specification_alone(name):
    feature = LARGE_FEATURES[name]()
    assert_reads(feature.stored(), feature.table)


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
