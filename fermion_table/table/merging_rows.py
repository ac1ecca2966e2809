"""The method of `Table` that merges rows of a source into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from fermion.typing import TableLike
from fermion_table.argument_checks import check_schema_mode
from fermion_table.commit.request import CommitMetadata
from fermion_table.operations.merge import Merge, MergeBuilder, MergeResult
from fermion_table.table.inline_compaction import published
from fermion_table.table.state import HasState
from fermion_table.writing.incoming_rows import with_options


def merge(
    self: HasState,
    source: TableLike,
    on: Any,
    *,
    schema_mode: Literal["merge"] | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> MergeBuilder:
    """Merge rows of a source into the table: update, delete and insert, as one snapshot.

    ``t.merge(changes, on=["id"]).when_matched_update().when_not_matched_insert().execute()``

    Of the table only the columns of ``on`` are read, those that conditions and values name, and
    of rows that are updated those that stay. The source is held in memory.

    In a table with a primary key, rows are written again by key. With ``on`` the primary key and
    the two clauses above, without conditions and values, the merge is an upsert (`upsert`): it
    reads nothing, and never conflicts with other upserts. Inserts need an ``on`` of columns of the
    primary key; updates do not set those. A ``sequence.field`` keeps its
    meaning: a row that is older than the table's loses. Merge engines other than ``deduplicate``
    take no updates and deletes unless they remove rows that are deleted.

    Parameters
    ----------
    source
        Any Arrow producer.
    on
        Columns whose values are equal in rows that match: names that both sides have, or a mapping
        from columns of the table to those of the source. Null matches nothing; NaN matches NaN,
        and -0.0 matches 0.0. Values of the source are cast to the table's types; those that do
        not fit are an error.
    schema_mode
        ``merge`` adds columns of the source to the table, in the same snapshot, where a clause
        takes every column: those that the table lacks and that no condition or value names.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    MergeBuilder
        Add clauses to it, and call its ``execute()``, which gives a `MergeResult`.

    Raises
    ------
    ColumnNotFoundError
        A column of `on` is not there.
    SchemaMismatch
        Its types on both sides do not fit.
    TypeError, InvalidArgumentError
        Names the parameter that is wrong.
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    merges = check_schema_mode(schema_mode) is not None
    state = self._state
    state.check_writable()
    state.refresh()

    def run(change: Merge) -> MergeResult:
        state.check_writable()
        state.refresh()
        return state.statement(metadata, partial(published, state)).commit_merge(change)

    source = with_options(source, state.store.location, state.store.storage_options)
    return MergeBuilder(source, on, state.schema, run, state.publisher if merges else None)
