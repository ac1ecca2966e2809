"""Descriptions of files: sizes that add up, statistics that agree with the values."""

from __future__ import annotations

import datetime
import io
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings

import fermion
from fermion.layout import FULL_CHUNK_DESC
from fermion.pages.pages import tree_label
from fermion.reading.inspection import (
    LeafStatistics,
    describe_file,
    describe_pages,
    describe_statistics,
)
from tests.kit.arrow_limits import message_can_hold
from tests.kit.files.file_anatomy import Anatomy, put, repair
from tests.kit.strategies import tables

SMALL = {"page_bytes": 64, "stripe_rows": 7}


def stored(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, threads=1, **options)
    return sink.getvalue()


def statistics_of(table: pa.Table, **options: Any) -> dict[str, LeafStatistics]:
    with fermion.open(stored(table, **options)) as file:
        return {".".join(leaf.path): leaf for leaf in describe_statistics(file.index)}


def pages_of(column: Any) -> list[Any]:
    return [page for stream in column.streams for chunk in stream.chunks for page in chunk.pages]


@settings(max_examples=40)
@given(tables())
def test_sizes_of_any_file_add_up(table):
    """Columns and stripes hold the same bytes; pages do not overlap; their trees fill them."""
    assume(message_can_hold(table.schema))
    data = stored(table, **SMALL)
    with fermion.open(data) as file:
        layout = describe_file(file.index)
        trees = {
            column.ordinal: [
                description
                for stream in column.streams
                for description in describe_pages(file.index, stream)
            ]
            for column in layout.columns
        }
    assert layout.size == len(data) == layout.data_bytes + layout.metadata_bytes
    stripe_rows = [stripe.rows for stripe in layout.stripes]
    assert sum(stripe_rows) == table.num_rows
    if "ordered=1" in str(table.schema):  # dictionaries of different orders share no stripe
        assert all(0 < rows <= 7 for rows in stripe_rows)
    else:
        assert stripe_rows == [
            min(7, table.num_rows - first) for first in range(0, table.num_rows, 7)
        ]
    stored_bytes = sum(column.stored_bytes for column in layout.columns)
    assert stored_bytes == sum(stripe.stored_bytes for stripe in layout.stripes)
    places = sorted(
        (page.offset, page.length) for column in layout.columns for page in pages_of(column)
    )
    ends = [offset + length for offset, length in places]
    assert all(end <= offset for end, (offset, _) in zip(ends, places[1:], strict=False))
    for column in layout.columns:
        pages, described = pages_of(column), trees[column.ordinal]
        assert [page.length for page in pages] == [each.size for each in described]
        for page, each in zip(pages, described, strict=True):
            assert page.encoding.endswith(tree_label(each.tree).partition("(")[0])


def test_the_largest_columns_come_first_and_the_rest_is_counted():
    rng = np.random.default_rng(2)
    values = rng.random(1_000)
    table = pa.table({f"c{i}": np.where(np.arange(1_000) < 40 * i, values, 0) for i in range(20)})
    with fermion.open(stored(table)) as file:
        everything = describe_file(file.index)
        layout = describe_file(file.index, limit=3)
    sizes = {each.name: each.stored_bytes for each in everything.columns}
    assert [each.name for each in everything.columns] == table.column_names
    found = [each.name for each in layout.columns]
    assert found == sorted(sizes, key=lambda name: -sizes[name])[:3]
    assert layout.num_left_out == 17


def test_describing_ten_thousand_columns_takes_few_requests(tmp_path):
    """All metadata in three or four, the page headers of twenty columns in few more."""
    rng = np.random.default_rng(0)
    path = tmp_path / "wide.fermion"
    fermion.write_table({f"c{i}": rng.random(50) for i in range(10_000)}, path)
    with fermion.open(path) as file:
        layout = describe_file(file.index, limit=20)
        assert len(layout.columns) == 20
        assert file.io_stats.requests <= 6
        assert file.io_stats.bytes_requested <= layout.metadata_bytes + 256 * 1024
    with fermion.open(path) as file:
        assert len(describe_statistics(file.index)) == 10_000
        assert file.io_stats.requests <= 5


