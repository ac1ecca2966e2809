"""Pruning never loses a row that matches, and never claims one that does not."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns.shred import shred
from fermion.columns.types import Node, NodeKind, Order, column_node
from fermion.errors import InvalidArgumentError
from fermion.layout import INT64_MAX, INT64_MIN, ChunkFlag
from fermion.predicate import (
    Bounds,
    Expression,
    RowRanges,
    bind,
    evaluate,
    parse_filter,
    ranges_that_may_match,
    ranges_that_must_match,
)
from fermion.statistics.bounds import merge, page_statistics, unknown_statistics
from tests.kit.files.predicate_model import SCHEMA, expressions, leaves, rows, table_of

Path = tuple[str, ...]


def leaf_node(field: pa.Field, path: Path) -> tuple[Node, Node]:
    root = node = column_node(field)
    for name in path[1:]:
        node = next(child for child in node.children if child.name == name)
    return root, node


def bounds_of(table: pa.Table, path: Path, cuts: list[int]) -> Bounds | None:
    """The statistics that a writer keeps of a column; None for columns without any."""
    root, node = leaf_node(table.schema.field(path[0]), path)
    if node.kind is not NodeKind.LEAF:
        return None
    streams = shred(table.column(path[0]), root)
    boundaries = np.array(cuts, np.int64)
    pages = page_statistics(
        streams.data[node.stream], streams.validity[node.validity], boundaries, node
    )
    return Bounds(boundaries, pages.min, pages.max, pages.null_count, pages.flags, node.type)


@st.composite
def lookups(draw: st.DrawFn, table: pa.Table, paths: set[Path]) -> dict[Path, Bounds | None]:
    """Bounds of some columns, each cut into pages of its own, some of them knowing less."""
    found: dict[Path, Bounds | None] = {}
    for path in sorted(paths):
        points = draw(st.sets(st.integers(1, table.num_rows), max_size=3))
        cuts = sorted({0, table.num_rows, *(p for p in points if p < table.num_rows)})
        bounds = bounds_of(table, path, cuts)
        lack = draw(st.sampled_from(["nothing"] * 5 + ["nulls", "exactness", "nans", "all"]))
        found[path] = forget(bounds, lack) if bounds is not None else None
    return found


def forget(bounds: Bounds, lack: str) -> Bounds | None:
    flags = bounds.flags.copy()
    match lack:
        case "nulls":
            return dataclasses.replace(bounds, null_count=np.full(len(flags), -1))
        case "exactness":
            flags &= np.uint32(~(ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT) & 0xFFFF)
            return dataclasses.replace(bounds, flags=flags)
        case "nans":
            flags &= np.uint32(~(ChunkFlag.HAS_NAN | ChunkFlag.NAN_KNOWN) & 0xFFFF)
            return dataclasses.replace(bounds, flags=flags)
        case "all":
            return None
    return bounds


def check(data: st.DataObject, expression: Expression) -> None:
    """Rows that evaluate to TRUE lie within the "may" ranges; "must" rows all evaluate to TRUE."""
    records = data.draw(rows(expression.columns() or {("i",)}))
    table = table_of(records)
    found = data.draw(lookups(table, expression.columns()))
    bound = bind(expression, SCHEMA)
    matches = {row for row, match in enumerate(evaluate(bound, table).to_pylist()) if match}
    may = ranges_that_may_match(bound, found.get, table.num_rows)
    must = ranges_that_must_match(bound, found.get, table.num_rows)
    assert matches <= set(may.to_indices().tolist())
    assert set(must.to_indices().tolist()) <= matches


@given(st.data())
def test_pruning_keeps_every_row_that_matches_and_claims_only_such_rows(data):
    check(data, data.draw(expressions()))


@pytest.mark.parametrize("path", [("s",), ("b",), ("f",), ("w",)], ids=str)
@given(data=st.data())
def test_pruning_is_right_where_keys_are_not_the_values(path, data):
    """Truncated strings, floats with two zeros and NaN, decimals beyond int64."""
    leaf = data.draw(leaves([path]))
    check(data, leaf if data.draw(st.booleans()) else ~leaf)


def ranges(text: Any, table: pa.Table, cuts: list[int]) -> tuple[list, list]:
    bound = parse_filter(text, table.schema)

    def lookup(path: Path) -> Bounds | None:
        return bounds_of(table, path, cuts)

    return (
        list(ranges_that_may_match(bound, lookup, table.num_rows)),
        list(ranges_that_must_match(bound, lookup, table.num_rows)),
    )


ALL = [(0, 6)]
INTS = pa.table({"a": pa.array([1, 2, 5, 5, 8, 9])})
TEXTS = pa.table({"a": pa.array(["ab", "b", "c", "c", "cart", "cat and dog"])})


@pytest.mark.parametrize(
    ("text", "may", "must"),
    [
        ("a = 5", [(2, 4)], [(2, 4)]),
        ("a <> 5", [(0, 2), (4, 6)], [(0, 2), (4, 6)]),
        ("a < 5", [(0, 2)], [(0, 2)]),
        ("a <= 5", [(0, 4)], [(0, 4)]),
        ("a < 2", [(0, 2)], []),
        ("a > 5.5", [(4, 6)], [(4, 6)]),
        ("a > 9", [], []),
        ("a >= 1", ALL, ALL),
        ("NOT (a < 5)", [(2, 6)], [(2, 6)]),
        ("a IN (5, 100)", [(2, 4)], [(2, 4)]),
        ("a NOT IN (5, 100)", [(0, 2), (4, 6)], [(0, 2), (4, 6)]),
        ("a NOT IN (5, NULL)", [], []),
        ("a IN (9, NULL)", [(4, 6)], []),
        ("a BETWEEN 3 AND 8", [(2, 6)], [(2, 4)]),
        ("a = 1 OR a = 9", [(0, 2), (4, 6)], []),
        ("a IS NULL", [], []),
        ("a IS NOT NULL", ALL, ALL),
        ("a = NULL", [], []),
        ("NOT (a = NULL)", [], []),
        ("TRUE", ALL, ALL),
        ("a < 3 OR NULL", [(0, 2)], [(0, 2)]),
    ],
)
def test_pages_of_integers_are_settled_as_far_as_bounds_go(text, may, must):
    assert ranges(text, INTS, [0, 2, 4, 6]) == (may, must)


@pytest.mark.parametrize(
    ("text", "may", "must"),
    [
        ("a = 'c'", [(2, 4)], [(2, 4)]),
        ("a > 'c'", [(4, 6)], [(4, 6)]),
        ("a <= 'c'", [(0, 4)], [(0, 4)]),
        ("a < 'b'", [(0, 2)], []),
        ("a LIKE 'c%'", [(2, 6)], [(2, 6)]),
        ("a LIKE 'ca%'", [(4, 6)], [(4, 6)]),
        ("a LIKE 'car%'", [(4, 6)], []),
        ("NOT a LIKE 'ca%'", [(0, 4)], [(0, 4)]),
        ("a > 'cat and '", [(4, 6)], []),
        ("a >= 'cat and e'", [(4, 6)], []),
        ("a > 'cat anx'", [], []),
        ("a <> 'c'", [(0, 2), (4, 6)], [(0, 2), (4, 6)]),
        ("a <= 'cat and '", ALL, [(0, 4)]),
    ],
)
def test_pages_of_strings_are_settled_as_far_as_bounds_go(text, may, must):
    assert ranges(text, TEXTS, [0, 2, 4, 6]) == (may, must)


def test_a_truncated_string_equals_nothing_for_sure():
    table = pa.table({"a": ["cat and dog"] * 2})
    for literal in ("cat and ", "cat and dog"):
        assert ranges([("a", "=", literal)], table, [0, 2]) == ([(0, 2)], [])
        assert ranges([("a", "!=", literal)], table, [0, 2]) == ([(0, 2)], [])
        assert ranges([("a", "in", [literal])], table, [0, 2]) == ([(0, 2)], [])


def test_nan_satisfies_not_and_unequal_but_no_comparison():
    """The page of NaNs has no bounds: `<` prunes it, `!=` and NOT must not."""
    table = pa.table({"a": pa.array([math.nan, math.nan, 1.0, 1.0, 1.0, math.nan])})
    cuts = [0, 2, 4, 6]
    assert ranges("a < 5", table, cuts) == ([(2, 6)], [(2, 4)])
    assert ranges("NOT (a < 5)", table, cuts)[0] == [(0, 2), (4, 6)]
    assert ranges("a <> 1", table, cuts)[0] == [(0, 2), (4, 6)]
    assert ranges("a = 1", table, cuts) == ([(2, 6)], [(2, 4)])
    assert ranges("ISNAN(a)", table, cuts)[0] == [(0, 2), (4, 6)]
    assert ranges("NOT ISNAN(a)", table, cuts) == ([(2, 6)], [(2, 4)])


def test_both_zeros_equal_both_zeros():
    table = pa.table({"a": pa.array([-0.0, -0.0, 0.0, 0.0, 1.0, 1.0])})
    cuts = [0, 2, 4, 6]
    for literal in (0.0, -0.0, 0):
        assert ranges([("a", "=", literal)], table, cuts) == ([(0, 4)], [(0, 4)])
        assert ranges([("a", "in", [literal])], table, cuts) == ([(0, 4)], [(0, 4)])
        assert ranges([("a", "<", literal)], table, cuts) == ([], [])
        assert ranges([("a", ">", literal)], table, cuts) == ([(4, 6)], [(4, 6)])
        assert ranges([("a", ">=", literal)], table, cuts) == (ALL, ALL)


def test_nulls_prune_and_forbid_claims():
    table = pa.table({"a": pa.array([None, None, 1, None, 1, 1], pa.int64())})
    cuts = [0, 2, 4, 6]
    assert ranges("a = 1", table, cuts) == ([(2, 6)], [(4, 6)])
    assert ranges("a <> 1", table, cuts) == ([], [])
    assert ranges("a IS NULL", table, cuts) == ([(0, 4)], [(0, 2)])
    assert ranges("a IS NOT NULL", table, cuts) == ([(2, 6)], [(4, 6)])


def test_booleans_prune_like_numbers():
    table = pa.table({"t": pa.array([True, True, False, False, True, False])})
    assert ranges("t", table, [0, 2, 4, 6]) == ([(0, 2), (4, 6)], [(0, 2)])
    assert ranges("NOT t", table, [0, 2, 4, 6]) == ([(2, 6)], [(2, 4)])


def test_chunks_and_files_are_units_like_pages():
    node = column_node(pa.field("a", pa.int64()))
    parts = []
    for values in ([1, 2, 3], [7, 8]):
        cuts = np.array([0, len(values)])
        parts.append(merge(page_statistics(np.array(values), None, cuts, node), len(values)))
    parts.append(unknown_statistics(4, Order.SIGNED))
    limits = [np.array([getattr(part, name) for part in parts]) for name in ("min", "max")]
    nulls = np.array([part.null_count for part in parts])
    flags = np.array([part.flags for part in parts], np.uint32)
    bounds = Bounds(np.array([0, 3, 5, 9]), *limits, nulls, flags, pa.int64())
    bound = parse_filter("a > 5", pa.schema([("a", pa.int64())]))
    assert list(ranges_that_may_match(bound, lambda _: bounds, 9)) == [(3, 9)]
    assert list(ranges_that_must_match(bound, lambda _: bounds, 9)) == [(3, 5)]


def test_units_of_an_older_type_are_compared_exactly():
    """A column widened from int32 and date to float64 and timestamp prunes its old files."""
    bound = parse_filter("a > 1.5", pa.schema([("a", pa.float64())]))
    old = bounds_of(pa.table({"a": pa.array([1, 2], pa.int32())}), ("a",), [0, 1, 2])
    assert list(ranges_that_may_match(bound, lambda _: old, 2)) == [(1, 2)]
    never = bounds_of(pa.table({"a": pa.array(["x"])}), ("a",), [0, 1])
    assert list(ranges_that_may_match(bound, lambda _: never, 1)) == [(0, 1)]


def test_an_exact_flag_that_its_key_contradicts_does_not_count():
    """A page that borrows its chunk's flag: "abcdefgh..." fills its key, so it was truncated."""
    table = pa.table({"a": ["abcdefghij"]})
    bounds = bounds_of(table, ("a",), [0, 1])
    claimed = bounds.flags | np.uint32(ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT)
    wrong = dataclasses.replace(bounds, flags=claimed)
    bound = parse_filter("a > 'abcdefgh'", table.schema)
    assert list(ranges_that_may_match(bound, lambda _: wrong, 1)) == [(0, 1)]


