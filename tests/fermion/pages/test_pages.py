"""Pages: any values survive, every byte is guarded, and damage never becomes anything worse."""

from __future__ import annotations

import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns.types import (
    BINARY,
    BITS,
    INT64,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    number,
    slice_values,
)
from fermion.encodings.choice.choose import plain_size
from fermion.errors import (
    ChecksumError,
    FermionError,
    InvalidArgumentError,
    InvalidFileError,
    UnsupportedEncodingError,
    UnsupportedVersionError,
)
from fermion.io.checksum import PageChecks, checksum
from fermion.io.compression import compress, decompress
from fermion.layout import ChecksumKind, Codec, EncodingId
from fermion.options import PROFILES, WriteOptions
from fermion.pages.frame import CHECKSUM_KINDS, HEADER_SIZE
from fermion.pages.pages import (
    PageSlice,
    decode_codes,
    decode_dictionary,
    decode_pages,
    describe_page,
    encode_chunk,
)
from tests.kit.files.physical_values import (
    SHAPES,
    TYPES,
    assert_same,
    assert_slots_same,
    binary_values,
    cuts_of,
    make_values,
    page_slices,
    read_slots,
    typed_values,
)

FLOAT64 = number(PhysicalKind.FLOAT64)
DECIMAL = PhysicalType(PhysicalKind.FIXED, 16)


def seal(page: bytearray) -> bytes:
    """Give a page the checksum of what it now holds, so that only what follows is tested."""
    crc = checksum(ChecksumKind.CRC32C, page[:12], page[HEADER_SIZE:])
    struct.pack_into("<I", page, 12, crc)
    return bytes(page)


def one_page(values: Values, physical: PhysicalType, forced: str | None = None) -> bytes:
    cuts = np.array([0, len(values)])
    chunk = encode_chunk(values, physical, cuts, options=WriteOptions(), forced=forced)
    assert not chunk.has_dictionary
    return bytes(chunk.pages[0])


def read_page(page: bytes, physical: PhysicalType, slots: int | None) -> Values:
    part = PageSlice(memoryview(page), 4096, slots, 0, slots or 0)
    return decode_pages([part], physical, where="a.fermion")


@given(
    typed=typed_values(),
    profile=st.sampled_from(PROFILES),
    pages=st.integers(1, 7),
    data=st.data(),
)
def test_any_values_survive_any_cut_in_any_profile(
    typed: tuple[PhysicalType, Values], profile: str, pages: int, data: st.DataObject
) -> None:
    physical, values = typed
    count = len(values)
    cuts = cuts_of(count, pages)
    chunk = encode_chunk(values, physical, cuts, options=WriteOptions(profile=profile))
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    assert_slots_same(chunk, cuts, physical, values, [(0, count), (start, stop)])


@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_page_is_larger_than_plain_and_its_header(physical: PhysicalType, shape: str) -> None:
    for count, profile in [(1, "balanced"), (40, "compact"), (700, "fast"), (5000, "balanced")]:
        values = make_values(physical, count, shape, 5)
        cuts = cuts_of(count, 3)
        chunk = encode_chunk(values, physical, cuts, options=WriteOptions(profile=profile))
        for page, start, stop in zip(
            chunk.pages[chunk.has_dictionary :], cuts, cuts[1:], strict=False
        ):
            plain = plain_size(slice_values(values, int(start), int(stop)), physical)
            assert len(page) <= HEADER_SIZE + plain
            assert len(page) % 8 == 0


@pytest.mark.parametrize("physical", [INT64, FLOAT64, BITS, BINARY, DECIMAL])
def test_the_same_input_gives_the_same_bytes(physical: PhysicalType) -> None:
    """Also in other threads, whose zstd contexts compressed other pages before."""
    values = make_values(physical, 9000, "small", 1)
    cuts = cuts_of(9000, 3)

    def encode(_: int) -> list[bytes]:
        encode_chunk(
            make_values(BINARY, 999, "random", _),
            BINARY,
            np.array([0, 999]),
            options=WriteOptions(),
        )
        return encode_chunk(values, physical, cuts, options=WriteOptions()).pages

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(encode, range(6)))
    assert all(result == results[0] for result in results)


def test_a_page_is_laid_out_as_specified() -> None:
    values = np.array([1, -1, 2**62], np.int64)
    page = one_page(values, INT64, "plain")
    version, codec, encoding, slots, raw, _ = struct.unpack_from("<BBHIII", page)
    assert (version, codec, encoding, slots, raw) == (1, 0, EncodingId.PLAIN, 3, 32)
    assert struct.unpack_from("<HBBI", page, 16) == (EncodingId.PLAIN, 0, 0, 24)
    assert page[24:] == values.tobytes()
    assert seal(bytearray(page)) == page


