"""`fermion table`: finds the command for tables that is meant."""

from __future__ import annotations

import argparse
from typing import Protocol

from fermion_table.cli import (
    branch,
    compact,
    diff,
    expire,
    files,
    log,
    orphans,
    restore,
    scan,
    schema,
    show,
    tag,
    verify,
)
from fermion_table.cli.printing import Console

HELP = "look into tables and look after them"
FOUND_PROBLEM = 1


class Command(Protocol):
    """One command for tables.

    Attributes
    ----------
    HELP
        One line for the list of commands.
    """

    HELP: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace, console: Console) -> bool:
        """Carry the command out; whether everything was as it should be."""


COMMANDS: dict[str, Command] = {
    "log": log,
    "show": show,
    "files": files,
    "schema": schema,
    "scan": scan,
    "diff": diff,
    "tag": tag,
    "branch": branch,
    "restore": restore,
    "compact": compact,
    "expire": expire,
    "orphans": orphans,
    "verify": verify,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    subparsers = parser.add_subparsers(dest="table_command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.configure(subparsers.add_parser(name, help=command.HELP, description=command.HELP))


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry a command out; the exit status: 0, or 1 where it found a problem."""
    sound = COMMANDS[arguments.table_command].run(arguments, console)
    return 0 if sound else FOUND_PROBLEM
