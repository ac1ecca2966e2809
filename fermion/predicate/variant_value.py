"""Parts of Variant columns in filters: their types in SQL, and their values of whole ones."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fermion.columns.types import is_variant
from fermion.errors import InvalidArgumentError
from fermion.predicate.evaluate import evaluate
from fermion.predicate.expression import (
    SQL_TYPES,
    VALUE,
    Expression,
    VariantCondition,
    VariantValue,
)
from fermion.variant import parse_path

_CALL = re.compile(
    r"""\s*(try_)?variant_get\(\s*("(?:[^"]|"")+"|[^"'(),]*[^"'(),\s])\s*,"""
    r"""\s*'((?:[^']|'')*)'\s*,\s*'([^']*)'\s*\)\s*""",
    re.IGNORECASE | re.DOTALL,
)
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_value(text: str, where: str) -> VariantValue | None:
    """What a call of ``variant_get`` or ``try_variant_get`` means; None: the text is none.

    Raises InvalidArgumentError: A path that is none, or no type.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    attempt, column, path, name = match.groups()
    if column.startswith('"'):
        column = column[1:-1].replace('""', '"')
    steps = parse_path(path.replace("''", "'"), where)
    return VariantValue(column, steps, type_of_sql(name, where), strict=not attempt)


def check_variant(value: VariantValue, field: pa.Field) -> None:
    """Refuse a column that is not Variant.

    Raises InvalidArgumentError: It is none.
    """
    if not is_variant(field):
        raise InvalidArgumentError(
            f"{value.to_sql()}: column {value.path[0]!r} is {field.type}, expected a Variant column"
        )


def type_of_sql(name: str, where: str) -> pa.DataType:
    """The type that SQL calls so.

    Raises InvalidArgumentError: There is none.
    """
    plain = name.strip().lower()
    if plain in SQL_TYPES:
        return SQL_TYPES[plain]
    match = _DECIMAL.fullmatch(plain)
    if match is not None and 0 < int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    with contextlib.suppress(ValueError):
        return pa.type_for_alias(plain)  # Arrow's own names
    known = ", ".join(SQL_TYPES)
    raise InvalidArgumentError(f"{where}: type {name!r}: expected {known} or decimal(p, s)")


def bound(node: VariantCondition, schema: pa.Schema, inner: Expression) -> VariantCondition:
    """A filter of a part of a column of a schema.

    inner: The filter of the part, bound to its type.
    Raises InvalidArgumentError: The column is no Variant.
    """
    (column,), value = node.paths[0], node.value
    if column == value.to_sql():
        return replace(node, function=partial(_matches, inner), inner=inner)
    check_variant(value, schema.field(column))
    return replace(node, function=partial(_of_value, inner, value), inner=inner)


def _matches(inner: Expression, parts: pa.Array) -> Any:
    """Whether each part matches: a ``pyarrow.BooleanArray``."""
    return evaluate(inner, pa.record_batch([parts], [VALUE[0]]))


def _of_value(inner: Expression, value: VariantValue, storage: pa.Array) -> Any:
    """Whether the part of each value matches: a ``pyarrow.BooleanArray``."""
    values = value.values_of(storage)
    return value.chosen(_matches(inner, values), values, storage)