@pytest.mark.parametrize("physical", [INT64, FLOAT64, DECIMAL, BITS])
def test_one_whole_plain_page_is_read_without_copying(physical: PhysicalType) -> None:
    values = make_values(physical, 1000, "random", 1)
    page = one_page(values, physical, "plain")
    found = read_page(page, physical, 1000)
    assert_same(found, values)
    array = found.data if isinstance(found, Bits) else found
    assert isinstance(array, np.ndarray)
    assert np.shares_memory(array, np.frombuffer(page, np.uint8))
    assert not array.flags.writeable


def test_a_plain_page_at_an_odd_address_is_copied() -> None:
    values = make_values(INT64, 1000, "random", 1)
    page = memoryview(b"x" + one_page(values, INT64, "plain"))[1:]
    found = decode_pages([PageSlice(page, 16, 1000, 0, 1000)], INT64)
    assert isinstance(found, np.ndarray)
    assert found.flags.aligned
    assert_same(found, values)


def test_a_dictionary_page_comes_first_and_holds_each_value_once() -> None:
    values = make_values(BINARY, 9000, "few", 3)
    cuts = cuts_of(9000, 4)
    chunk = encode_chunk(values, BINARY, cuts, options=WriteOptions())
    assert chunk.has_dictionary
    assert chunk.encodings.startswith("dictionary(")
    assert len(chunk.pages) == 5
    slices, dictionary = page_slices(chunk, cuts)
    assert dictionary is not None
    entries = decode_dictionary(dictionary, BINARY)
    assert isinstance(entries, BinaryValues)
    assert items_of(entries) == list(dict.fromkeys(items_of(values)))
    expected = decode_pages(slices, BINARY, dictionary=dictionary)
    assert_same(decode_pages(slices, BINARY, dictionary=entries), expected)
    assert_same(expected, values)
    with pytest.raises(InvalidFileError, match="no dictionary"):
        decode_pages(slices, BINARY)


@pytest.mark.parametrize("physical", [BINARY, DECIMAL, FLOAT64])
@pytest.mark.parametrize("pages", [1, 4])
def test_codes_and_dictionary_stand_for_the_values(physical: PhysicalType, pages: int) -> None:
    values = make_values(physical, 9000, "few", 3)
    cuts = cuts_of(9000, pages)
    chunk = encode_chunk(values, physical, cuts, options=WriteOptions(), forced="dictionary")
    slices, dictionary = page_slices(chunk, cuts)
    found = decode_codes(slices, physical, dictionary=dictionary)
    assert found is not None
    codes, entries = found
    assert codes.dtype == np.uint32
    texts = items_of(entries)
    assert [texts[code] for code in codes.tolist()] == items_of(values)
    plain = encode_chunk(values, physical, cuts, options=WriteOptions(), forced="plain")
    assert decode_codes(page_slices(plain, cuts)[0], physical) is None
    damaged = bytearray(chunk.pages[-1])
    damaged[HEADER_SIZE + 12] = 3
    part = replace(slices[-1], buffer=seal(damaged))
    with pytest.raises(InvalidFileError, match=r"a\.fermion: page at offset .* 1, 2 or 4"):
        decode_codes([part], physical, dictionary=dictionary, where="a.fermion")


def items_of(values: Values) -> list[bytes]:
    """Each value's bytes."""
    if isinstance(values, BinaryValues):
        return [values.data[low:high].tobytes() for low, high in pairwise(values.offsets.tolist())]
    assert isinstance(values, np.ndarray)
    return [values[slot : slot + 1].tobytes() for slot in range(len(values))]


@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
def test_no_slots_make_empty_values(physical: PhysicalType) -> None:
    values = slice_values(make_values(physical, 9, "random", 1), 0, 0)
    chunk = encode_chunk(values, physical, np.array([0, 0]), options=WriteOptions())
    page = PageSlice(chunk.pages[0], 16, 0, 0, 0)
    assert_same(decode_pages([page], physical), values)
    assert_same(decode_pages([], physical), values)
    assert encode_chunk(values, physical, np.array([0]), options=WriteOptions()).pages == []


@pytest.mark.parametrize("kind", list(CHECKSUM_KINDS))
def test_each_checksum_kind_is_verified_as_itself(kind: str) -> None:
    values = make_values(INT64, 100, "random", 1)
    chunk = encode_chunk(values, INT64, np.array([0, 100]), options=WriteOptions(checksum=kind))
    part = PageSlice(chunk.pages[0], 16, 100, 0, 100)
    for name, other in CHECKSUM_KINDS.items():
        checks = PageChecks(other)
        if name in (kind, "none"):
            assert_same(decode_pages([part], INT64, checks=checks), values)
        else:
            with pytest.raises(ChecksumError):
                decode_pages([part], INT64, checks=checks)


