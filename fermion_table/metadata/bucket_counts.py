"""How many buckets the partitions of a primary-key table have: what their files were written with.

The setting ``bucket`` says it for partitions without rows. A partition keeps its number while it
has files: where the setting was changed, writers and readers ask the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fermion_table.errors import CorruptMetadata
from fermion_table.keys.key_changes import bucket_setting
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.schema import TableSchema

BucketCounts = Mapping[tuple[Any, ...], int]
"""Numbers of buckets by partition, as JSON values."""


def bucket_count(entry: Entry, schemas: Mapping[int, TableSchema]) -> int:
    """The number of buckets that a file's partition had when the file was written.

    schemas: Those that files were written with, by id.
    """
    return entry.total_buckets or bucket_setting(schemas[entry.schema_id])


def bucket_counts(
    entries: Iterable[Entry], schemas: Mapping[int, TableSchema]
) -> dict[tuple[Any, ...], int]:
    """The number of buckets of each partition that has files.

    entries: Of a primary-key table.
    Raises CorruptMetadata: Files of one partition were written with different numbers, or a bucket
        is not below it.
    """
    counts: dict[tuple[Any, ...], int] = {}
    settings: dict[int, int] = {}
    for entry in entries:
        count = entry.total_buckets or settings.get(entry.schema_id)
        if count is None:
            count = settings[entry.schema_id] = bucket_count(entry, schemas)
        known = counts.setdefault(entry.partition, count)
        if known != count:
            raise CorruptMetadata(
                entry.file, f"one of {known} buckets, as all of its partition", f"one of {count}"
            )
        if entry.bucket is not None and entry.bucket >= count:
            raise CorruptMetadata(entry.file, f"a bucket below {count}", f"{entry.bucket}")
    return counts


def other_counts(
    live: Iterable[Entry], schemas: Mapping[int, TableSchema], schema: TableSchema
) -> dict[tuple[Any, ...], int]:
    """The partitions that have another number than the setting says.

    live: All files; not looked at where the setting never changed.
    """
    if not schema.bucket_counts:
        return {}
    setting = bucket_setting(schema)
    counts = bucket_counts(live, schemas)
    return {partition: count for partition, count in counts.items() if count != setting}
