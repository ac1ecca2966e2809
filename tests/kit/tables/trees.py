"""Primary-key tables and the files of their trees, for the tests of what writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import fermion
from fermion_table import Table
from fermion_table.merging.merge_reader import KEY_COLUMN
from fermion_table.merging.primary_key import PrimaryKey, primary_key_of
from fermion_table.metadata.manifest import Entry
from fermion_table.writing.writer_message import WriterMessage

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
KIND = "_row_kind"


def keyed_table(path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    """Return a new table with the key ``k``, without fsync."""
    return Table.create(path, schema, **{"primary_key": ["k"], "durability": "fast"} | options)


def key_of(table: Table) -> PrimaryKey:
    """Return the table's primary key."""
    key = primary_key_of(table.schema)
    assert key is not None
    return key


def file_of(table: Table, entry: Entry) -> fermion.FermionFile:
    """Return a data file of a table in a local directory."""
    return fermion.open(Path(table.location.removeprefix("file://")) / entry.path)


def rows_of(table: Table, entry: Entry) -> list[tuple[Any, ...]]:
    """Return the rows of a data file; the kind comes last, +I where the file has none."""
    found = file_of(table, entry).read()
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return rows if KIND in found.column_names else [(*row, 0) for row in rows]


def data_files(table: Table) -> set[str]:
    """Return the paths of all data files that are stored."""
    root = Path(table.location.removeprefix("file://"))
    return {str(path.relative_to(root)) for path in root.glob("data/**/*") if path.is_file()}


def entries_of(messages: list[WriterMessage]) -> list[Entry]:
    """Return the entries of messages."""
    return [entry for message in messages for entry in message.entries]


def run_of(table: Table, entries: list[Entry]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one sorted run, with columns of kinds and keys, for `merge_runs`."""
    key = key_of(table)
    for entry in sorted(entries, key=lambda entry: entry.min_key):
        for batch in file_of(table, entry).read().to_batches():
            if KIND not in batch.schema.names:
                zeros = pa.nulls(batch.num_rows, pa.int8()).fill_null(0)
                batch = batch.append_column(KIND, zeros)
            fields = [field.remove_metadata() for field in batch.schema]
            fields[-1] = fields[-1].with_nullable(True)
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
            yield batch.append_column(KEY_COLUMN, key.keys(batch))
