"""Changes to a table's schema, as functions from one version to the next.

Each function returns the schema changed, under the same version id; `apply_changes` gives the
result of several the next id. A change names fields by path, so that it can be applied again to
a schema that another commit has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import check_filled, check_kept, has_shreddable_keys, key_name, split_key_name
from fermion.errors import InvalidArgumentError, column_not_found
from fermion_table.argument_checks import (
    check_bool,
    check_optional_text,
    check_text,
    check_text_map,
    check_texts,
    described,
)
from fermion_table.schema import value_codec
from fermion_table.schema.field_widening import dotted, ranges_lost, refused, widened
from fermion_table.schema.from_arrow import check_blobs, fields_from_arrow
from fermion_table.schema.key_statistics import with_key_statistics
from fermion_table.schema.properties import (
    PROPERTY_NAMES,
    SHRED,
    STATS_KEYS,
    check_properties,
    plain_name,
)
from fermion_table.schema.property_kinds import spelled_keys
from fermion_table.schema.repeated import scalar_bytes
from fermion_table.schema.schema import KEY, Field, Path, TableSchema
from fermion_table.schema.sorting import RowOrder
from fermion_table.schema.transforms import PartitionTransform, keeps_values
from fermion_table.schema.widening import cast_checked, keeps_json

Change = Callable[[TableSchema], TableSchema]
HasNulls = Callable[[TableSchema, Path], bool]
"""Whether any live row is null at a path of a schema."""
Exceeds = Callable[[TableSchema, Path, pa.DataType], bool]
"""Whether any live row has a value at a path of a schema that is out of a type's range."""
Place = Literal["first", "last", "before", "after"]

_UNSET: Any = object()


class FieldChanges(TypedDict, total=False):
    """What `alter_column` changes, as keyword arguments, for type checkers."""

    type: pa.DataType | None
    nullable: bool | None
    comment: str | None
    default: Any


def apply_changes(schema: TableSchema, changes: Sequence[Change], *, time_ms: int) -> TableSchema:
    """The schema after all changes, with the next id; the schema itself if nothing changed."""
    changed = schema
    for change in changes:
        changed = change(changed)
    if changed == schema:
        return schema
    kept = tuple(each for each in changed.indexes if each.field in changed.paths)
    if kept != changed.indexes:
        changed = msgspec.structs.replace(changed, indexes=kept)
    check_blobs(changed)
    return msgspec.structs.replace(changed, id=schema.id + 1, time_ms=time_ms)


def add_column(
    schema: TableSchema,
    path: Path,
    field: pa.Field,
    *,
    default: Any = None,
    place: Place = "last",
    other: str | None = None,
) -> TableSchema:
    """Add a field, at any depth of structs; it gets ids that were never used.

    path: Where; the last name is the new field's.
    field: Type, nullability and metadata.
    default: What rows hold that were written before, and rows written without it from now on.
    place, other: Where among its siblings.
    Raises InvalidArgumentError: The name is taken, the parent is no struct, or NOT NULL comes
        without a default.
    """
    added = field.with_name(path[-1])
    defaults = {path[-1]: default}
    return add_columns(schema, path[:-1], [added], defaults=defaults, place=place, other=other)


def add_columns(
    schema: TableSchema,
    parent: Path,
    fields: Sequence[pa.Field],
    *,
    defaults: Mapping[str, Any],
    place: Place = "last",
    other: str | None = None,
) -> TableSchema:
    """Add fields beside each other, in their order: as `add_column`, for any number at once.

    parent: The struct they are added to; empty: the table itself.
    defaults: By name; null or not there: none.
    Raises InvalidArgumentError: As `add_column`; two of the fields have one name, or one that of a
        key of a map.
    """
    added: list[Field] = []
    last = schema.last_field_id
    for field in fields:
        _check_no_key(schema, (*parent, field.name), "add column")
        new, last = _new_field(field, defaults.get(field.name), last, (*parent, field.name))
        added.append(new)

    def edit(siblings: tuple[Field, ...]) -> tuple[Field, ...]:
        taken = {sibling.name for sibling in siblings}
        for new in added:
            if new.name in taken:
                text = dotted((*parent, new.name))
                raise InvalidArgumentError(f"add column {text!r}: the name is taken")
            taken.add(new.name)
        return _placed(siblings, added, place, other, (*parent, added[0].name))

    changed = _edit_siblings(schema, (*parent, fields[0].name), edit, "add column")
    return msgspec.structs.replace(changed, last_field_id=last)


