"""Making the list of tables true again, from the tables' own files.

The directories of the warehouse are walked. What the list has and is not there goes, what is there
and is not in the list comes in. No file of a table is touched, but for those of the list itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import field, replace

from fermion.exports import dataclass
from fermion_table.catalog.names import (
    SNAPSHOTS_PATH,
    TABLES_PATH,
    TableName,
    directory_of,
    parts_of,
    places_of,
    quoted,
)
from fermion_table.catalog.rows import CatalogRow, Key, bare
from fermion_table.catalog.snapshot_list import SnapshotList
from fermion_table.catalog.snapshots import MESSAGE_PREFIX
from fermion_table.catalog.table_list import TableList, row_of_namespace
from fermion_table.catalog.walking import Found, FoundTable, number_of, uuid_of, walk
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.checks.repair import Choice, RepairResult, repair
from fermion_table.errors import CorruptMetadata, TableError
from fermion_table.expiry.drop import delete_own_files, remove_empty_folders
from fermion_table.metadata.history import list_ids, table_exists
from fermion_table.metadata.references import load_tag
from fermion_table.table.table import Table


def repair_catalog(
    warehouse: Warehouse, names: TableList, snapshots: SnapshotList, *, dry_run: bool
) -> RepairResult:
    """See `Catalog.repair`."""
    work = _Repair(warehouse)
    is_lost = work.repair_lists(dry_run=dry_run)
    wrong = names.forget_wrong(dry_run=dry_run)
    work.actions += [f"{path}: deleted, as it is the note of no table" for path in wrong]
    found = walk(warehouse, tells_remains=not is_lost)
    if is_lost:
        work.actions.append(
            f"{TABLES_PATH}: can't be read; the list is made anew from the directories"
        )
        work.actions += [f"{table.name}: listed, lies at {table.path}" for table in found.tables]
        if not dry_run:
            delete_own_files(warehouse.store(TABLES_PATH))
            names.change((), lambda there: (), "repair")
    elif dry_run:
        try:
            work.decide({row.key: row for row in names.rows()}, found)
        except CorruptMetadata:
            work.problems.append(f"{TABLES_PATH}: names can be checked after it is repaired")
    else:

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            work.actions[:], work.problems[:] = work.before
            return work.decide(there, found)

        work.before = list(work.actions), list(work.problems)
        names.change(None, decide, "repair")
    work.remove_remains(dry_run=dry_run)
    if not (is_lost and dry_run):
        work.check_snapshots(snapshots)
    return RepairResult(actions=tuple(work.actions), problems=tuple(work.problems), dry_run=dry_run)


@dataclass(slots=True)
class _Repair:
    warehouse: Warehouse
    actions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    before: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def repair_lists(self, *, dry_run: bool) -> bool:
        """Repair the catalog's own tables; whether the list of tables is past that."""
        is_lost = False
        for path in (TABLES_PATH, SNAPSHOTS_PATH):
            store = self.warehouse.store(path)
            if not list_ids(store):
                continue
            done = repair(store, Choice(dry_run=dry_run))
            self.actions += [f"{path}: {each}" for each in done.actions]
            left = [] if dry_run and done.actions else done.problems
            if path == TABLES_PATH and left:
                is_lost = True
            else:
                self.problems += [f"{path}: {each}" for each in left]
        return is_lost

    def decide(self, there: dict[Key, CatalogRow], found: Found) -> list[CatalogRow | Key]:
        """What to write to a list, given its rows and what lies in the directories."""
        changed: dict[Key, CatalogRow | None] = {}
        dropped = {each.path for row in there.values() for each in row.dropped}
        going = {path for path in dropped if self._has_files(path)}
        for row in there.values():
            after = self._true(row, going)
            if after != row:
                changed[row.key] = after
        rows = {**there, **changed}
        known = {row.path for row in rows.values() if row is not None and row.is_table}
        known |= {each.path for row in rows.values() if row is not None for each in row.dropped}
        for table in found.tables + found.nameless:
            if table.path not in known:
                self._list(table, rows, changed)
        for parts in found.namespaces:
            if (quoted(parts), "") not in rows:
                self.actions.append(f"namespace {quoted(parts)}: listed")
                changed[quoted(parts), ""] = row_of_namespace(parts)
        self.remains = [
            "/".join(parts) for parts in found.remains if (quoted(parts), "") not in rows
        ]
        self._find_twins(row for row in rows.values() if row is not None)
        return [key if row is None else row for key, row in changed.items()]

    def _true(self, row: CatalogRow, going: Set[str]) -> CatalogRow | None:
        """A row as it should be; None if it should not be there.

        going: Where files of dropped tables lie, which somebody may be deleting just now.
        """
        if row.kind == "namespace":
            return row
        name = _name_of(row)
        left = tuple(each for each in row.dropped if each.path in going)
        if len(left) < len(row.dropped):
            self.actions.append(
                f"{name}: the files of {len(row.dropped) - len(left)} dropped "
                "tables are gone; forgotten"
            )
            row = replace(row, dropped=left)
        if row.is_table:
            assert row.path is not None
            store = self.warehouse.store(row.path)
            is_own = self.warehouse.is_own(row.path)
            if table_exists(store) and not is_own:
                uuid = uuid_of(store)
                if uuid is not None and uuid != row.table_uuid:
                    self.actions.append(f"{name}: {row.path} holds another table than before")
                    row = replace(row, table_uuid=uuid)
                return row
            what = "the catalog's own list" if is_own else "no table"
            self.actions.append(f"{name}: taken out of the list, as {what} lies at {row.path}")
            row = bare(row)
        own = [path for number in range(row.directories) for path in places_of(name, number)]
        used = any(path in going or self.warehouse.has_table(path) for path in own)
        return row if row.dropped or used else None

    def _list(
        self,
        table: FoundTable,
        rows: dict[Key, CatalogRow | None],
        changed: dict[Key, CatalogRow | None],
    ) -> None:
        """Put a table into the list that is not in it."""
        if table.name is None:
            self.problems.append(f"{table.path}: a table without a name; register it, or drop it")
            return
        name = table.name
        there = rows.get(name.key)
        number = number_of(name, table.path)
        is_free = there is None or not there.directories
        is_late = number != 0 and is_free and self.warehouse.has_table(directory_of(name))
        if is_late or (there is not None and there.is_table):
            self.problems.append(
                f"{table.path}: a table that is not listed, as another one has its name, {name}; "
                "register it under another name, or drop it"
            )
            return
        row = table.row
        if there is not None:
            used = max(there.directories, number + 1)
            row = replace(row, directories=used, dropped=there.dropped)
        if uuid_of(self.warehouse.store(table.path)) != table.table_uuid:
            return  # it was dropped since it was found
        self.actions.append(f"{name}: listed, lies at {table.path}")
        try:
            Table.at(self.warehouse.store(table.path))
        except CorruptMetadata as error:
            self.problems.append(
                f"{name}: {error}; if it was purged, drop it with purge=True again"
            )
        rows[name.key] = changed[name.key] = row

    def _find_twins(self, rows: Iterable[CatalogRow]) -> None:
        """Report tables that have two names."""
        seen: dict[str | None, TableName] = {}
        for row in rows:
            if not row.is_table:
                continue
            other = seen.setdefault(row.path, _name_of(row))
            if other != _name_of(row):
                self.problems.append(
                    f"{_name_of(row)}: the same table as {other}; drop one of them"
                )

    def _has_files(self, path: str) -> bool:
        """Whether anything is left of a table: then its directory can't be used again yet."""
        return any(True for _ in self.warehouse.store(path).list())

    def remove_remains(self, *, dry_run: bool) -> None:
        """Remove what is left of tables."""
        for path in self.remains:
            what = f"{path}: removed, as only empty directories of a table are left"
            if not dry_run:
                remove_empty_folders(self.warehouse.store(path))
            above, _, name = path.rpartition("/")
            if dry_run or name not in {each.name for each in self.warehouse.folders(above)}:
                self.actions.append(what)
            else:
                self.problems.append(f"{path}: empty directories of a table can't be removed")

    def check_snapshots(self, snapshots: SnapshotList) -> None:
        """Report snapshots that are not finished, or have lost a tag."""
        try:
            heads = snapshots.heads()
        except TableError as error:
            self.problems.append(f"{SNAPSHOTS_PATH}: {error}")
            return
        for head in heads:
            name = head.snapshot
            if head.state != "ready":
                self.problems.append(
                    f"catalog snapshot {name}: {head.state}; delete it if nobody is at it any more"
                )
                continue
            for row in snapshots.of(name):
                if not row.is_table or row.path is None:
                    continue
                tag = load_tag(self.warehouse.store(row.path), name)
                if tag is None or tag.hash != row.hash:
                    table = TableName(parts_of(row.namespace), row.name)
                    self.problems.append(
                        f"catalog snapshot {name}: table {table} at {row.path} has lost its tag "
                        f"({MESSAGE_PREFIX}{head.id})"
                    )


def _name_of(row: CatalogRow) -> TableName:
    return TableName(parts_of(row.namespace), row.name)
