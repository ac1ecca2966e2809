"""What a file looks like inside, and what its metadata says of values: plain descriptions.

Nothing here reads values. `describe_file` reads the metadata of all columns at once and the page
headers of those that it describes; `describe_statistics` reads metadata alone.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.maps import key_name
from fermion.columns.types import Node, NodeKind, Order
from fermion.display import shortened
from fermion.exports import dataclass
from fermion.layout import ChunkFlag, DescType, ExtTag
from fermion.metadata.cmb import ColumnBlock
from fermion.metadata.map_keys import VariantPaths
from fermion.pages.pages import PageDescription, PageSlice, describe_page
from fermion.predicate.expression import VariantValue
from fermion.reading.column_metadata import (
    ColumnMetadata,
    StreamMetadata,
    describe_columns,
    known_sum,
    stored_statistics,
)
from fermion.reading.index import FileIndex
from fermion.reading.projection import ColumnName, Projected, keys_columns, project
from fermion.reading.value_text import value_text
from fermion.statistics.bounds import (
    ChunkBounds,
    distinct_count,
    merge_columns,
    merged_long_bounds,
    nan_count,
    recorded_sum,
)
from fermion.statistics.keys import string_scalar


@dataclass(frozen=True, slots=True)
class StripeLayout:
    """A stripe; ``stored_bytes`` is None where not all columns were looked at."""

    first_row: int
    rows: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A whole file, as deep as was asked for.

    columns: Those that were asked for, or the largest, largest first.
    num_left_out: How many there are besides, or were asked for.
    data_bytes, metadata_bytes: Bytes up to the first CMB, and from there on.
    """

    path: str
    size: int
    data_bytes: int
    metadata_bytes: int
    num_rows: int
    num_columns: int
    stripes: tuple[StripeLayout, ...]
    columns: tuple[ColumnMetadata, ...]
    num_left_out: int


@dataclass(frozen=True, slots=True)
class LeafStatistics:
    """What metadata says of the values of one leaf of a column.

    path: Names from the column down.
    rows: Rows that the leaf has a value for, NULLs included; None below a list.
    null_count: NULLs; None where that is not known.
    min, max: Bounds as Arrow values; None where there is no value, or none is known. An inexact
        bound may lie outside the values: a string's is its first bytes.
    has_nan, nan_count: None where that is not known.
    is_sorted: ``ascending`` or ``descending``; None where it is neither, or not known.
    distinct_count: None where it was not counted, or only stripe by stripe.
    sum: Of whole numbers, ``int``, or of decimals; None where it is not known.
    has_bloom_filter: Whether every stored chunk has one.
    """

    path: tuple[str, ...]
    type: pa.DataType
    rows: int | None
    null_count: int | None
    min: pa.Scalar | None = None
    max: pa.Scalar | None = None
    min_exact: bool = False
    max_exact: bool = False
    has_nan: bool | None = False
    nan_count: int | None = 0
    is_sorted: str | None = None
    distinct_count: int | None = None
    sum: int | decimal.Decimal | None = None
    has_bloom_filter: bool = False


def stored_columns(
    index: FileIndex, columns: Sequence[ColumnName] | None, keys: str | None = None
) -> list[Projected]:
    """Columns of these names that are stored; None: all.

    keys: If given, instead the columns of keys of maps and of paths of Variant columns whose names
        contain it, in any case; under the names that queries have for them.
    Raises ColumnNotFoundError, InvalidArgumentError, InvalidFileError.
    """
    if keys is None:
        return [column for column in project(index, columns) if column.node is not None]
    found = []
    for ordinal, each in index.map_keys.items():
        column = index.field(ordinal).name
        texts = [text.casefold().replace("''", "'") for text in each.names.all()]
        wanted = keys.casefold().replace("''", "'")  # names have quotes twice
        places = [place for place, text in enumerate(texts) if wanted in text]
        for place, stored in zip(places, keys_columns(each, places), strict=True):
            if isinstance(each, VariantPaths):
                name = VariantValue(column, each.keys[place], stored.field.type).to_sql()
            else:
                name = key_name(column, each.keys[place])
            found.append(replace(stored, field=stored.field.with_name(name)))
    return found


