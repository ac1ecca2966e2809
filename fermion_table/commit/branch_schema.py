"""Schemas that a branch and its parent changed, merged by field id: pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.metadata.manifest import Entry, Runs, field_id_runs, ids_in
from fermion_table.schema.key_statistics import with_key_statistics
from fermion_table.schema.schema import ColumnIndex, Field, KeyStatistics, Path, TableSchema

_Value = TypeVar("_Value")
_ATTRIBUTES = {
    "partition_by": "the partitioning",
    "primary_key": "the primary key",
    "sort_by": "the sort order",
    "bucket_counts": "the number of buckets",
}


class SchemaClash(Exception):
    """Both sides changed the same part of the schema."""


@dataclass(frozen=True, slots=True)
class NewIds:
    """The field ids of a branch, as ids of its parent: made by `new_ids`.

    known_max: The greatest id that both had before: ids up to it stay.
    shift: By how much the others grow, as the parent may have used the same ones.
    alike: Ids of columns that both have added alike, and what the parent calls them.
    """

    known_max: int
    shift: int
    alike: Mapping[int, int]

    def __getitem__(self, number: int) -> int:
        if number <= self.known_max:
            return number
        return self.alike.get(number, number + self.shift)

    def schema(self, schema: TableSchema) -> TableSchema:
        """A schema version of the branch under the new ids."""
        return msgspec.structs.replace(
            schema,
            fields=tuple(self._field(field) for field in schema.fields),
            last_field_id=schema.last_field_id + self.shift,
            partition_by=tuple(
                msgspec.structs.replace(part, source_id=self[part.source_id])
                for part in schema.partition_by
            ),
            primary_key=tuple(self[number] for number in schema.primary_key),
            sort_by=tuple(self[number] for number in schema.sort_by),
            indexes=tuple(ColumnIndex(field=self[x.field], kind=x.kind) for x in schema.indexes),
            statistics_keys=tuple(
                KeyStatistics(field=self[x.field], key=x.key, id=self[x.id])
                for x in schema.statistics_keys
            ),
        )

    def _field(self, field: Field) -> Field:
        children = field.children
        if children:
            field = field.with_children(self._field(child) for child in children)
        number = self[field.id]
        return field if number == field.id else msgspec.structs.replace(field, id=number)

    def entry(
        self, entry: Entry, versions: Mapping[int, TableSchema], stored: Mapping[int, int]
    ) -> Entry:
        """An entry of the branch under the new ids.

        versions: The branch's schema versions that files were written with.
        stored: The ids that those of them got that the parent does not have.
        """
        known = {field.id for each in entry.schema_ids for field in versions[each].fields}
        return msgspec.structs.replace(
            entry,
            schema_id=stored.get(entry.schema_id, entry.schema_id),
            columns=None if entry.columns is None else self._runs(entry.columns, known),
            stats={self[number]: statistics for number, statistics in entry.stats.items()},
            column_files=tuple(
                msgspec.structs.replace(
                    file,
                    schema_id=stored.get(file.schema_id, file.schema_id),
                    fields=self._runs(file.fields, known),
                )
                for file in entry.column_files
            ),
            indexes=tuple(
                msgspec.structs.replace(each, field=self[each.field]) for each in entry.indexes
            ),
        )

    def _runs(self, runs: Runs, known: Iterable[int]) -> Runs:
        return field_id_runs(self[number] for number in ids_in(runs, known))


def new_ids(base: TableSchema, branch: TableSchema, target: TableSchema) -> NewIds:
    """What the ids of a branch become in its parent.

    A column that both have added with the same name, type and other attributes is one column.
    """
    known = base.last_field_id
    theirs = {field.name: field for field in target.fields if field.id > known}
    alike: dict[int, int] = {}
    for field in branch.fields:
        other = theirs.get(field.name)
        if field.id > known and other is not None and _without_ids(field) == _without_ids(other):
            both = zip(field.walk(), other.walk(), strict=True)
            alike.update((mine.id, other.id) for (_, mine), (_, other) in both)
    return NewIds(known, target.last_field_id - known, alike)


def _without_ids(field: Field) -> Field:
    children = field.children
    if children:
        field = field.with_children(_without_ids(child) for child in children)
    return msgspec.structs.replace(field, id=0)


def merged_schema(base: TableSchema, branch: TableSchema, target: TableSchema) -> TableSchema:
    """A schema with what both sides changed; its id and ancestors are still the target's.

    branch: Under the ids of the target: see `NewIds.schema`.
    Raises SchemaClash: Both sides changed a column, a setting, or something else of the schema, in
        different ways; both added different columns of one name; or one dropped what the other
        needs.
    """
    others: dict[str, Any] = {
        name: _three_way(what, *(getattr(side, name) for side in (base, branch, target)))
        for name, what in _ATTRIBUTES.items()
    }
    merged = msgspec.structs.replace(
        target,
        fields=_merged_fields((base.fields, branch.fields, target.fields), ()),
        last_field_id=max(target.last_field_id, branch.last_field_id),
        properties=_merged_map("property", base.properties, branch.properties, target.properties),
        stored_metadata=_merged_map(
            "schema metadata", base.stored_metadata, branch.stored_metadata, target.stored_metadata
        ),
        indexes=_merged_indexes(base, branch, target),
        **others,
    )
    try:
        keys = (*branch.statistics_keys, *target.statistics_keys)
        merged = with_key_statistics(merged, keys)
    except InvalidArgumentError as error:
        raise SchemaClash(str(error)) from None
    partitions = (each.source_id for each in merged.partition_by)
    for number in (*partitions, *merged.primary_key, *merged.sort_by):
        if number not in merged.by_id:
            name = (branch.by_id.get(number) or target.by_id[number]).name
            raise SchemaClash(
                f"one has dropped column {name!r}, which is a partition, key or sort column of the "
                "other"
            )
    return merged


def _merged_indexes(
    base: TableSchema, branch: TableSchema, target: TableSchema
) -> tuple[ColumnIndex, ...]:
    """The indexes that neither has dropped, those of the target first; one a field."""
    gone = set(base.indexes).difference({*branch.indexes} & {*target.indexes})
    fields = {each.field: each for each in (*branch.indexes, *target.indexes) if each not in gone}
    order = dict.fromkeys(each.field for each in (*target.indexes, *branch.indexes))
    return tuple(fields[number] for number in order if number in fields)


def _merged_fields(sides: Sequence[tuple[Field, ...]], parent: Path) -> tuple[Field, ...]:
    """Siblings in the target's order, then those that the branch added; sides: base first."""
    before, mine, theirs = ({field.id: field for field in side} for side in sides)
    merged: dict[str, Field] = {}
    for number in dict.fromkeys((*theirs, *mine, *before)):
        field = _merged_field(before.get(number), mine.get(number), theirs.get(number), parent)
        if field is None:
            continue
        other = merged.setdefault(field.name, field)
        if other is not field:
            raise SchemaClash(
                f"both have added or renamed a column {_text(parent, field)} "
                f"({other.type} and {field.type})"
            )
    return tuple(merged.values())


def _merged_field(
    base: Field | None, branch: Field | None, target: Field | None, parent: Path
) -> Field | None:
    """What is left of a field; of a struct that both changed, field by field."""
    known = base or branch or target
    assert known is not None
    what = f"column {_text(parent, known)}"
    if base is None or branch is None or target is None or base in (branch, target):
        return _three_way(what, base, branch, target)
    sides = base, branch, target
    if any(side.kind != "struct" for side in sides):
        return _three_way(what, *sides)
    shell: Field = _three_way(what, *(side.with_children(()) for side in sides))
    children = _merged_fields([side.children for side in sides], (*parent, known.name))
    if not children:
        raise SchemaClash(f"no field of {what} is left")
    return shell.with_children(children)


def _text(parent: Path, field: Field) -> str:
    return repr(".".join((*parent, field.name)))


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

    Raises SchemaClash.
    """
    if branch in (base, target):
        return target
    if target == base:
        return branch
    raise SchemaClash(f"both have changed {what}")
