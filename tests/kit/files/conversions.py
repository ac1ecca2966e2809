"""Conversions that the tests of Parquet and Fermion share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fermion

QUICK = fermion.WriteOptions(durable=False, threads=1)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Arrow's messages keep it: map entries lose their odd names."""
    return pa.ipc.read_schema(schema.serialize())


def as_stored(table: pa.Table) -> pa.Table:
    return table.cast(stored_schema(table.schema))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def stored(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, options=QUICK, **options)
    return sink.getvalue()


def to_fermion(source: Any) -> bytes:
    sink = io.BytesIO()
    fermion.from_parquet(source, sink, options=QUICK)
    return sink.getvalue()


def to_parquet(source: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    fermion.to_parquet(source, sink, **options)
    return sink.getvalue()


def read_parquet(source: Any) -> pa.Table:
    file = pq.ParquetFile(
        pa.BufferReader(source) if isinstance(source, bytes) else source,
        coerce_int96_timestamp_unit="us",
    )
    table = file.read()
    for index in range(file.metadata.num_columns):
        leaf = file.schema.column(index)
        if leaf.physical_type == "INT96" and leaf.path in table.column_names:  # instants in UTC
            place = table.column_names.index(leaf.path)
            field = table.schema.field(place).with_type(pa.timestamp("us", "UTC"))
            table = table.set_column(place, field, table.column(place).cast(field.type))
    return table


def read(source: bytes) -> pa.Table:
    with fermion.open(source) as file:
        return file.read()


def quietly_read(path: Path) -> pa.Table | None:
    """What pyarrow reads, None where it cannot."""
    try:
        return read_parquet(path)
    except (pa.ArrowException, OSError, ValueError):
        return None
