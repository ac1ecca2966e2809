"""Where a table object stands: its storage, its branch, and the snapshot that it sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fermion.bounded_cache import BoundedCache
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.forks import cached_property
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.snapshot import Snapshot, SnapshotReference
from fermion_table.metadata.versions import Version, check_version, find_version
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore

if TYPE_CHECKING:
    from fermion_table.commit import commit
    from fermion_table.commit.request import CommitMetadata
    from fermion_table.lookup import lookup
    from fermion_table.operations import transaction
else:  # who reads neither commits nor looks up
    commit = LoadedWhenAskedFor("fermion_table.commit.commit")
    lookup = LoadedWhenAskedFor("fermion_table.lookup.lookup")
    transaction = LoadedWhenAskedFor("fermion_table.operations.transaction")

POSITION_READERS_MAX = 2

Moved = Callable[[Snapshot, float | None], object]
"""Called with a new snapshot, and when that was known to be the latest (or None)."""


class TableState:
    """What `Table` knows, and how it moves from one snapshot to the next.

    It pickles with its snapshot and its ``storage_options``, credentials too.

    store, branch: Where the table lies, and which history it reads and writes.
    snapshot: What it sees.
    version: What it was opened at, if that is no branch: then it only reads.
    """

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        *,
        branch: str = MAIN,
        version: Version | None = None,
    ) -> None:
        self.store = store
        self.version_opened = version
        self.branch = branch
        self.snapshot = snapshot
        self.seen_at: float | None = None
        """When, by ``time.monotonic``, the snapshot was known to be the latest."""
        self._schemas: SchemaVersions | None = SchemaVersions(store, snapshot)
        self.committed: SnapshotReference | None = None
        """The newest commit that was made through this object, compactions aside."""
        self._note_commit(snapshot)

    is_in_transaction = False
    """Whether changes wait for the end of a transaction over several tables."""

    def __getstate__(self) -> dict[str, Any]:
        """The same snapshot, where it is loaded; that it was the latest is not known there."""
        state = {**self.__dict__, "seen_at": None}
        state.pop("positions", None)
        return state

    @cached_property
    def publisher(self) -> commit.Publisher:
        """What commits, and finds the latest snapshot."""
        return commit.Publisher(self.store, self.branch)

    def statement(
        self,
        metadata: CommitMetadata,
        moved: Moved,
        *,
        base: Snapshot | None = None,
        seen_at: float | None = None,
    ) -> transaction.Statement:
        """What changes rows by one call, and publishes that.

        base: The snapshot that it is decided on; None: the one that is seen.
        seen_at: When the base was known to be the latest; None: not known.
        """
        return transaction.Statement(
            self.publisher,
            base or self.snapshot,
            metadata=metadata,
            published=moved,
            seen_at=seen_at,
        )

    @cached_property
    def lookups(self) -> lookup.Lookups:
        """What finds rows by their keys, with the files and rows that it keeps."""
        return lookup.Lookups()

    @cached_property
    def positions(self) -> BoundedCache:
        """What reads rows by position, by snapshot and columns; it keeps files open."""
        return BoundedCache(POSITION_READERS_MAX)

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self.store.location

    @property
    def schema(self) -> TableSchema:
        """The schema of `snapshot`."""
        return self.schemas.current

    @property
    def schemas(self) -> SchemaVersions:
        """Every version of the schema up to the snapshot's, by id."""
        if self._schemas is None:
            self._schemas = SchemaVersions(self.store, self.snapshot)
        return self._schemas

    def move_to(self, snapshot: Snapshot, seen_at: float | None = None) -> Snapshot:
        """See another snapshot; `seen_at` is when it was known to be the latest.

        Nothing is read, so that a commit can't fail once it is published.
        """
        self.seen_at = seen_at
        if snapshot.schema != self.snapshot.schema:
            self._schemas = None
        self.snapshot = snapshot
        self._note_commit(snapshot)
        return snapshot

    def _note_commit(self, snapshot: Snapshot) -> None:
        is_own = snapshot.effort.seconds > 0
        if is_own and snapshot.kind != "compact" and snapshot.id > 0:
            self.committed = snapshot.reference

    def follow_branch(self, snapshot: Snapshot) -> None:
        """See where the branch was moved to; a table opened at a version keeps showing that."""
        if self.version_opened is None:
            self.move_to(snapshot)

    def check_writable(self) -> None:
        """Refuse to write through a table that shows a tag or an old snapshot.

        Rows would go to the newest one, and changes rest on what this object does not show.
        """
        if self.version_opened is not None:
            raise InvalidArgumentError(
                f"{self.location}: opened at version {self.version_opened!r}, which can only be "
                f"read. To write, open the table without version=, or make a branch of this "
                f"version, table.branches.create(NAME), and open that: Table.open(path, "
                f"branch=NAME)"
            )

    def refresh(self) -> Snapshot:
        """Move to the latest snapshot of the branch; then a table opened at a version can write."""
        self.version_opened = None
        requested_at = time.monotonic()
        return self.move_to(self.publisher.latest(self.snapshot), seen_at=requested_at)

    def refresh_for_append(self) -> Snapshot:
        """The same with one request where this snapshot was the latest a moment ago.

        Should the table have been replaced meanwhile, the commit finds out.
        """
        requested_at = time.monotonic()
        newest = self.publisher.latest(self.snapshot, seen_at=self.seen_at)
        return self.move_to(newest, seen_at=requested_at)

    def find(self, version: Version | None, parameter: str) -> tuple[Snapshot, str]:
        """The snapshot of a version and its branch; None: the snapshot that the table sees."""
        if version is None:
            return self.snapshot, self.branch
        checked = check_version(version, parameter)
        return find_version(self.store, checked, branch=self.branch)


class HasState(Protocol):
    """`Table`, as its methods see it that are functions of the modules of this folder."""

    _state: TableState
