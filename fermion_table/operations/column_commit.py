"""Column files made for the data files of a snapshot, and published as one commit.

The files of an operation belong to it: they are deleted if nothing was published. Where another
commit came first, the operation is planned again on the newer snapshot, and keeps what it has made
for data files that are as it saw them.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from fermion.errors import InvalidArgumentError
from fermion_table.commit.commit import Publisher
from fermion_table.commit.request import CommitMetadata, CommitRequest, stored_schema
from fermion_table.errors import CommitConflict
from fermion_table.metadata.history import SchemaVersions, until_expiry
from fermion_table.metadata.manifest import COLUMN_FILES_LIMIT, Entry, paths_of
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import COLUMN_FILES, Snapshot
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.column_files import placed

Made = Mapping[str, tuple[Entry, TableSchema]]
"""Column files by the names of data files: the file, and the schema that it was written with."""


class ColumnChange(ABC):
    """Values of columns, in files beside the data files."""

    def __init__(self, publisher: Publisher, action: str, metadata: CommitMetadata) -> None:
        self.publisher = publisher
        self.store = publisher.store
        self.action = action
        self.metadata = metadata
        self.files = OwnedFiles(publisher.store)

    @abstractmethod
    def schema_on(self, base: Snapshot) -> TableSchema | None:
        """The schema that the commit brings; None: that of the snapshot stays."""

    @abstractmethod
    def made_for(
        self, base: Snapshot, schemas: SchemaVersions, schema: TableSchema, entries: list[Entry]
    ) -> Made:
        """Make the column files of a snapshot's data files, as far as they get any.

        schema: Of the table from the commit on.
        entries: The data files with rows.
        """

    def publish(self, known: Snapshot) -> Snapshot:
        """Make the files, and commit them.

        Raises InvalidArgumentError, CommitConflict, CommitStateUnknown.
        """
        try:
            published = self.publisher.publish(known, self._plan, self.metadata)
        except BaseException:  # an interrupt too
            self.files.delete()
            raise
        kept = {path for each in published.entries or () for path in paths_of(each)}
        with contextlib.suppress(OSError):  # published is published; at worst orphans stay
            self.files.delete(kept)
        return published.snapshot

    def _plan(self, base: Snapshot) -> CommitRequest | None:
        schemas = SchemaVersions(self.store, base)
        check_append_table(schemas.current, self.action, self.store.location)
        new = self.schema_on(base)
        schema = new or schemas.current
        with until_expiry(self.store, base):
            entries = live_entries(self.store, base, keep_unknown=True)
            made = self.made_for(base, schemas, schema, [each for each in entries if each.rows])
        removed = [each for each in entries if each.file in made]
        full = [each.file for each in removed if len(each.column_files) >= COLUMN_FILES_LIMIT]
        if full:
            raise InvalidArgumentError(
                f"{self.store.location}: {self.action}: {full[0]} has {COLUMN_FILES_LIMIT} column "
                "files, as many as there can be: compact the table first"
            )
        added = [placed(each, *made[each.file], schema, schemas) for each in removed]
        if not added and new is None:
            return None
        return CommitRequest(
            kind="upsert" if added else "schema",
            added=added,
            removed=removed,
            schema=stored_schema(new),
            base=base,
            depends_on=lambda entry: False,  # files of other commits keep what they have
            metadata=self.metadata,
            reader_features=(COLUMN_FILES,) if added else (),
            unsure=frozenset(
                path for column_file, _ in made.values() for path in paths_of(column_file)
            ),
        )


def check_append_table(schema: TableSchema, action: str, where: str) -> None:
    """Refuse column files in a table whose rows are merged by key.

    Raises InvalidArgumentError.
    """
    if has_buckets(schema):
        raise InvalidArgumentError(
            f"{where}: {action} is for tables without a primary key: upsert the values of the "
            "columns with merge-engine=partial_update instead"
        )


def check_fillable(schema: TableSchema, names: Sequence[str], action: str, where: str) -> None:
    """Refuse to replace columns by which rows have their place.

    Raises InvalidArgumentError.
    """
    places = {each.source_id for each in schema.partition_by}.union(schema.sort_by)
    for name in names:
        field = schema.by_name.get(name)
        if field is not None and field.id in places:
            what = "sort" if field.id in schema.sort_by else "partition"
            raise InvalidArgumentError(
                f"{where}: {action}: {name!r} is a {what} column, by which rows have their place: "
                "use update"
            )


def column_taken(name: str, action: str, where: str, *, is_first: bool) -> Exception:
    """What to raise where a column to add is there already."""
    text = f"{where}: {action}: column {name!r} is there already"
    if is_first:
        return InvalidArgumentError(f"{text}: change its values with fill_columns or update")
    return CommitConflict(f"{text}, added by another commit", mine=action)
