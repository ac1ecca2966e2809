"""Secondary indexes of a table: ``table.indexes.create("mail")``, ``.list()``, ``.drop("mail")``.

The schema says which columns have one. From then on whoever writes a data file writes its index
files too; those of the files that are there already are made here. They are published like a
compaction, which changes no rows: a file that another commit changes meanwhile is left out, and has
no index until the next `rebuild`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import msgspec

import fermion
from fermion.arguments import flag
from fermion.display import NamedValues, short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_column, check_text
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitMetadata, CommitRequest, FileGroup
from fermion_table.commit.schema_versions import change_schema
from fermion_table.errors import CommitConflict
from fermion_table.metadata.history import until_expiry
from fermion_table.metadata.manifest import Entry, paths_of
from fermion_table.metadata.manifest_store import added_entries, live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.filters import field_at, same_ids
from fermion_table.planning.plan import splits_of
from fermion_table.reading.index_files import holder_of
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.schema import ColumnIndex, Path, PathLike, TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import is_durable
from fermion_table.table.state import TableState
from fermion_table.writing.index_writer import IndexWriter, check_indexable

IndexKind = Literal["btree", "bitmap", "bloom"]
ATTEMPTS = 3
"""How often files that other commits have changed meanwhile get their index anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A secondary index of a table.

    Attributes
    ----------
    name
        The column: its name, or the path of a field in structs with dots.
    kind
        ``btree``, ``bitmap`` or ``bloom``.
    files, files_indexed
        Data files of the snapshot that are large enough for an index (``index.rows_min``); and
        those of them that have theirs. The others are read as without an index.
    bytes
        Of the index files.
    """

    name: str
    kind: str
    files: int
    files_indexed: int
    bytes: int

    __repr__ = short_repr


def check_kind_of_index(kind: object) -> IndexKind:
    """A kind of index.

    Raises TypeError, InvalidArgumentError.
    """
    for known in get_args(IndexKind):
        if check_text(kind, "kind") == known:
            found: IndexKind = known
            return found
    expected = ", ".join(map(repr, get_args(IndexKind)))
    raise InvalidArgumentError(f"kind={kind!r}: expected one of {expected}")


@dataclass(frozen=True, slots=True)
class _Target:
    """A field with an index: its definition, and the fields from the column down to it."""

    index: ColumnIndex
    path: Path

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, repr=False)
class Indexes(NamedValues[Index]):
    """The secondary indexes of a table: rows are found by columns that are not the key.

    Scans, counts, merges and engines use them without being told. ``"mail" in table.indexes`` and
    ``for index in table.indexes`` read the list.

    Parameters
    ----------
    state
        Of the table.
    """

    state: TableState

    def create(self, column: PathLike, kind: IndexKind = "btree") -> Index:
        """Make an index of a column, and keep it from now on.

        Parameters
        ----------
        column
            A column, or a field in structs (``"s.a"``), whose values have an order. It can have one
            index, which is named after it.
        kind
            ``"btree"``: for ``=``, ``IN``, ranges and prefixes. ``"bitmap"``: for columns with few
            distinct values; a file with more than 65,536 of them gets none. ``"bloom"``: for ``=``
            and ``IN``; the smallest, which leaves out parts of 65,536 rows without the value.

        Raises
        ------
        ColumnNotFoundError
        InvalidArgumentError
            The column has an index, or a type without an order; or there is no such kind.
        """
        self.state.check_writable()
        kind = check_kind_of_index(kind)
        self.state.refresh()
        path = self.state.schema.resolve(check_column(column, "column"))
        self._change_schema(partial(_with_index, path=path, kind=kind, where=self.state.location))
        self._build([self._named(path)], full=False)
        return self._described(self._named(path))

    def rebuild(self, name: PathLike | None = None, *, full: bool = False) -> Sequence[Index]:
        """Make the index files that data files lack, as after `Table.fill_columns`.

        Parameters
        ----------
        name
            Of one index; None: all.
        full
            Also those that are there, for files that are damaged.

        Raises
        ------
        InvalidArgumentError
            There is no such index.
        """
        self.state.check_writable()
        full = flag(full, "full")
        self.state.refresh()
        targets = _targets(self.state.schema) if name is None else [self._chosen(name)]
        self._build(targets, full=full)
        return [self._described(each) for each in targets]

    def list(self) -> list[Index]:
        """The indexes of the snapshot that the table sees, by name; reads all its manifests."""
        targets = _targets(self.state.schema)
        return sorted(map(self._described, targets), key=lambda each: each.name)

    def drop(self, name: PathLike) -> None:
        """Drop an index; its files go when the snapshots that name them expire.

        Raises
        ------
        InvalidArgumentError
            There is no such index.
        """
        self.state.check_writable()
        self.state.refresh()
        target = self._chosen(name)
        self._change_schema(partial(_without_index, field=target.index.field))

        def without(entry: Entry) -> Entry:
            kept = tuple(each for each in entry.indexes if each.field != target.index.field)
            return msgspec.structs.replace(entry, indexes=kept)

        changed = [(each, without(each)) for each in self._entries() if each.indexes]
        self._publish([pair for pair in changed if pair[0] != pair[1]], f"drop index {target.name}")

    def _facts(self, value: Index) -> dict[str, Any]:
        files = f"{value.files_indexed:,} of {value.files:,}"
        return {"name": value.name, "kind": value.kind, "files": files, "bytes": value.bytes}

    def _change_schema(self, change: Any) -> None:
        state = self.state
        changed = change_schema(
            state.publisher, state.snapshot, lambda *_: [change], CommitMetadata()
        )
        state.move_to(changed)

    def _chosen(self, name: PathLike) -> _Target:
        return self._named(self.state.schema.resolve(check_column(name, "name")))

    def _named(self, path: Path) -> _Target:
        targets = _targets(self.state.schema)
        found = next((each for each in targets if each.path == path), None)
        if found is None:
            known = ", ".join(each.name for each in targets) or "none"
            raise InvalidArgumentError(
                f"{self.state.location}: no index of {'.'.join(path)!r}: there are {known}"
            )
        return found

    def _entries(self) -> Sequence[Entry]:
        state = self.state
        with until_expiry(state.store, state.snapshot):
            return live_entries(state.store, state.snapshot, keep_unknown=True)

    def _large(self) -> Iterator[Entry]:
        rows_min = parse_properties(self.state.schema.properties).index_rows_min
        return (each for each in self._entries() if each.rows >= max(rows_min, 1))

    def _described(self, target: _Target) -> Index:
        entries = tuple(self._large())
        missing = sum(self._holder(each, target, full=False) is not None for each in entries)
        sizes = [x.size for each in entries for x in each.indexes if x.field == target.index.field]
        return Index(
            name=target.name,
            kind=target.index.kind,
            files=len(entries),
            files_indexed=len(entries) - missing,
            bytes=sum(sizes),
        )

    def _build(self, targets: Sequence[_Target], *, full: bool) -> None:
        """Make and publish the index files that data files lack."""
        for attempt in range(ATTEMPTS):
            self.state.refresh()
            with OwnedFiles(self.state.store) as owned:
                options = fermion.WriteOptions(durable=is_durable(self.state.store))
                writer = IndexWriter(owned, options)
                made = [
                    (each, self._indexed(each, targets, writer, full)) for each in self._large()
                ]
                changed = [pair for pair in made if pair[0] != pair[1]]
                names = ", ".join(each.name for each in targets)
                left_out = self._publish(changed, f"index {names}", owned)
            if not left_out or attempt == ATTEMPTS - 1:
                return

    def _indexed(
        self, entry: Entry, targets: Sequence[_Target], writer: IndexWriter, full: bool
    ) -> Entry:
        for target in targets:
            holder = self._holder(entry, target, full=full)
            if holder is not None:
                location, file_id, path = holder
                wanted = [(target.index.field, target.index.kind, path)]
                with until_expiry(self.state.store, self.state.snapshot):
                    entry = writer.with_indexes(entry, location, file_id, wanted)
        return entry

    def _holder(
        self, entry: Entry, target: _Target, *, full: bool
    ) -> tuple[str, str | None, Path] | None:
        """The file that an index of an entry is to be made of, and the field's path there.

        None: there is one already, or the field has no values in it.
        """
        chain = field_at(self.state.schema.fields, target.path)
        if not chain or not entry.has_column(chain[0].id):
            return None
        (split,) = splits_of([entry], self.state.store)
        holder = holder_of(split, chain[0].id)
        stored = same_ids(self.state.schemas[holder.schema_id].fields, chain)
        if stored is None or holder.file_id is None:
            return None
        is_there = any(
            (each.field, each.kind, each.indexed_file)
            == (target.index.field, target.index.kind, holder.file_id)
            for each in entry.indexes
        )
        if is_there and not full:
            return None
        return holder.location, holder.file_id, tuple(field.name for field in stored)

    def _publish(
        self, changed: Sequence[tuple[Entry, Entry]], message: str, owned: OwnedFiles | None = None
    ) -> bool:
        """Publish entries in place of others; whether some were left out."""
        if not changed:
            return False
        state = self.state
        request = CommitRequest(
            kind="compact",
            groups=[FileGroup(added=(new,), removed=(old,)) for old, new in changed],
            base=state.snapshot,
            metadata=CommitMetadata(message=message),
            unsure=frozenset() if owned is None else owned.paths,
            name=message,
        )
        try:
            published: Snapshot = commit(state.store, request, branch=state.branch)
        except CommitConflict:
            return True
        state.move_to(published)
        added = added_entries(state.store, published)
        if owned is not None:
            with contextlib.suppress(OSError):  # at worst orphans stay
                owned.delete({path for each in added for path in paths_of(each)})
        return len(added) < len(changed)


def _targets(schema: TableSchema) -> list[_Target]:
    """The indexes whose field is there."""
    return [
        _Target(each, schema.paths[each.field])
        for each in schema.indexes
        if each.field in schema.paths
    ]


def _with_index(schema: TableSchema, *, path: Path, kind: str, where: str) -> TableSchema:
    field = check_indexable(schema, path, where)
    known = next((each for each in schema.indexes if each.field == field), None)
    if known is not None:
        raise InvalidArgumentError(
            f"{where}: column {'.'.join(path)!r} has an index already, {known.kind}: drop it first"
        )
    return msgspec.structs.replace(
        schema, indexes=(*schema.indexes, ColumnIndex(field=field, kind=kind))
    )


def _without_index(schema: TableSchema, *, field: int) -> TableSchema:
    kept = tuple(each for each in schema.indexes if each.field != field)
    return msgspec.structs.replace(schema, indexes=kept)
