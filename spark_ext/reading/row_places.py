"""Columns that tell rows of a table apart, and that a scan computes or reads under another name.

Of append tables ``_row_id``, ``_file`` and ``_pos`` say where a row is stored. Of primary-key
tables statements need the sequence fields of rows as they are, beside those that they set. Of
Variant columns a scan may read only the parts that a query needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from fermion.exports import dataclass
from fermion_table import Scan, TableSchema
from fermion_table.engine import primary_key_of
from spark_ext.column_names import free_names
from spark_ext.exchange import convert_batches
from spark_ext.reading.task import ReadTask, column_paths
from spark_ext.workers import keep_modules

ROW_ID, FILE, POSITION = "_row_id", "_file", "_pos"
SEQUENCE = "_sequence_{}"


def places_of(schema: TableSchema) -> dict[str, str]:
    """Columns that rows of a table have, with what they are: `ROW_ID`, `FILE` or `POSITION`.

    That is the id of a row, which no other row ever has; its data file; its number there, from 0.
    Rows of a table that merges them by a primary key are told by the key.
    """
    if primary_key_of(schema) is not None:
        return {}
    others = {name: name for name in (FILE, POSITION) if name not in schema.by_name}
    return {schema.row_id_name: ROW_ID, **others}


def sequences_of(schema: TableSchema) -> dict[str, str]:
    """Of each sequence field of a primary-key table: the column that repeats it, and its name."""
    key = primary_key_of(schema)
    if key is None:
        return {}
    fields = [name for name in key.options.sequence_fields if name not in key.names]
    repeating = free_names(schema.names, *(SEQUENCE.format(name) for name in fields))
    return dict(zip(repeating, fields, strict=True))


Parts = Mapping[str, str]
"""Of Variant columns of which a query needs some paths: what a scan calls these parts."""


def scanned_paths(
    wanted: st.StructType, schema: TableSchema, parts: Parts = MappingProxyType({})
) -> list[tuple[str, ...]]:
    """The columns of a Spark schema as a scan takes them: file and position come from the id."""
    sources = _sources(wanted.names, schema, parts)
    stored = column_paths(st.StructType([field for field in wanted if field.name not in sources]))
    stored = [
        path if len(path) == 1 or _has_fields(schema, path[0]) else path[:1] for path in stored
    ]
    return list(dict.fromkeys([*stored, *((name,) for name in sources.values())]))


def _has_fields(schema: TableSchema, name: str) -> bool:
    """Whether a column that is a struct in Spark is one in the table; handles of blobs are none."""
    return name not in schema.by_name or not isinstance(schema.by_name[name].stored_type, str)


def read_task(
    scan: Scan, wanted: st.StructType, schema: pa.Schema, parts: Parts = MappingProxyType({})
) -> ReadTask:
    """What reads the splits of a scan of `scanned_paths`, in the exact schema that Spark takes."""
    sources = _sources(wanted.names, scan.table_schema, parts)
    return (
        PlacedReadTask(scan.reader, schema, sources) if sources else ReadTask(scan.reader, schema)
    )


@dataclass(frozen=True, slots=True)
class PlacedReadTask(ReadTask):
    """Reads splits with columns that the scan makes of other ones, its sources. Picklable."""

    sources: Mapping[str, str]

    def read(self, splits: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Read the rows of some splits, in the exact schema that Spark takes."""
        keep_modules()
        for split in splits:
            for batch in self.reader.read(split, threads=1):
                yield from convert_batches(self._placed(batch, split), self.schema)

    def _placed(self, batch: pa.RecordBatch, split: Any) -> pa.RecordBatch:
        columns = []
        for name in self.schema.names:
            column = batch.column(self.sources.get(name, name))
            if name in self.sources and name == FILE:
                column = pa.repeat(split.file, batch.num_rows)
            elif name in self.sources and name == POSITION:
                column = pa.array(column.to_numpy() - (split.row_id_base or 0), pa.int64())
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)


def _sources(names: Sequence[str], schema: TableSchema, parts: Parts) -> dict[str, str]:
    places = places_of(schema)
    computed = {name: schema.row_id_name for name, kind in places.items() if kind != ROW_ID}
    computed |= sequences_of(schema) | {**parts}
    return {name: source for name, source in computed.items() if name in names}
