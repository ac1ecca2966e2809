"""Snapshots of a catalog: the versions of many tables under one name.

A snapshot is announced in its list with the tables that it will hold, then each table gets a tag,
which keeps its data, and then one commit says which snapshots those are. Wherever that stops, the
list says what is left, and `CatalogSnapshots.delete` removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from fermion.display import NamedValues, short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_optional_text, described
from fermion_table.catalog.names import Name, TableName, parts_of, table_name
from fermion_table.catalog.rows import time_now
from fermion_table.catalog.snapshot_list import Changed, SnapshotList, SnapshotRow, State
from fermion_table.catalog.table_list import TableList
from fermion_table.catalog.tables import Tables
from fermion_table.catalog.view import heads_together
from fermion_table.catalog.walking import uuid_of
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.errors import CommitConflict, TableNotFound, VersionNotFound
from fermion_table.metadata.history import latest
from fermion_table.metadata.references import create_tag, delete_tag, load_branch, load_tag
from fermion_table.storage.paths import check_name, unique_name
from fermion_table.table.table import Table

MESSAGE_PREFIX = "catalog snapshot "

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTable:
    """A table in a snapshot of a catalog.

    Attributes
    ----------
    name
        That it had.
    table_uuid, path
        Which it is, and where it lies: relative to the warehouse, or its location elsewhere.
    snapshot_id, hash
        Its snapshot.
    """

    name: str
    table_uuid: str
    path: str
    snapshot_id: int
    hash: str

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSnapshot:
    """The versions of many tables under one name.

    Attributes
    ----------
    name, message
        As given.
    created
        When.
    table_count
        How many tables it holds.
    state
        ``ready``; ``creating`` or ``deleting`` while somebody does that, or stopped doing it: then
        it can't be read, and ``delete`` removes what is left of it.
    """

    name: str
    created: datetime
    table_count: int
    message: str | None = None
    state: State = "ready"

    __repr__ = short_repr


class CatalogSnapshots(NamedValues[CatalogSnapshot]):
    """The snapshots of a catalog: ``catalog.snapshots``.

    Parameters
    ----------
    warehouse, names, tables
        Where the tables lie, the list of them, and how they are found.
    snapshots
        The list of snapshots.
    """

    def __init__(
        self, warehouse: Warehouse, names: TableList, tables: Tables, snapshots: SnapshotList
    ) -> None:
        self._warehouse = warehouse
        self._names = names
        self._tables = tables
        self._list = snapshots

    def create(
        self, name: str, tables: Iterable[Name] | None = None, *, message: str | None = None
    ) -> CatalogSnapshot:
        """Keep the present versions of many tables under one name.

        Each table gets a tag of this name, so its version is kept and read without the catalog,
        too. The versions are those of one view (`Catalog.read_at`): never half of a transaction.

        Parameters
        ----------
        name
            Letters, digits and ``_ . -``; not digits only, and not in use. No table may have a tag
            or a branch of this name.
        tables
            Names of tables; None: all tables in the list.
        message
            Why.

        Raises
        ------
        TableNotFound
            There is no such table.
        InvalidArgumentError
            A bad name, or one in use; nothing was kept.
        CommitConflict
            Another client has deleted the snapshot while it was created.
        TypeError, CommitStateUnknown
        """
        checked = check_name(name, "catalog snapshot")
        message = check_optional_text(message, "message")
        unique = unique_name()
        rows = self._rows_of_tables(checked, tables)
        head = SnapshotRow(
            snapshot=checked,
            state="creating",
            id=unique,
            created=time_now(),
            message=message,
            table_count=len(rows),
        )
        self._announce(head, rows)
        try:
            kept = self._tagged(head, rows, skips_dropped=tables is None)
            ready = replace(head, state="ready", table_count=len(kept))
            gone = {row.key for row in rows} - {row.key for row in kept}

            def decide(there: Sequence[SnapshotRow]) -> Changed:
                if list(there) != [head]:
                    raise CommitConflict(
                        f"catalog snapshot {checked!r}: another client has deleted it meanwhile"
                    )
                return [ready, *kept], gone

            self._list.change(head, decide, f"create {checked}")
        except (InvalidArgumentError, TableNotFound, CommitConflict):  # proven not to be there
            self._remove(head, rows)
            raise
        return _snapshot_of(ready)

    def list(self) -> list[CatalogSnapshot]:
        """Every snapshot, by name."""
        return [_snapshot_of(head) for head in self._list.heads()]

    def _facts(self, value: CatalogSnapshot) -> dict[str, Any]:
        return {
            "name": value.name,
            "created": f"{value.created:%Y-%m-%d %H:%M:%S}",
            "tables": value.table_count,
            "state": value.state,
            "message": value.message,
        }

    def tables(self, name: str) -> Sequence[PinnedTable]:
        """The tables in a snapshot, by name.

        Raises
        ------
        VersionNotFound
            There is no such snapshot, or it is not ready.
        TypeError
        """
        rows = self._list.of(check_name(name, "catalog snapshot"))
        if not any(row.state == "ready" for row in rows):
            raise self._missing(name)
        return [_pinned(row) for row in sorted(rows, key=lambda row: row.key) if row.is_table]

    def delete(self, name: str) -> None:
        """Delete a snapshot and its tags; data that only it kept goes with the next expiry.

        Raises
        ------
        VersionNotFound
            There is no such snapshot.
        OSError
            A tag can't be deleted: delete the snapshot again.
        TypeError, CommitConflict, CommitStateUnknown
        """
        rows = self._list.of(check_name(name, "catalog snapshot"))
        heads = [row for row in rows if not row.is_table]
        if not heads:
            raise self._missing(name)
        self._remove(heads[0], [row for row in rows if row.is_table])

    def open(self, snapshot: str, name: TableName) -> Table | None:
        """A table as a snapshot holds it; None if there is no such snapshot, or it holds none.

        Raises
        ------
        VersionNotFound
            The table's tag was deleted, and its snapshot has expired.
        TableNotFound
            The table is gone.
        """
        row = self._list.find((snapshot, *name.key))
        if row is None or row.snapshot_id is None:
            return None
        assert row.path is not None
        store = self._warehouse.store(row.path)
        tag = load_tag(store, snapshot)
        version = snapshot if tag is not None and tag.hash == row.hash else row.snapshot_id
        opened = Table.at(store, version=version)
        if opened.snapshot.hash != row.hash:
            raise VersionNotFound(
                f"{name}: catalog snapshot {snapshot!r} holds snapshot {row.snapshot_id} of hash "
                f"{row.hash}, which is not there any more"
            )
        return opened

    def _rows_of_tables(
        self, snapshot: str, tables: Iterable[Name] | None
    ) -> Sequence[SnapshotRow]:
        """Rows of the tables that a snapshot is to hold."""
        if tables is None:
            listed = [row for row in self._names.rows() if row.is_table]
            return [
                SnapshotRow(
                    snapshot=snapshot,
                    namespace=row.namespace,
                    name=row.name,
                    table_uuid=row.table_uuid,
                    path=row.path,
                )
                for row in listed
            ]
        if isinstance(tables, (str, bytes)) or not isinstance(tables, Iterable):
            raise TypeError(f"tables: expected a list of names, found {described(tables)}")
        names = [table_name(each, "an item of tables") for each in tables]
        return [self._row_of_table(snapshot, name) for name in dict.fromkeys(names)]

    def _row_of_table(self, snapshot: str, name: TableName) -> SnapshotRow:
        placed = self._tables.required(name)
        namespace, last = name.key
        return SnapshotRow(
            snapshot=snapshot,
            namespace=namespace,
            name=last,
            table_uuid=uuid_of(placed.store),
            path=placed.path,
        )

    def _announce(self, head: SnapshotRow, rows: Sequence[SnapshotRow]) -> None:
        def decide(there: Sequence[SnapshotRow]) -> Changed:
            for other in there:
                why = (
                    "exists already; delete it first"
                    if other.state == "ready"
                    else "is being created or deleted, or that was not finished; delete it first"
                )
                raise InvalidArgumentError(f"catalog snapshot {head.snapshot!r} {why}")
            return [head, *rows], ()

        self._list.change(head, decide, f"begin {head.snapshot}")

    def _tagged(
        self, head: SnapshotRow, rows: Sequence[SnapshotRow], *, skips_dropped: bool
    ) -> Sequence[SnapshotRow]:
        """Give the tables their tags; the rows with their snapshots, without dropped tables."""
        stores = {_name_of(row): self._warehouse.store(row.path or "") for row in rows}
        at_once = self._warehouse.tables_at_once
        heads = heads_together(stores, None, tables_at_once=at_once)

        def tag(row: SnapshotRow) -> SnapshotRow | None:
            store = stores[_name_of(row)]
            try:
                snapshot = heads.get(_name_of(row)) or latest(store)
                if load_tag(store, head.snapshot) is not None:
                    raise InvalidArgumentError(f"it has a tag {head.snapshot!r}")
                if load_branch(store, head.snapshot) is not None:
                    raise InvalidArgumentError(f"it has a branch {head.snapshot!r}")
                made = create_tag(store, head.snapshot, snapshot, message=_tag_message(head))
            except TableNotFound:
                listed = self._names.row(_name_of(row))
                if skips_dropped and (listed is None or listed.path != row.path):
                    return None  # it was dropped or renamed just now
                raise
            except InvalidArgumentError as error:
                raise InvalidArgumentError(
                    f"catalog snapshot {head.snapshot!r}: table {_name_of(row)}: {error}"
                ) from error
            uuid = snapshot.table_uuid
            return replace(row, table_uuid=uuid, snapshot_id=made.snapshot_id, hash=made.hash)

        return [row for row in self._each(tag, rows) if row is not None]

    def _remove(self, head: SnapshotRow, rows: Sequence[SnapshotRow]) -> None:
        """Delete a snapshot, whatever there is of it: first its tags, then its rows."""
        going = replace(head, state="deleting")

        def mark(there: Sequence[SnapshotRow]) -> Changed:
            is_same = any(row.id == head.id and row != going for row in there)
            return ([going], ()) if is_same else ((), ())

        def forget(there: Sequence[SnapshotRow]) -> Changed:
            is_same = any(row.id == head.id for row in there)
            return (), [head.key, *(row.key for row in rows)] if is_same else ()

        self._list.change(head, mark, f"begin to delete {head.snapshot}")
        self._each(lambda row: self._untag(head, row), rows)
        self._list.change(head, forget, f"delete {head.snapshot}")

    def _each(self, act: Callable[[_Given], _Made], given: Sequence[_Given]) -> Sequence[_Made]:
        """Do something for many tables; all are done before the first error is raised."""
        with ThreadPoolExecutor(self._warehouse.tables_at_once) as pool:
            futures = [pool.submit(act, each) for each in given]
        return [future.result() for future in futures]

    def _untag(self, head: SnapshotRow, row: SnapshotRow) -> None:
        assert row.path is not None
        store = self._warehouse.store(row.path)
        tag = load_tag(store, head.snapshot)
        if tag is not None and tag.message == _tag_message(head):
            with contextlib.suppress(VersionNotFound):  # somebody else has deleted it just now
                delete_tag(store, head.snapshot)

    def _missing(self, name: str) -> VersionNotFound:
        known = ", ".join(each.name for each in self.list()[:10])
        return VersionNotFound(f"no catalog snapshot {name!r}; there are: {known or 'none'}")


def _tag_message(head: SnapshotRow) -> str:
    """The message of a snapshot's tags, by which they are known."""
    return f"{MESSAGE_PREFIX}{head.id}" + (f": {head.message}" if head.message else "")


def _name_of(row: SnapshotRow) -> TableName:
    return TableName(parts_of(row.namespace), row.name)


def _snapshot_of(head: SnapshotRow) -> CatalogSnapshot:
    assert head.created is not None
    assert head.state is not None
    return CatalogSnapshot(
        name=head.snapshot,
        created=head.created,
        table_count=head.table_count or 0,
        message=head.message,
        state=head.state,
    )


def _pinned(row: SnapshotRow) -> PinnedTable:
    assert row.path is not None
    return PinnedTable(
        name=str(_name_of(row)),
        table_uuid=row.table_uuid or "",
        path=row.path,
        snapshot_id=-1 if row.snapshot_id is None else row.snapshot_id,
        hash=row.hash or "",
    )
