"""The data files of one writer: their names, options and sizes, and the entries made of them.

A file has a unique name, which its owner notes before the file is made (see `OwnedFiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

import fermion
from fermion.engine import copy_file, is_variant
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion_table.metadata.manifest import (
    BatchRange,
    Entry,
    FieldStatistics,
    KnownBlobs,
    Source,
    field_id_runs,
)
from fermion_table.moments import now_ms
from fermion_table.schema.properties import STATISTICS_COLUMNS_MAX, parse_properties, time_field
from fermion_table.schema.schema import Field, Path, TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import data_path, unique_name
from fermion_table.storage.store import is_durable
from fermion_table.writing.incoming_rows import Partition
from fermion_table.writing.writer_message import WriteSettings

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns, key_statistics
    from fermion_table.writing import blob_files, index_writer
    from fermion_table.writing.blob_files import BlobFilesWriter
else:  # few tables have any
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")
    blob_files = LoadedWhenAskedFor("fermion_table.writing.blob_files")
    key_statistics = LoadedWhenAskedFor("fermion_table.schema.key_statistics")
    index_writer = LoadedWhenAskedFor("fermion_table.writing.index_writer")


class EntryMaker:
    """Makes the entries of files that are written under one schema.

    statistics_columns: Columns whose statistics are kept beyond the usual ones: names or dotted
        paths.
    """

    def __init__(self, schema: TableSchema, statistics_columns: Sequence[str] = ()) -> None:
        self._schema = schema
        self._fields = statistics_fields(schema, statistics_columns)
        if schema.statistics_keys:
            keys = key_statistics.statistics_of_keys(schema).items()
            self._fields += [(path, each.field, False) for path, each in keys]

    def entry(
        self,
        info: fermion.FileInfo,
        path: str,
        *,
        partition: tuple[Any, ...] = (),
        source: Source = "append",
        created_ms: int = 0,
    ) -> Entry:
        """The entry of a file.

        info: What the file's writer gave back. Columns after those of the schema don't show.
        path: The file, relative to the table.
        """
        fields = self._schema.fields
        present = [ordinal for ordinal in info.columns_with_data if ordinal < len(fields)]
        all_columns = len(present) == len(fields)
        runs = None if all_columns else field_id_runs([fields[each].id for each in present])
        batch = None
        if info.batch is not None:
            found = info.batch
            batch = BatchRange(found.min, found.max, found.count, found.sorted)
        return Entry(
            path=path,
            size=info.size,
            rows=info.num_rows,
            tail_length=info.tail_length,
            schema_id=self._schema.id,
            partition=partition,
            batch=batch,
            columns=runs,
            stats=self._statistics(info),
            source=source,
            created_ms=created_ms,
            file_id=info.file_id,
        )

    def _statistics(self, info: fermion.FileInfo) -> dict[int, FieldStatistics]:
        found = {}
        for path, field, nullable_above in self._fields:
            statistics = info.statistics.get(path)
            if statistics is None:
                continue
            has_bounds = bool(statistics.flags & fermion.ChunkFlag.HAS_MINMAX)
            # A required field inside a struct that is null is null to a filter, and not counted.
            counted = statistics.null_count >= 0 and (field.nullable or not nullable_above)
            found[field.id] = FieldStatistics(
                min=statistics.min if has_bounds else None,
                max=statistics.max if has_bounds else None,
                null_count=statistics.null_count if counted else None,
                flags=int(statistics.flags),
            )
        return found


def statistics_fields(
    schema: TableSchema, named: Sequence[str] = ()
) -> list[tuple[Path, Field, bool]]:
    """The leaves whose statistics entries keep: path, field, whether a struct above may be null.

    They are the partition, key and sort columns, those named, and the first others.
    """
    always = {each.source_id for each in schema.partition_by}
    always.update(schema.primary_key, schema.sort_by)
    wanted = {schema.resolve(name) for name in named if _exists(schema, name)}
    chosen: list[tuple[Path, Field, bool]] = []
    others = 0
    for column in schema.fields:
        for path, field, above in _scalar_leaves(column, (column.name,), False):
            if field.id not in always and path not in wanted:
                others += 1
                if others > STATISTICS_COLUMNS_MAX:
                    if not always and not wanted:
                        return chosen
                    continue
            chosen.append((path, field, above))
    return chosen


def _exists(schema: TableSchema, name: str) -> bool:
    return name in schema.by_name or name.partition(".")[0] in schema.by_name


def _scalar_leaves(field: Field, path: Path, above: bool) -> list[tuple[Path, Field, bool]]:
    if field.kind == "struct":
        below = above or field.nullable
        return [
            leaf
            for child in field.children
            for leaf in _scalar_leaves(child, (*path, child.name), below)
        ]
    return [] if field.children else [(path, field, above)]


FIRST_RATIO = 0.4
"""Bytes of a file for a byte of Arrow data, until a file has been closed."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """A data file being written.

    blobs: What puts its blobs into blob files; None: it has none.
    rows, raw_bytes: Written so far; bytes are those of Arrow data.
    waiting_rows, waiting_bytes: Those that the file keeps in memory: of the stripe that it has not
        finished.
    is_indexed: Whether it gets the index files of the table.
    """

    writer: fermion.Writer
    path: str
    partition: Partition
    blobs: BlobFilesWriter | None = None
    raw_bytes: int = 0
    rows: int = 0
    waiting_bytes: int = 0
    waiting_rows: int = 0
    is_indexed: bool = False


class DataFiles:
    """Makes data files.

    stripe_bytes: Of a stripe, where the file options do not say it; None: their default.
    known_blobs: Rows come with references to values in these blob files; None: with values.

    Attributes:
    target_bytes: Size that a file should have.
    """

    def __init__(
        self,
        owned: OwnedFiles,
        schema: TableSchema,
        settings: WriteSettings,
        *,
        stripe_bytes: int | None = None,
        known_blobs: KnownBlobs | None = None,
    ) -> None:
        properties = parse_properties(schema.properties)
        target = settings.target_file_bytes
        self.arrow = schema.to_arrow()
        self._known_blobs = known_blobs
        if known_blobs is not None:
            self.arrow = blob_columns.schema_of_references(self.arrow)
        self.target_bytes = properties.target_file_bytes if target is None else target
        self._owned = owned
        self._store = owned.store
        self._source = settings.source
        profile: Any = properties.profile
        default = fermion.WriteOptions(profile=profile) if profile else fermion.WriteOptions()
        options = settings.file_options or default
        threads = settings.threads or options.threads
        durable = options.durable and is_durable(self._store)
        if options.stripe_bytes is not None:
            stripe_bytes = options.stripe_bytes
        shred = {
            name: keys
            for name, keys in properties.shred.items()
            if (field := schema.by_name.get(name)) is not None
            and (field.kind == "map" or is_variant(pa.field("", field.type)))
        }
        self._options = replace(
            options,
            durable=durable,
            threads=threads,
            stripe_bytes=stripe_bytes,
            shred={**shred, **options.shred},
        )
        time = time_field(schema.properties)
        columns = (*properties.statistics_columns, *([] if time is None else [time]))
        self._schema = schema
        self._index_rows_min = properties.index_rows_min
        self._entries = EntryMaker(schema, columns)
        self._raw_bytes = 0
        self._file_bytes = 0

    def open(
        self,
        partition: Partition,
        *,
        bucket: int | None = None,
        hidden: pa.Field | None = None,
        is_changelog: bool = False,
        is_columns: bool = False,
        bloom_filters: Iterable[str] = (),
    ) -> OpenFile:
        """Begin a file.

        bucket: Of a table with buckets: goes into the path.
        hidden: A column after those of the schema, which no field of the table stands for.
        is_changelog, is_columns: Whether the rows are changes of a changelog, or columns of the
            rows of another file: goes into the path.
        bloom_filters: Columns with a Bloom filter per chunk, beside those of the settings.
        """
        path = data_path(
            unique_name(),
            partition.segments,
            bucket,
            is_changelog=is_changelog,
            is_columns=is_columns,
        )
        self._owned.add(path)
        options = self._options
        more = [each for each in bloom_filters if each not in options.bloom_filters]
        if more:
            options = replace(options, bloom_filters=(*options.bloom_filters, *more))
        blobs = None
        if self._schema.blob_columns:
            blobs = blob_files.BlobFilesWriter(
                self._owned, self.target_bytes, options, self._known_blobs
            )
        writer = fermion.Writer(
            self._store.locate(path, for_writing=True),
            self.arrow if hidden is None else self.arrow.append(hidden),
            options=options,
            storage_options=self._store.storage_options,
            blob_sink=blobs,
        )
        self._owned.add(path, writer)
        return OpenFile(writer, path, partition, blobs, is_indexed=not (is_changelog or is_columns))

    def with_blobs_written(self, rows: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Rows whose long blobs are in blob files, which are known from now on.

        Files that get the same rows refer to the same values. Rows without references stay as they
        are.
        """
        known = self._known_blobs
        if known is None:
            return list(rows)
        blobs = blob_files.BlobFilesWriter(self._owned, self.target_bytes, self._options, known)
        written = [blobs.placed(blob_columns.referring(each, self.arrow)) for each in rows]
        known.files.update((each.name, each) for each in blobs.close())
        return written

    def copy(self, file: fermion.FermionFile, partition: Partition) -> Entry:
        """Copy a file that others have written with the columns of the schema, and describe it."""
        path = data_path(unique_name(), partition.segments)
        self._owned.add(path)
        info = copy_file(
            file,
            self._store.locate(path, for_writing=True),
            durable=self._options.durable,
            storage_options=self._store.storage_options,
        )
        self._owned.add(path)
        return self._indexed(
            self._entries.entry(
                info, path, partition=partition.values, source="import", created_ms=now_ms()
            )
        )

    def room(self, file: OpenFile, rows: pa.RecordBatch, raw_bytes: int | None = None) -> int:
        """How many rows like these still go into a file; 0 or less: it has its size.

        raw_bytes: Of the rows; None: count them, which looks at every column.
        """
        size = rows.nbytes if raw_bytes is None else raw_bytes
        row_bytes = max(size / rows.num_rows, 1.0) * self.ratio
        return int((self.target_bytes - self.size(file)) / row_bytes)

    def count(self, file: OpenFile, rows: int, raw_bytes: int) -> None:
        """Note what was written to a file."""
        file.rows += rows
        file.raw_bytes += raw_bytes
        stripe = self._options
        stripe_bytes = stripe.stripe_bytes_for(len(self.arrow))
        file.waiting_bytes = (file.waiting_bytes + raw_bytes) % stripe_bytes
        file.waiting_rows += rows
        if file.waiting_rows >= stripe.stripe_rows:
            file.waiting_rows %= stripe.stripe_rows
            file.waiting_bytes = min(file.waiting_bytes, raw_bytes)

    def size(self, file: OpenFile) -> float:
        """About how many bytes a file would have if it were closed now."""
        return file.raw_bytes * self.ratio

    @property
    def ratio(self) -> float:
        """Bytes of a file for a byte of Arrow data, as found so far."""
        return self._file_bytes / self._raw_bytes if self._raw_bytes else FIRST_RATIO

    def close(self, file: OpenFile) -> Entry:
        """Finish a file, and describe it."""
        made = () if file.blobs is None else file.blobs.close()
        info = file.writer.close()
        self._owned.add(file.path)
        self._raw_bytes += file.raw_bytes
        self._file_bytes += info.size
        entry = self._entries.entry(
            info,
            file.path,
            partition=file.partition.values,
            source=self._source,
            created_ms=now_ms(),
        )
        if made:
            entry = msgspec.structs.replace(entry, blob_files=made)
        return self._indexed(entry) if file.is_indexed else entry

    def _indexed(self, entry: Entry) -> Entry:
        """An entry with the index files of the table's indexes."""
        schema = self._schema
        if not schema.indexes or entry.rows < max(self._index_rows_min, 1):
            return entry
        paths = {each.field: schema.paths.get(each.field, ()) for each in schema.indexes}
        wanted = [
            (each.field, each.kind, path)
            for each in schema.indexes
            if (path := paths[each.field]) and entry.has_column(schema.by_name[path[0]].id)
        ]
        holder = self._store.locate(entry.path)
        writer = index_writer.IndexWriter(self._owned, self._options)
        return writer.with_indexes(entry, holder, entry.file_id, wanted)
