"""The files of a table, and files that it should not name."""

from __future__ import annotations

import os

import msgspec

from fermion_table import Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.metadata.manifest import DeletionVector
from fermion_table.metadata.manifest_store import live_entries


def stored_files(table: Table) -> set[str]:
    return {item.path for folder in ("data", "deletion") for item in table.store.list(folder)}


def live_files(table: Table) -> set[str]:
    found = set()
    for entry in table.scan().entries[0]:
        found.add(entry.path)
        if entry.deletion_vector is not None:
            found.add(entry.deletion_vector.path)
    return found


def naming(table: Table, location: str, *, vector: DeletionVector | None = None) -> Table:
    """The table with one more entry, which names a location, as whoever writes its metadata can."""
    (entry,) = live_entries(table.store, table.snapshot)[:1]
    hostile = msgspec.structs.replace(
        entry,
        path="",
        external_path=location,
        deletion_vector=vector,
        size=os.path.getsize(location) if os.path.isfile(location) else entry.size,
        rows=3,
        stats={},
        file_id=None,
        sequence_start=None,
        row_id_base=None,
        added_snapshot=None,
    )
    request = CommitRequest(kind="append", added=[hostile], base=table.snapshot)
    commit(table.store, request)
    return Table.open(
        table.location, durability="fast", storage_options=table.store.storage_options
    )
