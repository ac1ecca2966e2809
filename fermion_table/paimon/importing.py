"""`from_paimon`: a Paimon table with its history, snapshot by snapshot."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property, reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.arguments import mapping
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_texts
from fermion_table.commit.replacement import TableDefinition, create_defined
from fermion_table.errors import TableExists
from fermion_table.metadata.history import table_exists
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.paimon.definitions import (
    SCHEMA_ID,
    Definition,
    definitions,
    update_schema,
)
from fermion_table.paimon.source import paimon_table
from fermion_table.storage.location import Location, open_store
from fermion_table.storage.store import AtomicStore
from fermion_table.table.table import Table

ROW_KIND = "_row_kind"
"""The column of pypaimon that says what each row of a change is."""
_CHANGES_NO_ROWS = ("create", "schema", "compact")
_OF_MERGING = re.compile(r"merge-engine$|fields\.|sequence\.|aggregation\.|partial-update\.")


def from_paimon(
    source: Any,
    path: Location,
    *,
    leave_out: Collection[str] = (),
    source_options: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Table:
    """Import a table of Apache Paimon with its history, or what is new in it since the last time.

    Each snapshot becomes one commit, each schema one change of schema by field id, each tag a tag.
    It may be stopped anywhere: the next call goes on where it ended. Needs pypaimon 2.1:
    ``pip install 'fermion[paimon]'``.

    Parameters
    ----------
    source
        A table of pypaimon (``catalog.get_table("db.events")``), or the directory or URL of one.
    path
        A directory, local or an fsspec URL: of the new table, or of the one that was imported
        before.
    leave_out
        Names of options to import the table without, though they may matter to its rows. Those of
        how Paimon stores rows are left out anyhow; the property ``paimon.left_out`` lists them.
        ``branches`` and ``default-values`` (of columns) are names, too.
    source_options
        Of Paimon's storage, such as ``fs.s3.endpoint``, where the source is a directory.
    storage_options
        Of our storage.

    Returns
    -------
    Table
        With Paimon's newest rows. A commit's properties ``paimon.commit-user``,
        ``paimon.commit-identifier`` and ``paimon.time`` (milliseconds since 1970) say whose it was.

    Raises
    ------
    InvalidArgumentError
        Options, types or changes of types that have no counterpart, by name; pypaimon is not
        installed or another version; the table has got other commits since the last import.
    TableExists
        The table at the path was not imported from this source.
    TableNotFound, CommitConflict, CommitStateUnknown
    """
    left_out = check_texts(leave_out, "leave_out")
    mapping(source_options, "source_options")
    table = paimon_table(source, source_options, "from_paimon")
    store = open_store(path, storage_options=storage_options)
    return PaimonImport(table, store, left_out).run()


class PaimonImport:
    """One run of an import.

    source: The table of pypaimon.
    store: Where ours is or will be.
    leave_out: Names of options.
    """

    def __init__(self, source: Any, store: AtomicStore, leave_out: Collection[str]) -> None:
        self._source = source
        self._store = store
        self._leave_out = leave_out
        schemas = source.schema_manager.list_all()
        self._definitions = definitions(schemas, leave_out)
        oldest = min(schemas, key=lambda schema: schema.id)
        name = source.table_path.rstrip("/").rpartition("/")[2]
        self.user = f"paimon:{name}@{oldest.time_millis}"
        """The commit user of all commits: the table's name, and when it was created."""

    def run(self) -> Table:
        """Import what is new; returns the table.

        Raises InvalidArgumentError: The source has branches, which are not to be left out.
        """
        branches = sorted(self._source.branch_manager().branches())
        if branches and "branches" not in self._leave_out:
            raise InvalidArgumentError(
                f"{self._source.table_path}: branches {', '.join(branches)}: an import has main "
                "alone; leave_out=['branches'] leaves them out"
            )
        states = list(self._states())
        first = states[0][0].schema_id if states else min(self._definitions)
        table = self._opened(self._definitions[first])
        imported = self._imported(table)
        done = max(imported, default=-1)
        before: Snapshot | None = None
        for snapshot, tags in states:
            if snapshot.id > done:
                self._bring_schema(table, self._definitions[snapshot.schema_id])
                follows = before is not None and before.id == snapshot.id - 1
                if snapshot.commit_kind != "COMPACT" or not follows:
                    self._commit(table, snapshot, before)
                imported[snapshot.id] = table.snapshot.id
            self._tag(table, tags, imported, snapshot.id)
            before = snapshot
        self._bring_schema(table, self._definitions[max(self._definitions)])
        return table

    def _states(self) -> Iterator[tuple[Any, list[str]]]:
        """Snapshots that can be read, oldest first, with names of tags."""
        snapshots = {each.id: each for each in self._source.snapshot_manager().list_snapshots()}
        tags: dict[int, list[str]] = {}
        manager = self._source.tag_manager()
        for name in manager.list_tags():
            snapshot = manager.get_or_throw(name).trim_to_snapshot()
            snapshots.setdefault(snapshot.id, snapshot)
            tags.setdefault(snapshot.id, []).append(name)
        for number in sorted(snapshots):
            yield snapshots[number], tags.get(number, [])

    def _opened(self, definition: Definition) -> Table:
        """The table, which is made if there is none."""
        source = definition.source
        if not table_exists(self._store):
            created = TableDefinition(
                schema=definition.schema,
                partition_by=source.partition_keys or None,
                primary_key=source.primary_keys or None,
                sort_by=None,
                properties=definition.properties | {"paimon.table": self.user},
            )
            create_defined(self._store, created)
        table = Table.at(self._store)
        if table.properties.get("paimon.table") != self.user:
            raise TableExists(
                f"{table.location}: expected a table that was imported from {self.user}, found "
                f"paimon.table={table.properties.get('paimon.table')!r}"
            )
        return table

    def _imported(self, table: Table) -> dict[int, int]:
        """Ids of our snapshots by those of Paimon's."""
        imported = {}
        others: list[int] = []
        for snapshot in table.snapshots():
            if snapshot.commit_user == self.user:
                imported[int(snapshot.commit_identifier or 0)] = snapshot.id
                others.clear()
            elif snapshot.kind not in _CHANGES_NO_ROWS:
                others.append(snapshot.id)
        if others:
            raise InvalidArgumentError(
                f"{table.location}: snapshot {others[0]} is a commit of somebody else: expected "
                "the import's alone, as the next of them may replace rows"
            )
        return imported

    def _bring_schema(self, table: Table, definition: Definition) -> None:
        """Change the schema to Paimon's, one version after the other."""
        at = int(table.properties[SCHEMA_ID])
        for number in sorted(self._definitions):
            if at < number <= definition.source.id:
                with table.update_schema() as update:
                    update_schema(update, self._definitions[at], self._definitions[number])
                at = number

    def _commit(self, table: Table, snapshot: Any, before: Any | None) -> None:
        """Commit what a snapshot of Paimon changed."""
        change = _Change(self._source, self._definitions[snapshot.schema_id], snapshot, before)
        identity = {
            "commit_user": self.user,
            "commit_identifier": snapshot.id,
            "message": f"Paimon snapshot {snapshot.id}",
            "properties": {
                "paimon.commit-user": snapshot.commit_user,
                "paimon.commit-identifier": str(snapshot.commit_identifier),
                "paimon.time": str(snapshot.time_millis),
            },
        }
        if change.is_append and change.keyed:
            table.upsert(change.rows(), change_type=ROW_KIND, **identity)
        elif change.is_append or before is None:
            table.append(change.rows(), **identity)
        else:
            table.overwrite(change.rows(), filter=change.replaced(), **identity)

    def _tag(self, table: Table, names: list[str], imported: dict[int, int], number: int) -> None:
        """Name the state of a snapshot of Paimon as it is named there."""
        existing = {tag.name for tag in table.tags.list()} if names else set()
        at = max((each for each in imported if each <= number), default=None)
        for name in names:
            if name not in existing:
                table.tags.create(name, version=None if at is None else imported[at])


