"""`fermion query`: SQL over tables and files, computed by DuckDB."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

import fermion
from fermion.cli import add_storage_options, rows_json, storage_options
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.cli.printing import Console, print_rows
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
    parser.add_argument("--all", action="store_true", help="show all columns of the rows")
    parser.add_argument("--json", action="store_true", help="print JSON: one object per row")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the rows of the answer."""
    try:
        import duckdb  # optional
    except ImportError:
        raise FermionError("query: needs DuckDB: pip install duckdb") from None
    from fermion_table.scanning.arrow_dataset import ScanDataset  # pyarrow.dataset is slow

    shown = arguments.n if arguments.n is not None or arguments.json else ROWS_SHOWN
    with ExitStack() as opened, duckdb.connect() as connection:
        columns: set[str] = set()
        for source in arguments.sources:
            name, location = _named(source)
            rows = ScanDataset(_scan(location, storage_options(arguments), opened))
            columns.update(rows.schema.names)
            connection.register(name, rows)
        try:
            # A query answers, and writes no file: COPY ... TO, ATTACH and extensions are refused.
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            answer = _first(connection.sql(arguments.sql), shown)
        except duckdb.ParserException as error:
            hint = _hint(connection, arguments.sql, columns)
            raise InvalidArgumentError(f"query: {error}{hint}") from error
        except duckdb.Error as error:
            raise InvalidArgumentError(f"query: {error}") from error
    if arguments.json:
        console.print_json(rows_json(answer))
    else:
        print_rows(console, answer, whole=arguments.all)
        if answer.num_rows == shown:
            console.print("... there may be more rows (-n N shows more)")
    return 0


def _hint(connection: Any, sql: str, columns: set[str]) -> str:
    """Which columns of the query have to be quoted, as they are called like words of SQL."""
    words = set(re.findall(r'(?<!["\w])\w+(?!["\w])', sql)) & columns
    reserved = {
        word
        for word, category in connection.execute(
            "SELECT keyword_name, keyword_category FROM duckdb_keywords()"
        ).fetchall()
        if category != "unreserved"
    }
    quoted = sorted(f'"{word}"' for word in words if word.lower() in reserved)
    if not quoted:
        return ""
    return f"\nwords of SQL as columns go in double quotes: write {', '.join(quoted)}"


def _first(relation: Any, count: int | None) -> pa.Table:
    """The first rows of an answer; a statement such as SET has none."""
    if relation is None:
        return pa.table({})
    limited = relation if count is None else relation.limit(max(count, 0))
    return pa.table(limited)


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
class FileRows:
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

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The rows as a table."""
        return self.to_reader().read_all()

    def head(self, n: int = 10) -> pa.Table:
        """The first rows."""
        return self.to_arrow().slice(0, n)

    def count(self) -> int:
        """How many rows there are."""
        return self.file.count(self.filter)
