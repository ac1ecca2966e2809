"""Which blocks of sorted values a filter may select from, by their first and last values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from fermion.columns.arrow_buffers import numbers_of
from fermion.predicate.evaluate import evaluate
from fermion.predicate.expression import (
    And,
    BooleanColumn,
    Comparison,
    Expression,
    IsIn,
    Or,
    StartsWith,
)

VALUES_MAX = 1_000
"""Values of an IN list that blocks are looked up for, at most."""


def blocks_that_may_match(
    expression: Expression, first: pa.Array, last: pa.Array
) -> np.ndarray | None:
    """The blocks outside of which no value makes a filter TRUE.

    Parameters
    ----------
    expression
        Bound to one column.
    first, last
        The smallest and the greatest value of each block, shape (blocks,), without null and NaN;
        the blocks hold neither.

    Returns
    -------
    np.ndarray or None
        ``bool``, shape (blocks,). None: bounds do not tell, as of ``!=``, NOT and IS NULL.
    """
    match expression:
        case And(operands=operands) | Or(operands=operands):
            parts = [blocks_that_may_match(each, first, last) for each in operands]
            known = [each for each in parts if each is not None]
            if isinstance(expression, And):
                return np.logical_and.reduce(known) if known else None
            return np.logical_or.reduce(known) if len(known) == len(parts) else None
        case BooleanColumn(path=path):
            return blocks_that_may_match(Comparison(path, "==", True), first, last)
        case IsIn(path=path, values=values) if len(values) <= VALUES_MAX:
            own = [Comparison(path, "==", each) for each in values if each is not None]
            found = [np.zeros(len(first), bool)]
            for each in own:
                may = blocks_that_may_match(each, first, last)
                found += [] if may is None else [may]
            return np.logical_or.reduce(found)
        case Comparison(operator="=="):
            below, above = replace(expression, operator="<="), replace(expression, operator=">=")
            return _is_true(below, first) & _is_true(above, last)
        case Comparison(operator="<" | "<="):
            return _is_true(expression, first)
        case Comparison(operator=">" | ">="):
            return _is_true(expression, last)
        case StartsWith(path=path, prefix=prefix):
            reached = _is_true(Comparison(path, "<=", prefix), first) | _is_true(expression, first)
            return reached & _is_true(Comparison(path, ">=", prefix), last)
    return None


def _is_true(leaf: Expression, values: pa.Array) -> np.ndarray:
    """Whether a filter is TRUE of each value: ``bool``."""
    batch = pa.RecordBatch.from_arrays([values], names=[leaf.path[0]])  # type: ignore[attr-defined]
    mask = evaluate(leaf, batch)
    return numbers_of(mask.fill_null(False))
