"""`fermion table scan`: rows, their number, or how they would be found."""

from __future__ import annotations

import argparse

from fermion.cli import Console, counted
from fermion_table.cli.arguments import add_flag, add_repeated, add_table, add_version, open_table
from fermion_table.cli.printing import print_answer, print_lines, print_result

HELP = "show rows, optionally filtered by SQL; their number (--count); the plan (--explain)"
FILES_EXPLAINED = 5
"""Files of which `--explain` shows stripes and pages."""
ROWS_SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    add_repeated(parser, "--column", "NAME", "show this column")
    parser.add_argument("--filter", metavar="SQL", help="such as \"price > 10 AND s.b = 'x'\"")
    parser.add_argument("--batch-id", type=int, metavar="ID", help="only rows of this batch")
    parser.add_argument(
        "-n", type=int, default=ROWS_SHOWN, metavar="N", help=f"rows (default: {ROWS_SHOWN})"
    )
    add_flag(parser, "--all", "show all columns of the rows")
    instead = parser.add_mutually_exclusive_group()
    add_flag(instead, "--count", "only print the number of rows")
    add_flag(instead, "--explain", "print what would be read, and why")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print rows of a table."""
    scan = open_table(arguments).scan(
        columns=arguments.column, filter=arguments.filter, batch_id=arguments.batch_id
    )
    if arguments.explain:
        plan = scan.plan()
        if arguments.json:
            splits = [
                {"file": file.file, "rows": file.rows_wanted}
                for split in plan.splits
                for file in split.files
            ]
            console.print_json({"snapshot_id": plan.snapshot_id, "splits": splits})
        else:
            print_lines(console, scan.explain(files=FILES_EXPLAINED))
    elif arguments.count:
        count = scan.count()
        print_result(arguments, console, {"rows": count}, counted(count, "row"))
    else:
        rows = scan.head(max(arguments.n, 0))
        print_answer(arguments, console, rows, whole=arguments.all)
    return True
