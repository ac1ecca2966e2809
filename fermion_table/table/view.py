"""The reading side of a table: one snapshot, its schema, its history, and scans."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa

import fermion
from fermion import col
from fermion.arguments import flag, integer, integers
from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.argument_checks import check_columns
from fermion_table.checks.verify import VerifyReport, verify
from fermion_table.commit.publisher import Publisher
from fermion_table.inspection.history_log import HistoryLog, history_log
from fermion_table.metadata import history
from fermion_table.metadata.file_identity import check_identity
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.references import missing_name, tagged_snapshot
from fermion_table.metadata.schema_store import SchemaVersions
from fermion_table.metadata.shared_files import SharedFiles, options_for
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import snapshot_as_of
from fermion_table.moments import Moment
from fermion_table.scanning.filters import TableFilter, both, table_filter
from fermion_table.scanning.scan import Scan
from fermion_table.schema.field_widening import beyond
from fermion_table.schema.schema import Path, PathLike, TableSchema
from fermion_table.schema.selection import BATCH_ID
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore, access_of


class TableView:
    """A table at one of its snapshots, to be read.

    It pickles with its snapshot and its ``storage_options``, credentials too.

    Parameters
    ----------
    store, branch
        Where it lies.
    snapshot
        What it sees.
    version
        What it was opened at, if that is no branch: then it only reads.
    """

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        *,
        branch: str = MAIN,
        version: history.Version | None = None,
    ) -> None:
        self._store = store
        self._version_opened = version
        self._branch = branch
        self._publisher = Publisher(store, branch)
        self._snapshot = snapshot
        self._seen_at: float | None = None
        self._schemas_read: SchemaVersions | None = SchemaVersions(store, snapshot)

    def __getstate__(self) -> dict[str, Any]:
        """The same table at the same snapshot, where it is loaded; what was just seen is not."""
        return {**self.__dict__, "_seen_at": None}

    def __repr__(self) -> str:
        return (
            f"<Table {redacted(self.location)!r}, snapshot {self.snapshot.id}: "
            f"{self.snapshot.totals.rows:,} rows in {self.snapshot.totals.files:,} files>"
        )

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self._store.location

    @property
    def store(self) -> AtomicStore:
        """The table's objects; for engines."""
        return self._store

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that this object sees."""
        return self._snapshot

    @property
    def schema(self) -> TableSchema:
        """The schema of `snapshot`."""
        return self._schemas.current

    @property
    def properties(self) -> dict[str, str]:
        """The table's settings; a copy."""
        return dict(self.schema.properties)

    def _move_to(self, snapshot: Snapshot, *, seen_at: float | None = None) -> Snapshot:
        """See another snapshot; `seen_at` is when it was known to be the latest.

        Nothing is read, so that a commit can't fail once it is published.
        """
        self._seen_at = seen_at
        if snapshot.schema != self._snapshot.schema:
            self._schemas_read = None
        self._snapshot = snapshot
        return snapshot

    @property
    def _schemas(self) -> SchemaVersions:
        if self._schemas_read is None:
            self._schemas_read = SchemaVersions(self._store, self._snapshot)
        return self._schemas_read

    def _check_writable(self) -> None:
        """Refuse to write through a table that shows a tag or an old snapshot.

        Rows would go to the newest one, and changes rest on what this object does not show.
        """
        if self._version_opened is not None:
            raise InvalidArgumentError(
                f"{self.location}: opened at version {self._version_opened!r}, which can only be "
                f"read. To write, open the table without version=, or make a branch of this "
                f"version, table.branches.create(NAME), and open that: Table.open(path, "
                f"branch=NAME)"
            )

    def refresh(self) -> Snapshot:
        """Move to the latest snapshot of the branch; a table opened at a version can write then."""
        self._version_opened = None
        looked_at = time.monotonic()
        return self._move_to(self._publisher.latest(self._snapshot), seen_at=looked_at)

    def _refresh_for_append(self) -> Snapshot:
        """The same by one look where this snapshot was the latest just now.

        Should the table have been replaced meanwhile, the commit finds out.
        """
        looked_at = time.monotonic()
        newest = self._publisher.latest(self._snapshot, seen_at=self._seen_at)
        return self._move_to(newest, seen_at=looked_at)

    def schemas(self) -> list[TableSchema]:
        """Every version of the schema up to this snapshot's, oldest first."""
        return [self._schemas[number] for number in self._schemas]

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot up to this one that has not expired, oldest first."""
        walked = history.walk(self._store, self._snapshot, branch=self._branch)
        return list(walked)[::-1]

    def history(self, *, limit: int | None = None) -> HistoryLog:
        """What happened, newest first: a dictionary for each snapshot; printed, a readable log.

        Parameters
        ----------
        limit
            At most so many, the newest.
        """
        if limit is not None:
            limit = integer(limit, "limit", minimum=0)
        walked = history.walk(self._store, self._snapshot, branch=self._branch)
        return history_log(itertools.islice(walked, limit))

    def scan(
        self,
        *,
        columns: Sequence[PathLike] | None = None,
        filter: Any = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        as_of: Moment | None = None,
        branch: str | None = None,
        batch_id: int | Iterable[int] | None = None,
        limit: int | None = None,
        schema: Literal["snapshot", "current"] = "snapshot",
        threads: int | None = None,
    ) -> Scan:
        """Ask for rows; nothing is read before the scan is asked for a result.

        Parameters
        ----------
        columns
            Names, names joined by dots, or sequences of names; ``batch_id`` and
            ``index_in_batch`` for files in batch mode; ``_row_id``. None: every column.
        filter
            Anything that `fermion` takes as a filter. The result is exact.
        snapshot_id, tag, as_of, branch
            Another snapshot, with its own schema: by id, by tag, by time (the latest then: a
            datetime, a date, which means its start, a ``numpy.datetime64`` or ISO text, all UTC
            without a zone) or version (``"main~3"``), or the latest of a branch.
        batch_id
            Only rows of this batch, or of these.
        limit
            At most so many rows.
        schema
            What the rows of another snapshot are read under: its own schema, or this table's
            ``current`` one, under whose names and types history looks as if written today.
        threads
            For reading files side by side; None takes the number of processors.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError, TypeError
        VersionNotFound
            Also when it is read after it has expired.
        """
        snapshot = self._version(snapshot_id, tag, as_of, branch)
        same = snapshot is self._snapshot
        schemas = self._schemas if same else SchemaVersions(self._store, snapshot)
        if schema not in ("snapshot", "current"):
            raise InvalidArgumentError(f"schema={schema!r}: expected 'snapshot' or 'current'")
        if schema == "current":
            self._check_related(schemas.current, snapshot)
        shown = schemas.current if schema == "snapshot" else self.schema
        chosen = table_filter(filter, shown, where=self.location)
        if batch_id is not None:
            chosen = both(chosen, _batch_filter(batch_id, shown, self.location))
        return Scan(
            store=self._store,
            snapshot=snapshot,
            schemas=schemas,
            table_schema=shown,
            columns=None if columns is None else check_columns(columns, "columns"),
            filter=chosen,
            limit=limit,
            threads=threads,
        )

    def _version(
        self,
        snapshot_id: int | None,
        tag: str | None,
        as_of: Moment | None,
        branch: str | None,
    ) -> Snapshot:
        if sum(each is not None for each in (snapshot_id, tag, as_of)) > 1:
            raise InvalidArgumentError("snapshot_id, tag and as_of: expected one of them")
        where = branch or self._branch
        if tag is not None:
            tagged = tagged_snapshot(self._store, tag)
            if tagged is None:
                raise missing_name(self._store, "tag", tag)
            return tagged
        if snapshot_id is not None:
            snapshot_id = integer(snapshot_id, "snapshot_id", minimum=0)
            if where == self._branch and snapshot_id == self._snapshot.id:
                return self._snapshot
            return history.load_snapshot(self._store, snapshot_id, branch=where)
        if as_of is not None:
            return snapshot_as_of(self._store, as_of, branch=where)
        if where != self._branch:
            return history.latest(self._store, branch=where)
        return self._snapshot

    def _check_related(self, other: TableSchema, snapshot: Snapshot) -> None:
        """Refuse a snapshot whose schema is no version of this one's: its ids mean other fields."""
        mine = {self._snapshot.schema.hash, *(each.hash for each in self.schema.ancestors)}
        theirs = {snapshot.schema.hash, *(each.hash for each in other.ancestors)}
        if snapshot.schema.hash not in mine and self._snapshot.schema.hash not in theirs:
            raise InvalidArgumentError(
                f"{self.location}: schema='current': the schema of snapshot {snapshot.id} of "
                f"branch {snapshot.branch!r} is neither an earlier nor a later one of this table's"
            )

    def lookup_batch(self, batch_id: int, *, columns: Sequence[PathLike] | None = None) -> pa.Table:
        """All rows of a batch, in their order; none if there is no such batch."""
        number = integer(batch_id, "batch_id")
        return self.scan(batch_id=number, columns=columns).to_arrow()

    def _has_nulls(self, snapshot: Snapshot, schema: TableSchema, path: Path) -> bool:
        """Whether a live row is null at a path of a schema that may not be published yet."""
        return self._has_rows(snapshot, schema, path, lambda known: col(*known).is_null())

    def _exceeds(
        self, snapshot: Snapshot, schema: TableSchema, path: Path, dtype: pa.DataType
    ) -> bool:
        """Whether a live row's value there, or in it, is out of the range of a type of time.

        Of values inside lists and maps only tables without rows prove anything.
        """
        if schema.find(path).children:
            return self._has_rows(snapshot, schema, path, lambda known: True)
        return self._has_rows(snapshot, schema, path, lambda known: beyond(known, dtype))

    def _has_rows(
        self,
        snapshot: Snapshot,
        schema: TableSchema,
        path: Path,
        select: Callable[[Path], Any],
    ) -> bool:
        """Whether a live row is selected by a filter on a path as the snapshot has it."""
        field = schema.find(path)
        schemas = SchemaVersions(self._store, snapshot)
        known = schemas.current.paths.get(field.id)
        if known is None:
            return False  # added in the same update, with a default
        chosen = table_filter(select(known), schemas.current, where=self.location)
        scan = Scan(
            store=self._store,
            snapshot=snapshot,
            schemas=schemas,
            table_schema=schemas.current,
            columns=(),
            filter=chosen,
            limit=1,
        )
        return scan.count() > 0

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check every branch and tag: hashes, parents, files; with ``data`` every checksum.

        Parameters
        ----------
        data
            Without it data files and deletion vectors are measured, not opened: each must be there
            and have its size, which costs a request a file at most. A file that another one of the
            same size has replaced is found with ``data`` only: it opens every data file, compares
            its ``file_id`` and rows with its entry, and reads all of it.
        """
        return verify_table(self._store, data=flag(data, "data"))


def verify_table(store: AtomicStore, *, data: bool = False) -> VerifyReport:
    """Check a table that need not open (see `Table.verify`).

    Raises
    ------
    TableNotFound
        No snapshot at all.
    """
    return verify(store, check_file=partial(_check_file, store) if data else None)


def _batch_filter(
    batch_id: int | Iterable[int], schema: TableSchema, where: str
) -> TableFilter | None:
    if BATCH_ID.name in schema.by_name:
        raise InvalidArgumentError(
            f"{where}: column {BATCH_ID.name!r} hides the batch ids; filter by it instead"
        )
    if isinstance(batch_id, Iterable) and getattr(batch_id, "ndim", True):
        ids = integers(batch_id, "batch_id").tolist()
    else:
        ids = [integer(batch_id, "batch_id")]
    return table_filter(col(BATCH_ID.name).isin(ids), schema, where=where)


def _check_file(store: AtomicStore, entry: Entry) -> list[str]:
    """What is wrong with a data file, in words."""
    try:
        location = SharedFiles(store).data(entry)
        options = fermion.ReadOptions(timeout_s=access_of(store).timeout_s)
        further = options_for(store, location)
        with fermion.open(location, storage_options=further, options=options) as file:
            check_identity(file, entry.file_id, entry.file)
            if file.num_rows != entry.rows:
                return [f"{file.num_rows} rows, the entry says {entry.rows}"]
            return [str(problem) for problem in file.verify().problems]
    except (FermionError, OSError) as error:
        return [str(error)]
