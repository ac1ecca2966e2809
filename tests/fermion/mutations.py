"""Structured damage to files: change fields, bytes and types, put the checksums right, read.

Run as a program it mutates and reads files under a memory limit, in a process of its own, so that
a crash or a hang is an ordinary failure of the test that started it:

    python -m tests.fermion.mutations FIRST_SEED COUNT
"""

from __future__ import annotations

import faulthandler
import functools
import json
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa

import fermion
from fermion.arrow_types import column_node
from fermion.checksum import crc32c
from fermion.compression import compress, decompress
from fermion.encodings.protocol import DecodeContext, parse_node
from fermion.encodings.registry import ENCODINGS
from fermion.errors import FermionError
from fermion.footer import Footer, build_footer, build_sections, parse_footer, parse_sections
from fermion.layout import (
    ALL_NULL_LENGTH,
    CMB_HEADER,
    CMB_TRAILER,
    FILE_STATISTICS_ENTRY,
    FOOTER,
    FOOTER_CRC_SPAN,
    FULL_CHUNK_DESC,
    HEAD,
    NAME_INDEX_HEADER,
    NODE_HEADER,
    PAGE_HEADER,
    PAGE_META,
    SCHEMA_HEADER,
    SECTION_ENTRY,
    SECTIONS_HEADER,
    SHAPE_BLOCK,
    SHAPE_RUN,
    SIMPLE_CHUNK_DESC,
    STREAM_META,
    STRIPE_ENTRY,
    STRIPE_META,
    TAIL_BLOCK_BYTES,
    Codec,
    DescType,
    SectionKind,
    ShapeIds,
    align,
)
from fermion.schema_area import build_schema_area
from tests.fermion.features import FEATURES, Feature

MEMORY_BYTES_MAX = 256 * 2**20
CASE_SECONDS_MAX = 20
FAILURES_MAX = 20
EVERYWHERE_MAX = 2**18
# A walk over damaged metadata stops here: what it repairs then is enough.
PLACES_MAX = 5_000

