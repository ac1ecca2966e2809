"""Writes a table as Parquet files: ``python -m spark_ext.jobs.to_parquet PATH TARGET``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table
from spark_ext.jobs import program


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.to_parquet",
        "Write a table's rows as Parquet files, one for each data file, into a new directory.",
        dry_run="print how much would be written, and do nothing",
    )
    made.add_argument("target", help="a directory that does not exist yet, or is empty")
    made.add_argument("--column", action="append", help="only this column; repeat for more")
    made.add_argument("--filter", help="only rows that meet a SQL condition")
    made.add_argument("--snapshot-id", type=int, help="an older snapshot")
    made.add_argument("--compression", default="zstd", help="codec of Parquet (default: zstd)")
    made.add_argument(
        "--nanoseconds",
        action="store_true",
        help="write timestamps in nanoseconds, which Spark can't read (default: microseconds)",
    )
    return made


def to_parquet(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    access = program.storage_options(options)
    if options.dry_run:
        table = Table.open(options.path, storage_options=access)
        scan = table.scan(
            columns=options.column, filter=options.filter, snapshot_id=options.snapshot_id
        )
        plan = scan.plan()
        return {
            "snapshot": plan.snapshot_id,
            "files": len(plan.splits),
            "rows_before_filter": plan.rows,
        }
    result = spark_ext.to_parquet(
        spark,
        options.path,
        options.target,
        columns=options.column,
        filter=options.filter,
        snapshot_id=options.snapshot_id,
        storage_options=access,
        compression=options.compression,
        coerce_timestamps=None if options.nanoseconds else "us",
    )
    return {
        "target": options.target,
        "snapshot": result.snapshot_id,
        "files": result.files,
        "rows": result.rows,
        "bytes": result.bytes,
    }


main = partial(program.run, parser, to_parquet)


if __name__ == "__main__":
    sys.exit(main())
