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
from spark_ext.jobs import program


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.from_parquet",
        "Append Parquet files to a table, as one snapshot; make the table if there is none.",
        dry_run="report the files and their columns, and do nothing",
        positional={
            "source": "a Parquet file, or a directory of Parquet files",
            "path": "the table",
        },
    )
    made.add_argument(
        "--partition-by",
        action="append",
        metavar="COLUMN",
        help="partition a new table by this column; repeat for more",
    )
    program.add_commit(made)
    return made


def from_parquet(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = program.storage_options(options)
    if options.dry_run:
        files, schema = parquet_files(options.source, storage_options=access)
        return {
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "columns": schema.names,
        }
    snapshot = spark_ext.from_parquet(
        spark,
        options.source,
        options.path,
        partition_by=options.partition_by,
        **program.commit_of(options),
        storage_options=access,
    )
    return program.added(snapshot)


main = partial(program.run, parser, from_parquet)


if __name__ == "__main__":
    sys.exit(main())
