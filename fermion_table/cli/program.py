"""`fermion table`: the commands for tables."""

from __future__ import annotations

import argparse
from typing import Protocol

from fermion.cli import Console
from fermion_table.cli import (
    branch,
    compact,
    consumer,
    copying,
    diff,
    expire,
    files,
    index,
    log,
    mirror,
    orphans,
    paimon,
    repair,
    restore,
    scan,
    schema,
    show,
    tag,
    transfer,
    verify,
)

HELP = "inspect and maintain tables"
FOUND_PROBLEM = 1


class Command(Protocol):
    """One command for tables.

    HELP: One line for the list of commands.
    """

    HELP: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace, console: Console) -> bool:
        """Run the command; whether it found no problem."""


COMMANDS: dict[str, Command] = {
    "create": transfer.Create(),
    "import": transfer.Import(),
    "export": transfer.Export(),
    "import-paimon": paimon,
    "copy": copying,
    "log": log,
    "show": show,
    "files": files,
    "schema": schema,
    "scan": scan,
    "diff": diff,
    "tag": tag,
    "branch": branch,
    "consumer": consumer,
    "index": index,
    "restore": restore,
    "mirror": mirror,
    "compact": compact,
    "expire": expire,
    "remove-orphans": orphans,
    "verify": verify,
    "repair": repair,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    subparsers = parser.add_subparsers(dest="table_command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.configure(subparsers.add_parser(name, help=command.HELP, description=command.HELP))


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run a command; the exit status: 0, or 1 if it found a problem."""
    ok = COMMANDS[arguments.table_command].run(arguments, console)
    return 0 if ok else FOUND_PROBLEM
