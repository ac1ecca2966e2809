"""Snapshots in a store: the latest one, one by id, the chain of parents, the schemas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion_table.errors import (
    CorruptMetadata,
    MissingDataFile,
    TableError,
    TableNotFound,
    VersionNotFound,
)
from fermion_table.metadata import pointers
from fermion_table.metadata.manifest_store import read_stored
from fermion_table.metadata.references import (
    is_kept,
    list_branches,
    list_tags,
    load_branch,
    missing_name,
    snapshot_of,
)
from fermion_table.metadata.snapshot import (
    PRIMARY_KEY,
    Delta,
    Snapshot,
    SnapshotReference,
    Touched,
    decode_snapshot,
)
from fermion_table.options import DECODED_BYTES_PER_JSON_BYTE
from fermion_table.schema.schema import (
    Field,
    SchemaReference,
    TableSchema,
    decode_schema,
    has_buckets,
)
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.json_codec import read_decoded
from fermion_table.storage.location import is_file
from fermion_table.storage.paths import (
    MAIN,
    SNAPSHOT_ID_MAX,
    branch_path,
    snapshot_directory,
    snapshot_id_of,
    snapshot_path,
)
from fermion_table.storage.store import AtomicStore, can_list, in_time

if TYPE_CHECKING:
    from fermion_table.metadata import decisions
else:  # who meets no snapshot of a transaction
    decisions = LoadedWhenAskedFor("fermion_table.metadata.decisions")

LATEST_TRIES = 3


@dataclass(frozen=True, slots=True)
class Newest:
    """Where the history of a branch ends.

    snapshot: The newest one that counts.
    stored: What the last snapshot file holds: the same, or that of a transaction over several
        tables that is not decided, or was given up.
    is_undecided: Whether the transaction may still be committed.
    """

    snapshot: Snapshot
    stored: Snapshot
    is_undecided: bool = False


def latest(store: AtomicStore, *, branch: str = MAIN, start: int | None = None) -> Snapshot:
    """The newest snapshot of a branch, found without listing a directory.

    One of a transaction over several tables counts from when that is committed on.

    start: An id that was seen; None asks the pointer file. A directory is listed only when neither
        leads anywhere (or only to snapshot 0, behind which snapshots may have expired).
    Raises TableNotFound: No snapshot at all.
    Raises CorruptMetadata: The newest snapshot file does not hold a snapshot.
    """
    stored = _stored_last(store, branch, start)
    return stored if stored.transaction is None else end_at(store, stored, branch).snapshot


def newest(
    store: AtomicStore, *, branch: str = MAIN, start: int | None = None, lists: bool = False
) -> Newest:
    """The same, with what lies behind it; raises as `latest`.

    lists: Whether to list the snapshot files, as `latest_listed`.
    """
    start = _listed_start(store, branch) if lists else start
    return end_at(store, _stored_last(store, branch, start), branch)


def end_at(store: AtomicStore, stored: Snapshot, branch: str) -> Newest:
    """What a branch ends with, whose last snapshot file holds a snapshot."""
    if stored.transaction is None or stored.branch != branch:  # else where the branch left another
        return Newest(stored, stored)
    decision = decisions.decision_on(store, stored)
    if decision is not None and decision.state == "committed":
        return Newest(stored, stored)
    before = load_parent(store, stored, branch=branch)
    if before is None:
        path = snapshot_path(stored.id - 1, branch)
        raise CorruptMetadata(path, "the newest snapshot that counts", "no such object")
    return Newest(before, stored, is_undecided=decision is None)


def _stored_last(store: AtomicStore, branch: str, start: int | None) -> Snapshot:
    """What the last snapshot file of a branch holds; raises as `latest`."""
    snapshot_id = 0
    with in_time(store):
        known = start if start is not None else pointers.read_latest(store, branch)
        for _ in range(LATEST_TRIES):
            last = _latest_id(store, branch, known)
            if last is None:
                if branch != MAIN and table_exists(store):
                    raise missing_name(store, "branch", branch)
                why = "this is a file" if is_file(store) else "no snapshot"
                raise TableNotFound(f"{store.location}: no table here ({why})")
            snapshot_id = last
            found = try_load(store, snapshot_id, branch=branch)
            if found is not None:
                return found
            known = None  # expired between looking and reading: what we knew is of no use
    raise CorruptMetadata(
        snapshot_path(snapshot_id, branch), "a snapshot that was just seen", "no such object"
    )


def latest_listed(store: AtomicStore, *, branch: str = MAIN) -> Snapshot:
    """The newest snapshot of a branch, found by listing its files: for what deletes anything.

    The pointer file may lead further, as a listing may lag behind, but never less far.

    Raises TableNotFound, VersionNotFound, CorruptMetadata: As `latest`.
    Raises OSError: Something can't be read: what the newest one is, is not known then.
    """
    return latest(store, branch=branch, start=_listed_start(store, branch))


def _listed_start(store: AtomicStore, branch: str) -> int:
    hinted = pointers.read_latest(store, branch)
    return max([hinted or 0, *list_ids(store, branch)])


def table_exists(store: AtomicStore) -> bool:
    """Whether there is a table: snapshot 0 is never deleted."""
    return store.exists(snapshot_path(0))


def load_snapshot(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot:
    """A snapshot by id.

    Raises VersionNotFound: Not there (any more); says the earliest and the latest.
    """
    if 0 <= snapshot_id <= SNAPSHOT_ID_MAX:
        found = try_load(store, snapshot_id, branch=branch)
        if found is not None and not _has_expired(store, found, branch):
            refuse_uncounted(store, found, branch)
            return found
    raise no_such_snapshot(store, f"snapshot {snapshot_id}", branch)


def refuse_uncounted(store: AtomicStore, snapshot: Snapshot, branch: str) -> None:
    """Refuse a snapshot of a transaction over several tables that is not committed.

    Raises VersionNotFound.
    """
    part = snapshot.transaction
    if part is None or counts(store, snapshot, branch):
        return
    raise VersionNotFound(
        f"{store.location}: snapshot {snapshot.id} does not count: it is part of transaction "
        f"{part.id}, which changes several tables and was given up or is not committed yet"
    )


def counts(store: AtomicStore, snapshot: Snapshot, branch: str) -> bool:
    """Whether a stored snapshot is part of the history: not if it is of no committed transaction.

    The next snapshot says so, and the decision of the last one.
    """
    if snapshot.transaction is None:
        return True
    if snapshot.branch != branch:
        left = load_branch(store, branch)
        if left is not None and left.hash == snapshot.hash:
            return True  # only snapshots that count are branched from
    after = try_load(store, snapshot.id + 1, branch=snapshot.branch)
    if after is not None and after.parent == snapshot.reference:
        return not after.parent_void
    decision = decisions.decision_on(store, snapshot)
    return decision is not None and decision.state == "committed"


def before_void(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> int:
    """The id of the snapshot before those whose transactions were given up, up to this id.

    Another id is given back, also that of a snapshot that is not decided.
    """
    found = try_load(store, snapshot_id, branch=branch) if snapshot_id > 0 else None
    if found is None or counts(store, found, branch):
        return snapshot_id
    end = newest(store, branch=branch, start=snapshot_id)
    if end.is_undecided and end.stored.id == snapshot_id:
        return snapshot_id
    before = load_parent(store, found, branch=branch)
    return snapshot_id if before is None else before.id


def load_state(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot | None:
    """What the table held after a snapshot id that exists; None where that has expired.

    That is the snapshot before where the id is that of one that does not count.
    """
    found = try_load(store, snapshot_id, branch=branch)
    if found is not None and not counts(store, found, branch):
        found = load_parent(store, found, branch=branch)
    return None if found is None or _has_expired(store, found, branch) else found


def try_load(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot | None:
    """A snapshot by id, None if it has no file.

    Ids up to the one after which a branch leaves another are found there. A snapshot file may
    outlive the data of its snapshot for a while.
    """
    path = snapshot_path(snapshot_id, branch)
    try:
        snapshot, size = read_decoded(
            store, path, lambda data: (decode_snapshot(data, path), len(data))
        )
    except FileNotFoundError:
        return None if branch == MAIN else _load_before_branch(store, snapshot_id, branch)
    if snapshot.id != snapshot_id:
        raise CorruptMetadata(path, f"snapshot {snapshot_id}", f"snapshot {snapshot.id}")
    shared_cache.put(snapshot.hash, snapshot, DECODED_BYTES_PER_JSON_BYTE * size)
    return snapshot


def load_parent(store: AtomicStore, snapshot: Snapshot, *, branch: str = MAIN) -> Snapshot | None:
    """The snapshot before, None before snapshot 0 and where history has expired.

    Those of transactions that were given up are passed over.

    Raises CorruptMetadata: The parent's snapshot file holds other bytes than those its child was
        made on.
    """
    parent = _stored_before(store, snapshot, branch)
    while parent is not None and snapshot.parent_void:
        snapshot = parent
        parent = _stored_before(store, snapshot, branch)
    return parent


def parent_of(store: AtomicStore, snapshot: Snapshot) -> SnapshotReference | None:
    """The snapshot that another one was made on: `load_parent` without reading it, mostly."""
    before = load_parent(store, snapshot, branch=snapshot.branch) if snapshot.parent_void else None
    return snapshot.parent if before is None else before.reference


def _stored_before(store: AtomicStore, snapshot: Snapshot, branch: str) -> Snapshot | None:
    """What the snapshot file holds that a snapshot names as its parent."""
    reference = snapshot.parent
    if reference is None:
        return None
    parent: Snapshot | None = shared_cache.get(reference.hash)
    if parent is None:
        parent = try_load(store, reference.id, branch=branch)
    if parent is not None and parent.hash != reference.hash:
        if 0 < reference.id < pointers.first_kept(store, parent.branch):
            return None  # expired; a writer that stalled has taken the snapshot file since, in vain
        raise CorruptMetadata(
            snapshot_path(reference.id, branch),
            f"hash {reference.hash} (the parent of snapshot {snapshot.id})",
            f"hash {parent.hash}",
        )
    return parent


def walk(
    store: AtomicStore, snapshot: Snapshot, *, branch: str = MAIN, to_changelogs: bool = False
) -> Iterator[Snapshot]:
    """A snapshot, its parent, and so on, newest first, each checked by its child's hash.

    Ends after snapshot 0, or after the earliest one that has not expired.

    to_changelogs: Go on where only changelogs are left, which may be kept longer.
    """
    yield snapshot
    current = load_parent(store, snapshot, branch=branch)
    recorded: dict[str, int] = {}  # a listing each
    while current is not None:
        if _has_expired(store, current, branch):
            if to_changelogs and current.branch not in recorded:
                recorded[current.branch] = pointers.first_recorded(store, current.branch)
            if current.id < recorded.get(current.branch, current.id + 1):
                return
        yield current
        current = load_parent(store, current, branch=branch)


def load_recorded(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot:
    """A snapshot by id, one whose data has expired, too, as long as its changelog is kept.

    Raises VersionNotFound: Not there (any more).
    """
    if 0 <= snapshot_id <= SNAPSHOT_ID_MAX:
        found = try_load(store, snapshot_id, branch=branch)
        if found is not None and has_changelog(store, found):
            refuse_uncounted(store, found, branch)
            return found
    return load_snapshot(store, snapshot_id, branch=branch)


def has_changelog(store: AtomicStore, snapshot: Snapshot) -> bool:
    """Whether the changelog of a snapshot is kept, as far as it has one."""
    return snapshot.id == 0 or snapshot.id >= pointers.first_recorded(store, snapshot.branch)


def earliest_id(store: AtomicStore, latest_id: int, *, branch: str = MAIN) -> int:
    """The smallest id from which on all ids exist: 0, unless early snapshots have expired."""
    left = load_branch(store, branch) if branch != MAIN else None
    if left is not None:
        first = _first_there(store, left.snapshot_id + 1, latest_id, branch)
        if first > left.snapshot_id + 1:
            return first
        before = left.snapshot_id - 1
        if before < 0 or not _is_there(store, before, left.parent):
            return left.snapshot_id
        return earliest_id(store, before, branch=left.parent)
    if _is_there(store, min(1, latest_id), branch) and _is_there(store, 0, branch):
        return 0
    return _first_there(store, 1, latest_id, branch)


def _first_there(store: AtomicStore, low: int, high: int, branch: str) -> int:
    """The smallest id there from ``low`` on, as ids are contiguous up to ``high``."""
    while low < high:
        middle = (low + high) // 2
        if _is_there(store, middle, branch):
            high = middle
        else:
            low = middle + 1
    return low


def list_ids(store: AtomicStore, branch: str = MAIN) -> list[int]:
    """The ids of all snapshot files, ascending, by listing the directory."""
    listed = [
        snapshot_id_of(item.path.rsplit("/", 1)[-1])
        for item in store.list(snapshot_directory(branch))
    ]
    return sorted(snapshot_id for snapshot_id in listed if snapshot_id is not None)


def load_schema(store: AtomicStore, reference: SchemaReference) -> bytes:
    """The JSON of a schema version, checked against its reference.

    Raises CorruptMetadata: Not what the reference says.
    """
    cached: bytes | None = shared_cache.get(reference.hash)
    if cached is None:
        stored = read_stored(store, reference.path, reference.hash, reference.size)
        cached = json_codec.decompressed(stored, reference.path)
        shared_cache.put(reference.hash, cached, len(cached))
    return cached


def _load_before_branch(store: AtomicStore, snapshot_id: int, branch: str) -> Snapshot | None:
    """A snapshot from before a branch left another one, or the one after which it did."""
    left = load_branch(store, branch)
    if left is None or snapshot_id > left.snapshot_id:
        return None
    if snapshot_id == left.snapshot_id:
        return snapshot_of(left, branch_path(branch))
    return try_load(store, snapshot_id, branch=left.parent)


def _is_there(store: AtomicStore, snapshot_id: int, branch: str) -> bool:
    """Whether an id has a snapshot that has not expired."""
    if 0 < snapshot_id < pointers.read_earliest(store, branch):
        return False
    if store.exists(snapshot_path(snapshot_id, branch)):
        return True
    left = load_branch(store, branch) if branch != MAIN else None
    if left is None or snapshot_id > left.snapshot_id:
        return False
    return snapshot_id == left.snapshot_id or _is_there(store, snapshot_id, left.parent)


def _has_expired(store: AtomicStore, snapshot: Snapshot, branch: str) -> bool:
    """Whether a snapshot whose file is there has lost its data."""
    if snapshot.id == 0 or snapshot.id >= pointers.read_earliest(store, snapshot.branch):
        return False
    left = load_branch(store, branch) if branch != MAIN else None
    return left is None or left.hash != snapshot.hash


def _latest_id(store: AtomicStore, branch: str, known: int | None) -> int | None:
    left = load_branch(store, branch) if branch != MAIN else None
    if left is not None:
        known = max(known or 0, left.snapshot_id)
        newest = _probe_forward(store, branch, known)
        if newest > left.snapshot_id:
            return newest
        ids = list_ids(store, branch) if can_list(store) else []
        return _probe_forward(store, branch, max(ids)) if ids else left.snapshot_id
    if branch != MAIN:
        return None
    if known is not None:
        newest = _probe_forward(store, branch, known)
        if newest > 0:  # reading it shows whether it is there
            return newest
    ids = list_ids(store, branch) if can_list(store) else []
    if not ids and not store.exists(snapshot_path(0, branch)):  # a listing may lag behind
        return None
    return _probe_forward(store, branch, max(ids, default=0))


def _probe_forward(store: AtomicStore, branch: str, known: int) -> int:
    """The last of the contiguous ids that begin after a known one: probe +1, +2, +4, bisect."""

    def taken(snapshot_id: int) -> bool:
        return snapshot_id <= SNAPSHOT_ID_MAX and store.exists(snapshot_path(snapshot_id, branch))

    low, step = known, 1
    while taken(low + step):
        low, step = low + step, step * 2
    high = low + step  # not taken
    while high - low > 1:
        middle = (low + high) // 2
        if taken(middle):
            low = middle
        else:
            high = middle
    return low


def no_such_snapshot(store: AtomicStore, what: str, branch: str) -> VersionNotFound:
    """The error for a snapshot that is not there; says the earliest and the latest that are."""
    newest = latest(store, branch=branch)
    first = try_load(store, earliest_id(store, newest.id, branch=branch), branch=branch)
    spans = [
        f"{name} {snapshot.id} of {_time(snapshot)}"
        for name, snapshot in (("earliest", first), ("latest", newest))
        if snapshot is not None
    ]
    return VersionNotFound(f"{store.location}: no {what}; {', '.join(spans)}")


@contextlib.contextmanager
def until_expiry(store: AtomicStore, snapshot: Snapshot) -> Iterator[None]:
    """Read what a snapshot refers to; something missing is told as its expiry, if it has expired.

    Raises VersionNotFound: Says the earliest and the latest that there is.
    Raises MissingDataFile: The snapshot has not expired.
    """
    try:
        yield
    except (FileNotFoundError, CorruptMetadata) as error:
        expired = expired_meanwhile(store, snapshot)
        if expired is not None:
            raise expired from error
        if isinstance(error, TableError):
            raise
        raise MissingDataFile(
            f"{store.location}: snapshot {snapshot.id} of branch {snapshot.branch!r} names a file "
            f"that is gone: {error.filename or error}; expected that only expire_snapshots and "
            "remove_orphan_files delete files"
        ) from error


def expiry_guard(
    store: AtomicStore, snapshot: Snapshot
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Makes an `until_expiry` of its own for every read; pickles small, for other processes."""
    bare = msgspec.structs.replace(
        snapshot, manifests=(), tail=(), delta=Delta(), properties={}, unknown={}, touched=Touched()
    )
    return partial(until_expiry, store, bare)


