"""`fermion verify`: every checksum and every invariant of a file."""

from __future__ import annotations

import argparse
from typing import Any

from fermion.cli.console import Console, size_text
from fermion.cli.protocol import FOUND_PROBLEM, add_storage_options, storage_options
from fermion.display import counted
from fermion.errors import FermionError, InvalidArgumentError
from fermion.reading.file import open_file
from fermion.reading.verify import VerifyReport
from fermion.redaction import redacted

HELP = "check every checksum and every invariant; exit status 1 if one fails"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="path or URL of a Fermion file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print what is wrong with a file."""
    report = _verified(arguments.file, storage_options(arguments))
    if arguments.json:
        console.print_json(
            {
                "path": report.path,
                "ok": report.ok,
                "problems": list(report.problems),
                "columns": report.columns,
                "pages": report.pages,
                "bytes_read": report.bytes_read,
            }
        )
    elif report.ok:
        console.print(
            f"{report.path}: OK: {counted(report.columns, 'column')}, "
            f"{counted(report.pages, 'page')}, {size_text(report.bytes_read)} read"
        )
    else:
        console.print(f"{report.path}: {counted(len(report.problems), 'problem')}")
        for problem in report.problems:
            console.print(f"  {problem}")
    return 0 if report.ok else FOUND_PROBLEM


def _verified(path: str, options: dict[str, Any] | None) -> VerifyReport:
    """The report; a file that cannot even be opened has that one problem."""
    try:
        with open_file(path, storage_options=options) as file:
            return file.verify()
    except InvalidArgumentError:
        raise
    except FermionError as error:
        return VerifyReport(redacted(path), (str(error),), 0, 0, 0)
