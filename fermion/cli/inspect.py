"""`fermion inspect`: the layout of a file as a tree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow.types as pat

from fermion.cli.console import Console, size_text
from fermion.cli.html_output import add_html, check_html, write_html
from fermion.cli.protocol import (
    KEYS_HINT,
    add_columns,
    add_storage_options,
    storage_options,
)
from fermion.display import counted
from fermion.layout import ALIGNMENT
from fermion.options import SortKey
from fermion.pages.pages import PageDescription, tree_label
from fermion.reading.column_metadata import (
    ChunkMetadata,
    ColumnMetadata,
    SharedDictionary,
    StreamMetadata,
)
from fermion.reading.file import FermionFile, open_file
from fermion.reading.index import FileIndex
from fermion.reading.inspection import (
    FileLayout,
    describe_file,
    describe_pages,
    describe_place,
    stored_columns,
)

HELP = "show the layout: stripes, columns, streams, pages, encodings, sizes"
COLUMNS_SHOWN = 20
STRIPES_SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="path or URL of a Fermion file")
    add_columns(parser)
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help=f"show the N largest columns (default: {COLUMNS_SHOWN}, with --json all)",
    )
    parser.add_argument("--all", action="store_true", help="show all columns and stripes")
    parser.add_argument(
        "--pages", action="store_true", help="read every page and show its encodings"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_html(parser, "a map of all columns and stripes")
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the layout of a file, or write it as a web page."""
    if arguments.html is not None:
        return _write_page(arguments, console)
    everything = arguments.all or (arguments.json and arguments.top is None)
    everything = everything or arguments.column is not None
    limit = COLUMNS_SHOWN if arguments.top is None else max(arguments.top, 0)
    with open_file(arguments.file, storage_options=storage_options(arguments)) as file:
        names, keys = arguments.column, arguments.keys
        chosen = None if names is keys else stored_columns(file.index, names, keys)
        layout = describe_file(file.index, chosen, limit=None if everything else limit)
        if arguments.json:
            console.print_json(_file_json(file, layout, arguments.pages))
        else:
            for line in _file_lines(file, layout, arguments):
                console.print(line)
    return 0


def _write_page(arguments: argparse.Namespace, console: Console) -> int:
    given = {
        "--json": arguments.json,
        "--column": arguments.column is not None,
        "--keys": arguments.keys is not None,
        "--top": arguments.top is not None,
        "--all": arguments.all,
    }
    check_html(arguments, given)
    with open_file(arguments.file, storage_options=storage_options(arguments)) as file:
        page = file.layout_html(pages=arguments.pages)
    console.print(write_html(page, arguments))
    return 0


def _file_lines(
    file: FermionFile, layout: FileLayout, arguments: argparse.Namespace
) -> Iterator[str]:
    settings = file.settings
    yield (
        f"{layout.path}: {counted(layout.num_rows, 'row')}, "
        f"{counted(layout.num_columns, 'column')}, {counted(len(layout.stripes), 'stripe')}, "
        f"{size_text(layout.size)}"
    )
    footer = file.index.footer
    mode = ", batch mode" if settings["batch"] else ""
    mode += " with positions" if footer.has_positions else ""
    if settings["align"] != ALIGNMENT:
        mode += f", aligned to {settings['align']} bytes"
    if footer.is_extended:
        mode += ", columns changed"
    yield (
        f"  version {'.'.join(map(str, file.version))}, {settings['checksum']} checksums{mode}, "
        f"created by {file.created_by or 'nobody'}"
    )
    if file.sort_order:
        yield f"  sorted by {', '.join(map(_sort_label, file.sort_order))}"
    yield f"  data {size_text(layout.data_bytes)}, metadata {size_text(layout.metadata_bytes)}"
    if layout.stripes:
        yield "stripes"
        yield from _stripe_lines(layout, None if arguments.all else STRIPES_SHOWN)
    if layout.columns:
        yield "columns"
    for column in layout.columns:
        yield from _column_lines(file.index, column, arguments.pages)
    if layout.num_left_out:
        yield f"  ... and {layout.num_left_out:,} more (--all shows them, --column NAME one)"


def _sort_label(key: SortKey) -> str:
    direction = " descending" if key.descending else ""
    return f"{key.name}{direction}{', nulls first' if key.nulls_first else ''}"


def _stripe_lines(layout: FileLayout, limit: int | None) -> Iterator[str]:
    for number, stripe in enumerate(layout.stripes[:limit]):
        size = "" if stripe.stored_bytes is None else f", {size_text(stripe.stored_bytes)}"
        yield f"  {number}: {counted(stripe.rows, 'row')} from row {stripe.first_row:,}{size}"
    rest = len(layout.stripes) - len(layout.stripes[:limit])
    if rest:
        yield f"  ... and {rest:,} more (--all shows them)"


