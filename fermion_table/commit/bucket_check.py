"""Whether new files of a primary-key table have as many buckets as their partitions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fermion_table.commit.request import NewSchema
from fermion_table.metadata.bucket_counts import bucket_count, bucket_counts
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.schema_store import SchemaVersions
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.live_files import LiveFiles
from fermion_table.schema.schema import TableSchema, decode_schema
from fermion_table.storage.store import AtomicStore


def bucket_conflict(
    store: AtomicStore,
    base: Snapshot,
    added: Sequence[Entry],
    removed: AbstractSet[str],
    schema: NewSchema | None,
) -> str | None:
    """Why files can't be added to a snapshot; None if they can.

    Metadata is read only if the setting ``bucket`` of the table was changed.

    Parameters
    ----------
    added
        The new files.
    removed
        Files that go in the same commit.
    schema
        That the commit brings.
    """
    new = [entry for entry in added if entry.bucket is not None]
    versions = SchemaVersions(store, base)
    if not new or not versions.current.bucket_counts:
        return None
    brought: dict[int, TableSchema] = {}
    if schema is not None:
        brought[schema.id] = decode_schema(schema.data, f"schema {schema.id}")
    schemas = ChainMap(brought, versions)  # type: ignore[arg-type]  # only read
    touched = {entry.partition for entry in new}
    counts = bucket_counts(
        (
            entry
            for entry in LiveFiles(store, base.tail, base.manifests).entries(statistics=False)
            if entry.partition in touched and entry.file not in removed
        ),
        schemas,
    )
    for entry in new:
        count = bucket_count(entry, schemas)
        known = counts.setdefault(entry.partition, count)
        if known != count:
            where = f"partition {list(entry.partition)}" if entry.partition else "the table"
            return (
                f"{where} has {known} buckets, and the new files were written for {count}, as "
                "another commit wrote the first rows there, or overwrote them, meanwhile"
            )
    return None
