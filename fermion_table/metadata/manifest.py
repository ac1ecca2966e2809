"""Manifests: what a table knows of its data files.

An `Entry` describes one data file, a `Manifest` is an object of many entries, and a
`ManifestReference` is what a snapshot holds of a manifest: enough to skip it, and its hash.

Sequence numbers and row ids are inherited. A writer does not know which snapshot its commit
will become, so its entries hold offsets (`sequence_offset`, `row_offset`) and no start; the
snapshot (or the reference of a manifest written before it) holds the start. `Entry.inherit`
fills in what is missing, and entries that a reader gets have it filled in.

A `ColumnFile` of an entry has exactly the rows of its data file, deleted ones included, in the same
order. A field that several files of an entry have counts as the last of them has it, and is hidden
in the others; the data file comes first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Literal

import msgspec

from fermion import ChunkFlag, ColumnStatistics
from fermion.arguments import first_repeated
from fermion.display import short_repr
from fermion.engine import unknown_statistics
from fermion.exports import NamedTuple
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.storage import json_codec
from fermion_table.storage.json_codec import Natural, Plain, Whole

Runs = tuple[tuple[int, int], ...]
"""Field ids as runs (first, last), both inclusive."""
COLUMN_FILES_LIMIT = 1_000
"""Column files of an entry, at most; compaction rewrites data files long before."""
Layout = tuple[tuple[int, Runs], ...]
"""Of the column files of an entry, in their order: the schema, and the fields."""


class ColumnFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Columns of the rows of a data file, in a file of their own.

    path, external_path, size, rows, tail_length, schema_id, file_id: As of an `Entry`; as many rows
        as the entry has.
    fields: Runs of ids of the top-level fields that the file has, (first, last), both inclusive.
    """

    path: str = ""
    external_path: str | None = None
    size: Natural
    rows: Natural
    tail_length: Natural = 0
    schema_id: Natural = 0
    fields: tuple[tuple[Natural, Natural], ...]
    file_id: str | None = None

    @property
    def file(self) -> str:
        """What identifies the file: its path, or a clone's external path."""
        return self.external_path or self.path


class IndexFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the values of a field are in a data file: see `reading.index_files`.

    path, external_path, size, tail_length, file_id: As of an `Entry`.
    rows: Of the index file itself.
    field: The id of the field.
    kind: ``btree``, ``bitmap`` or ``bloom``; others are not used.
    indexed_file: The `file_id` of the data file or column file whose values it has. Where another
        file has the field now, it is not used.
    """

    path: str = ""
    external_path: str | None = None
    size: Natural
    rows: Natural
    tail_length: Natural = 0
    field: Natural
    kind: str
    indexed_file: str
    file_id: str | None = None

    @property
    def file(self) -> str:
        """What identifies the file: its path, or a clone's external path."""
        return self.external_path or self.path


class BlobFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A file of values to which the data file, or a column file, has references.

    path, external_path, size: As of an `Entry`. References name it by the last part of its path.
    live_bytes: Of the values that rows of the data file refer to, deleted ones included.
    """

    path: str = ""
    external_path: str | None = None
    size: Natural
    live_bytes: Natural = 0

    @property
    def file(self) -> str:
        """What identifies the file: its path, or a clone's external path."""
        return self.external_path or self.path

    @property
    def name(self) -> str:
        """What references call it."""
        return self.file.rpartition("/")[2]


class KnownBlobs(NamedTuple):
    """Blob files to which rows have references that are written again.

    files: By name.
    moved: Names of those whose values are copied to new ones.
    """

    files: dict[str, BlobFile]
    moved: frozenset[str] = frozenset()


def is_in(runs: Runs, field_id: int) -> bool:
    """Whether runs of field ids have one."""
    return any(first <= field_id <= last for first, last in runs)


def ids_in(runs: Runs, field_ids: Iterable[int]) -> set[int]:
    """Those of many field ids that runs have, which may be in any order, and overlap."""
    ordered = sorted(runs)
    firsts = [first for first, _ in ordered]
    lasts = [-1, *accumulate((last for _, last in ordered), max)]
    return {each for each in field_ids if lasts[bisect_right(firsts, each)] >= each}


