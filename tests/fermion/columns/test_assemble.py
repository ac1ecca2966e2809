"""What assembling builds from streams, and which streams it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import BinaryValues, Bits, ColumnStreams, Node, column_node
from fermion.errors import InvalidArgumentError, InvalidFileError
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import arrow_types, random_array


def node_of(array: pa.Array | pa.ChunkedArray, nullable: bool = True) -> Node:
    field = pa.field("column", array.type)
    return dataclasses.replace(column_node(field), nullable=nullable)


def round_trip(array: pa.Array) -> pa.Array:
    node = node_of(array)
    result = assemble(node, shred(array, node))
    result.validate(full=True)
    return result


def required(name: str, dtype: pa.DataType) -> pa.Field:
    return pa.field(name, dtype, nullable=False)


def test_buffers_that_lie_askew_are_moved() -> None:
    """Arrow's kernels may assume that buffers are aligned."""
    askew = np.frombuffer(b"?" + np.arange(4, dtype=np.int64).tobytes(), np.int64, offset=1)
    node = column_node(pa.field("column", pa.int64()))
    result = assemble(node, ColumnStreams(4, validity={0: None}, data={1: askew}))
    assert result.buffers()[1].address % 8 == 0
    assert result.to_pylist() == [0, 1, 2, 3]


def test_a_dictionary_keeps_every_bit_of_its_values() -> None:
    """Arrow's own dictionary encoding would merge these NaN."""
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0x8000000000000000, 0, 0], np.uint64)
    values = pa.Array.from_buffers(pa.float64(), 5, [None, pa.py_buffer(bits)])
    array = pa.DictionaryArray.from_arrays(pa.array([4, 0, 1, 2, 3], pa.int8()), values)
    result = round_trip(array)
    assert_logically_equal(result, array)
    assert len(result.dictionary) == 4


def test_a_dictionary_of_nested_values_is_numbered_by_value() -> None:
    dtype = pa.struct([("a", pa.list_(pa.string())), ("b", pa.list_(pa.int8(), 2))])
    rows = [
        {"a": ["x", None], "b": [1, 2]},
        {"a": ["x"], "b": [1, 2]},
        {"a": [], "b": None},
        {"a": None, "b": None},
    ]
    values = pa.array(rows * 50, dtype)
    array = pa.DictionaryArray.from_arrays(pa.array(range(200), pa.int16()), values)
    result = round_trip(array.cast(array.type))
    assert result.dictionary.to_pylist() == rows
    assert result.indices.to_pylist() == [0, 1, 2, 3] * 50


def test_too_many_values_for_a_dictionary_ask_for_fewer_rows() -> None:
    chunks = [pa.array([f"{chunk}.{row}" for row in range(100)]) for chunk in range(2)]
    dtype = pa.dictionary(pa.int8(), pa.string())
    array = pa.chunked_array([chunk.dictionary_encode().cast(dtype) for chunk in chunks], dtype)
    node = node_of(array)
    with pytest.raises(InvalidArgumentError, match=r"200 distinct values.*fewer rows"):
        assemble(node, shred(array, node))


def test_too_many_rows_for_run_ends_ask_for_fewer_rows() -> None:
    dtype = pa.run_end_encoded(pa.int16(), pa.int64())
    part = pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([1]), dtype)
    array = pa.chunked_array([part, part])
    node = node_of(array)
    with pytest.raises(InvalidArgumentError, match=r"60000 rows.*fewer rows"):
        assemble(node, shred(array, node))


@pytest.mark.parametrize("dtype", [pa.string(), pa.binary(), pa.string_view(), pa.binary_view()])
def test_too_many_bytes_for_narrow_offsets_ask_for_smaller_batches(dtype: pa.DataType) -> None:
    node = column_node(pa.field("column", dtype))
    data = np.empty(2**31, np.uint8)  # never touched, so it takes no memory
    values = BinaryValues(np.array([0, 2**31], np.int64), data)
    with pytest.raises(InvalidArgumentError, match=r"2147483648 bytes.*smaller batches"):
        assemble(node, ColumnStreams(1, validity={0: None}, data={1: values}))


def test_too_many_elements_ask_for_smaller_batches() -> None:
    node = column_node(pa.field("column", pa.list_(pa.int8())))
    streams = ColumnStreams(1, validity={0: None}, offsets={1: np.array([0, 2**31], np.int64)})
    with pytest.raises(InvalidArgumentError, match=r"'column.item'.*smaller batches"):
        assemble(node, streams)


def prune(node: Node, keep: set[str]) -> Node:
    """The node of a struct with only some children, whose ordinals stay."""
    children = tuple(child for child in node.children if child.name in keep)
    dtype = pa.struct([field for field in node.type if field.name in keep])
    return dataclasses.replace(node, children=children, type=dtype, storage=dtype)


