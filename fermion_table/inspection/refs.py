"""Tags, branches and consumers as a table offers them: ``table.tags``, ``table.branches``, ..."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fermion.display import NamedValues, short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_optional_text, check_text
from fermion_table.commit.branch_merge import merge_branch
from fermion_table.commit.fast_forward import fast_forward
from fermion_table.metadata import consumers, references
from fermion_table.metadata.consumers import Consumer
from fermion_table.metadata.history import latest
from fermion_table.metadata.references import Tag
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import Version, find_version
from fermion_table.moments import age_of, time_text
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchHead:
    """A branch and where it stands.

    Attributes
    ----------
    name
        Of the branch.
    snapshot_id
        Its latest snapshot.
    parent, left_after
        The branch that it left, and the snapshot after which it did; None for main.
    created
        When; None for main.
    message
        Why.
    """

    name: str
    snapshot_id: int
    parent: str | None = None
    left_after: int | None = None
    created: datetime | None = None
    message: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, repr=False)
class Tags(NamedValues[Tag]):
    """The tags of a table: each names a snapshot for good, and keeps its data from expiring.

    ``"v1" in table.tags``, ``len(table.tags)`` and ``for tag in table.tags`` read the list.

    Parameters
    ----------
    store
        Of the table.
    snapshot, branch
        What a tag names, and where ids and times are looked up, unless told otherwise.
    """

    store: AtomicStore
    snapshot: Snapshot
    branch: str = MAIN

    def create(
        self,
        name: str,
        *,
        version: Version | None = None,
        message: str | None = None,
        keep: timedelta | str | None = None,
    ) -> Tag:
        """Create a tag: a name for a snapshot.

        Parameters
        ----------
        name
            Letters, digits and ``_ . -``; not digits only, and not in use.
        version
            A snapshot id, a tag, a branch, ``"main~3"`` or a datetime; None: the snapshot that
            the table object sees.
        message
            Why.
        keep
            How long the tag lasts, such as ``"30d"``; None: until it is deleted.

        Raises
        ------
        InvalidArgumentError, VersionNotFound
        """
        _refuse_taken(self.store, name, "tag")
        snapshot = self.snapshot
        if version is not None:
            snapshot, _ = find_version(self.store, version, branch=self.branch)
        keep_ms = None if keep is None else age_of(keep, "keep") // timedelta(milliseconds=1)
        return references.create_tag(self.store, name, snapshot, message=message, keep_ms=keep_ms)

    def delete(self, name: str) -> None:
        """Delete a tag; the next expiry or removal of orphan files deletes data that only it kept.

        Raises
        ------
        VersionNotFound
            There is no such tag.
        """
        references.delete_tag(self.store, name)

    def list(self) -> list[Tag]:
        """Every tag, by name."""
        return references.list_tags(self.store)

    def _facts(self, value: Tag) -> dict[str, Any]:
        return {
            "name": value.name,
            "snapshot": str(value.snapshot_id),
            "message": value.message,
            "expires": None if value.expires_ms is None else time_text(value.expires_ms),
            "created": time_text(value.created_ms),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Consumers(NamedValues[Consumer]):
    """Programs that follow a table: each keeps the snapshots that it still has to read.

    ``"report" in table.consumers``, ``len(table.consumers)`` and ``for consumer in
    table.consumers`` read the list.

    Parameters
    ----------
    store
        Of the table.
    snapshot, branch
        Where a consumer is, and where ids and times are looked up, unless told otherwise.
    """

    store: AtomicStore
    snapshot: Snapshot
    branch: str = MAIN

    def record(self, name: str, *, version: Version | None = None) -> Consumer:
        """Say how far a consumer has read; a new name makes a consumer.

        Expiry keeps this snapshot and all later ones of its branch, until the consumer has come
        further, is deleted, or has said nothing for ``consumer.expiration_time``. Saying the same
        again is cheap.

        Parameters
        ----------
        name
            Letters, digits and ``_ . -``; not digits only.
        version
            The snapshot whose rows, or changes up to which, it has read; None: the one that the
            table object sees. It may be an earlier one than before.

        Raises
        ------
        InvalidArgumentError
            A bad name.
        OSError
            The storage failed; the consumer is where it was, or at the snapshot.
        VersionNotFound
            The snapshot has expired.
        """
        snapshot = self.snapshot
        if version is not None:
            snapshot, _ = find_version(self.store, version, branch=self.branch)
        return consumers.record(self.store, name, snapshot)

    def delete(self, name: str) -> None:
        """Forget a consumer: it keeps nothing any more.

        Raises
        ------
        InvalidArgumentError
            There is no such consumer.
        """
        consumers.delete(self.store, name)

    def list(self) -> list[Consumer]:
        """Every consumer, by name."""
        return consumers.list_consumers(self.store)

    def _facts(self, value: Consumer) -> dict[str, Any]:
        return {
            "name": value.name,
            "snapshot": str(value.snapshot_id),
            "branch": value.branch,
            "updated": time_text(value.updated_ms),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Branches(NamedValues[BranchHead]):
    """The branches of a table: histories of their own from a snapshot on.

    Write to one through ``Table.open(path, branch=name)``. ``"dev" in table.branches``,
    ``len(table.branches)`` and ``for branch in table.branches`` read the list.

    Parameters
    ----------
    store
        Of the table.
    snapshot, branch
        What the table object sees.
    moved
        Told the new snapshot when `fast_forward` has moved `branch`.
    """

    store: AtomicStore
    snapshot: Snapshot
    branch: str = MAIN
    moved: Callable[[Snapshot], object] = lambda snapshot: None

    def create(
        self, name: str, *, version: Version | None = None, message: str | None = None
    ) -> BranchHead:
        """Create a branch that starts at a snapshot.

        Parameters
        ----------
        name
            Letters, digits and ``_ . -``; not digits only, and not in use.
        version
            A snapshot id, a tag, a branch, ``"main~3"`` or a datetime; None: the snapshot that
            the table object sees.
        message
            Why.

        Raises
        ------
        InvalidArgumentError, VersionNotFound
        """
        _refuse_taken(self.store, name, "branch")
        snapshot, parent = self.snapshot, self.branch
        if version is not None:
            snapshot, parent = find_version(self.store, version, branch=self.branch)
        left = references.create_branch(self.store, name, snapshot, parent=parent, message=message)
        return self._head(left)

    def fast_forward(self, name: str, *, message: str | None = None) -> Snapshot:
        """Move the parent of branch ``name`` to the latest state of ``name``, in one commit.

        Returns
        -------
        Snapshot
            The new one of the branch that was left.

        Raises
        ------
        VersionNotFound
            There is no such branch.
        CommitConflict
            The branch that was left has commits that ``name`` lacks.
        MissingDataFile
            Files that it would bring are not stored any more. Nothing was published.
        CommitStateUnknown
            No reply says whether it was moved; its history does.
        """
        message = check_optional_text(message, "message")
        left = references.load_branch(self.store, name)  # before: once it is done, nothing may fail
        snapshot = fast_forward(self.store, name, message=message)
        if left is not None and left.parent == self.branch:
            self.moved(snapshot)
        return snapshot

    def merge(self, name: str, *, message: str | None = None) -> Snapshot:
        """Bring what branch ``name`` committed into its parent, on top of what that did since.

        All of it becomes one snapshot, or nothing does. New rows come on top and get new row ids;
        deleted rows stay deleted. The branch stays, and can be merged again after further commits.
        A branch whose parent has no commits of its own is fast-forwarded.

        Parameters
        ----------
        name
            Of the branch.
        message
            For the history; None: it says which branch.

        Returns
        -------
        Snapshot
            The new one of the branch that was left; its latest if there was nothing to bring.

        Raises
        ------
        VersionNotFound
            There is no such branch.
        CommitConflict
            Both sides changed the same file, keys, partition or column; the message names them.
            Or commits of the branch have expired.
        MissingDataFile
            Files that it would bring are not stored any more. Nothing was published.
        CommitStateUnknown
            No reply says whether it was merged; the history does.
        """
        message = check_optional_text(message, "message")
        left = references.load_branch(self.store, name)  # before: once it is done, nothing may fail
        snapshot = merge_branch(self.store, name, message=message)
        if left is not None and left.parent == self.branch:
            self.moved(snapshot)
        return snapshot

    def delete(self, name: str) -> None:
        """Delete a branch; the next removal of orphan files deletes data that only it kept.

        Raises
        ------
        InvalidArgumentError
            Another branch has left it: that one would lose its history.
        VersionNotFound
            There is no such branch.
        """
        children = [
            branch.name for branch in references.list_branches(self.store) if branch.parent == name
        ]
        if children:
            raise InvalidArgumentError(
                f"{self.store.location}: branch {name!r} can't be deleted before the branches "
                f"that start from it: {', '.join(children)}"
            )
        references.delete_branch(self.store, name)

    def list(self) -> list[BranchHead]:
        """Every branch by name, main first."""
        main = BranchHead(name=MAIN, snapshot_id=latest(self.store).id)
        return [main, *(self._head(left) for left in references.list_branches(self.store))]

    def _facts(self, value: BranchHead) -> dict[str, Any]:
        left = None if value.parent is None else f"{value.parent} after {value.left_after}"
        return {
            "name": value.name,
            "snapshot": str(value.snapshot_id),
            "from": left,
            "message": value.message,
        }

    def _head(self, left: references.Branch) -> BranchHead:
        return BranchHead(
            name=left.name,
            snapshot_id=latest(self.store, branch=left.name).id,
            parent=left.parent,
            left_after=left.snapshot_id,
            created=datetime.fromtimestamp(left.created_ms / 1000, UTC),
            message=left.message,
        )


def _refuse_taken(store: AtomicStore, name: str, what: str) -> None:
    """Refuse a tag that a branch's name would hide, and the other way round."""
    check_text(name, f"{what} name")
    if name == MAIN:
        raise InvalidArgumentError(f"{what} name {name!r}: this branch always exists")
    if what == "tag" and references.load_branch(store, name) is not None:
        raise InvalidArgumentError(f"{store.location}: {name!r} is a branch; choose another name")
    if what == "branch" and references.load_tag(store, name) is not None:
        raise InvalidArgumentError(f"{store.location}: {name!r} is a tag; choose another name")
