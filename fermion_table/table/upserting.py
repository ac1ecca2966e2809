"""Methods of `Table` that write by primary key, without reading: upserts and deletions of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fermion.typing import KeysLike, TableLike
from fermion_table.argument_checks import check_schema_mode
from fermion_table.commit.request import CommitMetadata
from fermion_table.merging.primary_key import required_key
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.table.appending import appending
from fermion_table.table.inline_compaction import finished
from fermion_table.table.state import HasState
from fermion_table.writing.debezium import changes_in


def upsert(
    self: HasState,
    data: TableLike,
    *,
    change_type: str | None = None,
    format: Literal["debezium"] | None = None,
    schema_mode: Literal["merge"] | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Insert rows, or replace those that have their keys, as one snapshot.

    Nothing is read: rows of one key are merged when they are read, and by compaction. So upserts
    never conflict with each other. On a table with a primary key `append` does the same.

    Parameters
    ----------
    data
        Columns are matched by name and cast where no value changes; missing nullable ones
        are null. The last row of a key is the newest.
    change_type
        The column of the data that says what each row is: ``insert``, ``update_preimage``,
        ``update_postimage`` or ``delete``, or ``+I``, ``-U``, ``+U``, ``-D``. It is not stored.
        None: all rows are insertions.
    format
        ``debezium``: the data are changes as Debezium gives them, whose column ``op`` (or
        ``change_type``) is ``c``, ``r``, ``u`` or ``d``. The row is in the structs ``before`` and
        ``after``, also within a struct ``payload``, or in columns beside ``op``. Tombstones are
        left out.
    schema_mode
        ``merge`` adds the data's unknown columns to the schema in the same snapshot.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if there are no rows (see `append`).

    Raises
    ------
    SchemaMismatch
        The data does not fit the table's schema, or a value of the key is null.
    InvalidArgumentError
        The table has no primary key by which rows are merged; or an unknown change type, or one
        that the table's merge engine does not take.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    state = self._state
    state.check_writable()
    merges = check_schema_mode(schema_mode) is not None
    state.refresh_for_append()
    required_key(state.schema, state.store.location, "upsert")
    data, change_type = changes_in(data, change_type, format, state.schema)
    with appending(state, metadata) as transaction:
        if merges:
            transaction.append_merging(data, change_type)
        else:
            transaction.upsert(data, change_type=change_type)
    return finished(state)


def delete_keys(
    self: HasState,
    keys: KeysLike,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Delete the rows of keys, as one snapshot.

    Nothing is read: whether there is a row of a key does not matter. Other columns of the
    deletions are null, or 0, empty or false where they must not be null.

    Parameters
    ----------
    keys
        Arrow data, a data frame or a dictionary with the key's columns; of a key of one column
        also an array or a list of values; of any key a list of tuples in the key's order, or of
        dictionaries. Where sequence fields order the rows of a key, their values are needed too,
        in tuples after those of the key.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if there are no keys.

    Raises
    ------
    TypeError
        Neither Arrow data nor a list of keys.
    InvalidArgumentError
        The table has no primary key by which rows are merged, or a merge engine that deletes no
        rows by their keys; or a column of the key is missing, or has a null or another value that
        does not fit.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    state = self._state
    state.check_writable()
    state.refresh_for_append()
    with appending(state, metadata) as transaction:
        transaction.delete_keys(keys)
    return finished(state)
