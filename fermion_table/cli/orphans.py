"""`fermion table remove-orphans`: deletes orphan files."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion_table.cli.arguments import add_flag, add_table, open_table
from fermion_table.cli.printing import print_maintenance

HELP = "delete orphan files: files of failed writers that no snapshot refers to"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument(
        "--older-than",
        metavar="AGE|TIME",
        help="minimum age, such as 7d, or a time, such as 2026-01-31 (default: 3d)",
    )
    chosen = parser.add_mutually_exclusive_group()
    add_flag(chosen, "--yes", "delete the files")
    add_flag(chosen, "--dry-run", "only print what would be deleted (default)")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Remove orphan files."""
    result = open_table(arguments).remove_orphan_files(
        older_than=arguments.older_than, dry_run=not arguments.yes
    )
    print_maintenance(result, arguments, console)
    if result.dry_run and result.paths and not arguments.json:
        console.print("nothing was deleted; --yes deletes them")
    return True
