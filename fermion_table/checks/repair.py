"""Repairing a table from its own files: its pointer files, expiry markers and newest snapshots.

No data file is touched. A snapshot file that can't be read, and that nothing else has a copy of,
is set aside under ``damaged/``, so that the last good snapshot is the newest one again. Files that
the newest snapshots name and that are gone are told; where the caller wants it, a new snapshot
leaves them out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_bool
from fermion_table.checks.missing_files import (
    LostDeletions,
    StoredFiles,
    check_lost_deletions,
    find_losses,
    publish_without,
)
from fermion_table.checks.verify import verify
from fermion_table.commit.undecided import give_up
from fermion_table.errors import CorruptMetadata, TableError, TableNotFound, UnsupportedFeature
from fermion_table.metadata import pointers
from fermion_table.metadata.decisions import decision_on
from fermion_table.metadata.history import Newest, SchemaVersions, list_ids
from fermion_table.metadata.manifest import data_paths_of, paths_of
from fermion_table.metadata.manifest_store import (
    live_entries,
    manifests_of,
    read_list,
    read_stored,
    removed_entries,
)
from fermion_table.metadata.references import (
    Reference,
    list_branch_names,
    load_branch,
    load_tag,
    snapshot_of,
    tag_names,
)
from fermion_table.metadata.snapshot import LEFT_OUT, TRANSACTIONS, Snapshot, decode_snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import (
    MAIN,
    branch_path,
    damaged_path,
    earliest_hint_path,
    expired_directory,
    latest_hint_path,
    snapshot_path,
    tag_path,
    unique_name,
)
from fermion_table.storage.store import AtomicStore, CreateResult

PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """What a repair did.

    Attributes
    ----------
    actions
        What was done, in words and in order; with `dry_run` what would be. Empty: nothing was to be
        repaired.
    problems
        What is left for people to decide; after a dry run, all that is wrong now.
    dry_run
        Whether nothing was changed.
    losses
        Of each branch the files that its newest snapshot names and that are missing, or too short,
        and what is lost with them, in words.
    rows_lost
        Rows of data files that are lost so, or that are left out for the sake of a lost column file
        or deletion vector; those of each branch count.
    """

    actions: tuple[str, ...]
    problems: tuple[str, ...]
    dry_run: bool
    losses: tuple[str, ...] = ()
    rows_lost: int = 0

    __repr__ = short_repr

    @property
    def ok(self) -> bool:
        """Whether no problem is left."""
        return not self.problems

    def __str__(self) -> str:
        would = "would be done" if self.dry_run else "done"
        lines = [f"{len(self.actions)} repairs {would}", *(f"  {each}" for each in self.actions)]
        if self.losses:
            lines.append(f"{len(self.losses)} files missing, {self.rows_lost:,} rows lost")
            lines += _shown(self.losses)
        if self.problems:
            lines.append(f"{len(self.problems)} problems left")
            lines += _shown(self.problems)
        return "\n".join(lines)


def _shown(texts: Sequence[str]) -> list[str]:
    more = len(texts) - PROBLEMS_SHOWN
    lines = [f"  {each}" for each in texts[:PROBLEMS_SHOWN]]
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def repair_table(
    path: str | os.PathLike[str],
    *,
    storage_options: dict[str, Any] | None = None,
    dry_run: bool = False,
    leave_out_missing: bool = False,
    lost_deletions: LostDeletions | None = None,
) -> RepairResult:
    """Repair a table that can't be opened, or not be trusted, from its own files.

    Pointer files and expiry markers that are missing or wrong are written anew. A newest snapshot
    that can't be read is restored from the copy that a tag or a branch holds, or set aside, so that
    the one before it is the newest. Data files are never deleted. Nobody else may write to the
    table meanwhile.

    Files that the newest snapshot of a branch names and that are gone are told as `losses`. Without
    them the table can't be read as a whole; `leave_out_missing` gives them up.

    Parameters
    ----------
    path
        A directory, local or an fsspec URL.
    storage_options
        For fsspec.
    dry_run
        Only say what would be done.
    leave_out_missing
        Publish a snapshot, of each branch that needs one, that leaves missing data files out, with
        their rows, and does without missing column files, whose columns show older values, defaults
        or nulls then. Where a column can't have these, the rows are left out. Older snapshots go on
        naming the files, and changes across the new one can't be read.
    lost_deletions
        What becomes of a data file whose deletion vector is missing, so that nobody knows which of
        its rows are deleted: ``"leave_out"`` leaves all its rows out; ``"show"`` shows the deleted
        rows again, not in primary-key tables. None: the file stays as it is, which is a problem
        left. Needs `leave_out_missing`.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    TableNotFound
        There is no snapshot file at all.
    UnsupportedFeature
        A newer version of this software has written the newest snapshot.
    CommitConflict, CommitStateUnknown
        Others kept committing, or a reply was lost: repair the table again.
    OSError
        The storage's own.
    """
    choice = Choice.checked(dry_run, leave_out_missing, lost_deletions)
    return repair(open_store(path, storage_options=storage_options), choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a repair may do; see `repair_table`."""

    dry_run: bool = False
    leave_out_missing: bool = False
    lost_deletions: LostDeletions | None = None

    @classmethod
    def checked(cls, dry_run: Any, leave_out_missing: Any, lost_deletions: Any) -> Choice:
        """What a caller wants.

        Raises TypeError, InvalidArgumentError.
        """
        choice = cls(
            dry_run=check_bool(dry_run, "dry_run"),
            leave_out_missing=check_bool(leave_out_missing, "leave_out_missing"),
            lost_deletions=check_lost_deletions(lost_deletions),
        )
        if choice.lost_deletions is not None and not choice.leave_out_missing:
            raise InvalidArgumentError(
                f"lost_deletions={lost_deletions!r}: is for leave_out_missing=True"
            )
        return choice


