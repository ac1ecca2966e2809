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
from spark_ext.jobs import program
from spark_ext.writing.append import flat_changes
from spark_ext.writing.job import FrameOptions


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.upsert",
        "Insert the rows of files that Spark reads into a table with a primary key, or replace "
        "those of their keys, as one snapshot.",
        dry_run="check the columns and write nothing",
        positional={"path": "the table; it must exist"},
    )
    program.add_source(made)
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
    program.add_schema_mode(made)
    program.add_commit(made)
    return made


def upsert(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = program.storage_options(options)
    table = Table.open(options.path, storage_options=access)
    required_key(table.schema, table.location, "upsert")
    frame = program.source(spark, options)
    if options.dry_run:
        frame_options = FrameOptions(
            change_type=options.change_type, schema_mode=options.schema_mode
        )
        if options.change_format is not None:
            frame, frame_options = flat_changes(
                frame, frame_options, options.change_format, table.schema
            )
        return program.planned(frame, table, frame_options)
    snapshot = spark_ext.upsert(
        frame,
        options.path,
        change_type=options.change_type,
        format=options.change_format,
        schema_mode=options.schema_mode,
        **program.commit_of(options),
        storage_options=access,
    )
    return program.added(snapshot)


main = partial(program.run, parser, upsert)


if __name__ == "__main__":
    sys.exit(main())