def layout_of(files: Iterable[ColumnFile]) -> Layout:
    """What the column files of an entry have in common with those of entries like it."""
    return tuple((file.schema_id, file.fields) for file in files)


def schema_holding(schema_id: int, layout: Layout, field_id: int) -> int:
    """The schema version under which an entry's top-level field is stored.

    layout: Of its column files.
    """
    for version, fields in reversed(layout):
        if is_in(fields, field_id):
            return version
    return schema_id


def problem_beside(
    rows: int, bucket: int | None, files: Sequence[ColumnFile]
) -> tuple[str, str] | None:
    """What is wrong with the column files of an entry: expected, found; None if nothing is."""
    if bucket is not None:
        return "no column files in a primary-key table", f"{len(files)}"
    if len(files) > COLUMN_FILES_LIMIT:
        return f"at most {COLUMN_FILES_LIMIT} column files", f"{len(files)}"
    for each in files:
        if each.rows != rows:
            return f"column files of {rows} rows", f"{each.file} of {each.rows} rows"
    repeated = first_repeated(each.file for each in files)
    if repeated is not None:
        return "column files with different paths", f"{repeated} more than once"
    return None


def check_layouts(
    layouts: Iterable[Layout], schemas: Mapping[int, TableSchema], where: str
) -> None:
    """Refuse column files of fields that the schema they were written with does not have.

    Raises CorruptMetadata.
    """
    for schema_id, fields in {part for layout in layouts for part in layout}:
        known = schemas[schema_id].by_id
        found = None if fields else "a column file without fields"
        for first, last in fields:
            if last < first:
                found = f"fields from id {first} to {last}"
        wrong = next((each for each in _ids(fields, len(known)) if each not in known), None)
        if wrong is not None:
            found = f"a field with id {wrong}"
        if found is not None:
            expected = f"column files of fields of schema {schema_id}"
            raise CorruptMetadata(where, expected, found)


def _ids(runs: Runs, limit: int) -> Iterator[int]:
    """The first ids of runs, one more than there can be."""
    left = limit + 1
    for first, last in runs:
        for each in range(first, min(last + 1, first + left)):
            left -= 1
            yield each


def fields_by_file(
    file_fields: Mapping[int, tuple[Field, ...]], schema_id: int, layout: Layout
) -> list[list[Field]]:
    """The top-level fields that count of the data file, and of each column file.

    file_fields: Fields of each schema version, all or some.
    schema_id, layout: As of `schema_holding`.
    """
    found: list[list[Field]] = []
    hidden: set[int] = set()
    for version, fields in reversed(layout):
        ids = ids_in(fields, (each.id for each in file_fields[version]))
        shown = ids - hidden
        found.append([each for each in file_fields[version] if each.id in shown])
        hidden |= ids
    return [[each for each in file_fields[schema_id] if each.id not in hidden], *found[::-1]]


MANIFEST_FORMAT = "fermion-manifest"
MANIFEST_FORMAT_VERSION = 1

Source = Literal["append", "compact", "import", "clone", "changelog"]
ManifestKind = Literal["loose", "packed", "list"]

_UNKNOWN = unknown_statistics(0)


