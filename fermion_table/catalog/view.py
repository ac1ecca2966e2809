"""One consistent view of all tables of a warehouse: never half of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from fermion.display import location_text
from fermion_table.catalog.names import Name, TableName, parts_of, table_name
from fermion_table.catalog.table_list import TableList
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.errors import TableNotFound, VersionNotFound
from fermion_table.metadata.history import latest, walk
from fermion_table.metadata.snapshot import TRANSACTIONS, Snapshot
from fermion_table.metadata.versions import snapshot_at
from fermion_table.storage.store import AtomicStore
from fermion_table.table.table import Table

if TYPE_CHECKING:
    from fermion_table.scanning.sql import SqlResult

Heads = dict[TableName, Snapshot]


class CatalogView:
    """The tables of a warehouse as they were at one moment: `Catalog.read_at`.

    Its tables can only be read. Snapshots that expire can't be read any more, as with a table that
    was opened before.

    Parameters
    ----------
    stores, heads
        Where the tables lie, and their snapshots, by name.
    """

    def __init__(
        self, location: str, stores: Mapping[TableName, AtomicStore], heads: Heads
    ) -> None:
        self._location = location
        self._stores = dict(stores)
        self._heads = heads

    def __repr__(self) -> str:
        return f"<CatalogView of {len(self._heads)} tables, {location_text(self._location)}>"

    def tables(self) -> list[str]:
        """The names of the tables that were there, ascending."""
        return sorted(str(name) for name in self._heads)

    def table(self, name: Name) -> Table:
        """A table as it was.

        Raises
        ------
        TableNotFound
            There was none of this name.
        TypeError, InvalidArgumentError
        """
        checked = table_name(name)
        head = self._heads.get(checked)
        if head is None:
            raise TableNotFound(f"{checked}: no such table in this view")
        return Table(self._stores[checked], head, version=head.id)

    def sql(self, query: str) -> SqlResult:
        """Answer a query of SQL over tables of the view (see `Catalog.sql`)."""
        from fermion_table.scanning.sql import SqlResult  # pyarrow.dataset is slow to import

        return SqlResult(query, lambda name: self.table(name).scan(), where="view: sql")


def view_at(warehouse: Warehouse, names: TableList, moment: datetime | None) -> CatalogView:
    """The tables in the list at one moment: now, or at a time."""
    stores = {
        TableName(parts_of(row.namespace), row.name): warehouse.store(row.path)
        for row in names.rows()
        if row.is_table and row.path is not None
    }
    heads = heads_together(stores, moment, tables_at_once=warehouse.tables_at_once)
    return CatalogView(warehouse.location, stores, heads)


def heads_together(
    stores: Mapping[TableName, AtomicStore], moment: datetime | None, *, tables_at_once: int
) -> Heads:
    """The snapshots of tables at one moment, without those of tables that are not there.

    The ends of all histories are read twice. Where a transaction was committed in between, its
    other tables are read again: what a table shows then, all others that it changed show as well.
    """
    with ThreadPoolExecutor(tables_at_once) as pool:

        def each(act: Callable[[TableName], Snapshot | None], asked: Iterable[TableName]) -> Heads:
            listed = list(asked)
            found = zip(listed, pool.map(act, listed), strict=True)
            return {name: snapshot for name, snapshot in found if snapshot is not None}

        heads: Heads = each(lambda name: _head(stores[name], None), stores)
        wanted = list(heads)
        while wanted:
            read = each(partial(_again, stores, heads), wanted)
            changed = {name for name in read if read[name].hash != heads[name].hash}
            members = {
                uuid for name in changed for uuid in _members(stores[name], heads[name], read[name])
            }
            gone = set(wanted) - set(read)
            heads = {name: head for name, head in (heads | read).items() if name not in gone}
            wanted = [name for name, head in heads.items() if head.table_uuid in members]
        if moment is not None:
            heads = each(lambda name: _at(stores[name], heads[name], moment), heads)
    return heads


def _head(store: AtomicStore, known: Snapshot | None) -> Snapshot | None:
    """The newest snapshot; None if the table was dropped just now."""
    try:
        return latest(store, start=None if known is None else known.id)
    except TableNotFound:
        return None


def _again(
    stores: Mapping[TableName, AtomicStore], heads: Heads, name: TableName
) -> Snapshot | None:
    """The newest snapshot of a table that was read before."""
    return _head(stores[name], heads[name])


def _members(store: AtomicStore, known: Snapshot, head: Snapshot) -> set[str]:
    """The tables of the transactions that were committed to a table since it was read."""
    if TRANSACTIONS not in head.reader_features:
        return set()
    found: set[str] = set()
    for snapshot in walk(store, head):
        if snapshot.id <= known.id or snapshot.table_uuid != known.table_uuid:
            break
        if snapshot.transaction is not None:
            found.update(snapshot.transaction.participants)
    return found


def _at(store: AtomicStore, head: Snapshot, moment: datetime) -> Snapshot | None:
    """What a table showed at a time; None if it was not there, or that has expired."""
    try:
        return snapshot_at(store, moment, newest=head)
    except VersionNotFound:
        return None
