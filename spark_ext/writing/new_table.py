"""The table that ``format("fermion")`` writes to: it is created if there is none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion_table import Table, TableExists, TableNotFound, TableSchema
from fermion_table.engine import MAIN, StagedTable, stage_table
from spark_ext.column_names import spelled
from spark_ext.opening import open_branch
from spark_ext.options import SourceOptions
from spark_ext.types import table_schema
from spark_ext.writing.columns import without_change_type


def open_or_stage(options: SourceOptions, rows: StructType) -> Table | StagedTable:
    """Open the table that options name, or plan it for rows; options must agree with it.

    Raises InvalidArgumentError: There is a table that options define otherwise; or a new one can't
        be so.
    Raises TableNotFound: There is none, and the options name a branch.
    Raises TableExists: A table lies in a directory above or below.
    Raises UnsupportedBySpark, VersionNotFound.
    """
    try:
        table = open_branch(options)
    except TableNotFound:
        if options.branch not in (None, MAIN):
            raise
    else:
        _check_definition(table, options)
        return table
    spelled(rows, pa.schema([]), case_sensitive=False)  # names that differ in case only
    change_type = options.change_type
    if change_type is not None and options.primary_key is None:
        raise InvalidArgumentError(
            f"option changeType: {options.path}: no table here, and only one with a primary key "
            "takes changes; define it with option primaryKey"
        )
    columns = StructType([field for field in rows if field.name != change_type])
    staged = _staged(options, table_schema(columns.toNullable()), "create")
    without_change_type(rows, change_type, staged.schema, case_sensitive=False)
    return staged


def created(staged: StagedTable, options: SourceOptions) -> Table:
    """Create a planned table, without rows; the one that another job has created serves too.

    Raises TableExists, InvalidArgumentError: That one has another definition.
    Raises CommitStateUnknown.
    """
    try:
        staged.commit()
    except TableExists:
        table = open_branch(options)
        _check_definition(table, options)
        return table
    return open_branch(options)


def _staged(options: SourceOptions, schema: pa.Schema, mode: Any) -> StagedTable:
    return stage_table(
        options.path,
        schema,
        mode=mode,
        partition_by=options.partition_by,
        primary_key=options.primary_key,
        sort_by=options.sort_by,
        properties=options.table_properties,
        storage_options=options.storage_options,
    )


def _check_definition(table: Table, options: SourceOptions) -> None:
    """Refuse options for a new table that describe the one that is there otherwise."""
    for key, value in (options.table_properties or {}).items():
        own = table.properties.get(key)
        if own != value:
            raise _differs("tableProperties", f"{key}={own}", table)
    if options.partition_by is options.primary_key is options.sort_by is None:
        return
    wanted = _staged(options, table.schema.to_arrow(field_ids=False), "replace").schema
    asked, found = _definition(wanted), _definition(table.schema)
    for option, given in (
        ("partitionBy", options.partition_by),
        ("primaryKey", options.primary_key),
        ("sortBy", options.sort_by),
    ):
        if given is not None and asked[option] != found[option]:
            raise _differs(option, ", ".join(found[option]) or "none", table)


def _definition(schema: TableSchema) -> dict[str, list[str]]:
    partitions = []
    for field in schema.partition_by:
        name = schema.by_id[field.source_id].name
        arguments = f"{field.parameter}, {name}" if field.parameter else name
        partitions.append(f"{field.transform}({arguments})")
    return {
        "partitionBy": partitions,
        "primaryKey": [schema.by_id[field_id].name for field_id in schema.primary_key],
        "sortBy": [schema.by_id[field_id].name for field_id in schema.sort_by],
    }


def _differs(option: str, definition: str, table: Table) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"option {option}: the table at {table.location} has another definition: {definition}; the "
        "option is for a new table, leave it out"
    )