def expired_meanwhile(store: AtomicStore, snapshot: Snapshot) -> VersionNotFound | None:
    """The error for a reader whose snapshot has expired since; None if it has not."""
    with in_time(store):
        try:
            if is_kept(store, snapshot):
                return None
            references = (*list_tags(store), *list_branches(store))
            if any(each.hash == snapshot.hash for each in references):
                return None
            return no_such_snapshot(
                store, f"snapshot {snapshot.id} any more (it has expired)", snapshot.branch
            )
        except (OSError, TableError):  # what the reader met says more
            return None


def _time(snapshot: Snapshot) -> str:
    return datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).isoformat(timespec="milliseconds")


DECODED_BYTES_FACTOR = 8
"""Memory of a decoded schema for a byte of its JSON, roughly; for the cache."""


def load_table_schema(store: AtomicStore, reference: SchemaReference) -> TableSchema:
    """A stored schema version, checked against its reference.

    Raises CorruptMetadata: Not what the reference says.
    """
    key = f"table schema {reference.hash}"
    schema: TableSchema | None = shared_cache.get(key)
    if schema is None:
        data = load_schema(store, reference)
        schema = decode_schema(data, reference.path, keep_unknown=True)
        if schema.id != reference.id:
            raise CorruptMetadata(reference.path, f"schema {reference.id}", f"schema {schema.id}")
        shared_cache.put(key, schema, DECODED_BYTES_FACTOR * len(data))
    return schema


