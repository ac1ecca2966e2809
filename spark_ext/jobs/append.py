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
from spark_ext.jobs import program
from spark_ext.writing.job import FrameOptions


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.append",
        "Append files that Spark reads to a table, or overwrite with them, as one snapshot.",
        dry_run="check the columns and append nothing",
        positional={"path": "the table; it must exist"},
    )
    program.add_source(made)
    made.add_argument("--batch-id-column", help="write batches; this column has their ids")
    program.add_schema_mode(made)
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
    program.add_commit(made)
    return made


def append(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = program.storage_options(options)
    table = Table.open(options.path, storage_options=access)
    frame = program.source(spark, options)
    if options.dry_run:
        frame_options = FrameOptions(
            batch_id_column=options.batch_id_column, schema_mode=options.schema_mode
        )
        return program.planned(frame, table, frame_options)
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
        **program.commit_of(options),
        storage_options=access,
    )
    return program.added(snapshot)


main = partial(program.run, parser, append)


if __name__ == "__main__":
    sys.exit(main())
