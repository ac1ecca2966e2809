"""What a file says of one column: streams, stripes, pages, encodings, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import Node, NodeKind, PhysicalKind
from fermion.display import short_repr
from fermion.encodings.registry import encoding_label
from fermion.errors import ChecksumError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.io.checksum import PageChecks
from fermion.layout import (
    ALL_NULL_LENGTH,
    INT64_MAX,
    INT64_MIN,
    PAGE_HEADER,
    ChecksumKind,
    ChunkFlag,
    DescType,
    ExtTag,
    StreamType,
)
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.options import MIB
from fermion.pages.frame import HEADER_SIZE, page_checksums
from fermion.pages.global_dictionary import dictionary_record
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.statistics.bloom import parse_bloom_record
from fermion.statistics.bounds import (
    ColumnStatistics,
    chunk_statistics,
    decoded_bytes,
    recorded_sum,
)

if TYPE_CHECKING:
    from fermion.blobs import references
else:  # few files have blobs
    references = LoadedWhenAskedFor("fermion.blobs.references")

VERIFIED_AT_ONCE_BYTES = 32 * MIB
"""Bytes of pages that are in memory at once to be verified."""
DICTIONARY_PAGE = "dictionary page: "
_NO_VALUES = int(ChunkFlag.HAS_MINMAX | ChunkFlag.NAN_KNOWN)


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """One page: where it lies, its slots (0: a dictionary), its root encoding, its bounds' keys."""

    offset: int
    length: int
    slots: int
    encoding: str
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """One stream in one stripe.

    state: ``default`` (nothing stored), ``all_null`` (nothing stored) or ``stored``.
    statistics: Of a scalar leaf's DATA; None elsewhere.
    arrow_bytes: Bytes of the same slots in Arrow; None where strings make that unknown.
    """

    stripe: int
    state: str
    offset: int
    length: int
    pages: tuple[PageMetadata, ...]
    statistics: ColumnStatistics | None = None
    arrow_bytes: int | None = 0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class SharedDictionary:
    """The dictionary that stripes of a stream share: where it lies, and its entries."""

    offset: int
    length: int
    entries: int


@dataclass(frozen=True, slots=True)
class StreamMetadata:
    """One stream of a column, over all stripes; ``dictionary`` is None where they share none."""

    ordinal: int
    type: StreamType
    path: tuple[str, ...]
    desc_type: DescType
    chunks: tuple[ChunkMetadata, ...]
    dictionary: SharedDictionary | None = None

    __repr__ = short_repr

    @property
    def length(self) -> int:
        """Stored bytes."""
        return sum(chunk.length for chunk in self.chunks if chunk.state == "stored")

    @property
    def label(self) -> str:
        """Its place below the column and its type: ``x.y data``."""
        return " ".join([".".join(self.path[1:]), self.type.name.lower()]).strip()

    @property
    def encodings(self) -> tuple[str, ...]:
        """Names of the root encodings of its pages, each once."""
        return tuple(dict.fromkeys(page.encoding for chunk in self.chunks for page in chunk.pages))


