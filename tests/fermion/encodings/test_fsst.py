"""Symbols: both twins agree on every byte, damage is refused, and a slot needs its block alone."""

from __future__ import annotations

import io
import struct
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import kernels as compiled
from fermion.columns.types import BINARY, BinaryValues, slice_values
from fermion.encodings import fsst
from fermion.encodings.choice.choose import choose, plain_size
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.decoding import TreeSlice, decode_trees
from fermion.encodings.encoding import Recipe, parse_node
from fermion.errors import FermionError, InvalidFileError
from fermion.layout import EncodingId
from fermion.options import PROFILES, WriteOptions
from fermion.pages.pages import encode_chunk
from tests.kit.files.physical_values import assert_same, assert_slots_same, binary_values
from tests.kit.numpy_kernels import fsst as reference_fsst
from tests.kit.numpy_kernels import picks as reference_picks

BOTH = pytest.mark.parametrize("k", [compiled, reference_fsst], ids=["compiled", "reference"])
WORDS = [b"carefully", b"final", b"deposits", b"sleep", b"quickly", b"among", b"the", b"regular"]
RECIPE = Recipe(EncodingId.FSST, (Recipe(EncodingId.FOR_BITPACK),))
SETTINGS = policy_for(WriteOptions(profile="random")).settings

