"""A file as a map of bytes: columns by stripes, for a picture. Plain values of bounded size.

`layout_map` reads the metadata of all columns and the headers of their pages. What it makes goes
into a page as JSON: lists of numbers, one a cell, and tables of the texts that they refer to. Cells
are in the order of the columns, and in each by stripe. -1 is a number that is not known.

A wide file has more cells than a page shows: columns that are neighbours make one group then, and
stripes too. Numbers of a group are sums, its encoding is that of most bytes. With this and the
limits of texts below the JSON of any file has less than 32 MB; of 10,000 columns in 4 stripes 1.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from fermion.columns.types import NodeKind
from fermion.display import counted, shortened, type_text
from fermion.exports import dataclass
from fermion.html.page import LAYOUT, web_page
from fermion.layout import FOOTER, HEAD, SectionKind
from fermion.metadata.map_keys import VariantPaths
from fermion.reading.column_metadata import (
    DICTIONARY_PAGE,
    ColumnMetadata,
    StreamMetadata,
    describe_columns,
)
from fermion.reading.index import FileIndex
from fermion.reading.inspection import bound_text, describe_pages, describe_statistics
from fermion.reading.projection import keys_columns, project
from fermion.redaction import redacted

CELLS_MAX = 200_000
"""Of the map: columns, or groups of them, times stripes."""
COLUMNS_MAX = 20_000
"""Columns that are shown one by one."""
STRIPES_MAX = 1_000
"""Stripes that are shown one by one."""
PAGES_MAX = 200_000
"""Pages that are listed; of a file with more only their number is."""
NAMES_MAX = 200_000
"""Names that can be searched; of a file with more columns only the first name of each group."""
NAME_LENGTH = 100
TYPE_LENGTH = 60
VALUE_LENGTH = 40
COLUMNS_AT_ONCE = 2_000
"""Columns whose descriptions are in memory at once."""
UNKNOWN = -1
NOTHING_STORED, ALL_NULL = "nothing stored", "all null"
_SECTIONS: dict[int, str] = {
    SectionKind.STRIPE_TABLE: "stripe table",
    SectionKind.NAME_INDEX: "name index",
    SectionKind.KEY_VALUE: "key-value metadata",
    SectionKind.FILE_STATISTICS: "file statistics",
    SectionKind.SORT_ORDER: "sort order",
    SectionKind.FIELD_IDS: "field ids",
    SectionKind.ORDERED_DICTIONARIES: "ordered dictionaries",
    SectionKind.MAP_KEYS: "names of keys of maps",
}


class _Texts:
    """A table of texts, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    def all(self) -> list[str]:
        return list(self._places)


@dataclass(slots=True)
class _Cell:
    """One column, or group of them, in one stripe, or group of them."""

    bytes: int = 0
    arrow_bytes: int = 0
    nulls: int = 0
    pages: int = 0
    encodings: Counter[str] = field(default_factory=Counter)

    def add(self, stored: int, arrow: int | None, label: str, num_pages: int) -> None:
        """Add a chunk."""
        self.bytes += stored
        self.arrow_bytes = _sum(self.arrow_bytes, arrow)
        self.pages += num_pages
        self.encodings[label] += stored

    def add_nulls(self, count: int | None) -> None:
        self.nulls = _sum(self.nulls, count)


@dataclass(slots=True)
class _Column:
    """What a column, or a group of them, takes besides its cells."""

    metadata_bytes: int = 0
    dictionary_bytes: int = 0
    bloom_bytes: int = 0


@dataclass(slots=True)
class _Map:
    """A map that is being filled."""

    columns_each: int
    stripes_each: int
    cells: list[list[_Cell]]
    columns: list[_Column]
    pages: dict[str, list[int]] | None
    encodings: _Texts = field(default_factory=_Texts)
    streams: _Texts = field(default_factory=_Texts)
    types: _Texts = field(default_factory=_Texts)
    places: set[tuple[int, int]] = field(default_factory=set)
    """Of dictionaries and Bloom filters, which several chunks may share."""

    def new_bytes(self, offset: int, length: int) -> int:
        """The bytes of a dictionary or a Bloom filter; 0 if its place was counted before."""
        if (offset, length) in self.places:
            return 0
        self.places.add((offset, length))
        return length


def layout_page(index: FileIndex, *, pages: bool = False) -> str:
    """A web page with the map of a file; arguments and errors as of `layout_map`."""
    found = layout_map(index, pages=pages)
    return web_page(f"{found['file']['path']} - Fermion file", found, LAYOUT)


