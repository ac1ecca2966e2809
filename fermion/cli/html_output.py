"""The argument ``--html``: a web page of what a command shows, as a file."""

from __future__ import annotations

import argparse
import os

from fermion.cli.console import size_text
from fermion.cli.protocol import storage_options
from fermion.errors import InvalidArgumentError
from fermion.io.sink import open_sink
from fermion.redaction import redacted

SUFFIXES = (".html", ".htm")


def add_html(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--html``."""
    parser.add_argument(
        "--html",
        metavar="OUT.html",
        help=f"write {what} as a web page, one file that needs no network; replaces a file of "
        "that name",
    )


def check_html(arguments: argparse.Namespace, others: dict[str, bool]) -> None:
    """Refuse what does not go with ``--html``, and targets that may be no web page.

    others: Options, and whether they were given.
    Raises InvalidArgumentError.
    """
    for option, is_given in others.items():
        if is_given:
            raise InvalidArgumentError(f"--html and {option} exclude each other")
    # A name that the shell put here by mistake must not cost a data file.
    if not os.fspath(arguments.html).lower().endswith(SUFFIXES):
        raise InvalidArgumentError(
            f"--html: expected a name that ends in {' or '.join(SUFFIXES)}, found "
            f"{redacted(arguments.html)!r}"
        )


def write_html(page: str, arguments: argparse.Namespace) -> str:
    """Write a page; the file appears whole, or not at all.

    Returns: What was written, for people.
    Raises OSError, StorageError.
    """
    data = page.encode("utf-8", "backslashreplace")
    sink = open_sink(arguments.html, storage_options=storage_options(arguments))
    try:
        sink.write(data)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return f"{redacted(arguments.html)}: {size_text(len(data))}"