def _check_no_key(schema: TableSchema, path: Path, action: str) -> None:
    """Raises InvalidArgumentError: A new column would hide a key of a map, or is meant as one."""
    name = path[0]
    if len(path) > 1 or "[" not in name:
        return
    column, key = split_key_name(name) or (name, None)
    if column not in schema.by_name:  # such as "features"["age"]
        column, key = name.partition("[")[0].strip(" '`\""), None
    field = schema.by_name.get(column)
    if field is not None and has_shreddable_keys(field.type):
        shown = key_name(column, 1 if pat.is_integer(field.type.key_type) else "name")
        if key is None:
            means, hint = f"names keys as {shown}", "take another name"
        else:
            means = f"has the key {key!r}"
            hint = "give them values by `add_columns_with`, or take another name"
        raise InvalidArgumentError(
            f"{action} {name!r}: the map {column!r} {means}, and keys are no columns of their own: "
            + hint
        )


def _new_field(field: pa.Field, default: Any, last: int, path: Path) -> tuple[Field, int]:
    """A field to add, with ids that follow the last one; and the last one then."""
    (new,), last = fields_from_arrow([field], last)
    check_filled(field.type, 1, f"add column {dotted(path)!r}")
    if default is not None:
        scalar = _scalar(default, field.type, path)
        check_filled(field.type, 1, f"column {dotted(path)!r}", value_bytes=scalar_bytes(scalar))
        stored = value_codec.encode_value(scalar)
        new = msgspec.structs.replace(
            new, stored_initial_default=stored, stored_write_default=stored
        )
    elif not field.nullable:
        raise InvalidArgumentError(
            f"add column {dotted(path)!r}: NOT NULL needs a default, for the rows written before it"
        )
    return new, last


def drop_columns(schema: TableSchema, paths: Sequence[Path]) -> TableSchema:
    """Drop fields, one after the other, with the settings of their keys; no id is used again.

    Raises ColumnNotFoundError: A field is not there, or was named before.
    Raises InvalidArgumentError: A partition, key or sort column, or the last of its siblings.
    """
    for parent, group in groupby(paths, lambda path: path[:-1]):
        schema = _without(schema, parent, list(group))
    return schema


def _without(schema: TableSchema, parent: Path, paths: Sequence[Path]) -> TableSchema:
    """A schema without some siblings."""
    left, gone = dict(schema.by_name), set[int]()
    if parent:
        above = schema.find(parent)
        left = dict(zip(above.child_names(), above.children, strict=True))
    for path in paths:
        field = left.pop(path[-1], None)
        if field is None:
            raise column_not_found(dotted(path), left, where="table")
        if _has_role(schema, field):
            raise InvalidArgumentError(
                f"drop column {dotted(path)!r}: it is a partition, key or sort column"
            )
        gone.add(field.id)

    def edit(siblings: tuple[Field, ...]) -> tuple[Field, ...]:
        if len(gone) == len(siblings):
            where = f"struct {dotted(parent)!r}" if parent else "the table"
            raise InvalidArgumentError(
                f"drop column {dotted(paths[-1])!r}: it is the last of {where}"
            )
        return tuple(sibling for sibling in siblings if sibling.id not in gone)

    changed = _edit_siblings(schema, paths[0], edit, "drop column")
    for path in paths:
        changed = _with_shredding(changed, path, None)
    return changed


