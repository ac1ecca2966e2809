"""The list of tables: which names there are, and where their tables lie."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.errors import FermionError
from fermion.exports import dataclass
from fermion.predicate import Expression, col
from fermion_table.catalog.creations import Creations
from fermion_table.catalog.keyed_list import KeyedList
from fermion_table.catalog.names import TABLES_PATH, TableName, directory_of, parts_of, quoted
from fermion_table.catalog.rows import (
    KEY,
    LIST_SCHEMA,
    CatalogRow,
    Key,
    changes_of,
    rows_of,
)
from fermion_table.catalog.walking import Found, FoundTable, look, walk
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.metadata.snapshot import CREATED_TABLES

DecideRows = Callable[[dict[Key, CatalogRow]], Iterable[CatalogRow | Key]]
"""What to write, given the rows that there are: rows, and keys whose rows go."""


def _all(data: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([[True] * len(data)], pa.bool_())


@dataclass(frozen=True, slots=True)
class OtherRows:
    """Rows of the list that a change is about, but not because of their keys.

    filter: A filter that selects them, and may select more.
    chosen: Which of the rows that it selects they are: bool, one a row.
    """

    filter: Expression
    chosen: Callable[[pa.Table], pa.ChunkedArray] = _all


def naming(uuid: str) -> OtherRows:
    """The rows that name a table, as one that is there or as one that was dropped."""

    def chosen(data: pa.Table) -> pa.ChunkedArray:
        dropped = data["dropped"].combine_chunks()
        uuids = pc.struct_field(pc.list_flatten(dropped), "table_uuid")
        places = pc.list_parent_indices(dropped).filter(pc.equal(uuids, uuid))
        was_here = pc.is_in(pa.array(range(len(data))), value_set=places)
        return pc.or_(pc.fill_null(pc.equal(data["table_uuid"], uuid), False), was_here)

    return OtherRows((col("table_uuid") == uuid) | col("dropped").is_valid(), chosen)


def within(parts: tuple[str, ...]) -> OtherRows:
    """The rows of a namespace, and of what lies in it and below it."""
    name = quoted(parts)
    return OtherRows((col("namespace") == name) | col("namespace").starts_with(f"{name}."))


class TableList:
    """The list of the tables of a warehouse.

    While there is none, or nothing was ever written to it, the directories say what is there. The
    first change puts that into the list.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        store = warehouse.store(TABLES_PATH)
        self._list = KeyedList(store, LIST_SCHEMA, KEY, (CREATED_TABLES,))
        self._creations = Creations(warehouse)

    def find(self, keys: Sequence[Key]) -> dict[Key, CatalogRow]:
        """The rows of some keys; those without one are left out."""
        return {row.key: row for row in rows_of(self._list.find(keys))}

    def row(self, name: TableName) -> CatalogRow | None:
        """The row of a table's name, None if there is none."""
        return self.find([name.key]).get(name.key)

    def rows(self) -> list[CatalogRow]:
        """Every row, and those that created tables without one are to get."""
        rows = rows_of(self._scanned(LIST_SCHEMA.names))
        return list({row.key: row for row in rows}.values())

    def has_named(self, uuid: str) -> bool:
        """Whether the list names a table, as one that is there or that was dropped."""
        rows = naming(uuid)
        table = self._list.latest()
        if table is None:
            data = self._listed_now()
        else:
            data = table.scan(filter=rows.filter).to_arrow()
        return bool(pc.any(rows.chosen(data)).as_py())

    def tables(self, namespace: str | None, pattern: str | None) -> list[str]:
        """The names of tables, ascending.

        namespace: Only those in it, not in namespaces below; None: all.
        pattern: What the last part of the name is like, with ``*`` and ``?``; None: anything.
        """
        found = self._scanned(["namespace", "name", "kind"])
        found = found.filter(pc.equal(found["kind"], "table"))
        if namespace is not None:
            found = found.filter(pc.equal(found["namespace"], namespace))
        if pattern is not None:
            found = found.filter(pc.match_like(found["name"], _as_sql(pattern)))
        return sorted(_joined(found["namespace"], found["name"]))

    def namespaces(self) -> list[tuple[str, ...]]:
        """Every namespace, by its parts, ascending: those above others, too."""
        rows = self._scanned(["namespace", "kind", "directories"])
        is_used = pc.or_(pc.not_equal(rows["kind"], "unused"), pc.greater(rows["directories"], 0))
        found = pc.unique(rows["namespace"].filter(is_used)).to_pylist()
        spaces = {parts_of(text) for text in found}
        return sorted({each[:count] for each in spaces for count in range(1, len(each) + 1)})

    def has_namespace(self, parts: tuple[str, ...]) -> bool:
        """Whether there is a namespace."""
        if not parts or (quoted(parts), "") in self.find([(quoted(parts), "")]):
            return True
        return parts in self.namespaces()

    def forget_wrong(self, *, dry_run: bool) -> list[str]:
        """Delete what lies among the notes of created tables and is none; the paths."""
        wrong = self._creations.wrong()
        if not dry_run:
            self._creations.forget(wrong)
        return wrong

    def note(self, name: TableName, uuid: str) -> bool:
        """Let a table that was just made in the directory of its name be listed without a row.

        False: its name needs one. If there is a row now, the note does not count.
        Raises OSError.
        """
        return self._list.has_features and self._creations.add(name, uuid)

    def enter(self) -> None:
        """Give the tables that were created without a row one each, as one commit.

        Raises as `change`.
        """
        noted = self._creations.noted()
        unread: set[Key] = set()

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow]:
            rows = self._rowless(noted.values(), there)
            unread.clear()
            unread.update(row.key for row in rows if row.table_uuid is None)
            return _with_namespaces([row for row in rows if row.key not in unread], there)

        if noted:
            keys = {key for name in noted.values() for key in keys_of(name)}
            message = f"enter {len(noted)} tables that were created"
            self.change(sorted(keys), decide, message, enters=False)
            with contextlib.suppress(OSError):  # a note that stays does no harm
                self._creations.forget(p for p, name in noted.items() if name.key not in unread)

    def change(
        self,
        keys: Sequence[Key] | None,
        decide: DecideRows,
        message: str,
        *,
        also: OtherRows | None = None,
        enters: bool = True,
    ) -> None:
        """Change rows, as one commit, after those of tables that were created without one.

        A create that finds no row commits none. So what a change decides because no table lies in
        the directory of a name holds only once there is a row: a name that had none gets an unused
        one first.

        keys, also: Of the rows that the change is about, and other rows that it is about; None:
            all.
        decide: See `DecideRows`. Called again where others have changed these rows meanwhile, and
            after unused rows were written; what it raises ends the change.
        enters: Whether tables without a row get theirs first.
        Raises CommitConflict, CommitStateUnknown.
        """
        if enters:
            self.enter()
        is_over = False

        def made(data: pa.Table, is_new: bool) -> pa.RecordBatch:
            nonlocal is_over
            if keys is not None and also is not None:
                data = data.filter(pc.or_(_have_keys(data, keys), also.chosen(data)))
            there = {row.key: row for row in rows_of(data)}
            if is_new:
                there = {row.key: row for row in listed(walk(self._warehouse))}
            before = dict(there)
            changed: dict[Key, CatalogRow | None] = {}
            for each in decide(there):
                key, row = (each.key, each) if isinstance(each, CatalogRow) else (each, None)
                changed[key] = row
            first = [row for row in changed.values() if row and _needs_another(row, before)]
            is_over = not first
            if first:
                changed = {row.key: _no_table(row.key) for row in first}
            if is_new:
                changed = {**before, **changed}
            return changes_of(
                [row for row in changed.values() if row is not None],
                [key for key, row in changed.items() if row is None],
            )

        filter = None if also is None else also.filter
        while not is_over:
            self._list.change(keys, made, message, also=filter)

    def _scanned(self, columns: Sequence[str]) -> pa.Table:
        """All rows, and behind them those that created tables are to get instead."""
        noted = self._creations.noted()  # before the list: they get a row before a note goes
        table = self._list.latest()
        if table is None:
            return self._listed_now().select(list(columns))
        scan = table.scan()
        data = replace(scan, columns=tuple(columns)).to_arrow()
        if not noted:
            return data
        keys = sorted({key for name in noted.values() for key in keys_of(name)})
        there = {row.key: row for row in rows_of(self._list.find(keys, scan))}
        rows = _with_namespaces(self._rowless(noted.values(), there), there)
        added = as_table(rows).select(list(columns))
        return pa.concat_tables([data, added.cast(data.schema)])

    def _rowless(
        self, names: Iterable[TableName], there: Mapping[Key, CatalogRow]
    ) -> list[CatalogRow]:
        """The rows that created tables are to get that have none."""
        rows = {name: there.get(name.key) or _no_table(name.key) for name in names}
        asked = [name for name, row in rows.items() if not (row.is_table or row.directories)]
        with ThreadPoolExecutor(self._warehouse.tables_at_once) as pool:
            found = list(pool.map(self._noted, asked))
        return [
            replace(each.row, dropped=rows[each.name].dropped)
            for each in found
            if each is not None and each.name is not None
        ]

    def _noted(self, name: TableName) -> FoundTable | None:
        """The table of a name that was created; one that can't be looked at counts as there."""
        try:
            return look(self._warehouse, (*name.namespace, name.name))
        except (FermionError, OSError):  # who opens it is told
            return FoundTable(directory_of(name), name, None)

    def _listed_now(self) -> pa.Table:
        """What a new list would hold."""
        return as_table(listed(walk(self._warehouse)))


