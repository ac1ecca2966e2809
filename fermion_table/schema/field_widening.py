"""A field of a schema under a wider type: ids, defaults and nested fields stay what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression, col
from fermion_table.schema import value_codec
from fermion_table.schema.from_arrow import fields_from_arrow
from fermion_table.schema.schema import KEY, Field, Path
from fermion_table.schema.widening import always_fits, can_widen


def widened(
    field: Field, dtype: pa.DataType, last: int, path: Path, *, is_key: bool
) -> tuple[Field, int]:
    """A field under a wider type, and the greatest id in use then."""
    old = field.type
    if old.equals(dtype):
        return field, last
    ((target,), fresh) = fields_from_arrow([pa.field(field.name, dtype)], last)
    if pa.types.is_null(old):
        return msgspec.structs.replace(field, stored_type=target.stored_type), fresh
    if not field.children:
        if target.children or not can_widen(old, dtype):
            raise refused(path, old, dtype, "not every value would stay the same")
        return _with_plain_type(field, target), last
    same_kind = target.kind == field.kind and len(target.children) > 0
    if not same_kind or not _same_shape(field, target):
        raise refused(path, old, dtype, "the kind of nesting differs")
    if field.kind == "struct":
        return _widened_struct(field, dtype, last, path, is_key=is_key)
    children = []
    for name, child, new in zip(field.child_names(), field.children, target.children, strict=True):
        below, key = (*path, name), is_key or name == KEY
        wide, last = widened(child, new.type, last, below, is_key=key)
        children.append(wide)
    return field.with_children(children), last


def _with_plain_type(field: Field, target: Field) -> Field:
    """A field under a wider type; its defaults are spelled anew."""
    dtype = target.type

    def respelled(scalar: pa.Scalar | None) -> Any:
        try:
            return None if scalar is None else value_codec.encode_value(scalar.cast(dtype))
        except pa.ArrowException as error:
            raise refused((field.name,), field.type, dtype, f"its default: {error}") from None

    return msgspec.structs.replace(
        field,
        stored_type=target.stored_type,
        stored_initial_default=respelled(field.initial_default),
        stored_write_default=respelled(field.write_default),
    )


def _same_shape(field: Field, target: Field) -> bool:
    one, other = field.stored_type, target.stored_type
    assert not isinstance(one, str)
    assert not isinstance(other, str)
    return (one.length, one.keys_sorted) == (other.length, other.keys_sorted)


def _widened_struct(
    field: Field, dtype: pa.StructType, last: int, path: Path, *, is_key: bool
) -> tuple[Field, int]:
    wanted = {item.name: item for item in dtype}
    children = []
    for child in field.children:
        item = wanted.pop(child.name, None)
        if item is None:
            raise refused(path, field.type, dtype, f"field {child.name!r} is missing: drop it")
        wide, last = widened(child, item.type, last, (*path, child.name), is_key=is_key)
        children.append(wide)
    if wanted and is_key:
        raise refused(path, field.type, dtype, "a map's keys get no new fields")
    if any(not item.nullable for item in wanted.values()):
        raise refused(path, field.type, dtype, "a new field must be nullable: add it by itself")
    added, last = fields_from_arrow(wanted.values(), last)
    return field.with_children((*children, *added)), last


def ranges_lost(old: Iterable[Field], new: Iterable[Field]) -> Iterator[tuple[Path, Field, Field]]:
    """Fields whose new type can't hold every value of the old one.

    Yields: The path in the new fields, and the field as it was and as it is.
    """
    for path, known, each in _changed(old, new):
        if not (each.children or always_fits(known.type, each.type)):
            yield path, known, each


def narrowed(old: Iterable[Field], new: Iterable[Field]) -> Iterator[tuple[Path, Field, Field]]:
    """Fields whose type is neither what it was nor a wider one, as after a restore.

    Yields: The path in the new fields, and the field as it was and as it is.
    """
    for path, known, each in _changed(old, new):
        if known.children or each.children:
            is_same = known.kind == each.kind and _same_shape(known, each)
            if not (is_same or pa.types.is_null(known.type)):
                yield path, known, each
        elif not can_widen(known.type, each.type):
            yield path, known, each


def _changed(old: Iterable[Field], new: Iterable[Field]) -> Iterator[tuple[Path, Field, Field]]:
    """Fields of another type than before."""
    before = {each.id: each for top in old for _, each in top.walk()}
    for top in new:
        for path, each in top.walk():
            known = before.get(each.id)
            if known is not None and known.stored_type != each.stored_type:
                yield path, known, each


def beyond(path: Path, dtype: pa.DataType) -> Expression:
    """A filter that selects the rows whose value at a path a type of time can't hold."""
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    low, high = (pa.scalar(each, pa.int64()).cast(dtype) for each in (1 - 2**63, 2**63 - 1))
    return (col(*path) < low) | (col(*path) > high)


def refused(path: Path, old: pa.DataType, new: pa.DataType, why: str) -> InvalidArgumentError:
    """The error of a column whose type can't change so."""
    return InvalidArgumentError(f"column {dotted(path)!r} can't change from {old} to {new}: {why}")


def dotted(path: Path) -> str:
    """A path for messages."""
    return ".".join(path)
