"""What a command is: a module, or any object, with these attributes.

Another package adds a command by an entry point of the group ``fermion.commands``. Its name is the
command's name; what it loads has the attributes below, and need not import anything from here.

Commands that read or write have the argument ``--storage-option``, which is here, too.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Protocol

from fermion.cli.console import Console

ENTRY_POINT_GROUP = "fermion.commands"
FOUND_PROBLEM = 1
WRONG_USAGE = 2
KEYS_HINT = "(--keys TEXT shows those that contain TEXT)"


class Command(Protocol):
    """One command of the program.

    HELP: One line for the list of commands.
    """

    HELP: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments, ``--json`` among them where it prints."""

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Carry the command out; the exit status: 0, or 1 where it found a problem.

        A FermionError or OSError ends the program with its message on one line.
        """


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add ``--column`` and ``--keys``: what a command shows of a file."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--column", action="append", metavar="NAME", help="show this column; may be repeated"
    )
    group.add_argument(
        "--keys",
        metavar="TEXT",
        help="show the columns of keys of maps, and of paths of Variant columns, whose names "
        "contain this text in any case",
    )


def add_storage_options(parser: argparse.ArgumentParser, of: str = "") -> None:
    """Add ``--storage-option``; of a second storage with its name before it: ``target-``."""
    parser.add_argument(
        f"--{of}storage-option",
        action="append",
        default=[],
        type=_option,
        metavar="KEY=TEXT",
        dest=f"{of}storage_option",
        help="option of the storage's fsspec client, such as key=TEXT; KEY:=JSON for what is no "
        "text, such as anon:=true; may be repeated",
    )


def storage_options(arguments: argparse.Namespace, of: str = "") -> dict[str, Any] | None:
    """The options given; None for none."""
    return dict(getattr(arguments, f"{of}storage_option")) or None


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.removesuffix(":"):
        raise argparse.ArgumentTypeError("expected KEY=TEXT or KEY:=JSON")
    if not key.endswith(":"):
        return key, value
    try:
        return key[:-1], json.loads(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{key}=: expected JSON: {error}") from None
