"""`fermion query`: SQL over tables and files, computed by DuckDB."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

import fermion
from fermion.cli import Console, add_storage_options, rows_json, storage_options
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.cli.arguments import add_flag
from fermion_table.cli.printing import print_rows
from fermion_table.scanning.arrow_rows import ArrowRows
from fermion_table.table.table import Table

HELP = "answer SQL about tables and files (needs DuckDB)"
ROWS_SHOWN = 40
_NAME = re.compile(r"(?:([A-Za-z_]\w*)=)?(.+)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "sql",
        metavar="SQL",
        help="such as 'SELECT max(\"at\") FROM events'; reads no other file, writes none; columns "
        "called like words of SQL go in double quotes",
    )
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="[NAME=]PATH",
        help="a table, or a Fermion file, and its name in the query (default: its file name)",
    )
    parser.add_argument(
        "-n", type=int, metavar="N", help=f"rows (default: {ROWS_SHOWN}; with --json all)"
    )
    add_flag(parser, "--all", "show all columns of the rows")
    add_flag(parser, "--json", "print JSON: one object per row")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the rows of the answer."""
    from fermion_table.scanning.sql import SqlResult  # pyarrow.dataset is slow to import

    shown = arguments.n if arguments.n is not None or arguments.json else ROWS_SHOWN
    with ExitStack() as opened:
        scans = dict[tuple[str, ...], Any]()
        for source in arguments.sources:
            name, location = _named(source)
            scans[(name,)] = _scan(location, storage_options(arguments), opened)
        result = SqlResult(arguments.sql, scans, where="query")
        answer = result.to_arrow() if shown is None else result.head(max(shown, 0))
    if arguments.json:
        console.print_json(rows_json(answer))
    else:
        print_rows(console, answer, whole=arguments.all)
        if answer.num_rows == shown:
            console.print("... there may be more rows (-n N shows more)")
    return 0


def _named(source: str) -> tuple[str, str]:
    found = _NAME.fullmatch(source)
    if found is None:
        raise InvalidArgumentError(f"{source!r}: expected PATH or NAME=PATH")
    name, location = found.groups()
    return name or PurePosixPath(location.rstrip("/")).stem, location


def _scan(location: str, options: dict[str, Any] | None, opened: ExitStack) -> Any:
    """The rows of a table or a file, into which an engine pushes columns and filters."""
    if location.endswith(".fermion"):
        return FileRows(opened.enter_context(fermion.open(location, storage_options=options)))
    return Table.open(location, storage_options=options).scan()


@dataclass(frozen=True)
class FileRows(ArrowRows):
    """Rows of a file, as `fermion_table.scanning.arrow_dataset` reads the rows of a scan."""

    file: fermion.FermionFile
    columns: tuple[tuple[str, ...], ...] | None = None
    filter: Any = None

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        schema = self.file.schema
        if self.columns is None:
            return schema
        return pa.schema([schema.field(path[0]) for path in self.columns])

    def select(self, columns: Sequence[tuple[str, ...]]) -> FileRows:
        """The same with other columns."""
        return replace(self, columns=tuple(columns))

    def where(self, filter: Any) -> FileRows:
        """The same with fewer rows."""
        return replace(self, filter=filter if self.filter is None else self.filter & filter)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""
        return self.file.iter_batches(self.columns, filter=self.filter)

    def head(self, n: int = 10) -> pa.Table:
        """The first rows."""
        return self.to_arrow().slice(0, n)

    def count(self) -> int:
        """How many rows there are."""
        return self.file.count(self.filter)
