"""Upserts files that Spark reads: ``python -m spark_ext.jobs.upsert PATH SOURCE...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table
from fermion_table.engine import required_key
from spark_ext.jobs.program import (
    add_commit,
    add_schema_mode,
    add_source,
    added,
    arguments,
    commit_of,
    planned,
    run,
    source,
    storage_options,
)
from spark_ext.writing.append import flat_changes
from spark_ext.writing.job import FrameOptions


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = arguments(
        "spark_ext.jobs.upsert",
        "Insert the rows of files that Spark reads into a table with a primary key, or replace "
        "those of their keys, as one snapshot.",
        dry_run="check the columns and write nothing",
    )
    made.add_argument("path", help="the table; it must exist")
    add_source(made)
    made.add_argument(
        "--change-type",
        metavar="COLUMN",
        help="the column that says what each row is: insert, update_preimage, update_postimage or "
        "delete (default: all are insertions)",
    )
    made.add_argument(
        "--change-format",
        choices=["debezium"],
        help="the rows are changes as Debezium gives them, and the column of --change-type says c, "
        "r, u or d (default: op)",
    )
    add_schema_mode(made)
    add_commit(made)
    return made


def upsert(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = storage_options(options)
    table = Table.open(options.path, storage_options=access)
    required_key(table.schema, table.location, "upsert")
    frame = source(spark, options)
    if options.dry_run:
        frame_options = FrameOptions(
            change_type=options.change_type, schema_mode=options.schema_mode
        )
        if options.change_format is not None:
            frame, frame_options = flat_changes(
                frame, frame_options, options.change_format, table.schema
            )
        return planned(options.path, frame, table, frame_options)
    snapshot = spark_ext.upsert(
        frame,
        options.path,
        change_type=options.change_type,
        format=options.change_format,
        schema_mode=options.schema_mode,
        **commit_of(options),
        storage_options=access,
    )
    return added(options.path, snapshot)


main = partial(run, parser, upsert)


if __name__ == "__main__":
    sys.exit(main())
