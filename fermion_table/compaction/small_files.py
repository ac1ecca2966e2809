"""Compaction: many small files of a partition become few. Planning is pure; a group is one task.

A group's rows keep their order, and its batches stay whole under their ids. The compactor always
yields: a group whose inputs another commit removed is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fermion.arguments import integer
from fermion.engine import joined_batches
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.compaction.task import (
    CompactionGroup,
    CompactionMessage,
    CompactionTask,
    slim,
)
from fermion_table.metadata.history import SchemaVersions, expiry_guard
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.options import OPEN_COST_BYTES
from fermion_table.planning.plan import splits_of
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import known_blobs, whole_row_reader, write_again
from fermion_table.schema.properties import COLUMN_FILES_DEFAULT
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.sorting import parse_order, sorted_rows
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_writer import DataWriter
from fermion_table.writing.writer_message import WriteSettings

SMALL_FRACTION = 0.7
"""Files below this part of the target size are worth compacting."""
JOINED_BYTES_MAX = 128 * 1024 * 1024
"""Rows of small files are joined in memory up to so many bytes, which a stripe may have, too."""
JOINED_BATCH_BYTES_MAX = 16 * 1024 * 1024
JOINED_BATCH_ROWS_MAX = 8_192
"""Batches of more bytes or rows are written as they come."""
SORTED_GROUP_FILES = 4
"""Files of the target size that a group becomes when it is sorted."""
DELETED_FRACTION = 0.2
"""So are files of whose rows more than this part is deleted."""
GROUP_COST_BYTES_MAX = 1024 * OPEN_COST_BYTES
"""A group ends when opening its files costs as much as reading so many bytes."""


def plan_compaction(
    entries: Sequence[Entry],
    *,
    target_bytes: int,
    min_input_files: int = 2,
    is_sorting: bool = False,
    column_files_max: int = COLUMN_FILES_DEFAULT,
    moved_blobs: frozenset[str] = frozenset(),
) -> list[CompactionGroup]:
    """Which files to compact together.

    entries: Live files, in the order in which their rows are read. Groups take neighbours in that
        order, so that values which came together stay together.
    target_bytes: What a file should have; a group ends once it has that much.
    min_input_files: Smaller groups are left alone, unless many of their rows are deleted, or they
        have many column files.
    is_sorting: Whether groups will be sorted: then big files take part, and groups are bigger, as
        rows only move within a group.
    column_files_max: A file that has more column files is written again, with all columns in it.
    moved_blobs: So is a file that refers to one of these blob files (see `dead_blob_files`).
    """

    def is_due(entry: Entry) -> bool:
        return (
            _is_worn(entry)
            or len(entry.column_files) > column_files_max
            or any(each.name in moved_blobs for each in entry.blob_files)
        )

    min_input_files = integer(min_input_files, "min_input_files")
    if min_input_files < 2:
        raise InvalidArgumentError(f"min_input_files={min_input_files}: expected at least 2")
    kinds: dict[Any, list[Entry]] = {}
    for entry in entries:
        if is_sorting or is_due(entry) or entry.bytes < SMALL_FRACTION * target_bytes:
            kind = entry.partition, entry.bucket, entry.level, entry.batch is None
            kinds.setdefault(kind, []).append(entry)
    group_bytes = target_bytes * (SORTED_GROUP_FILES if is_sorting else 1)
    groups = [group for kind in kinds.values() for group in _groups(kind, group_bytes)]
    return [
        group
        for group in groups
        if len(group.entries) >= min_input_files or any(map(is_due, group.entries))
    ]


def plan_newest(
    entries: Sequence[Entry], *, files_min: int, target_bytes: int
) -> list[CompactionGroup]:
    """Which of the newest files of each partition their writer merges.

    Files have a level, the logarithm of their rows to the base `files_min`. Where so many of one
    level are at the end of a partition, with smaller ones between and after them, all of these
    become one file, of a higher level: a row is written again once a level at most, and only
    neighbours move together. Files with batches and others are no neighbours.

    entries: Live files, in the order in which their rows are read.
    target_bytes: What a file should have; of those with a `files_min`-th of it no more are merged.
    """
    partitions: dict[Any, list[Entry]] = {}
    for entry in entries:
        partitions.setdefault(entry.partition, []).append(entry)
    found = []
    for listed in partitions.values():
        count = _count_newest(listed, files_min, target_bytes // files_min)
        found += [CompactionGroup(tuple(listed[-count:]))] if count else []
    return found


def _count_newest(entries: Sequence[Entry], files_min: int, bytes_max: int) -> int:
    """How many of the last files are merged; 0: none."""
    merged, level, alike, rows = 0, 0, 0, 0
    for place, entry in enumerate(reversed(entries)):
        own = _level(entry.live_rows, files_min)
        if entry.bytes >= bytes_max or (entry.batch is None) != (entries[-1].batch is None):
            break
        if own > level:
            level, alike = own, 0
        alike += own == level
        rows += entry.live_rows
        if alike >= files_min or (own < level and merged == place > 0):
            # What is merged so far counts as one file from here on, and takes smaller ones along.
            merged, level, alike = place + 1, _level(rows, files_min), 1
    return merged


def _level(rows: int, base: int) -> int:
    """The logarithm of a number of rows, rounded down."""
    level = 0
    while rows >= base:
        rows, level = rows // base, level + 1
    return level


def _is_worn(entry: Entry) -> bool:
    """Whether a file is worth rewriting for its deleted rows alone."""
    return entry.delete_rows > DELETED_FRACTION * entry.rows


def _groups(entries: Iterable[Entry], target_bytes: int) -> Iterator[CompactionGroup]:
    group: list[Entry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += entry.bytes * entry.live_rows // max(entry.rows, 1)
        if size >= target_bytes or len(group) * OPEN_COST_BYTES >= GROUP_COST_BYTES_MAX:
            yield CompactionGroup(tuple(group))
            group, size = [], 0
    if group:
        yield CompactionGroup(tuple(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFilesTask(CompactionTask):
    """One group and all that is needed to rewrite it, on any machine. Picklable.

    schema: The table's: what is written, and what the files are read as.
    sort_by: What to sort a group's rows by (see `sorting.parse_order`); none keeps their order.
    moved_blobs: Blob files whose values are copied, by name.
    """

    schema: TableSchema
    reader: SplitReader
    settings: WriteSettings
    sort_by: tuple[str, ...] = ()
    moved_blobs: frozenset[str] = frozenset()

    def rewrite(self) -> CompactionMessage:
        """Write the group's rows again."""
        entries = self.group.entries
        with (
            OwnedFiles(self.store) as owned,
            DataWriter(
                self.store,
                self.schema,
                settings=self.settings,
                base_id=0,
                owned=owned,
                known_blobs=known_blobs(self.reader, entries, self.moved_blobs),
            ) as writer,
        ):
            batches = _rows(self)
            if entries[0].batch is not None:
                for split in splits_of(entries, self.store):
                    rows, known = self.reader.read(split), self.reader.batches(split)
                    write_again(writer, rows, self.reader.schema, known)
            elif self.sort_by:
                unsorted = list(batches)
                if unsorted:
                    rows = sorted_rows(unsorted, parse_order(self.sort_by))
                    writer.write(rows, copy=False)
            else:
                for batch in joined(batches):
                    writer.write(batch, copy=False)
            (written,) = writer.prepare_commit()
            # The place of the rows in a scan is that of the first file they come from.
            start = min(entry.sequence_number for entry in entries)
            added = tuple(
                msgspec.structs.replace(entry, sequence_start=start) for entry in written.entries
            )
            message = CompactionMessage(added=added, removed=entries)
            owned.release(message)
        return message


