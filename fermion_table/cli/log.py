"""`fermion table log`: what happened, newest first."""

from __future__ import annotations

import argparse

from fermion_table.cli.arguments import add_table, add_version, open_table
from fermion_table.cli.printing import Console, json_ready, print_lines

HELP = "show the snapshots, newest first"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("-n", type=int, metavar="N", help="show at most N snapshots")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print a history."""
    limit = None if arguments.n is None else max(arguments.n, 0)
    history = open_table(arguments).history(limit=limit)
    if arguments.json:
        console.print_json(json_ready(history))
    else:
        print_lines(console, str(history))
    return True