def test_the_sentinel_of_unknown_bounds_never_prunes():
    exact = int(ChunkFlag.HAS_MINMAX | ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT)
    bounds = Bounds(
        np.array([0, 3]),
        np.array([INT64_MIN]),
        np.array([INT64_MAX]),
        np.array([0]),
        np.array([exact], np.uint32),
        pa.int64(),
    )
    schema = pa.schema([("a", pa.int64())])
    for text in ("a < -9223372036854775808", "a = 5", "a > 9223372036854775807", "a <> 1"):
        bound = parse_filter(text, schema)
        must = ranges_that_must_match(bound, lambda _: bounds, 3)
        assert not must
    assert ranges_that_may_match(parse_filter("a = 5", schema), lambda _: bounds, 3).total == 3


def test_columns_are_asked_for_only_until_nothing_is_left():
    asked = []

    def lookup(path: Path) -> Bounds | None:
        asked.append(path)
        return bounds_of(INTS, ("a",), [0, 6])

    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    bound = parse_filter("a > 100 AND a < 0 AND b = 1", schema)
    assert ranges_that_may_match(bound, lookup, 6) == RowRanges.empty()
    assert asked == [("a",)]


def test_bounds_that_cover_other_rows_are_refused():
    bounds = bounds_of(INTS, ("a",), [0, 6])
    with pytest.raises(InvalidArgumentError, match="cover 6 rows; expected 7"):
        ranges_that_may_match(parse_filter("a = 1", INTS.schema), lambda _: bounds, 7)