class FieldStatistics(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Statistics of one field in one data file; in JSON ``[min, max, null_count, flags]``.

    min, max: Bounds as keys (`fermion.statistics.bounds`), None when there are none; NaN never
        enters them.
    null_count: Nulls, None when unknown.
    flags: `fermion.ChunkFlag` bits: which bounds are there and exact, NaN known.
    """

    min: Whole | None = None
    max: Whole | None = None
    null_count: Natural | None = None
    flags: Natural = 0

    def bounds(self) -> ColumnStatistics | None:
        """The bounds with their flags, without counts; None where there are none."""
        if self.min is None or self.max is None:
            return None
        return replace(_UNKNOWN, min=self.min, max=self.max, flags=ChunkFlag(self.flags))


class BatchRange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The batch ids of a file written in batch mode.

    min, max: Smallest and greatest batch id, inclusive.
    count: Batches in the file (repeated ids count each time).
    sorted: Whether ids ascend within the file.
    """

    min: Whole
    max: Whole
    count: Natural
    sorted: bool = False


class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the deleted row positions of a data file are stored.

    path: A ``deletion/<unique>.dv`` file, or an absolute one of a clone's source.
    offset, size: Bytes within it.
    rows: Positions marked.
    hash: BLAKE2b of those bytes.
    """

    path: str
    offset: Natural = 0
    size: Natural
    rows: Natural
    hash: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One data file.

    path: Relative to the table; empty when `external_path` is set.
    external_path: Absolute location of a clone's file, which lies in another table.
    size, rows: Bytes; rows stored, deleted ones included.
    tail_length: Last bytes of the file that hold schema area, index and footer; 0 when unknown.
    schema_id: The table schema the file was written with.
    partition: Partition values in the order of the table's partition fields, as JSON values.
    bucket, level: Of a primary-key table: the tree that the file belongs to, and its level there.
    total_buckets: The number of buckets of its partition; None: what the setting ``bucket`` of the
        file's schema says.
    min_key, max_key: Bounds of the primary key, both inclusive: the bytes of the key in hexadecimal
        digits.
    retractions: Rows of kind ``-U`` or ``-D``; where there are any, the file has a column
        ``_row_kind``.
    keys_repeated: Rows of the file that are not the first of their key.
    delete_rows: Rows of the file that are deleted (by `deletion_vector`).
    sequence_offset, sequence_start: The sequence number is their sum; a start of None is inherited
        from the commit.
    row_offset, row_id_base: Rows of the same commit before this file's first; the id of its first
        row, None while it is inherited from the commit.
    added_snapshot: Snapshot that added the entry, None while it is inherited.
    batch: Batch ids, for files written in batch mode.
    columns: Runs of field ids that have data in this file or its column files, each ``(first,
        last)`` inclusive; ids that are absent are all null here. None means every field that they
        have.
    stats: Statistics by field id, of the file that has the field.
    column_files: Columns of the same rows in files of their own; see `ColumnFile`.
    indexes: Files that tell where values are in this file or its column files; see `IndexFile`.
    blob_files: Files that hold values of blob columns; other entries may name them, too.
    deletion_vector: Rows of the file to leave out.
    source: What wrote the file; ``changelog``: it holds changes of rows, and is never live.
    created_ms: Milliseconds since 1970 UTC, by the writer's clock.
    file_id: The data file's own identity (`fermion.FermionFile.file_id`), None where it is not
        known.
    unknown: Keys this version does not know, kept when the entry is written again.
    """

    path: str = ""
    external_path: str | None = None
    size: Natural
    rows: Natural
    tail_length: Natural = 0
    schema_id: Natural = 0
    partition: tuple[Plain, ...] = ()
    bucket: Natural | None = None
    total_buckets: Natural | None = None
    level: Whole = 0
    min_key: Any = None
    max_key: Any = None
    retractions: Natural = 0
    keys_repeated: Natural = 0
    delete_rows: Natural = 0
    sequence_offset: Natural = 0
    sequence_start: Natural | None = None
    row_offset: Natural = 0
    row_id_base: Natural | None = None
    added_snapshot: Natural | None = None
    batch: BatchRange | None = None
    columns: tuple[tuple[Natural, Natural], ...] | None = None
    stats: dict[Natural, FieldStatistics] = {}
    column_files: tuple[ColumnFile, ...] = ()
    indexes: tuple[IndexFile, ...] = ()
    blob_files: tuple[BlobFile, ...] = ()
    deletion_vector: DeletionVector | None = None
    source: Source = "append"
    created_ms: Natural = 0
    file_id: str | None = None
    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name=json_codec.UNKNOWN_KEYS)

    __repr__ = short_repr

    @property
    def file(self) -> str:
        """What identifies the data file: its path, or a clone's external path."""
        return self.external_path or self.path

    @property
    def bytes(self) -> int:
        """Bytes of the data file and of its column files."""
        return self.size + sum(each.size for each in self.column_files)

    @property
    def names_outside(self) -> bool:
        """Whether the data file, or one that belongs to it, lies in another table."""
        beside: tuple[ColumnFile | IndexFile | BlobFile, ...]
        beside = (*self.column_files, *self.indexes, *self.blob_files)
        vector = "" if self.deletion_vector is None else self.deletion_vector.path
        return (
            self.external_path is not None
            or any(each.external_path is not None for each in beside)
            or vector.startswith("/")
            or "://" in vector
        )

    @property
    def layout(self) -> Layout:
        """The schemas and fields of the column files."""
        return layout_of(self.column_files) if self.column_files else ()

    @property
    def schema_ids(self) -> set[int]:
        """The schemas that the data file and the column files were written with."""
        return {self.schema_id, *(each.schema_id for each in self.column_files)}

    @property
    def is_changelog(self) -> bool:
        """Whether the file holds changes of rows, for a snapshot's changelog."""
        return self.source == "changelog"

    @property
    def sequence_number(self) -> int:
        """The sequence number; only of an entry whose start is known."""
        if self.sequence_start is None:
            raise ValueError(f"{self.file}: the sequence number is inherited and not known yet")
        return self.sequence_start + self.sequence_offset

    @property
    def live_rows(self) -> int:
        """Rows that are not deleted."""
        return self.rows - self.delete_rows

    def inherit(self, *, snapshot_id: int, sequence_start: int, row_id_start: int) -> Entry:
        """This entry with what it inherits from its commit filled in."""
        if self.added_snapshot is not None:
            return self
        return msgspec.structs.replace(
            self,
            added_snapshot=snapshot_id,
            sequence_start=(sequence_start if self.sequence_start is None else self.sequence_start),
            row_id_base=(
                row_id_start + self.row_offset if self.row_id_base is None else self.row_id_base
            ),
        )

    def without_statistics(self) -> Entry:
        """This entry as a commit that removes it records it."""
        return msgspec.structs.replace(self, stats={}, columns=None, min_key=None, max_key=None)

    def has_column(self, field_id: int) -> bool:
        """Whether the file, or a column file, may hold data of a field that it has."""
        if self.columns is None:
            return True
        return any(first <= field_id <= last for first, last in self.columns)

    def with_data(self, field_ids: Iterable[int]) -> set[int]:
        """Those of many fields of which the file, or a column file, may hold data."""
        return set(field_ids) if self.columns is None else ids_in(self.columns, field_ids)

    def is_all_null(self, field_id: int) -> bool:
        """Whether statistics prove that a field is null in every row; so it is without rows."""
        statistics = self.stats.get(field_id)
        return self.rows == 0 or (statistics is not None and statistics.null_count == self.rows)

    def has_no_null(self, field_id: int) -> bool:
        """Whether statistics prove that a field is null in no row."""
        statistics = self.stats.get(field_id)
        return self.rows == 0 or (statistics is not None and statistics.null_count == 0)


