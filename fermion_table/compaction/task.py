"""What a compaction consists of: groups of files, tasks that rewrite them, and their messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, fields

import msgspec

from fermion.display import counted, short_repr
from fermion.exports import dataclass
from fermion_table.argument_checks import check_kind
from fermion_table.commit.request import FileGroup
from fermion_table.metadata.manifest import BlobFile, Entry, paths_of
from fermion_table.metadata.snapshot import Producer
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True)
class CompactionGroup:
    """Files that are rewritten together, in the order in which their rows are read."""

    entries: tuple[Entry, ...]

    __repr__ = short_repr

    @property
    def bytes(self) -> int:
        """Bytes of the files and of their column files."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def rows(self) -> int:
        """Rows of the files, without deleted ones."""
        return sum(entry.live_rows for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask(ABC):
    """One group and all that is needed to rewrite it, on any machine. Picklable.

    Attributes
    ----------
    store
        Of the table.
    group
        What to rewrite.
    guard
        Makes the context in which files are read, see `history.expiry_guard`.
    """

    store: AtomicStore
    group: CompactionGroup
    guard: Callable[[], AbstractContextManager[None]] = nullcontext

    __repr__ = short_repr

    @property
    def upgraded(self) -> tuple[Entry, ...]:
        """Files that move to another level of their tree, without being rewritten."""
        return ()

    @abstractmethod
    def rewrite(self) -> CompactionMessage:
        """Write the group's rows again. What it has written goes if it fails."""


class CompactionMessage(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """What became of a group: its new files, and those they replace.

    Attributes
    ----------
    added, removed
        A file in both moved to another level of its tree, or has other deleted rows, without being
        rewritten.
    snapshot_id
        Of a tree: the snapshot that it was planned on. None: a group of small files.
    producer
        What has recorded the changes of rows in changelog files, which are among `added`.
    """

    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]
    snapshot_id: int | None = None
    producer: Producer | None = None

    __repr__ = short_repr

    @property
    def written(self) -> tuple[Entry, ...]:
        """Entries of the files that were written for the group, changelog files too."""
        known = {entry.file for entry in self.removed}
        return tuple(entry for entry in self.added if entry.file not in known)

    @property
    def vectors(self) -> set[str]:
        """The files of deletion vectors that were written for the group."""
        known = {entry.deletion_vector for entry in self.removed}
        found = {entry.deletion_vector for entry in self.added} - known - {None}
        return {vector.path for vector in found if vector is not None}

    @property
    def paths(self) -> set[str]:
        """All files that were written for the group."""
        written = {path for entry in self.written for path in paths_of(entry)}
        written -= {each.path for entry in self.removed for each in entry.blob_files}
        return written | self.vectors

    @property
    def upgraded(self) -> int:
        """How many files moved to another level of their tree as they are."""
        levels = {entry.file: entry.level for entry in self.removed}
        return sum(levels.get(entry.file, entry.level) != entry.level for entry in self.added)

    @property
    def rewritten(self) -> tuple[Entry, ...]:
        """Entries of the files whose rows were written again."""
        kept = {entry.file for entry in self.added}
        return tuple(entry for entry in self.removed if entry.file not in kept)

    def file_group(self) -> FileGroup:
        """The group as `commit` takes it."""
        return FileGroup(added=self.added, removed=self.removed, producer=self.producer)


def compact_group(task: CompactionTask) -> CompactionMessage:
    """Rewrite a group; nothing is visible before the message is committed.

    Raises
    ------
    MissingDataFile
        A file of the group is gone, though the snapshot that was planned on has not expired.
    VersionNotFound
        That snapshot has expired.
    """
    task = check_kind(task, CompactionTask, "task")  # type: ignore[type-abstract]
    with task.guard():
        return task.rewrite()


def dead_blob_files(entries: Iterable[Entry]) -> frozenset[str]:
    """Blob files of the table whose values are to be copied, so that the files can go: by name.

    Rows refer to less than half of each, and the files whose references change are smaller than
    what that frees.

    entries: All live files.
    """
    found: dict[str, list[tuple[BlobFile, int]]] = defaultdict(list)
    for entry in entries:
        for each in entry.blob_files:
            found[each.name].append((each, entry.bytes))
    dead = set[str]()
    for name, uses in found.items():
        file, live = uses[0][0], sum(each.live_bytes for each, _ in uses)
        is_own = all(each.external_path is None for each, _ in uses)
        if is_own and 2 * live < file.size and sum(size for _, size in uses) < file.size - live:
            dead.add(name)
    return frozenset(dead)


def slim(entry: Entry) -> Entry:
    """An entry without statistics; the columns that hold data are still needed for reading."""
    return msgspec.structs.replace(entry, stats={}, min_key=None, max_key=None)


@dataclass(slots=True, kw_only=True)
class CompactionResult:
    """What a compaction did, or, as a dry run, would do.

    Attributes
    ----------
    groups
        Groups planned.
    groups_dropped
        Groups left out, because other commits removed their inputs.
    files_before, files_after, bytes_before, bytes_after
        Of the groups committed; a dry run knows only what was before.
    files_upgraded
        Files of trees that moved to another level as they are; the other numbers leave them out.
    snapshots
        Ids of the snapshots made.
    retries
        Races for the next snapshot that were lost.
    seconds
        From planning to the last commit.
    """

    dry_run: bool = False
    groups: int = 0
    groups_dropped: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_upgraded: int = 0
    rows: int = 0
    snapshots: list[int] = field(default_factory=list)
    retries: int = 0
    seconds: float = 0.0

    __repr__ = short_repr

    def __str__(self) -> str:
        before = f"{counted(self.files_before, 'file')} ({counted(self.bytes_before, 'byte')})"
        after = f"{counted(self.files_after, 'file')} ({counted(self.bytes_after, 'byte')})"
        parts = []
        if self.files_before and self.dry_run:
            parts.append(f"would rewrite {before} in {counted(self.groups, 'group')}")
        elif self.files_before:
            parts.append(f"rewrote {before} as {after} in {self.seconds:.1f} s")
        if self.files_upgraded:
            moved = f"{'would move' if self.dry_run else 'moved'} "
            moved += counted(self.files_upgraded, "file")
            parts.append(f"{moved} to another level without rewriting")
        if self.groups_dropped:
            left = counted(self.groups_dropped, "group")
            parts.append(f"left out {left} that concurrent commits changed")
        return "\n".join(parts) or "nothing to do"

    def add(self, part: CompactionResult) -> None:
        """Add what a part of the compaction did, except its time."""
        check_kind(part, CompactionResult, "part")
        for each in fields(self):
            if each.name not in ("dry_run", "seconds"):
                setattr(self, each.name, getattr(self, each.name) + getattr(part, each.name))