CIT_ENTRY = np.dtype([("offset", "<u8")])
PREFIX_BYTES = PAGE_HEADER.fields["crc"][1] if PAGE_HEADER.fields else 12
OPTIONS = fermion.ReadOptions(threads=1)
SECTION_STRUCTS = {
    SectionKind.STRIPE_TABLE: STRIPE_ENTRY,
    SectionKind.FILE_STATISTICS: FILE_STATISTICS_ENTRY,
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
    regions
        (offset, length) of whatever else is worth changing: sections, schema area.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self.places: list[Place] = []
        self.pages: list[tuple[int, int]] = []
        self.blocks: list[tuple[int, int]] = []
        self.regions: list[tuple[int, int]] = []
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
        table = self._many(CIT_ENTRY, int(footer["cit_offset"]), count)["offset"].tolist()
        for start, stop in pairwise(table):
            if start < stop <= len(self._data):
                self.blocks.append((start, stop - start))
                self._block(start)

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
        if chunk["numPages"] <= 1:
            self._page(offset, length)
            return
        metas = self._many(PAGE_META, block + int(chunk["pageMetaOffset"]), int(chunk["numPages"]))
        for size in metas["pageSize"].tolist():
            self._page(offset, size)
            offset += size

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
    for offset, length in found.pages:
        crc = crc32c(data[offset : offset + PREFIX_BYTES])
        crc = crc32c(data[offset + PAGE_HEADER.itemsize : offset + length], crc)
        _put(data, offset + PREFIX_BYTES, crc)
    for offset, length in found.blocks:
        if length >= CMB_TRAILER.itemsize:
            _put(data, offset + length - 8, crc32c(data[offset : offset + length - 8]))
    _repair_tail(data, found.footer)
    at = len(data) - FOOTER.itemsize
    _put(data, at + FOOTER_CRC_SPAN, crc32c(data[at : at + FOOTER_CRC_SPAN]))


def _repair_tail(data: bytearray, footer: Any) -> None:
    start = int(footer["cmb_offset"]) + int(footer["cmb_length"])
    stop, length = int(footer["sections_offset"]), int(footer["sections_length"])
    if not start <= stop <= stop + length <= len(data) or length < SECTIONS_HEADER.itemsize:
        return
    sections = int.from_bytes(data[stop : stop + 4], "little")
    at = stop + SECTIONS_HEADER.itemsize + SECTION_ENTRY.itemsize * sections
    for block in range(start, stop, TAIL_BLOCK_BYTES):
        if at + 4 <= stop + length:
            _put(data, at, crc32c(data[block : min(block + TAIL_BLOCK_BYTES, stop)]))
        at += 4
    crc = len(data) - FOOTER.itemsize + (FOOTER.fields or {})["crc_sections"][1]
    _put(data, crc, crc32c(data[stop : stop + length]))


def _put(data: bytearray, offset: int, value: int, width: int = 4) -> None:
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
    cit_offset = footer.tail_offset + len(tail)
    tail += data[footer.cit_offset : footer.cit_offset + footer.cit_length]
    found = build_sections(places, bytes(tail))
    sections_offset = footer.tail_offset + len(tail)
    values = {name: getattr(footer, name) for name in Footer.__dataclass_fields__}
    values |= {
        "schema_offset": footer.tail_offset,
        "schema_length": len(schema_area),
        "cit_offset": cit_offset,
        "sections_offset": sections_offset,
        "sections_length": len(found),
        "file_length": sections_offset + len(found) + FOOTER.itemsize,
        "crc_sections": crc32c(found),
    }
    return data[: footer.tail_offset] + bytes(tail) + found + build_footer(Footer(**values))


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


@functools.cache
def original(name: str) -> tuple[Feature, bytes]:
    """A feature and its file, the schema area uncompressed."""
    feature = FEATURES[name]()
    stored = feature.stored()
    return feature, with_tail(stored, schema_area_of(stored))


@functools.cache
def _field_pool() -> list[pa.Field]:
    """Fields of every type that some feature has."""
    found = {field.type: field for name in FEATURES for field in original(name)[0].table.schema}
    return list(found.values())


def _fields(place: Place) -> list[tuple[str, int, int]]:
    """Name, offset and width of the fields of a place, but for checksums."""
    fields = place.dtype.fields or {}
    return [
        (name, offset, dtype.itemsize)
        for name, (dtype, offset, *_) in fields.items()
        if "crc" not in name.lower()
    ]


class Mutation:
    """One damaged file, the same for the same seed.

    Attributes
    ----------
    name, feature
        The feature whose file was damaged.
    steps
        What was done, for people.
    data
        The bytes, with right checksums.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.name = self._random.choice(list(FEATURES))
        self.feature, data = original(self.name)
        self.steps: list[str] = []
        if self._random.random() < 0.15:
            data = self._with_other_types(data)
        self.data = bytearray(data)
        changes = (self._field, self._bytes, self._splice, self._compressed, self._everywhere)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            self._random.choices(changes, (6, 3, 1, 1, 2))[0](Anatomy(self.data))
            repair(self.data)

    def _with_other_types(self, data: bytes) -> bytes:
        """Give columns types with the same streams, or any at all."""
        schema = self.feature.table.schema
        fields = list(schema)
        for _ in range(self._random.choice((1, 2, 5))):
            at = self._random.randrange(len(fields))
            pool = _field_pool()
            if self._random.random() < 0.8:
                wanted = column_node(fields[at]).stream_types()
                pool = [each for each in pool if column_node(each).stream_types() == wanted]
            other = self._random.choice(pool or fields)
            other = other.with_nullable(self._random.random() < 0.7)
            self.steps.append(f"column {at}: {fields[at].type} as {other.type}")
            fields[at] = other.with_name(fields[at].name)
        stored = with_tail(data, build_schema_area(pa.schema(fields, metadata=schema.metadata)))
        return with_tail(stored, schema_area_of(stored))

    def _field(self, found: Anatomy) -> None:
        place = self._random.choice(found.places)
        name, offset, width = self._random.choice(_fields(place))
        at = place.offset + offset
        old = self._get(at, width)
        value = self._value(old, width, found)
        self.steps.append(f"{at}: {name} of {place.dtype.itemsize} bytes: {old} to {value}")
        _put(self.data, at, value, width)

    def _everywhere(self, found: Anatomy) -> None:
        """Give every field that equals some field its new value too: counts that agree."""
        fields = [(place, *each) for place in found.places for each in _fields(place)]
        place, _, offset, width = self._random.choice(fields)
        old = self._get(place.offset + offset, width)
        # Not more: where all places agree on a count, that many slots are in the file.
        value = self._value(old, width, found) % EVERYWHERE_MAX
        for place, name, offset, width in fields:
            at = place.offset + offset
            if self._get(at, width) == old and value < 1 << 8 * width:
                self.steps.append(f"{at}: {name} of {place.dtype.itemsize} bytes: {old} to {value}")
                _put(self.data, at, value, width)

    def _get(self, offset: int, width: int) -> int:
        return int.from_bytes(self.data[offset : offset + width], "little")

    def _value(self, old: int, width: int, found: Anatomy) -> int:
        choose = self._random
        top = 1 << 8 * width
        value = choose.choice(
            (
                choose.randrange(20),
                old + choose.choice((-8, -2, -1, 1, 2, 8)),
                top - choose.choice((1, 2, 3, 8)),
                (1 << choose.randrange(8 * width)) - choose.choice((0, 1)),
                old ^ 1 << choose.randrange(8 * width),
                choose.randrange(len(self.data) + 2),
                choose.choice(found.places).offset,
                choose.randrange(top),
                2 * old,
            )
        )
        return value % top

    def _region(self, found: Anatomy) -> tuple[int, int]:
        regions = found.regions + found.blocks + found.pages * 2
        regions = [
            (start, length)
            for start, length in regions
            if length > 0 and start >= 0 and start + length <= len(self.data)
        ]
        return self._random.choice(regions or [(0, len(self.data))])

    def _bytes(self, found: Anatomy) -> None:
        start, length = self._region(found)
        for _ in range(self._random.choice((1, 1, 2, 4))):
            at = start + self._random.randrange(length)
            value = self._random.choice((0, 1, 0x7F, 0x80, 0xFF, self._random.randrange(256)))
            self.steps.append(f"{at}: byte {self.data[at]} to {value}")
            self.data[at] = value

    def _splice(self, found: Anatomy) -> None:
        (source, length), (target, room) = self._region(found), self._region(found)
        size = self._random.randrange(1, min(length, room) + 1)
        self.steps.append(f"{target}: {size} bytes as at {source}")
        self.data[target : target + size] = self.data[source : source + size]

    def _compressed(self, found: Anatomy) -> None:
        """Change what a compressed page holds, where the change compresses as well."""
        pages = [each for each in found.pages if self.data[each[0] + 1] == Codec.ZSTD]
        if not pages:
            self._bytes(found)
            return
        offset, length = self._random.choice(pages)
        body = offset + PAGE_HEADER.itemsize
        raw_length = int.from_bytes(self.data[offset + 8 : offset + 12], "little")
        try:
            raw = decompress(self.data[body : offset + length], raw_length, padded=True)
        except FermionError:
            return
        changed = bytearray(raw)
        changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        packed = compress(changed, 19)
        if len(packed) <= offset + length - body:
            self.steps.append(f"{offset}: a compressed page")
            self.data[body : offset + length] = packed.ljust(offset + length - body, b"\0")

    def read(self) -> None:
        """Do some of what a user may do with a file; errors of the package end one thing each."""
        prefetch = self._random.choice((None, None, FOOTER.itemsize, 700))
        options = OPTIONS.with_overrides({"prefetch_bytes": prefetch})
        try:
            file = fermion.open(self.data, options=options)
        except FermionError:
            return
        with file:
            actions = list(_actions(self.feature, self._random))
            for action in (actions[0], *self._random.sample(actions[1:], 3)):
                try:
                    result = action(file)
                except FermionError:
                    continue
                if isinstance(result, (pa.Table, pa.RecordBatch)):
                    check_arrow(result)


def _actions(
    feature: Feature, choose: random.Random
) -> Iterator[Callable[[fermion.FermionFile], Any]]:
    schema = feature.table.schema
    yield lambda file: file.read()
    yield lambda file: file.verify()
    yield lambda file: [list(map(str, (file.schema, file, file.key_value_metadata)))]
    yield lambda file: file.read(filter=feature.filter)
    yield lambda file: file.count(feature.filter)
    yield lambda file: file.read([choose.randrange(len(schema))])
    yield lambda file: file.read([choose.choice(schema.names)])
    yield lambda file: file.take([0, file.num_rows - 1, file.num_rows // 2])
    yield lambda file: file.read(rows=(file.num_rows // 3, file.num_rows // 2))
    yield lambda file: pa.Table.from_batches(file.iter_batches(batch_size=7), schema=file.schema)
    yield lambda file: [file.column(each) for each in range(min(file.num_columns, 20))]
    yield lambda file: file.read_batch(1002)
    yield lambda file: file.read(["batch_id", "index_in_batch"])


def check_arrow(table: pa.Table | pa.RecordBatch) -> None:
    """Assert that Arrow can use a result without reading outside of its buffers.

    Values that a type does not allow may be there, for example bytes that are no UTF-8: reading
    does not look at every value, `FermionFile.verify` does.
    """
    table.validate()
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        harmless = ("UTF8", "UTF-8", "precision", "does not represent", "not within the acceptable")
        if not any(each in str(error) for each in harmless):
            raise


@contextmanager
def memory_limit(allowed: int = MEMORY_BYTES_MAX) -> Iterator[None]:
    """Let the process reserve at most so many bytes more than it has now."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        reserved = int(stream.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (reserved + allowed, hard))
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # the others reserve more than they use
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class HangError(BaseException):
    """A case took too long; no `Exception`, so that nothing on the way catches it."""


def _on_alarm(signal_number: int, frame: FrameType | None) -> None:
    raise HangError


def main(first: int, count: int) -> int:
    """Run cases; print one line of JSON a failure, and how many cases there were."""
    signal.signal(signal.SIGALRM, _on_alarm)
    for name in FEATURES:
        original(name)
    _field_pool()
    failures = 0
    with memory_limit():
        for seed in range(first, first + count):
            # If the interpreter itself hangs or dies, this line says in which case.
            print(f"seed {seed}", flush=True)
            faulthandler.dump_traceback_later(3 * CASE_SECONDS_MAX, exit=True)
            signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS_MAX)
            steps: list[str] = []
            try:
                mutation = Mutation(seed)
                steps = [mutation.name, *mutation.steps]
                mutation.read()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
                failures += 1
                where = traceback.format_exception(error)[-4:]
                print(json.dumps({"seed": seed, "steps": steps, "error": where}), flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if failures >= FAILURES_MAX:
                break
    faulthandler.cancel_dump_traceback_later()
    print(f"{failures} failures in seeds {first} to {seed}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