class _Change:
    """What a snapshot of Paimon has changed since the one before it."""

    def __init__(
        self, source: Any, definition: Definition, snapshot: Any, before: Any | None
    ) -> None:
        self._source = source
        self._definition = definition
        self._snapshot = snapshot
        self._before = before
        self.keyed = bool(definition.source.primary_keys)
        # Not by the source's copy with scan.snapshot-id, which takes the options of today. What
        # only came is not merged, so that pypaimon need not know the merge engine.
        schema = definition.source
        if self.is_append:
            options = {
                name: value for name, value in schema.options.items() if not _OF_MERGING.match(name)
            }
            schema = schema.copy(new_options=options)
        self._table = self._at(schema)

    @cached_property
    def is_append(self) -> bool:
        """Whether rows only came: else those of some partitions are replaced."""
        before, snapshot = self._before, self._snapshot
        index = None if before is None else before.index_manifest
        return (
            (0 if before is None else before.id) == snapshot.id - 1
            and snapshot.commit_kind == "APPEND"
            and (self.keyed or index == snapshot.index_manifest)
            and all(
                entry.kind == 0 and (self.keyed or entry.file.write_cols is None)
                for entry in self._entries
            )
        )

    def _at(self, schema: Any) -> Any:
        """The table of Paimon as one of its schemas says."""
        source = self._source
        parts = source.file_io, source.identifier, source.table_path, schema
        return type(source)(*parts, source.catalog_environment)

    @cached_property
    def _entries(self) -> list[Any]:
        from pypaimon.manifest.manifest_file_manager import ManifestFileManager  # optional
        from pypaimon.manifest.manifest_list_manager import ManifestListManager

        table = self._at(self._definition.source)
        manifests = ManifestListManager(table).read_delta(self._snapshot)
        files = ManifestFileManager(table)
        return [entry for manifest in manifests for entry in files.read(manifest.file_name)]

    @cached_property
    def _partitions(self) -> set[tuple[Any, ...]] | None:
        """The partitions that the snapshot changed; None: any."""
        before, snapshot = self._before, self._snapshot
        if (
            not self._definition.source.partition_keys
            or before is None
            or before.id != snapshot.id - 1
            or before.index_manifest != snapshot.index_manifest
        ):
            return None
        return {tuple(entry.partition.values) for entry in self._entries}

    def replaced(self) -> pc.Expression | None:
        """Which rows go; None: all."""
        if not self._partitions:
            return None
        schema, names = self._definition.schema, self._definition.source.partition_keys

        def equal(name: str, value: Any) -> pc.Expression:
            field = pc.field(name)
            return (
                field.is_null()
                if value is None
                else field == pa.scalar(value, schema.field(name).type)
            )

        return reduce(or_, (reduce(and_, map(equal, names, values)) for values in self._partitions))

    def rows(self) -> pa.RecordBatchReader:
        """The rows that came, with their kinds if there is a key; else all of these partitions."""
        builder = self._table.new_stream_read_builder()
        scan = builder.new_streaming_scan()
        if self.is_append:
            splits = scan._create_delta_plan(self._snapshot).splits()
            if self.keyed:
                builder = builder.with_include_row_kind(True)
                for split in splits:  # the last row of a key is the newest
                    split.files.sort(key=lambda file: file.min_sequence_number)
        else:
            splits = scan._create_initial_plan(self._snapshot).splits()
            if (partitions := self._partitions) is not None:
                splits = [each for each in splits if tuple(each.partition.values) in partitions]
        try:
            return builder.new_read().to_arrow_batch_reader(splits)
        except NotImplementedError as error:
            raise InvalidArgumentError(
                f"snapshot {self._snapshot.id} of the Paimon table has to be read whole, which "
                f"pypaimon can't: {error}"
            ) from error
