"""Merges files that Spark reads: ``python -m spark_ext.jobs.merge PATH SOURCE... --on COLUMN``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import spark_ext
from fermion.errors import InvalidArgumentError
from spark_ext.jobs import program
from spark_ext.merging.builder import FrameMergeBuilder

ALL = "TRUE"


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    made = program.arguments(
        "spark_ext.jobs.merge",
        "Update, delete and insert rows of a table by the rows of files that Spark reads, as one "
        "snapshot. Rows match where the columns of --on are equal. Of the rows that match, those "
        "of --delete-when are deleted, and then those of --update-when updated. Conditions and "
        "values are SQL expressions over target.COLUMN and source.COLUMN.",
        dry_run="check columns and expressions, and write nothing",
        positional={"path": "the table; it must exist"},
    )
    program.add_source(made)
    made.add_argument(
        "--on",
        metavar="COLUMN[=SOURCE]",
        action="append",
        default=[],
        required=True,
        help="a column of the table, and that of the source it is compared with; repeat for more",
    )
    made.add_argument("--delete-when", metavar="SQL", help="delete rows that match")
    made.add_argument("--update", action="store_true", help="set all columns of rows that match")
    made.add_argument(
        "--update-set",
        metavar="COLUMN=SQL",
        action="append",
        default=[],
        help="set this column of rows that match; repeat for more",
    )
    made.add_argument("--update-when", metavar="SQL", help="which rows are updated (default: all)")
    made.add_argument("--insert", action="store_true", help="insert rows that match none")
    made.add_argument("--insert-when", metavar="SQL", help="which rows are inserted (default: all)")
    made.add_argument(
        "--delete-not-matched-by-source",
        metavar="SQL",
        help=f"delete rows of the table that no row of the files matches; {ALL}: all",
    )
    program.add_commit(made)
    return made


def merge(spark: SparkSession, options: argparse.Namespace) -> Mapping[str, Any]:
    """Run the job and return its summary."""
    _check(options)
    builder = spark_ext.merge(
        spark,
        options.path,
        program.source(spark, options),
        on=dict(text.split("=", 1) if "=" in text else (text, text) for text in options.on),
        **program.commit_of(options),
        storage_options=program.storage_options(options),
    )
    clauses = _add_clauses(builder, options)
    summary = {"clauses": clauses}
    if options.dry_run:
        return summary
    result = builder.execute()
    assert result.snapshot is not None
    return {
        **summary,
        "snapshot": result.snapshot.id,
        "rows_inserted": result.rows_inserted,
        "rows_updated": result.rows_updated,
        "rows_deleted": result.rows_deleted,
    }


def _add_clauses(builder: FrameMergeBuilder, options: argparse.Namespace) -> list[str]:
    """Add the clauses that the arguments describe, and name them."""
    clauses = []
    if options.delete_when is not None:
        builder.when_matched_delete(_condition(options.delete_when))
        clauses.append("when_matched_delete")
    if options.update or options.update_set:
        values = program.pairs(options.update_set, "--update-set") or None
        builder.when_matched_update(values, _condition(options.update_when))
        clauses.append("when_matched_update")
    if options.insert or options.insert_when is not None:
        builder.when_not_matched_insert(condition=_condition(options.insert_when))
        clauses.append("when_not_matched_insert")
    if options.delete_not_matched_by_source is not None:
        builder.when_not_matched_by_source_delete(_condition(options.delete_not_matched_by_source))
        clauses.append("when_not_matched_by_source_delete")
    return clauses


def _check(options: argparse.Namespace) -> None:
    """Refuse arguments that say nothing together, before Spark is asked anything."""
    updates = options.update or bool(options.update_set)
    if options.update and options.update_set:
        raise InvalidArgumentError("--update sets all columns: expected it or --update-set")
    if options.update_when is not None and not updates:
        raise InvalidArgumentError("--update-when: expected --update or --update-set with it")
    others = (options.delete_when, options.insert_when, options.delete_not_matched_by_source)
    if not (updates or options.insert or any(condition is not None for condition in others)):
        raise InvalidArgumentError(
            "nothing to do: expected --update, --update-set, --insert, --delete-when or "
            "--delete-not-matched-by-source"
        )


def _condition(text: str | None) -> str | None:
    return None if text is None or text.strip().upper() == ALL else text


main = partial(program.run, parser, merge)


if __name__ == "__main__":
    sys.exit(main())
