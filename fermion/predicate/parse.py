"""Every form of filter that an API takes, in one function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.errors import InvalidArgumentError
from fermion.predicate.arrow_expression import from_pyarrow
from fermion.predicate.binding import bind, transform
from fermion.predicate.dnf import from_dnf
from fermion.predicate.expression import Expression, IsIn, IsNan, as_predicate
from fermion.predicate.sql import from_sql


def parse_filter(
    given: Any,
    schema: pa.Schema | None = None,
    *,
    where: str = "filter",
    known: Iterable[str] | None = None,
) -> Expression | None:
    """A filter in any form as a tree, bound to the schema if there is one.

    Parameters
    ----------
    given
        An `Expression`, a SQL string, DNF tuples, a ``pyarrow.compute.Expression``, a bool, or
        None for no filter.
    schema
        What to bind to; None leaves columns and literals unchecked.
    where, known
        As for `bind`.

    Raises
    ------
    InvalidArgumentError
        For a filter that cannot be understood, or does not fit the columns' types.
    ColumnNotFoundError
        For a missing column.
    """
    if given is None:
        return None
    if isinstance(given, (Expression, bool)):
        expression = as_predicate(given)
    elif isinstance(given, str):
        expression = from_sql(given)
    elif isinstance(given, pc.Expression):
        expression = from_pyarrow(given)
    elif isinstance(given, (list, tuple)):
        expression = from_dnf(given)
    else:
        raise InvalidArgumentError(
            f"filter of type {type(given).__name__}: expected fermion.col(...), a SQL string, "
            "DNF tuples as pyarrow has them, or a pyarrow.compute.Expression"
        )
    return expression if schema is None else bind(expression, schema, where=where, known=known)


def from_engine(expression: pc.Expression) -> Expression:
    """A filter that a query engine pushes down into a dataset of pyarrow.

    Its ``isin`` finds NaN where a NaN is among the values, as pyarrow's does and engines expect.
    """

    def leaf(node: Expression) -> Expression:
        if isinstance(node, IsIn) and any(value != value for value in node.values):
            return node | IsNan(node.path)
        return node

    return transform(from_pyarrow(expression), leaf)
