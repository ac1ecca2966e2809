"""SQL conditions of every kind: what statistics can't use, DuckDB computes from the columns.

DuckDB's tree of a text says where AND, OR and NOT part it. Each part becomes a filter of its own
if it is one, so that statistics and indexes serve it, and else a `Computed` filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate.expression import (
    Computed,
    Constant,
    Expression,
    Not,
    Path,
    column_text,
    conjunction,
    disjunction,
    quotes_advice,
)
from fermion.sql.expressions import SqlTree, SqlValues, alias, spelled

_LIKE = "~~"
_COMBINED = {"CONJUNCTION_AND": conjunction, "CONJUNCTION_OR": disjunction}
_LENGTHS = frozenset({"octet_length", "length"})
_COMPARED = "COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_GREATERTHAN"
_COMPARISONS = {*_COMPARED, "COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO"}


Translate = Callable[[str], Expression | None]
"""Gives the filter that a part of a text is by itself; None where it is none."""


def sql_condition(
    text: str, quoted: frozenset[str], translate: Translate, by_key: Translate
) -> Expression:
    """A SQL condition of one row as a filter.

    quoted: Names in double quotes, for messages.
    by_key: The same if numbers in brackets are keys of maps.
    Raises InvalidArgumentError: The text is no condition of one row, or DuckDB is not installed.
    """
    where = f"filter {text!r:.200}"

    def part(node: Mapping[str, Any]) -> Expression:
        kind = node["type"]
        if kind in _COMBINED:
            return _COMBINED[kind](map(part, node["children"]))
        if kind == "OPERATOR_NOT":
            return Not(part(node["children"][0]))
        own = spelled(node)
        if node.get("function_name") == _LIKE:
            own = " LIKE ".join(spelled(side["expression"]) for side in node["arguments"])
        filter_ = translate(own)
        if filter_ is not None:
            return filter_
        function = SqlCondition(SqlTree(own, where), where, own)
        if not function.paths:
            return Constant(function(rows=1)[0].as_py())
        return ComputedSql(function, function.paths, own, quoted, by_key(own))

    return part(SqlTree(text, where, checks=False).root)  # each part is checked by itself


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ComputedSql(Computed):
    """A part of a SQL text that DuckDB computes.

    quoted: Names that the text has in double quotes, which other systems take for text.
    by_key: See `Computed`.
    """

    function: SqlCondition
    quoted: frozenset[str]
    by_key: Expression | None

    def bound(self, schema: pa.Schema, dtypes: Sequence[pa.DataType]) -> Expression:
        """The filter; refuses types of the columns that DuckDB can't compute it from."""
        self.function.check(tuple(dtypes))
        return self

    def text_of_sizes(self, is_blob: Callable[[str], bool]) -> str | None:
        """See `Computed`."""
        if not any(is_blob(path[0]) for path in self.paths if len(path) == 1):
            return None
        root = SqlTree(self.text, self.text).root
        return spelled(root) if _take_sizes(root, is_blob) else None

    def missing(self, error: ColumnNotFoundError, path: Path) -> ColumnNotFoundError:
        """The error; of a name in double quotes it says how text is written."""
        if path[0] not in self.quoted:
            return error
        return ColumnNotFoundError(f"{error}; {quotes_advice(path[0])}")


def _take_sizes(node: Any, is_blob: Callable[[str], bool]) -> bool:
    """Put sizes in place of lengths below a node of DuckDB's tree; whether there are any."""
    if isinstance(node, list):
        return True in [_take_sizes(each, is_blob) for each in node]
    if not isinstance(node, dict):
        return False
    if node.get("function_name") in _LENGTHS and len(node["arguments"]) == 1:
        column = node["arguments"][0]["expression"]
        names = column.get("column_names", ())
        if len(names) == 1 and is_blob(names[0]):
            node.clear()
            node.update(column, column_names=[*names, "size"])
            return True
    return _take_sizes(list(node.values()), is_blob)


class SqlCondition:
    """Computes a condition with DuckDB. Picklable.

    A comparison of floats means what it means in other filters: NaN is neither less nor greater
    than a number, nor equal to NaN, though DuckDB sorts it above all numbers.

    where, text: Whose it is, and its text, for messages.

    Attributes:
    paths: The columns that it reads.
    """

    def __init__(self, tree: SqlTree, where: str, text: str) -> None:
        self.paths: tuple[Path, ...] = tuple(dict.fromkeys(tree.paths))
        self._where, self._text = where, text
        aliases = {path: (alias(at),) for at, path in enumerate(self.paths)}
        root = tree.renamed(aliases.__getitem__)
        self._differs = root["type"] == "COMPARE_NOTEQUAL"
        compared = [root["left"], root["right"]] if root["type"] in _COMPARISONS else []
        shown = [column_text(path) for path in self.paths]
        self._values = SqlValues([root, *compared], shown, where, text)
        self._taken: set[tuple[pa.DataType, ...]] = set()

    def check(self, dtypes: tuple[pa.DataType, ...]) -> None:
        """Refuse types of the columns that the text can't be computed from.

        Raises InvalidArgumentError.
        """
        if dtypes not in self._taken:
            self(*(pa.nulls(0, dtype) for dtype in dtypes))
            self._taken.add(dtypes)

    def __call__(self, *columns: pa.Array, rows: int | None = None) -> pa.BooleanArray:
        """Whether each row matches: TRUE, FALSE or NULL.

        columns: Those at `paths`.
        rows: How many there are, if there are no columns.
        Raises InvalidArgumentError: The types do not fit, a value can't be computed, or the text
            gives no booleans.
        """
        count = len(columns[0]) if rows is None else rows
        matches, *compared = self._values.compute(columns, count)
        if pat.is_null(matches.type):
            return pa.nulls(count, pa.bool_())
        if not pat.is_boolean(matches.type):
            raise InvalidArgumentError(
                f"{self._where}: {self._text} gives {matches.type}; a filter has to give booleans"
            )
        for values in compared:
            if pat.is_floating(values.type):
                unordered = pc.fill_null(pc.is_nan(values), False)
                fixed = pc.if_else(pc.is_valid(matches), self._differs, None)
                matches = pc.if_else(unordered, fixed, matches)
        return matches
