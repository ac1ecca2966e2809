"""Shredding Arrow arrays into streams and assembling them again, over every type."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns import types as physical_values
from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import BinaryValues, Bits, ColumnStreams, Node, NodeKind, column_node
from fermion.errors import UnsupportedTypeError
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import arrow_arrays, arrow_types, chunked_arrays, random_array

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


@pytest.fixture(params=["Arrow joins chunks", "streams join chunks"], scope="module")
def way_to_join(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small chunks are joined by Arrow first, large ones by their streams; here all are small."""
    joined_by_arrow = request.param == "Arrow joins chunks"
    with mock.patch("fermion.columns.shred._CHUNK_ROWS_SMALL", 4096 if joined_by_arrow else 0):
        yield


@pytest.mark.usefixtures("way_to_join")
@given(st.data())
def test_any_chunked_array_survives_a_round_trip(data: st.DataObject) -> None:
    dtype = data.draw(arrow_types())
    array = data.draw(chunked_arrays(dtype, length=data.draw(st.integers(0, 40))))
    assert_logically_equal(pa.chunked_array([round_trip(array)]), array)


@pytest.mark.usefixtures("way_to_join")
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