def test_null_counts_and_sizes_in_arrow_are_those_of_the_values():
    table = pa.table(
        {
            "plain": pa.array([1, None, 3, None] * 500, pa.int32()),
            "flags": pa.array([True, None] * 1_000),
            "nothing": pa.nulls(2_000, pa.int64()),
            "text": ["x"] * 2_000,
            "struct": pa.array([{"x": 1.0}, None] * 1_000),
            "fixed": pa.array([[1, 2]] * 2_000, pa.list_(pa.int16(), 2)),
        }
    )
    with fermion.open(stored(table)) as file:
        columns = {each.name: each for each in describe_file(file.index).columns}
    assert columns["plain"].arrow_bytes == 2_000 * 4 + 2_000 // 8
    assert columns["flags"].arrow_bytes == 2 * 2_000 // 8
    assert columns["text"].arrow_bytes is None
    assert columns["fixed"].arrow_bytes == 2_000 * 2 * 2
    nulls = {name: column.null_count for name, column in columns.items()}
    # One page of validity without data of its own: its descriptor has no room for a count.
    assert nulls.pop("struct") is None
    assert nulls == {"plain": 1_000, "flags": 1_000, "nothing": 2_000, "text": 0, "fixed": 0}
    assert columns["nothing"].streams == ()


COMPARED = pa.table(
    {
        "int": [5, -3, None, 12, 7, 7],
        "uint": pa.array([2**64 - 1, 0, 3, None, 1, 1], pa.uint64()),
        "float": [0.5, float("nan"), -2.0, None, 9.0, 1.0],
        "text": ["b", "a", None, "c", "bb", "b"],
        "date": pa.array([datetime.date(2020, 1, day) for day in range(1, 7)]),
        "decimal": pa.array([Decimal(f"{i}.25") for i in (3, -4, 0, 1, 2, 2)]),
        "bool": [True, None, False, True, True, True],
        "time": pa.array([1, 5, None, 2, 3, 3], pa.timestamp("ns", "UTC")),
    }
)


@pytest.mark.parametrize("stripe_rows", [2, 6])
def test_bounds_and_counts_are_those_of_the_values(stripe_rows):
    """Over one stripe and over three, for every kind of order."""
    found = statistics_of(COMPARED, stripe_rows=stripe_rows)
    for name in COMPARED.column_names:
        column = COMPARED[name]
        is_number = pc.invert(pc.is_nan(column)) if name == "float" else column.is_valid()
        numbers = column.filter(is_number)
        expected = pc.min_max(numbers).as_py()
        leaf = found[name]
        assert (leaf.min.as_py(), leaf.max.as_py()) == (expected["min"], expected["max"])
        assert leaf.min_exact
        assert leaf.max_exact
        assert leaf.null_count == column.null_count
        assert leaf.rows == 6
        assert leaf.has_nan == (name == "float")


@settings(max_examples=40)
@given(tables())
def test_values_of_any_table_lie_within_its_bounds(table):
    """Top-level columns of numbers: the bounds hold, and are attained where they say so."""
    assume(message_can_hold(table.schema))
    assume(len(set(table.column_names)) == table.num_columns)
    with fermion.open(stored(table, **SMALL)) as file:
        leaves = {leaf.path: leaf for leaf in describe_statistics(file.index)}
    for name, column in zip(table.column_names, table.columns, strict=True):
        dtype = column.type
        if not (pa.types.is_integer(dtype) or pa.types.is_floating(dtype)):
            continue
        leaf = leaves[(name,)]
        values = [value for value in column.to_pylist() if value is not None]
        numbers = [value for value in values if not math.isnan(value)]
        assert leaf.null_count == len(column) - len(values)
        assert leaf.has_nan == (len(numbers) < len(values))
        if not numbers:
            assert leaf.min is None
            assert not leaf.min_exact
            continue
        low, high = leaf.min.as_py(), leaf.max.as_py()
        assert low <= min(numbers) <= max(numbers) <= high
        assert not leaf.min_exact or low == min(numbers)
        assert not leaf.max_exact or high == max(numbers)


def test_a_decimal_with_more_places_than_digits_has_bounds():
    """Arrow refuses to make such a scalar of a Python decimal."""
    small = pa.array([7, -3], pa.int32()).view(pa.decimal32(1, 2))
    leaf = statistics_of(pa.table({"a": small}))["a"]
    assert (leaf.min.as_py(), leaf.max.as_py()) == (Decimal("-0.03"), Decimal("0.07"))


def test_long_text_has_bounds_that_say_they_are_prefixes():
    found = statistics_of(pa.table({"a": ["a long line of text", "another long line"]}))["a"]
    assert (found.min_exact, found.max_exact) == (False, False)
    assert "a long line of text".startswith(found.min.as_py())


