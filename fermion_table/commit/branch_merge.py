"""Merging a branch into its parent: what it committed is replayed on what the parent has become.

The commits to replay begin where the two were last the same: at the snapshot that the branch left
after, or at the one that the last merge or fast-forward brought. All of them become one snapshot,
or none. A branch whose parent has no commits of its own is fast-forwarded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fermion.exports import dataclass
from fermion_table.commit.branch_replay import (
    CHANGING,
    REPLACING,
    BranchCommit,
    Clash,
    Replay,
    SharedPast,
    overlap,
)
from fermion_table.commit.branch_schema import SchemaClash, merged_schema, new_ids
from fermion_table.commit.commit import Publisher
from fermion_table.commit.committed_files import bucket_conflict, refuse_lost
from fermion_table.commit.concurrent import commits_since
from fermion_table.commit.conflict import Mine, Theirs
from fermion_table.commit.fast_forward import fast_forward, identities_of
from fermion_table.commit.fit import misfit
from fermion_table.commit.request import CommitMetadata, CommitRequest, stored_schema
from fermion_table.errors import CommitConflict
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.history import (
    SchemaVersions,
    latest,
    load_table_schema,
    reader_features,
    walk,
)
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import (
    MetadataWriter,
    added_entries,
    live_entries,
    removed_entries,
)
from fermion_table.metadata.references import (
    HEAD_PROPERTY,
    Branch,
    load_branch,
    missing_name,
    snapshot_of,
)
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.moments import now_ms
from fermion_table.planning.plan import splits_of
from fermion_table.reading.whole_rows import column_reader
from fermion_table.schema.schema import SchemaReference, TableSchema, encode_schema
from fermion_table.storage.paths import branch_path
from fermion_table.storage.store import AtomicStore

MERGED_PROPERTY = "fermion.merged_from"
"""Property of the commit that merged a branch: the hash of the branch's snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What is merged.

    branch, fork: The branch, and the snapshot after which it left its parent.
    head, own: Its newest snapshot, and its commits since `base`, oldest first.
    base: The last state of the branch that its parent has.
    since: The parent's snapshot that has it.
    """

    branch: Branch
    fork: Snapshot
    head: Snapshot
    own: tuple[Snapshot, ...]
    base: Snapshot
    since: Snapshot
    target: Snapshot


def merge_branch(store: AtomicStore, name: str, *, message: str | None = None) -> Snapshot:
    """Bring what a branch committed into its parent, as one snapshot.

    Returns: The parent's new one, or its newest if the branch has nothing that it lacks.
    Raises VersionNotFound: There is no such branch.
    Raises CommitConflict: Both sides changed the same file, key, partition or column; or commits of
        the branch have expired. Nothing was published.
    Raises MissingDataFile: Files that the branch would bring are not stored any more. Nothing was
        published.
    Raises CommitStateUnknown: No reply says whether the branch was merged; the parent's history
        does.
    """
    branch = load_branch(store, name)
    if branch is None:
        raise missing_name(store, "branch", name)
    sides = _sides(store, branch, latest(store, branch=branch.parent))
    if not sides.own:
        return sides.target
    if sides.since.hash == sides.target.hash and _is_linear(sides):
        return fast_forward(store, name, message=message)
    publisher = Publisher(store, branch.parent)
    metadata = CommitMetadata(
        message=message or f"merge branch {name}",
        properties={MERGED_PROPERTY: sides.head.hash},
        began=time.monotonic(),
    )
    versions = _StoredVersions(store)

    def plan(target: Snapshot) -> CommitRequest | None:
        now = _sides(store, branch, target, head=sides.head)
        return _request(store, now, metadata, versions) if now.own else None

    try:
        merged = publisher.publish(sides.target, plan, metadata).snapshot
    except BaseException:
        versions.discard(are_published=False)
        raise
    versions.discard(are_published=True)
    return merged


class _StoredVersions:
    """Schema versions of the branch as versions of the parent, for the files of the branch."""

    def __init__(self, store: AtomicStore) -> None:
        self._writer = MetadataWriter(store)
        self.last: frozenset[str] = frozenset()
        """The paths of those that the last try stored."""

    def followed_by(
        self,
        schema: TableSchema,
        target: SchemaReference,
        versions: Mapping[int, TableSchema],
    ) -> tuple[TableSchema, dict[int, int]]:
        """A merged schema as the version after the target's and after these, which are stored.

        versions: By the ids that they have on the branch.
        Returns: The schema, and the ids that the versions got.
        """
        ancestors, ids = (*schema.ancestors, target), {}
        for number, version in versions.items():
            ids[number] = ancestors[-1].id + 1
            made = msgspec.structs.replace(version, id=ids[number], ancestors=ancestors)
            ancestors = (
                *ancestors,
                self._writer.write_schema(made.id, encode_schema(made)),
            )
        self.last = frozenset(each.path for each in ancestors[len(schema.ancestors) + 1 :])
        made = msgspec.structs.replace(
            schema, id=ancestors[-1].id + 1, ancestors=ancestors, time_ms=now_ms()
        )
        return made, ids

    def discard(self, *, are_published: bool) -> None:
        """Delete what was stored: for an earlier try only, or all that no snapshot may name."""
        self._writer.discard(keep=self.last if are_published else ())


def _is_linear(sides: _Sides) -> bool:
    """Whether the parent's state is one that the branch had."""
    shared = {sides.base.hash}
    return sides.since.hash in shared or sides.since.properties.get(HEAD_PROPERTY) in shared


