"""Publishing commits: create a table, and create-if-absent of the next snapshot file.

One atomic step publishes a commit. Before it nothing is visible, after it everything is; a
commit that another one came before reads that one, decides by the conflict matrix, and tries the
next snapshot file. Only a proven failure deletes metadata; data files are the caller's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fermion import telemetry
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.redaction import logger, redacted
from fermion.telemetry import Watching
from fermion_table.commit.committed_files import bucket_conflict, refuse_committed, refuse_missing
from fermion_table.commit.concurrent import commits_since, refuse_replaced
from fermion_table.commit.conflict import Fail, Ok, Redo, Verdict, conflict
from fermion_table.commit.create_if_absent import (
    create_snapshot_file,
    is_in_history,
    proves_absence,
)
from fermion_table.commit.identities import committed_before
from fermion_table.commit.next_snapshot import (
    Changes,
    Place,
    Prepared,
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
from fermion_table.errors import (
    CommitConflict,
    CommitStateUnknown,
    SchemaMismatch,
    TableExists,
)
from fermion_table.metadata import pointers
from fermion_table.metadata.history import latest, newest, table_exists
from fermion_table.metadata.manifest import Entry, data_paths_of, index_paths_of, paths_of
from fermion_table.metadata.manifest_store import (
    Located,
    MetadataWriter,
    added_entries,
    changelog_entries,
    locate,
)
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

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from fermion_table.commit import undecided
else:  # who meets no undecided snapshot
    undecided = LoadedWhenAskedFor("fermion_table.commit.undecided")

_log = logger(__name__)

NEAR_COMMITS = 16
"""If more came before a try, checking them took too long for it to succeed: the next has fewer to
check, if it does not wait for others."""
Plan = Callable[[Snapshot], CommitRequest | None]
"""What to commit on a snapshot; None: nothing. Raises to give up."""


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

    store: Where there is no table yet.
    metadata: What the caller says about it, for the history.
    Raises TableExists: Somebody else was first.
    Raises CommitStateUnknown: The reply was lost, and whether the table was made can't be told.
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
    options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
) -> Snapshot:
    """Publish a request that can't be planned again, and return its snapshot (see `Commit`).

    request: What to commit. Its data files are stored and fsynced already.
    """
    return Commit(store, request, branch=branch, options=options).run().snapshot


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a commit.

    snapshot: Its own, that of an earlier try of the same commit, or the latest where there was
        nothing to do.
    entries: What the commit added; None: not known, as it could not be read.
    seen_at: When, by ``time.monotonic``, the snapshot was known to be the latest; None: not known.
    is_earlier: Whether an earlier try of the same commit was found.
    """

    snapshot: Snapshot
    entries: Sequence[Entry] | None = ()
    seen_at: float | None = None
    is_earlier: bool = False


