"""Pages that leave their null slots out: the same values, fewer bytes, no trust in the counts."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fermion
from fermion.columns.slots import fill_nulls
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
from fermion.encodings.removed_nulls import NULLS_SHARE_MIN
from fermion.errors import InvalidFileError, UnsupportedEncodingError
from fermion.io.checksum import PageChecks
from fermion.layout import ChunkFlag, NodeFlag
from fermion.options import PROFILES, WriteOptions
from fermion.pages.frame import CHECKSUM_KINDS, HEADER_SIZE, open_page, seal_page
from fermion.pages.pages import (
    EncodedChunk,
    PageSlice,
    decode_codes,
    decode_pages,
    describe_page,
    encode_chunk,
)
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.physical_values import TYPES, assert_same, cuts_of, make_values, page_slices
from tests.kit.strategies import random_array
from tests.kit.strategies import tables as any_tables

FLOAT64 = number(PhysicalKind.FLOAT64)
# A third of the profile's examples for tests that write many pages each.
few = settings(max_examples=settings.default.max_examples // 3)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0])


def with_nulls(
    physical: PhysicalType, count: int, share: float, shape: str, seed: int
) -> tuple[Values, Bits]:
    """Values as streams hold them: null slots repeat the value before, or are empty strings."""
    values = make_values(physical, count, shape, seed)
    flags = np.random.default_rng(seed).random(count) >= share
    validity = Bits.pack(flags)
    if isinstance(values, BinaryValues):
        items = [values.data[a:b].tobytes() for a, b in pairwise(values.offsets.tolist())]
        kept = [item if flag else b"" for item, flag in zip(items, flags.tolist(), strict=True)]
        offsets = np.append(0, np.cumsum([len(item) for item in kept])).astype(np.int64)
        return BinaryValues(offsets, np.frombuffer(b"".join(kept), np.uint8)), validity
    values = Bits(values.data.copy(), count) if isinstance(values, Bits) else values.copy()
    fill_nulls(values, validity)
    return values, validity


def read(
    chunk: EncodedChunk,
    cuts: np.ndarray,
    physical: PhysicalType,
    validity: Bits,
    start: int,
    stop: int,
) -> Values:
    slices, dictionary = page_slices(chunk, cuts)
    wanted = []
    for page, (low, high) in zip(slices, pairwise(cuts.tolist()), strict=True):
        first, last = max(start, low), min(stop, high)
        if first < last:
            own = slice_values(validity, low, high)
            wanted.append(replace(page, start=first - low, stop=last - low, validity=own))
    return decode_pages(wanted, physical, dictionary=dictionary, where="a.fermion")


def assert_valid_same(found: Values, expected: Values, validity: Bits) -> None:
    """Null slots hold the value before them, as in ``expected``, or zero."""
    flags = validity.unpack()
    assert len(found) == len(expected) == len(flags)
    if isinstance(expected, Bits):
        assert isinstance(found, Bits)
        assert np.array_equal(found.unpack()[flags], expected.unpack()[flags])
    elif isinstance(expected, BinaryValues):
        assert_same(found, expected)
    else:
        assert found[flags].tobytes() == expected[flags].tobytes()
        zero = np.zeros((), expected.dtype).tobytes()
        assert all(
            one.tobytes() in (other.tobytes(), zero)
            for one, other in zip(found[~flags], expected[~flags], strict=True)
        )


@given(
    physical=st.sampled_from(TYPES),
    count=st.integers(1, 3000),
    share=SHARES,
    shape=st.sampled_from(["random", "small", "sorted", "few", "constant"]),
    profile=st.sampled_from(PROFILES),
    pages=st.integers(1, 5),
    data=st.data(),
)
def test_any_part_of_any_chunk_with_nulls_comes_back(
    physical: PhysicalType,
    count: int,
    share: float,
    shape: str,
    profile: str,
    pages: int,
    data: st.DataObject,
) -> None:
    values, validity = with_nulls(physical, count, share, shape, data.draw(st.integers(0, 99)))
    cuts = cuts_of(count, pages)
    options = WriteOptions(profile=profile)
    chunk = encode_chunk(values, physical, cuts, options=options, validity=validity)
    assert chunk.nulls_removed == (count - validity.count() > NULLS_SHARE_MIN * count)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    for low, high in ((0, count), (start, stop)):
        found = read(chunk, cuts, physical, validity, low, high)
        part = slice_values(validity, low, high)
        if low < high:
            assert_valid_same(found, slice_values(values, low, high), part)
    for page, (low, high) in zip(
        chunk.pages[chunk.has_dictionary :], pairwise(cuts.tolist()), strict=True
    ):
        assert len(page) <= HEADER_SIZE + plain_size(slice_values(values, low, high), physical)


def test_a_page_with_nulls_is_laid_out_as_specified() -> None:
    """The flag, then the number of values, then plain's own bytes; all slots in the header."""
    values, validity = np.array([7, 7, 7, 9, 9]), Bits.pack(np.array([1, 0, 0, 1, 0]))
    cuts = np.array([0, 5])
    chunk = encode_chunk(
        values, INT64, cuts, options=WriteOptions(), validity=validity, forced="plain"
    )
    (page,) = chunk.pages
    assert struct.unpack_from("<BBHII", page) == (1, 0, 1, 5, 32)
    assert struct.unpack_from("<HBBIII", page, 16) == (1, 0, NodeFlag.NULLS_REMOVED, 24, 2, 0)
    assert page[32:] == np.array([7, 9]).tobytes()
    found = describe_page(PageSlice(page, 16, None, 0, 0))
    assert (found.slots, found.tree.encoding, found.tree.slots) == (5, "plain", 2)


