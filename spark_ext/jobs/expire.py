"""Expires old snapshots: ``python -m spark_ext.jobs.expire PATH --older-than 7d``."""

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
        "spark_ext.jobs.expire",
        "Expire old snapshots of a table and delete data that only they use.",
        dry_run="print what would be deleted, and delete nothing",
    )
    program.add_age(made, "7d")
    made.add_argument(
        "--retain-last",
        type=int,
        metavar="N",
        help="always keep the last N snapshots (default: 10)",
    )
    return made


def expire(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    result = spark_ext.expire(
        spark,
        options.path,
        older_than=options.older_than,
        retain_last=options.retain_last,
        dry_run=options.dry_run,
        storage_options=program.storage_options(options),
    )
    return program.deleted(result)


main = partial(program.run, parser, expire)


if __name__ == "__main__":
    sys.exit(main())
