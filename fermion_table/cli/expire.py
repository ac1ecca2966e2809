"""`fermion table expire`: expires old snapshots."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion_table.cli.arguments import add_flag, add_table, open_table
from fermion_table.cli.printing import print_maintenance

HELP = "expire old snapshots and delete data that only they use"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument(
        "--older-than",
        metavar="AGE|TIME",
        help="minimum age, such as 7d, or a time, such as 2026-01-31 (default: 7d)",
    )
    parser.add_argument(
        "--retain-last",
        type=int,
        metavar="N",
        help="always keep the last N snapshots (default: 10)",
    )
    add_flag(parser, "--dry-run", "only print what would be deleted")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Expire snapshots."""
    result = open_table(arguments).expire_snapshots(
        older_than=arguments.older_than,
        retain_last=arguments.retain_last,
        dry_run=arguments.dry_run,
    )
    print_maintenance(result, arguments, console)
    return True
