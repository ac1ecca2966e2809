"""Methods of `Table` that read: scans, the rows of a batch, the history."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from fermion.arguments import integer, integers
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.options import BlobForm
from fermion_table.argument_checks import check_columns
from fermion_table.metadata import history as stored_history
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import (
    Version,
    check_version,
    find_recorded,
    resolve_version,
    snapshot_as_of,
    snapshot_of_tag,
)
from fermion_table.moments import Moment
from fermion_table.planning.filters import batch_filter, both, table_filter
from fermion_table.scanning.scan import Scan, ScanMode
from fermion_table.schema.schema import PathLike, TableSchema
from fermion_table.table.state import HasState, TableState

if TYPE_CHECKING:
    from fermion.engine import VariantValue, WebPage
    from fermion.typing import FilterLike, KeysLike
    from fermion_table.change_feed import change_plan, changes
    from fermion_table.inspection import history_log
    from fermion_table.merging import key_values
else:  # a scan needs none of them
    change_plan = LoadedWhenAskedFor("fermion_table.change_feed.change_plan")
    changes = LoadedWhenAskedFor("fermion_table.change_feed.changes")
    history_log = LoadedWhenAskedFor("fermion_table.inspection.history_log")
    key_values = LoadedWhenAskedFor("fermion_table.merging.key_values")


def schemas(self: HasState) -> list[TableSchema]:
    """Every version of the schema up to this snapshot's, oldest first."""
    versions = self._state.schemas
    return [versions[number] for number in versions]


def snapshots(self: HasState) -> list[Snapshot]:
    """Every snapshot up to this one that has not expired, oldest first."""
    state = self._state
    return list(stored_history.walk(state.store, state.snapshot, branch=state.branch))[::-1]


def history(self: HasState, *, limit: int | None = None) -> history_log.HistoryLog:
    """The history, newest snapshot first: one dictionary per snapshot; `str` formats it as a log.

    ``changes`` names the columns and properties that a commit changed, as far as the snapshot
    before is still there.

    Parameters
    ----------
    limit
        At most so many, the newest.
    """
    if limit is not None:
        limit = integer(limit, "limit", minimum=0)
    state = self._state
    walked = stored_history.walk(state.store, state.snapshot, branch=state.branch)
    return history_log.history_log(state.store, state.branch, itertools.islice(walked, limit))


def history_html(self: HasState, *, limit: int | None = None) -> str:
    """A web page with the history of all branches: a graph, sizes over time, and all snapshots.

    It is complete in itself: no other file and no network is needed to open it. Of a primary-key
    table it also shows the levels of each bucket at this snapshot.

    Parameters
    ----------
    limit
        At most so many snapshots of each branch, the newest.

    Raises
    ------
    InvalidArgumentError, TypeError, VersionNotFound
    """
    if limit is not None:
        limit = integer(limit, "limit", minimum=1)
    from fermion_table.inspection.history_map import history_page  # rarely asked for

    state = self._state
    return history_page(state.store, state.snapshot, state.branch, limit=limit)


def show(self: HasState, *, rows: int = 20, snapshots: int = 20) -> WebPage:
    """A web page of the table: first rows, columns with statistics, and what commits changed.

    A notebook shows it; ``show().save("table.html")`` writes it as one file that needs no network.
    Of each of the last commits it has the first rows that it changed, and the calls that read its
    snapshot, undo it or go back to it. Rows of commits to very large files are not compared.

    Parameters
    ----------
    rows
        How many are shown, of the table and of each commit.
    snapshots
        How many commits are shown, the newest.

    Raises
    ------
    InvalidArgumentError, TypeError, VersionNotFound
    """
    rows = integer(rows, "rows", minimum=0)
    snapshots = integer(snapshots, "snapshots", minimum=1)
    from fermion_table.inspection.table_page import table_page  # rarely asked for

    return table_page(scan(self), self._state.branch, rows=rows, snapshots=snapshots)