@dataclass(frozen=True, slots=True)
class ColumnMetadata:
    """A top-level column.

    Attributes
    ----------
    cmb_length
        Bytes of its metadata block; 0 for a column that is null in every row.
    streams
        Depth first; empty without a CMB.
    null_counts
        NULLs at the top level in each stripe; None where only reading would tell.
    bloom_filters
        Offset and length of each of its Bloom filters.
    num_keys, key_bytes
        Keys of a map that have columns of their own, and the bytes of their pages and metadata
        blocks, which the other attributes leave out.
    blob_bytes
        Of a column of blobs: the bytes of all its values, wherever they are; None for others, and
        where only reading would tell.
    """

    name: str
    ordinal: int
    type: pa.DataType
    nullable: bool
    cmb_length: int
    stripe_rows: tuple[int, ...]
    streams: tuple[StreamMetadata, ...]
    null_counts: tuple[int | None, ...] = ()
    bloom_filters: tuple[tuple[int, int], ...] = ()
    num_keys: int = 0
    key_bytes: int = 0
    blob_bytes: int | None = None

    __repr__ = short_repr

    @property
    def null_count(self) -> int | None:
        """NULLs at the top level; None where only reading would tell."""
        return known_sum(self.null_counts)

    @property
    def arrow_bytes(self) -> int | None:
        """Bytes of the same streams in Arrow; None where strings make that unknown."""
        return known_sum(chunk.arrow_bytes for stream in self.streams for chunk in stream.chunks)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all pages, and of the dictionaries that stripes share."""
        shared = (stream.dictionary for stream in self.streams)
        own = sum(stream.length for stream in self.streams)
        return own + sum(each.length for each in shared if each is not None)

    @property
    def encodings(self) -> tuple[str, ...]:
        """Names of the root encodings of its pages, each once."""
        return tuple(dict.fromkeys(name for stream in self.streams for name in stream.encodings))


def known_sum(parts: Iterable[int | None]) -> int | None:
    """The sum of some numbers; None where one of them is not known."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def describe_column(index: FileIndex, column: Projected) -> ColumnMetadata:
    """Read a column's CMB, and its pages for their encodings: whole ones, to verify them.

    Raises ChecksumError, InvalidFileError: A page is damaged or from another place; it was read
        twice. Where checksums are not verified only headers are read.
    """
    return describe_columns(index, [column], verify=index.options.verify_checksums)[0]


def describe_columns(
    index: FileIndex, columns: Sequence[Projected], *, verify: bool = False
) -> list[ColumnMetadata]:
    """Several columns at once: their CMBs are read together, and so are all page headers.

    Unless they are verified, as in `describe_column`, encodings are what these bytes say.
    """
    ordinals = [column.ordinal for column in columns]
    blocks = index.blocks(ordinals)
    lengths = index.cit.ranges(ordinals)[:, 1].tolist()
    places = [
        (page.offset, page.length)
        for ordinal, block in zip(ordinals, blocks, strict=True)
        if block is not None
        for _, chunk in block.stored(*range(index.node(ordinal).stop))
        for page in _pages(block, chunk)
    ]
    headers = _page_headers(index, places, index.footer.page_checks(verify))
    stripe_rows = tuple(index.stripe_rows.tolist())
    described = []
    for column, block, length in zip(columns, blocks, lengths, strict=True):
        field, ordinal, blob_bytes = column.field, column.ordinal, None
        streams: tuple[StreamMetadata, ...] = ()
        nulls: tuple[int | None, ...] = stripe_rows
        blooms: tuple[tuple[int, int], ...] = ()
        if block is not None:
            node = index.node(ordinal)
            streams = tuple(
                _stream(block, headers, *stream) for stream in stream_paths(node, (node.name,))
            )
            nulls = tuple(
                _null_count(block, node, stripe, rows) for stripe, rows in enumerate(stripe_rows)
            )
            blooms = tuple(dict.fromkeys(_bloom_places(index, block, node)))
        if index.footer.has_blobs and references.is_reference(field):
            field = references.given_field(field)
            blob_bytes = 0 if block is None else _summed(block, index.node(ordinal).children[3])
        described.append(
            ColumnMetadata(
                field.name,
                ordinal,
                field.type,
                field.nullable,
                length,
                stripe_rows,
                streams,
                nulls,
                blooms,
                *_key_columns(index, ordinal),
                blob_bytes,
            )
        )
    return described


def _summed(block: ColumnBlock, leaf: Node) -> int | None:
    """The sum of all values of a leaf; None where a chunk does not say."""
    chunks = [chunk for _, chunk in block.stored(leaf.stream)]
    return known_sum(
        recorded_sum(block.extension(chunk)) if chunk.extension_offset else None for chunk in chunks
    )


def _key_columns(index: FileIndex, ordinal: int) -> tuple[int, int]:
    """How many keys of a column have columns, and the bytes of these."""
    keys = index.map_keys.get(ordinal)
    if keys is None:
        return 0, 0
    blocks = [block for block in index.blocks(keys.ordinals) if block is not None]
    stored = [block.stored(*range(block.num_streams)) for block in blocks]
    metadata = int(index.cit.ranges(keys.ordinals)[:, 1].sum())
    return keys.count, metadata + sum(chunk.length for each in stored for _, chunk in each)


