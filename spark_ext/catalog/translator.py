"""What Spark asks of a table in its expressions: as filters, and as aggregates of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.predicate import Expression
from fermion_table import Scan, Table
from fermion_table.engine import named_keys
from spark_ext.aggregation.condition import computed
from spark_ext.aggregation.expression import COLUMN
from spark_ext.aggregation.groups import COUNT, MAX, MIN, SUM, Aggregate, Grouping
from spark_ext.catalog.aggregates import number_of
from spark_ext.catalog.callbacks import listed
from spark_ext.catalog.expressions import FLOATS, INTEGERS, condition_of, evaluated, typed
from spark_ext.catalog.nodes import (
    COUNT_ALL,
    Function,
    Node,
    NotTheSame,
    read_expression,
    read_function,
)
from spark_ext.catalog.predicates import predicate_filter
from spark_ext.reading.first_rows import SortKey
from spark_ext.types import exchange_schema, spark_schema

FEW_COLUMNS_MAX = 1_000
"""Columns that Spark compares each with each in no time."""
_KINDS = {COUNT_ALL: COUNT, "Count": COUNT, "Sum": SUM, "Min": MIN, "Max": MAX}


class Translator:
    """Translates Spark's expressions over the columns of a table, at the snapshot that is read.

    The bounds of its columns prove which results can't overflow.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def _schema(self) -> pa.Schema:
        """The columns, and the keys of maps that settings of the table name."""
        columns, keys = self._table.schema.to_arrow(field_ids=False), named_keys(self._table.schema)
        return pa.schema([*columns, *keys]) if len(keys) else columns

    @property
    def is_wide_and_flat(self) -> bool:
        """Whether there are very many columns, and none that has others below."""
        wide = len(self._table.schema.fields) > FEW_COLUMNS_MAX
        return wide and not any(map(pat.is_nested, self._schema.types))

    @cached_property
    def everything(self) -> Scan:
        """All rows, for what metadata say of them: planned once for all columns of a query."""
        return self._table.scan(columns=[])

    def filter(self, predicates: Sequence[Any]) -> Expression | None:
        """The filter that selects the rows that all predicates select; None selects all rows.

        Raises NotTheSame: A predicate has no counterpart that prunes.
        """
        given = (node for node in predicates if node.name() != "ALWAYS_TRUE")
        filters = [predicate_filter(read_expression(node, self._schema)) for node in given]
        return reduce(and_, filters) if filters else None

    def scan_filter(self, predicate: Any) -> Expression:
        """The filter that selects the rows that a predicate selects: first one that prunes.

        Raises NotTheSame: There is none.
        """
        node = read_expression(predicate, self._schema)
        try:
            return predicate_filter(node)
        except NotTheSame:  # it may still be one that can be evaluated, of columns
            condition = condition_of(node, self.bounds)
            if any(path[0] not in self._table.schema.by_name for path in condition.columns()):
                raise
            return computed(condition, predicate.toString())

    def wide_filter(self, predicate: Any) -> Expression:
        """A filter that selects the rows that a predicate selects, and more: Spark applies it, too.

        Raises NotTheSame: There is none that prunes.
        """
        return predicate_filter(read_expression(predicate, self._schema), may_select_more=True)

    def sort_key(self, order: Any) -> SortKey:
        """The counterpart of one of Spark's sort orders.

        Raises NotTheSame: It is not by a stored column of a type that expressions can have.
        """
        node = read_expression(order.expression(), self._schema)
        (path,) = typed(node, None).columns() if node.operation == COLUMN else [("",)]
        if path[0] not in self._table.schema.by_name:
            raise NotTheSame(order.toString())
        nulls_first = order.nullOrdering().toString() == "NULLS FIRST"
        return SortKey(path, order.direction().toString() == "DESC", nulls_first)

    def functions(self, aggregation: Any) -> list[Function]:
        """The aggregate functions of an aggregation.

        Raises NotTheSame: One has no counterpart.
        """
        return [
            read_function(function, self._schema)
            for function in listed(aggregation.aggregateExpressions())
        ]

    def keys(self, aggregation: Any) -> list[Node]:
        """The keys of an aggregation; raises as `functions`."""
        return [
            read_expression(key, self._schema) for key in listed(aggregation.groupByExpressions())
        ]

    def grouping(self, keys: Sequence[Node], functions: Sequence[Function]) -> Grouping:
        """What tasks compute of an aggregation.

        Raises NotTheSame: A part has no exact counterpart.
        """
        return Grouping(
            tuple(evaluated(key, self.bounds) for key in keys),
            tuple(map(self._aggregate, functions)),
        )

    def _aggregate(self, function: Function) -> Aggregate:
        if function.kind not in _KINDS or function.is_distinct:
            raise NotTheSame(function.text)
        kind = _KINDS[function.kind]
        if function.of is None:
            return Aggregate(kind)
        of = evaluated(function.of, self.bounds)
        if kind == SUM and not (of.is_exact or isinstance(of.type, FLOATS)):
            raise NotTheSame(f"sum of {of.type.simpleString()}")
        return Aggregate(kind, of)

    def averages_fit(self, functions: Sequence[Function]) -> bool:
        """Whether averages of integers can be computed from their sums.

        Spark averages integers as floats, but asks for their sum as an integer, which may overflow.
        """
        try:
            averages = [
                typed(function.of, self.bounds)
                for function in functions
                if function.kind == "Avg" and function.of is not None
            ]
        except NotTheSame:
            return False
        bounds = [average.bounds for average in averages if type(average.type) in INTEGERS]
        if not bounds:
            return True
        rows = self.everything.plan().rows
        return all(most is not None and max(map(abs, most)) * rows < 2**63 for most in bounds)

    def bounds(self, path: tuple[str, ...]) -> tuple[int, int] | None:
        """The least and greatest integer or unscaled decimal of a column, if metadata have them."""
        schema = self._table.schema
        known = self.everything.known_min_max(path) if path[0] in schema.by_name else None
        if known is None:
            return None
        value = spark_schema(pa.schema([("value", known[0].type)]), where=self._table.location)
        held = exchange_schema(value)[0].type  # no negative scale
        low, high = (number_of(bound.cast(held)) for bound in known)
        return None if low is None or high is None else (low, high)
