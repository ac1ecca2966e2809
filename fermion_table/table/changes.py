"""Methods of `Table` that change rows: overwrite, delete, update, and several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fermion.typing import FilterLike, TableLike
from fermion_table.argument_checks import check_kind, check_kinds
from fermion_table.commit.request import CommitMetadata
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.operations.assignments import Assignment
from fermion_table.operations.found_rows import FoundRows
from fermion_table.operations.row_changes import RowChange
from fermion_table.operations.transaction import Statement, Transaction
from fermion_table.table.inline_compaction import finished, published
from fermion_table.table.state import HasState, TableState
from fermion_table.writing.writer_message import WriterMessage


def transaction(
    self: HasState,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Transaction:
    """Several changes as one snapshot: ``with t.transaction() as tx: tx.append(...); ...``.

    Parameters
    ----------
    message, properties
        For the history.
    commit_user, commit_identifier
        The same pair is committed once.

    Raises
    ------
    InvalidArgumentError
        This object was opened at a tag or an old snapshot.
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    return _begun(self._state, metadata, partial(published, self._state))


def overwrite(
    self: HasState,
    data: TableLike,
    *,
    filter: FilterLike | None = None,
    dynamic: bool = False,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Replace rows by new ones, as one snapshot.

    Rows that other commits append meanwhile are replaced too where they are among the others.

    Parameters
    ----------
    data
        The new rows, from any Arrow producer.
    filter
        Which rows go; None: all. The new ones need not be among those it selects.
    dynamic
        All rows go of those partitions that the new rows fall into.
    message, properties, commit_user, commit_identifier
        See `append`.

    Raises
    ------
    SchemaMismatch, ColumnNotFoundError, InvalidArgumentError
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.overwrite(data, filter=filter, dynamic=dynamic)
    return finished(self._state)


def delete(
    self: HasState,
    filter: FilterLike,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Delete the rows that a filter selects, as one snapshot.

    Files that lose all rows go, by metadata alone where that is certain. Others get a deletion
    vector, or are written again once more than half of their rows are deleted.

    Parameters
    ----------
    filter
        Anything that `fermion` takes as a filter; ``"TRUE"`` selects every row.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if no row was found.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError, CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.delete(filter)
    return finished(self._state)


def update(
    self: HasState,
    filter: FilterLike,
    assignments: Mapping[str, Assignment],
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Set columns of the rows that a filter selects, as one snapshot.

    Parameters
    ----------
    filter
        Anything that `fermion` takes as a filter; ``"TRUE"`` selects every row.
    assignments
        What each column is set to: SQL such as ``"upper(city)"`` (see `SqlExpression`; more than
        a column needs DuckDB), a value (None is null, text as ``fermion_table.lit("Rome")``),
        ``fermion.col("other")``, a ``pyarrow.compute.Expression`` such as ``pc.field("a") + 1``, or
        a function from a record batch of the rows to an array. All see the rows as they were.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if no row was found.

    Raises
    ------
    SchemaMismatch
        A value does not fit its column.
    ColumnNotFoundError, InvalidArgumentError, CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.update(filter, assignments)
    return finished(self._state)


def commit_found(
    self: HasState,
    rows: FoundRows,
    messages: Iterable[WriterMessage] = (),
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Publish rows that an engine has found, as one snapshot: they go, files come; for engines.

    Files that lose all rows go, others get a deletion vector. A commit that came since the rows
    were read is a conflict where it matters to them.

    Parameters
    ----------
    rows
        What was decided.
    messages
        Of writers (`writer_factory`), of all rows that are new or have got other values.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if nothing changed.

    Raises
    ------
    CommitConflict
        Nothing was published, and the files of the messages are deleted.
    TypeError, InvalidArgumentError, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    check_kind(rows, FoundRows, "rows")
    written = check_kinds(messages, WriterMessage, "messages")
    state = self._state
    state.check_writable()
    statement = state.statement(metadata, state.move_to, base=rows.base)
    statement.commit_found(rows, written)
    return finished(state)


def commit_change(table: HasState, change: RowChange, *, message: str) -> Snapshot:
    """Publish one change of rows that other parts of this package define, as one snapshot."""
    state = table._state
    return _begun(state, CommitMetadata(message=message), partial(published, state)).commit_change(
        change
    )


def _begun(
    state: TableState,
    metadata: CommitMetadata,
    moved: Callable[[Snapshot, float | None], object],
) -> Statement:
    """A transaction on the latest snapshot; `moved` is called with the new one."""
    state.check_writable()
    state.refresh()
    return state.statement(metadata, moved)
