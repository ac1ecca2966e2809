"""A filter in any form that an API takes becomes a tree, bound to a schema.

Paths are resolved, literals checked, columns renamed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.maps import split_key_name
from fermion.columns.types import VARIANT, is_list, strip_wrappers
from fermion.errors import ColumnNotFoundError, InvalidArgumentError, column_not_found
from fermion.exports import LoadedWhenAskedFor
from fermion.predicate.expression import (
    OPERATORS,
    VALUE,
    And,
    BooleanColumn,
    Comparison,
    Computed,
    Constant,
    Expression,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Opaque,
    Or,
    Path,
    StartsWith,
    VariantCondition,
    VariantValue,
    as_predicate,
    column_text,
    conjunction,
    disjunction,
    literal_set,
)
from fermion.predicate.key_condition import key_condition
from fermion.predicate.literals import bind_literal, family, normalize

if TYPE_CHECKING:
    from fermion.predicate import arrow_expression, sql, variant_value
else:  # few filters are text or of pyarrow, or ask for parts of Variant columns
    arrow_expression = LoadedWhenAskedFor("fermion.predicate.arrow_expression")
    sql = LoadedWhenAskedFor("fermion.predicate.sql")
    variant_value = LoadedWhenAskedFor("fermion.predicate.variant_value")

_DNF_OPERATORS = "=, ==, !=, <, >, <=, >=, in, not in"
_ADVICE = (
    "expected a list of (column, operator, value) tuples, which are ANDed, or a list of such "
    "lists, which are ORed"
)


def parse_filter(given: Any, schema: pa.Schema | None = None) -> Expression | None:
    """A filter in any form as a tree, bound to the schema if there is one.

    Parameters
    ----------
    given
        An `Expression`, a SQL string, DNF tuples, a ``pyarrow.compute.Expression``, a
        ``polars.Expr``, a bool, or None for no filter.
    schema
        What to bind to; None leaves columns and literals unchecked.

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
        expression = sql.from_sql(given)
    elif isinstance(given, pc.Expression):
        expression = arrow_expression.from_pyarrow(given)
    elif isinstance(given, (list, tuple)):
        expression = from_dnf(given)
    elif "polars" in sys.modules and isinstance(given, sys.modules["polars"].Expr):
        from fermion.predicate.polars_expression import from_polars

        expression = from_polars(given)
    else:
        raise InvalidArgumentError(
            f"filter of type {type(given).__name__}: expected fermion.col(...), a SQL string, "
            "DNF tuples as pyarrow has them, or an expression of pyarrow.compute or Polars"
        )
    return expression if schema is None else bind(expression, schema)


def from_engine(expression: pc.Expression) -> Expression:
    """A filter that a query engine pushes down into a dataset of pyarrow.

    Its ``isin`` finds NaN where a NaN is among the values, as pyarrow's does and engines expect.
    """

    def leaf(node: Expression) -> Expression:
        if isinstance(node, IsIn) and any(value != value for value in node.values):
            return node | IsNan(node.path)
        return node

    return transform(arrow_expression.from_pyarrow(expression), leaf)


def from_dnf(filters: Sequence[Any]) -> Expression:
    """``[("a", ">", 1), ("b", "in", [1, 2])]``, or a list of such lists, as a filter.

    As in pyarrow, ``in`` is FALSE, not NULL, for NULL, so that ``not in`` selects NULLs, and None
    among the values matches NULL. Values compare as ``==`` does, which in pyarrow they do not: a
    NaN among them matches nothing, and ``0.0`` and ``-0.0`` match each other.

    Raises InvalidArgumentError: For any other shape or operator.
    """
    if isinstance(filters, tuple) and len(filters) == 3 and isinstance(filters[1], str):
        filters = [filters]
    if not filters:
        raise InvalidArgumentError(
            f"an empty list is not a filter: {_ADVICE}, or None for no filter"
        )
    if all(isinstance(member, tuple) and _is_predicate(member) for member in filters):
        return conjunction(_predicate(member) for member in filters)
    groups = []
    for group in filters:
        if not isinstance(group, (list, tuple)) or not group or isinstance(group[0], str):
            raise InvalidArgumentError(f"filter {filters!r}: {_ADVICE}")
        groups.append(conjunction(_predicate(member) for member in group))
    return disjunction(groups)


def _is_predicate(member: tuple[Any, ...]) -> bool:
    return len(member) == 3 and isinstance(member[1], str)


def _predicate(member: Any) -> Expression:
    if not isinstance(member, (tuple, list)) or not _is_predicate(tuple(member)):
        raise InvalidArgumentError(f"filter {member!r}: {_ADVICE}")
    column, operator, value = member
    path = _path(column)
    word = " ".join(operator.lower().split())
    if word == "=":
        word = "=="
    if word in OPERATORS:
        return Comparison(path, word, normalize(value))
    if word in ("in", "not in"):
        values = literal_set(value)
        known = tuple(item for item in values if item is not None)
        if len(known) < len(values):
            matches = IsNull(path) | IsIn(path, known)
        else:
            matches = Not(IsNull(path)) & IsIn(path, known)
        return matches if word == "in" else ~matches
    raise InvalidArgumentError(
        f"filter {member!r}: unknown operator {operator!r}; expected one of {_DNF_OPERATORS}"
    )


