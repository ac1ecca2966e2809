"""Column files: written for the rows of a data file, and placed beside it in its entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa

from fermion_table.metadata.manifest import (
    ColumnFile,
    Entry,
    field_id_runs,
    fields_by_file,
    schema_holding,
)
from fermion_table.reading.whole_rows import WholeBatch
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_files import DataFiles, statistics_fields
from fermion_table.writing.incoming_rows import UNPARTITIONED
from fermion_table.writing.writer_message import WriteSettings


def schema_of_columns(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """A table's schema as if it had some of its columns alone; files are written with it."""
    return msgspec.structs.replace(
        schema,
        fields=tuple(schema.by_name[name] for name in names),
        partition_by=(),
        primary_key=(),
        sort_by=(),
        indexes=(),
        statistics_keys=(),
    )


def write_column_file(
    store: AtomicStore,
    columns: TableSchema,
    rows: Iterable[pa.RecordBatch] | None,
    batches: Iterable[WholeBatch] | None,
    owned: OwnedFiles | None,
) -> Entry:
    """Write a column file; it is deleted if that fails.

    columns: See `schema_of_columns`.
    rows, batches: All rows of the data file, or all its batches, in its order; their memory is
        changed by nobody. Positions of rows in their batches are those of the data file, and not
        stored again.
    owned: Those of the operation, which has the file, too; None: nobody owns it in the end.
    Returns: The file as if it were a data file by itself.
    """
    with OwnedFiles(store, owned) as own:
        files = DataFiles(own, columns, WriteSettings(threads=1))
        file = files.open(UNPARTITIONED, is_columns=True)
        for batch in rows or ():
            file.writer.write(batch, copy=False)
        for each in batches or ():
            file.writer.append_batch(each.batch_id, each.rows, copy=False)
        entry = files.close(file)
        own.release()
    return entry


def placed(
    entry: Entry,
    made: Entry,
    columns: TableSchema,
    schema: TableSchema,
    schemas: Mapping[int, TableSchema],
) -> Entry:
    """The entry of a data file with a column file beside it.

    made: Of `write_column_file`.
    schema: Of the table from the commit on; columns are matched by name.
    schemas: Those that the files of the entry were written with, by id.
    """
    tops = [schema.by_name[field.name] for field in columns.fields]
    ids: dict[int, int] = {}
    for old, new in zip(columns.fields, tops, strict=True):
        both = zip(old.walk(), new.walk(), strict=True)
        ids.update({before.id: after.id for (_, before), (_, after) in both})
    file = ColumnFile(
        path=made.path,
        size=made.size,
        rows=made.rows,
        tail_length=made.tail_length,
        schema_id=schema.id,
        fields=field_id_runs(each.id for each in tops),
        file_id=made.file_id,
    )
    filled = {ids[each] for each in made.with_data(field.id for field in columns.fields)}
    hidden = {each.id for each in tops}
    stale = {each for top in tops for each in _ids_below(entry, top, schemas)}
    properties = parse_properties(schema.properties)
    kept = {each.id for _, each, _ in statistics_fields(schema, properties.statistics_columns)}
    stats = {each: found for each, found in entry.stats.items() if each not in stale}
    stats |= {ids[each]: found for each, found in made.stats.items() if ids[each] in kept}
    runs = entry.columns
    if runs is not None or filled != hidden:
        layout = entry.layout
        fields = {schema_id: schemas[schema_id].fields for schema_id in entry.schema_ids}
        known = (
            each.id for some in fields_by_file(fields, entry.schema_id, layout) for each in some
        )
        present = entry.with_data(known)
        runs = field_id_runs((present - hidden) | filled)
    return msgspec.structs.replace(
        entry,
        column_files=(*entry.column_files, file),
        stats=stats,
        columns=runs,
        indexes=tuple(each for each in entry.indexes if each.field not in stale),
        blob_files=(*entry.blob_files, *made.blob_files),
    )


def _ids_below(entry: Entry, top: Field, schemas: Mapping[int, TableSchema]) -> list[int]:
    """The ids of a column and of the fields in it, as it is now and as the entry has it."""
    stored = schemas[schema_holding(entry.schema_id, entry.layout, top.id)].by_id.get(top.id, top)
    return [each.id for field in (top, stored) for _, each in field.walk()]