def reader_features(schema: TableSchema) -> tuple[str, ...]:
    """The features that readers of a table of this schema must know."""
    return (PRIMARY_KEY,) if has_buckets(schema) else ()


def schema_paths(store: AtomicStore, reference: SchemaReference) -> list[str]:
    """The objects of a schema version and of those before it, which files may need."""
    ancestors = load_table_schema(store, reference).ancestors
    return [reference.path, *(version.path for version in ancestors)]


class SchemaVersions(Mapping[int, TableSchema]):
    """A snapshot's schema and those before it, by id; each is read when it is asked for.

    snapshot: Whose schema is the newest.
    """

    def __init__(self, store: AtomicStore, snapshot: Snapshot) -> None:
        self._store = store
        self.current = load_table_schema(store, snapshot.schema)
        self._where = snapshot.schema.path
        self._ancestors = {version.id: version for version in self.current.ancestors}

    def __getitem__(self, schema_id: int) -> TableSchema:
        if schema_id == self.current.id:
            return self.current
        version = self._ancestors.get(schema_id)
        if version is None:
            raise CorruptMetadata(
                self._where, "ancestors that hold the schema of every file", f"no id {schema_id}"
            )
        return load_table_schema(self._store, version)

    def __iter__(self) -> Iterator[int]:
        yield from sorted((*self._ancestors, self.current.id))

    def __len__(self) -> int:
        return len(self._ancestors) + 1


