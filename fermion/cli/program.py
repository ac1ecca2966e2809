"""The program: runs a command, and turns errors into one line and an exit status."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn, cast

from fermion.cli import completion, convert, head, inspect, schema, stats, verify
from fermion.cli.console import Console
from fermion.cli.protocol import ENTRY_POINT_GROUP, FOUND_PROBLEM, WRONG_USAGE, Command
from fermion.errors import ColumnNotFoundError, FermionError, InvalidArgumentError
from fermion.parquet.types import ConversionWarning
from fermion.version import __version__

COMMANDS: dict[str, Command] = {
    "inspect": inspect,
    "schema": schema,
    "head": head,
    "stats": stats,
    "verify": verify,
    "convert": convert,
    "completion": completion,
}
INTERRUPTED = 130
TRACEBACK_VARIABLE = "FERMION_TRACEBACK"


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints take one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    argv: Arguments without the program's name; None takes the process's.
    Returns: The exit status: 0; 1 where a problem was found or an error occurred; 2 for wrong
        usage.
    """
    if sys.stderr is None:  # closed, as by 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stderr.write("fermion: standard output is closed\n")
        return FOUND_PROBLEM
    console = Console(sys.stdout, sys.stderr)
    try:
        status = _run(sys.argv[1:] if argv is None else list(argv), console)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output closed the pipe. Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND_PROBLEM
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run(argv: Sequence[str], console: Console) -> int:
    wanted = next((each for each in argv if not each.startswith("-")), None)
    commands, broken = _commands(wanted)
    if wanted in broken:
        console.complain(f"{wanted}: {broken[wanted]}")
        return FOUND_PROBLEM
    try:
        arguments = _parser(commands).parse_args(argv)
    except SystemExit as end:  # argparse has printed what there is to say
        return int(end.code or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConversionWarning)
        warnings.showwarning = lambda message, *_, **__: console.warn(str(message))
        try:
            return commands[arguments.command].run(arguments, console)
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            console.complain(_message(error))
            return _status(error)


def _commands(wanted: str | None) -> tuple[dict[str, Command], dict[str, str]]:
    """Commands by name, and why some of other packages cannot be loaded.

    Other packages' commands are loaded only where one may be meant.
    """
    commands = dict(COMMANDS)
    broken: dict[str, str] = {}
    if wanted in COMMANDS and wanted != "completion":
        return commands, broken
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in commands:
            continue
        try:
            commands[entry.name] = cast(Command, entry.load())
        except Exception as error:  # noqa: BLE001 - one broken package must not break the program
            broken[entry.name] = f"{entry.value} cannot be loaded: {error!r}"
            commands[entry.name] = _Broken()
    return commands, broken


class _Broken:
    """Stands for a command that cannot be loaded in the list of commands."""

    HELP = "(cannot be loaded)"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Nothing to add."""

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Never called."""
        return FOUND_PROBLEM


def _parser(commands: dict[str, Command]) -> argparse.ArgumentParser:
    parser = _Parser(prog="fermion", description="Work with Fermion files and tables.")
    parser.set_defaults(program=parser)
    parser.add_argument("--version", action="version", version=f"fermion {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in commands.items():
        command.configure(subparsers.add_parser(name, help=command.HELP, description=command.HELP))
    return parser


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (FermionError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error} ({TRACEBACK_VARIABLE}=1 shows where)"


def _status(error: Exception) -> int:
    wrong_usage = isinstance(error, (InvalidArgumentError, ColumnNotFoundError))
    return WRONG_USAGE if wrong_usage else FOUND_PROBLEM
