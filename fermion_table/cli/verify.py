"""`fermion table verify`: checks the history, and with --data every byte."""

from __future__ import annotations

import argparse
import dataclasses

from fermion_table.cli.arguments import add_table, open_table
from fermion_table.cli.printing import Console, print_lines

HELP = "check the history and all it refers to; exit status 1 where something is wrong"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("--data", action="store_true", help="check every data file's checksums too")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Verify a table; whether it is sound."""
    report = open_table(arguments).verify(data=arguments.data)
    if arguments.json:
        console.print_json({**dataclasses.asdict(report), "ok": report.ok})
    else:
        print_lines(console, str(report))
    return report.ok
