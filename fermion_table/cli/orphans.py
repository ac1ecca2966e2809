"""`fermion table orphans`: deletes files that nothing refers to."""

from __future__ import annotations

import argparse

from fermion_table.cli.arguments import add_table, age_or_time, open_table
from fermion_table.cli.printing import Console
from fermion_table.cli.results import print_maintenance

HELP = "delete files in the table's directory that nothing refers to"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument(
        "--older-than",
        type=age_or_time,
        metavar="AGE|TIME",
        help="such as 7d or 2026-01-31 (default: 3d)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Remove orphan files."""
    result = open_table(arguments).remove_orphan_files(
        older_than=arguments.older_than, dry_run=arguments.dry_run
    )
    print_maintenance(result, arguments, console)
    return True