def _path(column: Any) -> Path:
    if isinstance(column, str):
        return (column,)
    if isinstance(column, tuple) and column and all(isinstance(name, str) for name in column):
        return column
    raise InvalidArgumentError(
        f"filter column {column!r}: expected a name, or a tuple of names for a field of a struct"
    )


def bind(
    expression: Expression,
    schema: pa.Schema,
    *,
    where: str = "filter",
    known: Iterable[str] | None = None,
) -> Expression:
    """Resolve a filter's columns against a schema and check its literals against their types.

    Parameters
    ----------
    where
        The file or table, for messages.
    known
        Names to suggest for a missing column, where ``schema`` holds only some columns.

    Raises
    ------
    ColumnNotFoundError
        For a missing column, naming the closest ones.
    InvalidArgumentError
        For an ambiguous name, and for a literal that the column's type cannot be compared with
        (both types are named).
    """
    names = schema.names if known is None else known

    def leaf(node: Expression) -> Expression:
        if isinstance(node, Constant):
            return node
        if isinstance(node, Opaque | Computed):
            by_key = with_keys(node, partial(_has_integer_keys, schema))
            if by_key is not node:
                return bind(by_key, schema, where=where, known=known)
            bound = _bind_opaque(node, schema, where, names)
            if isinstance(bound, VariantCondition):
                dtype = bound.value.type
                inner = transform(bound.inner, lambda each: _bind_leaf(each, VALUE, dtype))
                return variant_value.bound(bound, schema, inner)
            return bound
        path: Path = node.path  # type: ignore[attr-defined]
        if len(path) == 2 or "".join(path).endswith("]"):  # as paths to the value of a key
            of_key = key_condition(node, path, schema, _bind_leaf, where)
            if of_key is not None:
                return of_key
        part = _part_named(path, where) if schema.get_field_index(path[0]) < 0 else None
        if part is not None:
            return leaf(part.leaf(lambda value: rename_columns(node, {path: value})))
        resolved, dtype = resolve_path(path, schema, where=where, known=names)
        return _bind_leaf(node, resolved, dtype)

    return transform(as_predicate(expression), leaf)


def _part_named(path: Path, where: str) -> VariantValue | None:
    """The part of a Variant column that a name calls, as columns of parts are called."""
    return variant_value.parse_value(path[0], where) if path[0].endswith(")") else None


def with_keys(node: Expression, has_integer_keys: Callable[[str], bool]) -> Expression:
    """A leaf of a filter by the values of keys, if what it computes is that; else the leaf."""
    if not isinstance(node, Computed) or node.by_key is None:
        return node
    return node.by_key if all(has_integer_keys(path[0]) for path in node.paths) else node


def _has_integer_keys(schema: pa.Schema, name: str) -> bool:
    found = schema.get_all_field_indices(name)
    dtype = strip_wrappers(schema.field(found[0]).type) if len(found) == 1 else pa.null()
    return bool(pat.is_map(dtype) and pat.is_integer(dtype.key_type))


# Literals of these types are bound as they are.
_PLAIN_TYPES: dict[str, set[type]] = {"number": {int, float}, "string": {str, bytes}}


