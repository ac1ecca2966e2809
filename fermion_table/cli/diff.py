"""`fermion table diff`: what differs between two versions."""

from __future__ import annotations

import argparse

from fermion.cli import Console, add_html, check_html, rows_json, write_html
from fermion_table.cli.arguments import add_flag, add_table, open_table
from fermion_table.cli.printing import print_lines, print_rows
from fermion_table.inspection.table_difference import TableDiff
from fermion_table.inspection.table_page import difference_page

HELP = "compare two versions: schema and files, with --rows also rows"
ROWS_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("before", metavar="BEFORE", help="a version, as for scan --version")
    parser.add_argument(
        "after", nargs="?", metavar="AFTER", help="another version (default: the latest)"
    )
    add_flag(parser, "--rows", "show the rows that differ")
    parser.add_argument(
        "-n", type=int, default=ROWS_SHOWN, metavar="N", help=f"rows (default: {ROWS_SHOWN})"
    )
    add_html(parser, "schema, files and rows that differ")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print a difference."""
    if arguments.html is not None:
        check_html(arguments, {"--json": arguments.json})
    difference = open_table(arguments).diff(arguments.before, arguments.after)
    if arguments.html is not None:
        page = difference_page(difference, rows=max(arguments.n, 0))
        console.print(write_html(page, arguments))
        return True
    rows = difference.rows().to_arrow().slice(0, max(arguments.n, 0)) if arguments.rows else None
    if arguments.json:
        result = _json(difference)
        if rows is not None:
            result["rows"] = rows_json(rows)
        console.print_json(result)
        return True
    print_lines(console, str(difference))
    if rows is not None and rows.num_rows:
        change = rows.column_names[-3:]
        print_rows(console, rows.select([change[0], *rows.column_names[:-3]]))
    return True


def _json(difference: TableDiff) -> dict[str, object]:
    return {
        "before": difference.before.id,
        "after": difference.after.id,
        "schema_changes": [str(change) for change in difference.schema_changes],
        "files_added": [entry.file for entry in difference.files_added],
        "files_removed": [entry.file for entry in difference.files_removed],
        "rows_added": difference.rows_added,
        "rows_removed": difference.rows_removed,
        "bytes_added": difference.bytes_added,
        "bytes_removed": difference.bytes_removed,
    }
