"""Arguments that several commands for tables have, and the table that they name."""

from __future__ import annotations

import argparse

from fermion.cli import add_storage_options, storage_options
from fermion_table.storage.paths import MAIN
from fermion_table.table.table import Table


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