def _with_shredding(schema: TableSchema, path: Path, name: str | None) -> TableSchema:
    """A schema whose settings of a column's keys name the column anew; None: it is gone."""
    if len(path) > 1 or SHRED + path[0] not in schema.properties:
        return schema
    properties = dict(schema.properties)
    value = properties.pop(SHRED + path[0])
    if name is not None:
        properties[SHRED + name] = value
    keys = properties.pop(STATS_KEYS, "")
    keys = spelled_keys(keys, lambda column: name if column == path[0] else column)
    if keys:
        properties[STATS_KEYS] = keys
    return with_key_statistics(msgspec.structs.replace(schema, properties=properties))


def rename_column(schema: TableSchema, path: Path, name: str) -> TableSchema:
    """Give a field another name, also in the setting of its keys; files keep the old one, which
    the id makes harmless.

    Raises InvalidArgumentError: The name is taken or that of a key of a map, or the field is a
        list's element or a map's key or value.
    """
    field = schema.find(path)
    name = check_text(name, "the new name")
    _check_no_key(schema, (*path[:-1], name), f"rename column {dotted(path)!r} to")

    def edit(siblings: tuple[Field, ...]) -> tuple[Field, ...]:
        if any(sibling.name == name and sibling.id != field.id for sibling in siblings):
            raise InvalidArgumentError(
                f"rename column {dotted(path)!r} to {name!r}: the name is taken"
            )
        return tuple(
            msgspec.structs.replace(sibling, name=name) if sibling.id == field.id else sibling
            for sibling in siblings
        )

    changed = _edit_siblings(schema, path, edit, "rename column")
    return _with_shredding(changed, path, name)


def move_column(
    schema: TableSchema, path: Path, place: Place, other: str | None = None
) -> TableSchema:
    """Change a field's place among its siblings."""
    field = schema.find(path)

    def edit(siblings: tuple[Field, ...]) -> tuple[Field, ...]:
        rest = tuple(sibling for sibling in siblings if sibling.id != field.id)
        return _placed(rest, [field], place, other, path)

    return _edit_siblings(schema, path, edit, "move column")


def alter_column(
    schema: TableSchema,
    path: Path,
    *,
    type: pa.DataType | None = None,
    nullable: bool | None = None,
    comment: str | None = _UNSET,
    default: Any = _UNSET,
    has_nulls: HasNulls | None = None,
    exceeds: Exceeds | None = None,
) -> TableSchema:
    """Change a field's type, nullability, comment or write default.

    type: A type that every value of the old one fits (`widening`); nested types may get new fields.
    nullable: False only if no live row is null there.
    comment: None takes it away.
    default: What rows written without the field hold from now on; None is null.
    has_nulls: Tells whether a live row is null; without it NOT NULL is refused.
    exceeds: Tells whether a live row's value is out of range; without it a smaller range is
        refused.
    Raises TypeError: Names the parameter that is of the wrong type.
    Raises InvalidArgumentError.
    """
    field = schema.find(path)
    last = schema.last_field_id
    if nullable is not None:
        nullable = check_bool(nullable, "nullable")
    if comment is not _UNSET:
        comment = check_optional_text(comment, "comment")
    if type is not None:
        check_type(type, "type")
        wide, last = widened(field, type, last, path, is_key=False)
        if _has_role(schema, field):
            _check_roles(schema, field, type, path)
        _check_ranges(schema, field, wide, path, exceeds)
        field = wide
    if nullable is not None and nullable != field.nullable:
        _check_nullable(schema, field, path, nullable, has_nulls)
        field = msgspec.structs.replace(field, nullable=nullable)
    if comment is not _UNSET:
        field = msgspec.structs.replace(field, comment=comment)
    if default is not _UNSET:
        scalar = None if default is None else _scalar(default, field.type, path)
        field = msgspec.structs.replace(
            field, stored_write_default=value_codec.encode_value(scalar)
        )
    changed = _replace(schema, path, field)
    return msgspec.structs.replace(changed, last_field_id=last)


