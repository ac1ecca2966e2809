"""The tables and namespaces that lie in the directories of a warehouse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

from fermion.errors import FermionError, InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.catalog.names import (
    CATALOG_DIRECTORY,
    DATA_PATH,
    PARTS_MAX,
    TableName,
    directory_of,
    is_directory_name,
    is_table_directory,
    places_of,
    table_name,
)
from fermion_table.catalog.rows import CatalogRow, time_now
from fermion_table.catalog.warehouse import Folder, Warehouse
from fermion_table.expiry.drop import has_only_empty_folders
from fermion_table.metadata.history import table_exists, try_load
from fermion_table.storage.paths import is_own_folder
from fermion_table.storage.store import AtomicStore

NAME_PROPERTY = "fermion.catalog_name"
"""Property of the snapshot 0 of a table that a catalog made: the name that it was made under."""
LOOKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table in a directory of a warehouse.

    name: That its directory says; of one in the catalog's own directory the one that it was made
        under. None: it says none.
    table_uuid: Of its snapshot 0; None: that can't be read.
    """

    path: str
    name: TableName | None
    table_uuid: str | None

    @property
    def row(self) -> CatalogRow:
        """Its row in a new list; there is a name."""
        assert self.name is not None
        namespace, name = self.name.key
        is_own = self.path in places_of(self.name)
        return CatalogRow(
            namespace=namespace,
            name=name,
            kind="table",
            table_uuid=self.table_uuid,
            path=self.path,
            created=time_now(),
            directories=1 if is_own else number_of(self.name, self.path) + 1,
        )


@dataclass(slots=True)
class Found:
    """What lies in a warehouse.

    tables, namespaces: Those with names; namespaces by their parts.
    nameless: Tables in the catalog's own directory of which nothing says a name, or one that
        another table has.
    remains: Directories that hold nothing but empty ones of the form that tables make: of tables
        that were dropped while somebody wrote.
    """

    tables: list[FoundTable] = field(default_factory=list)
    namespaces: list[tuple[str, ...]] = field(default_factory=list)
    nameless: list[FoundTable] = field(default_factory=list)
    remains: list[tuple[str, ...]] = field(default_factory=list)


def walk(warehouse: Warehouse, *, tells_remains: bool = False) -> Found:
    """Look for tables in all directories but those of tables.

    tells_remains: Whether `Found` has remains; else they are namespaces.
    Raises OSError: A directory can't be listed.
    """
    found = Found()
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        waiting: list[tuple[str, ...]] = [()]
        links: set[str] = set()
        while waiting:
            listed = list(pool.map(lambda parts: _candidates(warehouse, parts), waiting))
            for parts, some in zip(waiting, listed, strict=True):
                if tells_remains and _are_remains(warehouse, parts, some):
                    found.namespaces.remove(parts)
                    found.remains.append(parts)
                    some.clear()
            below = [parts for some in listed for parts in some]
            made = list(pool.map(lambda one: look(warehouse, one[0]), below))
            waiting = []
            for (parts, folder), table in zip(below, made, strict=True):
                if table is not None:
                    found.tables.append(table)
                    links.update([table.path] if folder.is_link else [])
                elif not folder.is_link and is_directory_name(folder.name):
                    found.namespaces.append(parts)
                    waiting += [parts] if len(parts) < PARTS_MAX else []
        found.tables = _without_links(warehouse, found.tables, links)
        names = {each.name for each in found.tables}
        paths = [f"{DATA_PATH}/{folder.name}" for folder in warehouse.folders(DATA_PATH)]
        for table in pool.map(lambda path: _own(warehouse, path), paths):
            if table is None:
                continue
            if table.name is None or table.name in names:
                found.nameless.append(table)
            else:
                names.add(table.name)
                found.tables.append(table)
    return found


def _without_links(
    warehouse: Warehouse, tables: list[FoundTable], links: set[str]
) -> list[FoundTable]:
    """Tables without links to others of them, which are no tables of their own."""
    places = {
        warehouse.store(each.path).location for each in tables if links and each.path not in links
    }
    return [
        each
        for each in tables
        if each.path not in links or warehouse.store(each.path).location not in places
    ]


def uuid_of(store: AtomicStore) -> str | None:
    """The identity of the table at a place; None if its snapshot 0 can't be read, or is absent."""
    try:
        first = try_load(store, 0)
    except FermionError:
        return None
    return None if first is None else first.table_uuid


def number_of(name: TableName, path: str) -> int:
    """Which of the directories of a name a path is, -1 if none that the catalog would make."""
    last = path.rpartition("-")[2]
    if path in places_of(name):
        return 0
    number = int(last) if last.isdecimal() and len(last) < 10 else -1
    return number if number >= 0 and directory_of(name, number) == path else -1


def _candidates(
    warehouse: Warehouse, parts: tuple[str, ...]
) -> list[tuple[tuple[str, ...], Folder]]:
    """The directories below one that may be a table's or a namespace."""
    return [
        ((*parts, folder.name), folder)
        for folder in warehouse.folders("/".join(parts))
        if is_table_directory(folder.name) and (parts or folder.name != CATALOG_DIRECTORY)
    ]


def _are_remains(
    warehouse: Warehouse, parts: tuple[str, ...], below: list[tuple[tuple[str, ...], Folder]]
) -> bool:
    """Whether a directory holds only directories that tables make, and these nothing else."""
    is_like = bool(parts and below) and all(is_own_folder(folder.name) for _, folder in below)
    return is_like and has_only_empty_folders(warehouse.store("/".join(parts)))


def look(warehouse: Warehouse, parts: tuple[str, ...]) -> FoundTable | None:
    """The table in the directory of a name; None if there is none."""
    path = "/".join(parts)
    store = warehouse.store(path)
    if not table_exists(store):
        return None
    return FoundTable(path, TableName(parts[:-1], parts[-1]), uuid_of(store))


def _own(warehouse: Warehouse, path: str) -> FoundTable | None:
    """A table in the catalog's own directory."""
    store = warehouse.store(path)
    if not table_exists(store):
        return None
    try:
        first = try_load(store, 0)
        text = first.properties.get(NAME_PROPERTY) if first is not None else None
        name = None if text is None else table_name(text)
        return FoundTable(path, name, first.table_uuid if first is not None else None)
    except (FermionError, InvalidArgumentError):  # it says no name
        return FoundTable(path, None, None)
