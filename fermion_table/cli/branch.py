"""`fermion table branch`: lists branches, makes one, publishes or merges one, or deletes one."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion.errors import InvalidArgumentError
from fermion_table.cli.arguments import add_flag, add_table, add_version, open_table
from fermion_table.cli.printing import print_answer, print_result
from fermion_table.table.table import Table

HELP = "show, create, merge or delete branches, or fast-forward to one"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the branch")
    add_version(parser)
    parser.add_argument("--message", "-m", metavar="TEXT", help="description")
    instead = parser.add_mutually_exclusive_group()
    add_flag(instead, "--delete", "delete the branch")
    add_flag(instead, "--fast-forward", "move the parent branch to the state of this branch")
    add_flag(instead, "--merge", "bring the commits of this branch into the parent branch")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print or change the branches."""
    given = (
        arguments.delete,
        arguments.fast_forward,
        arguments.merge,
        arguments.version,
        arguments.message,
    )
    if arguments.name is None and any(given):
        raise InvalidArgumentError("branch: expected a name")
    table = open_table(arguments)
    if arguments.name is None:
        refs = table.inspect.refs()
        heads = refs.filter([kind == "branch" for kind in refs["type"].to_pylist()])
        heads = heads.select(
            ["name", "snapshot_id", "parent", "left_after", "created_at", "message"]
        )
        print_answer(arguments, console, heads)
    else:
        print_result(arguments, console, *_change(table, arguments))
    return True


def _change(table: Table, arguments: argparse.Namespace) -> tuple[dict[str, object], str]:
    """What was done, for JSON and in words."""
    name = arguments.name
    if arguments.delete:
        table.branches.delete(name)
        return {"deleted": name}, f"deleted branch {name}"
    if arguments.fast_forward:
        snapshot = table.branches.fast_forward(name, message=arguments.message)
        moved: dict[str, object] = {"branch": snapshot.branch, "snapshot_id": snapshot.id}
        return moved, f"{snapshot.branch} is at snapshot {snapshot.id}, the state of {name}"
    if arguments.merge:
        snapshot = table.branches.merge(name, message=arguments.message)
        merged: dict[str, object] = {"branch": snapshot.branch, "snapshot_id": snapshot.id}
        return merged, f"{snapshot.branch} is at snapshot {snapshot.id}, with the commits of {name}"
    head = table.branches.create(name, message=arguments.message)
    made: dict[str, object] = {"name": name, "parent": head.parent, "left_after": head.left_after}
    return made, f"branch {name} starts at snapshot {head.left_after} of {head.parent}"
