"""The source of a merge: any Arrow producer, its schema known at once and its rows when asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from fermion.arguments import first_repeated
from fermion.engine import BatchCopier, is_in_memory, record_batch_reader
from fermion.errors import InvalidArgumentError, column_not_found
from fermion_table.argument_checks import check_columns, check_text
from fermion_table.errors import SchemaMismatch
from fermion_table.operations.merge_join import check_join_type
from fermion_table.operations.whole_tables import whole_table
from fermion_table.schema.conversion import convert, plan_column
from fermion_table.schema.schema import TableSchema


def check_on(on: Any, schema: TableSchema) -> dict[str, str]:
    """Columns of the source by those of the table that they are compared with.

    Raises
    ------
    TypeError, InvalidArgumentError
        Neither names nor a mapping, none at all, or a column twice or of a type without equality.
    ColumnNotFoundError
        The table lacks a column.
    """
    if isinstance(on, Mapping):
        pairs = [(check_text(key, "a key of on"), check_text(on[key], "on")) for key in on]
    else:
        names = [on] if isinstance(on, str) else check_columns(on, "on")
        pairs = [(check_text(name, "an item of on"), check_text(name, "on")) for name in names]
    if not pairs:
        raise InvalidArgumentError("on: expected at least one column")
    chosen = dict(pairs)
    if len(chosen) < len(pairs):
        raise InvalidArgumentError(f"on={on!r}: a column is named twice")
    for name in chosen:
        if name not in schema.by_name:
            raise column_not_found(name, schema.names, where="merge: on: the table")
        check_join_type(name, schema.by_name[name].type)
    return chosen


class MergeSource:
    """The source of a merge.

    Parameters
    ----------
    data
        Any Arrow producer. Rows that lie in memory are copied at once, as the caller may change
        them before they are merged; those of others are read when `rows` is called first.
    on
        See `check_on`.
    schema
        Of the table: says what data without types of their own are read as.

    Raises
    ------
    InvalidArgumentError
        No Arrow producer, or several columns of one name.
    ColumnNotFoundError
        A column of `on` is not there.
    SchemaMismatch
        Its type does not fit that of the table's column.
    """

    def __init__(self, data: Any, on: Mapping[str, str], schema: TableSchema) -> None:
        try:
            reader = record_batch_reader(data, schema=_expected(data, on, schema))
        except InvalidArgumentError as error:
            reason = str(error).removeprefix("data: ")
            raise InvalidArgumentError(f"source: {reason}") from error
        self._rows: pa.RecordBatch | None = None
        self._batches = map(BatchCopier(reader.schema).copy, reader)
        self.schema = reader.schema
        names = dict.fromkeys(self.schema.names)
        repeated = first_repeated(self.schema.names)
        if repeated is not None:
            raise InvalidArgumentError(f"source: more than one column is named {repeated!r}")
        for name in on.values():
            if name not in names:
                raise column_not_found(name, names, where="merge: on: the source")
        for name, found in on.items():
            with _naming(found):
                plan_column(schema.by_name[name], self.schema.field(found).type)
        if is_in_memory(data):
            self.rows()

    def rows(self) -> pa.RecordBatch:
        """All rows.

        Raises
        ------
        InvalidArgumentError
            Some column is too large for one array.
        """
        if self._rows is None:
            rows = pa.Table.from_batches(self._batches, schema=self.schema)
            self._rows = whole_table(rows, "source")
        return self._rows


def source_keys(rows: pa.RecordBatch, on: Mapping[str, str], schema: TableSchema) -> list[pa.Array]:
    """The keys of a source in the types of the table's columns.

    Raises
    ------
    SchemaMismatch
        A type does not fit, or a value does not.
    """
    keys = []
    for name, found in on.items():
        with _naming(found):
            conversion = plan_column(schema.by_name[name], rows.schema.field(found).type)
            keys.append(convert(conversion, rows.column(found)))
    return keys


@contextlib.contextmanager
def _naming(column: str) -> Iterator[None]:
    try:
        yield
    except SchemaMismatch as error:
        raise SchemaMismatch(f"merge: on: column {column!r} of the source: {error}") from None


def _expected(data: Any, on: Mapping[str, str], schema: TableSchema) -> pa.Schema | None:
    """What data without types of its own (a dict, an empty iterable) is read as."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return None
    fields = {on.get(field.name, field.name): field for field in schema.to_arrow(field_ids=False)}
    known = {name: field.with_name(name) for name, field in fields.items()}
    if isinstance(data, dict):
        return pa.schema([known[name] for name in data]) if known.keys() >= data.keys() else None
    return pa.schema(list(known.values()))
