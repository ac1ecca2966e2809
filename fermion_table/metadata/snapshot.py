"""The snapshot: a table's whole state, one immutable file per commit.

A snapshot names the schema and the manifests, and holds the entries of recent commits itself
(`tail`). `delta` says what its commit changed. Its hash, over the stored bytes, is what the
next snapshot's `parent` holds: history is a chain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, Self

import msgspec

from fermion.display import html_facts
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.metadata.manifest import (
    ENTRY_BYTES_MIN,
    CountedEntry,
    Entry,
    ManifestReference,
    check_dead,
)
from fermion_table.moments import time_text
from fermion_table.schema.schema import SchemaReference
from fermion_table.storage import json_codec
from fermion_table.storage.json_codec import Natural, Plain, Whole
from fermion_table.storage.paths import MAIN

SNAPSHOT_FORMAT = "fermion-table"
SNAPSHOT_FORMAT_VERSION = 1
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
SNAPSHOT_ENTRIES_MAX = 4_096
"""Inline entries, and removed ones in a delta, that a reader takes; a writer stores fewer."""
CHECKSUM_KEY = b',"checksum":"'
CHECKSUM_END = b'"}'

PRIMARY_KEY = "primary-key"
"""Feature of tables whose rows are merged by key when they are read."""
COLUMN_FILES = "column-files"
"""Feature of tables with column files, without which a reader would not see their values."""
BLOB_FILES = "blob-files"
"""Feature of tables with blob files, without which a reader would not find values, and whoever
deletes files would take them for orphans."""
TRANSACTIONS = "transactions"
"""Feature of tables with snapshots that count only if a transaction was committed."""
MANIFEST_LISTS = "manifest-lists"
"""Feature of tables with lists of manifests, whose files a reader would not see without it."""
CREATED_TABLES = "created-tables"
"""Feature of a catalog's list of tables, beside which tables may be that have no row yet."""
KNOWN_READER_FEATURES: frozenset[str] = frozenset(
    {PRIMARY_KEY, COLUMN_FILES, BLOB_FILES, TRANSACTIONS, MANIFEST_LISTS, CREATED_TABLES}
)
DIRECTORIES_ABOVE_MAX = 32
"""Most directories that a warehouse lies above a table of a transaction."""
LEFT_OUT = "fermion.left_out"
"""Property of a snapshot that leaves out files that were missing: how many, as a JSON object."""
CHANGELOG = "changelog"
"""Feature of tables with changelog files, which whoever deletes files has to know."""
KNOWN_WRITER_FEATURES: frozenset[str] = frozenset({CHANGELOG})

_UNIQUE = re.compile(r"[0-9a-f]{32}")

Kind = Literal["create", "append", "overwrite", "delete", "compact", "schema", "restore", "upsert"]


class SnapshotReference(msgspec.Struct, frozen=True):
    """A snapshot by id, and the hash of its stored bytes."""

    id: Natural
    hash: str


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is live: files, rows stored, data bytes, rows of them that are deleted.

    `rows` counts what the files hold; `live_rows` what a scan shows.
    """

    files: Natural = 0
    rows: Natural = 0
    bytes: Natural = 0
    rows_deleted: Natural = 0

    @classmethod
    def of(cls, entries: Collection[Entry]) -> Self:
        """What some data files hold, together."""
        return cls(
            files=len(entries),
            rows=sum(entry.rows for entry in entries),
            bytes=sum(entry.bytes for entry in entries),
            rows_deleted=sum(entry.delete_rows for entry in entries),
        )

    @property
    def live_rows(self) -> int:
        """The rows without those that deletion vectors delete.

        Of a primary-key table a scan may show fewer, as several of these rows may have one key.
        """
        return self.rows - self.rows_deleted


class Deltas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit added and removed, in numbers.

    Rows count as they are stored, deleted ones included; `rows_deleted` are rows that became
    deleted in files that stay, less those that came back: below 0 after some restores.
    """

    files_added: Natural = 0
    rows_added: Natural = 0
    bytes_added: Natural = 0
    files_removed: Natural = 0
    rows_removed: Natural = 0
    bytes_removed: Natural = 0
    rows_deleted: Whole = 0


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit added and removed, by itself.

    tail_entries: The last so many of the snapshot's inline entries (`tail`) were added.
    added: Manifests whose entries were added (instead, when there are many).
    removed: Entries removed, without statistics.
    removed_manifests: Manifests whose entries were removed (instead, when there are many).
    sequence_start, row_id_start: What entries of this commit inherit.
    """

    tail_entries: Natural = 0
    added: tuple[ManifestReference, ...] = ()
    removed: tuple[Entry, ...] = ()
    removed_manifests: tuple[ManifestReference, ...] = ()
    sequence_start: Natural = 0
    row_id_start: Natural = 0


Producer = Literal["input", "lookup", "full_compaction"]
"""What records changes of rows: values of the setting ``changelog_producer``."""


class Changelog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of rows that one commit has recorded, in changelog files.

    producer: The table's ``changelog_producer`` when they were recorded: what they tell.
    entries: The files, in the order of time; none if nothing changed.
    manifests: Manifests with the entries (instead, when there are many).
    """

    producer: Producer
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestReference, ...] = ()


class PartOfTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a snapshot count only if a transaction over several tables was committed.

    Attributes
    ----------
    id
        Of the transaction: 32 hexadecimal digits.
    above, warehouse
        How many directories the warehouse that holds the decision lies above the table, and its
        identity.
    participants
        The identities of all tables that the transaction changes.
    """

    id: str
    above: Natural
    warehouse: str
    participants: tuple[str, ...] = ()


class Touched(msgspec.Struct, frozen=True):
    """The partitions that a commit added files to or removed files from."""

    partitions: tuple[tuple[Plain, ...], ...] | Literal["many"] = ()


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit took whoever made it.

    Attributes
    ----------
    retries
        Races for the next snapshot that were lost before.
    seconds
        From the call until it was published, data files included.
    """

    retries: Natural = 0
    seconds: float = 0.0


NO_EFFORT = Effort()


class _CountedDelta(msgspec.Struct, frozen=True):
    """A delta whose entries are only counted."""

    removed: tuple[CountedEntry, ...] = ()


class _CountedChangelog(msgspec.Struct, frozen=True):
    """A changelog whose entries are only counted."""

    entries: tuple[CountedEntry, ...] = ()


class _Counted(msgspec.Struct, frozen=True):
    """A snapshot whose entries are only counted."""

    tail: tuple[CountedEntry, ...] = ()
    delta: _CountedDelta = _CountedDelta()
    changelog: _CountedChangelog | None = None

    @property
    def changes(self) -> tuple[CountedEntry, ...]:
        """Entries of the changelog."""
        return () if self.changelog is None else self.changelog.entries


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one commit: the complete state of the table, in `manifests` and `tail`.

    Attributes
    ----------
    table_uuid
        The table's identity, the same in all its snapshots.
    id, branch
        Place in history, and the branch the commit was made on.
    uuid
        The commit's own identity: tells a writer whether a snapshot file holds its snapshot.
    parent
        The snapshot before, None for snapshot 0.
    kind
        What the commit did.
    time_ms
        Milliseconds since 1970 UTC, greater than the parent's.
    author, message, properties
        Who, why, and the caller's own words; `properties` are the commit's, not the table's.
    schema
        The table schema of this snapshot.
    manifests, tail
        The live files: those of the manifests (without dead ordinals) and those listed here.
    delta, deltas
        What the commit changed, file by file and in numbers.
    changelog
        The changes of rows that the commit recorded; None: it recorded none.
    totals
        What is live after it.
    row_id_next, sequence_next
        The first row id and sequence number that the next commit uses.
    commit_user, commit_identifier
        The same pair twice is one commit.
    branch_commits
        Of a fast-forward: the pairs of the branch's commits that it brings, by user.
    touched
        Partitions changed.
    transaction
        The transaction over several tables that the commit is part of; None: it is one by itself.
    parent_void
        Whether the snapshot file before belongs to a transaction that was given up, so that this
        commit follows the snapshot before that.
    reader_features, writer_features
        Names that a reader or a writer must know, or refuse the table.
    hash
        BLAKE2b of the stored bytes; known once stored, never stored itself.
    effort
        What it took, where this process has just committed it; never stored. What it did is in
        `deltas`.
    """

    format: str
    format_version: Natural
    table_uuid: str
    id: Natural
    uuid: str
    branch: str = MAIN
    parent: SnapshotReference | None
    kind: Kind
    time_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MS_MAX)]
    author: str = ""
    message: str | None = None
    properties: dict[str, str] = {}
    schema: SchemaReference
    manifests: tuple[ManifestReference, ...] = ()
    tail: tuple[Entry, ...] = ()
    delta: Delta = Delta()
    totals: Totals = Totals()
    deltas: Deltas = Deltas()
    changelog: Changelog | None = None
    row_id_next: Natural = 0
    sequence_next: Natural = 1
    commit_user: str | None = None
    commit_identifier: int | str | None = None
    branch_commits: dict[str, tuple[int | str, ...]] = {}
    touched: Touched = Touched()
    transaction: PartOfTransaction | None = None
    parent_void: bool = False
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name=json_codec.UNKNOWN_KEYS)
    hash: str = msgspec.field(default="", name="#hash")
    effort: Effort = msgspec.field(default=NO_EFFORT, name="#effort")

    def __eq__(self, other: object) -> bool:
        """Whether all but the effort is the same: another process read it from storage."""
        if not isinstance(other, Snapshot):
            return NotImplemented
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return mine[:-1] == theirs[:-1]  # effort is the last field

    def __repr__(self) -> str:
        facts = self._facts()
        return (
            f"<Snapshot {self.id} of branch {self.branch!r}: {self.kind} at {facts['time']}, "
            f"{self.totals.live_rows:,} {self._rows} in {facts['files']:,} files>"
        )

    def _repr_html_(self) -> str:
        return html_facts(f"Snapshot {self.id}", self._facts())

    def _facts(self) -> dict[str, Any]:
        """What people are shown of it."""
        return {
            "branch": self.branch,
            "kind": self.kind,
            "time": f"{time_text(self.time_ms)} UTC",
            "author": self.author or None,
            "message": self.message,
            "schema": str(self.schema.id),
            self._rows: self.totals.live_rows,
            "files": self.totals.files,
            "bytes": self.totals.bytes,
            "rows added": self.deltas.rows_added,
            "files added": self.deltas.files_added,
            "files removed": self.deltas.files_removed,
        }

    @property
    def _rows(self) -> str:
        """What the rows are that are counted: those of a key count as one when they are merged."""
        return "stored rows" if PRIMARY_KEY in self.reader_features else "rows"

    @property
    def reference(self) -> SnapshotReference:
        """This snapshot as a child's parent."""
        return SnapshotReference(self.id, self.hash)

    def is_commit_of(self, user: str, identifier: int | str) -> bool:
        """Whether it was committed under a user and identifier, or brings a commit that was.

        See `commit_identity`.
        """
        return commit_identity(user, identifier) in commit_identities(self)


