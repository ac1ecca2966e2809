"""Small files that claim or hold gigabytes, point at themselves or nest without end.

Checksums are right, so that what is behind them is reached. Only errors of the package come out,
or values, within 256 MiB and a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import zstandard

import fermion
from fermion.columns import types as arrow_types
from fermion.columns.types import INT64
from fermion.errors import FermionError, InvalidFileError
from fermion.io.checksum import UNCHECKED
from fermion.io.compression import decompress
from fermion.layout import NODE_HEADER, PAGE_EXPANSION_FREE_BYTES, PAGE_HEADER, Codec
from fermion.metadata import schema_area
from fermion.metadata.schema_area import build_schema_area
from fermion.options import WriteOptions
from fermion.pages.pages import PageSlice, decode_pages, encode_chunk
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, put, repair, schema_area_of, with_tail
from tests.kit.files.mutations import OPTIONS, memory_limit, original

GIB = 2**30
LENGTHS = (2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
SAMPLED = ("batch_positions", "dictionaries", "maps", "bloom_filters", "lz4")
CASE_SECONDS_MAX = 5
TARGETS_MAX = 8
PORTIONS = [pytest.param(name, 4, id=name) for name in SAMPLED] + [
    pytest.param(name, 1, id=f"{name}-all", marks=pytest.mark.slow) for name in SAMPLED
]
"""A feature, and of how many fields of its file one is tried."""


def frame_of_zeros(size: int, *, says_how_many: bool) -> bytes:
    """Zeros in a zstd frame of some kilobytes."""
    made = zstandard.ZstdCompressor(write_content_size=says_how_many).compressobj(
        size=size if says_how_many else -1
    )
    piece = bytes(2**20)
    return b"".join([*(made.compress(piece) for _ in range(size // len(piece))), made.flush()])


def use(data: bytes | bytearray) -> None:
    """Whatever a user may do first."""
    began = time.process_time()
    try:
        with fermion.open(data, options=OPTIONS) as file:
            file.verify()
            file.read()
    except FermionError:
        pass
    assert time.process_time() - began < CASE_SECONDS_MAX


def fields_of(found: Anatomy) -> Iterator[tuple[str, int, int]]:
    """Name, place and width of every field but checksums."""
    for place in found.places:
        for name, (dtype, offset, *_) in (place.dtype.fields or {}).items():
            if "crc" not in name.lower():
                yield name, place.offset + offset, dtype.itemsize


@pytest.mark.parametrize("says_how_many", [True, False])
def test_a_frame_that_holds_a_gibibyte_is_not_expanded(says_how_many: bool) -> None:
    """Its header says so, and is not what the page says; or it doesn't say."""
    frame = frame_of_zeros(GIB, says_how_many=says_how_many)
    assert len(frame) < 2**20
    for expected in (10, 2**20):
        with memory_limit(), pytest.raises(InvalidFileError):
            decompress(frame, expected)


def test_a_page_of_a_file_may_hold_no_bomb() -> None:
    """A page's frame is replaced by one of megabytes; the page still says how much it expects."""
    stored = original("compact")[1]
    bomb = frame_of_zeros(4 * 2**20, says_how_many=False)
    room = len(bomb) + PAGE_HEADER.itemsize
    pages = Anatomy(stored).pages
    fitting = [each for each in pages if stored[each[0] + 1] == Codec.ZSTD and each[1] >= room]
    assert fitting, len(bomb)
    for offset, length in fitting:
        damaged = bytearray(stored)
        start = offset + PAGE_HEADER.itemsize
        damaged[start : offset + length] = bomb.ljust(length - PAGE_HEADER.itemsize, b"\0")
        repair(damaged)
        with memory_limit():
            use(damaged)
            with pytest.raises(InvalidFileError):
                fermion.read_table(damaged)


@pytest.mark.parametrize("encoding", ["pcodec", "constant", "rle", "for_bitpack"])
def test_a_page_may_not_claim_more_slots_than_it_may_expand_to(encoding: str) -> None:
    """A few bytes of pcodec, too, would expand to any number of equal values."""
    values, cuts = np.zeros(2_000, np.int64), np.array([0, 2_000])
    (page,) = encode_chunk(values, INT64, cuts, options=WriteOptions(), forced=encoding).pages
    for slots in (PAGE_EXPANSION_FREE_BYTES // 8 + 1, 2**32 - 1):
        claim = bytearray(page)
        claim[4:8] = slots.to_bytes(4, "little")
        with memory_limit(), pytest.raises(InvalidFileError):
            decode_pages([PageSlice(claim, 16, slots, 0, slots)], INT64, checks=UNCHECKED)


def test_no_byte_of_a_pcodec_page_makes_it_a_bomb() -> None:
    """Its parameters, pcodec's own header and chunk metadata, and the pages behind them."""
    table = pa.table({"x": pa.array(np.arange(3_000) ** 2)})
    stored = Feature(table, {"encodings": {"x": "pcodec"}}).stored()
    ((offset, length), *_) = Anatomy(stored).pages
    start = offset + PAGE_HEADER.itemsize + NODE_HEADER.itemsize
    with memory_limit():
        for at in range(start, min(start + 200, offset + length)):
            for value in (0, 0x7F, 0xFF):
                damaged = bytearray(stored)
                damaged[at] = value
                repair(damaged)
                use(damaged)


@pytest.mark.parametrize(("name", "portion"), PORTIONS)
def test_no_number_of_a_file_is_a_length_that_is_believed(name: str, portion: int) -> None:
    """One field after the other: gigabytes and more, as far as it can say."""
    _, data = original(name)
    fields = list(fields_of(Anatomy(data)))
    with memory_limit():
        for _, at, width in fields[:: max(1, len(fields) * portion // 100)]:
            for value in {length % (1 << 8 * width) for length in LENGTHS}:
                damaged = bytearray(data)
                put(damaged, at, value, width)
                repair(damaged)
                use(damaged)


@pytest.mark.parametrize(("name", "portion"), PORTIONS)
def test_offsets_may_overlap_and_point_back(name: str, portion: int) -> None:
    """One offset after the other points at itself, at what it is part of, and at other parts."""
    _, data = original(name)
    found = Anatomy(data)
    parts = sorted({place.offset for place in found.places} | {page for page, _ in found.pages})
    parts = [0, *parts[:: max(1, len(parts) // TARGETS_MAX)], len(data)]
    offsets = [field for field in fields_of(found) if "offset" in field[0].lower()]
    assert offsets
    with memory_limit():
        for _, at, width in offsets[:: max(1, len(offsets) * portion // 25)]:
            for target in (at, *parts):
                damaged = bytearray(data)
                put(damaged, at, target % (1 << 8 * width), width)
                repair(damaged)
                use(damaged)


@pytest.mark.parametrize("depth", [65, 500])
def test_a_schema_that_nests_deeper_than_any_writer_would_is_refused(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's own checks are taken away while the file is made."""
    stored = FEATURES["integers"]().stored()
    field = pa.field("deep", pa.int8())
    for _ in range(depth):
        field = pa.field("deep", pa.list_(field))
    with monkeypatch.context() as patch:
        patch.setattr(arrow_types, "SCHEMA_DEPTH_MAX", 10 * depth)
        patch.setattr(schema_area, "_is_plain", lambda field: True)
        deep = with_tail(stored, build_schema_area(pa.schema([field])))
        deep = with_tail(deep, schema_area_of(deep))
    with memory_limit(), pytest.raises(FermionError), fermion.open(deep, options=OPTIONS) as file:
        file.read()
