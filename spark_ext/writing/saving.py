"""Writes data frames as tables with Spark's save modes; a new table appears with its rows."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame

from fermion.arguments import flag
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import parse_filter
from fermion_table import (
    CommitMetadata,
    Snapshot,
    StagedTable,
    StorageAccess,
    Table,
    TableExists,
    stage_table,
)
from spark_ext.column_names import is_case_sensitive, spelled
from spark_ext.options import chosen_access
from spark_ext.reading import MAIN
from spark_ext.session import classic_frame
from spark_ext.types import table_schema
from spark_ext.writing.writer import (
    WORDS,
    append,
    check_batch_id,
    check_layout,
    check_schema_mode,
    commit_staged,
    overwrite,
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

    A new table appears with its rows: a job that fails leaves none.

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
        What was published; with ``ignore`` perhaps what was there.

    Raises
    ------
    TableExists
        There is a table, and the mode is ``error``; or another writer has made one meanwhile.
    TypeError, InvalidArgumentError, ColumnNotFoundError, SchemaMismatch, UnsupportedBySpark
    pyspark.errors.PySparkException, CommitConflict, CommitStateUnknown
        As for `append`; there is no new table then.
    """
    classic_frame(df, "write")
    if mode not in ("error", "errorifexists", "ignore", "append", "overwrite"):
        raise InvalidArgumentError(
            f"mode={mode!r}: expected 'error', 'ignore', 'append' or 'overwrite'"
        )
    function = overwrite if mode == "overwrite" else append
    named = {"storage_options": storage_options, "access": access, **options}
    inspect.signature(function).bind(df, path, **named)
    words = CommitMetadata(**{name: options[name] for name in WORDS if name in options})
    _check_properties(table_properties)
    if access is not None and not isinstance(access, StorageAccess):
        raise InvalidArgumentError(f"access={access!r:.80}: expected a StorageAccess")
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
        _check_options(staged, **{name: options[name] for name in options if name not in WORDS})
        spelled(frame, pa.schema([]), case_sensitive=is_case_sensitive(df.sparkSession))
        return _create(df, staged, words, options)
    except TableExists:
        if mode in ("error", "errorifexists"):
            raise
    if mode == "ignore":
        opened = Table.open(path, storage_options=storage_options, access=chosen_access(access))
        return opened.snapshot
    return function(df, path, **named)


def _create(
    df: DataFrame, staged: StagedTable, words: CommitMetadata, options: Mapping[str, Any]
) -> Snapshot:
    try:
        messages = write_files(
            df, staged, staged.schema, options.get("batch_id_column"), options.get("cluster", True)
        )
    except BaseException:
        staged.discard()
        raise
    return commit_staged(staged, messages, words)


def _check_options(
    staged: StagedTable,
    *,
    filter: Any = None,
    dynamic: bool = False,
    batch_id_column: str | None = None,
    schema_mode: Literal["merge"] | None = None,
    cluster: bool = True,
    branch: str | None = None,
) -> None:
    """Refuse options of `append` and `overwrite` that a new table cannot follow.

    Raises
    ------
    TypeError, InvalidArgumentError, ColumnNotFoundError
    """
    check_schema_mode(schema_mode)
    check_batch_id(batch_id_column)
    flag(cluster, "cluster")
    if branch not in (None, MAIN):
        raise InvalidArgumentError(
            f"branch={branch!r}: there is no table yet, and a new one has only branch {MAIN!r}"
        )
    check_layout(staged, filter, dynamic)
    chosen = parse_filter(filter)
    for column in sorted(chosen.columns()) if chosen is not None else ():
        if column[0] not in staged.schema.by_name:
            raise ColumnNotFoundError(f"filter: the frame has no column {column[0]!r}")


def _check_properties(properties: Any) -> None:
    texts = isinstance(properties, Mapping) and all(
        isinstance(key, str) and isinstance(value, str) for key, value in properties.items()
    )
    if properties is not None and not texts:
        raise TypeError(f"table_properties={properties!r:.80}: expected a mapping of texts")
