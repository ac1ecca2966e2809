"""Files of newer and other writers: what a reader accepts, what it skips, and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidFileError, UnsupportedVersionError
from fermion.io.checksum import crc32c
from fermion.layout import (
    CMB_HEADER,
    CMB_TRAILER,
    FOOTER,
    FULL_CHUNK_DESC,
    HEAD,
    PAGE_META,
    SECTION_ENTRY,
    SIMPLE_CHUNK_DESC,
    STREAM_META,
    STRIPE_META,
    ChunkFlag,
    DescType,
    SectionKind,
    align,
)
from fermion.metadata.cit import build_indexed
from fermion.metadata.footer import Footer, build_footer, parse_footer, parse_sections
from tests.kit.equality import assert_logically_equal
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, put, repair, with_tail

GROWTH = 8


def footer_of(data: bytes) -> Footer:
    return parse_footer(memoryview(data)[-FOOTER.itemsize :], file_size=len(data), where="x")


def with_footer(data: bytes, **changes: object) -> bytes:
    """The file with some fields of its footer changed."""
    return data[: -FOOTER.itemsize] + build_footer(replace(footer_of(data), **changes))


def changed(data: bytes, dtype: np.dtype, field: str, value: int, *, which: int = 0) -> bytearray:
    """The file with a field of one of its structs changed, and right checksums."""
    out = bytearray(data)
    place = [each for each in Anatomy(data).places if each.dtype == dtype][which]
    kind, offset, *_ = dtype.fields[field]
    put(out, place.offset + offset, value, kind.itemsize)
    repair(out)
    return out


@pytest.fixture(scope="module")
def feature() -> Feature:
    return FEATURES["pages_and_stripes"]()


@pytest.fixture(scope="module")
def stored(feature: Feature) -> bytes:
    return feature.stored()


def assert_reads(data: bytes | bytearray, feature: Feature) -> None:
    with fermion.open(data) as file:
        assert_logically_equal(file.read(), feature.table)


def test_a_newer_minor_version_is_read(stored, feature):
    newer = with_footer(stored, minor=7)
    assert_reads(newer, feature)
    assert fermion.open(newer).version == (1, 7)


def test_another_major_version_is_refused(stored):
    with pytest.raises(UnsupportedVersionError, match=r"version 2\.1"):
        fermion.open(with_footer(stored, major=2))


def test_another_major_version_in_the_head_is_refused(stored):
    head = stored[:8] + b"\2" + stored[9:]
    with pytest.raises(UnsupportedVersionError, match="version 2"):
        fermion.open(head)


@pytest.mark.parametrize(("bit", "name"), [(1, "SPLIT_STRUCT"), (2, "ENCRYPTED"), (31, "unknown")])
def test_an_unknown_feature_is_refused_by_its_bit(stored, bit, name):
    with pytest.raises(UnsupportedVersionError, match=rf"bit {bit} \({name}\)"):
        fermion.open(with_footer(stored, incompat=1 << bit))


def test_a_compatible_feature_is_ignored(stored, feature):
    assert_reads(with_footer(stored, compat=0xFFFF_FFFF), feature)


def test_an_unknown_checksum_kind_is_refused(stored):
    with pytest.raises(UnsupportedVersionError, match="checksum kind 9"):
        fermion.open(with_footer(stored, settings=9 << 8))


def test_an_unknown_section_is_skipped(stored, feature):
    extended = bytearray(with_tail(stored, SORT_ORDER=b"something of a later version"))
    places = [each for each in Anatomy(extended).places if each.dtype == SECTION_ENTRY]
    kinds = [int.from_bytes(extended[each.offset :][:4], "little") for each in places]
    put(extended, places[kinds.index(SectionKind.SORT_ORDER)].offset, 999)
    repair(extended)
    assert_reads(extended, feature)


def test_a_missing_section_that_is_needed_is_an_error(stored):
    for name in ("STRIPE_TABLE", "NAME_INDEX"):
        damaged = with_tail(stored, **{name: None})
        with (
            fermion.open(damaged) as file,
            pytest.raises(InvalidFileError, match=r"stripe table|name index"),
        ):
            file.read()


def test_an_unknown_descriptor_type_is_refused(stored):
    damaged = changed(stored, STREAM_META, "descType", 4)
    with (
        fermion.open(damaged) as file,
        pytest.raises(UnsupportedVersionError, match="type 4"),
    ):
        file.read()


@pytest.mark.parametrize("kind", [DescType.SIMPLE, DescType.FULL])
def test_descriptors_at_offset_zero_are_the_default(kind):
    table = pa.table({"a": [1, 2, 3]})
    data = changed(Feature(table).stored(), STREAM_META, "descType", kind)
    assert_reads(data, Feature(table))


def test_a_default_with_an_offset_is_an_error():
    data = Feature(pa.table({"a": [1, 2, 3]})).stored()
    damaged = changed(data, STREAM_META, "chunksOffset", 8)
    with (
        fermion.open(damaged) as file,
        pytest.raises(InvalidFileError, match="at offset 8"),
    ):
        file.read()


def test_data_that_are_forced_null_are_an_error():
    data = changed(Feature(pa.table({"a": [1]})).stored(), STREAM_META, "chunksOffset", 0, which=1)
    data = changed(bytes(data), STREAM_META, "descType", DescType.FORCE_NULL, which=1)
    with fermion.open(data) as file, pytest.raises(InvalidFileError, match="FORCE_NULL"):
        file.read()


def test_a_column_without_metadata_that_is_not_nullable_is_an_error():
    field = pa.field("a", pa.int64(), nullable=False)
    table = pa.table({"a": pa.nulls(3, pa.int64())})
    nulls = Feature(table).stored()
    required = Feature(pa.table({"a": [1, 2, 3]}, schema=pa.schema([field]))).stored()
    footer = footer_of(required)
    area = required[footer.schema_offset : footer.schema_offset + footer.schema_length]
    damaged = with_tail(nulls, area)
    with fermion.open(damaged) as file, pytest.raises(InvalidFileError, match="not nullable"):
        file.read()


def test_structs_may_grow_at_their_end(stored, feature):
    """Every array of every CMB advances by the sizes that the footer gives."""
    grown = grow(stored)
    assert footer_of(grown).sizes == tuple(size + GROWTH for size in footer_of(stored).sizes)
    assert_reads(grown, feature)
    with fermion.open(grown) as file:
        assert file.read(filter=feature.filter).num_rows
        assert file.verify().problems == ()


def test_structs_may_not_shrink(stored):
    sizes = footer_of(stored).sizes
    for index in range(len(sizes)):
        smaller = tuple(size - 4 * (i == index) for i, size in enumerate(sizes))
        with pytest.raises(UnsupportedVersionError, match="struct sizes"):
            fermion.open(with_footer(stored, sizes=smaller))


def grow(data: bytes) -> bytes:
    """The file as a writer of larger structs would have written it."""
    footer = footer_of(data)
    cit = np.frombuffer(data, "<u8", footer.cit_length // 8, footer.cit_offset)
    blocks = [
        bytearray(grow_block(data[start:stop]) if start < stop else b"")
        for start, stop in zip(cit[:-1].tolist(), cit[1:].tolist(), strict=True)
    ]
    lengths = np.array([len(block) for block in blocks], np.int64)
    joined = bytearray().join(blocks)
    area = build_indexed(joined, lengths, footer.cmb_offset, footer.place_key)
    shift = len(area) - footer.cmb_length
    ends = footer.cmb_offset + np.cumsum([0, *map(len, blocks)])
    tail = data[footer.tail_offset : footer.cit_offset] + ends.astype("<u8").tobytes()
    view = memoryview(data)[footer.sections_offset :][: footer.sections_length]
    directory = bytearray(view)
    at = 8
    for _ in parse_sections(view, footer, "x").sections:
        offset = int.from_bytes(directory[at + 8 : at + 16], "little")
        put(directory, at + 8, offset + shift, 8)
        at += SECTION_ENTRY.itemsize
    put(directory, at, crc32c(tail))
    changes = {
        "cmb_length": len(area),
        "schema_offset": footer.schema_offset + shift,
        "cit_offset": footer.cit_offset + shift,
        "sections_offset": footer.sections_offset + shift,
        "file_length": footer.file_length + shift,
        "sizes": tuple(size + GROWTH for size in footer.sizes),
        "crc_sections": crc32c(directory),
    }
    grown = build_footer(replace(footer, **changes))
    return data[: footer.cmb_offset] + area + tail + bytes(directory) + grown


def grow_block(block: bytes) -> bytes:
    """A CMB whose structs are all larger, the new bytes being anything but zero."""
    streams, stripes = np.frombuffer(block, "<u4", 2).tolist()
    at = CMB_HEADER.itemsize
    rows = np.frombuffer(block, STRIPE_META, stripes, at)
    metas = np.frombuffer(
        block, STREAM_META, streams, align(at + STRIPE_META.itemsize * stripes)
    ).copy()
    start = align(
        align(at + (STRIPE_META.itemsize + GROWTH) * stripes)
        + (STREAM_META.itemsize + GROWTH) * streams
    )
    arrays = []
    for meta in metas:
        offset = int(meta["chunksOffset"])
        if not offset:
            continue
        dtype = SIMPLE_CHUNK_DESC if meta["descType"] == DescType.SIMPLE else FULL_CHUNK_DESC
        arrays.append(np.frombuffer(block, dtype, stripes, offset).copy())
        meta["chunksOffset"] = start
        start += (dtype.itemsize + GROWTH) * stripes
    pages = b""
    for array in arrays:
        for chunk in array if array.dtype == FULL_CHUNK_DESC else ():
            if chunk["numPages"] > 1:
                found = np.frombuffer(
                    block, PAGE_META, int(chunk["numPages"]), int(chunk["pageMetaOffset"])
                )
                chunk["pageMetaOffset"] = start + len(pages)
                pages += wide(found)
    out = block[: CMB_HEADER.itemsize] + wide(rows)
    out += bytes(align(len(out)) - len(out)) + wide(metas)
    out += bytes(align(len(out)) - len(out)) + b"".join(map(wide, arrays)) + pages
    length = len(out) + CMB_TRAILER.itemsize
    return out + np.array([crc32c(out), length], "<u4").tobytes()


def wide(records: np.ndarray) -> bytes:
    return b"".join(record.tobytes() + b"\xee" * GROWTH for record in records)


def test_a_chunk_may_be_simple_where_writers_use_full_ones():
    """DATA without statistics: a SIMPLE descriptor fits in the place of a FULL one."""
    table = pa.table({"a": [1, 2, 3]})
    data = changed(Feature(table).stored(), STREAM_META, "descType", DescType.SIMPLE, which=1)
    assert_reads(data, Feature(table))


def test_an_unknown_extension_record_is_skipped():
    feature = FEATURES["bloom_filters"]()
    data = bytearray(feature.stored())
    places = [
        each for each in Anatomy(data).places if each.dtype.names == ("tag", "zero", "length")
    ]
    assert places
    for place in places:
        if data[place.offset] == 1:
            put(data, place.offset, 4242, 2)
    repair(data)
    assert_reads(data, feature)
    with fermion.open(data) as file:
        assert file.read(filter=feature.filter).num_rows == 1


def test_the_sum_of_a_chunk_s_pages_must_be_its_length(stored):
    damaged = changed(stored, PAGE_META, "pageSize", 8)
    with fermion.open(damaged) as file, pytest.raises(InvalidFileError, match="do not add up"):
        file.read()


def test_a_chunk_may_not_reach_into_the_metadata():
    data = Feature(pa.table({"a": [1, 2, 3]})).stored()
    length = footer_of(data).cmb_offset - HEAD.itemsize + 8
    damaged = changed(data, FULL_CHUNK_DESC, "length", length)
    with fermion.open(damaged) as file, pytest.raises(InvalidFileError, match="data ends at"):
        file.read()


def test_a_chunk_past_the_end_of_the_file_is_a_truncated_file(stored):
    damaged = changed(stored, FULL_CHUNK_DESC, "offset", len(stored) - 8)
    with fermion.open(damaged) as file, pytest.raises(fermion.TruncatedFileError, match="chunk at"):
        file.read()


def test_a_range_past_the_end_is_a_truncated_file(stored, tmp_path):
    """A file that shrinks after it was opened; also an EOFError."""
    path = tmp_path / "x.fermion"
    path.write_bytes(stored)
    with fermion.open(path, options=fermion.ReadOptions(prefetch_bytes=256)) as file:
        path.write_bytes(stored[: HEAD.itemsize])
        with pytest.raises(fermion.TruncatedFileError):
            file.read()
    assert issubclass(fermion.TruncatedFileError, EOFError)


def test_flags_that_are_not_known_do_not_matter(stored, feature):
    known = sum(ChunkFlag)
    unknown = 1 << known.bit_length()
    data = changed(stored, FULL_CHUNK_DESC, "flags", known & 0x207 | unknown)
    assert_reads(data, feature)


@pytest.mark.parametrize("prefetch", [256, 300, 1_000, 2_000, 64 * 1024])
@pytest.mark.parametrize("eager", [0, 8 * 1024 * 1024])
def test_how_much_is_read_at_open_makes_no_difference(stored, feature, prefetch, eager, tmp_path):
    """Tail in one piece or in many, CMBs all at once or one by one, local and remote."""
    options = fermion.ReadOptions(prefetch_bytes=prefetch, eager_load_threshold=eager)
    path = tmp_path / "x.fermion"
    path.write_bytes(stored)
    remote = f"memory://{tmp_path.name}/{prefetch}-{eager}.fermion"
    fermion.write_table(feature.table, remote, **feature.options)
    for place in (path, remote):
        with fermion.open(place, options=options) as file:
            assert_logically_equal(file.read(), feature.table)


def test_all_metadata_are_loaded_at_once_where_that_saves_requests(feature):
    """From remote storage, as long as they are no more than the threshold."""
    remote = "memory://eager/x.fermion"
    fermion.write_table({f"c{i}": [i, None] for i in range(200)}, remote)
    requests = {}
    for threshold in (0, 8 * 1024 * 1024):
        options = fermion.ReadOptions(
            prefetch_bytes=256, eager_load_threshold=threshold, coalesce_gap_bytes=0
        )
        with fermion.open(remote, options=options) as file:
            file.read([f"c{i}" for i in range(0, 200, 2)])
            requests[threshold] = file.io_stats.requests
    assert requests[8 * 1024 * 1024] < requests[0]


def test_many_threads_read_one_open_file(stored, feature):
    """Whole reads, filters and single rows, all at the same time."""
    with fermion.open(stored) as file, ThreadPoolExecutor(8) as pool:
        expected = file.read(filter=feature.filter)

        def work(number: int) -> None:
            row = number % feature.table.num_rows
            assert_logically_equal(file.take([row]), feature.table.slice(row, 1))
            assert_logically_equal(file.read(), feature.table)
            assert_logically_equal(file.read(filter=feature.filter), expected)

        list(pool.map(work, range(40)))