def compaction_tasks(
    groups: Sequence[CompactionGroup],
    *,
    store: AtomicStore,
    snapshot: Snapshot,
    schemas: SchemaVersions,
    target_bytes: int,
    sort_by: Sequence[str] | str = (),
    moved_blobs: frozenset[str] = frozenset(),
) -> list[CompactionTask]:
    """The groups as tasks.

    snapshot: That was planned on.
    schemas: Its own, and those that the files were written with.
    sort_by: Columns, or ``zorder(a, b)``; refused for files in batch mode, whose rows have their
        place.
    moved_blobs: See `dead_blob_files`.
    """
    schema = schemas.current
    if sort_by and any(entry.batch is not None for group in groups for entry in group.entries):
        raise InvalidArgumentError("sort_by: files in batch mode keep the order of their rows")
    if sort_by:
        order = parse_order(sort_by)
        for name in order.columns:
            schema.find((name,), where="sort_by")
        order.check(schema.to_arrow())
    # A group ends just past the target: its output must not be cut there, unless it is sorted.
    settings = WriteSettings(
        target_file_bytes=target_bytes if sort_by else 4 * target_bytes,
        source="compact",
        keeps_order=bool(sort_by),
    )
    return [
        SmallFilesTask(
            store=store,
            schema=schema,
            reader=whole_row_reader(
                group.entries,
                store,
                schema,
                schemas,
                blobs="references" if schema.blob_columns else "bytes",
            ),
            group=CompactionGroup(tuple(slim(entry) for entry in group.entries)),
            guard=expiry_guard(store, snapshot),
            settings=settings,
            sort_by=(sort_by,) if isinstance(sort_by, str) else tuple(sort_by),
            moved_blobs=moved_blobs,
        )
        for group in groups
    ]


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, as a writer looks at every column of each.

    Sizes are those of whole buffers, which take no look at the columns: batches that share them
    count more than once.
    """
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        own = batch.get_total_buffer_size()
        is_large = own > JOINED_BATCH_BYTES_MAX or batch.num_rows > JOINED_BATCH_ROWS_MAX
        if small and (is_large or size + own > JOINED_BYTES_MAX):
            yield from joined_batches(small)
            small, size = [], 0
        if is_large:
            yield batch
            continue
        small.append(batch)
        size += own
    if small:
        yield from joined_batches(small)


def _rows(task: SmallFilesTask) -> Iterator[pa.RecordBatch]:
    for split in splits_of(task.group.entries, task.store):
        yield from task.reader.read(split)
