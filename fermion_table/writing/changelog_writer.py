"""Writes changelog files: changes of rows of one tree, in the order of time, each with its kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.metadata.manifest import Entry, KnownBlobs
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.data_files import DataFiles, OpenFile
from fermion_table.writing.incoming_rows import Partition
from fermion_table.writing.tree_writer import KIND_FIELD, with_kinds
from fermion_table.writing.writer_message import WriteSettings

Changes = tuple[pa.RecordBatch, np.ndarray | None]
"""Rows with all of the table's columns, and their kinds; None: all are insertions."""


class ChangelogWriter:
    """Writes changelog files.

    owned: Whose the files are, to delete after an error.
    known_blobs: See `DataFiles`.
    """

    def __init__(
        self,
        owned: OwnedFiles,
        schema: TableSchema,
        *,
        settings: WriteSettings | None = None,
        known_blobs: KnownBlobs | None = None,
    ) -> None:
        changes = replace(settings or WriteSettings(), source="changelog")
        self._files = DataFiles(owned, schema, changes, known_blobs=known_blobs)

    def write(
        self,
        partition: Partition,
        bucket: int,
        changes: Iterable[Changes],
        *,
        sequence_offset: int = 0,
        total_buckets: int | None = None,
    ) -> list[Entry]:
        """Write changes of a tree.

        changes: In the order of time.
        Returns: Of the files, in the order of time; empty if there are no changes.
        """
        entries: list[Entry] = []
        current: OpenFile | None = None
        retractions = 0

        def close(file: OpenFile) -> None:
            entry = self._files.close(file)
            entries.append(
                msgspec.structs.replace(
                    entry,
                    bucket=bucket,
                    retractions=retractions,
                    sequence_offset=sequence_offset,
                    total_buckets=total_buckets,
                    stats={},
                )
            )

        for rows, given in changes:
            if not rows.num_rows:
                continue
            kinds = np.zeros(rows.num_rows, np.int8) if given is None else given
            if current is not None and self._files.room(current, rows) <= 0:
                close(current)
                current, retractions = None, 0
            if current is None:
                current = self._files.open(
                    partition, bucket=bucket, hidden=KIND_FIELD, is_changelog=True
                )
            raw_bytes = rows.nbytes
            if current.blobs is not None:
                rows = current.blobs.placed(rows)
            current.writer.write(with_kinds(rows, kinds), copy=False)
            self._files.count(current, rows.num_rows, raw_bytes)
            retractions += int(is_retraction(kinds).sum())
        if current is not None:
            close(current)
        return entries