def layout_map(index: FileIndex, *, pages: bool = False) -> dict[str, Any]:
    """The map of a file.

    pages: Read every page, for its whole tree of encodings; otherwise headers, for its first one.
    Returns: ``file``: facts. ``parts``: pairs of a name and its bytes, whose sum is the file's
        size. ``stripes``, ``columns``, ``cells``, ``pages``: lists by stripe, column, cell and
        page; of ``pages`` only ``count`` where there are too many. ``names``, ``encodings``,
        ``streams``, ``types``: texts. ``keys``: of each key of a map, and path of a Variant column,
        the place of its column, the name, and the bytes; none where there are too many.
    Raises ChecksumError, InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError.
    """
    chosen = [column for column in project(index, None) if column.node is not None]
    drawn = _empty(index, len(chosen))
    types, blobs = [], dict[int, int]()
    count = 0
    for start in range(0, len(chosen), COLUMNS_AT_ONCE):
        for column in describe_columns(index, chosen[start : start + COLUMNS_AT_ONCE]):
            if column.blob_bytes is not None:
                blobs[column.ordinal] = column.blob_bytes
            types.append(drawn.types.place(type_text(column.type, TYPE_LENGTH)))
            count += _add_column(index, drawn, column, whole=pages)
    names = [shortened(name, NAME_LENGTH) for name in index.all_names]
    for ordinal, size in blobs.items():
        names[ordinal] += f" ({size:,} bytes of blobs)"
    listed: list[tuple[int, str, int]] = []
    for ordinal, keys in index.map_keys.items():
        what = "path" if isinstance(keys, VariantPaths) else "key"
        names[ordinal] += f" ({counted(keys.count, what)})"
        texts = keys.names.all()
        for text, column in zip(texts, describe_columns(index, keys_columns(keys)), strict=True):
            of_map = replace(column, ordinal=ordinal, null_counts=())
            count += _add_column(index, drawn, of_map, whole=pages)
            stored = column.cmb_length + column.stored_bytes
            listed.append((ordinal // drawn.columns_each, shortened(text, NAME_LENGTH), stored))
    if drawn.pages is not None and len(drawn.pages["bytes"]) < count:
        drawn.pages = None
    return {
        "file": _facts(index),
        "parts": _parts(index, drawn),
        "groups": {"columns": drawn.columns_each, "stripes": drawn.stripes_each},
        "stripes": _stripes(index, drawn.stripes_each),
        "names": names if len(names) <= NAMES_MAX else names[:: drawn.columns_each],
        "keys": listed if len(names) + len(listed) <= NAMES_MAX else [],
        "columns": {
            "type": types[:: drawn.columns_each],
            "metadata_bytes": [each.metadata_bytes for each in drawn.columns],
            "dictionary_bytes": [each.dictionary_bytes for each in drawn.columns],
            "bloom_bytes": [each.bloom_bytes for each in drawn.columns],
            **_statistics(index, drawn.columns_each),
        },
        "cells": _cells(drawn),
        "pages": {"count": count, **(drawn.pages or {})},
        "encodings": drawn.encodings.all(),
        "streams": drawn.streams.all(),
        "types": drawn.types.all(),
    }


def _empty(index: FileIndex, num_columns: int) -> _Map:
    """A map without bytes, in which columns and stripes have their groups."""
    num_stripes = len(index.stripe_rows)
    stripes_each = max(-(-num_stripes // STRIPES_MAX), 1)
    stripes = -(-num_stripes // stripes_each)
    columns_most = min(COLUMNS_MAX, CELLS_MAX // max(stripes, 1))
    columns_each = max(-(-num_columns // columns_most), 1)
    columns = -(-num_columns // columns_each)
    listed = columns_each == stripes_each == 1
    return _Map(
        columns_each,
        stripes_each,
        [[_Cell() for _ in range(stripes)] for _ in range(columns)],
        [_Column() for _ in range(columns)],
        {"stream": [], "bytes": [], "slots": [], "encoding": []} if listed else None,
    )


def _add_column(index: FileIndex, drawn: _Map, metadata: ColumnMetadata, *, whole: bool) -> int:
    """Add a column's bytes to the map; how many pages it has."""
    place = metadata.ordinal // drawn.columns_each
    column, cells = drawn.columns[place], drawn.cells[place]
    column.metadata_bytes += metadata.cmb_length
    for stripe, nulls in enumerate(metadata.null_counts):
        cells[stripe // drawn.stripes_each].add_nulls(nulls)
    listed: list[list[tuple[int, int, int, int]]] = [[] for _ in cells]
    for stream in metadata.streams:
        for stripe, page in _add_stream(index, drawn, cells, stream, whole=whole):
            listed[stripe // drawn.stripes_each].append(page)
        if stream.dictionary is not None:
            shared = stream.dictionary
            column.dictionary_bytes += drawn.new_bytes(shared.offset, shared.length)
    for bloom in metadata.bloom_filters:
        column.bloom_bytes += drawn.new_bytes(*bloom)
    count = sum(map(len, listed))
    if drawn.pages is not None and len(drawn.pages["bytes"]) + count <= PAGES_MAX:
        for values, part in zip(drawn.pages.values(), range(4), strict=True):
            values.extend(page[part] for cell in listed for page in cell)
    return count


def _add_stream(
    index: FileIndex, drawn: _Map, cells: Sequence[_Cell], stream: StreamMetadata, *, whole: bool
) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Add a stream's chunks to its cells; its pages by stripe."""
    trees = describe_pages(index, stream) if whole else None
    label = drawn.streams.place(stream.label)
    for chunk in stream.chunks:
        cell = cells[chunk.stripe // drawn.stripes_each]
        if not chunk.pages:
            continue
        roots: Counter[str] = Counter()
        for page in chunk.pages:
            name = page.encoding
            roots[name.removeprefix(DICTIONARY_PAGE)] += page.length * (page.slots > 0)
            if trees is not None:
                kind = DICTIONARY_PAGE if name.startswith(DICTIONARY_PAGE) else ""
                name = f"{kind}{next(trees).label}"
            yield chunk.stripe, (label, page.length, page.slots, drawn.encodings.place(name))
        cell.add(chunk.length, chunk.arrow_bytes, roots.most_common(1)[0][0], len(chunk.pages))


def _cells(drawn: _Map) -> dict[str, list[int]]:
    cells = [cell for column in drawn.cells for cell in column]
    return {
        "bytes": [cell.bytes for cell in cells],
        "arrow_bytes": [cell.arrow_bytes for cell in cells],
        "nulls": [cell.nulls for cell in cells],
        "pages": [cell.pages for cell in cells],
        "encoding": [drawn.encodings.place(_main_encoding(cell)) for cell in cells],
    }


def _main_encoding(cell: _Cell) -> str:
    if cell.encodings:
        return cell.encodings.most_common(1)[0][0]
    return ALL_NULL if cell.nulls else NOTHING_STORED


def _statistics(index: FileIndex, columns_each: int) -> dict[str, list[str]]:
    """Bounds of each column that is shown by itself and not nested."""
    lows, highs = [], []
    if columns_each > 1:
        return {}
    for start in range(0, index.footer.num_columns, COLUMNS_AT_ONCE):
        stop = min(start + COLUMNS_AT_ONCE, index.footer.num_columns)
        bounds = dict.fromkeys(range(start, stop), ("", ""))
        flat = [each for each in bounds if index.node(each).kind is NodeKind.LEAF]
        for ordinal, leaf in zip(
            flat, describe_statistics(index, project(index, flat)), strict=True
        ):
            bounds[ordinal] = (
                bound_text(leaf.min, VALUE_LENGTH, is_exact=leaf.min_exact),
                bound_text(leaf.max, VALUE_LENGTH, is_exact=leaf.max_exact),
            )
        lows += [low for low, _ in bounds.values()]
        highs += [high for _, high in bounds.values()]
    return {"min": lows, "max": highs}


def _stripes(index: FileIndex, each: int) -> dict[str, list[int]]:
    rows = index.stripe_rows.tolist()
    return {
        "first_row": index.stripe_starts.tolist()[:-1][::each],
        "rows": [sum(rows[start : start + each]) for start in range(0, len(rows), each)],
    }


def _facts(index: FileIndex) -> dict[str, Any]:
    footer = index.footer
    return {
        "path": shortened(redacted(index.where), NAME_LENGTH * 4),
        "size": footer.file_length,
        "rows": footer.num_rows,
        "columns": footer.num_columns,
        "stripes": footer.num_stripes,
        "version": f"{footer.major}.{footer.minor}",
        "created_by": footer.created_by,
        "checksum": footer.checksum_kind.name.lower(),
    }


def _parts(index: FileIndex, drawn: _Map) -> list[list[Any]]:
    """Names and bytes of all parts of the file, the largest first; what is left is padding."""
    footer = index.footer
    parts = {
        "pages": sum(cell.bytes for column in drawn.cells for cell in column),
        "shared dictionaries": sum(each.dictionary_bytes for each in drawn.columns),
        "Bloom filters": sum(each.bloom_bytes for each in drawn.columns),
        "column metadata": sum(each.metadata_bytes for each in drawn.columns),
        "batches": _batch_bytes(index),
        "column index": footer.cit_length,
        "schema": footer.schema_length,
        "section directory": footer.sections_length,
        "head and footer": HEAD.itemsize + FOOTER.itemsize,
    }
    for kind, (_, length) in index.sections.items():
        parts[_SECTIONS.get(kind, f"section {int(kind)}")] = length
    rest = max(footer.file_length - sum(parts.values()), 0)
    name = "padding and replaced metadata" if footer.is_extended else "padding"
    parts[f"blobs, {name}" if footer.has_blobs else name] = rest
    return sorted(([name, size] for name, size in parts.items() if size), key=lambda part: -part[1])


def _batch_bytes(index: FileIndex) -> int:
    """Bytes of the column of batches: pages and metadata."""
    ordinals = range(index.footer.num_columns, index.footer.num_columns + index.footer.is_batch)
    total = int(index.cit.ranges(list(ordinals))[:, 1].sum()) if ordinals else 0
    for block in index.blocks(ordinals):
        if block is not None:
            total += sum(chunk.length for _, chunk in block.stored(*range(block.num_streams)))
    return total


def _sum(total: int, part: int | None) -> int:
    return UNKNOWN if part is None or total == UNKNOWN else total + part
