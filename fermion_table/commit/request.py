"""What a caller asks a commit to publish, and the order in time of the sorted runs in it.

Every writer numbers its runs of a tree of a primary-key table from 0 on. Files of several writers,
or of several writes of a transaction, get numbers in the order of the writers and writes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Any

import msgspec

from fermion.arguments import function
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_identifier, check_optional_text, check_text_map
from fermion_table.commit.conflict import Mine, Partitions, Tree
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind, Producer, Snapshot
from fermion_table.schema.schema import SchemaReference, TableSchema, encode_schema
from fermion_table.storage.paths import MAIN

RemovedFile = Entry | str


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What the caller says about a commit, checked: goes into the history with its snapshot.

    Attributes
    ----------
    message, properties
        For the history.
    commit_user, commit_identifier
        The same pair is committed once.
    began
        When, by ``time.monotonic``, the operation was called.
    properties_after
        Called with each snapshot that the commit is to follow: the properties there, in place of
        `properties`. Raises where it must not follow.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the parameter that metadata could not hold.
    """

    message: str | None = None
    properties: Mapping[str, str] | None = None
    commit_user: str | None = None
    commit_identifier: int | str | None = None
    _: KW_ONLY
    began: float = field(default_factory=time.monotonic)
    properties_after: Callable[[Snapshot], Mapping[str, str]] | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "message": check_optional_text(self.message, "message"),
            "properties": check_text_map(self.properties, "properties"),
            "commit_user": check_optional_text(self.commit_user, "commit_user"),
            "commit_identifier": check_identifier(self.commit_identifier, "commit_identifier"),
        }
        function(self.properties_after, "properties_after")
        if (self.commit_user is None) != (self.commit_identifier is None):
            raise InvalidArgumentError(
                "commit_user and commit_identifier: expected both or neither"
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def identity(self) -> tuple[str, int | str] | None:
        """User and identifier, where repeating the commit must not publish it twice."""
        if self.commit_user is None or self.commit_identifier is None:
            return None
        return self.commit_user, self.commit_identifier

    @property
    def asks_for_snapshot(self) -> bool:
        """Whether it is to be in the history even where nothing changes."""
        return bool(self.properties) or self.message is not None or self.commit_user is not None


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema version to store: its id (greater than any before) and its JSON."""

    id: int
    data: bytes


def stored_schema(schema: TableSchema | None) -> NewSchema | None:
    """A schema version as a commit takes it."""
    return None if schema is None else NewSchema(schema.id, encode_schema(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """One unit of a compaction: these files in place of those.

    added: Data files; with a producer changelog files, too.
    producer: What has recorded the changes of rows; None: nothing has.
    """

    added: tuple[Entry, ...]
    removed: tuple[RemovedFile, ...]
    producer: Producer | None = None

    @property
    def tree(self) -> Tree | None:
        """The tree that the files belong to; None: an append table's belong to none."""
        for item in (*self.removed, *self.added):
            if isinstance(item, Entry) and item.bucket is not None:
                return item.partition, item.bucket
        return None


class WrittenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files that writers made and hand over in messages: each can be committed once.

    beside: Paths of files that belong to them: changelog files, column files and deletion vectors.
    since, branch: A snapshot of a branch that was there before any of them was made; None: not
        known.
    """

    files: frozenset[str]
    beside: frozenset[str] = frozenset()
    since: int | None = None
    branch: str = MAIN

    @property
    def paths(self) -> frozenset[str]:
        """Of all files."""
        return self.files | self.beside

    def and_also(self, other: WrittenFiles | None) -> WrittenFiles:
        """These and others.

        Raises InvalidArgumentError: A file is in both.
        """
        if other is None:
            return self
        check_names_once([*self.files, *other.files])
        both = None not in (self.since, other.since) and self.branch == other.branch
        return WrittenFiles(
            files=self.files | other.files,
            beside=self.beside | other.beside,
            since=min(self.since or 0, other.since or 0) if both else None,
            branch=self.branch,
        )


def check_names_once(files: Sequence[str]) -> None:
    """Refuse a file that is named twice.

    Raises InvalidArgumentError.
    """
    if len(set(files)) < len(files):
        counted = Counter(files)
        twice = next(file for file in files if counted[file] > 1)
        raise InvalidArgumentError(
            f"{twice} is named {counted[twice]} times: the messages of a writer can be committed "
            "only once"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit.

    added: Entries of new files. What they inherit stays None; `sequence_offset` and `row_offset`
        count within this commit. Changelog files are among them (`recorded`).
    removed: Entries as `live_entries` gave them, or (slower) names of files. A file in both
        `removed` and `added` is replaced (a new deletion vector).
    groups: Of a compaction, instead of `added` and `removed`: units that may be left out.
    schema: A schema change, alone or together with files.
    base: The snapshot that the operation was decided on; None for a blind append, which is then
        based on the latest.
    scope, depends_on, accepts_schema: What the operation rests on: see `conflict.Mine`.
    relied_on: Names of files that it rests on as if it removed them: it found rows there that are
        to be there still when it is published.
    reader_features, writer_features: Features that the table needs from this commit on.
    written: Those of the files added that somebody else may have committed already; None: nobody
        but this call knows of any.
    unsure: Paths of objects that no snapshot names yet. Files that are added are looked for before
        anything is published, unless this process has made them just now.
    branch_commits: Identifiers, by user, of the commits of a branch that come with this one.
    name: What messages call it; empty: by its kind.
    """

    kind: Kind
    added: Sequence[Entry] = ()
    removed: Sequence[RemovedFile] = ()
    groups: Sequence[FileGroup] = ()
    schema: NewSchema | None = None
    base: Snapshot | None = None
    scope: Partitions | None = None
    depends_on: Callable[[Entry], bool] | None = None
    accepts_schema: Callable[[SchemaReference], str | None] | None = None
    relied_on: frozenset[str] = frozenset()
    metadata: CommitMetadata = field(default_factory=CommitMetadata)
    reader_features: Sequence[str] = ()
    writer_features: Sequence[str] = ()
    written: WrittenFiles | None = None
    unsure: frozenset[str] = frozenset()
    branch_commits: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    name: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name or self.kind

    def __post_init__(self) -> None:
        if self.groups and (self.added or self.removed or self.kind != "compact"):
            raise InvalidArgumentError("groups belong to a compaction, without added and removed")
        if self.kind == "append" and self.removed:
            raise InvalidArgumentError("an append removes no files; use kind 'overwrite'")
        added = [*self.added, *(entry for group in self.groups for entry in group.added)]
        check_names_once([entry.file for entry in added])

    def as_mine(self) -> Mine:
        """This request as the conflict matrix sees it."""
        return Mine(
            kind=self.kind,
            scope=self.scope,
            removed=self.relied_on.union(file_name(item) for item in self.removed),
            groups=[frozenset(file_name(item) for item in group.removed) for group in self.groups],
            trees=[group.tree for group in self.groups],
            changes_schema=self.schema is not None,
            depends_on=self.depends_on,
            accepts_schema=self.accepts_schema,
        )


RECORDED_KINDS = ("append", "delete", "upsert")
"""Kinds of commits that changelog files of writers tell everything of; others replace rows too."""


def recorded(kind: Kind, added: Iterable[Entry]) -> list[Entry]:
    """The entries that a commit adds, without changelog files that do not tell all its changes."""
    return [entry for entry in added if kind in RECORDED_KINDS or not entry.is_changelog]


def file_name(item: RemovedFile) -> str:
    """The data file that an item of `CommitRequest.removed` names."""
    return item if isinstance(item, str) else item.file


class RunNumbers:
    """Gives the runs of level 0 their `sequence_offset`, those of each tree ascending."""

    def __init__(self) -> None:
        self._next: dict[tuple[Any, ...], int] = {}

    def numbered(self, entries: Iterable[Entry]) -> list[Entry]:
        """The files of one writer, after those that were numbered before.

        Entries that are no runs of level 0, or whose place in time is fixed, stay as they are.
        """
        starts = dict(self._next)
        found = []
        for entry in entries:
            if entry.bucket is not None and entry.level == 0 and entry.sequence_start is None:
                tree = entry.partition, entry.bucket
                offset = starts.get(tree, 0) + entry.sequence_offset
                self._next[tree] = max(self._next.get(tree, 0), offset + 1)
                entry = msgspec.structs.replace(entry, sequence_offset=offset)
            found.append(entry)
        return found


def numbered_in_order(writers: Iterable[Iterable[Entry]]) -> list[Entry]:
    """The files of several writers, in the order of the writers."""
    numbers = RunNumbers()
    return [entry for entries in writers for entry in numbers.numbered(entries)]