def describe_file(
    index: FileIndex, columns: Sequence[Projected] | None = None, *, limit: int | None = None
) -> FileLayout:
    """Describe a file, and the first ``limit`` of the columns given, or the largest.

    limit: How many columns to describe; None: all.
    Raises InvalidFileError.
    """
    footer = index.footer
    stripe_bytes: list[int] | None = None
    if columns is None:
        stripe_bytes, chosen = _largest(index, limit)
    else:
        chosen = list(columns[:limit])
    described = describe_columns(index, chosen)
    starts = index.stripe_starts.tolist()
    return FileLayout(
        path=index.where,
        size=footer.file_length,
        data_bytes=footer.cmb_offset,
        metadata_bytes=footer.file_length - footer.cmb_offset,
        num_rows=footer.num_rows,
        num_columns=footer.num_columns,
        stripes=tuple(
            StripeLayout(starts[each], rows, stripe_bytes[each] if stripe_bytes else None)
            for each, rows in enumerate(index.stripe_rows.tolist())
        ),
        columns=tuple(described),
        num_left_out=(footer.num_columns if columns is None else len(columns)) - len(described),
    )


def _largest(index: FileIndex, limit: int | None) -> tuple[list[int], list[Projected]]:
    """Bytes of each stripe, and the columns with most bytes, from the CMBs of all columns."""
    stripe_bytes = [0] * len(index.stripe_rows)  # which the file has; its footer may say anything
    everything = project(index, None)
    sizes, owners = [0] * len(everything), list(range(len(everything)))
    ordinals = list(owners)
    for keys in index.map_keys.values():
        ordinals += keys.ordinals
        owners += [keys.column] * keys.count
    for owner, block in zip(owners, index.blocks(ordinals), strict=True):
        for stripe, chunk in () if block is None else block.stored(*range(block.num_streams)):
            sizes[owner] += chunk.length
            stripe_bytes[stripe] += chunk.length
    if limit is None or limit >= len(everything):
        return stripe_bytes, everything
    order = sorted(range(len(sizes)), key=lambda ordinal: (-sizes[ordinal], ordinal))
    return stripe_bytes, [everything[ordinal] for ordinal in order[:limit]]


def describe_pages(index: FileIndex, stream: StreamMetadata) -> Iterator[PageDescription]:
    """The encodings of each page of a stream as a tree, chunk by chunk; reads the pages.

    Raises InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError.
    """
    for chunk in stream.chunks:
        for page in chunk.pages:
            yield describe_place(index, page.offset, page.length)


def describe_place(index: FileIndex, offset: int, length: int) -> PageDescription:
    """The encodings of the page at a place of the file; parameters and errors as above."""
    page = PageSlice(index.source.read(offset, length), offset, None, 0, 0)
    return describe_page(page, where=index.where)


def bound_text(value: pa.Scalar | None, length: int, *, is_exact: bool) -> str:
    """A bound of `LeafStatistics` as people read it, of so many characters at most."""
    if value is None:
        return ""
    return shortened(value_text(value), length) + ("" if is_exact else " (about)")


def describe_statistics(
    index: FileIndex, columns: Sequence[Projected] | None = None
) -> list[LeafStatistics]:
    """What metadata says of the values of each leaf of columns (None: of all), depth first.

    Raises InvalidFileError.
    """
    chosen = stored_columns(index, None) if columns is None else columns
    blocks = index.blocks(column.ordinal for column in chosen)
    return [
        _leaf_statistics(index, block, leaf, path, above)
        for column, block in zip(chosen, blocks, strict=True)
        if column.node is not None
        for leaf, path, above in _leaves(column.node, (), ())
    ]


def _leaves(
    node: Node, path: tuple[str, ...], above: tuple[Node, ...]
) -> Iterator[tuple[Node, tuple[str, ...], tuple[Node, ...]]]:
    path = (*path, node.name)
    if node.kind in (NodeKind.LEAF, NodeKind.NULL):
        yield node, path, above
    for child in node.children:
        yield from _leaves(child, path, (*above, node))