def transform(expression: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """The same tree with every leaf replaced by what ``leaf`` makes of it."""
    if isinstance(expression, And):
        return conjunction(transform(child, leaf) for child in expression.operands)
    if isinstance(expression, Or):
        return disjunction(transform(child, leaf) for child in expression.operands)
    if isinstance(expression, Not):
        return Not(transform(expression.operand, leaf))
    return leaf(as_predicate(expression))


def _bind_leaf(node: Expression, path: Path, dtype: pa.DataType) -> Expression:
    where = column_text(path)
    kind = family(dtype)
    match node:
        case Comparison(operator=operator, value=value):
            return Comparison(path, operator, bind_literal(value, dtype, where))
        case IsIn(values=values):
            if not values:
                return Constant(False)
            if set(map(type, values)) <= _PLAIN_TYPES.get(kind, set()):
                return IsIn(path, values)
            return IsIn(path, tuple(bind_literal(value, dtype, where) for value in values))
        case IsNull():
            return IsNull(path)
        case BooleanColumn():
            _expect(kind, ("boolean",), where, dtype, "a bare column has to be boolean; compare it")
            return BooleanColumn(path)
        case IsNan():
            _expect(kind, ("number",), where, dtype, "is_nan() needs a number")
            return IsNan(path)
        case StartsWith(prefix=prefix):
            _expect(kind, ("string",), where, dtype, "starts_with() needs strings or binary")
            return StartsWith(path, prefix)
    raise InvalidArgumentError(f"{node!r} cannot be bound to a schema")


def _expect(
    kind: str, wanted: tuple[str, ...], where: str, dtype: pa.DataType, advice: str
) -> None:
    if kind not in (*wanted, "null"):
        raise InvalidArgumentError(f"column {where} is {dtype}: {advice}")


def _bind_opaque(
    node: Opaque | Computed, schema: pa.Schema, where: str, known: Iterable[str]
) -> Expression:
    if isinstance(node, Opaque) and node.positional:
        return Opaque(node.expression, tuple((name,) for name in schema.names), positional=True)
    dtypes = []
    for path in node.paths:
        try:
            dtypes.append(strip_wrappers(_walk(path, schema, where, known)))
        except ColumnNotFoundError as error:
            raise (node.missing(error, path) if isinstance(node, Computed) else error) from None
    return node.bound(schema, dtypes) if isinstance(node, Computed) else node


def resolve_path(
    path: Path, schema: pa.Schema, *, where: str = "schema", known: Iterable[str] | None = None
) -> tuple[Path, pa.DataType]:
    """The path that a name or path means, and its type.

    A single name is first looked for as it is, then, if it holds dots, as a path into structs.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    InvalidArgumentError
        If several columns have the name, or the path leads into something that is no struct.
    """
    names = schema.names if known is None else known
    if len(path) == 1 and "." in path[0] and not schema.get_all_field_indices(path[0]):
        found = next(_dotted(path[0], schema), None)
        path = found if found is not None else _best_effort(path[0], schema)
    return path, _walk(path, schema, where, names)


def _best_effort(text: str, schema: pa.Schema) -> Path:
    """The reading of a dotted text whose error message says most."""
    first = text.partition(".")[0]
    return tuple(text.split(".")) if schema.get_all_field_indices(first) else (text,)


def _dotted(text: str, fields: Iterable[pa.Field]) -> Iterator[Path]:
    """Paths that a dotted text can mean; names that hold dots themselves are tried too."""
    fields = list(fields)
    for item in fields:
        if item.name == text:
            yield (text,)
    for item in fields:
        storage = strip_wrappers(item.type)
        if pat.is_struct(storage) and text.startswith(item.name + "."):
            for rest in _dotted(text[len(item.name) + 1 :], storage):
                yield (item.name, *rest)


def _walk(path: Path, schema: pa.Schema, where: str, known: Iterable[str]) -> pa.DataType:
    container: pa.Schema | pa.StructType = schema
    dtype = pa.null()
    for depth, name in enumerate(path):
        ordinals = container.get_all_field_indices(name)
        shown = column_text(path[: depth + 1])
        if not ordinals:
            above = path[:depth]
            if above and getattr(dtype, "extension_name", "") == VARIANT:
                raise ColumnNotFoundError(
                    f"{where}: no column {column_text(path)}: {column_text(above)} is a Variant; "
                    f"write variant_get({column_text(above)}, '$.{name}', 'bigint'), or the like"
                )
            inside = [".".join((*above, item.name)) for item in container] if above else known
            raise column_not_found(".".join(path[: depth + 1]), inside, where=where)
        if len(ordinals) > 1:
            raise InvalidArgumentError(
                f"{where}: {len(ordinals)} columns are named {shown}; a filter needs one: "
                "rename the others"
            )
        dtype = container.field(ordinals[0]).type
        if depth + 1 == len(path):
            return dtype
        container = strip_wrappers(dtype)
        if not pat.is_struct(container):
            kind = "a list or map" if is_list(container) or pat.is_map(container) else str(dtype)
            raise ColumnNotFoundError(
                f"{where}: no column {column_text(path)}: {shown} is {kind}, not a struct"
            )
    raise InvalidArgumentError(f"{where}: an empty path names no column")


def candidate_names(expression: Expression) -> set[str] | None:
    """Top-level names that an unbound filter may mean; None where it may need every column.

    With the fields of these names alone, as far as they exist, `bind` works as with all.
    """
    found: set[str] = set()
    for node in expression.walk():
        if isinstance(node, Opaque) and node.positional:
            return None
    for path in expression.columns():
        found.add(path[0])
        if path[0].endswith("]"):
            found.add((split_key_name(path[0]) or path)[0])
        with suppress(InvalidArgumentError):  # a column may have such a name
            part = _part_named(path, "filter")
            if part is not None:
                found.add(part.path[0])
        if len(path) == 1:
            parts = path[0].split(".")
            found.update(".".join(parts[:count]) for count in range(1, len(parts)))
    return found


def rename_columns(expression: Expression, mapping: Mapping[Path, Path]) -> Expression:
    """A bound filter over other names: each path, or the longest prefix of it, is replaced.

    Parameters
    ----------
    mapping
        From path to path; paths that are not in it stay.

    Raises
    ------
    InvalidArgumentError
        For a pyarrow expression that names columns by position.
    """

    def renamed(path: Path) -> Path:
        for length in range(len(path), 0, -1):
            target = mapping.get(path[:length])
            if target is not None:
                return (*target, *path[length:])
        return path

    def leaf(node: Expression) -> Expression:
        if isinstance(node, Opaque):
            return arrow_expression.rename(node, renamed)
        if isinstance(node, Computed):
            return replace(node, paths=tuple(map(renamed, node.paths)))
        if isinstance(node, Constant):
            return node
        path: Path = node.path  # type: ignore[attr-defined]
        return replace(node, path=renamed(path))  # type: ignore[type-var]

    return transform(expression, leaf)