def test_leaves_are_named_by_their_paths_and_lists_leave_rows_unknown():
    table = pa.table(
        {
            "s": [{"x": 1, "y": {"z": "a"}}, None],
            "l": [[1, None], [3]],
            "m": pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float64())),
            "n": pa.nulls(2),
        }
    )
    found = statistics_of(table)
    assert list(found) == ["s.x", "s.y.z", "l.item", "m.entries.key", "m.entries.value", "n"]
    assert (found["s.x"].rows, found["s.x"].null_count) == (2, 1)
    assert (found["l.item"].rows, found["l.item"].null_count) == (None, 1)
    assert found["l.item"].max.as_py() == 3
    assert (found["n"].rows, found["n"].null_count) == (2, 2)


def test_a_required_field_under_a_null_struct_claims_nothing_of_its_filler():
    """Its slot under the null struct holds a zero, which is no value of the table."""
    dtype = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    leaf = statistics_of(pa.table({"s": pa.array([None, {"a": 5}], dtype)}))["s.a"]
    assert leaf.null_count is None
    assert not leaf.min_exact
    assert leaf.max.as_py() == 5


def test_without_statistics_only_nulls_are_known():
    leaf = statistics_of(pa.table({"a": [1.5, None, 3.0]}), statistics=False)["a"]
    assert (leaf.min, leaf.max, leaf.min_exact, leaf.max_exact) == (None, None, False, False)
    assert leaf.has_nan is None
    assert leaf.null_count == 1


def test_bloom_filters_are_seen():
    table = pa.table({"a": range(100), "b": range(100)})
    found = statistics_of(table, bloom_filters=["b"], stripe_rows=40)
    assert [found[name].has_bloom_filter for name in "ab"] == [False, True]


@pytest.mark.parametrize(
    "table", [pa.table({}), pa.table({"a": pa.array([], pa.int64())})], ids=["columns", "rows"]
)
def test_files_without_columns_or_rows_are_described(table):
    with fermion.open(stored(table)) as file:
        layout = describe_file(file.index)
        leaves = describe_statistics(file.index)
    assert (layout.num_rows, layout.stripes) == (0, ())
    assert [(leaf.rows, leaf.null_count, leaf.min) for leaf in leaves] == [
        (0, 0, None)
    ] * table.num_columns


def test_a_virtual_column_has_no_metadata_of_its_own(tmp_path):
    """It was looked for at ordinal -1, which ended as damage of the file."""
    path = tmp_path / "x.fermion"
    with fermion.Writer(path, pa.schema([("a", pa.int64())])) as writer:
        writer.append_batch(1, pa.table({"a": [1]}))
    with fermion.open(path) as file:
        with pytest.raises(fermion.InvalidArgumentError, match="'batch_id' is computed"):
            file.column("batch_id")
        assert describe_file(file.index).num_columns == 1


def test_bug_error_of_arrow_for_a_bound_that_its_type_cannot_hold():
    """A key of int64 in the metadata of a column of bytes."""
    data = bytearray(stored(pa.table({"a": pa.array([1, 2], pa.int8())})))
    (place,) = [each for each in Anatomy(data).places if each.dtype == FULL_CHUNK_DESC]
    put(data, place.offset + (FULL_CHUNK_DESC.fields or {})["chunkMax"][1], 2**40, 8)
    repair(data)
    with (
        fermion.open(data) as file,
        pytest.raises(
            fermion.InvalidFileError, match=f"bounds 1 to {2**40}, expected keys of int8"
        ),
    ):
        describe_statistics(file.index)


def test_bounds_beyond_the_keys_are_unknown(tmp_path):
    """Keys end where int64 does; a bound there says nothing of the values."""
    huge = Decimal("99999999999999999999999.55")
    columns = {
        "amount": pa.array([huge, -huge], pa.decimal128(38, 2)),
        "code": [b"\xff" * 80, b"a"],
        "number": [-(2**63), 2**63 - 1],
    }
    fermion.write_table(pa.table(columns), tmp_path / "a.fermion")
    with fermion.open(tmp_path / "a.fermion") as file:
        amount, code, number = describe_statistics(file.index, None)
    assert (amount.min, amount.max) == (None, None)
    assert (code.min.as_py(), code.max) == (b"a", None)
    assert (number.min.as_py(), number.max.as_py()) == (-(2**63), 2**63 - 1)
    assert (number.min_exact, number.max_exact) == (True, True)
