"""`fermion table consumer`: lists consumers, moves one, or deletes one."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion.errors import InvalidArgumentError
from fermion_table.cli.arguments import add_flag, add_table, add_version, open_table
from fermion_table.cli.printing import print_answer, print_result

HELP = "show, move or delete consumers, which keep what they have not read from expiring"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the consumer")
    add_version(parser)
    add_flag(parser, "--delete", "delete the consumer")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print or change the consumers."""
    name = arguments.name
    if name is None and (arguments.delete or arguments.version):
        raise InvalidArgumentError("consumer: expected a name")
    table = open_table(arguments)
    if name is None:
        print_answer(arguments, console, table.inspect.consumers(), none="no consumers")
    elif arguments.delete:
        table.consumers.delete(name)
        print_result(arguments, console, {"deleted": name}, f"deleted consumer {name}")
    else:
        snapshot_id = table.consumers.record(name).snapshot_id
        result = {"name": name, "snapshot_id": snapshot_id}
        print_result(arguments, console, result, f"consumer {name}: snapshot {snapshot_id}")
    return True
