"""The side of a table that names its versions, compares them and moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion_table.change_scan import ChangeScan, commits_between
from fermion_table.filters import table_filter
from fermion_table.history import Version
from fermion_table.restore import restore
from fermion_table.schema import PathLike
from fermion_table.schema_store import SchemaVersions
from fermion_table.snapshot import Snapshot
from fermion_table.table_difference import TableDiff, table_difference
from fermion_table.table_view import TableView
from fermion_table.version_lookup import find_version
from fermion_table.version_names import Branches, Tags


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
        return Branches(self._store, self._snapshot, self._branch, self._move_to)

    def _find(self, version: Version | None) -> tuple[Snapshot, str]:
        """The snapshot of a version and its branch; None: what this object sees."""
        if version is None:
            return self._snapshot, self._branch
        return find_version(self._store, version, branch=self._branch)

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
            The version has a schema of another branch.
        VersionNotFound, CommitConflict, CommitStateUnknown
        """
        target, _ = self._find(version)
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
        old, new = self._find(before)[0], self._find(after)[0]
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
        last, branch = self._find(end)
        first, _ = find_version(self._store, start, branch=branch)
        if isinstance(columns, str):
            raise InvalidArgumentError(f"columns={columns!r}: expected a list of names")
        schemas = SchemaVersions(self._store, last)
        return ChangeScan(
            store=self._store,
            snapshot=last,
            schemas=schemas,
            snapshots=tuple(commits_between(self._store, first, last, branch=branch)),
            columns=None if columns is None else tuple(columns),
            filter=table_filter(filter, schemas.current, where=self.location),
            threads=threads,
        )
