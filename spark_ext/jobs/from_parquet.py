"""Parquet files into a table: ``python -m spark_ext.jobs.from_parquet SOURCE PATH``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from spark_ext.jobs.program import arguments, run, storage_options
from spark_ext.maintenance.conversion import parquet_files


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = arguments(
        "spark_ext.jobs.from_parquet",
        "Append Parquet files to a table, as one snapshot; create the table if it does not exist.",
        dry_run="print the files and columns, and do nothing",
    )
    made.add_argument("source", help="a Parquet file, or a directory of them")
    made.add_argument("path", help="the table")
    made.add_argument(
        "--partition-by",
        action="append",
        metavar="COLUMN",
        help="partition column of a new table; repeat for more",
    )
    made.add_argument("--message", help="description of the commit")
    made.add_argument(
        "--commit-user", help="user of the commit; with --commit-identifier, appends once"
    )
    made.add_argument("--commit-identifier", help="identifier of the commit, unique for the user")
    return made


def from_parquet(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Do it; the summary comes back."""
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
        message=options.message,
        commit_user=options.commit_user,
        commit_identifier=options.commit_identifier,
        storage_options=access,
    )
    return {
        "table": options.path,
        "dry_run": False,
        "snapshot": snapshot.id,
        "files_added": snapshot.deltas.files_added,
        "rows_added": snapshot.deltas.rows_added,
        "bytes_added": snapshot.deltas.bytes_added,
        "rows": snapshot.totals.rows,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit status comes back."""
    return run(parser(), from_parquet, argv)


if __name__ == "__main__":
    sys.exit(main())
