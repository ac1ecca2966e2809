"""``ALTER TABLE``: Spark's list of changes → one update of a table's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.types import _parse_datatype_json_string

from fermion.errors import InvalidArgumentError
from fermion_table import Table, TableSchema
from fermion_table.engine import SchemaUpdate, spelled_columns
from spark_ext.catalog.layout import KEY_PROPERTY, SORT_PROPERTY, spelling_of
from spark_ext.types import spark_schema, table_type

RESERVED = {
    "location": "a table stays where it is; register another one with CREATE TABLE ... LOCATION",
    "provider": "the format is always fermion",
    KEY_PROPERTY: "the primary key is chosen by CREATE TABLE",
    SORT_PROPERTY: "the sort order is chosen by CREATE TABLE",
}
"""Properties that can't be changed, and why: Spark sends SET LOCATION as one."""


def alter(table: Table, changes: Iterable[Any], *, case_sensitive: bool) -> None:
    """Apply changes, each a ``TableChange`` of Spark's catalog, as one snapshot.

    Raises InvalidArgumentError: A change that tables do not support.
    Raises fermion_table.SchemaMismatch, fermion.errors.ColumnNotFoundError: As
        `fermion_table.Table.update_schema`.
    """
    listed = list(changes)
    with table.update_schema() as update:
        columns = _replaced(update.schema, listed)
        if columns:
            _replace(update, columns, case_sensitive=case_sensitive)
            return
        for change in listed:
            _apply(update, change, case_sensitive=case_sensitive)


def _replaced(schema: TableSchema, changes: Sequence[Any]) -> Sequence[Any]:
    """The columns of REPLACE COLUMNS; none if it is another statement.

    Spark drops all columns, and adds those of the statement.
    """
    count = len(schema.by_name)
    kinds = [change.getClass().getSimpleName() for change in changes]
    is_all = len(kinds) > count and kinds[:count] == ["DeleteColumn"] * count
    return changes[count:] if is_all and set(kinds[count:]) == {"AddColumn"} else ()


def _replace(update: SchemaUpdate, columns: Sequence[Any], *, case_sensitive: bool) -> None:
    """Give a table the columns of a statement: one that it has keeps its values, as with Delta."""
    known = {name if case_sensitive else name.lower(): name for name in update.schema.by_name}
    names: list[str] = []
    for change in columns:
        (given,) = change.fieldNames()
        name = known.get(given if case_sensitive else given.lower())
        names.append(given if name is None else name)
        if name is None:
            _add(update, (given,), change)
        else:
            _adapt(update, name, change)
    for name in [name for name in update.schema.by_name if name not in names]:
        update.drop_column((name,))
    update.move_first((names[0],))
    for before, name in pairwise(names):
        update.move_after((name,), before)


def _adapt(update: SchemaUpdate, name: str, change: Any) -> None:
    """Make a column that a table has what a statement says of it."""
    field = update.schema.to_arrow(field_ids=False).field(name)
    held = spark_schema(pa.schema([field]), where="column")[0].dataType
    if held != _parse_datatype_json_string(change.dataType().json()):
        update.alter_column((name,), type=_arrow(change.dataType(), (name,)))
    if field.nullable != change.isNullable():
        update.alter_column((name,), nullable=change.isNullable())
    if change.comment() is not None:
        update.alter_column((name,), comment=change.comment())


def _apply(update: Any, change: Any, *, case_sensitive: bool) -> None:
    kind = change.getClass().getSimpleName()
    if kind in ("SetProperty", "RemoveProperty") and change.property() in RESERVED:
        key = change.property()
        raise InvalidArgumentError(f"ALTER TABLE: {key} can't be set: {RESERVED[key]}")
    if kind == "SetProperty":
        spelled = spelling_of(list(update.schema.by_name), case_sensitive)
        update.set_properties(spelled_columns({change.property(): change.value()}, spelled))
        return
    if kind == "RemoveProperty":
        update.set_properties({}, remove=[change.property()])
        return
    if kind not in _COLUMN_CHANGES:
        raise InvalidArgumentError(f"ALTER TABLE: Fermion tables have no {kind}")
    _COLUMN_CHANGES[kind](update, tuple(change.fieldNames()), change)


def _add(update: Any, path: tuple[str, ...], change: Any) -> None:
    if change.defaultValue() is not None:
        raise InvalidArgumentError(
            f"ALTER TABLE: column {'.'.join(path)!r} with a DEFAULT: add it with "
            "Table.add_columns(..., defaults=)"
        )
    position = change.position()
    where: dict[str, Any] = {}
    if position is not None:
        first = position.getClass().getSimpleName() == "First"
        where = {"first": True} if first else {"after": position.column()}
    update.add_column(
        path,
        _arrow(change.dataType(), path),
        nullable=change.isNullable(),
        comment=change.comment(),
        **where,
    )


def _drop(update: Any, path: tuple[str, ...], change: Any) -> None:
    if change.ifExists():
        try:
            update.schema.resolve(path)
        except KeyError:
            return
    update.drop_column(path)


def _move(update: Any, path: tuple[str, ...], change: Any) -> None:
    position = change.position()
    if position.getClass().getSimpleName() == "First":
        update.move_first(path)
    else:
        update.move_after(path, position.column())


def _arrow(dtype: Any, path: tuple[str, ...]) -> pa.DataType:
    return table_type(_parse_datatype_json_string(dtype.json()), f"column {'.'.join(path)!r}")


_COLUMN_CHANGES: dict[str, Callable[[Any, tuple[str, ...], Any], object]] = {
    "AddColumn": _add,
    "DeleteColumn": _drop,
    "RenameColumn": lambda update, path, change: update.rename_column(path, change.newName()),
    "UpdateColumnType": lambda update, path, change: update.alter_column(
        path, type=_arrow(change.newDataType(), path)
    ),
    "UpdateColumnNullability": lambda update, path, change: update.alter_column(
        path, nullable=change.nullable()
    ),
    "UpdateColumnComment": lambda update, path, change: update.alter_column(
        path, comment=change.newComment()
    ),
    "UpdateColumnPosition": _move,
}
"""What each of Spark's changes of a column does."""
