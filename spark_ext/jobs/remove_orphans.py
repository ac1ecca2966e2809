"""Deletes files that no snapshot refers to: ``python -m spark_ext.jobs.remove_orphans PATH``."""

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
        "spark_ext.jobs.remove_orphans",
        "Delete orphan files of a table: files of failed writers that no snapshot refers to.",
        dry_run="print what would be deleted, and delete nothing",
    )
    program.add_age(made, "3d")
    return made


def remove_orphans(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    result = spark_ext.remove_orphans(
        spark,
        options.path,
        older_than=options.older_than,
        dry_run=options.dry_run,
        storage_options=program.storage_options(options),
    )
    return program.deleted(result)


main = partial(program.run, parser, remove_orphans)


if __name__ == "__main__":
    sys.exit(main())
