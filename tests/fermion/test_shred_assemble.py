"""Shredding Arrow arrays into streams and assembling them again, over every type."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion import values as physical_values
from fermion.arrow_types import Node, NodeKind, column_node
from fermion.assemble import assemble
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedTypeError
from fermion.shred import shred
from fermion.streams import ColumnStreams
from fermion.values import BinaryValues, Bits
from tests.equality import assert_logically_equal
from tests.strategies import arrow_arrays, arrow_types, chunked_arrays, random_array

ArrowValues = pa.Array | pa.ChunkedArray


def node_of(array: ArrowValues, nullable: bool = True) -> Node:
    field = pa.field("column", array.type)
    return dataclasses.replace(column_node(field), nullable=nullable)


def round_trip(array: ArrowValues) -> pa.Array:
    node = node_of(array)
    result = assemble(node, shred(array, node))
    result.validate(full=True)
    return result


def plain(streams: ColumnStreams) -> dict[Any, Any]:
    """Streams as nested lists, so that they can be compared with ``==``."""

    def flat(values: Any) -> Any:
        if isinstance(values, Bits):
            return values.unpack().tolist()
        if isinstance(values, BinaryValues):
            return values.offsets.tolist(), values.data.tobytes()
        return values.tobytes() if isinstance(values, np.ndarray) else values

    return {
        "length": streams.length,
        "slots": streams.slots,
        "validity": {key: flat(value) for key, value in streams.validity.items()},
        "offsets": {key: value.tolist() for key, value in streams.offsets.items()},
        "data": {key: flat(value) for key, value in streams.data.items()},
    }


@given(arrow_arrays())
def test_any_array_survives_a_round_trip(array: pa.Array) -> None:
    assert_logically_equal(round_trip(array), array)


@given(st.data())
def test_any_chunked_array_survives_a_round_trip(data: st.DataObject) -> None:
    dtype = data.draw(arrow_types())
    array = data.draw(chunked_arrays(dtype, length=data.draw(st.integers(0, 40))))
    assert_logically_equal(pa.chunked_array([round_trip(array)]), array)


@given(arrow_arrays(), st.lists(st.integers(0, 40), max_size=4))
def test_streams_depend_on_logical_values_alone(array: pa.Array, cuts: list[int]) -> None:
    """The same values in another layout, and in chunks, give the same streams."""
    node = node_of(array)
    streams = shred(array, node)
    expected = plain(streams)
    bounds = [0, *sorted(min(cut, len(array)) for cut in cuts), len(array)]
    chunks = [array.slice(start, stop - start) for start, stop in itertools.pairwise(bounds)]
    assert plain(shred(assemble(node, streams), node)) == expected
    assert plain(shred(pa.chunked_array(chunks), node)) == expected


@pytest.mark.parametrize("rows", [3, 5000])
def test_few_large_chunks_and_many_small_ones_give_the_same_streams(rows: int) -> None:
    """Small chunks are joined by Arrow, large ones by their streams."""
    rng = np.random.default_rng(rows)
    dtype = pa.struct([("a", pa.list_(pa.string())), ("b", pa.dictionary(pa.int8(), pa.int64()))])
    chunks = [random_array(rng, dtype, rows) for _ in range(3)]
    array = pa.chunked_array(chunks)
    node = node_of(array)
    one = pa.concat_arrays([assemble(node, shred(chunk, node)) for chunk in chunks])
    assert plain(shred(array, node)) == plain(shred(one, node))
    assert_logically_equal(pa.chunked_array([round_trip(array)]), array)


@given(arrow_arrays())
def test_streams_keep_their_contract(array: pa.Array) -> None:
    node = node_of(array)
    streams = shred(array, node)
    assert streams.length == len(array)
    check_contract(node, streams, len(array))


def check_contract(node: Node, streams: ColumnStreams, slots: int) -> None:
    valid = streams.validity[node.validity]
    assert streams.slots[node.validity] == slots
    assert valid is None or slots > 0
    if isinstance(valid, Bits):
        assert len(valid) == slots
        assert 0 < valid.unpack().sum() < slots
        assert node.nullable
    if not node.nullable:
        assert valid is None
    null = ~valid.unpack() if isinstance(valid, Bits) else np.full(slots, valid is False)
    if node.kind is NodeKind.LEAF:
        assert streams.slots[node.stream] == slots
        check_data(node, streams.data[node.stream], null)
    elif node.kind is NodeKind.LIST:
        offsets = streams.offsets[node.stream]
        assert streams.slots[node.stream] == slots
        assert offsets.dtype == np.int64
        assert len(offsets) == slots + 1
        assert offsets[0] == 0
        assert not np.any(np.diff(offsets)[null])
        check_contract(node.children[0], streams, int(offsets[-1]))
    else:
        each = node.storage.list_size if node.kind is NodeKind.FIXED_LIST else 1
        for child in node.children:
            check_contract(child, streams, slots * each)
            below = streams.validity[child.validity]
            if child.nullable and slots * each:
                flags = below.unpack() if isinstance(below, Bits) else below is None
                assert not np.any(np.repeat(null, each) & flags)


def check_data(node: Node, values: physical_values.Values, null: np.ndarray) -> None:
    assert len(values) == len(null)
    if isinstance(values, BinaryValues):
        assert values.offsets.dtype == np.int64
        assert values.offsets[0] == 0
        assert values.offsets[-1] == len(values.data)
        assert not np.any(values.lengths[null])
    elif isinstance(values, np.ndarray):
        assert node.physical is not None
        assert values.dtype == node.physical.dtype
        assert values.flags.aligned
        rows = values.view(np.uint8).reshape(len(values), -1) if len(values) else values
        if len(values) and null[0]:
            assert not rows[0].any()
        assert np.array_equal(rows[1:][null[1:]], rows[:-1][null[1:]])


def test_lists_of_the_design_give_the_streams_of_the_design() -> None:
    """[[1, 2], null, [3]] has validity 1, 0, 1, offsets 0, 2, 2, 3 and data 1, 2, 3."""
    array = pa.array([[1, 2], None, [3]], pa.list_(pa.int64()))
    streams = shred(array, node_of(array))
    validity = streams.validity[0]
    assert isinstance(validity, Bits)
    assert validity.unpack().tolist() == [True, False, True]
    assert streams.offsets[1].tolist() == [0, 2, 2, 3]
    assert streams.validity[2] is None
    assert streams.data[3].tolist() == [1, 2, 3]  # type: ignore[union-attr]


def test_nested_lists_of_the_design_give_the_streams_of_the_design() -> None:
    """[[[1, 2], [3]], [[4]]] has offsets 0, 2, 3 outside and 0, 2, 3, 4 inside."""
    array = pa.array([[[1, 2], [3]], [[4]]], pa.list_(pa.list_(pa.int64())))
    streams = shred(array, node_of(array))
    assert {key: value.tolist() for key, value in streams.offsets.items()} == {
        1: [0, 2, 3],
        3: [0, 2, 3, 4],
    }
    assert streams.data[5].tolist() == [1, 2, 3, 4]  # type: ignore[union-attr]


def test_what_a_null_hides_does_not_reach_the_streams() -> None:
    hidden = pa.py_buffer(np.packbits([True, False, True], bitorder="little"))
    numbers = pa.Array.from_buffers(pa.int64(), 3, [hidden, pa.py_buffer(np.array([1, 777, 3]))])
    texts = pa.Array.from_buffers(
        pa.string(), 3, [hidden, pa.py_buffer(np.array([0, 1, 4, 5], "i4")), pa.py_buffer(b"a777b")]
    )
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()),
        3,
        [hidden, pa.py_buffer(np.array([0, 1, 3, 4], "i4"))],
        children=[pa.array([1, 777, 777, 4])],
    )
    dtype = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    structs = pa.Array.from_buffers(
        dtype, 3, [hidden], children=[pa.array([1, 777, 3]), pa.array([1, 777, 3])]
    )
    of_numbers = shred(numbers, node_of(numbers)).data[1]
    of_texts = shred(texts, node_of(texts)).data[1]
    of_lists = shred(lists, node_of(lists))
    of_structs = shred(structs, node_of(structs))
    assert of_numbers.tolist() == [1, 1, 3]  # type: ignore[union-attr]
    assert isinstance(of_texts, BinaryValues)
    assert of_texts.data.tobytes() == b"ab"
    assert of_lists.offsets[1].tolist() == [0, 1, 1, 2]
    assert of_lists.data[3].tolist() == [1, 4]  # type: ignore[union-attr]
    assert of_structs.data[2].tolist() == [1, 1, 3]  # type: ignore[union-attr]
    assert of_structs.data[4].tolist() == [1, 0, 3]  # type: ignore[union-attr]
    assert of_structs.validity[3] is None


def test_numbers_without_nulls_are_not_copied() -> None:
    array = pa.array(np.arange(1000.0)).slice(5, 900)
    node = node_of(array)
    result = assemble(node, shred(array, node))
    assert result.buffers()[1].address == array.buffers()[1].address + 5 * 8


def test_bytes_of_strings_are_not_copied() -> None:
    array = pa.array(["a", "bc", "def"], pa.large_string())
    node = node_of(array)
    result = assemble(node, shred(array, node))
    assert [buffer and buffer.address for buffer in result.buffers()] == [
        buffer and buffer.address for buffer in array.buffers()
    ]


def required(name: str, dtype: pa.DataType) -> pa.Field:
    return pa.field(name, dtype, nullable=False)


MISSING = {
    "number": (pa.array([1, None, None]), "column", 1),
    "second chunk": (pa.chunked_array([[1, 2], [3, None]]), "column", 3),
    "slice": (pa.array([None, 1, 2, None]).slice(1), "column", 2),
    "dictionary index": (pa.array(["a", None]).dictionary_encode(), "column", 1),
    "dictionary value": (
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), pa.array(["a", None])),
        "column",
        2,
    ),
    "run": (pc.run_end_encode(pa.array([1, 1, None, None])), "column", 2),
    "struct field": (
        pa.array([{"a": 1}, {"a": None}], pa.struct([required("a", pa.int64())])),
        "column.a",
        1,
    ),
    "list element": (
        pa.array([[], [1], [2, 3, None]], pa.list_(required("item", pa.int64()))),
        "column.item",
        2,
    ),
    "list element after a null list": (
        pa.array([None, [1], None, [2, None]], pa.large_list(required("item", pa.int64()))),
        "column.item",
        3,
    ),
    "list view element": (
        pa.ListViewArray.from_arrays(
            pa.array([3, 1, 0], pa.int32()),
            pa.array([1, 2, 1], pa.int32()),
            pa.array([1, 2, None, 4]),
            type=pa.list_view(required("item", pa.int64())),
        ),
        "column.item",
        1,
    ),
    "fixed-size list element": (
        pa.array([[1, 2], [3, None]], pa.list_(required("item", pa.int64()), 2)),
        "column.item",
        1,
    ),
    "map value": (
        pa.array([[], [("a", None)]], pa.map_(pa.string(), required("value", pa.int64()))),
        "column.entries.value",
        1,
    ),
    "field of a struct in a dictionary": (
        pa.DictionaryArray.from_arrays(
            pa.array([0, 0, 1]),
            pa.array([{"a": 1}, {"a": None}], pa.struct([required("a", pa.int64())])),
        ),
        "column.a",
        2,
    ),
    "deep": (
        pa.array(
            [[], [{"a": [1]}], [{"a": [2]}, {"a": [3, None]}]],
            pa.list_(pa.struct([("a", pa.list_(required("item", pa.int64())))])),
        ),
        "column.item.a.item",
        2,
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_null_where_none_may_be_names_its_column_and_row(case: str) -> None:
    array, path, row = MISSING[case]
    with pytest.raises(InvalidArgumentError) as caught:
        shred(array, node_of(array, nullable=path != "column"))
    assert f"'{path}' is not nullable" in str(caught.value)
    assert f"row {row} " in str(caught.value)


def test_a_null_that_nothing_shows_is_no_error() -> None:
    """Nulls in fields that are not nullable, under null structs and in unused values."""
    inner = pa.struct([required("a", pa.int64())])
    hidden = pa.py_buffer(np.packbits([True, False], bitorder="little"))
    struct = pa.Array.from_buffers(inner, 2, [hidden], children=[pa.array([1, None])])
    unused = pa.DictionaryArray.from_arrays(
        pa.array([0, None]), pa.array([{"a": 1}, {"a": None}], inner)
    )
    lists = pa.Array.from_buffers(
        pa.list_(required("item", pa.int64())),
        2,
        [hidden, pa.py_buffer(np.array([1, 2, 3], "i4"))],
        children=[pa.array([None, 1, None, None])],
    )
    for array in (struct, unused, lists):
        assert_logically_equal(round_trip(array), array)


def test_an_array_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected values of type int64, got int32"):
        shred(pa.array([1], pa.int32()), column_node(pa.field("column", pa.int64())))


MALFORMED = {
    "decreasing offsets": pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 3, 2], "i4")), pa.py_buffer(b"abc")]
    ),
    "list view outside of its values": pa.Array.from_buffers(
        pa.list_view(pa.int64()),
        2,
        [None, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(np.array([1, 3], "i4"))],
        children=[pa.array([1, 2])],
    ),
    "index outside of its dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 2]), pa.array(["a", "b"]), safe=False
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_array_is_refused(case: str) -> None:
    array = MALFORMED[case]
    with pytest.raises(InvalidArgumentError, match="column 'column': not a well-formed"):
        shred(array, node_of(array))


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


def test_too_many_values_for_a_dictionary_ask_for_smaller_batches() -> None:
    chunks = [pa.array([f"{chunk}.{row}" for row in range(100)]) for chunk in range(2)]
    dtype = pa.dictionary(pa.int8(), pa.string())
    array = pa.chunked_array([chunk.dictionary_encode().cast(dtype) for chunk in chunks], dtype)
    node = node_of(array)
    with pytest.raises(InvalidArgumentError, match=r"200 distinct values.*smaller batches"):
        assemble(node, shred(array, node))


def test_too_many_rows_for_run_ends_ask_for_smaller_batches() -> None:
    dtype = pa.run_end_encoded(pa.int16(), pa.int64())
    part = pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([1]), dtype)
    array = pa.chunked_array([part, part])
    node = node_of(array)
    with pytest.raises(InvalidArgumentError, match=r"60000 rows.*smaller batches"):
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


@pytest.mark.parametrize("keep", [{"a"}, {"b"}, {"a", "c"}, set()], ids=str)
def test_a_struct_can_be_assembled_from_some_of_its_fields(keep: set[str]) -> None:
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


def test_values_nest_as_deep_as_the_format_allows() -> None:
    makers = [
        lambda child: pa.list_(child),
        lambda child: pa.struct([("a", child)]),
        lambda child: pa.list_(child, 1),
        lambda child: pa.list_view(child),
    ]
    dtype: pa.DataType = pa.string()
    for level in range(64):
        dtype = makers[level % 4](dtype)
    array = random_array(np.random.default_rng(3), dtype, 4)
    assert_logically_equal(round_trip(array), array)
    with pytest.raises(UnsupportedTypeError, match="deeper than 64"):
        column_node(pa.field("column", pa.list_(dtype)))


def read_arrow(path: Path) -> pa.Table:
    if path.suffix == ".stream":
        return pa.ipc.open_stream(path).read_all()
    return pa.ipc.open_file(path).read_all()


def check_table(table: pa.Table) -> int:
    """Send every column the format can hold through the streams; how many there were."""
    checked = 0
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            node = column_node(field)
        except UnsupportedTypeError:
            continue
        result = assemble(node, shred(column, node))
        result.validate()
        assert_logically_equal(pa.chunked_array([result], column.type), column)
        checked += 1
    return checked


def test_every_column_of_the_arrow_files_survives_a_round_trip(shared_data: Path) -> None:
    """Files that other Arrow implementations wrote, in many versions."""
    root = shared_data / "arrow-testing"
    paths = sorted([*root.rglob("*.arrow_file"), *root.rglob("*.stream")])
    assert sum(check_table(read_arrow(path)) for path in paths) > 500


def test_every_column_of_the_parquet_files_survives_a_round_trip(shared_data: Path) -> None:
    checked = unreadable = 0
    for path in sorted((shared_data / "parquet-testing").rglob("*.parquet")):
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError):
            unreadable += 1
            continue
        checked += check_table(table)
    assert checked > 300
    assert unreadable < 20
