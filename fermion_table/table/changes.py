"""Methods of `Table` that change rows: overwrite, delete, update, and several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fermion_table.changes.assignments import Assignment
from fermion_table.changes.transaction import Transaction
from fermion_table.commit.request import CommitMetadata
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.table.inline_compaction import finished, published
from fermion_table.table.state import HasState, TableState


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
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    return _begun(self._state, metadata, partial(published, self._state))


def overwrite(
    self: HasState,
    data: Any,
    *,
    filter: Any = None,
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
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.overwrite(data, filter=filter, dynamic=dynamic)
    return finished(self._state)


def delete(
    self: HasState,
    filter: Any,
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
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.delete(filter)
    return finished(self._state)


def update(
    self: HasState,
    filter: Any,
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
        What each column is set to: a value (None is null), ``fermion.col("other")``, a
        ``pyarrow.compute.Expression`` such as ``pc.field("a") + 1``, or a function from a
        record batch of the rows to an array. All see the rows as they were.
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
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    with _begun(self._state, metadata, self._state.move_to) as changes:
        changes.update(filter, assignments)
    return finished(self._state)


def _begun(
    state: TableState,
    metadata: CommitMetadata,
    moved: Callable[[Snapshot, float | None], object],
) -> Transaction:
    """A transaction on the latest snapshot; `moved` is called with the new one."""
    state.check_writable()
    base = state.refresh()
    return Transaction(state.publisher, base, metadata=metadata, published=moved)