def _sides(
    store: AtomicStore, branch: Branch, target: Snapshot, *, head: Snapshot | None = None
) -> _Sides:
    """What is to be merged into a snapshot of the parent."""
    fork = snapshot_of(branch, branch_path(branch.name))
    if head is None:
        head = latest(store, branch=branch.name)
    merged: dict[str | None, Snapshot] = {}
    for snapshot in walk(store, target, branch=branch.parent):
        merged.setdefault(snapshot.hash, snapshot)
        for property_name in (MERGED_PROPERTY, HEAD_PROPERTY):
            merged.setdefault(snapshot.properties.get(property_name), snapshot)
        if snapshot.id <= fork.id:
            break
    own: list[Snapshot] = []
    for snapshot in walk(store, head, branch=branch.name):
        since = merged.get(snapshot.hash)
        if since is not None:
            return _Sides(
                branch=branch, fork=fork, head=head, own=tuple(reversed(own)), base=snapshot,
                since=since, target=target,
            )  # fmt: skip
        own.append(snapshot)
    raise CommitConflict(
        f"{store.location}: branch {branch.name!r} can't be merged: the snapshot that it has in "
        f"common with {branch.parent!r}, or a commit since then, has expired",
        mine=f"merge of {branch.name}",
    )


def _request(
    store: AtomicStore, sides: _Sides, metadata: CommitMetadata, versions: _StoredVersions
) -> CommitRequest:
    """The commit that merges.

    Raises CommitConflict.
    """
    parent = sides.branch.parent
    everything = Mine(kind="overwrite")
    theirs = commits_since(store, sides.since, sides.target, everything, parent)
    base = load_table_schema(store, sides.base.schema)
    replay = Replay(
        past=SharedPast(row_id_next=sides.fork.row_id_next, sequence_next=sides.fork.sequence_next),
        live={each.file: each for each in live_entries(store, sides.target, keep_unknown=True)},
        is_keyed=bool(reader_features(base)),
    )
    if any(not each.is_known for each in theirs):
        raise _conflict(store, sides, Clash(reason=f"commits of {parent!r} have expired", mine=""))
    commits = [_commit_of(store, each) for each in sides.own]
    for each in commits:
        clash = None
        if replay.is_keyed and each.kind != "append":
            clash = _same_keys(_Keys(store, sides), each, theirs)
        clash = clash or replay.take(each, theirs)
        if clash is not None:
            raise _conflict(store, sides, clash)
    added, removed = replay.changes()
    refuse_lost(store, sides.head, added, removed)
    schema, added = _with_schema(store, sides, replay, theirs, versions)
    gone = {each.file for each in removed}
    reason = bucket_conflict(store, sides.target, added, gone, stored_schema(schema))
    if reason is not None:
        raise _conflict(store, sides, Clash(reason=reason, mine=""))
    kinds: set[Kind] = {each.kind for each in commits} - {"compact"}
    kind: Kind = kinds.pop() if len(kinds) == 1 else "overwrite"
    if kind in ("restore", "create") or (kind == "append" and removed):
        kind = "overwrite"
    return CommitRequest(
        kind=kind,
        added=added,
        removed=removed,
        schema=stored_schema(schema),
        base=sides.target,
        metadata=metadata,
        reader_features=sides.head.reader_features,
        writer_features=sides.head.writer_features,
        unsure=versions.last,
        branch_commits=identities_of(sides.own[::-1]),
        name=f"merge of branch {sides.branch.name!r}",
    )


def _commit_of(store: AtomicStore, snapshot: Snapshot) -> BranchCommit:
    partitions = snapshot.touched.partitions
    return BranchCommit(
        snapshot_id=snapshot.id,
        kind=snapshot.kind,
        added=added_entries(store, snapshot),
        removed=removed_entries(store, snapshot),
        partitions=None if partitions == "many" else frozenset(partitions),
    )


