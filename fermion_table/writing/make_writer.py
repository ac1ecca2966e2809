"""The writer of a table: one that merges by the primary key, or one that appends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fermion_table.metadata.bucket_counts import BucketCounts
from fermion_table.metadata.manifest import KnownBlobs
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_writer import DataWriter
from fermion_table.writing.key_writer import KeyWriter
from fermion_table.writing.writer_message import WriteSettings

TableWriter = DataWriter | KeyWriter
"""What writes the files of a table: of one with a primary key a `KeyWriter`."""


def make_writer(
    store: AtomicStore,
    schema: TableSchema,
    *,
    settings: WriteSettings | None = None,
    table_uuid: str = "",
    base_id: int | None = None,
    branch: str = MAIN,
    owned: OwnedFiles | None = None,
    bucket_counts: BucketCounts | None = None,
    known_blobs: KnownBlobs | None = None,
) -> TableWriter:
    """Make the writer of a table.

    store, schema, settings, table_uuid, base_id, branch, owned: See `DataWriter`.
    bucket_counts: See `KeyWriter`.
    known_blobs: See `DataFiles`.
    """
    kind: Callable[..., TableWriter] = KeyWriter if has_buckets(schema) else DataWriter
    if has_buckets(schema) and bucket_counts:
        kind = partial(KeyWriter, bucket_counts=bucket_counts)
    if known_blobs is not None:
        kind = partial(kind, known_blobs=known_blobs)
    return kind(
        store,
        schema,
        settings=settings,
        table_uuid=table_uuid,
        base_id=base_id,
        branch=branch,
        owned=owned,
    )


def write_changes(
    writer: TableWriter, data: Any, change_type: str | None, *, copy: bool = True
) -> None:
    """Give rows to a writer; only one that merges by the primary key takes change types.

    Parameters
    ----------
    copy
        As of the writer's ``write``.
    """
    if isinstance(writer, KeyWriter):
        writer.write(data, change_type, copy=copy)
    else:
        writer.write(data, copy=copy)
