"""Creating, finding, renaming, dropping and registering the tables of a catalog.

The snapshot 0 of a table decides who of several creates it, since all choose the same directory;
then its row in the list says who has the name. What lies in the directory of a name without a row
opens all the same. Every other change is a change of rows, decided on what they are: see
`keyed_list`. Files are deleted after the row has said so, so that nothing else comes to lie there
before they are gone.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal
from zlib import crc32

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.redaction import redacted
from fermion_table.catalog.names import TableName, directory_of, places_of
from fermion_table.catalog.rows import CatalogRow, DroppedFiles, Key, bare, time_now
from fermion_table.catalog.snapshot_list import SnapshotList
from fermion_table.catalog.table_list import (
    TableList,
    keys_of,
    keys_of_namespace,
    namespace_rows,
    naming,
)
from fermion_table.catalog.walking import NAME_PROPERTY, uuid_of
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.commit.commit import Publisher
from fermion_table.commit.replacement import TableDefinition, create_defined, replace_table
from fermion_table.commit.request import CommitMetadata
from fermion_table.errors import (
    CommitConflict,
    CorruptMetadata,
    TableError,
    TableExists,
    TableNotFound,
)
from fermion_table.expiry.drop import DroppedTable
from fermion_table.metadata.history import table_exists
from fermion_table.metadata.shared_files import is_outside
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.store import AtomicStore
from fermion_table.table.staged import create_with_rows
from fermion_table.table.table import Table

CreateMode = Literal["error", "ignore", "overwrite"]
TRIES_MAX = 20
ENTERED_EVERY = 32
"""The create of one name in so many gives all tables rows that were created without."""
NAMES_SHOWN = 5
NAMES_COMPARED_MAX = 5_000
"""Among more names than these, an error looks for no close ones."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the table of a name lies.

    path: See `CatalogRow.path`.
    row: The name's row in the list. If it names no table, or there is none, the table lies in the
        directory of the name and is not in the list.
    """

    path: str
    store: AtomicStore
    row: CatalogRow | None = None

    @property
    def is_listed(self) -> bool:
        """Whether the list has the table."""
        return self.row is not None and self.row.is_table


class Tables:
    """The tables of a warehouse, by name.

    warehouse, names, snapshots: Where they lie, the list of them, and that of the catalog's
        snapshots, which hold some.
    """

    def __init__(self, warehouse: Warehouse, names: TableList, snapshots: SnapshotList) -> None:
        self._warehouse = warehouse
        self._names = names
        self._snapshots = snapshots

    def find(self, name: TableName) -> Placed | None:
        """Where the table of a name lies; None if there is none."""
        row = self._names.row(name)
        return self._placed(name, row)

    def required(self, name: TableName) -> Placed:
        """The same.

        Raises TableNotFound: Names the closest ones.
        """
        found = self.find(name)
        if found is None:
            raise self.missing(name)
        return found

    def exists(self, name: TableName) -> bool:
        """Whether there is a table, in the list and in its place."""
        found = self.find(name)
        return found is not None and table_exists(found.store)

    def missing(self, name: TableName) -> TableNotFound:
        """The error for a name that no table has."""
        known: list[str] = []
        close: list[str] = []
        with contextlib.suppress(OSError):  # who opens a table may have no right to list any
            known = self._names.tables(name.key[0], None)
        if len(known) <= NAMES_COMPARED_MAX:
            close = difflib.get_close_matches(str(name), known, NAMES_SHOWN)
        hint = f"; the closest names: {', '.join(close)}" if close else ""
        return TableNotFound(f"{redacted(self._warehouse.location)}: no table {name}{hint}")

    def create(
        self,
        name: TableName,
        definition: TableDefinition,
        rows: Any,
        mode: CreateMode,
        message: str | None,
    ) -> Table:
        """Make a table, with first rows unless they are None (see `Catalog.create_table`)."""
        definition.first_schema()  # a wrong argument is told before anything is looked for
        keys = keys_of(name)  # all that the change will read: they are looked up once
        for tries in range(TRIES_MAX):
            are_read = tries > 0 and rows is not None  # a stream can't be read again
            row = self._names.find(keys).get(name.key)
            placed = self._placed(name, row)
            if placed is not None and not (are_read and mode == "overwrite"):
                return self._existing(name, placed, definition, rows, mode, message)
            if are_read:
                raise CommitConflict(
                    f"{name}: another client created or dropped this table at the same moment; "
                    "its first rows were not written"
                )
            number = 0 if row is None else row.directories
            path = directory_of(name, number)
            store = self._warehouse.store(path)
            try:
                snapshot = _created(store, name, definition, rows, message)
            except TableExists:
                if not table_exists(store):
                    raise  # another table lies above or below
                continue
            if self._enlist(name, path, number, snapshot.table_uuid):
                self._make_folder(name)
                return _opened(name, store, snapshot)
        raise CommitConflict(f"{name}: other clients created and dropped this table all the time")

    def rename(self, old: TableName, new: TableName) -> None:
        """Give a table another name (see `Catalog.rename_table`)."""
        if old == new:
            raise TableExists(f"{new}: the table has this name already")

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            row, target = there.get(old.key), there.get(new.key)
            found = self._placed(old, row)
            if found is None:
                raise self.missing(old)
            if self._placed(new, target) is not None:
                raise TableExists(f"{new}: a table has this name already")
            before = self._row_of(old, found)
            yield replace(
                before,
                namespace=new.key[0],
                name=new.key[1],
                directories=0 if target is None else target.directories,
                dropped=() if target is None else target.dropped,
            )
            yield _unused(before)
            yield from namespace_rows(new.namespace, there)

        self._names.change(
            [old.key, new.key, *keys_of_namespace(new.namespace)],
            decide,
            f"rename {old} to {new}",
        )
        self._make_folder(new)

    def register(self, name: TableName, location: str, table: Table) -> None:
        """Put a table into the list that lies somewhere (see `Catalog.register_table`)."""
        path, uuid = self._warehouse.path_of(location), table.snapshot.table_uuid
        if self._warehouse.is_own(path):
            raise InvalidArgumentError(
                f"{redacted(location)}: a list that a catalog keeps of itself can't have a name "
                "in a catalog; Table.open opens it"
            )

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            for other in there.values():
                if other.is_table and other.table_uuid == uuid:
                    raise TableExists(
                        f"{redacted(location)}: this table is listed already, as "
                        f"{'.'.join(filter(None, other.key))}; rename it instead"
                    )
            row = there.get(name.key)
            found = self._placed(name, row)
            if found is not None and (found.is_listed or found.path != path):
                raise TableExists(f"{name}: a table has this name already")
            used = 1 if path in places_of(name) else 0
            yield CatalogRow(
                namespace=name.key[0],
                name=name.key[1],
                kind="table",
                table_uuid=uuid,
                path=path,
                created=time_now(),
                directories=max(used, 0 if row is None else row.directories),
                dropped=() if row is None else _others(row, uuid),
            )
            for other in there.values():
                if other.key != name.key and any(each.table_uuid == uuid for each in other.dropped):
                    yield replace(other, dropped=_others(other, uuid))
            yield from namespace_rows(name.namespace, there)

        self._names.change(keys_of(name), decide, f"register {name}", also=naming(uuid))

    def drop(self, name: TableName, *, purge: bool) -> DroppedTable | None:
        """Drop a table (see `Catalog.drop_table`); what was deleted, None without `purge`."""
        placed = self.required(name)
        if purge and self._warehouse.is_own(placed.path):
            raise InvalidArgumentError(
                f"{name}: a list that a catalog keeps of itself lies at {placed.path}; drop the "
                "name with purge=False, which keeps the files. Nothing was dropped"
            )
        if purge and table_exists(placed.store):
            self._refuse_shared(name, placed)
        dropped: list[DroppedFiles] = []

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            found = self._placed(name, there.get(name.key))
            if found is None or found.path != placed.path:
                raise TableNotFound(f"{name}: another client has dropped or renamed it just now")
            before = self._row_of(name, found)
            uuid = uuid_of(found.store) or ""
            files = DroppedFiles(table_uuid=uuid, path=found.path, dropped=time_now())
            dropped[:] = [files] if table_exists(found.store) else []
            if dropped and (purge or not is_outside(found.path)):
                yield replace(bare(before), dropped=(*before.dropped, files))
            else:
                yield _unused(before)

        self._names.change([name.key], decide, f"drop {name}{' and its files' if purge else ''}")
        if not dropped:
            self.forget(name, (), placed.path)
        return self._purge(name, dropped[0]) if purge and dropped else None

    def forget(self, name: TableName, files: Iterable[DroppedFiles], path: str) -> None:
        """Say that the files of dropped tables are gone.

        The name is as new if that was the only directory that it has used. In another one, or in
        that of a table that was renamed since, somebody may be deleting files just now.

        path: The directory that is free now.
        """
        gone = set(files)
        is_own = path in places_of(name)

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            row = there.get(name.key)
            if row is None:
                return
            left = tuple(each for each in row.dropped if each not in gone)
            after = replace(row, dropped=left)
            is_new = row.directories == 0 or (row.directories == 1 and is_own)
            if row.kind == "unused" and not left and is_new and not self._warehouse.has_table(path):
                yield row.key
            elif after != row:
                yield after

        self._names.change([name.key], decide, f"deleted the files of {name}")

    def _placed(self, name: TableName, row: CatalogRow | None) -> Placed | None:
        """Where the table of a name lies, by its row, or in the directory that it may have."""
        if row is not None and row.is_table:
            assert row.path is not None
            return Placed(row.path, self._warehouse.store(row.path), row)
        for path in places_of(name, 0 if row is None else row.directories):
            store = self._warehouse.store(path)
            if table_exists(store):
                return Placed(path, store, row)
        return None

    def _existing(
        self,
        name: TableName,
        placed: Placed,
        definition: TableDefinition,
        rows: Any,
        mode: CreateMode,
        message: str | None,
    ) -> Table:
        """What `create` does where there is a table."""
        if mode == "error":
            raise TableExists(f"{name}: a table has this name already")
        if mode == "overwrite" and rows is not None:
            metadata = CommitMetadata(message=message)
            replaced = create_with_rows(placed.store, definition, rows, metadata, replaces=True)
            return Table(placed.store, replaced)
        table = Table.at(placed.store)
        if mode == "overwrite":
            metadata = CommitMetadata(message=message)
            replace_table(Publisher(placed.store), table.snapshot, definition, metadata=metadata)
            table.refresh()
        return table

    def _enlist(self, name: TableName, path: str, number: int, uuid: str) -> bool:
        """Put a table that was just made into the list; False if others came in between.

        It needs no row of its own where the name has none now: the name is that of its directory.
        """
        if number == 0 and self._names.note(name, uuid):
            is_free = name.key not in self._names.find(keys_of(name))
            if is_free and uuid_of(self._warehouse.store(path)) == uuid:
                if crc32(str(name).encode()) % ENTERED_EVERY == 0:
                    with contextlib.suppress(OSError, TableError):  # the table is there
                        self._names.enter()
                return True
        lost: list[DroppedFiles] = []

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            lost.clear()
            row = there.get(name.key) or CatalogRow(
                namespace=name.key[0], name=name.key[1], kind="unused"
            )
            if row.is_table and row.table_uuid == uuid:
                return  # a repair was faster
            is_mine = uuid_of(self._warehouse.store(path)) == uuid
            is_simple = not row.is_table and row.directories == number and not row.dropped
            if is_mine and not is_simple and self._names.has_named(uuid):
                return  # it was renamed, or dropped, before it was in the list
            is_going = any(each.path == path for each in row.dropped)
            # There was no row for a moment, in which a create that needs none came first.
            is_first = number > 0 and row.directories == 0
            is_late = is_first and self._warehouse.has_table(directory_of(name))
            if is_mine and not (row.is_table or is_going or is_late):
                yield replace(
                    row,
                    kind="table",
                    table_uuid=uuid,
                    path=path,
                    created=time_now(),
                    directories=max(row.directories, number + 1),
                )
                yield from namespace_rows(name.namespace, there)
                return
            mine = DroppedFiles(table_uuid=uuid, path=path, dropped=time_now())
            lost.append(mine)
            if is_mine:
                used = 0 if is_late else max(row.directories, number + 1)
                yield replace(row, directories=used, dropped=(*row.dropped, mine))

        self._names.change(keys_of(name), decide, f"create {name}")
        if not lost:
            return True
        row = self._names.row(name)
        if row is not None and any(each == lost[0] for each in row.dropped):
            self._purge(name, lost[0])
        return False

    def _purge(self, name: TableName, files: DroppedFiles) -> DroppedTable:
        """Delete the files of a table that the list says was dropped."""
        result = DroppedTable(location=files.path)
        store = self._warehouse.store(files.path)
        if table_exists(store) and (uuid_of(store) or "") == files.table_uuid:
            result = self._warehouse.drop(files.path)
        self.forget(name, [files], files.path)
        return result

    def _refuse_shared(self, name: TableName, placed: Placed) -> None:
        """Refuse to delete files that clones need, or snapshots of the catalog hold.

        So is a directory in which other tables lie, or a warehouse.

        Raises InvalidArgumentError.
        """
        holding = self._snapshots.holding(uuid_of(placed.store) or "")
        if holding:
            raise InvalidArgumentError(
                f"{name}: snapshots of the catalog hold this table: "
                f"{', '.join(holding[:NAMES_SHOWN])}; delete these first, or drop the table with "
                "purge=False, which keeps its files. Nothing was dropped"
            )
        planned = self._warehouse.drop(placed.path, dry_run=True)
        for others, what in (
            (planned.clones, "clones share data files of this table"),
            (planned.tables, "other tables lie in the directory of this table"),
        ):
            if others:
                shown = ", ".join(redacted(other) for other in others[:NAMES_SHOWN])
                raise InvalidArgumentError(
                    f"{name}: {what}: {shown}; drop these first, or drop the table with "
                    "purge=False, which keeps its files. Nothing was dropped"
                )

    def _row_of(self, name: TableName, found: Placed) -> CatalogRow:
        """The row of a table that was found, made up where it has none."""
        row = found.row
        if row is not None and row.is_table:
            return row
        used = 0 if row is None else row.directories
        return CatalogRow(
            namespace=name.key[0],
            name=name.key[1],
            kind="table",
            table_uuid=uuid_of(found.store),
            path=found.path,
            created=time_now(),
            directories=used + 1,
            dropped=() if row is None else row.dropped,
        )

    def _make_folder(self, name: TableName) -> None:
        if name.namespace:
            self._warehouse.make_folder("/".join(name.namespace))


def _unused(row: CatalogRow) -> CatalogRow | Key:
    """The row of a name that its table loses; the key alone if nothing is left to say."""
    return bare(row) if row.directories or row.dropped else row.key


def _others(row: CatalogRow, uuid: str) -> tuple[DroppedFiles, ...]:
    return tuple(each for each in row.dropped if each.table_uuid != uuid)


def _created(
    store: AtomicStore, name: TableName, definition: TableDefinition, rows: Any, message: str | None
) -> Snapshot:
    """The newest snapshot of a new table; raises as `create_defined` and `create_with_rows`."""
    named = {NAME_PROPERTY: str(name)}
    if rows is None:
        metadata = CommitMetadata(message=message, properties=named)
        return create_defined(store, definition, metadata=metadata)
    metadata = CommitMetadata(message=message)
    return create_with_rows(store, definition, rows, metadata, creation_properties=named)


def _opened(name: TableName, store: AtomicStore, snapshot: Snapshot) -> Table:
    """A table that was just made.

    Raises TableNotFound: Another client has dropped it with its files since.
    """
    try:
        return Table(store, snapshot)
    except CorruptMetadata:
        if uuid_of(store) == snapshot.table_uuid:
            raise
        raise TableNotFound(f"{name}: made, and dropped by another client at once") from None