def _column_lines(index: FileIndex, column: ColumnMetadata, pages: bool) -> Iterator[str]:
    stored, in_arrow = column.stored_bytes, column.arrow_bytes
    parts = [size_text(stored)]
    if stored and in_arrow:
        times, than = max(stored, in_arrow) / min(stored, in_arrow), "smaller"
        parts.append(f"{times:,.1f} times {than if in_arrow >= stored else 'larger'} than in Arrow")
    if column.null_count:
        parts.append(counted(column.null_count, "null"))
    if not column.streams:
        parts.append("no metadata block")
    required = "" if column.nullable else " not null"
    yield f"  {column.name}: {column.type}{required}, {', '.join(parts)}"
    if column.num_keys:
        what = counted(column.num_keys, "key" if pat.is_map(column.type) else "path")
        yield f"    {what} with a column: {size_text(column.key_bytes)} {KEYS_HINT}"
    if column.blob_bytes is not None:
        yield f"    blobs: {size_text(column.blob_bytes)} in all, read only when asked for"
    for stream in column.streams:
        if stream.length or pages:
            yield from _stream_lines(index, stream, pages)


def _stream_lines(index: FileIndex, stream: StreamMetadata, pages: bool) -> Iterator[str]:
    name = stream.label
    if not stream.length:
        yield f"    {name}: {stream.chunks[0].state if stream.chunks else 'default'}"
        return
    count = sum(len(chunk.pages) for chunk in stream.chunks)
    yield (
        f"    {name}: {size_text(stream.length)} in {counted(count, 'page')}, "
        f"{', '.join(stream.encodings)}"
    )
    if stream.dictionary is not None:
        tree = f", {_dictionary_label(index, stream.dictionary)}" if pages else ""
        yield (
            f"      global dictionary: {counted(stream.dictionary.entries, 'value')}, "
            f"{size_text(stream.dictionary.length)} at {stream.dictionary.offset:,}{tree}"
        )
    if pages:
        trees = describe_pages(index, stream)
        for chunk in stream.chunks:
            yield from _chunk_lines(chunk, trees)


def _chunk_lines(chunk: ChunkMetadata, trees: Iterator[PageDescription]) -> Iterator[str]:
    if not chunk.pages:
        yield f"      stripe {chunk.stripe}: {chunk.state}"
        return
    yield f"      stripe {chunk.stripe}: {size_text(chunk.length)} at {chunk.offset:,}"
    for number, (page, tree) in enumerate(zip(chunk.pages, trees, strict=False)):
        slots = (
            counted(page.slots, "slot") if page.slots else counted(tree.slots, "dictionary value")
        )
        yield (
            f"        page {number}: {size_text(page.length)} at {page.offset:,}, {slots}, "
            f"{tree.label}"
        )


def _dictionary_label(index: FileIndex, dictionary: SharedDictionary) -> str:
    return describe_place(index, dictionary.offset, dictionary.length).label


def _file_json(file: FermionFile, layout: FileLayout, pages: bool) -> dict[str, Any]:
    return {
        "path": layout.path,
        "size": layout.size,
        "data_bytes": layout.data_bytes,
        "metadata_bytes": layout.metadata_bytes,
        "version": list(file.version),
        "created_by": file.created_by,
        "settings": file.settings,
        "sort_order": [asdict(key) for key in file.sort_order],
        "key_value_metadata": file.key_value_metadata,
        "num_rows": layout.num_rows,
        "num_columns": layout.num_columns,
        "stripes": [
            {"first_row": each.first_row, "rows": each.rows, "stored_bytes": each.stored_bytes}
            for each in layout.stripes
        ],
        "columns": [_column_json(file.index, column, pages) for column in layout.columns],
        "columns_left_out": layout.num_left_out,
    }


def _column_json(index: FileIndex, column: ColumnMetadata, pages: bool) -> dict[str, Any]:
    return {
        "name": column.name,
        "ordinal": column.ordinal,
        "type": str(column.type),
        "nullable": column.nullable,
        "stored_bytes": column.stored_bytes,
        "metadata_bytes": column.cmb_length,
        "arrow_bytes": column.arrow_bytes,
        "null_count": column.null_count,
        "num_keys": column.num_keys,
        "key_bytes": column.key_bytes,
        "blob_bytes": column.blob_bytes,
        "encodings": list(column.encodings),
        "streams": [_stream_json(index, stream, pages) for stream in column.streams],
    }


def _stream_json(index: FileIndex, stream: StreamMetadata, pages: bool) -> dict[str, Any]:
    trees = describe_pages(index, stream) if pages else None
    return {
        "path": list(stream.path),
        "type": stream.type.name.lower(),
        "stored_bytes": stream.length,
        "encodings": list(stream.encodings),
        "global_dictionary": _dictionary_json(index, stream.dictionary, pages),
        "chunks": [_chunk_json(chunk, trees) for chunk in stream.chunks],
    }


def _dictionary_json(
    index: FileIndex, dictionary: SharedDictionary | None, pages: bool
) -> dict[str, Any] | None:
    if dictionary is None:
        return None
    found: dict[str, Any] = asdict(dictionary)
    return found | {"encoding": _dictionary_label(index, dictionary)} if pages else found


def _chunk_json(chunk: ChunkMetadata, trees: Iterator[PageDescription] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stripe": chunk.stripe,
        "state": chunk.state,
        "offset": chunk.offset,
        "length": chunk.length,
        "num_pages": len(chunk.pages),
    }
    if trees is not None:
        found["pages"] = [
            {
                "offset": page.offset,
                "length": page.length,
                "slots": tree.slots,
                "codec": tree.codec,
                "raw_length": tree.raw_length,
                "encoding": tree_label(tree.tree),
            }
            for page, tree in zip(chunk.pages, trees, strict=False)
        ]
    return found
