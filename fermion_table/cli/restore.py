"""`fermion table restore`: makes an earlier state the latest one."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion_table.cli.arguments import add_table, open_table

HELP = "go back to an earlier version, as a new snapshot"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("target", metavar="VERSION", help="a version, as for scan --version")
    parser.add_argument("--message", "-m", metavar="TEXT", help="description")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Restore a version."""
    table = open_table(arguments)
    before = table.snapshot.id
    snapshot = table.restore(arguments.target, message=arguments.message)
    if arguments.json:
        console.print_json({"snapshot_id": snapshot.id, "changed": snapshot.id != before})
    elif snapshot.id == before:
        console.print(f"nothing to do: snapshot {before} has that state")
    else:
        console.print(f"snapshot {snapshot.id}: {snapshot.message}")
    return True