def set_properties(
    schema: TableSchema, updates: Mapping[str, str], removed: Sequence[str] = ()
) -> TableSchema:
    """Change the table's settings.

    Raises TypeError, InvalidArgumentError: A name or value that is no text, or a value that is not
        of its setting's form.
    Raises ColumnNotFoundError: A setting of a column that is not there.
    """
    gone = check_texts(removed, "remove")
    new = check_properties(check_text_map(updates, "updates"), schema)
    again = {plain_name(name) for name in new}.intersection(PROPERTY_NAMES)
    kept = {
        name: value
        for name, value in schema.properties.items()
        if name not in gone and plain_name(name) not in again
    }
    return with_key_statistics(msgspec.structs.replace(schema, properties=kept | new))


def set_sort_order(schema: TableSchema, columns: Sequence[str]) -> TableSchema:
    """Sort the rows of files that are written from now on, by top-level columns; none: don't.

    Raises ColumnNotFoundError, InvalidArgumentError.
    """
    fields = [schema.find((name,), where="sort_by") for name in columns]
    RowOrder(tuple(columns)).check(schema.to_arrow())
    return msgspec.structs.replace(schema, sort_by=tuple(field.id for field in fields))


def merge_columns(schema: TableSchema, data: pa.Schema) -> list[Change]:
    """What adds to a schema, as nullable columns, those of the data's fields that it lacks."""
    return _merged(schema.fields, list(data), ())


def _merged(fields: Sequence[Field], found: Sequence[pa.Field], path: Path) -> list[Change]:
    known = {field.name: field for field in fields}
    changes: list[Change] = []
    # Fields get ids in the order of the data: what lies inside of a struct gets its in between.
    for is_new, items in groupby(found, lambda item: item.name not in known):
        if is_new:
            changes.append(_adding(path, list(items)))
            continue
        for item in items:
            field = known[item.name]
            if field.kind == "struct" and pa.types.is_struct(item.type):
                changes += _merged(field.children, list(item.type), (*path, item.name))
    return changes


def _adding(parent: Path, items: Sequence[pa.Field]) -> Change:
    nullable: dict[str, pa.Field] = {}
    for item in items:  # of a name that comes twice the first: who writes the data refuses them
        nullable.setdefault(item.name, item.with_nullable(True))

    def change(schema: TableSchema) -> TableSchema:
        siblings = schema.find(parent).children if parent else schema.fields
        known = {sibling.name for sibling in siblings}  # another commit may have added some
        missing = [field for name, field in nullable.items() if name not in known]
        return add_columns(schema, parent, missing, defaults={}) if missing else schema

    return change


def _check_nullable(
    schema: TableSchema, field: Field, path: Path, nullable: bool, has_nulls: HasNulls | None
) -> None:
    parents = [schema.find(path[:count]) for count in range(1, len(path))]
    if nullable and parents and parents[-1].kind == "map" and path[-1] == KEY:
        raise InvalidArgumentError(f"column {dotted(path)!r}: a map's keys are never null")
    if nullable:
        if field.id in schema.primary_key:
            raise InvalidArgumentError(
                f"column {dotted(path)!r} is a key column: it stays NOT NULL"
            )
        return
    if any(parent.kind != "struct" for parent in parents):
        raise InvalidArgumentError(
            f"column {dotted(path)!r}: nothing can prove that no row is null inside a list or map"
        )
    if has_nulls is None or has_nulls(schema, path):
        raise InvalidArgumentError(
            f"column {dotted(path)!r} can't become NOT NULL: live rows are null there"
        )


def _has_role(schema: TableSchema, field: Field) -> bool:
    partitions = {partition.source_id for partition in schema.partition_by}
    return field.id in partitions.union(schema.primary_key, schema.sort_by)


def _check_roles(schema: TableSchema, field: Field, dtype: pa.DataType, path: Path) -> None:
    """Refuse a type that a partition, key or sort column can't have, or that moves its rows."""
    if not keeps_json(field.type, dtype):
        raise refused(path, field.type, dtype, "the column is a partition or key column")
    for each in schema.partition_by:
        if each.source_id == field.id:
            transform = PartitionTransform(field.name, each.transform, each.parameter)
            try:
                same = keeps_values(transform, field.type, dtype)
            except InvalidArgumentError as error:
                raise refused(path, field.type, dtype, str(error)) from None
            if not same:
                why = f"rows would be in other partitions of {each.name!r}"
                raise refused(path, field.type, dtype, why)
    if field.id in schema.sort_by:
        RowOrder((field.name,)).check(pa.schema([(field.name, dtype)]))