def test_a_page_of_nulls_alone_holds_no_values() -> None:
    values, validity = with_nulls(FLOAT64, 3000, 1.0, "random", 0)
    validity = Bits.pack(np.arange(3000) < 10)
    cuts = np.array([0, 1000, 3000])
    for forced in ("pcodec", "rle", "dictionary", "alp", "constant", None):
        constant = np.zeros(3000) if forced in ("constant", "alp") else values
        chunk = encode_chunk(
            constant, FLOAT64, cuts, options=WriteOptions(), validity=validity, forced=forced
        )
        assert len(chunk.pages[-1]) == 32
        found = read(chunk, cuts, FLOAT64, validity, 900, 3000)
        assert_same(found, np.zeros(2100))


@pytest.mark.parametrize("physical", [BINARY, FLOAT64])
def test_codes_are_spread_over_the_slots(physical: PhysicalType) -> None:
    values, validity = with_nulls(physical, 9000, 0.5, "few", 1)
    flags = validity.unpack()
    cuts = cuts_of(9000, 3)
    chunk = encode_chunk(
        values, physical, cuts, options=WriteOptions(), validity=validity, forced="dictionary"
    )
    slices, dictionary = page_slices(chunk, cuts)
    pages = [
        replace(page, validity=slice_values(validity, low, high))
        for page, (low, high) in zip(slices, pairwise(cuts.tolist()), strict=True)
    ]
    coded = decode_codes(pages, physical, dictionary=dictionary)
    assert coded is not None
    codes, entries = coded
    assert codes.max() < len(entries)
    if isinstance(entries, np.ndarray):
        assert np.array_equal(entries[codes][flags], values[flags])
        assert len(entries) == len(np.unique(values[flags]))


def marked_page() -> tuple[bytes, Values, Bits]:
    values, validity = with_nulls(INT64, 200, 0.5, "small", 3)
    chunk = encode_chunk(
        values,
        INT64,
        np.array([0, 200]),
        options=WriteOptions(),
        validity=validity,
        forced="for_bitpack",
    )
    return chunk.pages[0], values, validity


def resealed(page: bytes, offset: int, value: int, layout: str = "<I") -> bytes:
    """The page with one field changed, and the checksum right."""
    damaged = bytearray(page)
    struct.pack_into(layout, damaged, offset, value)
    frame = open_page(bytes(damaged), PageChecks(CHECKSUM_KINDS["none"]), 0, 2**30)
    return seal_page(
        [bytes(damaged[HEADER_SIZE:])],
        CHECKSUM_KINDS["crc32c"],
        frame.codec,
        frame.encoding,  # type: ignore[arg-type]
        frame.slots,
        frame.raw_length,
    )