@pytest.mark.parametrize("keep", ["a", "b", "ac", ""])
def test_a_struct_can_be_assembled_from_some_of_its_fields(keep: str) -> None:
    dtype = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.bool_())])
    array = random_array(np.random.default_rng(7), dtype, 50)
    node = node_of(array)
    part = prune(node, keep)
    streams = shred(array, node)
    wanted = {stream for each in part.walk() for stream in (each.validity, each.stream)}
    streams.validity = {k: v for k, v in streams.validity.items() if k in wanted}
    streams.data = {k: v for k, v in streams.data.items() if k in wanted}
    names = [field.name for field in part.type]
    expected = (
        pa.StructArray.from_arrays(
            [pc.struct_field(array, name) for name in names],
            fields=list(part.type),
            mask=array.is_null(),
        )
        if names
        else None
    )
    result = assemble(part, streams)
    result.validate(full=True)
    assert result.type == part.type
    if expected is None:
        assert result.is_valid().equals(array.is_valid())
    else:
        assert_logically_equal(result, expected)


def test_a_struct_in_a_list_can_be_assembled_from_some_of_its_fields() -> None:
    array = pa.array([[{"a": 1, "b": "x"}], None, [{"a": 2, "b": None}, None]])
    node = node_of(array)
    child = prune(node.children[0], {"b"})
    dtype = pa.list_(node.type.value_field.with_type(child.type))
    part = dataclasses.replace(node, children=(child,), type=dtype, storage=dtype)
    assert assemble(part, shred(array, node)).to_pylist() == [
        [{"b": "x"}],
        None,
        [{"b": None}, None],
    ]


def test_a_tree_that_contradicts_its_type_is_refused_rather_than_given_to_arrow() -> None:
    """Arrow ends the process when a child has a type that its parent does not expect."""
    array = pa.array([{"a": 1, "b": "x"}])
    node = node_of(array)
    part = dataclasses.replace(node, children=node.children[:1])
    with pytest.raises(InvalidArgumentError, match="column 'column': children of types"):
        assemble(part, shred(array, node))


@given(arrow_types())
def test_below_all_null_slots_no_streams_are_needed(dtype: pa.DataType) -> None:
    node = column_node(pa.field("column", dtype))
    result = assemble(node, ColumnStreams(5, validity={0: False}))
    result.validate(full=True)
    assert (result.type, len(result)) == (dtype, 5)
    assert shred(result, node).validity[0] is False


@given(arrow_types())
def test_without_slots_no_streams_are_needed(dtype: pa.DataType) -> None:
    result = assemble(column_node(pa.field("column", dtype)), ColumnStreams(0))
    result.validate(full=True)
    assert (result.type, len(result)) == (dtype, 0)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CONTRADICTIONS = {
    "values too few": (pa.int64(), {"data": {1: numbers(1)}}, "1 values, expected 2"),
    "values too wide": (pa.int8(), {"data": {1: numbers(1, 2)}}, "of 8 bytes, expected 1"),
    "values missing": (pa.int64(), {}, "no data for 2 slots"),
    "bits too few": (
        pa.bool_(),
        {"data": {1: Bits(np.zeros(1, np.uint8), 1)}},
        "1 values, expected 2",
    ),
    "bits without bytes": (
        pa.bool_(),
        {"data": {1: Bits(np.zeros(0, np.uint8), 2)}},
        "0 packed booleans, expected 2",
    ),
    "validity too short": (
        pa.int64(),
        {"validity": {0: Bits(np.zeros(1, np.uint8), 1)}, "data": {1: numbers(1, 2)}},
        "1 validity bits, expected 2",
    ),
    "validity without bytes": (
        pa.int64(),
        {"validity": {0: Bits(np.zeros(0, np.uint8), 2)}, "data": {1: numbers(1, 2)}},
        "validity bits, expected 2",
    ),
    "bytes too few": (
        pa.string(),
        {"data": {1: BinaryValues(numbers(0, 1, 3), np.zeros(2, np.uint8))}},
        "2 bytes of data, expected 3",
    ),
    "offsets that start late": (
        pa.string(),
        {"data": {1: BinaryValues(numbers(1, 1, 2), np.zeros(2, np.uint8))}},
        "3 offsets, expected 3 that start at 0",
    ),
    "offsets missing": (pa.list_(pa.int64()), {}, "no offsets for 2 slots"),
    "offsets too few": (
        pa.list_(pa.int64()),
        {"offsets": {1: numbers(0, 1)}},
        "2 offsets, expected 3",
    ),
    "elements too few": (
        pa.list_(pa.int64()),
        {"offsets": {1: numbers(0, 1, 3)}, "data": {3: numbers(1, 2)}},
        "'column.item': 2 values, expected 3",
    ),
    "fixed-size elements too few": (
        pa.list_(pa.int64(), 2),
        {"data": {2: numbers(1, 2)}},
        "'column.item': 2 values, expected 4",
    ),
    "field too short": (
        pa.struct([("a", pa.int64())]),
        {"data": {2: numbers(1)}},
        "'column.a': 1 values, expected 2",
    ),
    "field that is not nullable": (
        pa.struct([required("a", pa.int64())]),
        {
            "validity": {1: Bits.pack(np.array([True, False]))},
            "data": {2: numbers(1, 2)},
        },
        "'column.a': 1 of 2 values are null",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_streams_that_contradict_each_other_are_refused(case: str) -> None:
    dtype, streams, message = CONTRADICTIONS[case]
    node = column_node(pa.field("column", dtype))
    with pytest.raises(InvalidFileError) as caught:
        assemble(node, ColumnStreams(2, **streams))
    assert message in str(caught.value)
