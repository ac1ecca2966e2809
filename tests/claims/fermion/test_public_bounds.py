"""Bounds, their flags and the parts of a filter, as other packages use them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion import Bounds, ChunkFlag, col
from fermion.predicate import Column, conjuncts, ranges_that_may_match
from fermion.predicate.arrow_expression import from_pyarrow

PROJECT = Path(__file__).parents[3]
MODULES = [
    file
    for folder in ("fermion", "fermion_table", "spark_ext", "benchmarks", "tools")
    for file in sorted((PROJECT / folder).rglob("*.py"))
]


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def constants_of(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Return the names that a module assigns at its top, and what to."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                found += [(name.id, node.value) for name in names if isinstance(name, ast.Name)]
    return found


def test_the_bits_of_chunk_flags_stand_in_one_module():
    """No module gives a number of its own to a name of `ChunkFlag`."""
    copies = []
    for file in MODULES:
        for name, value in constants_of(parsed(file)):
            numbers = [
                node
                for node in ast.walk(value)
                if isinstance(node, ast.Constant) and isinstance(node.value, int)
            ]
            if numbers and name.strip("_") in {*ChunkFlag.__members__, "EXACT_FLAGS"}:
                copies.append(f"{file.relative_to(PROJECT)}: {name}")
    assert copies == []


def test_no_module_fetches_a_class_through_a_value():
    """`type(col("x"))` reaches a class that its package did not export."""
    calls = []
    for file in MODULES:
        for node in ast.walk(parsed(file)):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", None) == "type"
                and any(getattr(each, "id", None) == "col" for each in ast.walk(node))
            ):
                calls.append(f"{file.relative_to(PROJECT)}:{node.lineno}")
    assert calls == []


def test_conjuncts_are_the_operands_of_an_and():
    a, b, c = col("a") > 1, col("b") == 2, col("c").is_null()
    assert conjuncts(a & b & c) == (a, b, c)
    assert conjuncts(a | b) == (a | b,)
    assert conjuncts(~(a & b)) == (~(a & b),)
    assert [type(each) for each in conjuncts(col("flag"))] == [Column]


def test_only_a_pyarrow_expression_without_a_counterpart_is_opaque():
    own, opaque = from_pyarrow(pc.field("a") > 1), from_pyarrow(pc.field("a") > pc.field("b"))
    assert not own.is_opaque
    assert opaque.is_opaque
    both = own & opaque
    assert not both.is_opaque
    assert [node.is_opaque for node in both.walk()] == [False, False, True]
    assert not col("a").is_opaque


def test_bounds_made_of_public_names_prune():
    """Two units of ten rows, the second with values from 20 to 29."""
    bounds = Bounds(
        boundaries=np.array([0, 10, 20], np.int64),
        min=np.array([0, 20], np.int64),
        max=np.array([9, 29], np.int64),
        null_count=np.zeros(2, np.int64),
        flags=np.full(2, ChunkFlag.HAS_MINMAX | ChunkFlag.NAN_KNOWN, np.uint32),
        type=pa.int64(),
    )
    found = ranges_that_may_match(col("a") > 15, {("a",): bounds}.get, 20)
    assert (found.starts.tolist(), found.stops.tolist()) == ([10], [20])


@pytest.mark.parametrize("name", ["Bounds", "ChunkFlag", "ColumnStatistics"])
def test_what_a_planner_needs_is_exported(name):
    assert name in fermion.__all__
    assert getattr(fermion, name).__doc__
