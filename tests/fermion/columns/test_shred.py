"""What shredding keeps, drops, views and refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import BinaryValues, Bits, Node, column_node
from fermion.errors import InvalidArgumentError
from tests.kit.equality import assert_logically_equal


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


def test_numbers_that_lie_askew_are_moved() -> None:
    """Buffers of some producers, and of files that are mapped, start at any byte."""
    askew = pa.py_buffer(b"?" + np.arange(4, dtype=np.int64).tobytes()).slice(1)
    array = pa.Array.from_buffers(pa.int64(), 4, [None, askew])
    values = shred(array, node_of(array)).data[1]
    assert isinstance(values, np.ndarray)
    assert values.flags.aligned
    assert values.tolist() == [0, 1, 2, 3]


def test_bytes_of_strings_are_not_copied() -> None:
    array = pa.array(["a", "bc", "def"], pa.large_string())
    node = node_of(array)
    result = assemble(node, shred(array, node))
    assert [buffer and buffer.address for buffer in result.buffers()] == [
        buffer and buffer.address for buffer in array.buffers()
    ]


MISSING = {
    "number": (pa.array([1, None, None]), "column", 1),
    "second small chunk": (pa.chunked_array([[1, 2], [3, None]]), "column", 3),
    "second large chunk": (
        pa.chunked_array([np.arange(5000), pa.array([*range(4999), None])]),
        "column",
        9999,
    ),
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
    "list view element behind others": (
        pa.ListViewArray.from_arrays(
            pa.array([4, 2], pa.int32()),
            pa.array([1, 2], pa.int32()),
            pa.array([0, 0, 1, None, 3]),
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
    keyed = pa.DictionaryArray.from_arrays(
        pa.array([0, 1]), pa.array([{"a": 1}, {"a": None}], inner)
    )
    nested = pa.Array.from_buffers(
        pa.struct([required("b", keyed.type)]), 2, [hidden], children=[keyed]
    )
    for array in (struct, unused, lists, nested):
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