def _null_count(block: ColumnBlock, node: Node, stripe: int, rows: int) -> int | None:
    """NULLs of a top-level column in a stripe of ``rows`` rows; None where that is not known."""
    validity = block.chunk(node.validity, stripe)
    if validity.is_empty:
        return rows if validity.length == ALL_NULL_LENGTH else 0
    if node.kind is NodeKind.LEAF:
        return block.chunk(node.stream, stripe).null_count
    # A stream of one page has the shorter descriptor, which does not count.
    return validity.null_count if block.desc_type(node.validity) is DescType.FULL else None


def _bloom_places(index: FileIndex, block: ColumnBlock, node: Node) -> Iterator[tuple[int, int]]:
    for _, chunk in block.stored(*range(node.stop)):
        records = block.extension(chunk) if chunk.extension_offset else {}
        for tag in (ExtTag.BLOOM, ExtTag.PAGE_BLOOM):
            if tag in records:
                yield parse_bloom_record(records[tag], index.footer.cmb_offset, index.where)[:2]


def _page_headers(
    index: FileIndex, places: Sequence[tuple[int, int]], checks: PageChecks
) -> Iterator[memoryview]:
    """The headers of pages, in order; of whole pages that are verified, some MiB at once."""
    if checks.kind is ChecksumKind.NONE:
        sizes = [(offset, min(length, PAGE_HEADER.itemsize)) for offset, length in places]
        yield from index.source.read_many(sizes)
        return
    group: list[tuple[int, int]] = []
    size = 0
    for place in places:
        if group and size + place[1] > VERIFIED_AT_ONCE_BYTES:
            yield from _verified_headers(index, group, checks)
            group, size = [], 0
        group.append(place)
        size += place[1]
    if group:
        yield from _verified_headers(index, group, checks)


def _verified_headers(
    index: FileIndex, places: list[tuple[int, int]], checks: PageChecks
) -> list[memoryview]:
    def verified(pages: list[memoryview]) -> list[memoryview]:
        for page, (offset, _) in zip(pages, places, strict=True):
            where = f"{index.where}: page at offset {offset}"
            if len(page) < HEADER_SIZE:
                raise InvalidFileError(
                    f"{where}: expected at least {HEADER_SIZE} bytes, found {len(page)}"
                )
            stored, found = page_checksums(page, checks, offset)
            if stored != found:
                raise ChecksumError(
                    f"{where}: checksum: stored {stored:#010x}, computed {found:#010x}"
                )
        return [memoryview(bytes(page[: PAGE_HEADER.itemsize])) for page in pages]

    return index.source.read_checked(places, verified)


def stream_paths(
    node: Node, path: tuple[str, ...]
) -> Iterator[tuple[int, StreamType, tuple[str, ...], Node]]:
    """(ordinal, type, path, node) of every stream of a tree, in ordinal order."""
    yield node.validity, StreamType.VALIDITY, path, node
    if node.kind is NodeKind.LEAF:
        yield node.stream, StreamType.DATA, path, node
    elif node.kind is NodeKind.LIST:
        yield node.stream, StreamType.OFFSETS, path, node
    for child in node.children:
        yield from stream_paths(child, (*path, child.name))


def _stream(
    block: ColumnBlock,
    headers: Iterator[memoryview],
    ordinal: int,
    stream_type: StreamType,
    path: tuple[str, ...],
    node: Node,
) -> StreamMetadata:
    chunks = tuple(
        _chunk(block, headers, block.chunk(ordinal, stripe), stripe, stream_type, node)
        for stripe in range(block.num_stripes)
    )
    return StreamMetadata(
        ordinal,
        stream_type,
        path,
        block.desc_type(ordinal),
        chunks,
        _shared_dictionary(block, ordinal),
    )