few = settings(max_examples=settings.default.max_examples // 4)


def texts_of(kind: str, count: int, seed: int = 0) -> BinaryValues:
    """Byte strings of one kind."""
    rng = np.random.default_rng(seed)
    if kind == "words":
        return binary_values([b" ".join(rng.choice(WORDS, 6)) for _ in range(count)])
    lengths = rng.choice([0, 1, 2, 7, 8, 9, 30], count).tolist()
    letters = {"noise": 256, "letters": 3, "zeros": 1}[kind]
    return binary_values(
        [rng.integers(0, letters, length, np.uint8).tobytes() for length in lengths]
    )


def encoded(k: ModuleType, values: BinaryValues, sizes: np.ndarray, symbols: np.ndarray):
    """The codes of some strings, and where each string's end."""
    out = np.empty(2 * int(values.offsets[-1]), np.uint8)
    ends = np.empty(len(values), np.int64)
    used = k.fsst_encode(values.offsets, values.data, sizes, symbols, out, ends)
    return out[:used], ends


@few
@given(
    kind=st.sampled_from(["words", "noise", "letters", "zeros"]),
    count=st.sampled_from([0, 1, 2, 30, 120]),
    seed=st.integers(0, 1000),
    kept=st.sampled_from([0, 1, 7, 255]),
)
def test_both_twins_train_encode_and_decode_alike(kind: str, count: int, seed: int, kept: int):
    """With all of the symbols that were trained, and with a few of them."""
    values = texts_of(kind, count, seed)
    sizes, symbols = compiled.fsst_train(values.offsets, values.data)
    twins = reference_fsst.fsst_train(values.offsets, values.data)
    assert (sizes.tolist(), symbols.tobytes()) == (twins[0].tolist(), twins[1].tobytes())
    sizes = sizes[:kept]
    symbols = symbols[: int(sizes.sum())]
    codes, ends = encoded(compiled, values, sizes, symbols)
    others, other_ends = encoded(reference_fsst, values, sizes, symbols)
    assert (codes.tobytes(), ends.tolist()) == (others.tobytes(), other_ends.tolist())
    for first, last in {(0, count), (count // 3, count // 2)}:
        skip, stop = values.offsets[[first, last]].tolist()
        for k in (compiled, reference_fsst):
            out = np.empty(stop - skip, np.uint8)
            used = k.fsst_decode(codes, sizes, symbols, skip, out)
            assert used == (ends[last - 1] if stop else 0) or stop == skip
            assert out.tobytes() == values.data[skip:stop].tobytes()


PICKS = pytest.mark.parametrize("k", [compiled, reference_picks], ids=["compiled", "reference"])


@few
@given(
    kind=st.sampled_from(["words", "noise", "letters", "zeros"]),
    block=st.sampled_from([1, 2, 16, 64, 1024]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_any_slots_are_picked_alone(kind: str, block: int, seed: int, data: st.DataObject):
    """By both twins, which refuse alike what is not as the bounds say."""
    values = texts_of(kind, 150, seed)
    sizes, symbols = compiled.fsst_train(values.offsets, values.data)
    codes, ends = encoded(compiled, values, sizes, symbols)
    code_ends = ends[np.minimum(np.arange(block, 150 + block, block), 150) - 1]
    slots = np.array(sorted(data.draw(st.sets(st.integers(0, 149), max_size=30))), np.int64)
    expected = b"".join(
        values.data[values.offsets[slot] : values.offsets[slot + 1]].tobytes() for slot in slots
    )
    damaged = codes.copy()
    for place in data.draw(st.lists(st.integers(0, max(len(codes) - 1, 0)), max_size=3)):
        damaged[place : place + 1] = data.draw(st.integers(0, 255))
    found = []
    for k in (compiled, reference_picks):
        out = np.empty(len(expected), np.uint8)
        k.fsst_pick(codes, code_ends, block, values.offsets, sizes, symbols, slots, out)
        assert out.tobytes() == expected
        try:
            k.fsst_pick(damaged, code_ends, block, values.offsets, sizes, symbols, slots, out)
            found.append(out.tobytes())
        except ValueError:
            found.append(b"refused")
    assert found[0] == found[1]


@PICKS
def test_picks_that_do_not_fit_are_refused(k: ModuleType):
    """Codes of three values in two blocks, and one argument at a time that contradicts the rest."""
    fine = {
        "codes": np.frombuffer(b"\0\1\2", np.uint8),
        "code_ends": np.array([2, 3]),
        "block_slots": 2,
        "bounds": np.array([0, 1, 3, 11]),
        "sizes": np.array([1, 2, 8], np.uint8),
        "symbols": np.frombuffer(b"abcdefghijk", np.uint8),
        "slots": np.array([1, 2]),
        "out": np.empty(10, np.uint8),
    }
    k.fsst_pick(*fine.values())
    assert fine["out"].tobytes() == b"bcdefghijk"
    for name, wrong in [
        ("codes", np.frombuffer(b"\0\1\3", np.uint8)),
        ("codes", np.frombuffer(b"\0\1", np.uint8)),
        ("codes", np.frombuffer(b"\0\1\xff", np.uint8)),
        ("code_ends", np.array([3])),
        ("code_ends", np.array([3, 2])),
        ("code_ends", np.array([1, 3])),
        ("block_slots", 0),
        ("block_slots", 1),
        ("bounds", np.array([0, 2, 3, 12])),
        ("bounds", np.array([0, 3, 1, 11])),
        ("slots", np.array([2, 1])),
        ("slots", np.array([1, 3])),
        ("slots", np.array([-1, 2])),
        ("out", np.empty(9, np.uint8)),
    ]:
        with pytest.raises(ValueError):
            k.fsst_pick(*{**fine, name: wrong}.values())


@BOTH
def test_offsets_into_the_middle_of_bytes_are_taken(k: ModuleType):
    values = texts_of("words", 40)
    part = values.offsets[3:9]
    sizes, symbols = k.fsst_train(part, values.data)
    out, ends = np.empty(2 * int(part[-1] - part[0]), np.uint8), np.empty(5, np.int64)
    used = k.fsst_encode(part, values.data, sizes, symbols, out, ends)
    back = np.empty(int(part[-1] - part[0]), np.uint8)
    assert k.fsst_decode(out[:used], sizes, symbols, 0, back) == used
    assert back.tobytes() == values.data[part[0] : part[-1]].tobytes()


def one(k: ModuleType, codes: bytes, skip: int, size: int) -> bytes:
    """Decode with the symbols "a", "bc" and "defghijk"."""
    out = np.empty(size, np.uint8)
    sizes = np.array([1, 2, 8], np.uint8)
    symbols = np.frombuffer(b"abcdefghijk", np.uint8)
    k.fsst_decode(np.frombuffer(codes, np.uint8), sizes, symbols, skip, out)
    return out.tobytes()


@BOTH
def test_codes_stand_for_symbols_and_escaped_bytes(k: ModuleType):
    assert one(k, b"\0\1\2\xff!", 0, 12) == b"abcdefghijk!"
    assert one(k, b"\0\1\2\xff!", 3, 8) == b"defghijk"
    assert one(k, b"\0\xff\xff" * 100, 0, 200) == b"a\xff" * 100
    assert one(k, b"", 0, 0) == b""


@BOTH
@pytest.mark.parametrize(
    ("codes", "skip", "size"),
    [
        (b"\0", 0, 2),
        (b"", 0, 1),
        (b"", 1, 0),
        (b"\0\xff", 0, 2),
        (b"\xff", 1, 0),
        (b"\3", 0, 1),
        (b"\0" * 100 + b"\3" + b"\0" * 100, 0, 150),
        (b"\x80", 1, 1),
        (b"\2", 0, 7),
        (b"\2\0", 3, 6),
        (b"\2" * 40, 0, 8 * 40 - 1),
        (b"\0", -1, 0),
    ],
)
def test_codes_that_do_not_fit_are_refused(k: ModuleType, codes: bytes, skip: int, size: int):
    with pytest.raises(ValueError):
        one(k, codes, skip, size)


@BOTH
@pytest.mark.parametrize(
    ("sizes", "symbols"), [([0], b""), ([9], b"abcdefghi"), ([2], b"a"), ([2], b"abc"), ([], b"a")]
)
def test_symbols_of_wrong_sizes_are_refused(k: ModuleType, sizes: list[int], symbols: bytes):
    with pytest.raises(ValueError):
        k.fsst_decode(
            np.zeros(1, np.uint8),
            np.array(sizes, np.uint8),
            np.frombuffer(symbols, np.uint8),
            0,
            np.empty(1, np.uint8),
        )
    with pytest.raises(ValueError):
        encoded(
            k, texts_of("words", 3), np.array(sizes, np.uint8), np.frombuffer(symbols, np.uint8)
        )


@BOTH
def test_too_many_symbols_and_too_little_room_are_refused(k: ModuleType):
    values = texts_of("words", 3)
    full = np.ones(256, np.uint8)
    with pytest.raises(ValueError):
        encoded(k, values, full, full)
    room = np.empty(2 * int(values.offsets[-1]), np.uint8)
    for out, ends in ((room[1:], np.empty(3, np.int64)), (room, np.empty(2, np.int64))):
        with pytest.raises(ValueError):
            k.fsst_encode(values.offsets, values.data, full[:1], full[:1], out, ends)
    for offsets in ([0, 10**6], [5, 3], [-1, 3]):
        with pytest.raises(ValueError):
            k.fsst_train(np.array(offsets), values.data)


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_random_codes_give_bytes_or_an_error_from_both(seed: int):
    """Damage: both twins decode to the same bytes, or both refuse."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 256))
    sizes = rng.integers(1, 9, count).astype(np.uint8)
    symbols = rng.integers(0, 256, int(sizes.sum()), np.uint8)
    codes = rng.integers(0, rng.choice([max(count, 1), 256]), 300).astype(np.uint8)
    skip, size = int(rng.choice([0, 3])), int(rng.choice([0, 1, 64, 65, 400]))
    found = []
    for k in (compiled, reference_fsst):
        out = np.empty(size, np.uint8)
        try:
            found.append((k.fsst_decode(codes, sizes, symbols, skip, out), out.tobytes()))
        except ValueError:
            found.append(None)
    assert found[0] == found[1]


def tree_of(values: BinaryValues) -> bytes:
    return b"".join(map(bytes, SETTINGS.encode(values, BINARY, RECIPE)))


def as_it_is(_: int, error: Exception) -> FermionError:
    return error if isinstance(error, FermionError) else InvalidFileError(str(error))


def decode(tree: bytes, count: int, start: int, stop: int) -> BinaryValues:
    part = TreeSlice(parse_node(tree, 0, len(tree), 1), count, range(start, stop), 2**40)
    return decode_trees([part], BINARY, None, as_it_is)


def codes_of(tree: bytes, count: int) -> tuple[int, int, list[int]]:
    """Slots of a block, where the codes start in the tree, and where each block's end."""
    block, known = struct.unpack_from("<IB", tree, 8)
    blocks = -(-count // block)
    ends = np.frombuffer(tree, "<u4", blocks, 16).tolist()
    at = 16 + 4 * blocks
    return block, at + known + sum(tree[at : at + known]), ends


def test_one_string_is_read_from_its_own_block():
    """The codes of every other block are overwritten with codes that end too early."""
    values = texts_of("words", 2000)
    tree = bytearray(tree_of(values))
    block, start, ends = codes_of(tree, len(values))
    assert 16 <= block <= 64
    assert len(ends) > 30
    wanted = 11
    for at, (low, high) in enumerate(zip([0, *ends], ends, strict=False)):
        if at != wanted:
            tree[start + low : start + high] = b"\xff" * (high - low)
    for low, high in [(0, 1), (0, block), (block - 1, block), (3, 9)]:
        first, last = wanted * block + low, wanted * block + high
        found = decode(bytes(tree), len(values), first, last)
        assert_same(found, slice_values(values, first, last))


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (8, 0, "blocks of at least 1 value"),
        (8, 1, "fsst node at byte 0: expected"),
        (12, 0, "encoding tree"),
        (13, 3, "bytes"),
    ],
)
def test_a_node_that_contradicts_itself_is_refused(offset: int, value: int, what: str):
    values = texts_of("words", 300)
    tree = bytearray(tree_of(values))
    tree[offset] = value
    with pytest.raises(InvalidFileError, match=what):
        decode(bytes(tree), 300, 0, 300)


def test_a_block_that_ends_before_it_starts_is_refused():
    values = texts_of("words", 300)
    tree = bytearray(tree_of(values))
    block = codes_of(tree, 300)[0]
    tree[16 + 4 * 5 : 16 + 4 * 6] = b"\xff" * 4
    with pytest.raises(InvalidFileError, match="blocks 6 to 6 have codes"):
        decode(bytes(tree), 300, 6 * block, 6 * block + 2)


def test_codes_after_the_last_value_are_refused():
    values = binary_values([b"ab", b"cd"])
    tree = bytearray(tree_of(values))
    _, start, ends = codes_of(tree, 2)
    assert tree[start : start + ends[-1]] == b"\xffa\xffb\xffc\xffd"
    tree[start : start + 4] = b"\0\0\0\0"
    with pytest.raises(InvalidFileError, match="a code is not below"):
        decode(bytes(tree), 2, 0, 2)


def test_a_value_longer_than_a_block_gets_a_block_of_its_own():
    values = binary_values([b"abcdefgh" * 40_000, b"", b"x", b"abcdefgh" * 4000])
    tree = tree_of(values)
    assert codes_of(tree, 4)[0] == 1
    assert len(tree) < values.data.nbytes / 4
    for low, high in [(0, 4), (1, 2), (1, 3), (3, 4)]:
        assert_same(decode(tree, 4, low, high), slice_values(values, low, high))


def test_symbols_are_chosen_in_the_profiles_without_frames_only():
    values = texts_of("words", 8000)
    chosen = {
        profile: choose(values, BINARY, 1, options=WriteOptions(profile=profile)).recipe.encoding
        for profile in PROFILES
    }
    assert chosen == {
        "balanced": EncodingId.SPLIT_LENGTHS,
        "compact": EncodingId.SPLIT_LENGTHS,
        "fast": EncodingId.FSST,
        "random": EncodingId.FSST,
    }


@pytest.mark.parametrize("profile", ["fast", "random"])
def test_the_estimate_is_near_the_bytes_written(profile: str):
    values = texts_of("words", 30_000)
    options = WriteOptions(profile=profile)
    choice = choose(values, BINARY, 1, options=options)
    chunk = encode_chunk(values, BINARY, np.array([0, len(values)]), options=options)
    written = sum(map(len, chunk.pages))
    assert 0.9 * written <= choice.size <= 1.1 * written


@pytest.mark.parametrize("kind", ["noise", "letters", "words"])
@pytest.mark.parametrize("count", [1, 5, 3000])
def test_a_page_of_symbols_is_never_larger_than_a_plain_one(kind: str, count: int):
    """Forced on noise, which symbols only make longer, the page is plain."""
    values = texts_of(kind, count)
    cuts = np.array([0, count])
    chunk = encode_chunk(values, BINARY, cuts, options=WriteOptions(), forced="fsst")
    assert len(chunk.pages[0]) <= 16 + plain_size(values, BINARY)
    assert_slots_same(chunk, cuts, BINARY, values, [(0, count), (count // 2, count)])


@pytest.mark.parametrize("profile", ["fast", "random"])
def test_null_slots_are_left_out_of_pages_of_symbols(profile: str):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["carefully", "final", "deposits"], 9)) for _ in range(3000)]
    table = pa.table({"a": [text if i % 3 == 0 else None for i, text in enumerate(texts)]})
    sink = io.BytesIO()
    fermion.write_table(table, sink, profile=profile, page_rows_max=1000)
    with fermion.open(sink.getvalue()) as file:
        (chunk,) = file.column("a").streams[1].chunks
        assert {page.encoding for page in chunk.pages} == {"fsst"}
        assert file.read().equals(table)
        assert file.take([3, 4, 2999]).equals(table.take([3, 4, 2999]))


def test_a_value_that_symbols_only_make_longer_is_stored_plain():
    values = binary_values([np.random.default_rng(0).bytes(100_000)])
    chunk = encode_chunk(values, BINARY, np.array([0, 1]), options=WriteOptions(), forced="fsst")
    assert int.from_bytes(chunk.pages[0][2:4], "little") == EncodingId.PLAIN


def symbols_of(page: bytes, slots: int) -> bytes:
    """The sizes and the symbols of a page."""
    tree = page[16:]
    start = codes_of(tree, slots)[1]
    return bytes(tree[16 + 4 * -(-slots // struct.unpack_from("<I", tree, 8)[0]) : start])


def test_the_pages_of_a_chunk_share_symbols_until_those_no_longer_serve():
    """Four pages of one kind of text, then four of another: trained twice."""
    first = texts_of("words", 4000)
    rng = np.random.default_rng(1)
    digits = binary_values([b"%d,%d" % tuple(rng.integers(0, 10**6, 2)) for _ in range(4000)])
    data = np.concatenate((first.data, digits.data))
    both = BinaryValues(
        np.concatenate((first.offsets, digits.offsets[1:] + first.offsets[-1])), data
    )
    cuts = np.arange(0, 8001, 1000)
    chunk = encode_chunk(both, BINARY, cuts, options=WriteOptions(), forced="fsst")
    found = [symbols_of(page, 1000) for page in chunk.pages]
    assert len(set(found[:4])) == len(set(found[4:])) == 1
    assert found[0] != found[4]
    assert_slots_same(chunk, cuts, BINARY, both, [(0, 8000), (3999, 4001)])
    again = encode_chunk(both, BINARY, cuts, options=WriteOptions(), forced="fsst")
    assert again == chunk


def test_the_sample_is_bounded_however_long_a_value_is():
    """Training sees 32 KiB of ten million bytes, so its time does not grow with them."""
    values = binary_values([b"abc" * 3_000_000, b"", b"defg" * 300_000])
    sample = fsst.sample_of(values)
    assert int(sample.offsets[-1]) == sample.data.nbytes == 32 * 1024
    assert np.all(np.diff(sample.offsets) >= 0)
    assert set(sample.data.tobytes()) == set(b"abcdefg")
