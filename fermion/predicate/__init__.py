"""Public names only."""

from fermion.columns.ranges import RowRanges
from fermion.predicate.arrow_expression import from_pyarrow, pyarrow_columns, to_pyarrow
from fermion.predicate.binding import (
    bind,
    candidate_names,
    from_engine,
    parse_filter,
    rename_columns,
    resolve_path,
    transform,
    with_keys,
)
from fermion.predicate.evaluate import column_of, comparable, evaluate
from fermion.predicate.expression import (
    VALUE,
    Column,
    Computed,
    Expression,
    VariantCondition,
    VariantValue,
    col,
    conjuncts,
    without_opaque,
)
from fermion.predicate.intervals import Interval, interval, members, text_range
from fermion.predicate.key_condition import KeyCondition
from fermion.predicate.prune import (
    Bounds,
    bound_key,
    ranges_that_match,
    ranges_that_may_match,
    ranges_that_must_match,
)
from fermion.predicate.sql import from_sql

__all__ = [
    "VALUE",
    "Bounds",
    "Column",
    "Computed",
    "Expression",
    "Interval",
    "KeyCondition",
    "RowRanges",
    "VariantCondition",
    "VariantValue",
    "bind",
    "bound_key",
    "candidate_names",
    "col",
    "column_of",
    "comparable",
    "conjuncts",
    "evaluate",
    "from_engine",
    "from_pyarrow",
    "from_sql",
    "interval",
    "members",
    "parse_filter",
    "pyarrow_columns",
    "ranges_that_match",
    "ranges_that_may_match",
    "ranges_that_must_match",
    "rename_columns",
    "resolve_path",
    "text_range",
    "to_pyarrow",
    "transform",
    "with_keys",
    "without_opaque",
]