def scan(
    self: HasState,
    *,
    columns: Sequence[PathLike | VariantValue] | None = None,
    filter: FilterLike | None = None,
    version: Version | None = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of: Moment | None = None,
    branch: str | None = None,
    batch_id: int | Iterable[int] | None = None,
    limit: int | None = None,
    schema: Literal["snapshot", "current"] = "snapshot",
    mode: ScanMode = "snapshot",
    blobs: BlobForm = "bytes",
    threads: int | None = None,
) -> Scan:
    """Plan to read rows; nothing is read before a result is requested.

    Parameters
    ----------
    columns
        Names, patterns (``"f_*"``: ``*`` is any text), names joined by dots, or sequences of names;
        parts of Variant columns, as a file's ``read`` takes them; ``batch_id`` and
        ``index_in_batch`` for files in batch mode; ``_row_id``, or `TableSchema.row_id_name` where
        the table has a column of this name. None: every column.
    filter
        Anything that `fermion` takes as a filter. The result is exact.
    version
        Another snapshot, with its own schema, as `Table.open` takes it: an id, a tag, a branch,
        ``"main~3"`` or a time.
    snapshot_id, tag, as_of, branch
        The same by what it is: by id, by tag, by time (the latest then: a
        datetime, a date, which means its start, a ``numpy.datetime64`` or ISO text, all UTC
        without a zone) or version (``"main~3"``), or the latest of a branch.
    batch_id
        Only rows of this batch, or of these.
    limit
        At most so many rows.
    schema
        What the rows of another snapshot are read under: its own schema, or this table's
        ``current`` one, under whose names and types history looks as if written today. What a
        snapshot had dropped is null there, or has its default, though its files may hold it still.
    mode
        Of a table with a primary key: ``snapshot``, the rows that its merge engine makes, or
        ``read_optimized``, only what was compacted to the highest level of each tree (with
        deletion vectors: to any), without merging; `Scan.explain` says how many newer rows are left
        out. With ``deletion_vectors.merge_on_read=false`` both show what was compacted. Other
        tables show all rows in both.
    blobs
        What comes of blob columns (field metadata ``fermion:blob=true``): their ``bytes``, or
        ``handles``, whose ``to_pylist()`` gives a `fermion.blobs.Handle` for each value, which
        reads it, or a range of it, when it is asked to.
    threads
        For reading files side by side; None takes the number of processors.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError, TypeError
    VersionNotFound
        Also when it is read after it has expired.
    """
    state = self._state
    snapshot = _snapshot_to_scan(state, version, snapshot_id, tag, as_of, branch)
    same = snapshot is state.snapshot
    versions = state.schemas if same else SchemaVersions(state.store, snapshot)
    if schema not in ("snapshot", "current"):
        raise InvalidArgumentError(f"schema={schema!r}: expected 'snapshot' or 'current'")
    if schema == "current":
        _check_related(state, versions.current, snapshot)
    shown = versions.current if schema == "snapshot" else state.schema
    chosen = table_filter(filter, shown, where=state.location)
    if batch_id is not None:
        chosen = both(chosen, batch_filter(batch_id, shown, where=state.location))
    return Scan(
        store=state.store,
        snapshot=snapshot,
        schemas=versions,
        table_schema=shown,
        columns=None if columns is None else check_columns(columns, "columns"),
        filter=chosen,
        limit=limit,
        mode=mode,
        blobs=_blob_form(blobs),
        threads=threads,
    )


