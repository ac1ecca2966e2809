"""``ALTER TABLE``: Spark's list of changes → one update of a table's schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import _parse_datatype_json_string

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.catalog.layout import KEY_PROPERTY, SORT_PROPERTY
from spark_ext.types import table_type

RESERVED = {
    "location": "a table stays where it is; register another one with CREATE TABLE ... LOCATION",
    "provider": "the format is always fermion",
    KEY_PROPERTY: "the primary key is chosen by CREATE TABLE",
    SORT_PROPERTY: "the sort order is chosen by CREATE TABLE",
}
"""Properties that can't be changed, and why: Spark sends SET LOCATION as one."""


def alter(table: Table, changes: Iterable[Any]) -> None:
    """Apply changes as one snapshot.

    Parameters
    ----------
    changes
        ``org.apache.spark.sql.connector.catalog.TableChange``.

    Raises
    ------
    InvalidArgumentError
        A change that tables do not support.
    fermion_table.SchemaMismatch, fermion.errors.ColumnNotFoundError
        As `fermion_table.Table.update_schema`.
    """
    with table.update_schema() as update:
        for change in changes:
            _apply(update, change)


def _apply(update: Any, change: Any) -> None:
    kind = change.getClass().getSimpleName()
    if kind in ("SetProperty", "RemoveProperty") and change.property() in RESERVED:
        key = change.property()
        raise InvalidArgumentError(f"ALTER TABLE: {key} can't be set: {RESERVED[key]}")
    if kind == "SetProperty":
        update.set_properties({change.property(): change.value()})
        return
    if kind == "RemoveProperty":
        update.set_properties({}, remove=[change.property()])
        return
    if kind not in _COLUMN_CHANGES:
        raise InvalidArgumentError(f"ALTER TABLE: Fermion tables have no {kind}")
    path = tuple(change.fieldNames())
    if kind == "AddColumn":
        _add(update, path, change)
    elif kind == "DeleteColumn":
        _drop(update, path, change)
    elif kind == "RenameColumn":
        update.rename_column(path, change.newName())
    elif kind == "UpdateColumnType":
        update.alter_column(path, type=_arrow(change.newDataType(), path))
    elif kind == "UpdateColumnNullability":
        update.alter_column(path, nullable=change.nullable())
    elif kind == "UpdateColumnComment":
        update.alter_column(path, comment=change.newComment())
    else:
        _move(update, path, change.position())


_COLUMN_CHANGES = {
    "AddColumn",
    "DeleteColumn",
    "RenameColumn",
    "UpdateColumnType",
    "UpdateColumnNullability",
    "UpdateColumnComment",
    "UpdateColumnPosition",
}


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


def _move(update: Any, path: tuple[str, ...], position: Any) -> None:
    if position.getClass().getSimpleName() == "First":
        update.move_first(path)
    else:
        update.move_after(path, position.column())


def _arrow(dtype: Any, path: tuple[str, ...]) -> pa.DataType:
    return table_type(_parse_datatype_json_string(dtype.json()), f"column {'.'.join(path)!r}")
