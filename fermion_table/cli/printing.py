"""Rows of Arrow tables on a console: in columns for people, as objects in JSON."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.cli import Console, rows_json
from fermion.display import shortened
from fermion.engine import value_text
from fermion_table.expiry.maintenance import MaintenanceResult

CELL_LENGTH = 40


def print_lines(console: Console, text: str) -> None:
    """Print text line by line."""
    for line in text.splitlines():
        console.print(line)


def print_result(arguments: argparse.Namespace, console: Console, result: Any, text: str) -> None:
    """Print what a command did: as JSON where that is asked for, else in words."""
    if arguments.json:
        console.print_json(result)
    else:
        print_lines(console, text)


def print_answer(
    arguments: argparse.Namespace,
    console: Console,
    rows: pa.Table,
    *,
    none: str = "",
    whole: bool = False,
) -> None:
    """Print rows: as JSON where that is asked for, else in columns, or ``none`` if there are none.

    whole: See `print_rows`.
    """
    if arguments.json:
        console.print_json(rows_json(rows))
    elif rows.num_rows or not none:
        print_rows(console, rows, whole=whole)
    else:
        console.print(none)


def print_rows(
    console: Console, table: pa.Table, *, whole: bool = False, cell_length: int = CELL_LENGTH
) -> None:
    """Print a table's rows in columns, as many columns as fit.

    whole: Print all columns, however long the lines become.
    cell_length: Longer values are cut.
    """
    columns = [
        [shortened(value_text(value), cell_length) for value in column] for column in table.columns
    ]
    header = [shortened(name, cell_length) for name in table.column_names]
    shown = len(columns) if whole else _fitting(header, columns, console.width)
    right = [
        name
        for name, field in zip(header, table.schema, strict=True)
        if pat.is_integer(field.type) or pat.is_floating(field.type)
    ]
    if columns:
        rows = list(zip(*columns[:shown], strict=True))
        console.print_table(header[:shown], rows, right=right)
    if shown < len(columns):
        console.print(f"... and {len(columns) - shown:,} more columns (--all shows them)")


def json_ready(value: Any) -> Any:
    """Python's own values as JSON has them; times as ISO text."""
    if isinstance(value, dict):
        return {str(name): json_ready(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _fitting(header: Sequence[str], columns: Sequence[Sequence[str]], width: int) -> int:
    """How many columns fit side by side; at least one."""
    used = 0
    for count, (name, cells) in enumerate(zip(header, columns, strict=True)):
        used += max(len(text) for text in (name, *cells)) + 2
        if used - 2 > width and count:
            return count
    return len(columns)


def print_maintenance(
    result: MaintenanceResult, arguments: argparse.Namespace, console: Console
) -> None:
    """Print what went, or would go."""
    if arguments.json:
        console.print_json(dataclasses.asdict(result))
        return
    console.print(str(result))
    if result.dry_run:
        for path in result.paths:
            console.print(f"  {path}")