def listed(found: Found) -> list[CatalogRow]:
    """The rows that a new list has: of what lies in the directories of a warehouse."""
    rows = [row_of_namespace(parts) for parts in found.namespaces]
    return rows + [each.row for each in found.tables]


def row_of_namespace(parts: tuple[str, ...]) -> CatalogRow:
    """The row of a namespace."""
    return CatalogRow(namespace=quoted(parts), name="", kind="namespace")


def namespace_rows(parts: tuple[str, ...], there: Mapping[Key, CatalogRow]) -> Iterable[CatalogRow]:
    """The rows of a namespace, and of those above it, that are not there yet."""
    for count in range(1, len(parts) + 1):
        if (quoted(parts[:count]), "") not in there:
            yield row_of_namespace(parts[:count])


def _with_namespaces(
    rows: Sequence[CatalogRow], there: Mapping[Key, CatalogRow]
) -> list[CatalogRow]:
    """Rows of tables, and those of their namespaces that are not there yet."""
    spaces = [each for row in rows for each in namespace_rows(parts_of(row.namespace), there)]
    return list({row.key: row for row in (*rows, *spaces)}.values())


def as_table(rows: Iterable[CatalogRow]) -> pa.Table:
    """Rows as the list has them."""
    return pa.Table.from_batches([changes_of(rows, ())])


