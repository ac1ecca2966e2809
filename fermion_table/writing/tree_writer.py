"""Writes sorted runs of primary-key tables: rows in the order of their keys, as files of one tree.

A file is closed at its target size, where a key ends: the rows of one key never lie in two files of
a run, so that the files of a run have no key in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.arguments import integer
from fermion.engine import array_of, numbers_of
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.argument_checks import check_kind
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry, KnownBlobs
from fermion_table.options import MIB
from fermion_table.schema.schema import KIND_COLUMN, TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.data_files import DataFiles, OpenFile
from fermion_table.writing.incoming_rows import Partition
from fermion_table.writing.writer_message import WriteSettings

RunBatch = tuple[pa.RecordBatch, pa.Array, np.ndarray | None]
"""Rows in the order of their keys, their keys (`PrimaryKey.tree_keys`), and their kinds."""
STRIPE_BYTES = 16 * MIB
"""Of the files of a run: less than the default, as merging needs memory beside the stripe."""
WIDE_COLUMNS_MIN = 2_048
"""Files of so many columns have larger stripes in any case."""
KIND_FIELD = pa.field(KIND_COLUMN, pa.int8(), nullable=False)


@dataclass(frozen=True, slots=True)
class _Run:
    """What the files of a run have in common."""

    partition: Partition
    bucket: int
    level: int
    has_kinds: bool
    sequence_offset: int
    total_buckets: int | None


@dataclass(slots=True)
class _RunFile:
    """A file of a run being written, its last row, and what its entry will say."""

    file: OpenFile
    min_key: str
    last: pa.RecordBatch
    keys: int = 0
    retractions: int = 0


class TreeWriter:
    """Writes sorted runs.

    owned: Whose the files are, to delete after an error.
    known_blobs: See `DataFiles`.

    Attributes:
    files: Makes the files.
    """

    def __init__(
        self,
        owned: OwnedFiles,
        schema: TableSchema,
        key: PrimaryKey,
        *,
        settings: WriteSettings | None = None,
        known_blobs: KnownBlobs | None = None,
    ) -> None:
        if settings is not None:
            check_kind(settings, WriteSettings, "settings")
        stripe_bytes = STRIPE_BYTES if len(schema.fields) < WIDE_COLUMNS_MIN else None
        settings = settings or WriteSettings()
        self.files = DataFiles(
            owned, schema, settings, stripe_bytes=stripe_bytes, known_blobs=known_blobs
        )
        self._key = key

    def write_run(
        self,
        partition: Partition,
        bucket: int,
        level: int,
        batches: Iterable[RunBatch],
        *,
        has_kinds: bool,
        sequence_offset: int = 0,
        total_buckets: int | None = None,
    ) -> list[Entry]:
        """Write one sorted run, or a part of one.

        batches: The rows, all of the table's columns, each batch and all of them sorted by key;
            rows of one key from the oldest to the newest. Kinds are ``int8``, shape (n,); None: no
            retraction is among the rows.
        has_kinds: Whether the files get a column of kinds: needed where rows are retractions.
        total_buckets: The number of buckets of the partition; None: as the table's settings say.
        Returns: Of the files, in the order of keys; empty if there are no rows.
        Raises InvalidArgumentError: Rows that are not sorted, columns that are not the table's, or
            retractions without a column of kinds. The owner deletes the files that were begun.
        """
        bucket = integer(bucket, "bucket", minimum=0)
        level = integer(level, "level", minimum=0)
        if total_buckets == self._key.options.bucket:
            total_buckets = None
        run = _Run(partition, bucket, level, has_kinds, sequence_offset, total_buckets)
        entries: list[Entry] = []
        current: _RunFile | None = None
        last: Any = None
        for rows, keys, kinds in batches:
            if not rows.num_rows:
                continue
            self._check(rows, keys, kinds, has_kinds=has_kinds)
            is_first = _first_of_keys(keys, last)
            starts = np.flatnonzero(is_first)
            last = keys[-1].as_py()
            at = 0
            while at < rows.num_rows:
                rest = rows.slice(at)
                if current is not None and is_first[at] and self._is_full(current, rest):
                    entries.append(self._close(current, run))
                    current = None
                if current is None:
                    first = rows.slice(at, 1)
                    current = _RunFile(self._open(run), self._bound(first), first)
                room = max(1, self.files.room(current.file, rest))
                place = int(np.searchsorted(starts, at + room))
                stop = int(starts[place]) if place < len(starts) else rows.num_rows
                some = slice(at, stop)
                self._write(current, run, rows.slice(at, stop - at), kinds, some)
                current.keys += int(is_first[some].sum())
                current.last = rows.slice(stop - 1, 1)
                at = stop
        if current is not None:
            entries.append(self._close(current, run))
        return entries

    def _check(
        self, rows: pa.RecordBatch, keys: pa.Array, kinds: np.ndarray | None, *, has_kinds: bool
    ) -> None:
        if not rows.schema.equals(self.files.arrow):
            raise InvalidArgumentError(
                f"batches: expected the table's columns {self.files.arrow.names}, found "
                f"{rows.schema.names}"
            )
        count = rows.num_rows
        if len(keys) != count or (kinds is not None and len(kinds) != count):
            raise InvalidArgumentError(
                f"batches: {count} rows with {len(keys)} keys and "
                f"{'no' if kinds is None else len(kinds)} kinds"
            )
        if kinds is not None and not has_kinds and is_retraction(kinds).any():
            raise InvalidArgumentError("has_kinds=False: some rows are retractions")

    def _open(self, run: _Run) -> OpenFile:
        return self.files.open(
            run.partition,
            bucket=run.bucket,
            hidden=KIND_FIELD if run.has_kinds else None,
            bloom_filters=self._key.names if run.level else (),
        )

    def _is_full(self, current: _RunFile, rest: pa.RecordBatch) -> bool:
        return self.files.room(current.file, rest) <= 0

    def _write(
        self,
        current: _RunFile,
        run: _Run,
        rows: pa.RecordBatch,
        kinds: np.ndarray | None,
        some: slice,
    ) -> None:
        raw_bytes = rows.nbytes
        if current.file.blobs is not None:
            rows = current.file.blobs.placed(rows)
        if run.has_kinds:
            held = np.zeros(rows.num_rows, np.int8) if kinds is None else kinds[some]
            current.retractions += int(is_retraction(held).sum())
            rows = with_kinds(rows, held)
        current.file.writer.write(rows, copy=False)
        self.files.count(current.file, rows.num_rows, raw_bytes)

    def _close(self, current: _RunFile, run: _Run) -> Entry:
        entry = self.files.close(current.file)
        return msgspec.structs.replace(
            entry,
            bucket=run.bucket,
            total_buckets=run.total_buckets,
            level=run.level,
            min_key=current.min_key,
            max_key=self._bound(current.last),
            retractions=current.retractions,
            keys_repeated=entry.rows - current.keys,
            sequence_offset=run.sequence_offset,
        )

    def _bound(self, row: pa.RecordBatch) -> str:
        """The key of a row, as entries hold it."""
        return self._key.bound(self._key.keys(row)[0].as_py())


def with_kinds(rows: pa.RecordBatch, kinds: np.ndarray) -> pa.RecordBatch:
    """Rows with a column of their kinds: ``int8``, shape (n,)."""
    columns = [*rows.columns, array_of(kinds, pa.int8())]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema.append(KIND_FIELD))


def _first_of_keys(keys: pa.Array, last: Any) -> np.ndarray:
    """Whether each row is the first of its key: ``bool``, shape (n,).

    last: The key of the row before; None: there is none.
    """
    is_first = np.ones(len(keys), bool)
    first = keys[0].as_py()
    is_sorted = last is None or last <= first
    if pa.types.is_int64(keys.type):
        numbers = numbers_of(keys)
        is_first[1:] = numbers[1:] != numbers[:-1]
        is_sorted = is_sorted and bool((numbers[1:] >= numbers[:-1]).all())
    else:
        is_first[1:] = numbers_of(pc.not_equal(keys[1:], keys[:-1]))
        ascends = pc.all(pc.greater_equal(keys[1:], keys[:-1]), min_count=0).as_py()
        is_sorted = is_sorted and bool(ascends)
    if not is_sorted:
        raise InvalidArgumentError("batches: expected rows sorted by key, found a smaller key")
    is_first[0] = last is None or last != first
    return is_first
