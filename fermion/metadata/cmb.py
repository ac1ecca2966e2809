"""Column metadata blocks: everything about one column but its bytes, at fixed offsets.

============================ ==============================================================
part                         content
============================ ==============================================================
CMB_HEADER                   streams, stripes
STRIPE_META[stripes]         rows of each stripe; zero fill to 8
STREAM_META[streams]         in ordinal order; zero fill to 8
chunk descriptors            SIMPLE or FULL, one a stripe, for each stream that has them
PAGE_META[...]               pages of FULL chunks with more than one page, in the same order
extension records            tag u16, 0 u16, length u32, bytes, padded to 8; a tag 0 ends
CMB_TRAILER                  CRC32C of all before, XOR the place; length of the whole
============================ ==============================================================

All offsets inside are counted from the start of the block, but for chunk offsets, which are
counted from the start of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import accumulate

import numpy as np

from fermion.errors import (
    ChecksumError,
    InvalidFileError,
    TruncatedFileError,
    UnsupportedVersionError,
)
from fermion.exports import NamedTuple, dataclass
from fermion.io.checksum import crc32c
from fermion.kernels import bind_checksums, place_of
from fermion.layout import (
    ALL_NULL_LENGTH,
    CMB_HEADER,
    CMB_TRAILER,
    FULL_CHUNK_DESC,
    HEAD,
    INT64_MAX,
    INT64_MIN,
    PAGE_META,
    SIMPLE_CHUNK_DESC,
    STREAM_META,
    STRIPE_META,
    ChunkFlag,
    DescType,
    ExtTag,
    StreamType,
    align,
)
from fermion.metadata.footer import Footer

_HEADER = struct.Struct("<II")
_STREAM = struct.Struct("<BBHI")
_SIMPLE = struct.Struct("<QII")
_FULL = struct.Struct("<QIIqqIIII")
_EXT = struct.Struct("<HHI")
assert _HEADER.size == CMB_HEADER.itemsize == CMB_TRAILER.itemsize
assert _STREAM.size == STREAM_META.itemsize
assert _SIMPLE.size == SIMPLE_CHUNK_DESC.itemsize
assert _FULL.size == FULL_CHUNK_DESC.itemsize


@dataclass(slots=True)
class ChunkRecord:
    """What the writer knows of one chunk.

    A wide file has tens of thousands: the garbage collector passes over tuples of numbers.

    offset, length: Where its bytes are; length 0 is the stream's default and 0xFFFFFFFF all null.
    page_sizes, page_rows: Bytes and slots of each page (a dictionary page first, with 0 slots).
    page_mins, page_maxs: ``int64``, one a page.
    shared_entries: How many entries of the column's global dictionary its pages may refer to.
    """

    offset: int = 0
    length: int = 0
    flags: int = 0
    minimum: int = INT64_MAX
    maximum: int = INT64_MIN
    null_count: int = 0
    page_sizes: tuple[int, ...] = ()
    page_rows: tuple[int, ...] = ()
    page_mins: tuple[int, ...] = ()
    page_maxs: tuple[int, ...] = ()
    shared_entries: int = 0
    extension: dict[ExtTag, bytes] = field(default_factory=dict)


def trailer_checksums(buffers: Sequence[memoryview], places: np.ndarray) -> np.ndarray:
    """What the trailers of CMBs say, unverified.

    buffers, places: As `CountingSource.read_places` gives them; a CMB has its trailer, or no bytes
        at all.
    Returns: ``uint32``, shape (blocks,); 0 where there are no bytes.
    """
    found = [
        _HEADER.unpack_from(buffers[buffer], at + size - CMB_TRAILER.itemsize)[0] if size else 0
        for buffer, at, size in places.tolist()
    ]
    return np.array(found, np.uint32)


DEFAULT_CHUNK = ChunkRecord()
ALL_NULL_CHUNK = ChunkRecord(length=ALL_NULL_LENGTH)


def build_cmb(
    stream_types: Sequence[StreamType],
    stripe_rows: Sequence[int],
    chunks: Sequence[Sequence[ChunkRecord]],
) -> bytearray:
    """The block of one column, whose checksum is not bound to its place yet: see `bind_cmbs`.

    stream_types: Type of each stream, in ordinal order.
    stripe_rows: Rows of each stripe.
    chunks: ``chunks[stream][stripe]``.
    """
    kinds = tuple([_desc_type(*pair) for pair in zip(stream_types, chunks, strict=True)])
    head, pages_offset = _head(tuple(stream_types), tuple(stripe_rows), kinds)
    num_metas = sum(
        [
            len(chunk.page_sizes)
            for kind, stream in zip(kinds, chunks, strict=True)
            if kind is DescType.FULL
            for chunk in stream
            if len(chunk.page_sizes) > 1
        ]
    )
    relocation = _Relocation(pages_offset, pages_offset + PAGE_META.itemsize * num_metas)
    out = bytearray(head)
    for kind, stream in zip(kinds, chunks, strict=True):
        if kind is DescType.FULL:
            for chunk in stream:
                out += relocation.full(chunk)
        elif kind is DescType.SIMPLE:
            for chunk in stream:
                out += _SIMPLE.pack(chunk.offset, chunk.length, chunk.flags)
    out += bytes(pages_offset - len(out)) + relocation.pages + relocation.extensions
    length = len(out) + _HEADER.size
    out += _HEADER.pack(crc32c(out), length)
    return out


def bind_cmbs(cmbs: bytearray, lengths: np.ndarray, place_key: int, offsets: np.ndarray) -> None:
    """Bind blocks to their offsets in the file; done once for each block.

    cmbs: The blocks end to end.
    lengths, offsets: ``int64``, shape (blocks,): bytes of each, and where it lies in the file; one
        of no bytes is none.
    """
    present = lengths > 0
    trailers = np.cumsum(lengths)[present] - CMB_TRAILER.itemsize
    bind_checksums(cmbs, trailers, place_key, offsets[present])


@lru_cache(maxsize=64)
def _head(
    stream_types: tuple[StreamType, ...], stripe_rows: tuple[int, ...], kinds: tuple[DescType, ...]
) -> tuple[bytes, int]:
    """What comes before the descriptors, the same in most columns; and where page records start."""
    payload_start = _payload_start(len(stripe_rows), len(stream_types))
    sizes = [_DESC_SIZES.get(kind, 0) * len(stripe_rows) for kind in kinds]
    offsets = list(accumulate(sizes, initial=payload_start))
    out = bytearray(_HEADER.pack(len(stream_types), len(stripe_rows)))
    out += struct.pack(f"<{len(stripe_rows)}I", *stripe_rows)
    out += bytes(align(len(out)) - len(out))
    for stream_type, kind, offset in zip(stream_types, kinds, offsets, strict=False):
        out += _STREAM.pack(kind, stream_type, 0, offset if kind in _DESC_SIZES else 0)
    out += bytes(payload_start - len(out))
    return bytes(out), align(offsets[-1])


_DESC_SIZES = {DescType.SIMPLE: _SIMPLE.size, DescType.FULL: _FULL.size}


def _payload_start(num_stripes: int, num_streams: int) -> int:
    stripes_end = align(_HEADER.size + STRIPE_META.itemsize * num_stripes)
    return align(stripes_end + _STREAM.size * num_streams)


def _desc_type(stream_type: StreamType, chunks: Sequence[ChunkRecord]) -> DescType:
    if all(chunk.length == 0 for chunk in chunks):
        return DescType.USE_DEFAULT
    if stream_type is StreamType.VALIDITY and all(
        chunk.length == ALL_NULL_LENGTH for chunk in chunks
    ):
        return DescType.FORCE_NULL
    if stream_type in (StreamType.DATA, StreamType.BATCH_META):
        return DescType.FULL
    return DescType.FULL if any(len(each.page_sizes) > 1 for each in chunks) else DescType.SIMPLE


class _Relocation:
    """Collects page and extension records while descriptors that point to them are packed."""

    def __init__(self, pages_offset: int, extensions_offset: int) -> None:
        self._pages_offset = pages_offset
        self._extensions_offset = extensions_offset
        self.pages = bytearray()
        self.extensions = bytearray()

    def full(self, chunk: ChunkRecord) -> bytes:
        page_offset = extension_offset = 0
        if len(chunk.page_sizes) > 1:
            page_offset = self._pages_offset + len(self.pages)
            metas = np.zeros(len(chunk.page_sizes), PAGE_META)
            metas["pageSize"] = chunk.page_sizes
            metas["rowCount"] = chunk.page_rows
            metas["minVal"] = chunk.page_mins
            metas["maxVal"] = chunk.page_maxs
            self.pages += metas.tobytes()
        if chunk.extension:
            extension_offset = self._extensions_offset + len(self.extensions)
            for tag, data in chunk.extension.items():
                self.extensions += _EXT.pack(tag, 0, len(data)) + data
                self.extensions += bytes(-len(data) % 8)
            self.extensions += _EXT.pack(ExtTag.END, 0, 0)
        return _FULL.pack(
            chunk.offset,
            chunk.length,
            chunk.flags,
            chunk.minimum,
            chunk.maximum,
            chunk.null_count,
            len(chunk.page_sizes),
            page_offset,
            extension_offset,
        )


class Chunk(NamedTuple):
    """One chunk descriptor as read; a SIMPLE one has at most one page and no statistics."""

    offset: int
    length: int
    flags: int
    minimum: int
    maximum: int
    null_count: int
    num_pages: int
    page_offset: int
    extension_offset: int

    @property
    def is_empty(self) -> bool:
        """Whether no bytes are stored: the stream's default, or all null."""
        return self.length in (0, ALL_NULL_LENGTH)

    @property
    def num_data_pages(self) -> int:
        """Pages but the dictionary's."""
        return self.num_pages - bool(self.flags & ChunkFlag.FIRST_PAGE_IS_DICT)