def repair(store: AtomicStore, choice: Choice) -> RepairResult:
    """The same, of a store."""
    if not list_ids(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    shared_cache.clear()  # what is stored counts, not what it once was
    files = StoredFiles(store, looks_outside=choice.leave_out_missing)
    work = _Repair(store, choice, files)
    for branch in (MAIN, *list_branch_names(store)):
        head = work.repair_branch(branch)
        if head is not None:
            try:
                work.leave_out(branch, head)
            except CorruptMetadata as error:
                work.problems.append(str(error))
    report = verify(store, external=False)
    problems = [*work.problems, *files.unknown, *(str(each) for each in report.problems)]
    return RepairResult(
        actions=tuple(work.actions),
        problems=tuple(dict.fromkeys(problems)),
        dry_run=choice.dry_run,
        losses=tuple(work.losses),
        rows_lost=work.rows_lost,
    )


@dataclass(slots=True)
class _Repair:
    store: AtomicStore
    choice: Choice
    files: StoredFiles
    actions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    rows_lost: int = 0

    @property
    def dry_run(self) -> bool:
        """Whether nothing is changed."""
        return self.choice.dry_run

    def repair_branch(self, branch: str) -> Snapshot | None:
        """Repair the newest snapshots of a branch, then its pointer files and markers.

        Returns: The newest snapshot; None if it can't be read.
        """
        ids = list_ids(self.store, branch)
        self._repair_markers(branch, ids[-1] if ids else self._left_at(branch))
        if not ids:
            return self._left(branch)  # it has no commits of its own
        end = self._good_end(branch, ids, self._first_kept(branch, ids[-1]))
        if end is None:
            return None
        for snapshot_id in (each for each in reversed(ids) if each > end.stored.id):
            self._set_aside(branch, snapshot_id)
        self._repair_pointers(branch, end.stored, ids[-1])
        shown = end.snapshot
        self._mark_what_has_expired(branch, shown, [each for each in ids if each < shown.id])
        return shown

    def leave_out(self, branch: str, head: Snapshot) -> None:
        """Tell what the newest snapshot of a branch lacks; publish one that does without it."""
        choice = self.choice
        lost = find_losses(self.store, head, self.files, choice.lost_deletions)
        newest = f"snapshot {lost.snapshot.id + 1} of branch {branch!r}"
        if choice.leave_out_missing and lost.removed:
            if not choice.dry_run:
                published, lost = publish_without(
                    self.store, branch, head, self.files, choice.lost_deletions
                )
                newest = f"snapshot {published.id} of branch {branch!r}"
            if lost.removed:  # no other repair was faster
                self.actions.append(f"{newest}: leaves out {lost.summary}")
        elif lost.removed:
            self.problems.append(
                f"snapshot {head.id} of branch {branch!r}: files are missing: {lost.summary}; "
                "leave_out_missing=True (--leave-out-missing) publishes a snapshot without them"
            )
        self.losses += [f"branch {branch!r}: {each}" for each in (*lost.told, *lost.undecided)]
        self.problems += [f"branch {branch!r}: {each}" for each in lost.undecided]
        self.rows_lost += lost.rows

    def _good_end(self, branch: str, ids: list[int], kept: int) -> Newest | None:
        """The newest snapshot that can be read, restored from a copy where there is one.

        Behind it, those that do not count, of transactions over several tables.
        """
        last: Snapshot | None = None
        for snapshot_id in reversed(ids):
            if 0 < snapshot_id < kept:
                break
            try:
                if (uncounted := self._uncounted(branch, snapshot_id)) is not None:
                    last = last or uncounted
                    continue
            except CorruptMetadata as error:  # of the decision
                self.problems.append(str(error))
                return None
            found = self._readable(branch, snapshot_id) or self._restored(branch, snapshot_id)
            if found is not None:
                return Newest(found, last or found)
            last = None
        path = snapshot_path(ids[-1], branch)
        self.problems.append(f"{path}: no snapshot of branch {branch!r} can be read")
        self.problems += self._lost_manifests(path)
        return None

    def _lost_manifests(self, path: str) -> Iterator[str]:
        """The manifests without which a snapshot can't be read, and what that means."""
        with contextlib.suppress(TableError, FileNotFoundError):
            found = decode_snapshot(self.store.read(path), path).manifests
            for each in found:
                if each.kind == "list":
                    with contextlib.suppress(TableError, FileNotFoundError):
                        found += read_list(self.store, each)
            for reference in found:
                files = "manifests" if reference.kind == "list" else "data files"
                try:
                    read_stored(self.store, reference.path, reference.hash, reference.size)
                except (TableError, FileNotFoundError) as error:
                    yield (
                        f"{error}: it lists {reference.live_entries:,} {files} with "
                        f"{reference.rows:,} rows; without it nobody knows which files these are, "
                        "and leave_out_missing can't leave them out: bring a copy of it back"
                    )

    def _readable(self, branch: str, snapshot_id: int) -> Snapshot | None:
        """A snapshot whose metadata can be read; None if it can't."""
        path = snapshot_path(snapshot_id, branch)
        try:
            snapshot = decode_snapshot(self.store.read(path), path)
            self._check(snapshot)
        except UnsupportedFeature:
            raise
        except (TableError, FileNotFoundError):
            return None
        return snapshot if snapshot.id == snapshot_id else None

    def _uncounted(self, branch: str, snapshot_id: int) -> Snapshot | None:
        """What a snapshot file holds that does not count, whose files may be gone; else None.

        Raises CorruptMetadata: What was decided about it is not known.
        """
        path = snapshot_path(snapshot_id, branch)
        try:
            snapshot = decode_snapshot(self.store.read(path), path)
        except (CorruptMetadata, FileNotFoundError):
            return None
        if snapshot.transaction is None:
            return None
        decision = decision_on(self.store, snapshot)
        return None if decision is not None and decision.state == "committed" else snapshot

    def _check(self, snapshot: Snapshot) -> None:
        """Read the schema and the manifests of a snapshot; raises if one is not what it was."""
        _ = SchemaVersions(self.store, snapshot).current
        for reference in manifests_of(self.store, snapshot):
            read_stored(self.store, reference.path, reference.hash, reference.size)

    def _restored(self, branch: str, snapshot_id: int) -> Snapshot | None:
        """A snapshot from the copy that a tag or a branch holds; None if none does."""
        path = snapshot_path(snapshot_id, branch)
        for where, reference in self._references():
            with contextlib.suppress(TableError, FileNotFoundError):
                snapshot = snapshot_of(reference, where)
                if (snapshot.id, snapshot.branch) != (snapshot_id, branch):
                    continue
                self._check(snapshot)
                self.actions.append(f"{path}: restored from the copy in {where}")
                if not self.dry_run:
                    self._keep_bytes(path, snapshot_id)
                    self.store.delete(path)
                    result = self.store.create_if_absent(path, bytes(reference.snapshot))
                    if result is CreateResult.UNKNOWN:
                        raise OSError(f"{path}: the reply was lost; repair the table again")
                return snapshot
        return None

    def _references(self) -> Iterator[tuple[str, Reference]]:
        """Tags and branches that can be read."""
        for name in tag_names(self.store):
            with contextlib.suppress(CorruptMetadata):
                tag = load_tag(self.store, name)
                if tag is not None:
                    yield tag_path(name), tag
        for name in list_branch_names(self.store):
            with contextlib.suppress(CorruptMetadata):
                branch = load_branch(self.store, name)
                if branch is not None:
                    yield branch_path(name), branch

    def _set_aside(self, branch: str, snapshot_id: int) -> None:
        path = snapshot_path(snapshot_id, branch)
        self.actions.append(
            f"{path}: can't be read; set aside, the snapshot before it is the newest"
        )
        if not self.dry_run:
            if (uncounted := self._uncounted(branch, snapshot_id)) is not None:
                give_up(self.store, uncounted)  # unless that was done
            self._keep_bytes(path, snapshot_id)
            self.store.delete(path)

    def _keep_bytes(self, path: str, snapshot_id: int) -> None:
        """Keep what a damaged snapshot file holds."""
        with contextlib.suppress(FileNotFoundError):
            data = self.store.read(path)
            self.store.write(damaged_path(unique_name(), snapshot_id), data)

    def _repair_markers(self, branch: str, newest: int) -> None:
        """Remove expiry markers and an EARLIEST that name more than there ever was."""
        for mark in pointers.marks(self.store, branch):
            if mark.greatest > newest:
                self.actions.append(
                    f"{mark.path}: removed, as it names snapshot {mark.greatest}, which never was"
                )
                if not self.dry_run:
                    self.store.delete(mark.path)

    def _left_at(self, branch: str) -> int:
        """The snapshot after which a branch left another one; 0 if that can't be read."""
        with contextlib.suppress(CorruptMetadata):
            left = load_branch(self.store, branch)
            if left is not None:
                return left.snapshot_id
        return 0

    def _left(self, branch: str) -> Snapshot | None:
        """The copy of the snapshot after which a branch left another; None if it can't be read."""
        with contextlib.suppress(CorruptMetadata):
            left = load_branch(self.store, branch)
            if left is not None:
                snapshot = snapshot_of(left, branch_path(branch))
                self._check(snapshot)
                return snapshot
        return None

    def _repair_pointers(self, branch: str, head: Snapshot, newest: int) -> None:
        """Let LATEST name the newest snapshot, and EARLIEST what the markers say."""
        if pointers.read_latest(self.store, branch) != head.id:
            self.actions.append(f"{latest_hint_path(branch)}: written anew, names {head.id}")
            if not self.dry_run:
                self.store.delete(latest_hint_path(branch))
                pointers.write_latest(self.store, head.id, branch)
        kept = self._first_kept(branch, newest)
        named = pointers.read_earliest(self.store, branch)
        if kept and (named < kept or named > newest):
            self.actions.append(f"{earliest_hint_path(branch)}: written anew, names {kept}")
            if not self.dry_run:
                pointers.follow_markers(self.store, branch)

    def _first_kept(self, branch: str, newest: int) -> int:
        """The id below which snapshots have expired, by the markers that may be true."""
        marks = pointers.markers(self.store, branch)
        return max((mark.kept for mark in marks if mark.greatest <= newest), default=0)

    def _mark_what_has_expired(self, branch: str, head: Snapshot, older: list[int]) -> None:
        """Create the expiry marker again where old snapshots have lost their files."""
        if not older or pointers.first_kept(self.store, branch) > 1:
            return
        older = [each for each in older if each not in self._void(branch, head, older)]
        there = {item.path for item in self.store.list()} | self._given_up(branch, head, older)
        kept = _own_files(self.store, head)
        if not kept <= there:
            return  # that is no expiry: `verify` tells what is missing
        first = head.id
        for snapshot_id in reversed(older):
            snapshot = self._readable(branch, snapshot_id)
            files = None if snapshot is None else _own_files(self.store, snapshot)
            if snapshot_id == 0 or files is None or not files <= there:
                break
            first, kept = snapshot_id, kept | files
        lost = [each for each in older if 0 < each < first]
        if not lost:
            return
        for snapshot_id in lost:
            snapshot = self._readable(branch, snapshot_id)
            files = set() if snapshot is None else _own_files(self.store, snapshot)
            if files and files <= there and not files <= kept:
                path = snapshot_path(lost[-1], branch)
                self.problems.append(f"{path}: it, or a file of it, is missing or damaged")
                return
        self.actions.append(
            f"{expired_directory(branch)}: snapshots up to {lost[-1]} have lost files; marked as "
            f"expired"
        )
        if not self.dry_run:
            pointers.mark_expired(self.store, first, branch)

    def _void(self, branch: str, head: Snapshot, older: Sequence[int]) -> set[int]:
        """Ids that do not count, as their transactions were given up: their files may be gone."""
        if TRANSACTIONS not in head.reader_features:
            return set()
        later = (head, *(self._readable(branch, each) for each in older))
        return {each.id - 1 for each in later if each is not None and each.parent_void}

    def _given_up(self, branch: str, head: Snapshot, older: Sequence[int]) -> set[str]:
        """Files that earlier repairs have left out, as they were missing: that was no expiry."""
        found: set[str] = set()
        for snapshot in (head, *(self._readable(branch, each) for each in older)):
            if snapshot is not None and LEFT_OUT in snapshot.properties:
                for entry in removed_entries(self.store, snapshot):
                    found.update(paths_of(entry))
        return found


def _own_files(store: AtomicStore, snapshot: Snapshot) -> set[str]:
    """The data files and deletion vectors of a snapshot that lie in the table itself."""
    found: set[str] = set()
    for entry in live_entries(store, snapshot):
        found.update(data_paths_of(entry))
        found.update(each.path for each in entry.blob_files if each.external_path is None)
        vector = entry.deletion_vector
        if vector is not None and not vector.path.startswith("/") and "://" not in vector.path:
            found.add(vector.path)
    return found
