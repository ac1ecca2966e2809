"""Schemas that a branch and its parent changed, merged by field id: a pure function."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from fermion_table.schema.schema import Field, TableSchema

_Value = TypeVar("_Value")
_ATTRIBUTES = {
    "partition_by": "the partitioning",
    "primary_key": "the primary key",
    "sort_by": "the sort order",
    "bucket_counts": "the number of buckets",
}


class SchemaClash(Exception):
    """Both sides changed the same part of the schema."""


def merged_schema(base: TableSchema, branch: TableSchema, target: TableSchema) -> TableSchema:
    """A schema with what both sides changed; its id and ancestors are still the target's.

    A column that the branch added gets a new id, as the target may have used the same one.

    Raises
    ------
    SchemaClash
        Both sides changed a column, a setting, or something else of the schema, in different ways;
        or both added a column of the same name.
    """
    fields = _merged_fields(base, branch, target)
    names = [each.name for each in fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaClash(f"both have added or renamed a column {name!r}")
    others: dict[str, Any] = {
        name: _three_way(what, *(getattr(each, name) for each in (base, branch, target)))
        for name, what in _ATTRIBUTES.items()
    }
    return msgspec.structs.replace(
        target,
        fields=tuple(fields),
        last_field_id=max([target.last_field_id, *_ids(fields)]),
        properties=_merged_map("property", base.properties, branch.properties, target.properties),
        stored_metadata=_merged_map(
            "schema metadata", base.stored_metadata, branch.stored_metadata, target.stored_metadata
        ),
        **others,
    )


def _merged_fields(base: TableSchema, branch: TableSchema, target: TableSchema) -> list[Field]:
    """The columns in the target's order, then those that the branch added."""
    before, mine, theirs = (
        {each.id: each for each in schema.fields} for schema in (base, branch, target)
    )
    known, next_id = set(_ids(base.fields)), target.last_field_id
    fields: list[Field] = []
    for each in target.fields:
        if each.id not in before:
            fields.append(each)
            continue
        kept = _three_way(
            f"column {before[each.id].name!r}",
            before[each.id],
            mine.get(each.id),
            theirs.get(each.id),
        )
        if kept is not None and kept != each:  # the branch's; fields within it may be new
            kept, next_id = _renumbered(kept, known, next_id)
        if kept is not None:
            fields.append(kept)
    for each in base.fields:  # dropped by the target
        if each.id not in theirs:
            _three_way(f"column {each.name!r}", each, mine.get(each.id), None)
    for each in branch.fields:
        if each.id not in before:
            renumbered, next_id = _renumbered(each, set(), next_id)
            fields.append(renumbered)
    return fields


def _renumbered(field: Field, kept: set[int], last_id: int) -> tuple[Field, int]:
    """A field with new ids for itself and those below it, but for ids that are kept."""
    number = field.id
    if number not in kept:
        last_id += 1
        number = last_id
    children = []
    for child in field.children:
        made, last_id = _renumbered(child, kept, last_id)
        children.append(made)
    renumbered = msgspec.structs.replace(field, id=number)
    return (renumbered.with_children(children) if children else renumbered), last_id


def _ids(fields: Iterable[Field]) -> list[int]:
    return [each.id for top in fields for _, each in top.walk()]


def _merged_map(
    what: str, base: Mapping[str, str], branch: Mapping[str, str], target: Mapping[str, str]
) -> dict[str, str]:
    merged = {}
    for name in dict.fromkeys((*target, *branch, *base)):
        values = (each.get(name) for each in (base, branch, target))
        value = _three_way(f"{what} {name!r}", *values)
        if value is not None:
            merged[name] = value
    return merged


def _three_way(what: str, base: Hashable, branch: _Value, target: _Value) -> _Value:
    """What one side made of a part of the schema, if the other left it as it was.

    Raises
    ------
    SchemaClash
    """
    if branch in (base, target):
        return target
    if target == base:
        return branch
    raise SchemaClash(f"both have changed {what}")
