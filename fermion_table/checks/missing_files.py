"""Files of a newest snapshot that are not stored any more, and a snapshot that leaves them out.

Somebody has deleted them, or cut them off. A missing data file takes its rows along. A missing
column file leaves the older values of its columns, or nulls; a missing deletion vector would bring
deleted rows back, so what becomes of them is asked for. Nothing is deleted here, and older
snapshots go on naming the files.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Literal

import msgspec

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.commit.commit import Publisher
from fermion_table.commit.request import CommitMetadata, CommitRequest
from fermion_table.errors import TableError
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry, fields_by_file
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.shared_files import SharedFiles, is_outside, options_for
from fermion_table.metadata.snapshot import LEFT_OUT, Snapshot
from fermion_table.schema.field_widening import ranges_lost
from fermion_table.schema.schema import Field
from fermion_table.storage.location import location_size
from fermion_table.storage.paths import DATA_DIRECTORY, DELETION_DIRECTORY
from fermion_table.storage.store import AtomicStore

LostDeletions = Literal["leave_out", "show"]
"""What becomes of a data file whose deletion vector is missing."""


def check_lost_deletions(value: object) -> LostDeletions | None:
    """A `LostDeletions`, or None.

    Raises TypeError, InvalidArgumentError.
    """
    if value is None or value == "leave_out" or value == "show":
        return value
    expected = f"lost_deletions={value!r}: expected 'leave_out', 'show' or None"
    raise InvalidArgumentError(expected) if isinstance(value, str) else TypeError(expected)


class StoredFiles:
    """Tells which files of entries are stored, from one listing; asks again for those it lacks.

    looks_outside: Whether files of other tables (a clone's) are looked at too; otherwise they count
        as stored.
    """

    def __init__(self, store: AtomicStore, *, looks_outside: bool) -> None:
        self._store = store
        self._looks_outside = looks_outside
        self._shared = SharedFiles(store)
        self._sizes = {
            item.path: item.size
            for directory in (DATA_DIRECTORY, DELETION_DIRECTORY)
            for item in store.list(directory)
        }
        self.unknown: list[str] = []
        """Files that could not be looked at, and why; they count as stored."""

    def problem(self, path: str, size: int) -> str | None:
        """Why bytes up to `size` of a file can't be read, in words; None if they are there.

        Raises OSError: The table's own storage does not tell.
        """
        if self._sizes.get(path, -1) >= size:
            return None
        try:
            self._sizes[path] = self._size(path, size)
        except FileNotFoundError:
            return "missing"
        found = self._sizes[path]
        return None if found >= size else f"cut off, {found:,} of {size:,} bytes are left"

    def _size(self, path: str, expected: int) -> int:
        if not is_outside(path):
            return self._store.size(path)
        if not self._looks_outside:
            return expected
        try:
            location = self._shared.checked(path)
            return location_size(location, options_for(self._store, location))
        except FileNotFoundError:
            raise
        except (TableError, OSError) as error:
            self.unknown.append(f"{path}: {error}")
            return expected


@dataclass(slots=True, kw_only=True)
class Losses:
    """What a snapshot lacks, and the entries that a snapshot without it has.

    removed, added: Entries that change, as they are and as they become; those left out are only
        removed.
    told: Each file, and what is lost with it, in words.
    undecided: Deletion vectors that somebody has to decide about, in words; their entries stay.
    rows: Rows that were not deleted, of entries that are left out.
    data_files, column_files, deletion_vectors: How many files of each kind are left out or done
        without.
    """

    snapshot: Snapshot
    removed: list[Entry] = field(default_factory=list)
    added: list[Entry] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    rows: int = 0
    data_files: int = 0
    column_files: int = 0
    deletion_vectors: int = 0

    def leave_out(self, entry: Entry) -> None:
        """Do without an entry, and its rows."""
        self.removed.append(entry)
        self.data_files += 1
        self.rows += entry.live_rows

    @property
    def summary(self) -> str:
        """What is left out, in words."""
        return (
            f"{self.data_files:,} data files with {self.rows:,} rows, "
            f"{self.column_files:,} column files, {self.deletion_vectors:,} deletion vectors"
        )

    @property
    def properties(self) -> dict[str, str]:
        """Of the snapshot that does without."""
        counts = {
            "data_files": self.data_files,
            "rows": self.rows,
            "column_files": self.column_files,
            "deletion_vectors": self.deletion_vectors,
        }
        return {LEFT_OUT: json.dumps(counts)}


def find_losses(
    store: AtomicStore,
    snapshot: Snapshot,
    files: StoredFiles,
    lost_deletions: LostDeletions | None,
) -> Losses:
    """What of a snapshot is not stored any more.

    snapshot: Whose metadata can be read.
    lost_deletions: What becomes of data files without their deletion vector; None: they stay as
        they are.
    """
    search = _Search(store, snapshot, files, lost_deletions)
    for entry in live_entries(store, snapshot, keep_unknown=True):
        search.look_at(entry)
    return search.losses


def publish_without(
    store: AtomicStore,
    branch: str,
    snapshot: Snapshot,
    files: StoredFiles,
    lost_deletions: LostDeletions | None,
) -> tuple[Snapshot, Losses]:
    """Publish a snapshot of a branch that leaves out what is not stored.

    Returns: The newest snapshot, and what it was made without: nothing, if another repair was
        faster.
    Raises CommitConflict, CommitStateUnknown, UnsupportedFeature, OSError.
    """
    found = Losses(snapshot=snapshot)

    def plan(base: Snapshot) -> CommitRequest | None:
        nonlocal found
        found = find_losses(store, base, files, lost_deletions)
        if not found.removed:
            return None
        return CommitRequest(
            kind="overwrite",
            added=found.added,
            removed=found.removed,
            base=base,
            metadata=CommitMetadata(
                message=f"leave out missing files: {found.summary}", properties=found.properties
            ),
            name="leaving out missing files",
        )

    published = Publisher(store, branch).publish(snapshot, plan, CommitMetadata())
    return published.snapshot, found


class _Search:
    """Looks for the files of entries."""

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        files: StoredFiles,
        lost_deletions: LostDeletions | None,
    ) -> None:
        self.losses = Losses(snapshot=snapshot)
        self._schemas = SchemaVersions(store, snapshot)
        self._files = files
        self._lost_deletions = lost_deletions

    def look_at(self, entry: Entry) -> None:
        """Look for the files of one entry."""
        why = self._files.problem(entry.file, entry.size)
        if why is not None:
            older = "; older rows of their keys may show again" if entry.bucket is not None else ""
            self._tell(f"{entry.file}: {why}: its {entry.live_rows:,} rows are lost{older}")
            self.losses.leave_out(entry)
            return
        for each in entry.blob_files:
            why = self._files.problem(each.file, each.size)
            if why is not None:
                self._tell(
                    f"{each.file}: {why}: {entry.live_rows:,} rows of {entry.file} are lost, as "
                    "some of their blobs are"
                )
                self.losses.leave_out(entry)
                return
        kept = self._with_columns(entry)
        if kept is not None:
            kept = self._with_deletions(self._with_indexes(kept))
        if kept is None:
            self.losses.leave_out(entry)
        elif kept is not entry:
            self.losses.removed.append(entry)
            self.losses.added.append(kept)

    def _with_columns(self, entry: Entry) -> Entry | None:
        """An entry without the column files that are missing; None if it can't be without."""
        found = {
            each.file: self._files.problem(each.file, each.size) for each in entry.column_files
        }
        lost = {file: why for file, why in found.items() if why is not None}
        if not lost:
            return entry
        shown = dict(zip(found, self._fields_of(entry)[1:], strict=True))
        stale = {each.id for file in lost for top in shown[file] for _, each in top.walk()}
        kept = msgspec.structs.replace(
            entry,
            column_files=tuple(each for each in entry.column_files if each.file not in lost),
            stats={each: known for each, known in entry.stats.items() if each not in stale},
            columns=None if stale else entry.columns,
        )
        older = {top.id: top for fields in self._fields_of(kept) for top in fields}
        breaking = None
        for file, why in lost.items():
            now = [self._schemas.current.by_id.get(top.id) for top in shown[file]]
            columns = [top for top in now if top is not None]
            names = ", ".join(repr(top.name) for top in columns) or "no columns that are shown"
            self._tell(
                f"{file}: {why}: the values of {names} are lost in {entry.live_rows:,} rows of "
                f"{entry.file}, which show older ones, defaults or nulls"
            )
            breaking = breaking or next(
                (top for top in columns if not _fits(older.get(top.id), top)), None
            )
        self.losses.column_files += len(lost)
        if breaking is not None:
            self._tell(
                f"{entry.file}: its {entry.live_rows:,} rows are lost: without the column file "
                f"{breaking.name!r} would have values that the column can't have, as nulls"
            )
            return None
        return kept

    def _with_indexes(self, entry: Entry) -> Entry:
        """An entry without the index files that are missing."""
        kept = []
        for each in entry.indexes:
            why = self._files.problem(each.file, each.size)
            if why is None:
                kept.append(each)
            else:
                self._tell(f"{each.file}: {why}: an index, which indexes.rebuild() makes again")
        if len(kept) == len(entry.indexes):
            return entry
        return msgspec.structs.replace(entry, indexes=tuple(kept))

    def _with_deletions(self, entry: Entry) -> Entry | None:
        """An entry whose deletion vector is there; None if it is not and the entry goes."""
        vector = entry.deletion_vector
        if vector is None:
            return entry
        why = self._files.problem(vector.path, vector.offset + vector.size)
        if why is None:
            return entry
        marked, live = entry.delete_rows, entry.live_rows
        where = f"{vector.path}: {why}: which {marked:,} rows of {entry.file} are deleted is lost"
        choice = self._lost_deletions
        if choice == "leave_out":
            self._tell(f"{where}; its {live:,} other rows are left out with them")
        elif choice == "show" and entry.bucket is None:
            self._tell(f"{where}; they show again")
        else:
            self.losses.undecided.append(
                f"{where}: lost_deletions='leave_out' leaves its {live:,} other rows out"
                + (
                    ", 'show' shows the deleted rows again"
                    if entry.bucket is None
                    else "; in a primary-key table they can't be shown, as keys would be twice"
                )
            )
            return entry
        self.losses.deletion_vectors += 1
        if choice == "leave_out":
            return None
        return msgspec.structs.replace(entry, deletion_vector=None, delete_rows=0)

    def _fields_of(self, entry: Entry) -> list[list[Field]]:
        """The fields that count of the data file, and of each column file."""
        fields = {each: self._schemas[each].fields for each in entry.schema_ids}
        return fields_by_file(fields, entry.schema_id, entry.layout)

    def _tell(self, text: str) -> None:
        self.losses.told.append(text)


def _fits(older: Field | None, now: Field) -> bool:
    """Whether all values that a column had before it was changed are values of it as it is now."""
    before = {} if older is None else {each.id: each for _, each in older.walk()}
    for _, each in now.walk():
        known = before.get(each.id)
        may_be_null = each.initial_default is None if known is None else known.nullable
        if may_be_null and not each.nullable:
            return False
    return older is None or not any(True for _ in ranges_lost([older], [now]))
