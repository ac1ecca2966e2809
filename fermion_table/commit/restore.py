"""Going back: an earlier state as a new snapshot, or a single commit undone."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from fermion.display import more, shortened
from fermion.errors import InvalidArgumentError
from fermion_table.commit.commit import Publisher
from fermion_table.commit.committed_files import refuse_lost
from fermion_table.commit.fast_forward import Difference, difference
from fermion_table.commit.request import CommitMetadata, CommitRequest, NewSchema
from fermion_table.commit.schema_versions import changed_schema
from fermion_table.errors import CommitConflict, VersionNotFound
from fermion_table.metadata.history import (
    load_parent,
    load_snapshot,
    load_table_schema,
    until_expiry,
    walk,
)
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import create_tag, delete_tag
from fermion_table.metadata.snapshot import Snapshot, SnapshotReference
from fermion_table.schema.properties import is_mirror
from fermion_table.schema.schema import TableSchema, encode_schema
from fermion_table.storage.paths import unique_name
from fermion_table.storage.store import AtomicStore

KEEP_MS = 24 * 3600 * 1000
"""How long a crashed restore keeps its target from expiring."""
COMMITS_SHOWN_MAX = 3
MESSAGE_LENGTH = 60


def restore(
    publisher: Publisher,
    known: Snapshot,
    target: Snapshot,
    *,
    message: str | None = None,
    refuses_newer: bool = False,
) -> Snapshot:
    """Make an earlier state the latest one. Row ids and sequence numbers come back with it.

    target: The state that comes back; nothing after it is forgotten.
    message: For the history; None says which snapshot came back.
    refuses_newer: Whether to refuse where `known` is not the latest.
    Returns: The new one, or the latest if it has that state already.
    Raises InvalidArgumentError: The target's schema is another branch's.
    Raises VersionNotFound: The target has expired.
    Raises CommitConflict: `known` was to be the latest.
    """
    text = message if message is not None else f"restore snapshot {target.id}"
    metadata = CommitMetadata(message=text)

    def plan(base: Snapshot) -> CommitRequest | None:
        if refuses_newer and base.hash != known.hash:
            raise CommitConflict(
                f"{publisher.store.location}: restore of a version that is relative to the latest: "
                f"this object sees snapshot {known.id}, and since then came "
                f"{_listed(_commits_after(publisher, known, base))}. Call refresh() and look at "
                f"history() first; undo() takes back a single commit, restore(ID) goes back to a "
                f"snapshot whatever came after it",
                mine="restore",
                theirs=f"{base.kind} (snapshot {base.id})",
            )
        return _back(publisher, base, target, metadata, keeps_mirrors=True)

    with _kept(publisher.store, target, text):
        return publisher.publish(known, plan, metadata).snapshot


def undo(
    publisher: Publisher,
    known: Snapshot,
    undone: SnapshotReference | int,
    *,
    message: str | None = None,
) -> Snapshot:
    """Take back what one commit did, by its inverse, as a new snapshot.

    Where only compactions came after it, the state before it comes back. Else files that it added
    go, and those that it removed come back, unless a later commit has changed any of them.

    undone: The commit: the reference of a snapshot, which is to be the latest but for compactions,
        or the id of any.
    message: For the history; None says which commit was undone.
    Returns: The new one, or the latest if the commit had changed nothing.
    Raises CommitConflict: Later commits rest on it, or another one came after it and it was to be
        the latest.
    Raises InvalidArgumentError: It made the table.
    Raises VersionNotFound: There is no such snapshot, or the one before it has expired.
    """
    store = publisher.store
    number = undone if isinstance(undone, int) else undone.id
    commit = load_snapshot(store, number, branch=publisher.branch)
    if isinstance(undone, SnapshotReference) and commit.hash != undone.hash:
        raise VersionNotFound(f"{store.location}: undo: snapshot {number} is another commit now")
    before = _before(publisher, commit)
    text = message if message is not None else f"undo snapshot {commit.id} ({commit.kind})"
    metadata = CommitMetadata(message=text)

    def plan(base: Snapshot) -> CommitRequest | None:
        later = _commits_after(publisher, commit, base)
        changing = [snapshot for snapshot in later if snapshot.kind != "compact"]
        if not changing:
            return _back(publisher, base, before, metadata)
        if isinstance(undone, SnapshotReference):
            raise _not_undone(
                publisher,
                commit,
                changing,
                f"{_listed(changing)} came after it; undo(commit={commit.id}) takes back "
                f"snapshot {commit.id} alone",
            )
        return _inverse(publisher, base, commit, before, changing, metadata)

    with _kept(store, before, text), until_expiry(store, commit):
        return publisher.publish(known, plan, metadata).snapshot


@contextlib.contextmanager
def _kept(store: AtomicStore, target: Snapshot, why: str) -> Iterator[None]:
    """Keep a snapshot from expiring, with a tag; one that has expired is refused."""
    # The tag is there before the target is known not to have expired: it can't any more.
    tag = create_tag(store, f"restore-{unique_name()}", target, message=why, keep_ms=KEEP_MS)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it goes with time
            delete_tag(store, tag.name)


def _back(
    publisher: Publisher,
    base: Snapshot,
    target: Snapshot,
    metadata: CommitMetadata,
    *,
    keeps_mirrors: bool = False,
) -> CommitRequest | None:
    """The state of a target in place of a base's; None if they are alike."""
    store = publisher.store
    changes = difference(
        live_entries(store, base, keep_unknown=True),
        live_entries(store, target, keep_unknown=True),
    )
    schema = _schema_of(publisher, base, target, keeps_mirrors=keeps_mirrors)
    return _request(store, base, target, changes, metadata, schema)


