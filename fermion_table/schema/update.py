"""Several schema changes at once: `SchemaUpdate`, which publishes them as one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from fermion.errors import column_not_found
from fermion_table.argument_checks import (
    check_bool,
    check_kind,
    check_kinds,
    check_optional_text,
    check_text,
    check_text_map,
    check_texts,
    described,
)
from fermion_table.schema import changes as schema_update
from fermion_table.schema.changes import Change, Exceeds, FieldChanges, HasNulls
from fermion_table.schema.schema import Path, PathLike, TableSchema


class SchemaUpdate:
    """Collects schema changes; each is checked immediately, and sees the earlier ones.

    As a context manager it publishes them at the end of the block, and nothing after an error.
    Fields are named by a name, by names joined by dots, or by a sequence of names; a new column
    inside a struct by a sequence.

    Parameters
    ----------
    schema
        What to start from.
    publish
        Called once with all changes.
    has_nulls
        Tells whether a live row is null, for NOT NULL.
    exceeds
        Tells whether a live row's value is out of a type's range, for finer units of time.
    """

    def __init__(
        self,
        schema: TableSchema,
        publish: Callable[[Sequence[Change]], None],
        has_nulls: HasNulls | None = None,
        exceeds: Exceeds | None = None,
    ) -> None:
        self._draft = schema
        self._publish = publish
        self._has_nulls = has_nulls
        self._exceeds = exceeds
        self._changes: list[Change] = []

    def __enter__(self) -> SchemaUpdate:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is None and self._changes:
            self._publish(self._changes)

    @property
    def schema(self) -> TableSchema:
        """The schema with the changes so far, not published yet."""
        return self._draft

    def apply(self, change: Change) -> SchemaUpdate:
        """Add a change."""
        if not callable(change):
            raise TypeError(f"change: expected a function, found {described(change)}")
        self._draft = change(self._draft)
        self._changes.append(change)
        return self

    def add_column(
        self,
        path: PathLike,
        type: pa.DataType,
        *,
        nullable: bool = True,
        default: Any = None,
        comment: str | None = None,
        first: bool = False,
        before: str | None = None,
        after: str | None = None,
    ) -> SchemaUpdate:
        """Add a nullable column, or one with a default for the rows written before it."""
        where = (path,) if isinstance(path, str) else check_texts(path, "path")
        schema_update.check_type(type, "type")
        nullable = check_bool(nullable, "nullable")
        said = check_optional_text(comment, "comment")
        metadata = {} if said is None else {"comment": said}
        field = pa.field(where[-1], type, nullable, metadata or None)
        return self.add_field(
            where, field, default=default, first=first, before=before, after=after
        )

    def add_field(
        self,
        path: Path,
        field: pa.Field,
        *,
        default: Any = None,
        first: bool = False,
        before: str | None = None,
        after: str | None = None,
    ) -> SchemaUpdate:
        """Add a column that an Arrow field describes."""
        path = check_texts(path, "path")
        check_kind(field, pa.Field, "field")
        first = check_bool(first, "first")
        before = check_optional_text(before, "before")
        after = check_optional_text(after, "after")
        return self.apply(
            partial(
                schema_update.add_column,
                path=path,
                field=field,
                default=default,
                place="before" if before else "after" if after else "first" if first else "last",
                other=before or after,
            )
        )

    def add_fields(
        self, fields: Iterable[pa.Field], *, defaults: Mapping[str, Any] | None = None
    ) -> SchemaUpdate:
        """Add columns that Arrow fields describe, after all others; many cost little more than one.

        Parameters
        ----------
        defaults
            By name.

        Raises
        ------
        ColumnNotFoundError
            A default of none of them.
        """
        listed = tuple(check_kinds(fields, pa.Field, "fields"))
        if not listed:
            return self
        if defaults is not None and not isinstance(defaults, Mapping):
            raise TypeError(f"defaults: expected a mapping by name, found {described(defaults)}")
        known = dict(defaults or {})
        names = dict.fromkeys(field.name for field in listed)
        for name in known:
            if name not in names:
                raise column_not_found(name, names, where="defaults of the new columns")
        return self.apply(
            partial(schema_update.add_columns, parent=(), fields=listed, defaults=known)
        )

    def drop_column(self, path: PathLike) -> SchemaUpdate:
        """Drop a column; a new column of the same name does not get its values."""
        return self.apply(partial(schema_update.drop_columns, paths=[self._draft.resolve(path)]))

    def rename_column(self, path: PathLike, name: str) -> SchemaUpdate:
        """Give a column another name."""
        resolved = self._draft.resolve(path)
        return self.apply(partial(schema_update.rename_column, path=resolved, name=name))

    def alter_column(self, path: PathLike, **changes: Unpack[FieldChanges]) -> SchemaUpdate:
        """Change ``type``, ``nullable``, ``comment`` or (write) ``default`` of a column."""
        return self.apply(
            partial(
                schema_update.alter_column,
                path=self._draft.resolve(path),
                has_nulls=self._has_nulls,
                exceeds=self._exceeds,
                **changes,
            )
        )

    def move_first(self, path: PathLike) -> SchemaUpdate:
        """Make a column the first of its siblings."""
        resolved = self._draft.resolve(path)
        return self.apply(partial(schema_update.move_column, path=resolved, place="first"))

    def move_before(self, path: PathLike, other: str) -> SchemaUpdate:
        """Put a column before one of its siblings."""
        return self._move(path, "before", other)

    def move_after(self, path: PathLike, other: str) -> SchemaUpdate:
        """Put a column after one of its siblings."""
        return self._move(path, "after", other)

    def _move(self, path: PathLike, place: schema_update.Place, other: str) -> SchemaUpdate:
        resolved = self._draft.resolve(path)
        other = check_text(other, "other")
        return self.apply(
            partial(schema_update.move_column, path=resolved, place=place, other=other)
        )

    def set_properties(
        self, updates: Mapping[str, str], *, remove: Sequence[str] = ()
    ) -> SchemaUpdate:
        """Change the table's settings."""
        if updates is None:
            raise TypeError("updates: expected a mapping of texts, found None")
        return self.apply(
            partial(
                schema_update.set_properties,
                updates=check_text_map(updates, "updates"),
                removed=check_texts(remove, "remove"),
            )
        )

    def set_sort_order(self, columns: Sequence[str] | str) -> SchemaUpdate:
        """Set the sort order of files that are written from now on; an empty list: no order."""
        listed = [columns] if isinstance(columns, str) else columns
        return self.apply(
            partial(schema_update.set_sort_order, columns=check_texts(listed, "columns"))
        )