class KeptVersions(Mapping[int, TableSchema]):
    """Schema versions of files, in which fields that another version had dropped have no id.

    A state that is read under a later schema is read so: what its own schema had dropped is in some
    of its files still, and not in others, as compactions leave it out.

    own: The schema of the state.
    """

    def __init__(self, versions: Mapping[int, TableSchema], own: TableSchema) -> None:
        self._versions, self._own = versions, own
        self._known: dict[int, TableSchema] = {}

    def __getitem__(self, schema_id: int) -> TableSchema:
        known = self._known.get(schema_id)
        if known is None:
            known = self._versions[schema_id]
            dropped = dropped_fields(known.paths, self._own)
            if dropped:
                fields = tuple(_without_ids(each, dropped) for each in known.fields)
                known = msgspec.structs.replace(known, fields=fields)
            self._known[schema_id] = known
        return known

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


def dropped_fields(ids: Iterable[int], schema: TableSchema) -> frozenset[int]:
    """Of some ids of fields those that a schema version has no more."""
    known, last = schema.paths, schema.last_field_id
    return frozenset(each for each in ids if each not in known and each <= last)


def _without_ids(field: Field, dropped: Collection[int]) -> Field:
    """A field, and those inside, some with the id 0: no field of a table has it."""
    if field.children:
        field = field.with_children(_without_ids(each, dropped) for each in field.children)
    return msgspec.structs.replace(field, id=0) if field.id in dropped else field
