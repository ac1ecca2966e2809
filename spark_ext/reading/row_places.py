"""Columns that say where a row is stored: ``_row_id``, ``_file`` and ``_pos`` of append tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st

from fermion_table import FileSplit, Scan, Split, TableSchema
from fermion_table.merging.primary_key import primary_key_of
from spark_ext.exchange import convert_batches
from spark_ext.reading.task import ReadTask, column_paths

ROW_ID, FILE, POSITION = "_row_id", "_file", "_pos"
PLACES: dict[str, st.DataType] = {
    ROW_ID: st.LongType(),
    FILE: st.StringType(),
    POSITION: st.LongType(),
}
"""The id of a row, which no other row ever has; its data file; its number there, from 0."""


def places_of(schema: TableSchema) -> list[str]:
    """The columns of `PLACES` that rows of a table have.

    Rows of a table that merges them by a primary key are told by the key.
    """
    if primary_key_of(schema) is not None:
        return []
    return [name for name in PLACES if name not in schema.by_name]


def scanned_paths(wanted: st.StructType, schema: TableSchema) -> list[tuple[str, ...]]:
    """The columns of a Spark schema as a scan takes them: file and position come from the id."""
    computed = _computed(wanted.names, schema)
    if not computed:
        return column_paths(wanted)
    stored = column_paths(st.StructType([field for field in wanted if field.name not in computed]))
    return stored if (ROW_ID,) in stored else [*stored, (ROW_ID,)]


def read_task(scan: Scan, wanted: st.StructType, schema: pa.Schema) -> ReadTask:
    """What reads the splits of a scan of `scanned_paths`, in the exact schema that Spark takes."""
    if _computed(wanted.names, scan.table_schema):
        return PlacedReadTask(scan.reader, schema)
    return ReadTask(scan.reader, schema)


@dataclass(frozen=True, slots=True)
class PlacedReadTask(ReadTask):
    """Reads splits with the files and positions of their rows. Picklable."""

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """Read the rows of some splits, in the exact schema that Spark takes."""
        for split in splits:
            assert isinstance(split, FileSplit)  # of an append table
            for batch in self.reader.read(split, threads=1):
                yield from convert_batches(self._placed(batch, split), self.schema)

    def _placed(self, batch: pa.RecordBatch, split: FileSplit) -> pa.RecordBatch:
        ids = batch.column(batch.num_columns - 1)
        if ROW_ID in self.schema.names:
            ids = batch.column(ROW_ID)
        columns = []
        for name in self.schema.names:
            if name == POSITION and name not in batch.schema.names:
                positions = ids.to_numpy() - (split.row_id_base or 0)
                columns.append(pa.array(positions, pa.int64()))
            elif name == FILE and name not in batch.schema.names:
                columns.append(pa.repeat(split.file, batch.num_rows))
            else:
                columns.append(batch.column(name))
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)


def _computed(names: Sequence[str], schema: TableSchema) -> set[str]:
    return {name for name in (FILE, POSITION) if name in names and name not in schema.by_name}
