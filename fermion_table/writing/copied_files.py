"""Fermion files that others have written, checked and copied into a table: `Table.add_files`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

import fermion
from fermion.arguments import first_repeated
from fermion.errors import InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.argument_checks import described
from fermion_table.errors import SchemaMismatch
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.schema.sorting import RowOrder
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_files import DataFiles
from fermion_table.writing.incoming_rows import (
    UNPARTITIONED,
    Partition,
    partition_columns,
    split_batch,
)

_APPEND = "Table.append(fermion.open(path)) writes its rows anew"


def copied_files(
    paths: Sequence[str | os.PathLike[str]],
    store: AtomicStore,
    schema: TableSchema,
    files: DataFiles,
) -> list[Entry]:
    """The entries of copies of files; one without rows and batches makes none.

    Raises TypeError, SchemaMismatch, InvalidArgumentError: See `Table.add_files`.
    """
    if has_buckets(schema):
        raise InvalidArgumentError(
            f"{redacted(store.location)}: add_files: the files of a table with a primary key are "
            "sorted by key and bucket: Table.upsert(fermion.open(path)) writes the rows so"
        )
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"files: expected paths or URLs, found {described(path)}")
    repeated = first_repeated([os.fspath(path) for path in paths])
    if repeated is not None:
        raise InvalidArgumentError(f"files: {redacted(str(repeated))} comes twice")
    entries = []
    for path in paths:
        where = f"add_files: {redacted(os.fspath(path))}"
        with fermion.open(path, storage_options=store.storage_options) as file:
            _check(file, schema, where)
            if file.num_rows or file.index.footer.is_batch:
                entries.append(files.copy(file, _partition_of(file, schema, where)))
    return entries


def _check(file: fermion.FermionFile, schema: TableSchema, where: str) -> None:
    """Refuse a file that is no data file of the table: other columns, another order, damage."""
    expected, found = schema.to_arrow(), file.schema
    if schema.blob_columns or file.index.footer.has_blobs:
        raise InvalidArgumentError(
            f"{where}: files are not copied into a table with columns of blobs, nor those with "
            f"blobs into another one; {_APPEND}"
        )
    if found.names != expected.names:
        raise SchemaMismatch(
            f"{where}: expected the table's columns in their order, {expected.names[:20]}, found "
            f"{found.names[:20]}; {_APPEND}"
        )
    for wanted, given in zip(expected, found, strict=True):
        if given.type != wanted.type or (given.nullable and not wanted.nullable):
            raise SchemaMismatch(
                f"{where}: column {wanted.name!r}: expected {_type(wanted)}, found {_type(given)}; "
                f"{_APPEND}"
            )
    names = [schema.by_id[number].name for number in schema.sort_by]
    if names and not file.index.footer.is_batch:
        order = RowOrder(tuple(names)).indices(file.read(names))
        if not np.array_equal(order, np.arange(file.num_rows)):
            raise InvalidArgumentError(f"{where}: rows are not sorted by {names}; {_APPEND}")
    report = file.verify()
    if not report.ok:
        raise InvalidArgumentError(f"{where}: is damaged: {report.problems[0]}")


def _type(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _partition_of(file: fermion.FermionFile, schema: TableSchema, where: str) -> Partition:
    """The partition that all rows of a file belong to."""
    columns = partition_columns(schema)
    if not columns:
        return UNPARTITIONED
    names = [schema.names[column.ordinal] for column in columns]
    read = list(dict.fromkeys(names))
    placed = [
        replace(column, ordinal=read.index(name))
        for column, name in zip(columns, names, strict=True)
    ]
    found: set[Partition] = set()
    for batch in file.iter_batches(read):
        found.update(partition for partition, _ in split_batch(batch, placed))
    if len(found) != 1:
        raise InvalidArgumentError(
            f"{where}: expected rows of one partition, found {len(found)}; {_APPEND}"
        )
    return found.pop()
