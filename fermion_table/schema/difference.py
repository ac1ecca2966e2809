"""What changed between two versions of a table's schema, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from fermion.display import names_text, short_repr
from fermion.exports import dataclass
from fermion_table.schema.schema import Field, Path, TableSchema

ChangeKind = Literal[
    "add", "drop", "rename", "type", "nullable", "comment", "default", "order", "partition",
    "property",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change.

    Attributes
    ----------
    kind
        Of what.
    path
        The field, as the later version names it (an earlier one if it was dropped); or the
        property's name.
    before, after
        In words; None where there was nothing, or is nothing any more.
    """

    kind: ChangeKind
    path: Path
    before: str | None = None
    after: str | None = None

    __repr__ = short_repr

    def __str__(self) -> str:
        name = ".".join(self.path)
        if self.kind == "add":
            return f"+ {name}: {self.after}"
        if self.kind == "drop":
            return f"- {name}: {self.before}"
        what = "" if self.kind == "rename" else f" {self.kind}"
        return f"~ {name}{what}: {self.before} -> {self.after}"


_ACTIONS: dict[ChangeKind, str] = {
    "add": "add column",
    "drop": "drop column",
    "rename": "rename",
    "type": "change type of",
    "nullable": "change nullability of",
    "comment": "comment on",
    "default": "change default of",
    "order": "reorder columns",
    "partition": "partition by",
}


def changes_in_words(changes: Sequence[SchemaChange]) -> list[str]:
    """Changes as a history names them, those of a kind together: ``add columns a, b``."""
    names: dict[str, list[str]] = {}
    for change in changes:
        name = ".".join(change.path)
        if change.kind == "property":
            action = "unset" if change.after is None else "set"
        else:
            action = _ACTIONS[change.kind]
        if change.kind == "rename":
            name = f"{change.before} to {name}"
        elif change.kind == "partition":
            name = change.after or "nothing"
        names.setdefault(action, []).append(name)
    return [action_text(action, each) for action, each in names.items()]


def action_text(action: str, names: Sequence[str]) -> str:
    """What was done to what, of many names the first: ``add columns a, b``."""
    plural = "s" if len(names) > 1 and action.endswith("column") else ""
    return f"{action}{plural} {names_text(names, '')}".rstrip()


def schema_changes(before: TableSchema, after: TableSchema) -> tuple[SchemaChange, ...]:
    """What leads from one version to another.

    Fields are told by id, so a column that was dropped and added again is both. What lies below
    a field that was added or dropped is not listed.
    """
    old, new = _walked(before), _walked(after)
    changes: list[SchemaChange] = []
    for field_id, (path, field, parent) in old.items():
        if field_id not in new and (parent is None or parent in new):
            changes.append(SchemaChange("drop", path, before=_type_text(field)))
    for field_id, (path, field, parent) in new.items():
        if field_id in old:
            old_path, old_field, _ = old[field_id]
            changes += _field_changes(old_path, old_field, path, field)
        elif parent is None or parent in old:
            changes.append(SchemaChange("add", path, after=_type_text(field)))
    changes += _order_changes(before, after)
    changes += _setting_changes(before, after)
    return tuple(changes)


_Walked = dict[int, tuple[Path, Field, int | None]]


def _walked(schema: TableSchema) -> _Walked:
    """Path, field and parent's id of every field, by id."""
    found: _Walked = {}

    def visit(path: Path, field: Field, parent: int | None) -> None:
        found[field.id] = path, field, parent
        for name, child in zip(field.child_names(), field.children, strict=True):
            visit((*path, name), child, field.id)

    for column in schema.fields:
        visit((column.name,), column, None)
    return found


def _field_changes(old_path: Path, old: Field, path: Path, new: Field) -> Iterator[SchemaChange]:
    if old_path[-1] != path[-1]:
        yield SchemaChange("rename", path, old_path[-1], path[-1])
    if old.kind != new.kind or not (new.children or old.type.equals(new.type)):
        yield SchemaChange("type", path, str(old.type), str(new.type))
    if old.nullable != new.nullable:
        yield SchemaChange("nullable", path, _null_text(old), _null_text(new))
    if old.comment != new.comment:
        yield SchemaChange("comment", path, _quoted(old.comment), _quoted(new.comment))
    if old.stored_write_default != new.stored_write_default:
        yield SchemaChange(
            "default", path, _default_text(old.write_default), _default_text(new.write_default)
        )


def _order_changes(before: TableSchema, after: TableSchema) -> Iterator[SchemaChange]:
    """Whether columns that both have stand in another order."""
    shared = [column for column in before.fields if column.id in after.by_id]
    moved = [column for column in after.fields if column.id in before.by_id]
    if [column.id for column in shared] != [column.id for column in moved]:
        yield SchemaChange("order", (), ", ".join(before.names), ", ".join(after.names))


def _setting_changes(before: TableSchema, after: TableSchema) -> Iterator[SchemaChange]:
    old, new = (
        ", ".join(each.name for each in schema.partition_by) or None for schema in (before, after)
    )
    if before.partition_by != after.partition_by:
        yield SchemaChange("partition", (), old, new)
    for name in sorted(before.properties.keys() | after.properties.keys()):
        values = before.properties.get(name), after.properties.get(name)
        if values[0] != values[1]:
            yield SchemaChange("property", (name,), *values)


def _type_text(field: Field) -> str:
    return str(field.type) if field.nullable else f"{field.type} not null"


def _null_text(field: Field) -> str:
    return "null" if field.nullable else "not null"


def _quoted(text: str | None) -> str | None:
    return None if text is None else repr(text)


def _default_text(value: Any) -> str | None:
    return None if value is None else repr(value.as_py())
