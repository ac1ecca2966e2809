"""Publishing a branch: its parent moves to the branch's state, in one commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion_table.commit.committed_files import refuse_lost
from fermion_table.commit.create_if_absent import create_snapshot_file, is_in_history
from fermion_table.commit.next_snapshot import (
    place_removed,
    store_entries,
    sum_deltas,
    touched_by,
    user_of_process,
)
from fermion_table.errors import CommitConflict, CommitStateUnknown
from fermion_table.metadata import pointers
from fermion_table.metadata.history import Newest, latest, newest, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import MetadataWriter, live_entries
from fermion_table.metadata.references import HEAD_PROPERTY, Branch, load_branch, missing_name
from fermion_table.metadata.snapshot import (
    TRANSACTIONS,
    Delta,
    Effort,
    Kind,
    Snapshot,
    check_writable,
)
from fermion_table.moments import now_ms
from fermion_table.options import CommitOptions
from fermion_table.storage.paths import snapshot_path, unique_name
from fermion_table.storage.store import AtomicStore

if TYPE_CHECKING:
    from fermion_table.commit import undecided
else:  # who meets no undecided snapshot
    undecided = LoadedWhenAskedFor("fermion_table.commit.undecided")


@dataclass(frozen=True, slots=True)
class Difference:
    """The entries that lead from one state to another."""

    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]


def difference(before: Sequence[Entry], after: Sequence[Entry]) -> Difference:
    """What was added and removed between two states; a changed entry counts as both."""
    old = {entry.file: entry for entry in before}
    new = {entry.file: entry for entry in after}
    return Difference(
        added=tuple(entry for entry in after if old.get(entry.file) != entry),
        removed=tuple(entry for entry in before if new.get(entry.file) != entry),
    )


def fast_forward(
    store: AtomicStore,
    name: str,
    *,
    message: str | None = None,
    options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
) -> Snapshot:
    """Move a branch's parent (main, mostly) to the branch's latest snapshot.

    It becomes one snapshot of the parent. Row ids and sequence numbers stay those that the
    branch gave. A commit of the branch that is tried again on the parent is found there.

    Returns: The parent's new one, or its latest if there was nothing to do.
    Raises VersionNotFound: There is no such branch.
    Raises CommitConflict: The parent has commits that the branch lacks.
    Raises MissingDataFile: Files that the branch would bring are not stored any more. Nothing was
        published.
    Raises CommitStateUnknown: No reply says whether the parent was moved.
    """
    began = time.monotonic()
    branch = load_branch(store, name)
    if branch is None:
        raise missing_name(store, "branch", name)
    head = latest(store, branch=name)
    end = newest(store, branch=branch.parent)
    if end.is_undecided:
        end, _ = undecided.settled(store, branch.parent, end, options)
    target = end.snapshot
    check_writable(target, snapshot_path(target.id, branch.parent))
    own = _commits_after(store, head, target, branch)
    if own is None:
        raise _diverged(store, name, branch.parent, target)
    if not own:
        return target
    writer = MetadataWriter(store)
    snapshot = _moved(store, end, head, own, branch.parent, message, writer)
    creation = create_snapshot_file(store, snapshot, branch.parent, options)
    stored = creation.stored
    if stored is None or not is_in_history(store, stored, branch.parent, may_be_expired=True):
        if not creation.is_first_reply:
            raise CommitStateUnknown(
                f"{store.location}: the reply was lost: not known whether {branch.parent!r} was "
                f"moved; check its history"
            )
        writer.discard()
        raise _diverged(store, name, branch.parent, target)
    pointers.write_latest(store, stored.id, branch.parent)
    effort = Effort(seconds=time.monotonic() - began)
    return msgspec.structs.replace(stored, effort=effort)


def _commits_after(
    store: AtomicStore, head: Snapshot, target: Snapshot, branch: Branch
) -> list[Snapshot] | None:
    """The branch's commits that its parent lacks, None if the parent has some of its own.

    Without those that have expired.
    """
    shared = {target.hash, target.properties.get(HEAD_PROPERTY)}
    own: list[Snapshot] = []
    for snapshot in walk(store, head, branch=branch.name):
        if snapshot.hash in shared:
            return own
        own.append(snapshot)
    return own if branch.hash in shared else None


def _moved(
    store: AtomicStore,
    end: Newest,
    head: Snapshot,
    own: Sequence[Snapshot],
    parent: str,
    message: str | None,
    writer: MetadataWriter,
) -> Snapshot:
    """The parent's next snapshot, with the state of the branch's head."""
    target, follows = end.snapshot, end.stored.reference
    is_void = follows != target.reference
    changes = difference(live_entries(store, target), live_entries(store, head))
    refuse_lost(store, head, changes.added, changes.removed)
    kinds = {snapshot.kind for snapshot in own}
    first, shared = own[-1].parent, {target.hash, target.properties.get(HEAD_PROPERTY)}
    is_whole = first is not None and first.hash in shared  # else some have expired
    kind: Kind = kinds.pop() if is_whole and len(kinds) == 1 else "overwrite"
    removed, removed_manifests = place_removed(writer, changes.removed)
    tail, inline = _added_last(head.tail, changes.added)
    return msgspec.structs.replace(
        head,
        id=follows.id + 1,
        uuid=unique_name(),
        branch=parent,
        parent=follows,
        parent_void=is_void,
        transaction=None,
        kind=kind,
        time_ms=max(now_ms(), target.time_ms + 1, head.time_ms),
        author=user_of_process(),
        message=message,
        properties={HEAD_PROPERTY: head.hash},
        tail=tail,
        delta=Delta(
            tail_entries=len(changes.added) if inline else 0,
            added=() if inline else (store_entries(writer, changes.added),),
            removed=removed,
            removed_manifests=removed_manifests,
            sequence_start=target.sequence_next,
            row_id_start=target.row_id_next,
        ),
        deltas=sum_deltas(changes.added, changes.removed),
        changelog=None,  # that of the head tells of one commit only
        commit_user=None,
        commit_identifier=None,
        branch_commits=identities_of(own),
        touched=touched_by((*changes.added, *changes.removed)),
        reader_features=tuple(sorted({*head.reader_features, *([TRANSACTIONS] * is_void)})),
        unknown={},
        hash="",
    )


def identities_of(own: Sequence[Snapshot]) -> dict[str, tuple[int | str, ...]]:
    """The identifiers of a branch's commits by their users, and of those that they bring."""
    found: dict[str, dict[str, int | str]] = {}
    for snapshot in reversed(own):
        for user, identifiers in snapshot.branch_commits.items():
            found.setdefault(user, {}).update({str(each): each for each in identifiers})
        if snapshot.commit_user is not None and snapshot.commit_identifier is not None:
            identifier = snapshot.commit_identifier
            found.setdefault(snapshot.commit_user, {})[str(identifier)] = identifier
    return {user: tuple(identifiers.values()) for user, identifiers in found.items()}


def _added_last(tail: tuple[Entry, ...], added: Sequence[Entry]) -> tuple[tuple[Entry, ...], bool]:
    """The inline entries with the added ones at their end, and whether all of these are there."""
    files = {entry.file for entry in added}
    last = [entry for entry in tail if entry.file in files]
    if len(last) < len(files):
        return tail, False
    return (*(entry for entry in tail if entry.file not in files), *last), True


def _diverged(store: AtomicStore, name: str, parent: str, target: Snapshot) -> CommitConflict:
    return CommitConflict(
        f"{store.location}: {parent!r} can't be moved to branch {name!r}: snapshot {target.id} "
        f"({target.kind}) of {parent!r} is not part of the branch",
        mine=f"fast-forward to {name}",
        theirs=f"{target.kind} (snapshot {target.id})",
    )
