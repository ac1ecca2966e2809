"""Compacts a table: ``python -m spark_ext.jobs.compact PATH --target-size 256MB``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from spark_ext.jobs import program


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.compact",
        "Rewrite small files of a table as larger ones. Rows, their order and their batches stay.",
        dry_run="print what would be done, and do nothing",
    )
    made.add_argument("--filter", help="only files that may contain matching rows: a SQL condition")
    made.add_argument("--target-size", help="size of a file, such as 256MB (default: the table's)")
    made.add_argument(
        "--min-input-files",
        type=int,
        default=2,
        metavar="N",
        help="do not rewrite groups of fewer files (default: 2)",
    )
    made.add_argument(
        "--sort-by",
        action="append",
        metavar="COLUMN",
        help="sort rows by this column; repeat for more, or 'zorder(a, b)' to cluster by several",
    )
    made.add_argument(
        "--full",
        action="store_true",
        help="of a table with a primary key: merge all sorted runs, not only where they are many",
    )
    made.add_argument(
        "--max-groups-per-commit",
        type=int,
        metavar="N",
        help="commit after N groups (default: once, at the end)",
    )
    return made


def compact(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    result = spark_ext.compact(
        spark,
        options.path,
        filter=options.filter,
        target_size=options.target_size,
        min_input_files=options.min_input_files,
        sort_by=options.sort_by,
        full=options.full,
        max_groups_per_commit=options.max_groups_per_commit,
        dry_run=options.dry_run,
        progress=program.progress_line(),
        storage_options=program.storage_options(options),
    )
    summary: dict[str, Any] = {
        "groups": result.groups,
        "groups_dropped": result.groups_dropped,
        "files_before": result.files_before,
        "files_upgraded": result.files_upgraded,
        "bytes_before": result.bytes_before,
        "rows": result.rows,
    }
    if not result.dry_run:
        summary |= {
            "files_after": result.files_after,
            "bytes_after": result.bytes_after,
            "snapshots": result.snapshots,
        }
    return summary


main = partial(program.run, parser, compact)


if __name__ == "__main__":
    sys.exit(main())