class Identified(Protocol):
    """What has the identities of commits: a snapshot, or a part of one."""

    @property
    def commit_user(self) -> str | None:
        """Who committed, None if it was not said."""

    @property
    def commit_identifier(self) -> int | str | None:
        """Which of the user's commits it is."""

    @property
    def branch_commits(self) -> Mapping[str, Sequence[int | str]]:
        """Identifiers by users."""


def commit_identities(snapshot: Identified) -> set[tuple[str, str]]:
    """The identities of the commits that a snapshot is or brings; see `commit_identity`."""
    found = {
        commit_identity(user, identifier)
        for user, identifiers in snapshot.branch_commits.items()
        for identifier in identifiers
    }
    if snapshot.commit_user is not None and snapshot.commit_identifier is not None:
        found.add(commit_identity(snapshot.commit_user, snapshot.commit_identifier))
    return found


def commit_identity(user: str | None, identifier: int | str | None) -> tuple[str, str]:
    """What makes two commits one: user and identifier as texts, so that 5 and ``"5"`` are one."""
    return str(user), str(identifier)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot's stored bytes: JSON, never compressed (a snapshot file has one name).

    Its last key is ``checksum``, the BLAKE2b of all bytes before it: nothing else holds the
    hash of the newest snapshot.
    """
    _check(snapshot, f"snapshot {snapshot.id}, not stored yet")
    body = json_codec.encode(
        msgspec.structs.replace(snapshot, hash="", unknown={}, effort=NO_EFFORT)
    )[:-1]
    return body + CHECKSUM_KEY + json_codec.content_hash(body).encode() + CHECKSUM_END


def decode_snapshot(data: bytes, path: str, *, keep_unknown: bool = True) -> Snapshot:
    """A snapshot from its stored bytes, with its hash.

    path: Names the object in messages.
    keep_unknown: Keep keys that this version does not know, for what is written again.
    Raises CorruptMetadata: Not a snapshot, or one that contradicts itself.
    Raises UnsupportedFeature: A newer format version, or a reader feature that is not known here.
    """
    decoder = json_codec.decode_keeping if keep_unknown else json_codec.decode
    plain = json_codec.decompressed(_checked_body(data, path) + b"}", path)
    if len(plain) > SNAPSHOT_ENTRIES_MAX * ENTRY_BYTES_MIN:
        counted = json_codec.decode(plain, _Counted, path)
        _check_entries(counted.tail, counted.delta.removed, counted.changes, path)
    snapshot = decoder(plain, Snapshot, path)
    if snapshot.format != SNAPSHOT_FORMAT:
        raise CorruptMetadata(path, f"format {SNAPSHOT_FORMAT!r}", repr(snapshot.format))
    if snapshot.format_version > SNAPSHOT_FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: table format version {snapshot.format_version}; "
            f"this reader knows up to {SNAPSHOT_FORMAT_VERSION}"
        )
    _refuse_unknown(snapshot.reader_features, KNOWN_READER_FEATURES, path, "reader")
    _check(snapshot, path)
    return msgspec.structs.replace(snapshot, hash=json_codec.content_hash(data), effort=NO_EFFORT)


def check_writable(snapshot: Snapshot, path: str) -> None:
    """Refuse to write to a table that needs a writer feature unknown here.

    Raises UnsupportedFeature: Names the features.
    """
    _refuse_unknown(snapshot.writer_features, KNOWN_WRITER_FEATURES, path, "writer")


def _checked_body(data: bytes, path: str) -> bytes:
    """The bytes before the checksum, once it matches them."""
    body, key, end = data.rpartition(CHECKSUM_KEY)
    if not key or not end.endswith(CHECKSUM_END):
        raise CorruptMetadata(
            path, "a snapshot that ends with its checksum", f"{len(data)} bytes that do not"
        )
    said = end[: -len(CHECKSUM_END)].decode("ascii", "replace")
    computed = json_codec.content_hash(body)
    if said != computed:
        raise CorruptMetadata(path, f"checksum {said}", f"bytes of checksum {computed}")
    return body


def _refuse_unknown(features: tuple[str, ...], known: frozenset[str], path: str, role: str) -> None:
    unknown = [name for name in features if name not in known]
    if unknown:
        raise UnsupportedFeature(
            f"{path}: needs {role} feature {', '.join(map(repr, unknown))}; "
            f"this version knows {', '.join(map(repr, sorted(known))) or 'none'}"
        )


def _check(snapshot: Snapshot, path: str) -> None:
    """Invariants that hold before writing and after reading."""
    if (snapshot.parent is None) != (snapshot.id == 0):
        raise CorruptMetadata(path, "a parent unless the id is 0", f"id {snapshot.id}")
    if snapshot.parent is not None and snapshot.parent.id != snapshot.id - 1:
        raise CorruptMetadata(path, f"parent {snapshot.id - 1}", f"parent {snapshot.parent.id}")
    _check_transaction(snapshot, path)
    changes = () if snapshot.changelog is None else snapshot.changelog.entries
    _check_entries(snapshot.tail, snapshot.delta.removed, changes, path)
    if not 0 <= snapshot.delta.tail_entries <= len(snapshot.tail):
        raise CorruptMetadata(
            path,
            f"at most {len(snapshot.tail)} inline entries in the delta",
            str(snapshot.delta.tail_entries),
        )
    for entry in (*snapshot.tail, *changes):
        for name in ("added_snapshot", "sequence_start", "row_id_base"):
            if getattr(entry, name) is None:
                raise CorruptMetadata(path, f"inline entries with {name}", entry.file)
        if entry.column_files and COLUMN_FILES not in snapshot.reader_features:
            raise CorruptMetadata(
                path, f"reader feature {COLUMN_FILES!r}, as {entry.file} has column files", "none"
            )
        if entry.blob_files and BLOB_FILES not in snapshot.reader_features:
            raise CorruptMetadata(
                path, f"reader feature {BLOB_FILES!r}, as {entry.file} has blob files", "none"
            )
    for reference in snapshot.manifests:
        if reference.kind == "list" and MANIFEST_LISTS not in snapshot.reader_features:
            expected = f"reader feature {MANIFEST_LISTS!r}, as {reference.path} lists manifests"
            raise CorruptMetadata(path, expected, "none")
        check_dead(reference, path)


def _check_transaction(snapshot: Snapshot, path: str) -> None:
    """The keys of transactions: their values, and that readers without the feature refuse them."""
    part = snapshot.transaction
    if part is None and not snapshot.parent_void:
        return
    if TRANSACTIONS not in snapshot.reader_features:
        raise CorruptMetadata(path, f"reader feature {TRANSACTIONS!r}, for its transaction", "none")
    if snapshot.parent_void and snapshot.id < 2:
        raise CorruptMetadata(path, "no parent_void before snapshot 2", f"snapshot {snapshot.id}")
    if part is None:
        return
    if not (_UNIQUE.fullmatch(part.id) and _UNIQUE.fullmatch(part.warehouse)):
        expected = "32 hexadecimal digits as id and as warehouse of its transaction"
        raise CorruptMetadata(path, expected, f"{part.id!r} and {part.warehouse!r}")
    if not 1 <= part.above <= DIRECTORIES_ABOVE_MAX or snapshot.id == 0:
        expected = f"a warehouse 1 to {DIRECTORIES_ABOVE_MAX} directories above the table"
        raise CorruptMetadata(path, expected, f"{part.above} (snapshot {snapshot.id})")


def _check_entries(
    tail: Sequence[object], removed: Sequence[object], changes: Sequence[object], path: str
) -> None:
    parts = (("tail", tail), ("delta.removed", removed), ("changelog.entries", changes))
    for where, entries in parts:
        if len(entries) > SNAPSHOT_ENTRIES_MAX:
            raise CorruptMetadata(
                path, f"at most {SNAPSHOT_ENTRIES_MAX} entries in {where}", f"{len(entries)}"
            )
