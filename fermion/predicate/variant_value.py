"""Parts of Variant columns in filters: their types in SQL, and their values of whole ones."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns import variants
from fermion.columns.types import is_variant
from fermion.errors import InvalidArgumentError
from fermion.predicate.evaluate import evaluate
from fermion.predicate.expression import (
    SQL_TYPES,
    VALUE,
    Expression,
    VariantCondition,
    VariantValue,
    column_text,
    steps_text,
)
from fermion.variant import from_json, parse_path

_CALL = re.compile(
    r"""\s*(try_)?variant_get\(\s*("(?:[^"]|"")+"|[^"'(),]*[^"'(),\s])\s*,"""
    r"""\s*'((?:[^']|'')*)'\s*,\s*'([^']*)'\s*\)\s*""",
    re.IGNORECASE | re.DOTALL,
)
_PRUNED = re.compile(
    r"""variant_parts(_nulls)?\(("(?:[^"]|"")+"|[^"'(),]*[^"'(),\s])((?:, '(?:[^']|'')*')+)\)""",
    re.DOTALL,
)
_VARIANT = variants.VariantType()
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_value(text: str, where: str) -> VariantValue | None:
    """What a call of ``variant_get`` or ``try_variant_get`` means; None: the text is none.

    A call of ``variant_parts``, too, which engines make: see `PrunedVariant`.

    Raises InvalidArgumentError: A path that is none, or no type.
    """
    if (match := _PRUNED.fullmatch(text)) is not None:
        found = re.findall(r"'((?:[^']|'')*)'", match[3])
        paths = [tuple(map(str, parse_path(each.replace("''", "'"), where))) for each in found]
        return PrunedVariant(_unquoted(match[2]), paths, with_nulls=match[1] is not None)
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    attempt, column, path, name = match.groups()
    steps = parse_path(path.replace("''", "'"), where)
    return VariantValue(_unquoted(column), steps, type_of_sql(name, where), strict=not attempt)


def _unquoted(column: str) -> str:
    return column[1:-1].replace('""', '"') if column.startswith('"') else column


class PrunedVariant(VariantValue):
    """A Variant column of which some paths are wanted: the values may lack everything else.

    Of files where each path has a column that holds all its values, only these are read; of others
    that have columns of paths, what is not in columns as well. What was null is null.

    paths: Names of fields.
    with_nulls: Whether a Variant null at a path is wanted, which may be missing otherwise.
    """

    __slots__ = ("wanted",)
    wanted: tuple[tuple[variants.Path, ...], bool]

    def __init__(
        self,
        column: str,
        paths: Iterable[variants.Path],
        with_nulls: bool,
        type: variants.VariantType = _VARIANT,
    ) -> None:
        super().__init__(column, (), type)
        every = set(paths)
        outer = sorted(path for path in every if not {path[:n] for n in range(len(path))} & every)
        object.__setattr__(self, "wanted", (tuple(outer), with_nulls))

    def __reduce__(self) -> tuple[Any, ...]:
        return PrunedVariant, (self.path[0], *self.wanted, self.type)

    def __hash__(self) -> int:
        return hash((self.path, self.wanted, self.type))

    def of(self, column: str, type: variants.VariantType | None = None) -> PrunedVariant:
        """The same of a column of another name, and another type."""
        return PrunedVariant(column, *self.wanted, type or self.type)

    def values_of(self, array: pa.Array) -> pa.Array:
        """Whole values."""
        storage = variants.storage_of(array)
        return pa.ExtensionArray.from_storage(variants.VariantType(storage.type), storage)

    def to_sql(self) -> str:
        """A call of ``variant_parts`` or ``variant_parts_nulls``, which only engines make."""
        paths, with_nulls = self.wanted
        arguments = ", ".join([column_text(self.path), *map(steps_text, paths)])
        return f"variant_parts{'_nulls' * with_nulls}({arguments})"

    def assemble(
        self, rest: pa.Array, kinds: np.ndarray, columns: Sequence[pa.Array], where: str
    ) -> pa.Array:
        """Values of columns of all paths, and of nothing else.

        rest: Null where the values are.
        kinds: ``uint8``, the numbers of the types of the columns.
        Raises as `fermion.columns.variants.PathTree.assemble`.
        """
        paths, _ = self.wanted
        nested: dict[str, Any] = {}
        for path in paths:
            below = nested
            for name in path[:-1]:
                below = below.setdefault(name, {})
            below[path[-1]] = ""
        names = from_json([json.dumps(nested)])
        texts = variants.PathTree(paths, np.full(len(kinds), variants.TEXT))
        objects, ends, *_ = kernels.split_variants(
            *variants.values_of(names), *texts.arguments, np.zeros(len(kinds), np.uint8)
        )
        empty = variants.storage_of(variants.with_values(names, objects, ends))
        every = pa.array(np.zeros(len(rest), np.int32))
        fields = list(self.type.storage_type)
        constants = [empty.field(each.name).cast(each.type).take(every) for each in fields]
        values = pa.StructArray.from_arrays(constants, fields=fields, mask=rest.is_null())
        tree = variants.PathTree(paths, kinds)
        return tree.assemble(self.values_of(values), range(len(kinds)), columns, where)


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
