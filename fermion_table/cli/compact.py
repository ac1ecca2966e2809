"""`fermion table compact`: rewrites small files as larger ones."""

from __future__ import annotations

import argparse
import dataclasses

from fermion.cli import Console
from fermion_table.cli.arguments import add_flag, add_repeated, add_table, open_table
from fermion_table.cli.printing import print_result

HELP = "rewrite small files as larger ones"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("--filter", metavar="SQL", help="only files that may contain matching rows")
    parser.add_argument(
        "--target-size", metavar="SIZE", help="size of a file, such as 256MB (default: the table's)"
    )
    parser.add_argument(
        "--min-input-files",
        type=int,
        default=2,
        metavar="N",
        help="do not rewrite groups of fewer files (default: 2)",
    )
    add_repeated(parser, "--sort-by", "COLUMN", "sort rows by this column")
    add_flag(
        parser,
        "--full",
        "of a table with a primary key: merge all sorted runs, not only where they are many",
    )
    parser.add_argument(
        "--max-groups-per-commit", type=int, metavar="N", help="commit after N groups"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="number of groups that are rewritten at once"
    )
    add_flag(parser, "--dry-run", "only print what would be done")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Compact a table."""
    table = open_table(arguments)
    with console.progress("compacting") as report:
        result = table.compact(
            filter=arguments.filter,
            target_size=arguments.target_size,
            min_input_files=arguments.min_input_files,
            sort_by=arguments.sort_by,
            full=arguments.full,
            max_groups_per_commit=arguments.max_groups_per_commit,
            dry_run=arguments.dry_run,
            threads=arguments.threads,
            progress=report,
        )
    print_result(arguments, console, dataclasses.asdict(result), str(result))
    return True
