"""Parts of Variant columns in filters: their types in SQL, and their values of whole ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fermion import variant
from fermion.columns.types import is_variant
from fermion.errors import InvalidArgumentError
from fermion.predicate.evaluate import evaluate
from fermion.predicate.expression import (
    SQL_TYPES,
    VALUE,
    Expression,
    Path,
    VariantCondition,
    VariantValue,
)

_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


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
    known = ", ".join(SQL_TYPES)
    raise InvalidArgumentError(f"{where}: type {name!r}: expected {known} or decimal(p, s)")


def bound(
    node: VariantCondition,
    schema: pa.Schema,
    bind_leaf: Callable[[Expression, Path, pa.DataType], Expression],
) -> VariantCondition:
    """A filter of a part of a column of a schema.

    bind_leaf: Binds a comparison to a path of a type.
    Raises InvalidArgumentError: The column is no Variant, or a literal is of another type.
    """
    (column,), value = node.paths[0], node.value
    field = schema.field(column)
    if not is_variant(field):
        raise InvalidArgumentError(
            f"{value.to_sql()}: column {column!r} is {field.type}, expected a Variant column"
        )
    inner = bind_leaf(node.inner, VALUE, value.type)
    return replace(node, function=partial(_of_value, inner, value), inner=inner)


def _of_value(inner: Expression, value: VariantValue, storage: pa.Array) -> Any:
    """Whether the part of each value matches: a ``pyarrow.BooleanArray``."""
    whole = pa.ExtensionArray.from_storage(variant.VariantType(storage.type), storage)
    found = variant.get(whole, value.steps, value.type, strict=value.strict)
    return evaluate(inner, pa.record_batch([found], [VALUE[0]]))
