"""Filters resolved against the columns of a file; what is found is remembered for files alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from fermion.metadata.file_info import VIRTUAL_COLUMNS
from fermion.predicate import Expression, bind, candidate_names, parse_filter
from fermion.predicate.expression import IsIn
from fermion.reading.index import FileIndex
from fermion.reading.projection import ColumnName, KnownNames, Projected, project

FILTERS_KNOWN_MAX = 64
VALUES_KNOWN_MAX = 1000
"""Of the lists in a filter that is remembered."""


class BoundFilter(NamedTuple):
    """A filter, and the columns that it reads; None and none: all rows."""

    expression: Expression | None
    columns: Sequence[Projected]


_known: dict[tuple[bytes, int], tuple[Expression, BoundFilter]] = {}
"""By the layout of the file and the identity of the filter, which is kept alive here."""


def bound_filter(index: FileIndex, given: Any) -> BoundFilter:
    """A filter resolved against only the columns that it names.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
    """
    expression = parse_filter(given)
    if expression is None:
        return BoundFilter(None, ())
    layout = index.layout if expression is given else None
    if layout is None:
        return _bound(index, expression)
    known = _known.get((layout, id(expression)))
    if known is None:
        known = expression, _bound(index, expression)
        if _values(expression) <= VALUES_KNOWN_MAX:
            while len(_known) >= FILTERS_KNOWN_MAX:
                _known.pop(next(iter(_known)), None)
            _known[layout, id(expression)] = known
    return known[1]


def _values(expression: Expression) -> int:
    """How many values the lists of a filter have."""
    return sum(len(each.values) for each in expression.walk() if isinstance(each, IsIn))


def _bound(index: FileIndex, expression: Expression) -> BoundFilter:
    names = candidate_names(expression)
    if names is None:
        columns = project(index, None)
    else:
        batch = VIRTUAL_COLUMNS if index.footer.is_batch else ()
        found: list[ColumnName] = [name for name in batch if name in names]
        found += [(name,) for name in sorted(names.difference(batch)) if index.names.find(name)]
        columns = project(index, found)
    schema = pa.schema([column.field for column in columns])
    bound = bind(expression, schema, where=index.where, known=KnownNames(index))
    used = {path[0] for path in bound.columns()} if names is not None else set(schema.names)
    return BoundFilter(bound, tuple(each for each in columns if each.field.name in used))
