"""What a transaction has made of a snapshot so far: files added and removed, rows deleted.

A draft is made of one snapshot and never touches it. When another commit comes first, the same
changes are made to a new draft of the newer snapshot. Files that a draft has written are the
transaction's to delete if they are not published.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from fermion.exports import dataclass
from fermion.options import BlobForm
from fermion.predicate import RowRanges
from fermion_table.commit.request import RunNumbers
from fermion_table.merging.primary_key import PrimaryKey, primary_key_of
from fermion_table.metadata.bucket_counts import BucketCounts, other_counts
from fermion_table.metadata.deletion_vector import (
    bitmap_of,
    ranges_of,
    read_vector,
    write_vectors,
)
from fermion_table.metadata.history import SchemaVersions, until_expiry
from fermion_table.metadata.manifest import DeletionVector, Entry, KnownBlobs, Source
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.shared_files import SharedFiles, options_for
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.filters import TableFilter, table_filter
from fermion_table.planning.partition_pruning import partitions_replaced
from fermion_table.planning.plan import LiveFiles, files_that_must_match, plan_scan, splits_of
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import (
    column_reader,
    known_blobs,
    whole_row_reader,
    write_again,
)
from fermion_table.scanning.scan import FileScan, Scan
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore, access_of
from fermion_table.writing.make_writer import TableWriter, make_writer
from fermion_table.writing.writer_message import WriteSettings

REWRITE_DELETED_FRACTION = 0.5
"""A file of whose rows more than this part is deleted is written again without them."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows of one file that a filter selects and that are not deleted.

    rows: By their numbers in the file.
    is_whole: Whether they are all that is left of it.
    """

    entry: Entry
    rows: RowRanges
    is_whole: bool


@dataclass(slots=True)
class FindingCache:
    """Rows that a filter selects, by file: a file's rows never change, deleted or not. Those of
    other column files are others.

    A filter is told by the identity of its object, which is kept alive here: its text need not
    tell it from another one, as that of a pyarrow expression leaves out values of long lists.
    """

    _found: dict[tuple[str, ...], dict[tuple[int, int], RowRanges]] = field(default_factory=dict)
    _filters: dict[int, TableFilter] = field(default_factory=dict)

    def get(self, entry: Entry, chosen: TableFilter, schema: TableSchema) -> RowRanges | None:
        """What was found before, if anything."""
        return self._found.get(_names(entry), {}).get((id(chosen), schema.id))

    def put(self, entry: Entry, chosen: TableFilter, schema: TableSchema, rows: RowRanges) -> None:
        """Remember what was found."""
        self._filters[id(chosen)] = chosen
        self._found.setdefault(_names(entry), {})[id(chosen), schema.id] = rows


def _names(entry: Entry) -> tuple[str, ...]:
    """The files that hold the values of rows."""
    return (entry.file, *(each.file for each in entry.column_files))


Replaced = bool | TableFilter
"""Partitions: none, all, or those whose rows a filter selects by their partition values alone."""


class Draft:
    """Changes to one snapshot.

    cache, written: What the drafts of one transaction share: rows found, and the files written for
        it.
    """

    def __init__(
        self, store: AtomicStore, base: Snapshot, cache: FindingCache, written: OwnedFiles
    ) -> None:
        self.store = store
        self.base = base
        self.schemas = SchemaVersions(store, base)
        self.schema = self.schemas.current
        self.new_schema: TableSchema | None = None
        self.added: dict[str, Entry] = {}
        self.removed: dict[str, Entry] = {}
        self.deleted: dict[str, BitMap64] = {}
        self.changelog: list[Entry] | None = []
        """Changelog files in the order of time; None: they do not tell of all new rows."""
        self.relied_on: set[str] = set()
        """Files whose rows decided something, whether the files themselves change or not."""
        self.reader_features: set[str] = set()
        """Those that the table needs from this commit on."""
        self.written = written
        self._cache = cache
        self._marked: dict[str, Entry] = {}
        self._runs = RunNumbers()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.added or self.removed or self.deleted or self.new_schema)

    @property
    def key(self) -> PrimaryKey | None:
        """The primary key by which rows are merged; None: they are not."""
        return primary_key_of(self.schema)

    def take_schema(self, schema: TableSchema) -> None:
        """What the schema is from here on; files removed or rewritten before keep theirs."""
        if schema.id != self.schema.id:
            self.schema = self.new_schema = schema

    def add(self, entries: Iterable[Entry]) -> None:
        """New files of one writer, whose rows come after those of files added before."""
        numbered = self._runs.numbered(entries)
        changes = [entry for entry in numbered if entry.is_changelog]
        data = [entry for entry in numbered if not entry.is_changelog]
        self.added.update((entry.file, entry) for entry in data)
        if data and not changes:
            self.changelog = None
        elif self.changelog is not None:
            self.changelog += changes

    def remove(self, entry: Entry) -> None:
        """A file goes, with all its rows."""
        self.deleted.pop(entry.file, None)
        self._marked.pop(entry.file, None)
        if self.added.pop(entry.file, None) is None:
            self.removed[entry.file] = entry

    def live(self) -> list[Entry]:
        """All files, in the order in which their rows are read."""
        base = live_entries(self.store, self.base)
        return [entry for entry in base if entry.file not in self.removed] + list(
            self.added.values()
        )

    def may_match(self, chosen: TableFilter | None) -> list[Entry]:
        """The files that may hold rows of a filter, in that order."""
        scan = self._scan(chosen)
        base = [entry for entry in scan.entries[0] if entry.file not in self.removed]
        new, _ = plan_scan(list(self.added.values()), self.schemas, self.schema, chosen)
        return base + new

    def match(self, chosen: TableFilter) -> list[Matched]:
        """The rows that a filter selects, file by file; files without any do not show."""
        entries = [entry for entry in self.may_match(chosen) if self._live_rows(entry)]
        if not entries:
            return []
        whole = files_that_must_match(entries, self.schemas, self.schema, chosen)
        asked = [entry for entry, settled in zip(entries, whole, strict=True) if not settled]
        found = dict(zip((entry.file for entry in asked), self._find(asked, chosen), strict=True))
        matched = []
        for entry in entries:
            live = self.live_rows(entry)
            rows = found[entry.file] & live if entry.file in found else live
            if rows:
                matched.append(Matched(entry, rows, rows.total == live.total))
        return matched

    def delete(self, matched: Matched, *, rewrites: bool = True) -> None:
        """Delete rows: with their file, in a deletion vector, or by rewriting the file.

        rewrites: Whether a file of which little is left is written again, here and now.
        """
        entry = matched.entry
        if matched.is_whole:
            self.remove(entry)
            return
        gone = bitmap_of(matched.rows)
        before = self._gone(entry)
        if before is not None:
            gone |= before
        if rewrites and len(gone) > REWRITE_DELETED_FRACTION * entry.rows:
            self.replace(entry, ranges_of(gone).complement(entry.rows))
        else:
            self.deleted[entry.file] = gone
            self._marked[entry.file] = entry

    def replace(self, entry: Entry, rows: RowRanges) -> None:
        """Write some rows of a file again, in place of the file."""
        reader = self.reader([entry], carries_blobs=True)
        with self.writer(source="compact", known_blobs=known_blobs(reader, [entry])) as writer:
            batches = self.batches(reader, entry, rows)
            write_again(writer, self.read(reader, entry, rows), reader.schema, batches)
            entries = writer.prepare_commit()[0].entries
        self.take_place(entry, entries)

    def set_columns(self, entry: Entry, changed: Entry) -> None:
        """A file gets a column file: its entry with that takes the place of its entry."""
        if entry.file not in self.added:
            self.removed[entry.file] = entry
        self.added[entry.file] = changed

    def take_place(self, entry: Entry, entries: Sequence[Entry]) -> None:
        """New files in place of a file; their rows are read where its rows were."""
        self.remove(entry)
        start = None if entry.added_snapshot is None else entry.sequence_number
        self.add_written(msgspec.structs.replace(each, sequence_start=start) for each in entries)

    def add_written(self, entries: Iterable[Entry]) -> None:
        """New files that this draft has written."""
        self.add(entries)

    def live_rows(self, entry: Entry) -> RowRanges:
        """The rows of a file that are not deleted."""
        gone = self._gone(entry)
        return RowRanges.all(entry.rows) if gone is None else ranges_of(gone).complement(entry.rows)

    def writer(
        self,
        *,
        source: Source = "append",
        schema: TableSchema | None = None,
        replaced: Replaced = False,
        known_blobs: KnownBlobs | None = None,
    ) -> TableWriter:
        """Writes new files under the draft's schema, or another one.

        replaced: See `bucket_counts`.
        known_blobs: See `DataFiles`.
        """
        settings = WriteSettings(source=source)
        return make_writer(
            self.store,
            schema or self.schema,
            settings=settings,
            table_uuid=self.base.table_uuid,
            base_id=self.base.id,
            owned=self.written,
            bucket_counts=self.bucket_counts(replaced),
            known_blobs=known_blobs,
        )

    def replaced(self, filter: Any) -> Replaced:
        """The partitions that an overwrite leaves no file of; without a filter all."""
        if filter is None:
            return True
        return table_filter(filter, self.schema, where=self.store.location) or True

    def bucket_counts(self, replaced: Replaced) -> BucketCounts:
        """Numbers of buckets of partitions that have another one than the settings say.

        replaced: Which partitions lose all their files before anything is added to them: none, all,
            or those of a filter (see `partitions_replaced`).
        """
        if replaced is True or not self.schema.bucket_counts:
            return {}
        base = LiveFiles(self.store, self.base)
        live = [each for each in base.entries(statistics=False) if each.file not in self.removed]
        counts = other_counts([*live, *self.added.values()], self.schemas, self.schema)
        if isinstance(replaced, TableFilter):
            gone = partitions_replaced(list(counts), self.schema, replaced) or ()
            return {each: count for each, count in counts.items() if each not in gone}
        return counts

    def reader(self, entries: Sequence[Entry], *, carries_blobs: bool = False) -> SplitReader:
        """Reads whole rows of files of one kind, with the batch columns of files that have them.

        carries_blobs: Whether columns of blobs come as references.
        """
        form = self._blob_form(carries_blobs)
        return whole_row_reader(entries, self.store, self.schema, self.schemas, blobs=form)

    def _blob_form(self, carries_blobs: bool) -> BlobForm:
        return "references" if carries_blobs and self.schema.blob_columns else "bytes"

    def column_reader(
        self, entries: Iterable[Entry], fields: tuple[Field, ...], *, carries_blobs: bool = False
    ) -> SplitReader:
        """Reads some columns of all rows of files; `fields` may be pruned below structs.

        carries_blobs: As of `reader`.
        """
        whole = tuple(self.schema.by_name[field.name] for field in fields)
        form = self._blob_form(carries_blobs)
        return column_reader(entries, self.store, fields, whole, self.schemas, blobs=form)

    def read(self, reader: SplitReader, entry: Entry, rows: RowRanges) -> Iterator[pa.RecordBatch]:
        """Some rows of a file, deleted or not."""
        (split,) = splits_of([entry], self.store)
        with until_expiry(self.store, self.base):
            yield from reader.read_file(split, rows=rows)

    def batches(
        self, reader: SplitReader, entry: Entry, rows: RowRanges
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Ids and lengths of the batches of those rows; None for a file without batches."""
        if entry.batch is None:
            return None
        (split,) = splits_of([entry], self.store)
        with until_expiry(self.store, self.base):
            return reader.batches(split, rows=rows)

    def changes(self) -> tuple[list[Entry], list[Entry]]:
        """The entries added and removed, as a commit takes them; stores deletion vectors.

        Changelog files are among the added.
        """
        added, removed = dict(self.added), dict(self.removed)
        for file, vector in self._vectors().items():
            entry = self._marked[file]
            if file not in added:
                removed[file] = entry
            added[file] = msgspec.structs.replace(
                entry, deletion_vector=vector, delete_rows=vector.rows
            )
        return [*added.values(), *(self.changelog or ())], list(removed.values())

    def _vectors(self) -> dict[str, DeletionVector]:
        """The vectors of files with rows to delete, stored, by file."""
        if not self.deleted:
            return {}
        num_rows = {file: self._marked[file].rows for file in self.deleted}
        return write_vectors(self.store, self.deleted, num_rows, self.written)

    def scan(self, chosen: TableFilter | None, *, carries_blobs: bool = False) -> Scan:
        """The rows that a filter selects, merged by key where the table has one.

        carries_blobs: Whether columns of blobs come as references, where the filter reads none.
        """
        blobs = self.schema.blob_columns
        if chosen is not None and any(path[0] in blobs for path in chosen.paths):
            carries_blobs = False
        state = self.base
        if not self.is_empty:
            new = {
                "snapshot_id": state.id + 1,
                "sequence_start": state.sequence_next,
                "row_id_start": state.row_id_next,
            }
            live = tuple(entry.inherit(**new) for entry in self.live())
            state = msgspec.structs.replace(state, manifests=(), tail=live)
        return replace(
            self._scan(chosen), snapshot=state, columns=None, blobs=self._blob_form(carries_blobs)
        )

    def _scan(self, chosen: TableFilter | None) -> Scan:
        return Scan(
            store=self.store,
            snapshot=self.base,
            schemas=self.schemas,
            table_schema=self.schema,
            columns=(),
            filter=chosen,
            merges_level0=True,
        )

    def _live_rows(self, entry: Entry) -> int:
        marked = self.deleted.get(entry.file)
        return entry.live_rows if marked is None else entry.rows - len(marked)

    def _gone(self, entry: Entry) -> BitMap64 | None:
        """The rows of a file that are deleted, by earlier commits or here; not to be changed."""
        marked = self.deleted.get(entry.file)
        if marked is not None or entry.deletion_vector is None:
            return marked
        location = SharedFiles(self.store).vector(entry)
        options = options_for(self.store, location)
        timeout_s = access_of(self.store).timeout_s
        with until_expiry(self.store, self.base):
            return read_vector(
                location, entry.deletion_vector, entry.rows, options, timeout_s=timeout_s
            )

    def _find(self, entries: Sequence[Entry], chosen: TableFilter) -> list[RowRanges]:
        """The rows of files that a filter selects, deleted or not."""
        known = [self._cache.get(entry, chosen, self.schema) for entry in entries]
        rest = [entry for entry, rows in zip(entries, known, strict=True) if rows is None]
        bare = [
            msgspec.structs.replace(entry, deletion_vector=None, delete_rows=0) for entry in rest
        ]
        scan = FileScan(
            store=self.store,
            snapshot=self.base,
            schemas=self.schemas,
            table_schema=self.schema,
            columns=(),
            filter=chosen,
            files=tuple(bare),
        )
        reader, splits = scan.reader, splits_of(bare, self.store)
        if len(splits) < 2:
            found = [reader.find(split) for split in splits]
        else:
            with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
                found = list(executor.map(lambda split: reader.find(split, threads=1), splits))
        for entry, rows in zip(rest, found, strict=True):
            self._cache.put(entry, chosen, self.schema, rows)
        fresh = iter(found)
        return [next(fresh) if rows is None else rows for rows in known]


def mask_within(rows: RowRanges, live: RowRanges, num_rows: int) -> np.ndarray:
    """Which of the live rows of a file are among some rows: ``bool``, shape (live.total,)."""
    return rows.to_mask(num_rows)[live.to_indices()]