def _leaf_statistics(
    index: FileIndex,
    block: ColumnBlock | None,
    leaf: Node,
    path: tuple[str, ...],
    above: tuple[Node, ...],
) -> LeafStatistics:
    in_list = any(node.kind is not NodeKind.STRUCT for node in above)
    rows = None if in_list else index.footer.num_rows
    if block is None or leaf.kind is NodeKind.NULL:
        return LeafStatistics(path, leaf.type, rows, null_count=rows)
    # Under a null struct a field that cannot be null holds a filler, which bounds and counts
    # take for a value.
    filled = not leaf.nullable and any(
        node.nullable and block.desc_type(node.validity) is not DescType.USE_DEFAULT
        for node in above
    )
    stripe_rows = [-1] * block.num_stripes if in_list else index.stripe_rows.tolist()
    merged = merge_columns(
        [stored_statistics(block, leaf, stripe, slots) for stripe, slots in enumerate(stripe_rows)]
    )
    flags = merged.flags
    stored = _stored_chunks(block, leaf)
    distinct, has_bloom = _extensions(stored)
    total = _sum(leaf, stored)
    try:
        low, high = (
            (merged.min_value(leaf.type), bool(flags & ChunkFlag.MIN_EXACT)),
            (merged.max_value(leaf.type), bool(flags & ChunkFlag.MAX_EXACT)),
        )
    except (OverflowError, ValueError) as error:
        raise block.error(
            f"bounds {merged.min} to {merged.max}, expected keys of {leaf.type} values: {error}"
        ) from None
    if leaf.order is Order.BYTES and merged.has_values:
        filled_chunks = [chunk for chunk in stored if chunk.minimum <= chunk.maximum]
        longer = merged_long_bounds(filled_chunks)
        low, high = (
            (string_scalar(bound.value, leaf.storage), bound.whole)
            if bound and not known[1]
            else known
            for known, bound in zip((low, high), longer, strict=True)
        )
    return LeafStatistics(
        path=path,
        type=leaf.type,
        rows=rows,
        null_count=None if filled or merged.null_count < 0 else merged.null_count,
        min=low[0],
        max=high[0],
        min_exact=merged.has_values and low[1] and not filled,
        max_exact=merged.has_values and high[1] and not filled,
        has_nan=_has_nan(leaf, flags),
        nan_count=_nan_count(leaf, flags, stored),
        is_sorted=_sortedness(flags),
        distinct_count=None if filled else distinct,
        sum=None if filled else total,
        has_bloom_filter=has_bloom,
    )


def _has_nan(leaf: Node, flags: ChunkFlag) -> bool | None:
    if leaf.order is not Order.FLOAT:
        return False
    if flags & ChunkFlag.HAS_NAN:
        return True
    return False if flags & ChunkFlag.NAN_KNOWN else None


def _sortedness(flags: ChunkFlag) -> str | None:
    if flags & ChunkFlag.SORTED_ASC:
        return "ascending"
    return "descending" if flags & ChunkFlag.SORTED_DESC else None


def _stored_chunks(block: ColumnBlock, leaf: Node) -> list[ChunkBounds]:
    """Bounds and extension records of a leaf's chunks that are stored."""
    return [
        ChunkBounds(
            chunk.minimum,
            chunk.maximum,
            chunk.flags,
            block.extension(chunk) if chunk.extension_offset else {},
        )
        for _, chunk in block.stored(leaf.stream)
    ]


def _sum(leaf: Node, chunks: Sequence[ChunkBounds]) -> int | decimal.Decimal | None:
    """The sum of all values, where every stored chunk has one."""
    total = known_sum(recorded_sum(chunk.records) for chunk in chunks) if chunks else None
    if total is None or not pat.is_decimal(leaf.storage):
        return total
    return decimal.Decimal(f"{total}e{-leaf.storage.scale}")


def _extensions(chunks: Sequence[ChunkBounds]) -> tuple[int | None, bool]:
    """The number of distinct values, and whether every stored chunk has a bloom filter."""
    distinct = distinct_count(chunks[0].records) if len(chunks) == 1 else None
    return distinct, bool(chunks) and all(
        ExtTag.BLOOM in chunk.records or ExtTag.PAGE_BLOOM in chunk.records for chunk in chunks
    )


def _nan_count(leaf: Node, flags: ChunkFlag, chunks: Sequence[ChunkBounds]) -> int | None:
    """NaNs of all chunks; None where one that has some does not say how many."""
    if _has_nan(leaf, flags) is not True:
        return 0 if _has_nan(leaf, flags) is False else None
    return known_sum(
        nan_count(chunk.records) if chunk.flags & ChunkFlag.HAS_NAN else 0 for chunk in chunks
    )
