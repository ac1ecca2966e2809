"""Publishing commits: create a table, and create-if-absent of the next snapshot file.

One atomic step publishes a commit. Before it nothing is visible, after it everything is; a
commit that another one came before reads that one, decides by the conflict matrix, and tries the
next snapshot file. Only a proven failure deletes metadata; data files are the caller's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from fermion.redaction import logger
from fermion_table.commit.bucket_check import bucket_conflict
from fermion_table.commit.committed_files import refuse_committed, refuse_missing
from fermion_table.commit.concurrent import commits_since
from fermion_table.commit.conflict import Fail, Ok, Redo, Verdict, conflict
from fermion_table.commit.create_if_absent import (
    create_snapshot_file,
    is_in_history,
    proves_absence,
)
from fermion_table.commit.identities import committed_before
from fermion_table.commit.next_snapshot import (
    Changes,
    next_snapshot,
    number_rows,
    user_of_process,
)
from fermion_table.commit.request import (
    CommitMetadata,
    CommitRequest,
    NewSchema,
    WrittenFiles,
    recorded,
)
from fermion_table.errors import CommitConflict, CommitStateUnknown, TableExists
from fermion_table.metadata import pointers
from fermion_table.metadata.file_columns import data_paths_of, paths_of
from fermion_table.metadata.history import latest, latest_listed, table_exists
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import Located, MetadataWriter, locate, manifests_of
from fermion_table.metadata.snapshot import (
    SNAPSHOT_FORMAT,
    SNAPSHOT_FORMAT_VERSION,
    Effort,
    Producer,
    Snapshot,
    check_writable,
)
from fermion_table.moments import now_ms
from fermion_table.options import CommitOptions
from fermion_table.storage import owned_files
from fermion_table.storage.paths import MAIN, snapshot_path, unique_name
from fermion_table.storage.store import AtomicStore

_log = logger(__name__)

RedoFunction = Callable[[Snapshot, Redo], CommitRequest]
"""Computes an operation again on top of a newer snapshot; raises to give up."""


def create_table(
    store: AtomicStore,
    schema: NewSchema,
    *,
    metadata: CommitMetadata | None = None,
    reader_features: Sequence[str] = (),
    writer_features: Sequence[str] = (),
    options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
) -> Snapshot:
    """Make a table: snapshot 0, which holds its identity and first schema and no rows.

    Parameters
    ----------
    store
        Where there is no table yet.
    schema
        The first one.
    metadata
        What the caller says about it, for the history.
    reader_features, writer_features
        Features that the table needs.
    options
        How hard to try.

    Raises
    ------
    TableExists
        Somebody else was first.
    CommitStateUnknown
        The reply was lost, and whether the table was made can't be told.
    """
    if table_exists(store):
        raise TableExists(f"{store.location}: a table exists here already")
    metadata = metadata or CommitMetadata()
    writer = MetadataWriter(store)
    snapshot = Snapshot(
        format=SNAPSHOT_FORMAT,
        format_version=SNAPSHOT_FORMAT_VERSION,
        table_uuid=unique_name(),
        id=0,
        uuid=unique_name(),
        parent=None,
        kind="create",
        time_ms=now_ms(),
        author=user_of_process(),
        message=metadata.message,
        properties=dict(metadata.properties or {}),
        schema=writer.write_schema(schema.id, schema.data),
        reader_features=tuple(sorted(reader_features)),
        writer_features=tuple(sorted(writer_features)),
    )
    try:
        stored = create_snapshot_file(store, snapshot, MAIN, options).stored
    except BaseException as error:
        if proves_absence(store, snapshot, MAIN, error):
            writer.discard()
        raise
    if stored is None:
        writer.discard()
        raise TableExists(f"{store.location}: a table exists here already")
    pointers.write_latest(store, 0)
    effort = Effort(seconds=time.monotonic() - metadata.began)
    return msgspec.structs.replace(stored, effort=effort)


def commit(
    store: AtomicStore,
    request: CommitRequest,
    *,
    branch: str = MAIN,
    redo: RedoFunction | None = None,
    options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
    seen_at: float | None = None,
    uuid: str | None = None,
) -> Snapshot:
    """Publish a commit and return its snapshot, or that of an earlier try of the same commit.

    The files that it has published, or may have published, are not their owner's to delete any
    more (see `OwnedFiles`).

    Parameters
    ----------
    store
        Of the table.
    request
        What to commit. Its data files are stored and fsynced already.
    branch
        Which history it goes to.
    redo
        Called when another commit came first and the operation has to be computed again on
        the snapshot given; without it that is a conflict.
    options
        How hard to try.
    seen_at
        When, by ``time.monotonic``, the request's base was last known to be the latest: a commit
        soon after creates the snapshot behind it without looking first. None: it looks.
    uuid
        Of the snapshot, which tells it from that of an earlier try; None: a new one.

    Raises
    ------
    CommitConflict
        Another commit came first and this one can't follow it; nothing was published, the
        metadata is deleted, the data files are the caller's.
    InvalidArgumentError
        A file is named twice, another commit has added it before, or it is gone; nothing was
        published.
    CommitStateUnknown
        The reply was lost, and whether the commit was published can't be told; nothing was
        deleted.
    TableNotFound
        No table here.
    CorruptMetadata
        An expiry marker names a snapshot that was never made.
    UnsupportedFeature
        The table needs a newer writer.
    """
    return _Commit(store, request, branch, redo, options, seen_at, uuid or unique_name()).run()


class _Commit:
    """One commit, however many tries it takes."""

    def __init__(
        self,
        store: AtomicStore,
        request: CommitRequest,
        branch: str,
        redo: RedoFunction | None,
        options: CommitOptions,
        seen_at: float | None,
        uuid: str,
    ) -> None:
        self.store = store
        self.request = request
        self.branch = branch
        self.redo = redo
        self.options = options
        self.writer = MetadataWriter(store)
        self.uuid = uuid
        self.seen = request.base
        self.dropped: frozenset[int] = frozenset()
        self.fsynced: set[str] = set()
        self.may_be_published = False
        self.seen_at = seen_at
        self.retries = 0
        self.lists = False
        self.written: WrittenFiles | None = None
        self.looked: frozenset[str] = frozenset()

    def run(self) -> Snapshot:
        """Try until published, proven impossible, or unknown."""
        began = time.monotonic()
        try:
            snapshot = self._run()
            self._report(snapshot, time.monotonic() - began)
            seconds = time.monotonic() - self.request.metadata.began
            effort = Effort(retries=self.retries, seconds=seconds)
            return msgspec.structs.replace(snapshot, effort=effort)
        except BaseException:
            if not self.may_be_published:
                owned_files.hold(self.request.unsure, False)
                self.writer.discard()
            raise

    def _report(self, snapshot: Snapshot, seconds: float) -> None:
        """One record of the log, with what happened as attributes."""
        deltas = snapshot.deltas
        _log.info(
            "%s: %s, snapshot %d: +%d files, -%d files, %d retries, %.3f s",
            self.store.location,
            snapshot.kind,
            snapshot.id,
            deltas.files_added,
            deltas.files_removed,
            self.retries,
            seconds,
            extra={
                "table": self.store.location,
                "branch": self.branch,
                "kind": snapshot.kind,
                "snapshot_id": snapshot.id,
                "files_added": deltas.files_added,
                "files_removed": deltas.files_removed,
                "rows_added": deltas.rows_added,
                "rows_removed": deltas.rows_removed + deltas.rows_deleted,
                "bytes_added": deltas.bytes_added,
                "retries": self.retries,
                "seconds": seconds,
            },
        )

    def _run(self) -> Snapshot:
        deadline = time.monotonic() + self.options.timeout_s
        start = self.request.base.id if self.request.base is not None else None
        while True:
            base, began = self._base(start)
            identity = self.request.metadata.identity
            earlier = committed_before(self.store, base, identity, branch=self.branch)
            if earlier is not None:
                self.writer.discard()
                return earlier
            published = self._attempt(base, began)
            if published is not None:
                self.writer.discard(keep=_objects_of(published))
                return published
            self.retries += 1
            start = base.id
            if time.monotonic() > deadline:
                raise CommitConflict(
                    f"{self.store.location}: {self.request.title}: {self.retries} attempts failed "
                    f"because of concurrent commits in {self.options.timeout_s:g} s; try again "
                    "with fewer writers",
                    mine=self.request.title,
                )
            self._wait(self.retries)

    def _base(self, start: int | None) -> tuple[Snapshot, float]:
        """The snapshot to build on, and since when it may not be the latest any more."""
        began = time.monotonic()
        base, seen_at = self.request.base, self.seen_at
        fresh = not self.retries and self.options.is_fresh(seen_at)
        if fresh and base is not None and seen_at is not None:
            return base, seen_at
        if self.lists:
            return latest_listed(self.store, branch=self.branch), began
        return latest(self.store, branch=self.branch, start=start), began

    def _attempt(self, base: Snapshot, began: float) -> Snapshot | None:
        """Try for the snapshot file after `base`; None if another commit took it."""
        check_writable(base, snapshot_path(base.id, self.branch))
        if now_ms() - base.time_ms > self.options.fence_s * 1000:  # the fence reads the markers
            pointers.check_marks(self.store, base.id, self.branch)
        self._refuse_committed(base)
        self._follow(base)
        changes = self._changes(base)
        self._refuse_missing((*changes.added, *changes.changelog))
        snapshot = next_snapshot(
            self.store,
            base,
            self.request,
            changes,
            uuid=self.uuid,
            branch=self.branch,
            writer=self.writer,
        )
        self._fsync(
            path for entry in (*changes.added, *changes.changelog) for path in data_paths_of(entry)
        )
        self.may_be_published = True
        owned_files.hold(self.request.unsure)
        stored = self._publish(snapshot, base, began)
        if stored is not None:
            published = (*changes.added, *changes.changelog)
            owned_files.leave(path for entry in published for path in paths_of(entry))
        owned_files.hold(self.request.unsure, False)
        self.may_be_published = stored is not None
        return stored

    def _refuse_committed(self, base: Snapshot) -> None:
        """Refuse a writer's files that a commit up to `base` has added before."""
        written = self.written or self.request.written
        if written is not None:
            self.written = refuse_committed(self.store, base, written, self.branch)

    def _refuse_missing(self, entries: Sequence[Entry]) -> None:
        """Refuse files that are gone, each looked for once however often the commit is tried."""
        unsure = self.request.unsure - self.looked
        refuse_missing(self.store, entries, unsure)
        self.looked |= unsure

    def _publish(self, snapshot: Snapshot, base: Snapshot, began: float) -> Snapshot | None:
        try:
            creation = create_snapshot_file(self.store, snapshot, self.branch, self.options)
        except BaseException as error:
            absent = proves_absence(self.store, snapshot, self.branch, error)
            self.may_be_published = not absent
            raise
        slow = time.monotonic() - began > self.options.fence_s
        may_be_expired = slow or now_ms() - base.time_ms > self.options.fence_s * 1000
        stored = creation.stored
        is_lost = stored is not None and not is_in_history(
            self.store, stored, self.branch, may_be_expired=may_be_expired
        )
        if stored is None or is_lost:
            self.lists = slow or is_lost  # the ids that are known may have expired
            if slow and not creation.is_first_reply:
                raise CommitStateUnknown(
                    f"{self.store.location}: an attempt to commit snapshot {snapshot.id} got no "
                    f"reply, and the next took so long that its snapshot may have expired"
                )
            return None
        pointers.write_latest(self.store, stored.id, self.branch)
        return stored

    def _follow(self, base: Snapshot) -> None:
        """Check every commit since the snapshot I know; compute the request again if need be."""
        if self.seen is not None and self.seen.hash != base.hash:
            theirs, verdict = self._verdict(self.seen, base)
            if isinstance(verdict, Ok):
                self.dropped |= verdict.dropped
                if self.dropped and len(self.dropped) == len(self.request.groups):
                    verdict = Fail("every group of the compaction lost its inputs")
            if not isinstance(verdict, Ok):
                self._again(base, theirs, verdict)
        self.seen = base

    def _verdict(self, seen: Snapshot, base: Snapshot) -> tuple[str, Verdict]:
        """The first commit in the way and what that means, or all the groups to drop."""
        if base.table_uuid != seen.table_uuid:
            return "create", Fail("the table was replaced by another one at the same location")
        mine = self.request.as_mine()
        dropped: frozenset[int] = frozenset()
        for theirs in commits_since(self.store, seen, base, mine, self.branch):
            verdict = conflict(mine, theirs)
            if not isinstance(verdict, Ok):
                return f"{theirs.kind} (snapshot {theirs.snapshot_id})", verdict
            dropped |= verdict.dropped
        return f"{base.kind} (snapshot {base.id})", Ok(dropped)

    def _again(self, base: Snapshot, theirs: str, verdict: Redo | Fail) -> None:
        """Replace the request by one made for `base`, or give up."""
        if isinstance(verdict, Redo) and self.redo is not None:
            _log.info("%s: redo %s: %s", self.store.location, self.request.kind, verdict.reason)
            self.request = replace(self.redo(base, verdict), base=base)
            self.dropped = frozenset()
            return
        raise CommitConflict(
            f"{self.store.location}: {self.request.title} can't follow snapshot {base.id}: "
            f"{verdict.reason}",
            mine=self.request.title,
            theirs=theirs,
            files=verdict.files,
        )

    def _changes(self, base: Snapshot) -> Changes:
        """What the request changes in `base`; computed again if files to remove are gone."""
        added, located, producer = self._files(base)
        if located.missing:
            gone = Redo("files it removes are not live", tuple(located.missing))
            self._again(base, f"{base.kind} (snapshot {base.id})", gone)
            added, located, producer = self._files(base)
            if located.missing:
                self.redo = None
                self._again(base, "none", gone)
        self._check_buckets(base, added)
        schema = self.request.schema
        if schema is not None and schema.id <= base.schema.id:
            raise CommitConflict(
                f"{self.store.location}: {self.request.title}: schema {schema.id} can't follow "
                f"schema {base.schema.id}",
                mine=self.request.title,
                theirs=f"{base.kind} (snapshot {base.id})",
            )
        changelog = [entry for entry in added if entry.is_changelog]
        return Changes(
            added=number_rows([entry for entry in added if not entry.is_changelog]),
            located=located,
            producer=producer,
            changelog=tuple(changelog) if producer else (),
            schema=self.writer.write_schema(schema.id, schema.data) if schema else None,
        )

    def _files(self, base: Snapshot) -> tuple[list[Entry], Located, Producer | None]:
        """Files to add, where those to remove stand, and what recorded changes of rows.

        The groups dropped are left out.
        """
        request = self.request
        groups = [group for index, group in enumerate(request.groups) if index not in self.dropped]
        added = [*request.added, *(entry for group in groups for entry in group.added)]
        removed = [*request.removed, *(item for group in groups for item in group.removed)]
        producers = {group.producer for group in groups}
        if not groups and any(entry.is_changelog for entry in recorded(request.kind, added)):
            producers = {"input"}
        producer = producers.pop() if len(producers) == 1 else None
        return added, locate(self.store, base, removed), producer

    def _check_buckets(self, base: Snapshot, added: Sequence[Entry]) -> None:
        """Refuse files that were written for another number of buckets than their partition has."""
        removed = self.request.as_mine().removed
        problem = bucket_conflict(self.store, base, added, removed, self.request.schema)
        if problem is not None:
            raise CommitConflict(
                f"{self.store.location}: {self.request.title} can't follow snapshot {base.id}: "
                f"{problem}: write the rows again",
                mine=self.request.title,
                theirs=f"{base.kind} (snapshot {base.id})",
            )

    def _fsync(self, paths: Iterable[str]) -> None:
        fresh = set(paths) - self.fsynced
        self.store.fsync(sorted(fresh))
        self.fsynced |= fresh

    def _wait(self, retries: int) -> None:
        bound = self.options.backoff_s_min * 2 ** min(retries, 30)
        time.sleep(random.uniform(0, min(bound, self.options.backoff_s_max)))


def _objects_of(snapshot: Snapshot) -> set[str]:
    """The metadata objects that a snapshot refers to."""
    return {snapshot.schema.path, *(reference.path for reference in manifests_of(snapshot))}
