"""Appends files that Spark reads to a table: ``python -m spark_ext.jobs.append PATH SOURCE...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Snapshot, Table
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
from spark_ext.writing.job import FrameOptions


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = arguments(
        "spark_ext.jobs.append",
        "Append files that Spark reads to a table, or overwrite with them, as one snapshot.",
        dry_run="check the columns and append nothing",
    )
    made.add_argument("path", help="the table; it must exist")
    add_source(made)
    made.add_argument("--batch-id-column", help="write batches; this column has their ids")
    add_schema_mode(made)
    replacing = made.add_mutually_exclusive_group()
    replacing.add_argument("--overwrite", action="store_true", help="replace all rows of the table")
    replacing.add_argument(
        "--overwrite-where",
        metavar="CONDITION",
        help="replace the rows that this SQL condition selects",
    )
    replacing.add_argument(
        "--overwrite-partitions",
        action="store_true",
        help="replace the partitions that the files have rows for",
    )
    add_commit(made)
    return made


def append(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = storage_options(options)
    table = Table.open(options.path, storage_options=access)
    frame = source(spark, options)
    if options.dry_run:
        frame_options = FrameOptions(
            batch_id_column=options.batch_id_column, schema_mode=options.schema_mode
        )
        return planned(options.path, frame, table, frame_options)
    write: Callable[..., Snapshot] = spark_ext.append
    replaced: dict[str, Any] = {}
    if options.overwrite or options.overwrite_where or options.overwrite_partitions:
        write = spark_ext.overwrite
        replaced = {"filter": options.overwrite_where, "dynamic": options.overwrite_partitions}
    snapshot = write(
        frame,
        options.path,
        **replaced,
        batch_id_column=options.batch_id_column,
        schema_mode=options.schema_mode,
        **commit_of(options),
        storage_options=access,
    )
    return added(options.path, snapshot)


main = partial(run, parser, append)


if __name__ == "__main__":
    sys.exit(main())
