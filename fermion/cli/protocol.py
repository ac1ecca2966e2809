"""What a command is: a module, or any object, with these attributes.

Another package adds a command by an entry point of the group ``fermion.commands``. Its name is the
command's name; what it loads has the attributes below, and need not import anything from here.
"""

from __future__ import annotations

import argparse
from typing import Protocol

from fermion.cli.console import Console

ENTRY_POINT_GROUP = "fermion.commands"
FOUND_PROBLEM = 1
WRONG_USAGE = 2


class Command(Protocol):
    """One command of the program.

    Attributes
    ----------
    HELP
        One line for the list of commands.
    """

    HELP: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments, ``--json`` among them where it prints."""

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Carry the command out; the exit status: 0, or 1 where it found a problem.

        A FermionError or OSError ends the program with its message on one line.
        """
