"""Public names only, and of these what most filters need."""

from fermion.columns.ranges import RowRanges
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
    "interval",
    "members",
    "parse_filter",
    "ranges_that_match",
    "ranges_that_may_match",
    "ranges_that_must_match",
    "rename_columns",
    "resolve_path",
    "text_range",
    "transform",
    "with_keys",
    "without_opaque",
]
