"""What a branch committed, replayed on the files of another state: a pure function.

The commits are taken one after the other, oldest first. New files come on top. A file that a
commit removes, or of which it deletes rows, must be in the state as the branch saw it. A
compaction whose inputs are not is left out, since it changes no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import msgspec

from fermion.exports import dataclass
from fermion_table.commit.conflict import Partitions, Theirs
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind

REPLACING: tuple[Kind, ...] = ("overwrite", "restore", "create")
"""Kinds of commits that depend on all rows of the partitions that they change."""
CHANGING: tuple[Kind, ...] = ("append", "overwrite", "restore", "create", "delete", "upsert")
"""Kinds of commits that change rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCommit:
    """A commit of the branch.

    added, removed: Its delta, with what entries inherit filled in.
    partitions: Those that it changed; None: too many to name.
    """

    snapshot_id: int
    kind: Kind
    added: Sequence[Entry] = ()
    removed: Sequence[Entry] = ()
    partitions: Partitions | None = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Why a commit of the branch can't be replayed.

    mine, theirs: The commit, and the one in its way, in words.
    files: That both changed.
    remedy: What the user can do, as merging again does not help.
    """

    reason: str
    mine: str
    theirs: str = ""
    files: tuple[str, ...] = ()
    remedy: str = "repeat the changes of the branch on a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPast:
    """The numbers of the last snapshot that the branch and its parent had in common.

    row_id_next, sequence_next: Of that snapshot: smaller numbers mean the same on both sides,
        others are the branch's own.
    """

    row_id_next: int
    sequence_next: int


@dataclass(slots=True)
class Replay:
    """A state that commits of a branch are replayed on.

    past: See `SharedPast`.
    live: The files of the state, by name.
    is_keyed: Whether rows are merged by a primary key: then compactions are left out, because the
        runs that they make belong below all that the other side has added.
    """

    past: SharedPast
    live: dict[str, Entry]
    is_keyed: bool = False
    _fresh: dict[str, Entry] = field(default_factory=dict)
    _gone: dict[str, Entry] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)

    def take(self, commit: BranchCommit, theirs: Iterable[Theirs]) -> Clash | None:
        """Replay one commit; why that is not possible, None if it was done.

        theirs: What the other side committed.
        """
        mine = f"{commit.kind} (snapshot {commit.snapshot_id} of the branch)"
        changed = tuple(sorted(each.file for each in commit.removed if not self._has(each)))
        if commit.kind == "compact":
            if changed or self.is_keyed:
                self._left_out.update(each.file for each in commit.added)
            else:
                self._apply(commit)
            return None
        if changed:
            return self._changed_on_both_sides(commit, mine, changed, theirs)
        if commit.kind in REPLACING:
            for their in theirs:
                if their.kind in CHANGING and overlap(commit.partitions, their.partitions):
                    return Clash(
                        reason=f"snapshot {their.snapshot_id} ({their.kind}) changed partitions "
                        "that the branch has replaced",
                        mine=mine,
                        theirs=_named(their),
                    )
        self._apply(commit)
        return None

    def changes(self) -> tuple[list[Entry], list[Entry]]:
        """The entries to add and to remove, as a commit takes them."""
        return list(self._fresh.values()), list(self._gone.values())

    def written(self) -> set[str]:
        """The files to add that have rows or columns that the branch wrote."""
        return {
            file
            for file, entry in self._fresh.items()
            if file not in self._gone or entry.column_files != self._gone[file].column_files
        }

    def _has(self, removed: Entry) -> bool:
        """Whether the state has a file with the rows that the branch saw in it."""
        found = self.live.get(removed.file)
        return (
            found is not None
            and found.deletion_vector == removed.deletion_vector
            and found.column_files == removed.column_files
        )

    def _changed_on_both_sides(
        self, commit: BranchCommit, mine: str, files: tuple[str, ...], theirs: Iterable[Theirs]
    ) -> Clash:
        shared = [each for each in theirs if not each.removed.isdisjoint(files)]
        compacted = self._left_out.intersection(files)
        if compacted:
            why = "changed files that a compaction of the branch has made, which can't be "
            why += "repeated here"
        else:
            rows = sum(each.rows for each in commit.removed if each.file in files)
            why = f"changed files of {rows:,} rows that the branch has changed, too"
            why = f"{_named(shared[0]) if shared else 'another commit'} {why}"
        return Clash(reason=why, mine=mine, theirs=_named(shared[0]) if shared else "", files=files)

    def _apply(self, commit: BranchCommit) -> None:
        added = {each.file: each for each in commit.added}
        for each in commit.removed:
            known = self.live.pop(each.file)
            was_new = self._fresh.pop(each.file, None) is not None
            if not was_new:
                self._gone.setdefault(each.file, known)
            if each.file in added:  # the same file with other rows deleted, or other columns
                again = added.pop(each.file)
                changed = msgspec.structs.replace(
                    known,
                    deletion_vector=again.deletion_vector,
                    delete_rows=again.delete_rows,
                    column_files=again.column_files,
                    columns=again.columns,
                    stats=again.stats,
                )
                self.live[each.file] = self._fresh[each.file] = changed
        for file, each in added.items():
            self.live[file] = self._fresh[file] = self._renumbered(each)

    def _renumbered(self, entry: Entry) -> Entry:
        """A new file, whose numbers come from the commit where they were the branch's own."""
        numbers: dict[str, object] = {"added_snapshot": None}
        if entry.row_id_base is not None and entry.row_id_base >= self.past.row_id_next:
            numbers["row_id_base"] = None
        ahead = entry.sequence_number - self.past.sequence_next
        if ahead >= 0:
            numbers |= {"sequence_start": None, "sequence_offset": ahead}
        return msgspec.structs.replace(entry, **numbers)


def overlap(mine: Partitions | None, theirs: Partitions | None) -> bool:
    """Whether commits have changed the same partition; None: too many to name."""
    if mine is None or theirs is None:
        return mine != frozenset() and theirs != frozenset()
    return not mine.isdisjoint(theirs)


def _named(theirs: Theirs) -> str:
    return f"{theirs.kind} (snapshot {theirs.snapshot_id})"