def lookup(
    self: HasState,
    keys: KeysLike,
    *,
    columns: Sequence[PathLike | VariantValue] | None = None,
    snapshot_id: int | None = None,
    blobs: BlobForm = "bytes",
) -> pa.Table:
    """Read the rows that have some primary keys.

    Files whose key ranges hold none of the keys are not opened. Of others the key's columns are
    searched, and the pages are read that hold the rows. This object keeps some files open, and
    their keys in memory, for the next lookup. What is found is what a scan shows.

    Parameters
    ----------
    keys
        Of a key of one column an array, a series or a list of values; of any key Arrow data, a
        data frame or a dictionary with the key's columns (others are ignored), or a list of tuples
        in the key's order or of dictionaries.
    columns, blobs
        As in `scan`.
    snapshot_id
        Another snapshot, with its own schema.

    Returns
    -------
    pa.Table
        In the order of the keys. A key without a row is left out; one that is asked for several
        times gives its row each time.

    Raises
    ------
    TypeError
        Keys of another kind.
    InvalidArgumentError
        The rows of the table are not merged by key; or a key with a null, without one of its
        columns, or whose value does not fit its column exactly.
    ColumnNotFoundError
    VersionNotFound
        The snapshot has expired.
    """
    asked = scan(self, columns=columns, snapshot_id=snapshot_id, blobs=blobs)
    if asked.key is None:
        raise InvalidArgumentError(
            f"{asked.store.location}: lookup needs a primary-key table, and this is an append "
            "table: use scan(filter=...), or lookup_batch(...) for rows of a batch"
        )
    return self._state.lookups.find(asked, key_values.key_rows(keys, asked.key))


def rows_at(
    self: HasState,
    positions: Sequence[int] | np.ndarray | pa.Array,
    *,
    columns: Sequence[PathLike | VariantValue] | None = None,
) -> pa.Table:
    """Rows by their positions in the snapshot that this object sees, in any order, with repeats.

    A position is the number of a row in the order of a scan without a filter, from 0 to `count`,
    exclusive. It stays what it is as long as this object sees that snapshot. Files stay open from
    one call to the next, and only the pages are read that hold a row: so a map-style dataset of
    PyTorch or of Grain reads a table. In a primary-key table rows that are yet to be merged are
    merged at the first call, into local files without a name.

    Parameters
    ----------
    positions
        Integers.
    columns
        As in `scan`.

    Raises
    ------
    ColumnNotFoundError
    TypeError
        No integers.
    InvalidArgumentError
        A position that no row has.
    VersionNotFound
        The snapshot has expired.
    """
    from fermion_table.scanning.training_blocks import PositionReader  # few need it

    wanted = integers(positions, "positions")
    state = self._state
    chosen = None if columns is None else check_columns(columns, "columns")
    key = state.snapshot.hash, chosen
    reader = state.positions.get(key)
    if reader is None:
        reader = PositionReader(scan(self, columns=chosen))
        state.positions.put(key, reader)
    rows: pa.Table = reader.take(wanted)
    return rows


def lookup_batch(
    self: HasState, batch_id: int, *, columns: Sequence[PathLike] | None = None
) -> pa.Table:
    """Read all rows of a batch, in order; none if there is no such batch."""
    number = integer(batch_id, "batch_id")
    return scan(self, batch_id=number, columns=columns).to_arrow()


