"""What the programs of all jobs share: arguments, a session, a summary, an exit status."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fermion.errors import FermionError, InvalidArgumentError
from fermion.predicate import parse_filter
from fermion_table import MaintenanceResult, Snapshot, Table
from fermion_table.engine import CommitMetadata
from spark_ext import session
from spark_ext.writing.job import FrameOptions, planned_columns, row_columns

SUCCEEDED, FAILED, WRONG_USAGE = 0, 1, 2

Job = Callable[[SparkSession, argparse.Namespace], Mapping[str, Any]]


def arguments(
    module: str, description: str, *, dry_run: str, positional: Mapping[str, str] | None = None
) -> argparse.ArgumentParser:
    """Make a parser with the arguments that all jobs share.

    module: The job's module: its name in the usage line and in Spark.
    description: What the job does.
    dry_run: The help text of ``--dry-run``.
    positional: Names and help texts; None: the table alone.
    """
    parser = _Parser(
        prog=f"python -m {module}",
        description=description,
        epilog="Exit status: 0 done, 1 failed (no partial result is visible), 2 wrong usage.",
    )
    for name, text in (positional or {"path": "the table"}).items():
        parser.add_argument(name, help=text)
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an fsspec option of the table's storage; repeat for more",
    )
    parser.add_argument(
        "--master", help="Spark master (default: that of spark-submit, else local[*])"
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a Spark setting; repeat for more",
    )
    return parser


def run(
    make_parser: Callable[[], argparse.ArgumentParser],
    job: Job,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse arguments, start Spark, run the job, print its summary; returns the exit status."""
    parser = make_parser()
    options = parser.parse_args(argv)
    started = time.monotonic()
    try:
        _check(options)
        spark = _start(parser.prog.removeprefix("python -m "), options)
        try:
            summary = {"table": options.path, "dry_run": options.dry_run, **job(spark, options)}
        finally:
            spark.stop()
    except InvalidArgumentError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return WRONG_USAGE
    except (FermionError, PySparkException, OSError) as error:
        print(f"{parser.prog}: {_in_short(error)}", file=sys.stderr)
        return FAILED
    except Py4JJavaError as error:  # of a job whose workers died
        print(f"{parser.prog}: {_cause(error)}", file=sys.stderr)
        return FAILED
    summary["seconds"] = round(time.monotonic() - started, 3)
    print(json.dumps(summary, default=str) if options.json else _as_lines(summary))
    return SUCCEEDED


def _check(options: argparse.Namespace) -> None:
    """Check arguments that can be checked before Spark starts."""
    given = vars(options)
    for name in ("conf", "storage_option", "option", "update_set"):
        pairs(given.get(name, ()), f"--{name.replace('_', '-')}")
    for name in ("filter", "overwrite_where"):
        try:
            parse_filter(given.get(name))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"--{name.replace('_', '-')}: {error}") from error
    CommitMetadata(**commit_of(options))


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Split ``KEY=VALUE`` arguments.

    Raises InvalidArgumentError: One has no ``=``.
    """
    for text in texts:
        if "=" not in text:
            raise InvalidArgumentError(f"{option} {text!r}: expected KEY=VALUE")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def storage_options(options: argparse.Namespace) -> dict[str, str] | None:
    """The fsspec options; None if there are none."""
    return pairs(options.storage_option, "--storage-option") or None


def add_commit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe and identify a commit."""
    parser.add_argument("--message", help="message of the commit, for the table's history")
    parser.add_argument(
        "--commit-user",
        help="who commits; the same user and --commit-identifier are committed only once",
    )
    parser.add_argument("--commit-identifier", help="which commit of that user this is")


