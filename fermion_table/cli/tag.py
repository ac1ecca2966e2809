"""`fermion table tag`: lists tags, makes one, or deletes one."""

from __future__ import annotations

import argparse

from fermion.cli import Console
from fermion.errors import InvalidArgumentError
from fermion_table.cli.arguments import add_flag, add_table, add_version, open_table
from fermion_table.cli.printing import print_answer, print_result

HELP = "show, create or delete tags"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the tag")
    add_version(parser)
    parser.add_argument("--message", "-m", metavar="TEXT", help="description")
    parser.add_argument("--keep", metavar="AGE", help="time until the tag expires, such as 30d")
    add_flag(parser, "--delete", "delete the tag")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print or change the tags."""
    if arguments.name is None and (arguments.delete or arguments.version or arguments.message):
        raise InvalidArgumentError("tag: expected a name")
    table = open_table(arguments)
    name = arguments.name
    if name is None:
        refs = table.inspect.refs()
        tags = refs.filter([kind == "tag" for kind in refs["type"].to_pylist()])
        tags = tags.select(["name", "snapshot_id", "created_at", "expires_at", "message"])
        print_answer(arguments, console, tags, none="no tags")
    elif arguments.delete:
        table.tags.delete(name)
        print_result(arguments, console, {"deleted": name}, f"deleted tag {name}")
    else:
        tag = table.tags.create(name, message=arguments.message, keep=arguments.keep)
        result = {"name": tag.name, "snapshot_id": tag.snapshot_id}
        print_result(arguments, console, result, f"tag {name}: snapshot {tag.snapshot_id}")
    return True