def scan_changes(
    self: HasState,
    start: Version,
    end: Version | None = None,
    *,
    columns: Sequence[PathLike | VariantValue] | None = None,
    filter: FilterLike | None = None,
    blobs: BlobForm = "bytes",
    threads: int | None = None,
) -> changes.ChangeScan:
    """Read the rows that commits added and removed.

    Beside the selected columns come ``_change_type`` (``insert`` or ``delete``),
    ``_commit_version`` (the snapshot's id) and ``_commit_timestamp``. Compactions change no
    rows. Rows that a commit carries over from one file to another are left out; they are told
    by the selected columns.

    Of a primary-key table each commit gives the keys whose rows it changed, as the state before
    and the state after show them: ``_change_type`` is ``insert``, ``delete``, or
    ``update_preimage`` and ``update_postimage`` for the row before and after an update. A filter
    selects rows of both states. With ``deletion_vectors.merge_on_read=false`` compactions change
    rows: they show those that were written before.

    Where such a table has a ``changelog_producer``, the changes that commits recorded are read:
    with ``input`` the rows of each commit as writers were given them; with ``lookup`` and
    ``full_compaction`` the changes of what compactions merged, as those of the compaction, and
    after them, as changes of the end, those of rows that are not compacted yet. What no commit has
    recorded is compared as without a producer. Replaying the changes on the rows of the start
    gives the rows of the end; with ``input`` by the merge engine.

    Parameters
    ----------
    start, end
        Versions, start exclusive and end inclusive; None: the snapshot that this object sees. Ids
        of expired snapshots, too, as long as changelogs tell of all changes.
    columns, filter, blobs, threads
        As in `scan`, under the schema of the end. With ``blobs="handles"`` a value that was written
        again is another one, even if its bytes are the same.

    Raises
    ------
    InvalidArgumentError
        The end does not descend from the start; a repair between them left out files that were
        missing; or, when it is read, a table with another primary key was replaced between them.
    VersionNotFound
        Snapshots between them have expired, and changelog files do not tell of all their changes.
    """
    state = self._state
    start = check_version(start, "start")
    chosen = None if columns is None else check_columns(columns, "columns")
    last, branch = state.snapshot, state.branch
    if end is not None:
        last, branch = find_recorded(state.store, check_version(end, "end"), branch=branch)
    first, _ = find_recorded(state.store, start, branch=branch)
    versions = SchemaVersions(state.store, last)
    return changes.ChangeScan(
        store=state.store,
        snapshot=last,
        schemas=versions,
        start=first,
        snapshots=tuple(change_plan.commits_between(state.store, first, last, branch=branch)),
        columns=chosen,
        filter=table_filter(filter, versions.current, where=state.location),
        blobs=_blob_form(blobs),
        threads=threads,
    )


def _blob_form(blobs: BlobForm) -> BlobForm:
    if not isinstance(blobs, str) or blobs not in ("bytes", "handles"):
        raise InvalidArgumentError(f"blobs={blobs!r}: expected 'bytes' or 'handles'")
    return "handles" if blobs == "handles" else "bytes"  # a text of NumPy is of another class


def _snapshot_to_scan(
    state: TableState,
    version: Version | None,
    snapshot_id: int | None,
    tag: str | None,
    as_of: Moment | None,
    branch: str | None,
) -> Snapshot:
    if sum(given is not None for given in (version, snapshot_id, tag, as_of)) > 1:
        raise InvalidArgumentError("version, snapshot_id, tag and as_of: expected one of them")
    branch = branch or state.branch
    if version is not None:
        snapshot = resolve_version(state.store, check_version(version, "version"), branch=branch)
        return state.snapshot if snapshot.hash == state.snapshot.hash else snapshot
    if tag is not None:
        return snapshot_of_tag(state.store, tag)
    if snapshot_id is not None:
        snapshot_id = integer(snapshot_id, "snapshot_id", minimum=0)
        if branch == state.branch and snapshot_id == state.snapshot.id:
            return state.snapshot
        return stored_history.load_snapshot(state.store, snapshot_id, branch=branch)
    if as_of is not None:
        return snapshot_as_of(state.store, as_of, branch=branch)
    if branch != state.branch:
        return stored_history.latest(state.store, branch=branch)
    return state.snapshot


def _check_related(state: TableState, other: TableSchema, snapshot: Snapshot) -> None:
    """Refuse a snapshot whose schema is no version of this one's: its ids mean other fields."""
    mine = {state.snapshot.schema.hash, *(version.hash for version in state.schema.ancestors)}
    theirs = {snapshot.schema.hash, *(version.hash for version in other.ancestors)}
    if snapshot.schema.hash not in mine and state.snapshot.schema.hash not in theirs:
        raise InvalidArgumentError(
            f"{state.location}: schema='current': the schema of snapshot {snapshot.id} of "
            f"branch {snapshot.branch!r} is neither an earlier nor a later one of this table's"
        )
