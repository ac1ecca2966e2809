"""`fermion table schema`: the columns of a snapshot, and how they came to be."""

from __future__ import annotations

import argparse

from fermion.cli import Console, counted, rows_json
from fermion_table.cli.arguments import add_flag, add_table, add_version, open_table
from fermion_table.schema.schema import describe_field
from fermion_table.table.table import Table

HELP = "show the columns with their ids and types, or all schema changes with --history"
COLUMNS_SHOWN = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    add_flag(parser, "--history", "show the changes of every version")
    add_flag(parser, "--all", f"show more than the first {COLUMNS_SHOWN} columns")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print a schema or its history."""
    table = open_table(arguments)
    if arguments.history:
        _print_history(table, arguments, console)
        return True
    if arguments.json:
        console.print_json(_json(table))
        return True
    fields = table.schema.fields
    shown = len(fields) if arguments.all else COLUMNS_SHOWN
    for field in fields[:shown]:
        console.print(describe_field(field).strip())
    if len(fields) > shown:
        console.print(f"... and {counted(len(fields) - shown, 'more column')} (--all shows them)")
    return True


def _print_history(table: Table, arguments: argparse.Namespace, console: Console) -> None:
    versions = rows_json(table.inspect.schemas())
    if arguments.json:
        console.print_json(versions)
        return
    for version in versions:
        time = version["created_at"].partition(".")[0]
        console.print(f"schema {version['schema_id']}  {time}  {version['columns']} columns")
        for change in version["changes"]:
            console.print(f"    {change}")


def _json(table: Table) -> dict[str, object]:
    schema = table.schema
    return {
        "schema_id": schema.id,
        "fields": [
            {
                "id": field.id,
                "path": list(path),
                "type": str(field.type),
                "nullable": field.nullable,
                "comment": field.comment,
            }
            for column in schema.fields
            for path, field in column.walk()
        ],
        "partition_by": [field.name for field in schema.partition_by],
        "primary_key": table.primary_key,
        "properties": schema.properties,
    }