def test_validity_that_does_not_fit_the_page_is_refused() -> None:
    page, values, validity = marked_page()
    part = PageSlice(page, 16, 200, 0, 200, validity)
    found = decode_pages([part], INT64, where="a.fermion")
    assert_valid_same(found, values, validity)
    flipped = Bits(validity.data.copy(), 200)
    flipped.data[0] ^= 1
    short = Bits(validity.data, 199)
    for wrong in (None, False, flipped, short):
        with pytest.raises(InvalidFileError, match=r"a\.fermion: page at offset 16: expected va"):
            decode_pages([replace(part, validity=wrong)], INT64, where="a.fermion")


def test_a_wrong_count_of_values_is_refused() -> None:
    page, _, validity = marked_page()
    for count in (0, validity.count() - 1, validity.count() + 1, 2**32 - 1):
        damaged = resealed(page, HEADER_SIZE + 8, count)
        with pytest.raises(InvalidFileError, match="expected values of the"):
            decode_pages([PageSlice(damaged, 16, 200, 0, 200, validity)], INT64)


def test_the_flag_is_known_at_the_root_only_and_not_in_dictionary_pages() -> None:
    values = make_values(BINARY, 600, "few", 2)
    chunk = encode_chunk(
        values, BINARY, np.array([0, 600]), options=WriteOptions(), forced="dictionary"
    )
    damaged = resealed(chunk.pages[0], HEADER_SIZE + 16 + 3, NodeFlag.NULLS_REMOVED, "<B")
    with pytest.raises(UnsupportedEncodingError, match="unknown flags 0x1"):
        decode_pages([PageSlice(damaged, 16, 600, 0, 600)], BINARY)
    cuts = np.array([0, 300, 600])
    chunk = encode_chunk(values, BINARY, cuts, options=WriteOptions(), forced="dictionary")
    slices, dictionary = page_slices(chunk, cuts)
    assert dictionary is not None
    damaged = resealed(chunk.pages[0], HEADER_SIZE + 3, NodeFlag.NULLS_REMOVED, "<B")
    with pytest.raises(InvalidFileError, match="dictionary page: expected entries"):
        decode_pages(slices, BINARY, dictionary=replace(dictionary, buffer=damaged))


# Whole files.


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


def leaf_flags(file: fermion.FermionFile, name: str) -> list[int]:
    """Flags of the last stream's chunks."""
    index = file._index
    (block,) = index.blocks([index.find(name)])
    node = index.node(index.find(name))
    return [block.chunk(node.stop - 1, stripe).flags for stripe in range(file.num_stripes)]