def _check_ranges(
    schema: TableSchema, field: Field, wide: Field, path: Path, exceeds: Exceeds | None
) -> None:
    """Refuse a finer unit of time if a live row's value is out of its range."""
    for inside, old, new in ranges_lost([field], [wide]):
        place = (*path[:-1], *inside)
        parents = [schema.find(place[:count]) for count in range(1, len(place))]
        nested = any(parent.kind != "struct" for parent in parents)
        if exceeds is None or exceeds(schema, path if nested else place, new.type):
            raise refused(
                place,
                old.type,
                new.type,
                "live rows may hold values out of its range; delete or update them first, or add a "
                "new column",
            )


def check_type(dtype: Any, parameter: str) -> None:
    """Refuse what is no Arrow type.

    Raises TypeError.
    """
    if not isinstance(dtype, pa.DataType):
        raise TypeError(f"{parameter}: expected a pyarrow.DataType, found {described(dtype)}")


def _scalar(value: Any, dtype: pa.DataType, path: Path) -> pa.Scalar:
    if pa.types.is_nested(dtype):
        raise InvalidArgumentError(f"column {dotted(path)!r}: {dtype} can't have a default")
    try:
        if isinstance(value, pa.Scalar):
            return value if value.type == dtype else cast_checked(value, dtype)
        check_kept([value], dtype)
        if isinstance(dtype, pa.BaseExtensionType):
            return pa.array([value], dtype.storage_type).cast(dtype)[0]
        return pa.array([value], dtype)[0]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidArgumentError(
            f"column {dotted(path)!r}: the default {value!r} is no {dtype}: {error}"
        ) from None


def _placed(
    siblings: tuple[Field, ...],
    fields: Sequence[Field],
    place: Place,
    other: str | None,
    path: Path,
) -> tuple[Field, ...]:
    if place in ("first", "last"):
        return (*fields, *siblings) if place == "first" else (*siblings, *fields)
    names = [sibling.name for sibling in siblings]
    if other not in names:
        raise column_not_found(other, names, where=f"move {dotted(path)!r} {place} another column")
    at = names.index(other) + (place == "after")
    return (*siblings[:at], *fields, *siblings[at:])


def _edit_siblings(
    schema: TableSchema,
    path: Path,
    edit: Callable[[tuple[Field, ...]], tuple[Field, ...]],
    action: str,
) -> TableSchema:
    """The schema with the fields beside and at a path edited."""
    parent = path[:-1]
    if not parent:
        return msgspec.structs.replace(schema, fields=edit(schema.fields))
    field = schema.find(parent)
    if field.kind != "struct":
        raise InvalidArgumentError(f"{action} {dotted(path)!r}: {dotted(parent)!r} is not a struct")
    if any(
        name == KEY and schema.find(path[:count]).kind == "map"
        for count, name in enumerate(parent)
        if count
    ):
        raise InvalidArgumentError(f"{action} {dotted(path)!r}: a map's keys only widen")
    return _replace(schema, parent, field.with_children(edit(field.children)))


def _replace(schema: TableSchema, path: Path, field: Field) -> TableSchema:
    """The schema with another field at a path."""
    return msgspec.structs.replace(schema, fields=_replaced(schema.fields, path, field, None))


def _replaced(
    fields: tuple[Field, ...], path: Path, field: Field, parent: Field | None
) -> tuple[Field, ...]:
    names = [each.name for each in fields] if parent is None else list(parent.child_names())
    at = names.index(path[0])
    new = field
    if path[1:]:
        old = fields[at]
        new = old.with_children(_replaced(old.children, path[1:], field, old))
    return (*fields[:at], new, *fields[at + 1 :])