def as_data_file(file: ColumnFile | IndexFile) -> Entry:
    """A column file, or an index file, as if it were a data file by itself."""
    return Entry(
        path=file.path,
        external_path=file.external_path,
        size=file.size,
        rows=file.rows,
        tail_length=file.tail_length,
        schema_id=file.schema_id if isinstance(file, ColumnFile) else 0,
        file_id=file.file_id,
    )


class PartitionRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bounds of partition values over many entries, one item per partition field.

    A field has bounds None when only nulls were seen or values do not compare; `nulls` says
    whether a null was seen.
    """

    min: tuple[Any, ...] = ()
    max: tuple[Any, ...] = ()
    nulls: tuple[bool, ...] = ()


NO_BOUNDS = PartitionRange()
AT_ZERO = (0, 0)
"""Defaults: JSON leaves out what is the same object as its default."""


class ManifestReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a snapshot holds of a manifest.

    path, hash, size: The object relative to the table, BLAKE2b and length of its stored bytes.
    entries: Entries in it, dead ones included.
    dead: Ordinals, ascending, of entries removed since it was written.
    rows, bytes: Of the live entries: rows (deleted ones included) and data bytes.
    kind: ``loose`` (JSON entries), ``packed`` (a Fermion file, see `packed_manifest`) or ``list``:
        the object is a `ManifestList`, and `entries` and `dead` count manifests in it.
    added_snapshot, sequence, level: Smallest and greatest over the entries, inclusive.
    batch_id: The same over those entries that have batches, None if none has.
    partition: Bounds of the partition values.
    sequence_start, row_id_start: What entries of the manifest inherit that have no start of their
        own. They inherit the snapshot ``added_snapshot[1]``.
    unknown: Keys this version does not know, kept when the reference is written again.
    """

    path: str
    hash: str
    size: Natural
    entries: Natural
    dead: tuple[Natural, ...] = ()
    rows: Natural
    bytes: Natural
    kind: ManifestKind = "loose"
    added_snapshot: tuple[Natural, Natural] = AT_ZERO
    partition: PartitionRange = NO_BOUNDS
    batch_id: tuple[Whole, Whole] | None = None
    sequence: tuple[Natural, Natural] = AT_ZERO
    level: tuple[Whole, Whole] = AT_ZERO
    sequence_start: Natural = 0
    row_id_start: Natural = 0
    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name=json_codec.UNKNOWN_KEYS)

    __repr__ = short_repr

    @property
    def live_entries(self) -> int:
        """Entries that are not dead."""
        return self.entries - len(self.dead)