def _shared_dictionary(block: ColumnBlock, ordinal: int) -> SharedDictionary | None:
    found = None
    for _, chunk in block.stored(ordinal):
        record = dictionary_record(block, chunk)
        if record is not None:
            found = SharedDictionary(record.offset, record.length, record.count)
    return found


def _chunk(
    block: ColumnBlock,
    headers: Iterator[memoryview],
    chunk: Chunk,
    stripe: int,
    stream_type: StreamType,
    node: Node,
) -> ChunkMetadata:
    if chunk.is_empty:
        state = "default" if chunk.length == 0 else "all_null"
        return ChunkMetadata(stripe, state, 0, 0, ())
    pages = tuple(_with_header(page, next(headers)) for page in _pages(block, chunk))
    slots, statistics = sum(page.slots for page in pages), None
    if stream_type is StreamType.DATA and chunk.flags & ChunkFlag.HAS_MINMAX:
        statistics = stored_statistics(block, node, stripe, slots)
    size = _arrow_bytes(block, chunk, slots, stream_type, node)
    return ChunkMetadata(stripe, "stored", chunk.offset, chunk.length, pages, statistics, size)


def stored_statistics(block: ColumnBlock, leaf: Node, stripe: int, slots: int) -> ColumnStatistics:
    """What metadata says of a leaf's values in a stripe; ``slots`` is -1 where it does not say."""
    chunk = block.chunk(leaf.stream, stripe)
    if chunk.is_empty:
        is_null = block.chunk(leaf.validity, stripe).length == ALL_NULL_LENGTH
        nulls = slots if is_null else 0
        return chunk_statistics(INT64_MAX, INT64_MIN, _NO_VALUES, nulls, 0, slots, leaf.order)
    known = bool(chunk.flags & ChunkFlag.HAS_MINMAX)
    return ColumnStatistics(
        min=chunk.minimum if known else INT64_MIN,
        max=chunk.maximum if known else INT64_MAX,
        flags=ChunkFlag(chunk.flags),
        null_count=chunk.null_count,
        nan_count=None,
        rows=slots,
        order=leaf.order,
    )


def _arrow_bytes(
    block: ColumnBlock, chunk: Chunk, slots: int, stream_type: StreamType, owner: Node
) -> int | None:
    """Bytes of a chunk's slots in Arrow; None where strings make that unknown."""
    if stream_type is StreamType.VALIDITY:
        return -(-slots // 8)
    storage, physical = owner.storage, owner.physical
    if stream_type is StreamType.OFFSETS:
        return slots * (8 if pat.is_large_list(storage) or pat.is_large_list_view(storage) else 4)
    assert physical is not None
    if physical.kind is PhysicalKind.BITS:
        return -(-slots // 8)
    if physical.kind is not PhysicalKind.BINARY:
        return slots * physical.width
    size = decoded_bytes(block.extension(chunk))
    if size is None:
        return None
    return size + slots * (8 if pat.is_large_string(storage) or pat.is_large_binary(storage) else 4)


def _pages(block: ColumnBlock, chunk: Chunk) -> Iterator[PageMetadata]:
    """What the CMB says of a chunk's pages: ``encoding`` marks a dictionary, ``slots`` is -1."""
    dictionary = bool(chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT)
    metas = block.pages(chunk)
    if metas is None:
        yield PageMetadata(chunk.offset, chunk.length, -1, DICTIONARY_PAGE if dictionary else "")
        return
    at = chunk.offset
    rows = zip(*(metas[name].tolist() for name in ("pageSize", "minVal", "maxVal")), strict=True)
    for page, (size, low, high) in enumerate(rows):
        mark = DICTIONARY_PAGE if dictionary and page == 0 else ""
        yield PageMetadata(at, size, -1, mark, low, high)
        at += size


def _with_header(page: PageMetadata, header: memoryview) -> PageMetadata:
    """The page with its slots (0: a dictionary) and encoding as its own header has them."""
    slots = 0 if page.encoding else int.from_bytes(header[4:8], "little")
    label = encoding_label(int.from_bytes(header[2:4], "little"))
    return replace(page, slots=slots, encoding=page.encoding + label)
