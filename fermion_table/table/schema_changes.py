"""Methods of `Table` that change its schema and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from fermion_table.argument_checks import (
    check_column,
    check_columns,
    check_kind,
    check_text,
    check_texts,
)
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.schema_versions import change_schema
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.scanning.live_values import LiveValues
from fermion_table.schema import changes
from fermion_table.schema.changes import Change, FieldChanges
from fermion_table.schema.schema import PathLike, TableSchema
from fermion_table.schema.update import SchemaUpdate
from fermion_table.table.state import HasState


def update_schema(self: HasState, *, message: str | None = None) -> SchemaUpdate:
    """Several schema changes as one snapshot: ``with t.update_schema() as u: ...``."""
    state = self._state
    state.check_writable()
    metadata = CommitMetadata(message=message)
    values = LiveValues(state.store, state.refresh())

    def publish(changes: Sequence[Change]) -> None:
        def changes_for(snapshot: Snapshot, current: TableSchema) -> Sequence[Change]:
            values.snapshot = snapshot
            return changes

        state.move_to(change_schema(state.publisher, state.snapshot, changes_for, metadata))

    return SchemaUpdate(state.schema, publish, values.have_nulls, values.exceed)


def add_columns(
    self: HasState,
    columns: Mapping[str, pa.DataType] | pa.Schema,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Add columns; existing rows get their default, or null. No data file is rewritten."""
    fields = columns
    if isinstance(columns, Mapping):
        check_texts(columns, "columns")
        for name, dtype in columns.items():
            check_kind(dtype, pa.DataType, f"columns[{name!r}]")
        fields = pa.schema(dict(columns))
    check_kind(fields, pa.Schema, "columns")
    with update_schema(self) as update:
        update.add_fields(fields, defaults=defaults)
    return self._state.snapshot


def drop_columns(self: HasState, columns: Sequence[PathLike] | str) -> Snapshot:
    """Drop columns. No data file is rewritten; a new column of the same name starts empty."""
    with update_schema(self) as update:
        paths = (columns,) if isinstance(columns, str) else check_columns(columns, "columns")
        resolved = [update.schema.resolve(path) for path in paths]
        update.apply(partial(changes.drop_columns, paths=resolved))
    return self._state.snapshot


def rename_column(self: HasState, old: PathLike, new: str) -> Snapshot:
    """Rename a column. No data file is rewritten."""
    with update_schema(self) as update:
        update.rename_column(check_column(old, "old"), check_text(new, "new"))
    return self._state.snapshot


def alter_column(self: HasState, name: PathLike, **changes: Unpack[FieldChanges]) -> Snapshot:
    """Change a column's ``type``, ``nullable``, ``comment`` or (write) ``default``."""
    with update_schema(self) as update:
        update.alter_column(check_column(name, "name"), **changes)
    return self._state.snapshot


def set_properties(
    self: HasState, updates: Mapping[str, str], *, remove: Sequence[str] = ()
) -> Snapshot:
    """Change the table's settings."""
    with update_schema(self) as update:
        update.set_properties(updates, remove=remove)
    return self._state.snapshot