MANIFEST_LIST_FORMAT = "fermion-manifest-list"


class ManifestList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of manifests: what many snapshots hold of manifests that stay as they are."""

    format: str = MANIFEST_LIST_FORMAT
    format_version: Natural = MANIFEST_FORMAT_VERSION
    manifests: tuple[ManifestReference, ...] = ()


def decode_manifest_list(data: bytes, path: str) -> tuple[ManifestReference, ...]:
    """The references of a list of manifests from its stored bytes, compressed or not.

    Raises CorruptMetadata: Not such a list, or one with a list in it.
    Raises UnsupportedFeature: A newer format version.
    """
    found = json_codec.decode_keeping(json_codec.decompressed(data, path), ManifestList, path)
    _check_format(found, MANIFEST_LIST_FORMAT, path)
    for reference in found.manifests:
        if reference.kind == "list":
            raise CorruptMetadata(path, "manifests", f"a list of them, {reference.path}")
        check_dead(reference, path)
    return found.manifests


def check_dead(reference: ManifestReference, path: str) -> None:
    """Refuse dead ordinals that are not ascending, or that there are no entries for."""
    dead = reference.dead
    if dead and not (all(a < b for a, b in pairwise(dead)) and dead[-1] < reference.entries):
        raise CorruptMetadata(
            path,
            f"dead ordinals of {reference.path} ascending, below {reference.entries}",
            f"{dead[0]} to {dead[-1]}",
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest object: entries in the order of their ordinals."""

    format: str = MANIFEST_FORMAT
    format_version: Natural = MANIFEST_FORMAT_VERSION
    entries: tuple[Entry, ...] = ()


def encode_manifest(entries: Iterable[Entry]) -> bytes:
    """A loose manifest's JSON, not compressed yet."""
    return json_codec.encode(Manifest(entries=tuple(entries)))


ENTRY_BYTES_MIN = 20
"""Bytes of JSON that an entry takes at least, the comma after it included."""
COUNTED_BYTES_MIN = 65_536 * ENTRY_BYTES_MIN
"""Bytes of JSON from which on entries are counted before any of them is decoded."""


class CountedEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that is only counted."""


class _Counted(msgspec.Struct, frozen=True):
    """A manifest whose entries are only counted."""

    entries: tuple[CountedEntry, ...] = ()


def decode_manifest(
    data: bytes, path: str, *, keep_unknown: bool = False, entries_max: int | None = None
) -> Manifest:
    """A loose manifest from its stored bytes.

    data: Stored bytes, compressed or not.
    path: Names the object in messages.
    keep_unknown: Keep keys that this version does not know, for entries that are written again.
    entries_max: As many as the reference says: more are refused before they take memory. None: any
        number.
    Raises CorruptMetadata: Not a manifest, or one of more entries.
    Raises UnsupportedFeature: A newer format version.
    """
    decoder = json_codec.decode_keeping if keep_unknown else json_codec.decode
    plain = json_codec.decompressed(data, path)
    if entries_max is not None and len(plain) >= COUNTED_BYTES_MIN:
        counted = len(json_codec.decode(plain, _Counted, path).entries)
        if counted > entries_max:
            raise CorruptMetadata(path, f"{entries_max} entries", f"{counted}")
    manifest = decoder(plain, Manifest, path)
    _check_format(manifest, MANIFEST_FORMAT, path)
    return manifest


def _check_format(found: Manifest | ManifestList, format: str, path: str) -> None:
    if found.format != format:
        raise CorruptMetadata(path, f"format {format!r}", repr(found.format))
    if found.format_version > MANIFEST_FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: manifest format version {found.format_version}; "
            f"this reader knows up to {MANIFEST_FORMAT_VERSION}"
        )


def reference_to(
    entries: Sequence[Entry],
    *,
    path: str,
    hash: str,
    size: int,
    kind: ManifestKind = "loose",
    sequence_start: int = 0,
    row_id_start: int = 0,
) -> ManifestReference:
    """The reference to a manifest of these entries.

    entries: In the order of the manifest, with what they inherit filled in (the stored ones may
        lack it).
    path, hash, size, kind: Of the stored object.
    sequence_start, row_id_start: What stored entries without a start inherit.
    """
    batches = [entry.batch for entry in entries if entry.batch is not None]
    return ManifestReference(
        path=path,
        hash=hash,
        size=size,
        kind=kind,
        entries=len(entries),
        rows=sum(entry.rows for entry in entries),
        bytes=sum(entry.size for entry in entries),
        added_snapshot=_range(entry.added_snapshot or 0 for entry in entries),
        partition=partition_range([entry.partition for entry in entries]),
        batch_id=(
            (min(batch.min for batch in batches), max(batch.max for batch in batches))
            if batches
            else None
        ),
        sequence=_range(entry.sequence_number for entry in entries),
        level=_range(entry.level for entry in entries),
        sequence_start=sequence_start,
        row_id_start=row_id_start,
    )


def partition_range(partitions: Sequence[tuple[Any, ...]]) -> PartitionRange:
    """Bounds of partition values, field by field.

    A field whose values do not all compare with each other has no bounds.
    """
    if not partitions or not partitions[0]:
        return NO_BOUNDS
    low: list[Any] = []
    high: list[Any] = []
    nulls: list[bool] = []
    for values in zip(*partitions, strict=True):
        present = [value for value in values if value is not None]
        nulls.append(len(present) < len(values))
        try:
            low.append(min(present, default=None))
            high.append(max(present, default=None))
        except TypeError:
            low[len(nulls) - 1 :] = [None]
            high[len(nulls) - 1 :] = [None]
    return PartitionRange(min=tuple(low), max=tuple(high), nulls=tuple(nulls))


def field_id_runs(field_ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Field ids as ascending runs ``(first, last)``, both inclusive, for `Entry.columns`."""
    runs: list[tuple[int, int]] = []
    for field_id in sorted(set(field_ids)):
        if runs and runs[-1][1] == field_id - 1:
            runs[-1] = (runs[-1][0], field_id)
        else:
            runs.append((field_id, field_id))
    return tuple(runs)


def _range(values: Iterable[int]) -> tuple[int, int]:
    listed = list(values)
    return (min(listed), max(listed)) if any(listed) else AT_ZERO


def paths_of(entry: Entry) -> dict[str, int]:
    """The files of an entry that lie in this table, with their sizes."""
    paths = {**data_paths_of(entry), **index_paths_of(entry)}
    paths.update({each.path: each.size for each in entry.blob_files if each.path})
    if entry.deletion_vector is not None:
        paths[entry.deletion_vector.path] = entry.deletion_vector.size
    return paths


def locations_of(entry: Entry) -> dict[str, int]:
    """All files of an entry with their sizes: by path, those of other tables by location."""
    vector = entry.deletion_vector
    return {
        entry.file: entry.size,
        **{each.file: each.size for each in entry.column_files},
        **{each.file: each.size for each in entry.blob_files},
        **({vector.path: vector.size} if vector is not None else {}),
    }


def data_paths_of(entry: Entry) -> dict[str, int]:
    """The data file and the column files of an entry that lie in this table, with their sizes."""
    paths = {entry.path: entry.size} if entry.path else {}
    paths.update({each.path: each.size for each in entry.column_files if each.path})
    return paths


def index_paths_of(entry: Entry) -> dict[str, int]:
    """The index files of an entry that lie in this table, with their sizes."""
    return {each.path: each.size for each in entry.indexes if each.path}
