"""How the columns of a data frame become the columns of a table: checked before any task runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from pyspark.sql import types as st

from fermion.errors import InvalidArgumentError
from fermion.typing import FilterLike
from fermion_table import Table, TableSchema, WriteSettings
from fermion_table.engine import DataWriter, KeyWriter, SchemaMerge, StagedTable
from spark_ext.column_names import renamed_fields, spelled
from spark_ext.types import arriving_schema

TASK_SETTINGS = WriteSettings(threads=1)
"""A task has one thread, as Spark counts the cores itself."""


def task_writer(
    table: Table | StagedTable,
    merge: SchemaMerge | None = None,
    *,
    overwrites: bool = False,
    filter: FilterLike | None = None,
) -> partial[DataWriter | KeyWriter]:
    """A picklable function that makes the table's writer in a task; see `Table.writer_factory`.

    A merge is that of `planned_merge`, for a table that exists.
    """
    if isinstance(table, StagedTable):
        return table.writer_factory(settings=TASK_SETTINGS)
    return table.writer_factory(
        settings=TASK_SETTINGS, merge=merge, overwrites=overwrites, filter=filter
    )


def written_schema(table: Table | StagedTable, merge: SchemaMerge | None = None) -> TableSchema:
    """The schema that data files are written with."""
    return table.schema if merge is None else merge.schema


def planned_merge(
    table: Table,
    frame: st.StructType,
    batch_id_column: str | None = None,
    *,
    case_sensitive: bool = False,
) -> SchemaMerge:
    """The table's schema with the columns that a frame adds; see `check_columns`. Not published."""
    known = table.schema.to_arrow(field_ids=False)
    frame = _without_batch_id(frame, batch_id_column, table)
    frame = spelled(frame, known, case_sensitive=case_sensitive)
    return table.plan_merge(arriving_schema(frame, known))


def check_columns(
    table: Table | StagedTable,
    frame: st.StructType,
    batch_id_column: str | None = None,
    *,
    merge: SchemaMerge | None = None,
    case_sensitive: bool = False,
) -> pa.Schema:
    """Check that the rows of a frame fit a table.

    frame: Schema of the data frame.
    batch_id_column: The column that numbers batches: left out unless the table has a column of this
        name.
    merge: Of `planned_merge`; None: the frame adds no columns.
    case_sensitive: Whether names that differ in case alone are different names.
    Returns: In which rows reach the table's writer, with the table's names: see
        `column_names.renamed_fields`.
    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError.
    """
    frame = _without_batch_id(frame, batch_id_column, table)
    known = written_schema(table, merge).to_arrow(field_ids=False)
    columns = arriving_schema(spelled(frame, known, case_sensitive=case_sensitive), known)
    check_batches(task_writer(table, merge), columns)
    return columns


def without_change_type(
    frame: st.StructType, change_type: str | None, table: TableSchema, *, case_sensitive: bool
) -> st.StructType:
    """The columns of a frame without the one that says what each row is, which is checked.

    Raises InvalidArgumentError: The frame lacks it, it is no text, or the table has a column of
        this name.
    """
    if change_type is None:
        return frame
    known = set(table.by_name)
    if change_type in known or (
        not case_sensitive and change_type.lower() in {name.lower() for name in known}
    ):
        raise InvalidArgumentError(
            f"change_type={change_type!r}: expected a column beside those of the table, which "
            "has one of this name"
        )
    if frame.names.count(change_type) != 1:
        raise InvalidArgumentError(
            f"change_type={change_type!r}: expected one column of this name in the frame, which "
            f"has {', '.join(frame.names)}"
        )
    dtype = frame[change_type].dataType
    if not isinstance(dtype, st.StringType):
        raise InvalidArgumentError(
            f"change_type={change_type!r} is {dtype.simpleString()}; expected string"
        )
    return st.StructType([field for field in frame if field.name != change_type])


def renamed_columns(frame: st.StructType, schema: TableSchema) -> dict[str, pa.Field]:
    """What a task of a data source renames: it knows no setting, so Spark's default applies."""
    known = schema.to_arrow(field_ids=False)
    return renamed_fields(frame, spelled(frame, known, case_sensitive=False))


def check_batches(open_writer: Callable[[], DataWriter | KeyWriter], columns: pa.Schema) -> None:
    """Check that a writer takes record batches of a schema.

    Raises SchemaMismatch.
    """
    with open_writer() as writer:  # without rows it makes no file
        writer.write(pa.Table.from_batches([], columns))


def _without_batch_id(
    frame: st.StructType, batch_id_column: str | None, table: Table | StagedTable
) -> st.StructType:
    if batch_id_column is None:
        return frame
    if batch_id_column not in frame.names:
        raise InvalidArgumentError(
            f"batch_id_column={batch_id_column!r}: the frame has no such column; "
            f"it has {', '.join(frame.names)}"
        )
    dtype = frame[batch_id_column].dataType
    if not isinstance(dtype, st.IntegralType):
        raise InvalidArgumentError(
            f"batch_id_column={batch_id_column!r} is {dtype.simpleString()}; expected integers"
        )
    if batch_id_column in table.schema.by_name:
        return frame
    return st.StructType([field for field in frame if field.name != batch_id_column])
