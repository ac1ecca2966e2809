"""`fermion head`: the first rows."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fermion.cli.console import Console, rows_json
from fermion.cli.protocol import add_storage_options, storage_options
from fermion.display import shortened
from fermion.exports import LoadedWhenAskedFor
from fermion.layout import BLOB_KEY
from fermion.reading.file import FermionFile, open_file
from fermion.reading.projection import ColumnName
from fermion.reading.value_text import value_text

if TYPE_CHECKING:
    from fermion.blobs import references
else:  # few files have blobs
    references = LoadedWhenAskedFor("fermion.blobs.references")

HELP = "show the first rows"
ROWS_SHOWN = 10
CELL_LENGTH = 40
CELL_LENGTH_MIN = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="path or URL of a Fermion file")
    parser.add_argument(
        "-n", type=int, default=ROWS_SHOWN, metavar="N", help=f"rows (default: {ROWS_SHOWN})"
    )
    parser.add_argument(
        "--column", action="append", metavar="NAME", help="show this column; may be repeated"
    )
    parser.add_argument(
        "--all", action="store_true", help="show all columns, even if lines become long"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: one object per row")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the first rows of a file."""
    with open_file(arguments.file, storage_options=storage_options(arguments)) as file:
        everything = arguments.all or arguments.json
        fitting = console.width // (CELL_LENGTH_MIN + 2) + 1
        columns: Sequence[ColumnName] | None = arguments.column
        if columns is None and not everything and file.num_columns > fitting:
            columns = range(fitting)
        rows = (0, min(max(arguments.n, 0), file.num_rows))
        table = file.read(columns, rows=rows, blobs="bytes" if arguments.json else "references")
        if arguments.json:
            console.print_json(rows_json(table))
        else:
            _print_rows(table, file, arguments, console)
    return 0


def _print_rows(
    table: pa.Table, file: FermionFile, arguments: argparse.Namespace, console: Console
) -> None:
    names = table.column_names
    columns = [
        [_cell(each, field) for each in column]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    left_out = 0 if arguments.column else file.num_columns - len(columns)
    if not arguments.all:
        fitting = _fitting(names, columns, console.width)
        left_out += len(columns) - fitting
        names, columns = names[:fitting], columns[:fitting]
    right = [
        name
        for name, field in zip(names, table.schema, strict=False)
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    header = [shortened(name, CELL_LENGTH) for name in names]
    if columns:
        console.print_table(header, list(zip(*columns, strict=True)), right=right)
    if left_out:
        console.print(f"... and {left_out:,} more columns (--all, --column NAME)")
    left_rows = file.num_rows - table.num_rows
    if left_rows:
        console.print(f"... and {left_rows:,} more rows")


def _cell(value: pa.Scalar, field: pa.Field) -> str:
    """A value in few characters; of a blob only its size is read."""
    if BLOB_KEY in (field.metadata or ()) and references.is_reference(field):
        return f"{value['size']} bytes" if value.is_valid else ""
    return shortened(value_text(value), CELL_LENGTH)


def _fitting(names: Sequence[str], columns: Sequence[Sequence[str]], width: int) -> int:
    """How many columns fit side by side; at least one."""
    used = 0
    for count, (name, cells) in enumerate(zip(names, columns, strict=True)):
        used += max(len(each) for each in (shortened(name, CELL_LENGTH), *cells)) + 2
        if used - 2 > width and count:
            return count
    return len(columns)
