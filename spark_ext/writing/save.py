"""Writes data frames as tables with Spark's save modes; makes the table if there is none."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame

from fermion.errors import InvalidArgumentError
from fermion_table import Snapshot, StorageAccess, TableExists
from fermion_table.argument_checks import check_text_map
from fermion_table.engine import MAIN, CommitMetadata, StagedTable, check_overwrite, stage_table
from spark_ext.column_names import is_case_sensitive, spelled
from spark_ext.opening import open_table
from spark_ext.options import chosen_access
from spark_ext.session import classic_frame
from spark_ext.types import table_schema
from spark_ext.writing.append import append, overwrite
from spark_ext.writing.job import (
    COMMIT_ARGUMENTS,
    FrameOptions,
    create_with_rows,
    write_files,
)

SaveMode = Literal["error", "errorifexists", "ignore", "append", "overwrite"]


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    mode: SaveMode = "error",
    partition_by: Sequence[str] | str | None = None,
    sort_by: Sequence[str] | str | None = None,
    table_properties: Mapping[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
    **options: Any,
) -> Snapshot:
    """Write a data frame to a table with Spark's save modes; create the table if it does not exist.

    A new table and its rows become visible together: a job that fails leaves no table.

    Parameters
    ----------
    df, path
        As for `append`.
    mode
        Where a table exists: ``error`` (or ``errorifexists``), ``ignore`` (do nothing),
        ``append``, or ``overwrite`` all of its rows.
    partition_by, sort_by, table_properties
        Of a new table, as for `fermion_table.Table.create`.
    storage_options
        For fsspec.
    access
        As for `append`, of a table that exists.
    options
        Of `append` or `overwrite`.

    Returns
    -------
    fermion_table.Snapshot
        The new snapshot; with ``ignore`` the newest one of a table that exists.

    Raises
    ------
    TableExists
        There is a table, and the mode is ``error``, or another writer made it meanwhile.
    TypeError, InvalidArgumentError, ColumnNotFoundError, SchemaMismatch, UnsupportedBySpark
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
    CommitConflict, CommitStateUnknown
        As for `append`; no table is made.
    """
    classic_frame(df, "write")
    if mode not in ("error", "errorifexists", "ignore", "append", "overwrite"):
        raise InvalidArgumentError(
            f"mode={mode!r}: expected 'error', 'ignore', 'append' or 'overwrite'"
        )
    function = overwrite if mode == "overwrite" else append
    named = {"storage_options": storage_options, "access": access, **options}
    inspect.signature(function).bind(df, path, **named)
    metadata = CommitMetadata(
        **{name: options[name] for name in COMMIT_ARGUMENTS if name in options}
    )
    rest = {name: value for name, value in options.items() if name not in COMMIT_ARGUMENTS}
    check_text_map(table_properties, "table_properties")
    chosen_access(access)
    frame = df.schema
    try:
        staged = stage_table(
            path,
            table_schema(frame),
            partition_by=partition_by,
            sort_by=sort_by,
            properties=table_properties,
            storage_options=storage_options,
        )
        frame_options = _check_options(staged, **rest)
        spelled(frame, pa.schema([]), case_sensitive=is_case_sensitive(df.sparkSession))
        return create_with_rows(staged, lambda: write_files(df, staged, frame_options), metadata)
    except TableExists:
        if mode in ("error", "errorifexists"):
            raise
    if mode == "ignore":
        return open_table(path, storage_options=storage_options, access=access).snapshot
    return function(df, path, **named)


def _check_options(
    staged: StagedTable,
    *,
    filter: Any = None,
    dynamic: bool = False,
    branch: str | None = None,
    **options: Any,
) -> FrameOptions:
    """Refuse options of `append` and `overwrite` that a new table cannot follow."""
    frame_options = FrameOptions(**options)
    if branch not in (None, MAIN):
        raise InvalidArgumentError(
            f"branch={branch!r}: there is no table yet, and a new one has only branch {MAIN!r}"
        )
    check_overwrite(staged.schema, filter, dynamic, where=staged.store.location)
    return frame_options