def _inverse(
    publisher: Publisher,
    base: Snapshot,
    commit: Snapshot,
    before: Snapshot,
    later: Sequence[Snapshot],
    metadata: CommitMetadata,
) -> CommitRequest | None:
    """The files of a base with those of one commit as they were before it.

    Raises CommitConflict: Later commits changed the same files, or the schema.
    """
    store = publisher.store
    changes = difference(
        live_entries(store, commit, keep_unknown=True),
        live_entries(store, before, keep_unknown=True),
    )
    if commit.schema != before.schema:
        reason = f"it changed the schema or properties, and then came {_listed(later)}"
        raise _not_undone(publisher, commit, later, reason)
    if changes.added and base.schema != commit.schema:
        reason = f"rows that it removed have an older schema than {_listed(later)}"
        raise _not_undone(publisher, commit, later, reason)
    live = {entry.file: entry for entry in live_entries(store, base, keep_unknown=True)}
    then = {entry.file: entry for entry in live_entries(store, commit, keep_unknown=True)}
    changed = [entry.file for entry in changes.removed if live.get(entry.file) != entry]
    changed += [each.file for each in changes.added if each.file in live.keys() - then.keys()]
    trees = {_tree(entry) for entry in changes.added if entry.bucket is not None}
    changed += _sorted_runs(live, trees) ^ _sorted_runs(then, trees)  # no two may overlap
    if changed:
        reason = f"among {_listed(later)} are commits that changed the same files"
        raise _not_undone(publisher, commit, later, reason, changed)
    return _request(store, base, before, changes, metadata)


def _tree(entry: Entry) -> tuple[object, ...]:
    return entry.partition, entry.bucket


def _sorted_runs(entries: Mapping[str, Entry], trees: Set[tuple[object, ...]]) -> set[str]:
    """The files of trees that are compacted: above level 0."""
    return {file for file, entry in entries.items() if entry.level and _tree(entry) in trees}


