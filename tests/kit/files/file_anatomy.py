"""Where the parts of a file lie, how its checksums are put right, how its tail is replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fermion.encodings.encoding import DecodeContext, parse_node
from fermion.encodings.registry import ENCODINGS
from fermion.errors import FermionError
from fermion.io.checksum import checksum, crc32c
from fermion.io.compression import decompress
from fermion.kernels import place_of
from fermion.layout import (
    ALIGNED_PAGE_START,
    ALL_NULL_LENGTH,
    CMB_HEADER,
    CMB_TRAILER,
    EXTENDED_CIT_ENTRY,
    FILE_STATISTICS_ENTRY,
    FOOTER,
    FOOTER_CRC_SPAN,
    FULL_CHUNK_DESC,
    HEAD,
    MAP_KEYS_ENTRY,
    MAP_KEYS_HEADER,
    NAME_INDEX_HEADER,
    NODE_HEADER,
    PAGE_HEADER,
    PAGE_META,
    SCHEMA_HEADER,
    SECTION_ENTRY,
    SECTIONS_HEADER,
    SETTING_CHECKSUM_MASK,
    SETTING_CHECKSUM_SHIFT,
    SHAPE_BLOCK,
    SHAPE_RUN,
    SIMPLE_CHUNK_DESC,
    SORT_KEY,
    STREAM_META,
    STRIPE_ENTRY,
    STRIPE_META,
    TAIL_BLOCK_BYTES,
    ChecksumKind,
    Codec,
    DescType,
    ExtTag,
    Incompat,
    SectionKind,
    Setting,
    ShapeIds,
    align,
)
from fermion.metadata.footer import (
    build_footer,
    build_sections,
    parse_footer,
    parse_sections,
)

# A walk over damaged metadata stops here: what it repairs then is enough.
PLACES_MAX = 5_000
CIT_ENTRY = np.dtype([("offset", "<u8")])
CMB_PREFIX = np.dtype([("length", "<u4"), ("crc", "<u4")])
EXT_HEADER = np.dtype([("tag", "<u2"), ("zero", "<u2"), ("length", "<u4")])
BLOOM_RECORD = np.dtype([("offset", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("kind", "<u4")])
CRC_OFFSET = PAGE_HEADER.fields["crc"][1] if PAGE_HEADER.fields else 12
DICTIONARY_RECORD = np.dtype(
    [("offset", "<u8"), ("length", "<u4"), ("count", "<u4"), ("crc", "<u4")]
)
EXT_RECORDS = {
    ExtTag.BLOOM: BLOOM_RECORD,
    ExtTag.PAGE_BLOOM: BLOOM_RECORD,
    ExtTag.GLOBAL_DICTIONARY: DICTIONARY_RECORD,
}
SECTION_STRUCTS = {
    SectionKind.STRIPE_TABLE: STRIPE_ENTRY,
    SectionKind.FILE_STATISTICS: FILE_STATISTICS_ENTRY,
    SectionKind.SORT_ORDER: SORT_KEY,
    SectionKind.FIELD_IDS: np.dtype([("id", "<u4")]),
}


@dataclass(frozen=True)
class Place:
    """A struct of `fermion.layout` at an offset of a file."""

    dtype: np.dtype
    offset: int


class Anatomy:
    """Where the structs, pages and metadata blocks of a file lie, as far as its bytes make sense.

    Attributes
    ----------
    places
        Every struct.
    pages, blocks
        (offset, length) of every page, and of every CMB.
    records
        (offset of a checksum, offset, length) of what extension records speak of: bloom filters
        and global dictionaries.
    entries
        Offsets of checksums in an extended CIT, and of those that they repeat.
    lengths
        Offsets of the lengths before CMBs that no CIT speaks of.
    regions
        (offset, length) of whatever else is worth changing: sections, schema area.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self.places: list[Place] = []
        self.pages: list[tuple[int, int]] = []
        self.blocks: list[tuple[int, int]] = []
        self.records: list[tuple[int, int, int]] = []
        self.regions: list[tuple[int, int]] = []
        self.entries: list[tuple[int, int]] = []
        self.lengths: list[int] = []
        self._one(HEAD, 0)
        footer = self._one(FOOTER, len(data) - FOOTER.itemsize)
        if footer is not None:
            self.footer = footer
            self._sections(footer)
            self._schema(int(footer["schema_offset"]), int(footer["schema_length"]))
            self._columns(footer)

    def _many(self, dtype: np.dtype, offset: int, count: int) -> np.ndarray:
        """Note ``count`` structs from ``offset`` on, fewer where the file ends."""
        room = (len(self._data) - offset) // dtype.itemsize if offset >= 0 else 0
        count = max(min(count, room, PLACES_MAX - len(self.places)), 0)
        self.places += [Place(dtype, offset + i * dtype.itemsize) for i in range(count)]
        return np.frombuffer(self._data, dtype, count, offset) if count else np.empty(0, dtype)

    def _one(self, dtype: np.dtype, offset: int) -> Any:
        found = self._many(dtype, offset, 1)
        return found[0] if len(found) else None

    def _sections(self, footer: Any) -> None:
        at = int(footer["sections_offset"])
        header = self._one(SECTIONS_HEADER, at)
        if header is None:
            return
        entries = self._many(
            SECTION_ENTRY, at + SECTIONS_HEADER.itemsize, int(header["numSections"])
        )
        for kind, _, offset, length in entries.tolist():
            self.regions.append((offset, length))
            dtype = SECTION_STRUCTS.get(kind)
            if dtype is not None:
                self._many(dtype, offset, length // dtype.itemsize)
            elif kind == SectionKind.MAP_KEYS:
                header = self._one(MAP_KEYS_HEADER, offset)
                count = 0 if header is None else int(header["numMaps"])
                self._many(MAP_KEYS_ENTRY, offset + MAP_KEYS_HEADER.itemsize, count)
            elif kind == SectionKind.NAME_INDEX:
                self._one(NAME_INDEX_HEADER, offset)

    def _schema(self, offset: int, length: int) -> None:
        self.regions.append((offset, length))
        header = self._one(SCHEMA_HEADER, offset)
        if header is None:
            return
        at = align(offset + SCHEMA_HEADER.itemsize + int(header["metadataLength"]))
        runs = int(header["numRuns"]) if header["idKind"] == ShapeIds.RUNS else 0
        self._many(SHAPE_RUN, at, runs)
        ids = SHAPE_RUN.itemsize * runs or int(header["idKind"]) * int(header["numColumns"])
        self._many(SHAPE_BLOCK, at + align(ids), int(header["numBlocks"]))

    def _columns(self, footer: Any) -> None:
        count = int(footer["num_columns"]) + int(footer["num_system_columns"]) + 1
        if int(footer["settings"]) & Setting.NO_CIT:
            self._unindexed(int(footer["cmb_offset"]), count - 1)
            return
        if int(footer["incompat"]) & Incompat.EXT_CIT:
            self._extended(int(footer["cit_offset"]), count - 1)
            return
        table = self._many(CIT_ENTRY, int(footer["cit_offset"]), count)["offset"].tolist()
        for start, stop in pairwise(table):
            if start < stop <= len(self._data):
                self.blocks.append((start, stop - start))
                self._block(start)

    def _extended(self, at: int, count: int) -> None:
        entries = self._many(EXTENDED_CIT_ENTRY, at, count)
        crc = (EXTENDED_CIT_ENTRY.fields or {})["crc"][1]
        for place, (offset, length, _) in enumerate(entries.tolist()):
            if CMB_TRAILER.itemsize <= length <= len(self._data) - offset:
                self.blocks.append((offset, length))
                entry = at + EXTENDED_CIT_ENTRY.itemsize * place
                self.entries.append((entry + crc, offset + length - CMB_TRAILER.itemsize))
                self._block(offset)

    def _unindexed(self, at: int, count: int) -> None:
        for _ in range(min(count, PLACES_MAX)):
            prefix = self._one(CMB_PREFIX, at)
            if prefix is None:
                return
            self.lengths.append(at)
            at += CMB_PREFIX.itemsize
            length = int(prefix["length"])
            if 0 < length <= len(self._data) - at:
                self.blocks.append((at, length))
                self._block(at)
            at = align(at + length)

    def _block(self, start: int) -> None:
        header = self._one(CMB_HEADER, start)
        if header is None:
            return
        stripes, at = int(header["numStripes"]), CMB_HEADER.itemsize
        self._many(STRIPE_META, start + at, stripes)
        at = align(at + STRIPE_META.itemsize * stripes)
        streams = self._many(STREAM_META, start + at, int(header["numStreams"]))
        for kind, _, offset in streams.tolist():
            if kind == DescType.SIMPLE:
                for place, length, _ in self._many(
                    SIMPLE_CHUNK_DESC, start + offset, stripes
                ).tolist():
                    self._page(place, length)
            elif kind == DescType.FULL:
                for chunk in self._many(FULL_CHUNK_DESC, start + offset, stripes):
                    self._chunk(start, chunk)

    def _chunk(self, block: int, chunk: Any) -> None:
        offset, length = int(chunk["offset"]), int(chunk["length"])
        if chunk["extOffset"]:
            self._extensions(block + int(chunk["extOffset"]))
        if chunk["numPages"] <= 1:
            self._page(offset, length)
            return
        metas = self._many(PAGE_META, block + int(chunk["pageMetaOffset"]), int(chunk["numPages"]))
        for size in metas["pageSize"].tolist():
            self._page(offset, size)
            offset += size

    def _extensions(self, at: int) -> None:
        header = self._one(EXT_HEADER, at)
        while header is not None and header["tag"] != ExtTag.END:
            at += EXT_HEADER.itemsize
            dtype = EXT_RECORDS.get(int(header["tag"]))
            record = None if dtype is None else self._one(dtype, at)
            if dtype is not None and record is not None:
                place = int(record["offset"]), int(record["length"])
                self.records.append((at + (dtype.fields or {})["crc"][1], *place))
                if header["tag"] in (ExtTag.BLOOM, ExtTag.PAGE_BLOOM):
                    self.regions.append(place)
                elif place not in self.pages:
                    self._page(*place)
            at = align(at + int(header["length"]))
            header = self._one(EXT_HEADER, at)

    def _page(self, offset: int, length: int) -> None:
        inside = PAGE_HEADER.itemsize <= length and offset + length <= len(self._data)
        if length == ALL_NULL_LENGTH or not inside or len(self.places) >= PLACES_MAX:
            return
        header = self._one(PAGE_HEADER, offset)
        if header is None:
            return
        self.pages.append((offset, length))
        if header["codec"] == Codec.NONE:
            page = memoryview(self._data)[offset : offset + length]
            self._nodes(page, offset, int(header["numSlots"]))

    def _nodes(self, page: memoryview, offset: int, slots: int) -> None:
        context = DecodeContext(ENCODINGS)
        try:
            pending = [(parse_node(page, PAGE_HEADER.itemsize, len(page), 1), slots)]
            while pending:
                node, count = pending.pop()
                if node.buffer is page:  # not within a compressed node
                    self._one(NODE_HEADER, offset + node.start - NODE_HEADER.itemsize)
                for _, child, below in context.encoding(node).children(node, count, context):
                    pending.append((child, below))
        except (FermionError, ValueError):
            return


def repair(data: bytearray) -> None:
    """Put every checksum right that the damaged metadata leads to, innermost first."""
    found = Anatomy(data)
    if not hasattr(found, "footer"):
        return
    number = (int(found.footer["settings"]) & SETTING_CHECKSUM_MASK) >> SETTING_CHECKSUM_SHIFT
    kind = ChecksumKind(number) if number in set(ChecksumKind) else ChecksumKind.CRC32C
    key = int(found.footer["place_key"]) if found.footer["incompat"] & Incompat.PLACED else 0
    for offset, length in found.pages:
        page = data[offset : offset + length]
        covered = page[:CRC_OFFSET], page[PAGE_HEADER.itemsize :]
        bound = place_of(key, offset) if kind else 0
        put(data, offset + CRC_OFFSET, checksum(kind, *covered) ^ bound)
    for record, offset, length in found.records:
        put(data, record, crc32c(data[offset : offset + length]))
    for offset, length in found.blocks:
        if length >= CMB_TRAILER.itemsize:
            own = crc32c(data[offset : offset + length - 8])
            put(data, offset + length - 8, own ^ place_of(key, offset))
    for at in found.lengths:
        put(data, at + 4, crc32c(data[at : at + 4]) ^ place_of(key, at) if key else 0)
    for entry, trailer in found.entries:
        data[entry : entry + 4] = data[trailer : trailer + 4]
    repair_tail(data, found.footer)


def repair_tail(data: bytearray, footer: Any) -> None:
    """Put the checksums of tail region, section directory and footer right, and no others."""
    _repair_sections(data, footer)
    at = len(data) - FOOTER.itemsize
    put(data, at + FOOTER_CRC_SPAN, crc32c(data[at : at + FOOTER_CRC_SPAN]))


def _repair_sections(data: bytearray, footer: Any) -> None:
    start = int(footer["cmb_offset"]) + int(footer["cmb_length"])
    stop, length = int(footer["sections_offset"]), int(footer["sections_length"])
    if not start <= stop <= stop + length <= len(data) or length < SECTIONS_HEADER.itemsize:
        return
    sections = int.from_bytes(data[stop : stop + 4], "little")
    at = stop + SECTIONS_HEADER.itemsize + SECTION_ENTRY.itemsize * sections
    for block in range(start, stop, TAIL_BLOCK_BYTES):
        if at + 4 <= stop + length:
            put(data, at, crc32c(data[block : min(block + TAIL_BLOCK_BYTES, stop)]))
        at += 4
    crc = len(data) - FOOTER.itemsize + (FOOTER.fields or {})["crc_sections"][1]
    put(data, crc, crc32c(data[stop : stop + length]))


def put(data: bytearray, offset: int, value: int, width: int = 4) -> None:
    data[offset : offset + width] = value.to_bytes(width, "little")


def with_tail(data: bytes, schema_area: bytes | None = None, **sections: bytes | None) -> bytes:
    """The file with another schema area, or other sections by name; None leaves a section out."""
    view = memoryview(data)
    footer = parse_footer(view[-FOOTER.itemsize :], file_size=len(data), where="file")
    stop = footer.sections_offset
    directory = parse_sections(view[stop : stop + footer.sections_length], footer, "file")
    contents: dict[int, bytes | None] = {
        kind: data[offset : offset + length]
        for kind, (offset, length) in directory.sections.items()
    }
    contents.update({SectionKind[name]: content for name, content in sections.items()})
    if schema_area is None:
        start = footer.schema_offset
        schema_area = data[start : start + footer.schema_length]
    tail, places = bytearray(_padded(schema_area)), {}
    for kind, content in contents.items():
        if content is not None:
            places[SectionKind(kind)] = (footer.tail_offset + len(tail), len(content))
            tail += _padded(content)
    cit_offset = footer.tail_offset + len(tail) if footer.has_cit else footer.cmb_offset
    tail += data[footer.cit_offset : footer.cit_offset + footer.cit_length]
    found = build_sections(places, bytes(tail))
    sections_offset = footer.tail_offset + len(tail)
    changes = {
        "schema_offset": footer.tail_offset,
        "schema_length": len(schema_area),
        "cit_offset": cit_offset,
        "sections_offset": sections_offset,
        "sections_length": len(found),
        "file_length": sections_offset + len(found) + FOOTER.itemsize,
        "crc_sections": crc32c(found),
    }
    return (
        data[: footer.tail_offset] + bytes(tail) + found + build_footer(replace(footer, **changes))
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(align(len(data)) - len(data))


def schema_area_of(data: bytes) -> bytes:
    """The schema area of a sound file with its blocks decompressed, ready to be changed."""
    footer = np.frombuffer(data, FOOTER, 1, len(data) - FOOTER.itemsize)[0]
    start = int(footer["schema_offset"])
    area = data[start : start + int(footer["schema_length"])]
    header = np.frombuffer(area, SCHEMA_HEADER, 1)[0]
    blocks = int(header["numBlocks"])
    if not blocks:
        return area
    first = int.from_bytes(_first_block(area, header)[:4], "little")
    at = first - SHAPE_BLOCK.itemsize * blocks
    directory, stored, offset = b"", b"", first
    for entry in np.frombuffer(area, SHAPE_BLOCK, blocks, at):
        begin, size, raw_size = (int(entry[name]) for name in ("offset", "length", "rawLength"))
        raw = area[begin : begin + size]
        raw = raw if size == raw_size else decompress(raw, raw_size)
        directory += np.array((offset, len(raw), len(raw), 0), SHAPE_BLOCK).tobytes()
        stored += raw
        offset += len(raw)
    return area[:at] + directory + stored


def _first_block(area: bytes, header: Any) -> bytes:
    at = align(SCHEMA_HEADER.itemsize + int(header["metadataLength"]))
    if header["idKind"] == ShapeIds.RUNS:
        ids = SHAPE_RUN.itemsize * int(header["numRuns"])
    else:
        ids = int(header["idKind"]) * int(header["numColumns"])
    return area[at + align(ids) :]


def unprotected(stored: bytes) -> set[int]:
    """Offsets that no checksum covers: the head but for its magic, the minor version, padding."""
    footer = np.frombuffer(stored, FOOTER, 1, len(stored) - FOOTER.itemsize)[0]
    found = Anatomy(stored)
    start = int(footer["cmb_offset"])
    places = found.pages + [place for _, *place in found.records]
    places += [(offset, length) for offset, length in found.blocks if offset < start]
    data_end = max(map(sum, places), default=HEAD.itemsize)
    minor = len(stored) - FOOTER.itemsize + 246
    gaps = {*range(HEAD.itemsize, start)}
    gaps -= {offset for start, length in places for offset in range(start, start + length)}
    if int(footer["incompat"]) & Incompat.EXT_CIT:  # columns that were dropped leave gaps
        return {*range(10, 16), minor, minor + 1, *gaps}
    assert start == align(data_end)
    start = ALIGNED_PAGE_START if int(footer["settings"]) & Setting.ALIGN64 else HEAD.itemsize
    assert gaps == {*range(HEAD.itemsize, start), *range(data_end, int(footer["cmb_offset"]))}
    return {*range(10, 16), minor, minor + 1, *gaps}
