"""Arguments that several commands for tables have, and the table that they name."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta

from fermion.cli import add_storage_options, storage_options
from fermion_table.storage.paths import MAIN
from fermion_table.table.table import Table

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the table's path, the branch, ``--json`` and ``--storage-option``."""
    parser.add_argument("path", metavar="PATH", help="directory or URL of a table")
    parser.add_argument("--branch", default=MAIN, metavar="NAME", help=f"branch (default: {MAIN})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_storage_options(parser)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the version to inspect."""
    parser.add_argument(
        "--version",
        metavar="VERSION",
        help="a snapshot id, a tag, a branch, main~3, or a time (default: the latest)",
    )


def open_table(arguments: argparse.Namespace) -> Table:
    """The table at its path, on the branch and at the version asked for."""
    version = getattr(arguments, "version", None)
    return Table.open(
        arguments.path,
        version=version,
        branch=arguments.branch,
        storage_options=storage_options(arguments),
    )


def age_or_time(text: str) -> timedelta | datetime:
    """An age such as ``7d``, ``12h``, ``90s``, or an ISO time."""
    age = _AGE.fullmatch(text.strip().lower())
    if age is not None:
        return timedelta(**{_UNITS[age[2]]: float(age[1])})
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected an age such as 7d or 12h, or a time such as 2026-01-31"
        ) from None