def _request(
    store: AtomicStore,
    base: Snapshot,
    target: Snapshot,
    changes: Difference,
    metadata: CommitMetadata,
    schema: NewSchema | None = None,
) -> CommitRequest | None:
    """The commit that makes a base what a target is; None if they are alike.

    Raises MissingDataFile: Files that would come back are gone, or cut off.
    """
    if not (changes.added or changes.removed or schema):
        return None
    refuse_lost(store, target, changes.added, changes.removed)
    return CommitRequest(
        kind="restore",
        added=changes.added,
        removed=changes.removed,
        schema=schema,
        base=base,
        metadata=metadata,
        reader_features=target.reader_features,
        writer_features=target.writer_features,
    )


def _before(publisher: Publisher, commit: Snapshot) -> Snapshot:
    """The snapshot that a commit was made on."""
    store = publisher.store
    if commit.id == 0:
        raise InvalidArgumentError(
            f"{store.location}: undo: snapshot 0 made the table: there is nothing before it"
        )
    before = load_parent(store, commit, branch=publisher.branch)
    if before is None:
        raise VersionNotFound(
            f"{store.location}: undo: snapshot {commit.id - 1}, the state before snapshot "
            f"{commit.id}, has expired"
        )
    return before


def _commits_after(publisher: Publisher, known: Snapshot, base: Snapshot) -> list[Snapshot]:
    """The snapshots after a known one up to a base, oldest first, as far as they are there."""
    walked = walk(publisher.store, base, branch=publisher.branch)
    return list(itertools.takewhile(lambda snapshot: snapshot.id > known.id, walked))[::-1]


def _listed(snapshots: Sequence[Snapshot]) -> str:
    """Commits in words, the newest first."""
    texts = []
    for snapshot in snapshots[: -COMMITS_SHOWN_MAX - 1 : -1]:
        author = f" by {snapshot.author}" if snapshot.author else ""
        message = f": {shortened(snapshot.message, MESSAGE_LENGTH)}" if snapshot.message else ""
        texts.append(f"snapshot {snapshot.id} ({snapshot.kind}{author}{message})")
    return ", ".join([*texts, *more(len(texts), len(snapshots))])


def _not_undone(
    publisher: Publisher,
    commit: Snapshot,
    later: Sequence[Snapshot],
    reason: str,
    files: Sequence[str] = (),
) -> CommitConflict:
    return CommitConflict(
        f"{publisher.store.location}: snapshot {commit.id} ({commit.kind}) can't be undone: "
        f"{reason}",
        mine="undo",
        theirs=f"{later[-1].kind} (snapshot {later[-1].id})",
        files=files,
    )


def _schema_of(
    publisher: Publisher, base: Snapshot, target: Snapshot, *, keeps_mirrors: bool
) -> NewSchema | None:
    """The target's schema as the next version of the base's; None if they are alike.

    keeps_mirrors: Whether the mirrors of the base stay: they show what comes back as their next
        snapshot.
    """
    store: AtomicStore = publisher.store
    current = load_table_schema(store, base.schema)
    known = {base.schema.hash, *(version.hash for version in current.ancestors)}
    if target.schema.hash not in known:
        raise InvalidArgumentError(
            f"{store.location}: snapshot {target.id} of branch {target.branch!r} has a schema that "
            f"branch {publisher.branch!r} never had; only fast_forward can bring it here"
        )
    wanted = load_table_schema(store, target.schema)

    def change(schema: TableSchema) -> TableSchema:
        properties = wanted.properties
        if keeps_mirrors:
            others = {name: text for name, text in properties.items() if not is_mirror(name)}
            properties = others | {
                name: text for name, text in schema.properties.items() if is_mirror(name)
            }
        return msgspec.structs.replace(
            wanted,
            properties=properties,
            id=schema.id,
            ancestors=schema.ancestors,
            last_field_id=max(schema.last_field_id, wanted.last_field_id),
            time_ms=schema.time_ms,
        )

    made = changed_schema(publisher.store, base, [change])
    return None if made is None else NewSchema(made.id, encode_schema(made))