def keys_of(name: TableName) -> list[Key]:
    """The keys of a table's row, and of those of its namespaces."""
    return [name.key, *keys_of_namespace(name.namespace)]


def keys_of_namespace(parts: tuple[str, ...]) -> list[Key]:
    """The keys of the rows of a namespace, and of those above it."""
    return [(quoted(parts[:count]), "") for count in range(1, len(parts) + 1)]


def _no_table(key: Key) -> CatalogRow:
    """The row of a name that no table ever had."""
    return CatalogRow(namespace=key[0], name=key[1], kind="unused")


def _needs_another(row: CatalogRow, there: Mapping[Key, CatalogRow]) -> bool:
    """Whether a row may be written only over another one (see `TableList._change`).

    Nothing is created in the directory of a name while the table that gets it lies there.
    """
    if row.kind == "namespace" or row.key in there:
        return False
    return row.path != directory_of(TableName(parts_of(row.namespace), row.name))


def _have_keys(data: pa.Table, keys: Iterable[Key]) -> pa.ChunkedArray:
    """Which rows have one of some keys: bool, one a row."""
    wanted = set(keys)
    names = zip(data["namespace"].to_pylist(), data["name"].to_pylist(), strict=True)
    return pa.chunked_array([[name in wanted for name in names]], pa.bool_())


def _as_sql(pattern: str) -> str:
    """A pattern with ``*`` and ``?`` as one of LIKE."""
    escaped = re.sub(r"([\\%_])", r"\\\1", pattern)
    return escaped.replace("*", "%").replace("?", "_")


def _joined(namespaces: Any, names: Any) -> list[str]:
    """Names with their namespaces, quoted where they need it."""
    needs = pc.match_substring_regex(names, r"[.`]")
    if pc.any(needs).as_py():
        quotes = pc.replace_substring(names, "`", "``")
        quotes = pc.binary_join_element_wise("`", quotes, "`", "")
        names = pc.if_else(needs, quotes, names)
    dots = pc.if_else(pc.equal(namespaces, ""), "", ".")
    joined: list[str] = pc.binary_join_element_wise(namespaces, dots, names, "").to_pylist()
    return joined
