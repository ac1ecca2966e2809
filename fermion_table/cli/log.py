"""`fermion table log`: what happened, newest first."""

from __future__ import annotations

import argparse

from fermion.cli import Console, add_html, check_html, write_html
from fermion_table.cli.arguments import add_table, add_version, open_table
from fermion_table.cli.printing import json_ready, print_lines

HELP = "show the snapshots, newest first"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("-n", type=int, metavar="N", help="show at most N snapshots")
    add_html(parser, "the history of all branches")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print a history, or write it as a web page."""
    if arguments.html is not None:
        check_html(arguments, {"--json": arguments.json})
        page = open_table(arguments).history_html(limit=arguments.n)
        console.print(write_html(page, arguments))
        return True
    limit = None if arguments.n is None else max(arguments.n, 0)
    history = open_table(arguments).history(limit=limit)
    if arguments.json:
        console.print_json(json_ready(history))
    else:
        print_lines(console, str(history))
    return True