@st.composite
def sparse_tables(draw: st.DrawFn) -> pa.Table:
    """Tables of any types whose columns have many nulls, at the top and among list elements."""
    table = draw(any_tables(columns_max=4).filter(lambda table: message_can_hold(table.schema)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng, rows = np.random.default_rng(seed), 120
    kinds = [pa.float64(), pa.int16(), pa.string(), pa.bool_(), pa.decimal128(20, 2)]
    kinds += [pa.list_(pa.int64()), pa.struct([("a", pa.string()), ("b", pa.list_(pa.bool_()))])]
    columns = {f"{kind}": random_array(rng, kind, rows) for kind in kinds}
    wide = pa.table(columns)
    return draw(st.sampled_from([table, wide]))


LAYOUTS = st.fixed_dictionaries(
    {
        "profile": st.sampled_from(PROFILES),
        "page_bytes": st.sampled_from([100, 512 * 1024]),
        "page_rows_max": st.sampled_from([17, 131_072]),
        "stripe_rows": st.sampled_from([50, 10_000]),
    }
)


@few
@given(sparse_tables(), LAYOUTS, st.data())
def test_sparse_tables_read_whole_in_part_by_number_and_by_filter(table, layout, data):
    rows = table.num_rows
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    indices = data.draw(st.lists(st.integers(0, max(rows - 1, 0)), max_size=20 if rows else 0))
    indices = sorted(set(indices))
    with fermion.open(stored(table, **layout)) as file:
        assert file.verify().problems == ()
        assert_logically_equal(file.read(), table)
        assert_logically_equal(file.read(rows=(start, stop)), table.slice(start, stop - start))
        expected = pa.concat_tables([table.slice(0, 0), *(table.slice(i, 1) for i in indices)])
        assert_logically_equal(file.take(indices), expected)
        if "float64" in table.schema.names:
            for text in ('"float64" > 0', '"string" IS NOT NULL', '"int16" < 3'):
                every = [file.read(filter=text)]
                with fermion.open(
                    stored(table, **layout), options=fermion.ReadOptions(use_statistics=False)
                ) as slow:
                    every.append(slow.read(filter=text))
                assert_logically_equal(*every)


@few
@given(sparse_tables(), st.integers(10, 60), st.integers(0, 9))
def test_sparse_batches_come_back_one_by_one(table, size, seed):
    """Batches of random sizes; lists' children too."""
    assume("ordered=1" not in str(table.schema))  # a batch has ordered dictionaries of one order
    sink, rng = io.BytesIO(), np.random.default_rng(seed)
    cuts = np.unique(rng.integers(0, table.num_rows + 1, 6))
    bounds = [0, *cuts.tolist(), table.num_rows]
    options = fermion.WriteOptions(page_rows_max=size, stripe_rows=50)
    with fermion.Writer(sink, table.schema, options=options) as writer:
        for number, (start, stop) in enumerate(pairwise(bounds)):
            writer.append_batch(number, table.slice(start, stop - start))
    with fermion.open(sink.getvalue()) as file:
        for number, (start, stop) in enumerate(pairwise(bounds)):
            assert_logically_equal(file.read_batch(number), table.slice(start, stop - start))


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_chunks_say_whether_their_null_slots_are_left_out(share: float) -> None:
    rng = np.random.default_rng(0)
    values = pa.array(rng.random(5000), mask=rng.random(5000) < share)
    with fermion.open(stored(pa.table({"a": values}), page_rows_max=1024)) as file:
        (flags,) = leaf_flags(file, "a")
        assert bool(flags & ChunkFlag.DENSE_NO_NULL_SLOTS) == (share > NULLS_SHARE_MIN)


@pytest.mark.parametrize("kind", ["doubles", "strings", "flags"])
def test_half_null_columns_of_noise_need_half_the_bytes(kind: str) -> None:
    """Beside their validity, and for strings beside their text: within 3 % of what values need."""
    rng = np.random.default_rng(0)
    mask = rng.random(50_000) < 0.5
    noise = {
        "doubles": pa.array(rng.random(50_000)),
        "strings": pa.array([f"{number:09d}" for number in rng.integers(0, 10**9, 50_000)]),
        "flags": pa.array(rng.random(50_000) < 0.5),
    }[kind]
    sparse = pa.array(noise.to_pylist(), noise.type, mask=mask)
    sizes = []
    for column in (noise.filter(pa.array(~mask)), sparse):
        data = stored(pa.table({"a": column}), profile="fast")
        with fermion.open(data) as file:
            sizes.append(file.column("a").streams[1].length)
    assert sizes[1] <= 1.03 * sizes[0]


def test_dictionaries_of_sparse_columns_hold_no_null() -> None:
    rng = np.random.default_rng(0)
    words = pa.array([None if n < 60 else f"word {n}" for n in rng.integers(0, 100, 9000)])
    options = fermion.ReadOptions(keep_dictionaries=True)
    with fermion.open(stored(pa.table({"w": words}), page_rows_max=2048), options=options) as file:
        found = file.read()["w"]
        assert set(found.chunk(0).dictionary.to_pylist()) == set(words.to_pylist()) - {None}
        assert found.cast(pa.string()).equals(pa.chunked_array([words]))
        part = file.read(rows=(3000, 3007))["w"]
        assert part.cast(pa.string()).to_pylist() == words.to_pylist()[3000:3007]


def test_a_row_of_a_sparse_column_needs_one_page_of_each_stream() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"a": pa.array(rng.random(100_000), mask=rng.random(100_000) < 0.6)})
    with fermion.open(stored(table, page_bytes=64 * 1024)) as file:
        validity, data = (stream.chunks[0].pages for stream in file.column("a").streams)
        before = file.io_stats.bytes_used
        assert_logically_equal(file.take([43_210]), table.slice(43_210, 1))
        used = file.io_stats.bytes_used - before
    assert len(data) > 10
    assert used == validity[0].length + data[43_210 // 8192].length


def test_bits_are_among_the_values_that_lose_their_null_slots() -> None:
    values, validity = with_nulls(BITS, 3000, 0.9, "random", 1)
    chunk = encode_chunk(
        values, BITS, np.array([0, 3000]), options=WriteOptions(profile="fast"), validity=validity
    )
    assert len(chunk.pages[0]) < 24 + 16 + 3000 / 8 * 0.15
