"""Rows of files: read with all columns and their batches or with some, and written again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fermion.exports import NamedTuple
from fermion.options import BlobForm
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry, KnownBlobs, check_layouts
from fermion_table.planning.split import ReadRequest
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.schema.selection import BATCH_COLUMNS, BATCH_NAMES, INDEX_IN_BATCH
from fermion_table.storage.store import AtomicStore, access_of


class WholeBatch(NamedTuple):
    """A batch, or what is left of it.

    rows: Without the virtual columns.
    positions: What ``index_in_batch`` was for each row: ``int64``, shape (rows,); None where it was
        not read.
    """

    batch_id: int
    rows: pa.Table
    positions: np.ndarray | None


def whole_batches(
    rows: Iterable[pa.RecordBatch], batches: tuple[np.ndarray, np.ndarray], schema: pa.Schema
) -> Iterator[WholeBatch]:
    """Cut rows where a batch begins; a batch may span many record batches.

    rows: As many as the batches have together.
    batches: Their ids and lengths.
    schema: Of ``rows``.
    """
    place = schema.get_field_index(INDEX_IN_BATCH.name)
    names = [name for name in schema.names if name not in BATCH_NAMES]
    plain = pa.schema([schema.field(name) for name in names])
    source = iter(rows)
    left = pa.RecordBatch.from_pylist([], schema=plain)
    column: np.ndarray | None = None
    for batch_id, length in zip(*(column.tolist() for column in batches), strict=True):
        parts: list[pa.RecordBatch] = []
        positions: list[np.ndarray] = []
        missing = length
        while missing:
            if not left.num_rows:
                batch = next(source)
                left = batch.select(names)
                column = batch.column(place).to_numpy() if place >= 0 else None
            head = left.slice(0, missing)
            left = left.slice(head.num_rows)
            if column is not None:
                positions.append(column[: head.num_rows])
                column = column[head.num_rows :]
            missing -= head.num_rows
            parts.append(head)
        known = positions[0] if len(positions) == 1 else None
        if len(positions) > 1:
            known = np.concatenate(positions)
        yield WholeBatch(batch_id, pa.Table.from_batches(parts, schema=plain), known)


def whole_row_reader(
    entries: Sequence[Entry],
    store: AtomicStore,
    schema: TableSchema,
    schemas: Mapping[int, TableSchema],
    *,
    blobs: BlobForm = "bytes",
) -> SplitReader:
    """Reads whole rows of files of one kind, with the batch columns of files that have them.

    entries: The files, all with batches or all without.
    schemas: What the files were written with, by id.
    blobs: What comes of columns of blobs.
    """
    in_batches = entries[0].batch is not None
    fields = schema.fields + (BATCH_COLUMNS if in_batches else ())
    return column_reader(entries, store, fields, fields, schemas, blobs=blobs)


def column_reader(
    entries: Iterable[Entry],
    store: AtomicStore,
    fields: tuple[Field, ...],
    table_fields: tuple[Field, ...],
    schemas: Mapping[int, TableSchema],
    *,
    key: PrimaryKey | None = None,
    blobs: BlobForm = "bytes",
) -> SplitReader:
    """Reads some columns of all rows of files.

    table_fields: The top-level fields that those are of, whole.
    key: Of a primary-key table: what rows are merged by.
    blobs: What comes of columns of blobs.
    """
    listed = list(entries)
    wanted = {field.id for field in table_fields}
    check_layouts({entry.layout for entry in listed}, schemas, store.location)
    return SplitReader(
        ReadRequest(
            fields=fields,
            table_fields=table_fields,
            file_fields={
                schema_id: tuple(field for field in schemas[schema_id].fields if field.id in wanted)
                for schema_id in {each for entry in listed for each in entry.schema_ids}
            },
            storage_options=store.storage_options,
            timeout_s=access_of(store).timeout_s,
            key=key,
            blobs=blobs,
        )
    )


def known_blobs(
    reader: SplitReader, entries: Iterable[Entry], moved: frozenset[str] = frozenset()
) -> KnownBlobs | None:
    """The blob files that the rows of a reader refer to; None: it gives values."""
    if reader.request.blobs == "bytes":
        return None
    files = {each.name: each for entry in entries for each in entry.blob_files}
    return KnownBlobs(files, moved)


class RowWriter(Protocol):
    """What whole rows are written with: the writer of the table."""

    def write(self, data: Any, *, copy: bool = True) -> None:
        """Append rows."""

    def append_batch(
        self, batch_id: int, data: Any, *, copy: bool = True, positions: Any = None
    ) -> None:
        """Append one batch."""


def write_again(
    writer: RowWriter,
    rows: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    batches: tuple[np.ndarray, np.ndarray] | None,
) -> None:
    """Write rows of a file again; its batches stay whole under their ids, and rows keep their
    positions in them.

    rows: Of a whole-row reader, whose Arrow schema is `schema`; nobody changes their memory.
    batches: Ids and lengths of their batches; None for a file without batches.
    """
    if batches is not None:
        for each in whole_batches(rows, batches, schema):
            writer.append_batch(each.batch_id, each.rows, copy=False, positions=each.positions)
        return
    for batch in rows:
        writer.write(batch, copy=False)
