"""`fermion schema`: names, types, field ids and metadata of the columns."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fermion.cli.console import Console
from fermion.cli.protocol import add_storage_options, storage_options
from fermion.columns.types import strip_wrappers
from fermion.display import shortened
from fermion.metadata.schema_area import field_id
from fermion.reading.file import open_file

HELP = "show the columns' names and types"
COLUMNS_SHOWN = 100
VALUE_LENGTH = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="path or URL of a Fermion file")
    parser.add_argument(
        "--all", action="store_true", help=f"show more than the first {COLUMNS_SHOWN} columns"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all metadata")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the schema of a file."""
    with open_file(arguments.file, storage_options=storage_options(arguments)) as file:
        schema, entries = file.schema, file.key_value_metadata
    if arguments.json:
        console.print_json(
            {
                "columns": [_field_json(field) for field in schema],
                "metadata": _metadata_json(schema.metadata),
                "key_value_metadata": entries,
            }
        )
        return 0
    shown = len(schema) if arguments.all else COLUMNS_SHOWN
    for ordinal in range(min(shown, len(schema))):
        field = schema.field(ordinal)
        number = field_id(field)
        required = "" if field.nullable else " not null"
        label = "" if number is None else f", field id {number}"
        console.print(f"{field.name}: {field.type}{required}{label}")
    if len(schema) > shown:
        console.print(f"... and {len(schema) - shown:,} more (--all shows them)")
    texts = _metadata_json(schema.metadata) or {}
    for title, pairs in (("schema metadata", texts), ("key/value metadata", entries)):
        if pairs:
            console.print(f"{title}:")
        for key, value in pairs.items():
            console.print(f"  {key}: {shortened(value, VALUE_LENGTH)}")
    return 0


def _field_json(field: pa.Field) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": field.name,
        "type": str(field.type),
        "nullable": field.nullable,
        "field_id": field_id(field),
        "metadata": _metadata_json(field.metadata),
    }
    storage = strip_wrappers(field.type)
    if storage.num_fields:
        children = [storage.field(index) for index in range(storage.num_fields)]
        found["children"] = [_field_json(child) for child in children]
    return found


def _metadata_json(metadata: Mapping[bytes, bytes] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    return {
        key.decode("utf-8", "backslashreplace"): value.decode("utf-8", "backslashreplace")
        for key, value in metadata.items()
    }
