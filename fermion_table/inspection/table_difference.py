"""What differs between two snapshots of a table: files, numbers, schema, and rows on request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from fermion.display import counted, html_table
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.typing import FilterLike
from fermion_table.argument_checks import check_columns
from fermion_table.change_feed.change_plan import ChangeStep, commits_between
from fermion_table.change_feed.changes import ChangeScan
from fermion_table.change_feed.recorded_interval import RecordedInterval, producer_of
from fermion_table.commit.fast_forward import difference
from fermion_table.errors import VersionNotFound
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.history import SchemaVersions, load_table_schema
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import PRIMARY_KEY, Snapshot, Totals
from fermion_table.planning.filters import table_filter
from fermion_table.schema.difference import SchemaChange, schema_changes
from fermion_table.schema.schema import PathLike
from fermion_table.storage.store import AtomicStore

FILES_SHOWN_MAX = 10


@dataclass(frozen=True, kw_only=True)
class TableDiff:
    """The difference between two snapshots. Created by `Table.diff`; `str` formats it.

    Attributes
    ----------
    before, after
        The snapshots.
    files_added, files_removed
        Entries of data files; one whose deleted rows differ is in both.
    schema_changes
        Field by field.
    """

    store: AtomicStore
    before: Snapshot
    after: Snapshot
    files_added: tuple[Entry, ...]
    files_removed: tuple[Entry, ...]
    schema_changes: tuple[SchemaChange, ...]

    @property
    def rows_added(self) -> int:
        """Rows stored, not deleted, in the files added; also those carried over from others."""
        return Totals.of(self.files_added).live_rows

    @property
    def rows_removed(self) -> int:
        """Rows stored, not deleted, in the files removed."""
        return Totals.of(self.files_removed).live_rows

    @property
    def bytes_added(self) -> int:
        """Bytes of the files added."""
        return Totals.of(self.files_added).bytes

    @property
    def bytes_removed(self) -> int:
        """Bytes of the files removed."""
        return Totals.of(self.files_removed).bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.files_added or self.files_removed or self.schema_changes)

    def rows(
        self, *, columns: Sequence[PathLike] | None = None, filter: FilterLike | None = None
    ) -> ChangeScan:
        """The rows that one of the snapshots has and the other lacks, as `Table.scan_changes`.

        All are said to come with the later snapshot. Only files that differ are read, of a
        primary-key table also those that hold the same keys; rows that are equal in the columns
        asked for cancel out.

        Raises
        ------
        InvalidArgumentError
            The schemas are of branches that went their own ways; or, when the rows are read, the
            table was replaced by one with another primary key.
        """
        chosen = None if columns is None else check_columns(columns, "columns")
        versions = SchemaVersions(self.store, self.after)
        known = {version.hash for version in versions.current.ancestors}
        if self.before.schema.hash not in {*known, self.after.schema.hash}:
            raise InvalidArgumentError(
                f"{self.store.location}: rows of snapshot {self.before.id} can't be read under the "
                f"schema of snapshot {self.after.id}, which does not descend from theirs"
            )
        step = ChangeStep(
            snapshot_id=self.after.id,
            time_ms=self.after.time_ms,
            added=self.files_added,
            removed=self.files_removed,
            before=self.before,
            after=self.after,
            touched=self._touched(versions),
        )
        return ChangeScan(
            store=self.store,
            snapshot=self.after,
            schemas=versions,
            steps=(step,),
            columns=chosen,
            filter=table_filter(filter, versions.current, where=self.store.location),
        )

    def _touched(self, versions: SchemaVersions) -> tuple[Entry, ...] | None:
        """Files with the keys that differ, by the changelogs between the snapshots.

        None: they do not tell, or the files that were added and removed hold fewer rows.
        """
        key = primary_key_of(versions.current)
        if key is None or self.before.id >= self.after.id:
            return None
        branch = self.after.branch
        # Where one does not descend from the other, or commits between them have expired:
        with contextlib.suppress(InvalidArgumentError, VersionNotFound):
            snapshots = commits_between(self.store, self.before, self.after, branch=branch)
            producer = producer_of(snapshots)
            if producer is None:
                return None
            interval = RecordedInterval(
                store=self.store,
                key=key,
                producer=producer,
                start=self.before,
                snapshots=snapshots,
            )
            found = tuple(interval.touched())
            if sum(entry.rows for entry in found) < sum(
                entry.rows for entry in (*self.files_added, *self.files_removed)
            ):
                return found
        return None

    def __str__(self) -> str:
        is_keyed = PRIMARY_KEY in (*self.before.reader_features, *self.after.reader_features)
        row = "stored row" if is_keyed else "row"
        lines = [f"snapshot {self.before.id} -> snapshot {self.after.id}"]
        lines += [f"  {change}" for change in self.schema_changes]
        for sign, entries, rows, size in (
            ("-", self.files_removed, self.rows_removed, self.bytes_removed),
            ("+", self.files_added, self.rows_added, self.bytes_added),
        ):
            if entries:
                numbers = ((len(entries), "file"), (rows, row), (size, "byte"))
                lines.append(f"  {sign} {', '.join(counted(*amount) for amount in numbers)}")
                lines += [f"    {sign} {entry.file}" for entry in entries[:FILES_SHOWN_MAX]]
                if len(entries) > FILES_SHOWN_MAX:
                    lines.append(f"    and {len(entries) - FILES_SHOWN_MAX:,} more")
        return "\n".join(lines if len(lines) > 1 else [*lines, "  no difference"])

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("schema", change) for change in self.schema_changes]
        rows += [("file added", entry.file) for entry in self.files_added]
        rows += [("file removed", entry.file) for entry in self.files_removed]
        facts = {
            "files": f"+{len(self.files_added):,}, -{len(self.files_removed):,}",
            "stored rows": f"+{self.rows_added:,}, -{self.rows_removed:,}",
            "bytes": f"+{self.bytes_added:,}, -{self.bytes_removed:,}",
        }
        title = f"Snapshot {self.before.id} to snapshot {self.after.id}"
        return html_table(title, (), [*facts.items(), *rows], len(facts) + len(rows))

    def __repr__(self) -> str:
        return (
            f"<TableDiff of snapshots {self.before.id} and {self.after.id}: "
            f"{len(self.files_added)} files added, {len(self.files_removed)} removed, "
            f"{len(self.schema_changes)} schema changes>"
        )


def table_difference(store: AtomicStore, before: Snapshot, after: Snapshot) -> TableDiff:
    """Compare two snapshots, from metadata alone."""
    changes = difference(live_entries(store, before), live_entries(store, after))
    old, new = (load_table_schema(store, snapshot.schema) for snapshot in (before, after))
    return TableDiff(
        store=store,
        before=before,
        after=after,
        files_added=changes.added,
        files_removed=changes.removed,
        schema_changes=schema_changes(old, new),
    )
