"""Rows of files: read with all columns and their batches or with some, and written again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry, check_layouts
from fermion_table.planning.split import ReadRequest
from fermion_table.reading.batch_stream import whole_batches
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.schema.selection import BATCH_COLUMNS
from fermion_table.storage.store import AtomicStore, access_of


def whole_row_reader(
    entries: Sequence[Entry],
    store: AtomicStore,
    schema: TableSchema,
    schemas: Mapping[int, TableSchema],
) -> SplitReader:
    """Reads whole rows of files of one kind, with the batch columns of files that have them.

    Parameters
    ----------
    entries
        The files, all with batches or all without.
    schemas
        What the files were written with, by id.
    """
    in_batches = entries[0].batch is not None
    fields = schema.fields + (BATCH_COLUMNS if in_batches else ())
    return column_reader(entries, store, fields, fields, schemas)


def column_reader(
    entries: Iterable[Entry],
    store: AtomicStore,
    fields: tuple[Field, ...],
    table_fields: tuple[Field, ...],
    schemas: Mapping[int, TableSchema],
    *,
    key: PrimaryKey | None = None,
) -> SplitReader:
    """Reads some columns of all rows of files.

    Parameters
    ----------
    table_fields
        The top-level fields that those are of, whole.
    key
        Of a primary-key table: what rows are merged by.
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
        )
    )


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

    Parameters
    ----------
    rows
        Of a whole-row reader, whose Arrow schema is `schema`; nobody changes their memory.
    batches
        Ids and lengths of their batches; None for a file without batches.
    """
    if batches is not None:
        for each in whole_batches(rows, batches, schema):
            writer.append_batch(each.batch_id, each.rows, copy=False, positions=each.positions)
        return
    for batch in rows:
        writer.write(batch, copy=False)
