"""A primary-key table of the catalog, and changes of its rows that are decided on what they are.

A change reads the rows of some keys, decides, and writes, as one commit. Where another commit has
written one of these keys meanwhile, it reads and decides again: so of two changes of one key the
second one always sees the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa

from fermion.exports import dataclass
from fermion.predicate import Expression, col
from fermion_table.commit.conflict import Partitions
from fermion_table.commit.replacement import TableDefinition, create_defined
from fermion_table.errors import CommitConflict, TableError, TableExists, TableNotFound
from fermion_table.lookup.lookup import Lookups
from fermion_table.merging.key_values import key_rows
from fermion_table.metadata.history import latest, table_exists
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind
from fermion_table.operations.draft import Draft
from fermion_table.operations.keyed_rows import keys_may_match
from fermion_table.planning.filters import conjunction, table_filter
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import KIND_COLUMN
from fermion_table.storage.store import AtomicStore
from fermion_table.table.changes import commit_change
from fermion_table.table.table import Table
from fermion_table.writing.make_writer import write_changes

KEYS_ASKED_MAX = 1_000
"""A change that is about more keys reads the whole list, and depends on all of it."""
COMPACTED_EVERY = 16
"""Of so many changes one is followed by a compaction: clients that all do it only lose races."""

Rows = Sequence[Sequence[Any]]
Decide = Callable[[pa.Table, bool], pa.RecordBatch | None]
"""What to write (see `KIND_COLUMN`) where rows are as given; whether the list is new; None: nothing
changes."""


class RowFinder:
    """Finds rows by key: a change of rows that were looked up just before finds them again."""

    def __init__(self) -> None:
        self._lookups = Lookups()
        self._last: tuple[object, pa.Table] | None = None

    def find(self, scan: Scan, keys: Rows) -> pa.Table:
        """The rows of some keys, with all columns."""
        assert scan.key is not None
        asked = (scan.snapshot.hash, *map(tuple, keys))
        last = self._last
        if last is None or last[0] != asked:
            rows = self._lookups.find(scan, key_rows(list(asked[1:]), scan.key))
            self._last = last = (asked, rows)
        return last[1]


@dataclass(slots=True)
class ListChange:
    """A change of some rows, to be made on any snapshot of the list.

    keys: Those that it is about: their rows are read. None, or none: all rows.
    decide: See `Decide`.
    asked: Finds rows of the list.
    also: What other rows it is about. Then it depends on all rows that others write.
    features: Reader features that the list has from this change on.
    """

    keys: Rows | None
    names: Sequence[str]
    decide: Decide
    asked: RowFinder
    also: Expression | None = None
    features: Sequence[str] = ()
    kind: Kind = "upsert"
    scope: Partitions | None = None
    _chosen: Expression | None = field(init=False)

    def __post_init__(self) -> None:
        self._chosen = None
        if self.keys and len(self.keys) <= KEYS_ASKED_MAX:
            self._chosen = filter_of(self.names, self.keys)
            if self.also is not None:
                self._chosen = self._chosen | self.also

    def apply(self, draft: Draft) -> None:
        """Read the rows of a draft, decide, and write."""
        if self.keys and self._chosen is not None and self.also is None:
            data = self.asked.find(draft.scan(None), self.keys)
        else:
            chosen = table_filter(self._chosen, draft.schema, where=draft.store.location)
            data = draft.scan(chosen).to_arrow()
        written = self.decide(data, draft.base.id == 0)
        if written is None or not written.num_rows:
            return
        with draft.writer() as writer:
            write_changes(writer, written, KIND_COLUMN)
            (message,) = writer.prepare_commit()
        draft.add_written(message.entries)
        draft.reader_features.update(self.features)

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether a file that another commit added may hold rows of the keys."""
        if self._chosen is None or self.also is not None or draft.key is None:
            return True
        chosen = table_filter(self._chosen, draft.schema, where=draft.store.location)
        assert chosen is not None
        return keys_may_match(entry, draft, draft.key, chosen)

    def describe(self) -> str:
        """Nothing to say: the commit has a message."""
        return ""


class KeyedList:
    """A primary-key table of the catalog, made by the first change.

    features: Reader features of it.
    """

    def __init__(
        self,
        store: AtomicStore,
        schema: pa.Schema,
        primary_key: Sequence[str],
        features: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._features = features
        self._definition = TableDefinition(
            schema=schema,
            primary_key=primary_key,
            properties={"bucket": "1"},
        )
        self._key = tuple(primary_key)
        self._table: Table | None = None
        self._asked = RowFinder()

    @property
    def store(self) -> AtomicStore:
        """Where the list lies."""
        return self._store

    def latest(self) -> Table | None:
        """The list as it is now; None while nothing was ever written to it."""
        table = self._known()
        return None if table is None or table.snapshot.id == 0 else table

    @property
    def has_features(self) -> bool:
        """Whether the snapshot that was seen last has the features."""
        known = self._table
        return known is not None and {*self._features} <= {*known.snapshot.reader_features}

    def find(self, keys: Rows, scan: Scan | None = None) -> pa.Table:
        """The rows of some keys: those that there are now, or were when something was scanned."""
        if scan is None and (table := self.latest()) is not None:
            scan = table.scan()
        if scan is None:
            return self._definition.first_schema().to_arrow(field_ids=False).empty_table()
        return self._asked.find(scan, keys)

    def change(
        self, keys: Rows | None, decide: Decide, message: str, *, also: Expression | None = None
    ) -> None:
        """Change rows, as one commit, or none if nothing changes.

        keys, also: That the change is about, and other rows that it is about; no keys: all rows.
        decide: What to write where these rows are as given; called again where others come first.
            What it raises ends the change, with nothing written.
        Raises CommitConflict, CommitStateUnknown.
        """
        table = self._known() or self._made()
        change = ListChange(keys, self._key, decide, self._asked, also, self._features)
        committed = commit_change(table, change, message=message)
        if committed.id % COMPACTED_EVERY == 0:
            with contextlib.suppress(OSError, TableError):  # the change stands
                table.compact()

    def _known(self) -> Table | None:
        """The list at its newest snapshot, None if there is none."""
        if self._table is not None:
            try:
                self._table.refresh()
                return self._table
            except (TableNotFound, CommitConflict):  # it was replaced by a repair
                self._table = None
        try:
            self._table = Table(self._store, latest(self._store))
        except TableNotFound:
            return None
        return self._table

    def _made(self) -> Table:
        if not table_exists(self._store):
            with contextlib.suppress(TableExists):  # made by another client just now
                create_defined(self._store, self._definition)
        self._table = Table(self._store, latest(self._store))
        return self._table


def filter_of(names: Sequence[str], keys: Iterable[Sequence[Any]]) -> Expression:
    """The rows that have one of some keys; there is at least one."""
    each = [
        conjunction([col(name) == value for name, value in zip(names, key, strict=True)])
        for key in keys
    ]
    return reduce(or_, (one for one in each if one is not None))