def commit_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the arguments say of the commit."""
    names = ("message", "commit_user", "commit_identifier")
    return {name: getattr(options, name, None) for name in names}


def add_schema_mode(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``--schema-mode``."""
    parser.add_argument(
        "--schema-mode", choices=["merge"], help="merge: add columns that the table does not have"
    )


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which files Spark reads, and how; see `source`."""
    parser.add_argument("source", nargs="+", help="files or directories for Spark to read")
    parser.add_argument(
        "--format", default="parquet", help="format of the files (default: parquet)"
    )
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of that format, such as header=true; repeat for more",
    )
    parser.add_argument("--schema", help="columns of the files, such as 'id bigint, name string'")


def source(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The rows of the files that the arguments name.

    Raises InvalidArgumentError: An option without a value.
    Raises pyspark.errors.PySparkException: Spark can't read them.
    """
    reader = spark.read.format(options.format).options(**pairs(options.option, "--option"))
    if options.schema:
        reader = reader.schema(options.schema)
    return reader.load(options.source)


def planned(frame: DataFrame, table: Table, options: FrameOptions) -> Mapping[str, Any]:
    """The summary of a dry run of a job that adds the rows of a frame, whose columns are checked.

    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError.
    """
    merge = planned_columns(frame, table, options)
    columns = row_columns(frame, table, options, merge)
    return {"columns": columns.names}


def added(snapshot: Snapshot) -> Mapping[str, Any]:
    """The summary of a job that adds rows."""
    return {
        "snapshot": snapshot.id,
        "files_added": snapshot.deltas.files_added,
        "rows_added": snapshot.deltas.rows_added,
        "bytes_added": snapshot.deltas.bytes_added,
        "rows": snapshot.totals.live_rows,
    }


def add_age(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the argument ``--older-than``; without it the table's own default applies."""
    parser.add_argument(
        "--older-than",
        metavar="AGE|TIME",
        help=f"an age or a time, such as 12h or 2026-01-31 (default: {default})",
    )


def deleted(result: MaintenanceResult) -> Mapping[str, Any]:
    """The summary of a job that deletes."""
    return {
        "snapshots": result.snapshots,
        "tags": result.tags,
        "files": result.files,
        "metadata_objects": result.objects,
        "bytes": result.bytes,
        "paths": list(result.paths),
    }


def progress_line() -> Callable[[int, int], None] | None:
    """A function that shows progress on one line of a terminal; None without a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        end = "\n" if done == total else ""
        print(f"\r{done:,} of {total:,} groups", end=end, file=sys.stderr, flush=True)

    return show


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see --help)\n")


def _start(name: str, options: argparse.Namespace) -> SparkSession:
    builder = session.configure(SparkSession.builder.appName(name))
    if options.master:
        builder.master(options.master)
    elif not session.is_submitted():
        builder.master("local[*]").config("spark.ui.enabled", "false")
    # By default Spark shows progress of tasks without a terminal too.
    builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    for key, value in pairs(options.conf, "--conf").items():
        builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Py4JError as error:  # Spark's own message is hidden in a stack trace of the JVM
        given = [f"--conf {text}" for text in options.conf]
        if options.master:
            given.insert(0, f"--master {options.master}")
        raise InvalidArgumentError(
            f"Spark does not start{' with ' if given else ''}{', '.join(given)}: {_cause(error)}"
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _cause(error: Py4JError) -> str:
    """The JVM's error in one line."""
    java = getattr(error, "java_exception", None)
    return str(java.toString() if java is not None else error).splitlines()[0]


def _in_short(error: BaseException) -> str:
    """The line of an error that names it: Spark's errors hold the stack trace of the task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = [
        line for line in lines if re.match(r"[\w.]+(Error|Exception|NotFound|Mismatch)\b", line)
    ]
    return said[-1] if said and isinstance(error, PySparkException) else lines[0]


def _as_lines(summary: Mapping[str, Any]) -> str:
    width = max(map(len, summary), default=0) + 1
    return "\n".join(
        f"{key.replace('_', ' ') + ':':{width}} {_in_words(value)}"
        for key, value in summary.items()
        if value is not None
    )


def _in_words(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
