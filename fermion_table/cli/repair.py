"""`fermion table repair`: repairs a table from its own files."""

from __future__ import annotations

import argparse
import dataclasses

from fermion.cli import Console, add_storage_options, storage_options
from fermion_table.checks.repair import repair_table
from fermion_table.cli.arguments import add_flag
from fermion_table.cli.printing import print_result

HELP = "repair pointer files, expiry markers, unreadable newest snapshots; give up missing files"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="directory or URL of a table")
    add_flag(parser, "--dry-run", "only print what would be done")
    add_flag(
        parser,
        "--leave-out-missing",
        "publish a snapshot without the files that are missing; first look with --dry-run",
    )
    parser.add_argument(
        "--lost-deletions",
        choices=("leave-out", "show"),
        help="data files whose deletion vector is missing: leave them out, or show the deleted "
        "rows again",
    )
    add_flag(parser, "--json", "print JSON")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Repair the table; whether no problem is left."""
    lost_deletions = arguments.lost_deletions
    if lost_deletions is not None:
        lost_deletions = lost_deletions.replace("-", "_")
    done = repair_table(
        arguments.path,
        storage_options=storage_options(arguments),
        dry_run=arguments.dry_run,
        leave_out_missing=arguments.leave_out_missing,
        lost_deletions=lost_deletions,
    )
    print_result(arguments, console, dataclasses.asdict(done), str(done))
    return done.ok