class Commit:
    """One commit, however many tries it takes.

    Each try looks for the latest snapshot, checks by the conflict matrix what others have committed
    since the operation was decided, plans it again where that matters, and creates the next
    snapshot file. The files that it has published, or may have published, are not their owner's to
    delete any more (see `OwnedFiles`).

    plan: What to commit on a snapshot; made again where others come first. A request can't be made
        again: there it is a conflict.
    metadata: Of the commit. An earlier try with the same identity is found even where the plan no
        longer fits the table. None: that of the request.
    known: A snapshot of the table, which the operation was decided on. None: the request's base.
    seen_at: When, by ``time.monotonic``, `known` was last known to be the latest: a commit soon
        after creates the snapshot behind it without looking first. None: not known.
    looks: Whether to plan on the latest snapshot; else on `known`.
    """

    def __init__(
        self,
        store: AtomicStore,
        plan: Plan | CommitRequest,
        *,
        branch: str = MAIN,
        metadata: CommitMetadata | None = None,
        known: Snapshot | None = None,
        seen_at: float | None = None,
        looks: bool = False,
        options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
    ) -> None:
        self.store = store
        self.branch = branch
        self.options = options
        self.plan = None if isinstance(plan, CommitRequest) else plan
        self.request = plan if isinstance(plan, CommitRequest) else CommitRequest(kind="append")
        self.metadata = metadata or self.request.metadata
        self.base = known or self.request.base
        self.follows = None if self.base is None else self.base.reference
        self.prepared: Prepared | None = None  # of a transaction over several tables
        self.seen_at = seen_at
        self.looks = looks
        self.lists = False
        self.decided_on = self.base
        self.writer = MetadataWriter(store)
        self.uuid = ""  # of the snapshot; made once there is something to publish
        self.dropped: frozenset[int] = frozenset()
        self.fsynced: set[str] = set()
        self.may_be_published = False
        self.retries = 0
        self.written: WrittenFiles | None = None
        self.looked_for: frozenset[str] = frozenset()

    def run(self) -> Published:
        """Try until published, proven impossible, or unknown.

        Raises CommitConflict: Another commit came first and this one can't follow it; nothing was
            published, the metadata is deleted, the data files are the caller's.
        Raises InvalidArgumentError: A file is named twice, another commit has added it before, or
            it is gone; nothing was published.
        Raises CommitStateUnknown: The reply was lost, and whether the commit was published can't be
            told; nothing was deleted.
        Raises TableNotFound: No table here.
        Raises CorruptMetadata: An expiry marker names a snapshot that was never made.
        Raises UnsupportedFeature: The table needs a newer writer.
        """
        watching = telemetry.watching
        if watching is None:
            return self._tried()
        location = self.store.location
        with watching.operation("fermion.commit", location, branch=self.branch) as span:
            try:
                published = self._tried()
            except CommitConflict:
                watching.count("fermion.commit.conflicts", 1, table=redacted(location))
                raise
            finally:
                watching.count("fermion.commit.retries", self.retries, table=redacted(location))
                span.set_attribute("fermion.commit.retries", self.retries)
            self._tell(watching, span, published.snapshot)
            return published

    def _tell(self, watching: Watching, span: Span, snapshot: Snapshot) -> None:
        """What telemetry wants to know of a snapshot that this commit has published."""
        if snapshot.uuid != self.uuid:
            return  # that of an earlier try, or the latest where there was nothing to do
        deltas, told = snapshot.deltas, {"table": redacted(self.store.location)}
        span.set_attribute("fermion.commit.kind", snapshot.kind)
        span.set_attribute("fermion.snapshot.id", snapshot.id)
        for change, rows, size in (
            ("added", deltas.rows_added, deltas.bytes_added),
            ("removed", deltas.rows_removed + max(deltas.rows_deleted, 0), deltas.bytes_removed),
        ):
            watching.count("fermion.commit.rows", rows, change=change, kind=snapshot.kind, **told)
            watching.count("fermion.commit.io", size, change=change, kind=snapshot.kind, **told)

    def _tried(self) -> Published:
        began = time.monotonic()
        try:
            return self._first(began) or self._run(began)
        except BaseException:
            if not self.may_be_published:
                self._discard()
            raise

    def _first(self, began: float) -> Published | None:
        """Plan the operation; a result where there is nothing to publish."""
        if self.plan is None:
            return None
        known = self.base
        base = self._refreshed()[0] if self.looks or known is None else known
        if known is not None:
            refuse_replaced(self.store, known, base, self.branch)
        try:
            is_change = self._plan_on(base)
        except (CommitConflict, SchemaMismatch):
            earlier = self._earlier(base)
            if earlier is None:
                raise
            return Published(earlier, is_earlier=True)
        return None if is_change else Published(base, seen_at=self.seen_at)

    def _run(self, began: float) -> Published:
        started = time.monotonic()
        self.uuid = unique_name()
        while True:
            before = self.base
            base, seen_at = self._refreshed()
            snapshot = self._earlier(base)
            if snapshot is None:
                changes = self._changes(base)
                if changes is None:
                    self._discard()
                    return Published(base, seen_at=seen_at)
                snapshot = self._publish(base, changes, seen_at)
            if snapshot is not None:
                self.writer.discard(keep={snapshot.schema.path, *self.writer.published(snapshot)})
                return self._published(snapshot, began, time.monotonic() - started)
            self.retries += 1
            if time.monotonic() - started > self.options.timeout_s:
                raise CommitConflict(
                    f"{self.store.location}: {self.request.title}: {self.retries} attempts failed "
                    f"because of concurrent commits in {self.options.timeout_s:g} s; try again "
                    "with fewer writers",
                    mine=self.request.title,
                )
            if before is None or base.id - before.id <= NEAR_COMMITS:
                self._wait()

    def _refreshed(self) -> tuple[Snapshot, float]:
        """The snapshot to build on, and since when it may not be the latest any more.

        The one that is known serves the first try if it was the latest a moment ago.
        """
        if self.base is None or self.retries or not self.options.is_fresh(self.seen_at):
            start = None if self.base is None else self.base.id
            seen_at = time.monotonic()
            end = newest(self.store, branch=self.branch, start=start, lists=self.lists)
            if end.is_undecided:
                end, seen_at = undecided.settled(self.store, self.branch, end, self.options)
            self.seen_at = seen_at
            self.base, self.follows = end.snapshot, end.stored.reference
        assert self.seen_at is not None  # a fresh one has a time
        return self.base, self.seen_at

    def _earlier(self, base: Snapshot) -> Snapshot | None:
        """The snapshot of an earlier try of the same commit."""
        identity = self.metadata.identity
        if identity is None:
            return None
        return committed_before(self.store, base, identity, branch=self.branch)

    def _plan_on(self, base: Snapshot) -> bool:
        """Plan the operation on a snapshot; whether it changes anything there."""
        request = self.plan(base) if self.plan is not None else None
        if request is None:
            return False
        self.request = request
        self.decided_on = base
        self.dropped = frozenset()
        return True

    def _published(self, snapshot: Snapshot, began: float, seconds: float) -> Published:
        """The result: what was published, now or by an earlier try."""
        self._report(snapshot, seconds)
        effort = Effort(retries=self.retries, seconds=time.monotonic() - self.metadata.began)
        result = msgspec.structs.replace(snapshot, effort=effort)
        if snapshot.uuid == self.uuid:
            return Published(result, self.request.added, began)
        entries = self._added_by(snapshot)
        if entries is None:
            owned_files.hold(self.request.unsure)  # perhaps the earlier try has published them
        return Published(result, entries, is_earlier=True)

    def _added_by(self, earlier: Snapshot) -> Sequence[Entry] | None:
        """What an earlier try has added; None if it can't be read."""
        if not self.request.added:
            return ()
        try:
            changelog = changelog_entries(self.store, earlier)
            return [*added_entries(self.store, earlier), *changelog]
        except OSError:
            return None

    def _discard(self) -> None:
        """Delete the metadata that was written; the data files are their owner's again."""
        owned_files.hold(self.request.unsure, False)
        self.writer.discard()

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

    def _changes(self, base: Snapshot) -> Changes | None:
        """What the operation changes in `base`, planned again if need be; None: nothing."""
        check_writable(base, snapshot_path(base.id, self.branch))
        if now_ms() - base.time_ms > self.options.fence_s * 1000:  # the fence reads the markers
            pointers.check_marks(self.store, base.id, self.branch)
        self._refuse_committed(base)
        if not self._follows(base):
            return None
        added, located, producer = self._files(base)
        if located.missing:
            theirs = f"{base.kind} (snapshot {base.id})"
            gone = Redo("files it removes are not live", tuple(located.missing))
            if not self._again(base, theirs, gone):
                return None
            added, located, producer = self._files(base)
            if located.missing:
                raise self._conflict(base, "none", gone)
        self._check_buckets(base, added)
        self._check_schema_id(base)
        schema = self.request.schema
        changelog = [entry for entry in added if entry.is_changelog]
        changes = Changes(
            added=number_rows([entry for entry in added if not entry.is_changelog]),
            located=located,
            producer=producer,
            changelog=tuple(changelog) if producer else (),
            schema=self.writer.write_schema(schema.id, schema.data) if schema else None,
        )
        if self.metadata.properties_after is not None:
            properties = self.metadata.properties_after(base)
            metadata = replace(self.request.metadata, properties=properties)
            self.request = replace(self.request, metadata=metadata)
        unsure = self.request.unsure - self.looked_for  # each once, however many tries
        refuse_missing(self.store, (*changes.added, *changes.changelog), unsure)
        self.looked_for |= unsure
        return changes

    def _publish(self, base: Snapshot, changes: Changes, seen_at: float) -> Snapshot | None:
        """Try for the snapshot file after `base`; None if another commit took it."""
        entries = (*changes.added, *changes.changelog)
        assert self.follows is not None  # there is a base
        place = Place(
            uuid=self.uuid, branch=self.branch, follows=self.follows, prepared=self.prepared
        )
        snapshot = next_snapshot(
            self.store, base, self.request, changes, place=place, writer=self.writer
        )
        new = {path for entry in entries for path in data_paths_of(entry)}
        new.update(path for entry in entries for path in index_paths_of(entry))
        new.update(each.path for entry in entries for each in entry.blob_files if each.path)
        new -= self.fsynced
        self.store.fsync(sorted(new))
        self.fsynced |= new
        self.may_be_published = True
        owned_files.hold(self.request.unsure)
        stored = self._create(snapshot, base, seen_at)
        if stored is not None:
            owned_files.leave(path for entry in entries for path in paths_of(entry))
        owned_files.hold(self.request.unsure, False)
        self.may_be_published = stored is not None
        return stored

    def _create(self, snapshot: Snapshot, base: Snapshot, seen_at: float) -> Snapshot | None:
        """Create the snapshot file, and check by the fence that it is in the history."""
        try:
            creation = create_snapshot_file(self.store, snapshot, self.branch, self.options)
        except BaseException as error:
            absent = proves_absence(self.store, snapshot, self.branch, error)
            self.may_be_published = not absent
            raise
        slow = time.monotonic() - seen_at > self.options.fence_s
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

    def _refuse_committed(self, base: Snapshot) -> None:
        """Refuse a writer's files that a commit up to `base` has added before."""
        written = self.written or self.request.written
        if written is not None:
            self.written = refuse_committed(self.store, base, written, self.branch)

    def _follows(self, base: Snapshot) -> bool:
        """Check every commit since the operation was decided; whether there is still a change."""
        decided_on, self.decided_on = self.decided_on, base
        if decided_on is None or decided_on.hash == base.hash:
            return True
        theirs, verdict = self._verdict(decided_on, base)
        if isinstance(verdict, Ok):
            self.dropped |= verdict.dropped
            if self.dropped and len(self.dropped) == len(self.request.groups):
                verdict = Fail("every group of the compaction lost its inputs")
        return isinstance(verdict, Ok) or self._again(base, theirs, verdict)

    def _verdict(self, decided_on: Snapshot, base: Snapshot) -> tuple[str, Verdict]:
        """The first commit in the way and what that means, or all the groups to drop."""
        refuse_replaced(self.store, decided_on, base, self.branch)
        mine = self.request.as_mine()
        dropped: frozenset[int] = frozenset()
        for theirs in commits_since(self.store, decided_on, base, mine, self.branch):
            verdict = conflict(mine, theirs)
            if not isinstance(verdict, Ok):
                return f"{theirs.kind} (snapshot {theirs.snapshot_id})", verdict
            dropped |= verdict.dropped
        return f"{base.kind} (snapshot {base.id})", Ok(dropped)

    def _again(self, base: Snapshot, theirs: str, verdict: Redo | Fail) -> bool:
        """Plan the operation again on `base`, or give up; whether it changes anything there."""
        if self.plan is None or isinstance(verdict, Fail):
            raise self._conflict(base, theirs, verdict)
        _log.info("%s: redo %s: %s", self.store.location, self.request.kind, verdict.reason)
        return self._plan_on(base)

    def _conflict(self, base: Snapshot, theirs: str, verdict: Redo | Fail) -> CommitConflict:
        return CommitConflict(
            f"{self.store.location}: {self.request.title} can't follow snapshot {base.id}: "
            f"{verdict.reason}",
            mine=self.request.title,
            theirs=theirs,
            files=verdict.files,
        )

    def _check_schema_id(self, base: Snapshot) -> None:
        """Refuse a schema that is not newer than that of `base`."""
        schema = self.request.schema
        if schema is not None and schema.id <= base.schema.id:
            raise CommitConflict(
                f"{self.store.location}: {self.request.title}: schema {schema.id} can't follow "
                f"schema {base.schema.id}",
                mine=self.request.title,
                theirs=f"{base.kind} (snapshot {base.id})",
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

    def _wait(self) -> None:
        bound = self.options.backoff_s_min * 2 ** min(self.retries, 30)
        time.sleep(random.uniform(0, min(bound, self.options.backoff_s_max)))


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes to one branch of a table.

    prepared: The transaction over several tables that what is published is part of, if it is.
    """

    store: AtomicStore
    branch: str = MAIN
    prepared: Prepared | None = None

    def latest(self, known: Snapshot, *, seen_at: float | None = None) -> Snapshot:
        """The newest snapshot of the table that `known` belongs to.

        seen_at: When, by ``time.monotonic``, `known` was the newest. Soon after, that there is no
            snapshot file behind it says that it still is: these outlive their data by much longer.
        """
        fresh = self.branch == MAIN and CommitOptions().is_fresh(seen_at)
        if fresh and not self.store.exists(snapshot_path(known.id + 1)):
            return known
        found = latest(self.store, branch=self.branch, start=known.id)
        refuse_replaced(self.store, known, found, self.branch)
        return found

    def publish(
        self,
        known: Snapshot,
        plan: Plan,
        metadata: CommitMetadata,
        *,
        looks: bool = True,
        seen_at: float | None = None,
    ) -> Published:
        """Commit what a plan makes of the latest snapshot; made again where others come first.

        metadata: Of the commit. An earlier try with the same identity is found even where the plan
            no longer fits the table.
        looks: Whether to plan on the latest snapshot; else on `known`, which the plan was decided
            on.
        seen_at: When, by ``time.monotonic``, `known` was the newest, if that is known.
        Raises CommitConflict, CommitStateUnknown.
        """
        publication = Commit(
            self.store,
            plan,
            branch=self.branch,
            metadata=metadata,
            known=known,
            seen_at=seen_at,
            looks=looks,
        )
        publication.prepared = self.prepared
        return publication.run()
