"""The side of a table that names its versions, compares them and moves between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

from fermion.arguments import integer
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_bool, check_columns, check_optional_text
from fermion_table.commit.clone import clone_table
from fermion_table.commit.identities import committed_before
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.restore import restore
from fermion_table.expiry.expire import expire_snapshots
from fermion_table.expiry.maintenance import MaintenanceResult
from fermion_table.expiry.orphans import remove_orphan_files
from fermion_table.inspection.refs import Branches, Tags
from fermion_table.inspection.table_difference import TableDiff, table_difference
from fermion_table.inspection.tables import Inspection
from fermion_table.metadata.history import Version, check_version
from fermion_table.metadata.schema_store import SchemaVersions, schema_paths
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import find_version
from fermion_table.moments import limit_ms, now_ms
from fermion_table.scanning.changes import ChangeScan, commits_between
from fermion_table.scanning.filters import table_filter
from fermion_table.schema.schema import PathLike
from fermion_table.storage.location import open_store
from fermion_table.storage.store import Durability, access_of
from fermion_table.table.view import TableView


class TableVersions(TableView):
    """A table at one of its snapshots, with its tags, branches and changes.

    Wherever it takes a version, that is a snapshot id, a tag, a branch, ``"main~3"`` (three before
    the latest) or a datetime.
    """

    @property
    def branch(self) -> str:
        """The branch that this object reads and writes."""
        return self._branch

    @property
    def tags(self) -> Tags:
        """Names for snapshots: ``tags.create(name)``, ``.delete(name)``, ``.list()``."""
        return Tags(self._store, self._snapshot, self._branch)

    @property
    def branches(self) -> Branches:
        """Histories beside each other: ``branches.create(name)``, ``.fast_forward(name)``, ..."""
        moved = self._move_to if self._version_opened is None else _stays
        return Branches(self._store, self._snapshot, self._branch, moved)

    @property
    def inspect(self) -> Inspection:
        """Metadata as Arrow tables: ``inspect.files()``, ``.snapshots()``, ``.refs()``, ..."""
        return Inspection(self._store, self._snapshot, self._branch)

    def _find(self, version: Version | None, parameter: str) -> tuple[Snapshot, str]:
        """The snapshot of a version and its branch; None: what this object sees."""
        if version is None:
            return self._snapshot, self._branch
        checked = check_version(version, parameter)
        return find_version(self._store, checked, branch=self._branch)

    def find_commit(self, commit_user: str, commit_identifier: int | str) -> Snapshot | None:
        """The snapshot that a commit of this identity published, None if there is none.

        It looks in the history of the snapshot that this object sees, as far as that has not
        expired, with at most one request for each snapshot, 32 at once. A process remembers what
        it has read.

        Parameters
        ----------
        commit_user, commit_identifier
            As they were, or will be, given to a commit.

        Raises
        ------
        TypeError, InvalidArgumentError
            Not a user and an identifier.
        CommitConflict
            There was such a commit, whose snapshot has expired since.
        CorruptMetadata
            A snapshot of the history can't be read.
        """
        metadata = CommitMetadata(commit_user=commit_user, commit_identifier=commit_identifier)
        if metadata.identity is None:
            raise InvalidArgumentError("commit_user and commit_identifier: expected both, not None")
        return committed_before(
            self._store, self._snapshot, *metadata.identity, branch=self._branch
        )

    def restore(self, version: Version, *, message: str | None = None) -> Snapshot:
        """Make an earlier state the latest one: its rows, schema and settings, as a new snapshot.

        Nothing is forgotten, and no data file is written.

        Returns
        -------
        Snapshot
            The new one, or the latest if it has that state already.

        Raises
        ------
        InvalidArgumentError
            The version has a schema of another branch; or this object was opened at a version.
        VersionNotFound, CommitConflict, CommitStateUnknown
        """
        self._check_writable()
        message = check_optional_text(message, "message")
        target, _ = self._find(check_version(version, "version"), "version")
        return self._move_to(restore(self._publisher, self._snapshot, target, message=message))

    def diff(self, before: Version, after: Version | None = None) -> TableDiff:
        """What differs between two versions: files, numbers, schema, and rows on request.

        Parameters
        ----------
        before
            A version.
        after
            Another; None: the snapshot that this object sees.
        """
        old, _ = self._find(check_version(before, "before"), "before")
        new, _ = self._find(after, "after")
        return table_difference(self._store, old, new)

    def scan_changes(
        self,
        start: Version,
        end: Version | None = None,
        *,
        columns: Sequence[PathLike] | None = None,
        filter: Any = None,
        threads: int | None = None,
    ) -> ChangeScan:
        """Ask for the rows that commits added and removed.

        Beside the columns asked for come ``_change_type`` (``insert`` or ``delete``),
        ``_commit_version`` (the snapshot's id) and ``_commit_timestamp``. Compactions change no
        rows. Rows that a commit carries over from one file to another are left out; they are told
        by the columns asked for.

        Parameters
        ----------
        start, end
            Versions, start exclusive and end inclusive; None: the snapshot that this object sees.
        columns, filter, threads
            As in `scan`, under the schema of the end.

        Raises
        ------
        InvalidArgumentError
            The end does not descend from the start.
        VersionNotFound
            Snapshots between them have expired.
        """
        start = check_version(start, "start")
        chosen = None if columns is None else check_columns(columns, "columns")
        last, branch = self._find(end, "end")
        first, _ = find_version(self._store, start, branch=branch)
        schemas = SchemaVersions(self._store, last)
        return ChangeScan(
            store=self._store,
            snapshot=last,
            schemas=schemas,
            snapshots=tuple(commits_between(self._store, first, last, branch=branch)),
            columns=chosen,
            filter=table_filter(filter, schemas.current, where=self.location),
            threads=threads,
        )

    def clone(
        self,
        path: str | os.PathLike[str],
        *,
        version: Version | None = None,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
        message: str | None = None,
    ) -> Self:
        """Make a table of its own history that begins with a state of this one.

        No data is copied: the clone reads this table's files where they are, and a tag here keeps
        them. That tag, ``clone-...``, goes when the clone is dropped (`drop_table`); delete it
        yourself if the clone goes otherwise. Until then this table can't be dropped.

        Parameters
        ----------
        path
            Where the clone lies; there must be no table yet.
        version
            What to clone; None: the snapshot that this object sees.
        storage_options
            Of the clone; None takes this table's. They have to open this table's files too.

        Raises
        ------
        TableExists, VersionNotFound
        """
        message = check_optional_text(message, "message")
        snapshot, _ = self._find(version, "version")
        options = self._store.storage_options if storage_options is None else storage_options
        access = access_of(self._store)
        target = open_store(path, storage_options=options, durability=durability, access=access)
        return type(self)(target, clone_table(self._store, snapshot, target, message=message))

    def expire_snapshots(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        retain_last: int | None = None,
        dry_run: bool = False,
    ) -> MaintenanceResult:
        """Let old snapshots of this object's branch go, with the data that nothing else needs.

        What a kept snapshot of any branch, a tag or a clone refers to stays, and so do the
        snapshot that a branch left, and the one that its parent was moved to last. A snapshot's
        slot goes an hour after its data, so that a commit under way can't take its id. Several
        may run at once.

        Parameters
        ----------
        older_than
            A datetime (UTC without a zone), or a timedelta before now; None: 7 days.
        retain_last
            As many stay however old they are, at least 1; None: 10.
        dry_run
            Only say what would go.

        Raises
        ------
        TypeError, InvalidArgumentError
            A limit of another type, or ``retain_last`` below 1.
        CorruptMetadata, OSError
            Something kept can't be read; nothing was deleted.
        """
        dry_run = check_bool(dry_run, "dry_run")
        now = now_ms()
        return expire_snapshots(
            self._store,
            schema_paths=partial(schema_paths, self._store),
            branch=self._branch,
            older_than_ms=limit_ms(older_than, now_ms=now),
            retain_last=(
                None if retain_last is None else integer(retain_last, "retain_last", minimum=1)
            ),
            dry_run=dry_run,
            now=now,
        )

    def remove_orphan_files(
        self, *, older_than: datetime | timedelta | None = None, dry_run: bool = False
    ) -> MaintenanceResult:
        """Delete files in the table's directory that nothing refers to: failed writers' traces.

        Parameters
        ----------
        older_than
            Only files last written before this datetime, or longer ago than this timedelta; None:
            3 days. Younger ones may belong to a writer that has not committed yet.
        dry_run
            Only say what would go.

        Raises
        ------
        TypeError
            A limit of another type.
        CorruptMetadata, OSError
            Something referred to can't be read; nothing was deleted.
        """
        dry_run = check_bool(dry_run, "dry_run")
        now = now_ms()
        return remove_orphan_files(
            self._store,
            schema_paths=partial(schema_paths, self._store),
            older_than_ms=limit_ms(older_than, now_ms=now),
            dry_run=dry_run,
            now=now,
        )


def _stays(snapshot: Snapshot) -> None:
    """A table opened at a version shows that one, wherever its branch is moved to."""