_DEFAULT = Chunk(0, 0, 0, INT64_MIN, INT64_MAX, 0, 0, 0, 0)
_ALL_NULL = _DEFAULT._replace(length=ALL_NULL_LENGTH)


class ColumnBlock:
    """A parsed CMB: descriptors are decoded when asked for.

    data: The block's bytes; views into it are kept.
    stream_types: What the schema says: types of the column's streams in ordinal order.
    where: File and column, for messages.
    offset: Where the block lies in the file.
    """

    def __init__(
        self,
        data: memoryview,
        stream_types: Sequence[StreamType],
        footer: Footer,
        where: str,
        offset: int,
    ) -> None:
        self._data, self.where = data, where
        self.chunk_stop, self._file_size = footer.cmb_offset, footer.file_length
        self._types = stream_types
        self._stripe_size, stream_size, self._simple_size, self._full_size, self._page_size = (
            footer.sizes
        )
        self._check_frame(offset, footer.place_key)
        num_stripes = footer.num_stripes
        num_streams, stripes = _HEADER.unpack_from(data)
        if num_streams != len(stream_types) or stripes != num_stripes:
            raise self.error(
                f"expected {len(stream_types)} streams and {num_stripes} stripes, "
                f"found {num_streams} and {stripes}"
            )
        self.num_stripes = num_stripes
        directory = align(_HEADER.size + self._stripe_size * num_stripes)
        self._end = len(data) - _HEADER.size
        if directory + stream_size * num_streams > self._end:
            raise self.error(f"{num_streams} streams and {stripes} stripes do not fit")
        self._streams = [
            self._stream(directory + stream_size * index, index, wanted)
            for index, wanted in enumerate(stream_types)
        ]

    @property
    def num_streams(self) -> int:
        """Streams of the column, those that store nothing too."""
        return len(self._streams)

    def error(self, what: str) -> InvalidFileError:
        """An error that names the file and the column."""
        return InvalidFileError(f"{self.where}: CMB: {what}")

    def _check_frame(self, offset: int, place_key: int) -> None:
        length = len(self._data)
        if length < 2 * _HEADER.size:
            raise self.error(f"expected at least 16 bytes, found {length}")
        crc, stored = _HEADER.unpack_from(self._data, length - _HEADER.size)
        found = crc32c(self._data[: length - _HEADER.size]) ^ place_of(place_key, offset)
        if crc != found:
            raise ChecksumError(
                f"{self.where}: CMB at offset {offset}: checksum: "
                f"expected {crc:#010x}, found {found:#010x}"
            )
        if stored != length:
            raise self.error(f"expected {stored} bytes by its trailer, found {length}")

    def _stream(self, at: int, index: int, wanted: StreamType) -> tuple[DescType, int]:
        kind, stream_type, _, offset = _STREAM.unpack_from(self._data, at)
        if stream_type != wanted:
            raise self.error(
                f"stream {index}: expected type {wanted.name} by the schema, found {stream_type}"
            )
        if kind > DescType.FORCE_NULL:
            raise UnsupportedVersionError(
                f"{self.where}: stream {index}: unknown descriptor type {kind}"
            )
        if kind in (DescType.USE_DEFAULT, DescType.FORCE_NULL):
            if offset or (kind == DescType.FORCE_NULL and wanted is not StreamType.VALIDITY):
                raise self.error(f"stream {index}: {DescType(kind).name} at offset {offset}")
            return DescType(kind), 0
        if offset == 0:
            return DescType.USE_DEFAULT, 0
        size = self._simple_size if kind == DescType.SIMPLE else self._full_size
        if offset % 8 or offset + size * self.num_stripes > self._end:
            raise self.error(f"stream {index}: descriptors at {offset} do not fit")
        return DescType(kind), offset

    def stripe_rows(self) -> np.ndarray:
        """Rows of each stripe: int64, shape (stripes,)."""
        data = self._data[_HEADER.size : _HEADER.size + self._stripe_size * self.num_stripes]
        rows = np.frombuffer(data, "<u4").reshape(self.num_stripes, self._stripe_size // 4)
        return rows[:, 0].astype(np.int64)

    def check_stripe_rows(self, expected: np.ndarray) -> None:
        """Compare the rows of each stripe with the file's: int64, shape (stripes,).

        Raises InvalidFileError.
        """
        found = self.stripe_rows()
        if (found != expected).any():
            stripe = int(np.flatnonzero(found != expected)[0])
            raise self.error(
                f"stripe {stripe}: expected {expected[stripe]} rows, found {found[stripe]}"
            )

    def desc_type(self, stream: int) -> DescType:
        """How the stream's chunks are described."""
        return self._streams[stream][0]

    def stored(self, *streams: int) -> Iterator[tuple[int, Chunk]]:
        """The stripes and descriptors of the chunks of some streams that are stored, in order."""
        for stream in streams:
            for stripe in range(self.num_stripes):
                chunk = self.chunk(stream, stripe)
                if not chunk.is_empty:
                    yield stripe, chunk

    def chunk(self, stream: int, stripe: int) -> Chunk:
        """The descriptor of one chunk, checked against the file's bounds.

        Raises InvalidFileError, TruncatedFileError.
        """
        kind, base = self._streams[stream]
        if kind is DescType.USE_DEFAULT:
            return _DEFAULT
        if kind is DescType.FORCE_NULL:
            return _ALL_NULL
        if kind is DescType.SIMPLE:
            offset, length, flags = _SIMPLE.unpack_from(
                self._data, base + stripe * self._simple_size
            )
            chunk = Chunk(offset, length, flags, INT64_MIN, INT64_MAX, 0, 1, 0, 0)
        else:
            chunk = Chunk(*self._full_fields(base + stripe * self._full_size))
        if chunk.length == 0 or chunk.length == ALL_NULL_LENGTH:
            if chunk.length and self._types[stream] is not StreamType.VALIDITY:
                raise self.error(
                    f"stream {stream}, stripe {stripe}: all null, which only VALIDITY can be"
                )
            return chunk._replace(num_pages=0)
        if chunk.offset + chunk.length > self._file_size:
            raise TruncatedFileError(
                f"{self.where}: CMB: stream {stream}, stripe {stripe}: chunk at "
                f"{chunk.offset}+{chunk.length}, the file has {self._file_size} bytes"
            )
        if chunk.offset < HEAD.itemsize or chunk.offset + chunk.length > self.chunk_stop:
            raise self.error(
                f"stream {stream}, stripe {stripe}: chunk at {chunk.offset}+{chunk.length}, "
                f"data ends at {self.chunk_stop}"
            )
        return chunk

    def _full_fields(self, at: int) -> tuple[int, ...]:
        offset, length, flags, low, high, nulls, pages, page_at, ext_at = _FULL.unpack_from(
            self._data, at
        )
        return offset, length, flags, low, high, nulls, pages, page_at, ext_at

    def pages(self, chunk: Chunk) -> np.ndarray | None:
        """PAGE_META records of a chunk, shape (pages,); None where it has at most one page."""
        if chunk.num_pages <= 1:
            return None
        at, size = chunk.page_offset, self._page_size
        if at % 8 or at < _HEADER.size or at + size * chunk.num_pages > self._end:
            raise self.error(f"{chunk.num_pages} pages at {at} do not fit")
        data = np.frombuffer(self._data, np.uint8, size * chunk.num_pages, at)
        records = np.ascontiguousarray(data.reshape(-1, size)[:, : PAGE_META.itemsize])
        metas = records.view(PAGE_META)[:, 0]
        if int(metas["pageSize"].sum(dtype=np.int64)) != chunk.length:
            raise self.error(
                f"pages of the chunk at {chunk.offset} do not add up to its {chunk.length} bytes"
            )
        return metas

    def data_pages(self, chunk: Chunk) -> np.ndarray | None:
        """The records of `pages` without that of the dictionary's page."""
        metas = self.pages(chunk)
        skip = metas is not None and chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT
        return metas[1:] if metas is not None and skip else metas

    def page_cuts(self, chunk: Chunk, slots: int) -> np.ndarray:
        """Slots before each page but the dictionary's, and the chunk's: ``int64``.

        slots: Of the chunk, for one that has a single page.
        """
        metas = self.data_pages(chunk)
        if metas is None:
            return np.array([0, slots], np.int64)
        return np.concatenate(([0], np.cumsum(metas["rowCount"], dtype=np.int64)))

    def extension(self, chunk: Chunk) -> dict[int, bytes]:
        """Extension records of a chunk by tag."""
        records: dict[int, bytes] = {}
        at = chunk.extension_offset
        if not at:
            return records
        while True:
            if at % 8 or at < _HEADER.size or at + _EXT.size > self._end:
                raise self.error(f"an extension record at {at} does not fit")
            tag, _, length = _EXT.unpack_from(self._data, at)
            if tag == ExtTag.END:
                return records
            at += _EXT.size
            if at + length > self._end:
                raise self.error(f"an extension record at {at} of {length} bytes does not fit")
            records[tag] = bytes(self._data[at : at + length])
            at = align(at + length)