SMALL_PAGES = {
    "plain": ("plain", INT64, 9),
    "constant": ("constant", BINARY, 9),
    "bitmap": (None, BITS, 90),
    "for_bitpack": ("for_bitpack", INT64, 40),
    "pcodec": ("pcodec", FLOAT64, 60),
    "split_lengths": ("split_lengths", BINARY, 60),
    "dictionary": ("dictionary", BINARY, 60),
    "zstd": ("zstd", FLOAT64, 90),
    "narrow": ("narrow", DECIMAL, 40),
    "rle": ("rle", FLOAT64, 90),
    "delta": ("delta", INT64, 60),
    "byte_stream_split": ("byte_stream_split", DECIMAL, 60),
    "alp": ("alp", FLOAT64, 60),
    "zstd page": (None, PhysicalType(PhysicalKind.FIXED, 12), 200),
}


def small_page(name: str) -> tuple[bytes, PhysicalType, Values]:
    forced, physical, count = SMALL_PAGES[name]
    shapes = {"constant": "constant", "plain": "random", "bitmap": "random", "rle": "runs"}
    shape = shapes.get(name, "few")
    values = make_values(physical, count, shape, 4)
    page = one_page(values, physical, forced)
    expected = {"zstd page": "plain", "dictionary": "dictionary_local"}.get(name, name)
    assert EncodingId(page[2]).name.lower() == expected
    assert (page[1] == Codec.ZSTD) == (name == "zstd page")
    return page, physical, values


@pytest.mark.parametrize("name", SMALL_PAGES)
def test_a_change_of_any_byte_fails_the_checksum(name: str) -> None:
    page, physical, values = small_page(name)
    for at in range(len(page)):
        damaged = bytearray(page)
        damaged[at] ^= 0x10
        with pytest.raises(ChecksumError, match=r"a\.fermion: page at offset 4096: checksum"):
            read_page(bytes(damaged), physical, len(values))


@pytest.mark.parametrize("name", SMALL_PAGES)
def test_a_page_cut_short_anywhere_is_refused(name: str) -> None:
    page, physical, values = small_page(name)
    for size in range(len(page)):
        with pytest.raises(InvalidFileError):
            read_page(page[:size], physical, len(values))


@pytest.mark.parametrize("name", SMALL_PAGES)
def test_damage_under_a_right_checksum_gives_our_error_or_values(name: str) -> None:
    """Each byte takes several values; memory stays within what one page may decode to."""
    page, physical, values = small_page(name)
    tracemalloc.start()
    for at in [0, 1, 2, 3, *range(8, 12), *range(HEADER_SIZE, len(page))]:
        for change in (0x01, 0x80, 0xFF, page[at]):
            damaged = bytearray(page)
            damaged[at] ^= change
            try:
                found = read_page(seal(damaged), physical, len(values))
            except FermionError as error:
                assert "a.fermion: page at offset 4096" in str(error)  # noqa: PT017
            else:
                assert len(found) == len(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 * 1024 * 1024


@given(
    name=st.sampled_from(sorted(SMALL_PAGES)),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 40),
)
def test_random_damage_under_a_right_checksum_gives_our_error_or_values(
    name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    page, physical, values = small_page(name)
    damaged = bytearray(page)
    for at, value in changes:
        damaged[at % len(page)] = value
    del damaged[len(page) - min(cut, len(page) - HEADER_SIZE) :]
    try:
        found = read_page(seal(damaged), physical, len(values))
    except FermionError:
        return
    assert len(found) == len(values)


def changed(page: bytes, layout: str, offset: int, value: int) -> bytes:
    damaged = bytearray(page)
    struct.pack_into(layout, damaged, offset, value)
    return seal(damaged)


def test_errors_name_file_offset_and_what_was_found() -> None:
    page = one_page(np.arange(50), INT64)
    where = r"a\.fermion: page at offset 4096: "
    with pytest.raises(UnsupportedVersionError, match=where + "page version: expected 1, found 2"):
        read_page(changed(page, "<B", 0, 2), INT64, 50)
    with pytest.raises(UnsupportedEncodingError, match=where + "codec id 3"):
        read_page(changed(page, "<B", 1, 3), INT64, 50)
    with pytest.raises(InvalidFileError, match=where + "expected 51 slots, found 50"):
        read_page(page, INT64, 51)
    with pytest.raises(InvalidFileError, match=where + "raw length"):
        read_page(changed(page, "<I", 8, 2**31), INT64, 50)
    with pytest.raises(InvalidFileError, match=where + "encoding tree: expected plain"):
        read_page(changed(page, "<H", 2, EncodingId.PLAIN), INT64, 50)
    unknown = changed(changed(page, "<H", 2, 99), "<H", HEADER_SIZE, 99)
    with pytest.raises(UnsupportedEncodingError, match=where + "encoding id 99"):
        read_page(unknown, INT64, 50)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 51), (7, 3)])
