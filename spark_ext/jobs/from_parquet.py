"""Appends Parquet files to a table: ``python -m spark_ext.jobs.from_parquet SOURCE PATH``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from spark_ext.conversion.files import parquet_files
from spark_ext.jobs.program import add_commit, added, arguments, commit_of, run, storage_options


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = arguments(
        "spark_ext.jobs.from_parquet",
        "Append Parquet files to a table, as one snapshot; make the table if there is none.",
        dry_run="report the files and their columns, and do nothing",
    )
    made.add_argument("source", help="a Parquet file, or a directory of Parquet files")
    made.add_argument("path", help="the table")
    made.add_argument(
        "--partition-by",
        action="append",
        metavar="COLUMN",
        help="partition a new table by this column; repeat for more",
    )
    add_commit(made)
    return made


def from_parquet(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = storage_options(options)
    if options.dry_run:
        files, schema = parquet_files(options.source, storage_options=access)
        return {
            "table": options.path,
            "dry_run": True,
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "columns": schema.names,
        }
    snapshot = spark_ext.from_parquet(
        spark,
        options.source,
        options.path,
        partition_by=options.partition_by,
        **commit_of(options),
        storage_options=access,
    )
    return added(options.path, snapshot)


main = partial(run, parser, from_parquet)


if __name__ == "__main__":
    sys.exit(main())
