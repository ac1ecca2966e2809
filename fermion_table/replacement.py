"""Replacing a table: another schema and no rows, as the next snapshot of its history."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fermion_table.commit import commit
from fermion_table.commit_request import CommitRequest, NewSchema
from fermion_table.conflict import Redo
from fermion_table.errors import CommitConflict
from fermion_table.manifest_store import live_entries
from fermion_table.publishing import Publisher
from fermion_table.schema import TableSchema, encode_schema
from fermion_table.snapshot import Snapshot


def replace_table(
    publisher: Publisher,
    known: Snapshot,
    make_schema: Callable[[int], TableSchema],
    *,
    message: str | None = None,
) -> Snapshot:
    """Give a table another schema, and remove all of its rows; earlier snapshots stay.

    Parameters
    ----------
    known
        A snapshot of the table.
    make_schema
        Makes the schema with field ids greater than the one given, so that none is used again.

    Raises
    ------
    CommitConflict, CommitStateUnknown
    """

    def change(schema: TableSchema) -> TableSchema:
        return msgspec.structs.replace(
            make_schema(schema.last_field_id),
            id=schema.id,
            ancestors=schema.ancestors,
            time_ms=schema.time_ms,
        )

    def request_on(base: Snapshot) -> CommitRequest:
        made = publisher.changed_schema(base, [change])
        if made is None:
            raise CommitConflict(f"{publisher.store.location}: the new schema is the old one")
        return CommitRequest(
            kind="overwrite",
            removed=live_entries(publisher.store, base),
            schema=NewSchema(made.id, encode_schema(made)),
            base=base,
            message=message,
        )

    def redo(base: Snapshot, verdict: Redo) -> CommitRequest:
        return request_on(base)

    first = request_on(publisher.latest(known))
    return commit(publisher.store, first, branch=publisher.branch, redo=redo)