def test_slots_outside_of_a_page_are_refused(start: int, stop: int) -> None:
    page = one_page(np.arange(50), INT64)
    with pytest.raises(InvalidFileError, match="expected slots"):
        decode_pages([PageSlice(page, 16, 50, start, stop)], INT64)


def test_the_number_of_slots_may_be_left_to_the_page() -> None:
    page = one_page(np.arange(50), INT64)
    found = decode_pages([PageSlice(page, 16, None, 0, 50)], INT64)
    assert_same(found, np.arange(50))


@pytest.mark.parametrize("claimed", [2**63, 2**40, 65 * 1024 * 1024])
def test_a_page_that_claims_to_expand_beyond_the_limit_is_refused(claimed: int) -> None:
    """In the frame's own header, and in the node that holds the frame."""
    page = bytearray(one_page(make_values(FLOAT64, 200, "few", 1), FLOAT64, "zstd"))
    struct.pack_into("<Q", page, HEADER_SIZE + 8, claimed)
    with pytest.raises(InvalidFileError, match="at most"):
        read_page(seal(page), FLOAT64, 200)
    frame = compress(b"\0" * 1000, 1)
    with pytest.raises(InvalidFileError, match="expected 10 bytes of content, found 1000"):
        decompress(frame, 10)


def test_strings_that_expand_beyond_the_limit_are_written_so_that_they_can_be_read() -> None:
    """The writer obeys the bound that the reader checks: such a page stays plain."""
    count, size = 70_000, 1000
    values = BinaryValues(
        np.arange(count + 1, dtype=np.int64) * size, np.zeros(count * size, np.uint8)
    )
    page = one_page(values, BINARY)
    assert len(page) * 256 >= values.offsets[-1]
    assert_same(read_page(page, BINARY, count), values)


def test_a_forced_encoding_that_cannot_hold_the_values_says_why() -> None:
    with pytest.raises(InvalidArgumentError, match="constant cannot hold values that differ"):
        one_page(np.arange(9), INT64, "constant")
    with pytest.raises(InvalidArgumentError, match="narrow cannot hold integers that do not fit"):
        one_page(make_values(DECIMAL, 9, "random", 1), DECIMAL, "narrow")
    with pytest.raises(InvalidArgumentError, match="for_bitpack cannot hold values of type binary"):
        one_page(binary_values([b"a"]), BINARY, "for_bitpack")
    with pytest.raises(InvalidArgumentError, match="'lzma': expected one of plain, constant"):
        one_page(np.arange(9), INT64, "lzma")


def test_a_page_describes_its_encodings() -> None:
    values = make_values(BINARY, 600, "few", 2)
    page = describe_page(PageSlice(one_page(values, BINARY, "dictionary"), 16, None, 0, 0))
    assert (page.slots, page.tree.encoding, page.tree.slots) == (600, "dictionary_local", 600)
    assert [child.role for child in page.tree.children] == ["codes", "dictionary"]
    assert page.tree.children[1].slots == len(np.unique(values.lengths))
    assert page.tree.size == page.raw_length
    for name in SMALL_PAGES:
        found = describe_page(PageSlice(small_page(name)[0], 16, None, 0, 0))
        assert found.size == len(small_page(name)[0])
        assert found.codec == ("zstd" if name == "zstd page" else "none")


def test_pages_of_different_encodings_are_read_as_one() -> None:
    """Each page may fall back to plain by itself."""
    rng = np.random.default_rng(3)
    parts = [np.arange(1000), rng.integers(-(2**63), 2**63 - 1, 1000), np.zeros(1000, np.int64)]
    values = np.concatenate(parts)
    cuts = np.array([0, 1000, 2000, 3000])
    chunk = encode_chunk(values, INT64, cuts, options=WriteOptions(), forced="for_bitpack")
    assert [page[2] for page in chunk.pages] == [5, 1, 5]
    assert_same(read_slots(chunk, cuts, INT64, 500, 2500), values[500:2500])