class _Keys:
    """The keys that files of both sides hold, read when they are asked for."""

    def __init__(self, store: AtomicStore, sides: _Sides) -> None:
        self._store = store
        self._schemas = (SchemaVersions(store, sides.head), SchemaVersions(store, sides.target))

    def shared(self, mine: Entry, theirs: Entry) -> int:
        """How many rows of a file of the other side have keys that one of the branch has."""
        if not _keys_overlap(mine, theirs):
            return 0
        own, others = (
            self._read(entry, schemas)
            for entry, schemas in zip((mine, theirs), self._schemas, strict=True)
        )
        return int(pc.sum(pc.is_in(others, value_set=own.unique())).as_py() or 0)

    def _read(self, entry: Entry, schemas: SchemaVersions) -> pa.ChunkedArray:
        key = primary_key_of(schemas.current)
        assert key is not None
        fields = tuple(schemas.current.by_name[name] for name in key.names)
        reader = column_reader([entry], self._store, fields, fields, schemas)
        (split,) = splits_of([entry], self._store)
        dtype = pa.int64() if key.is_direct else pa.large_binary()
        return pa.chunked_array([key.keys(batch) for batch in reader.read_file(split)], dtype)


def _same_keys(keys: _Keys, mine: BranchCommit, theirs: Sequence[Theirs]) -> Clash | None:
    """A commit of the other side that has written keys of a commit that has read them."""
    if mine.kind not in CHANGING:
        return None
    for their in theirs:
        if their.kind not in CHANGING:
            continue
        rows = {
            each.file: sum(keys.shared(entry, each) for entry in mine.added) for each in their.added
        }
        files = tuple(file for file, count in rows.items() if count)
        replaced = their.kind in REPLACING and overlap(mine.partitions, their.partitions)
        if files or replaced:
            named = f"{their.kind} (snapshot {their.snapshot_id})"
            what = "replaced partitions of keys"
            if files:
                what = f"wrote {sum(rows.values()):,} rows of keys"
            return Clash(
                reason=f"{named} {what} that the branch has changed",
                mine=f"{mine.kind} (snapshot {mine.snapshot_id} of the branch)",
                theirs=named,
                files=files,
            )
    return None


def _keys_overlap(one: Entry, other: Entry) -> bool:
    if one.partition != other.partition or one.bucket != other.bucket:
        return False
    if None in (one.min_key, one.max_key, other.min_key, other.max_key):
        return True
    return bool(one.min_key <= other.max_key and other.min_key <= one.max_key)


def _with_schema(
    store: AtomicStore,
    sides: _Sides,
    replay: Replay,
    theirs: Sequence[Theirs],
    versions: _StoredVersions,
) -> tuple[TableSchema | None, list[Entry]]:
    """The schema that the parent gets, None if it keeps its own; the files to add as under it."""
    base, branch, target = (
        load_table_schema(store, each.schema) for each in (sides.base, sides.head, sides.target)
    )
    added, _ = replay.changes()
    written = replay.written()
    there = [entry for their in theirs for entry in their.added]
    brings = sides.head.schema.hash != sides.base.schema.hash
    differs = sides.target.schema.hash != sides.base.schema.hash
    known = {sides.target.schema.hash, *(each.hash for each in target.ancestors)}
    if sides.base.schema.hash not in known and (written or brings):
        clash = Clash(reason="both have changed the schema before an earlier merge", mine="schema")
        raise _conflict(store, sides, clash)
    schema = branch if brings else target
    if brings and differs:
        ids = new_ids(base, branch, target)
        branch = ids.schema(branch)
        own = SchemaVersions(store, sides.head)
        used = sorted({each for entry in added for each in entry.schema_ids if each > base.id})
        try:
            schema = merged_schema(base, branch, target)
        except SchemaClash as clash:
            raise _conflict(store, sides, _schema_clash(str(clash))) from clash
        schema, stored = versions.followed_by(
            schema, sides.target.schema, {number: ids.schema(own[number]) for number in used}
        )
        added = [ids.entry(entry, own, stored) for entry in added]
    misfits = []
    if brings:
        misfits.append(misfit(target, schema, there))
    if differs:
        misfits.append(misfit(branch, schema, [each for each in added if each.file in written]))
    for reason in misfits:
        if reason is not None:
            raise _conflict(store, sides, _schema_clash(reason))
    return (schema if brings else None), added


def _schema_clash(reason: str) -> Clash:
    remedy = "first change the schema or the rows of one of the two, so that they fit"
    return Clash(reason=reason, mine="schema", remedy=remedy)


def _conflict(store: AtomicStore, sides: _Sides, clash: Clash) -> CommitConflict:
    branch = sides.branch
    return CommitConflict(
        f"{store.location}: branch {branch.name!r} can't be merged into {branch.parent!r} at "
        f"snapshot {sides.target.id}: {clash.reason}; merging again does not help: {clash.remedy}",
        mine=clash.mine or f"merge of {branch.name}",
        theirs=clash.theirs,
        files=clash.files,
    )
