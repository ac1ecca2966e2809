"""Arguments that several commands for tables have, and the table that they name."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from fermion.cli import add_storage_options, storage_options
from fermion.errors import InvalidArgumentError
from fermion_table.moments import age_of
from fermion_table.storage.paths import MAIN
from fermion_table.table.table import Table


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the table's path, the branch, ``--json`` and ``--storage-option``."""
    parser.add_argument("path", metavar="PATH", help="directory or URL of a table")
    parser.add_argument("--branch", default=MAIN, metavar="NAME", help=f"branch (default: {MAIN})")
    add_flag(parser, "--json", "print JSON")
    add_storage_options(parser)


def add_flag(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    """Add an option that has no value."""
    parser.add_argument(name, action="store_true", help=help)


def add_repeated(parser: argparse._ActionsContainer, name: str, metavar: str, help: str) -> None:
    """Add an option that may be given several times: a list of texts, or None."""
    help = f"{help}; may be repeated"
    parser.add_argument(name, action="append", metavar=metavar, help=help)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the version to inspect."""
    parser.add_argument(
        "--version",
        metavar="VERSION",
        help="a snapshot id, a tag, a branch, main~3, or a time (default: the latest)",
    )


def add_watch(parser: argparse.ArgumentParser, interval: str) -> None:
    """Add ``--watch``, with the interval that it has without a value."""
    parser.add_argument(
        "--watch",
        nargs="?",
        const=interval,
        metavar="INTERVAL",
        help=f"do it again and again, with this time between, until SIGTERM (default: {interval})",
    )


def interval(arguments: argparse.Namespace) -> timedelta | None:
    """The time between rounds of ``--watch``; None: one round. Raises InvalidArgumentError."""
    return None if arguments.watch is None else age_of(arguments.watch, "--watch")


@contextmanager
def stopped_by(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """What is set when a signal comes; a second one ends the process at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stopped(*_: Any) -> None:
        restore()
        # By another thread: this one may hold the event's lock just now, as it begins to wait.
        threading.Thread(target=stop.set, daemon=True).start()

    for number in before:
        signal.signal(number, stopped)
    try:
        yield stop
    finally:
        restore()


def every(wait: timedelta | None, do: Callable[[threading.Event], bool]) -> bool:
    """Do something once, or with an interval until SIGTERM; what it returned the last time.

    do: Takes what is set when the signal comes.
    """
    with stopped_by(signal.SIGTERM) as stop:
        while True:
            is_ok = do(stop)
            if wait is None or stop.wait(max(wait.total_seconds(), 0)):
                return is_ok


def named_values(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """The values of an option that is given as ``NAME=VALUE``, by name.

    Raises InvalidArgumentError: One is not.
    """
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgumentError(f"{option} {text!r}: expected NAME=VALUE")
        values[name] = value
    return values


def open_table(arguments: argparse.Namespace) -> Table:
    """The table at its path, on the branch and at the version asked for."""
    version = getattr(arguments, "version", None)
    return Table.open(
        arguments.path,
        version=version,
        branch=arguments.branch,
        storage_options=storage_options(arguments),
    )
