"""`fermion table show`: a table at one snapshot, in brief."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from fermion.cli import Console, add_html, check_html, counted, size_text, write_html
from fermion_table.cli.arguments import add_table, add_version, open_table
from fermion_table.moments import time_text
from fermion_table.schema.schema import has_buckets
from fermion_table.table.table import Table

HELP = "show a snapshot: time, author, rows, files and bytes; properties, tags, branches"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    add_html(parser, "first rows, columns and what the last commits changed")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print a summary."""
    if arguments.html is not None:
        check_html(arguments, {"--json": arguments.json})
        console.print(write_html(str(open_table(arguments).show()), arguments))
        return True
    table = open_table(arguments)
    if arguments.json:
        console.print_json(_json(table))
    else:
        for line in _lines(table):
            console.print(line)
    return True


def _lines(table: Table) -> Iterator[str]:
    snapshot, totals, schema = table.snapshot, table.snapshot.totals, table.schema
    yield table.location
    author = f" by {snapshot.author}" if snapshot.author else ""
    yield (
        f"snapshot {snapshot.id} of {table.branch}: {snapshot.kind}{author}, "
        f"{time_text(snapshot.time_ms)} UTC"
    )
    for line in (snapshot.message or "").splitlines():
        yield f"    {line}"
    live = totals.live_rows
    row = "stored row" if has_buckets(schema) else "row"
    yield f"{counted(live, row)} in {counted(totals.files, 'file')}, {size_text(totals.bytes)}"
    if totals.rows_deleted:
        yield f"{counted(totals.rows_deleted, 'row')} deleted by deletion vectors"
    yield f"{counted(len(schema.fields), 'column')}, schema {schema.id}"
    if schema.partition_by:
        yield f"partitioned by {', '.join(field.name for field in schema.partition_by)}"
    if schema.primary_key:
        yield f"primary key: {', '.join(table.primary_key)}"
    for name, value in sorted(schema.properties.items()):
        yield f"property {name}: {value}"
    for head in table.branches.list():
        left = "" if head.parent is None else f", from snapshot {head.left_after} of {head.parent}"
        yield f"branch {head.name}: snapshot {head.snapshot_id}{left}"
    for tag in table.tags.list():
        message = f" ({tag.message})" if tag.message else ""
        yield f"tag {tag.name}: snapshot {tag.snapshot_id}{message}"


def _json(table: Table) -> dict[str, Any]:
    snapshot, totals, schema = table.snapshot, table.snapshot.totals, table.schema
    return {
        "location": table.location,
        "table_uuid": snapshot.table_uuid,
        "branch": table.branch,
        "snapshot_id": snapshot.id,
        "hash": snapshot.hash,
        "kind": snapshot.kind,
        "time_ms": snapshot.time_ms,
        "author": snapshot.author,
        "message": snapshot.message,
        "snapshot_properties": snapshot.properties,
        "rows": totals.live_rows,
        "rows_deleted": totals.rows_deleted,
        "files": totals.files,
        "bytes": totals.bytes,
        "schema_id": schema.id,
        "columns": len(schema.fields),
        "partition_by": [field.name for field in schema.partition_by],
        "primary_key": table.primary_key,
        "properties": schema.properties,
        "branches": {head.name: head.snapshot_id for head in table.branches.list()},
        "tags": {tag.name: tag.snapshot_id for tag in table.tags.list()},
    }
