"""Each encoding gives back what it was given, in any slice, and refuses what it cannot hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.columns.slots import take_values
from fermion.columns.types import (
    BINARY,
    INT64,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    number,
    slice_values,
)
from fermion.encodings import alp, split_lengths
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.decoding import TreeSlice, decode_trees
from fermion.encodings.encoding import BITMAP, CONSTANT, PLAIN, Recipe, node_size, parse_node
from fermion.encodings.registry import ENCODINGS
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedEncodingError
from fermion.io.compression import compress
from fermion.layout import NODE_DEPTH_MAX, EncodingId
from fermion.options import WriteOptions
from tests.kit.files.physical_values import (
    FIXED,
    FLOATS,
    INTEGERS,
    SHAPES,
    TYPES,
    assert_same,
    binary_values,
    make_values,
    special_floats,
    values_of,
)

FOR = Recipe(EncodingId.FOR_BITPACK)
PCODEC = Recipe(EncodingId.PCODEC)
ZSTD = Recipe(EncodingId.ZSTD, (PLAIN,))
LZ4 = Recipe(EncodingId.LZ4, (PLAIN,))
SPLIT = Recipe(EncodingId.BYTE_STREAM_SPLIT, (ZSTD,))
WIDE = [physical for physical in FIXED if physical.width in (16, 32)]
STRINGS = Recipe(EncodingId.SPLIT_LENGTHS, (PCODEC, ZSTD))
SYMBOLS = Recipe(EncodingId.FSST, (PCODEC,))
SETTINGS = policy_for(WriteOptions()).settings

# Every encoding, alone and above others: (recipe, types it holds).
RECIPES: dict[str, tuple[Recipe, list[PhysicalType]]] = {
    "plain": (PLAIN, [*INTEGERS, *FLOATS, *FIXED, BINARY]),
    "bitmap": (BITMAP, [TYPES[0]]),
    "for_bitpack": (FOR, INTEGERS),
    "pcodec": (PCODEC, [*INTEGERS, *FLOATS]),
    "delta": (Recipe(EncodingId.DELTA, (FOR,)), INTEGERS),
    "delta over pcodec": (Recipe(EncodingId.DELTA, (PCODEC,)), INTEGERS),
    "byte_stream_split": (SPLIT, [*INTEGERS, *FLOATS, *FIXED]),
    "rle": (Recipe(EncodingId.RLE, (FOR, PLAIN)), [*INTEGERS, *FLOATS, *FIXED]),
    "rle over pcodec": (Recipe(EncodingId.RLE, (PCODEC, PCODEC)), [*INTEGERS, *FLOATS]),
    "alp": (Recipe(EncodingId.ALP, (FOR,)), FLOATS[1:]),
    "zstd": (ZSTD, [*INTEGERS, *FLOATS, *FIXED, BINARY]),
    "zstd over bits": (Recipe(EncodingId.ZSTD, (BITMAP,)), [TYPES[0]]),
    "lz4": (LZ4, [*INTEGERS, *FLOATS, *FIXED, BINARY]),
    "lz4 over bits": (Recipe(EncodingId.LZ4, (BITMAP,)), [TYPES[0]]),
    "narrow": (Recipe(EncodingId.NARROW, (FOR,)), WIDE),
    "narrow over pcodec": (Recipe(EncodingId.NARROW, (PCODEC,)), WIDE),
    "split_lengths": (Recipe(EncodingId.SPLIT_LENGTHS, (FOR, PLAIN)), [BINARY]),
    "split_lengths with zstd": (STRINGS, [BINARY]),
    "fsst": (Recipe(EncodingId.FSST, (FOR,)), [BINARY]),
    "fsst over pcodec": (SYMBOLS, [BINARY]),
    "split_lengths with lz4": (Recipe(EncodingId.SPLIT_LENGTHS, (FOR, LZ4)), [BINARY]),
    "local dictionary": (
        Recipe(EncodingId.DICTIONARY_LOCAL, (FOR, PLAIN)),
        [*INTEGERS, *FLOATS, *FIXED, BINARY],
    ),
    "local dictionary over pcodec": (
        Recipe(EncodingId.DICTIONARY_LOCAL, (PCODEC, PCODEC)),
        [*INTEGERS, *FLOATS],
    ),
    "local dictionary of strings": (
        Recipe(EncodingId.DICTIONARY_LOCAL, (Recipe(EncodingId.RLE, (FOR, FOR)), STRINGS)),
        [BINARY],
    ),
    "local dictionary of symbols": (
        Recipe(EncodingId.DICTIONARY_LOCAL, (FOR, SYMBOLS)),
        [BINARY],
    ),
}
BIT_EXACT = [name for name, (_, types) in RECIPES.items() if FLOATS[0] in types]
CASES = [
    pytest.param(recipe, physical, id=f"{name}-{physical.kind.name}{physical.width}")
    for name, (recipe, types) in RECIPES.items()
    for physical in types
]


def encode(values: Values, physical: PhysicalType, recipe: Recipe) -> bytes:
    parts = SETTINGS.encode(values, physical, recipe)
    tree = b"".join(parts)
    assert len(tree) == node_size(parts)
    assert len(tree) % 8 == 0
    return tree


def decode(tree: bytes, physical: PhysicalType, count: int, start: int, stop: int) -> Values:
    root = parse_node(tree, 0, len(tree), 1)
    part = TreeSlice(root, count, range(start, stop), 2**40)
    return decode_trees([part], physical, None, lambda _, error: error)


@pytest.mark.parametrize(("recipe", "physical"), CASES)
@settings(max_examples=6)
@given(data=st.data())
def test_every_encoding_gives_back_any_slice_of_any_values(
    recipe: Recipe, physical: PhysicalType, data: st.DataObject
) -> None:
    values = data.draw(values_of(physical))
    if recipe.encoding in (EncodingId.NARROW, EncodingId.ALP):
        shape = data.draw(
            st.sampled_from([shape for shape in SHAPES if shape not in ("random", "extremes")])
        )
        values = make_values(physical, len(values), shape, 7)
    tree = encode(values, physical, recipe)
    count = len(values)
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    for low, high in {(0, count), (start, stop), (start, start + 1), (count - 1, count)}:
        assert_same(decode(tree, physical, count, low, high), slice_values(values, low, high))


@pytest.mark.parametrize(
    ("recipe", "physical"), [case for case in CASES if case.values[1] is not TYPES[0]]
)
@settings(max_examples=4)
@given(data=st.data())
def test_every_encoding_gives_back_any_single_slots(
    recipe: Recipe, physical: PhysicalType, data: st.DataObject
) -> None:
    """Few and many, near each other and far apart; of three trees, in one call."""
    shape = data.draw(st.sampled_from(["few", "runs", "small", "sorted"]))
    values = make_values(physical, data.draw(st.sampled_from([1, 300, 5000])), shape, 7)
    tree = encode(values, physical, recipe)
    root = parse_node(tree, 0, len(tree), 1)
    count, parts, wanted = len(values), [], []
    for _ in range(3):
        slots = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
        parts.append(TreeSlice(root, count, slots, 2**40))
        wanted.append(slots)
    found = decode_trees(parts, physical, None, lambda _, error: error)
    assert_same(found, take_values(values, np.concatenate(wanted)))


@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
def test_constant_gives_back_its_value(physical: PhysicalType) -> None:
    values = make_values(physical, 2500, "constant", 3)
    tree = encode(values, physical, CONSTANT)
    assert len(tree) <= 64
    for low, high in [(0, 2500), (1, 2), (13, 2499)]:
        assert_same(decode(tree, physical, 2500, low, high), slice_values(values, low, high))


@pytest.mark.parametrize(
    "name", [name for name, (_, types) in RECIPES.items() if FLOATS[0] in types]
)
@pytest.mark.parametrize("physical", FLOATS, ids=lambda it: it.kind.name)
def test_every_bit_of_a_float_survives(name: str, physical: PhysicalType) -> None:
    """NaN payloads, signs of zeros and subnormals, among ordinary values and alone."""
    special = special_floats(physical.dtype)
    ordinary = np.round(np.random.default_rng(0).normal(0, 100, 5000), 2).astype(physical.dtype)
    ordinary[100::37] = np.resize(special, len(ordinary[100::37]))
    for values in (special, ordinary, np.repeat(special, 40)):
        tree = encode(values, physical, RECIPES[name][0])
        assert_same(decode(tree, physical, len(values), 0, len(values)), values)


@pytest.mark.parametrize("physical", FLOATS[1:], ids=lambda it: it.kind.name)
def test_floats_that_are_no_decimals_are_exceptions_among_decimals(physical: PhysicalType) -> None:
    recipe = RECIPES["alp"][0]
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(0, 100, 5000), 2).astype(physical.dtype)
    values[100::37] = np.resize(special_floats(physical.dtype), len(values[100::37]))
    tree = encode(values, physical, recipe)
    assert len(tree) < values.nbytes / 1.5
    for low, high in [(0, 5000), (99, 102), (101, 137), (4000, 4001), (136, 5000)]:
        assert_same(decode(tree, physical, 5000, low, high), values[low:high])
    with pytest.raises(InvalidArgumentError, match="not decimals"):
        encode(special_floats(physical.dtype), physical, recipe)


@pytest.mark.parametrize("exponent", range(16))
def test_decimals_of_fifteen_digits_need_no_exceptions(exponent: int) -> None:
    digits = np.random.default_rng(exponent).integers(-(10**15), 10**15, 1000)
    values = np.array([float(f"{number}e-{exponent}") for number in digits.tolist()])
    found = alp.decimal_exponent(values)
    assert found == exponent
    assert len(alp.to_integers(values, exponent)[1]) == 0


@pytest.mark.parametrize(
    ("recipe", "values", "physical"),
    [
        (CONSTANT, np.array([1, 2]), INT64),
        (CONSTANT, np.array([0.0, -0.0]), number(PhysicalKind.FLOAT64)),
        (CONSTANT, binary_values([b"a", b"b"]), BINARY),
        (CONSTANT, binary_values([b"", b"b"]), BINARY),
        (CONSTANT, Bits.pack(np.array([True, False])), TYPES[0]),
        (PLAIN, Bits.pack(np.array([True])), TYPES[0]),
        (BITMAP, np.array([1]), INT64),
        (FOR, np.array([1.5]), number(PhysicalKind.FLOAT64)),
        (PCODEC, binary_values([b"a"]), BINARY),
        (PCODEC, np.empty(0, np.int64), INT64),
        (Recipe(EncodingId.DELTA, (FOR,)), np.array([1.5]), number(PhysicalKind.FLOAT64)),
        (Recipe(EncodingId.RLE, (FOR, FOR)), binary_values([b"a"]), BINARY),
        (Recipe(EncodingId.NARROW, (FOR,)), np.array([b"\xff" * 8 + b"\0" * 8], "V16"), FIXED[4]),
        (Recipe(EncodingId.NARROW, (FOR,)), np.array([1]), INT64),
        (SPLIT, binary_values([b"a"]), BINARY),
        (STRINGS, np.array([1]), INT64),
        (SYMBOLS, np.array([1]), INT64),
        (Recipe(EncodingId.DICTIONARY_LOCAL, (FOR, PLAIN)), Bits.pack(np.ones(9, bool)), TYPES[0]),
    ],
)
def test_an_encoding_refuses_what_it_cannot_hold(
    recipe: Recipe, values: Values, physical: PhysicalType
) -> None:
    with pytest.raises(InvalidArgumentError):
        encode(values, physical, recipe)


def test_equal_floats_of_different_bits_are_not_constant() -> None:
    values = np.array([0x7FF8000000000001, 0x7FF8000000000002], np.uint64).view(np.float64)
    with pytest.raises(InvalidArgumentError):
        encode(values, number(PhysicalKind.FLOAT64), CONSTANT)


@pytest.fixture
def texts() -> BinaryValues:
    rng = np.random.default_rng(1)
    words = [b"carefully", b"final", b"deposits", b"sleep", b"quickly", b"among", b"regular"]
    return binary_values(
        [b" ".join(words[k] for k in rng.integers(0, 7, 6)) for _ in range(12_000)]
    )


def test_one_string_is_read_by_decompressing_one_frame(
    texts: BinaryValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = encode(texts, BINARY, STRINGS)
    sizes = []
    original = split_lengths.unpack

    def counted(codec: int, frame: memoryview, raw_length: int) -> bytes | memoryview:
        sizes.append(raw_length)
        return original(codec, frame, raw_length)

    monkeypatch.setattr(split_lengths, "unpack", counted)
    for slot in (0, 5000, 11_999):
        sizes.clear()
        found = decode(tree, BINARY, len(texts), slot, slot + 1)
        assert_same(found, slice_values(texts, slot, slot + 1))
        assert len(sizes) == 1
        assert sizes[0] <= 129 * 1024 < texts.offsets[-1] / 3


def test_frames_hold_whole_values_of_nearly_equal_bytes(texts: BinaryValues) -> None:
    ends = split_lengths.frame_slot_ends(texts.offsets, 64 * 1024)
    sizes = np.diff(texts.offsets[np.append(0, ends)])
    assert ends[-1] == len(texts)
    assert sizes.max() <= 64 * 1024 + 100
    assert sizes.min() >= 32 * 1024


@pytest.mark.parametrize("longest", [0, 10, 70_000])
def test_values_longer_than_a_frame_get_frames_of_their_own(longest: int) -> None:
    items = [b"x" * longest, b"", b"y" * 200_000, b"", b"z" * longest, b"y" * 200_000]
    values = binary_values(items)
    tree = encode(values, BINARY, STRINGS)
    for low, high in [(0, 6), (2, 3), (3, 6), (1, 2), (5, 6)]:
        assert_same(decode(tree, BINARY, 6, low, high), slice_values(values, low, high))


def test_one_number_is_read_from_its_own_pcodec_block() -> None:
    """Every other block is overwritten: only the one that is asked for may be looked at."""
    values = np.random.default_rng(2).integers(0, 1000, 40_000)
    tree = bytearray(encode(values, INT64, PCODEC))
    blocks = -(-len(values) // SETTINGS.block_slots)
    block_slots, meta_length = np.frombuffer(tree, "<u4", 2, 8)
    assert block_slots == SETTINGS.block_slots
    ends = np.frombuffer(tree, "<u4", blocks, 16).tolist()
    base = 16 + 4 * blocks + int(meta_length)
    wanted = 5
    for block in range(blocks):
        if block != wanted:
            start = base + (ends[block - 1] if block else 0)
            tree[start : base + ends[block]] = b"\xff" * (base + ends[block] - start)
    low = wanted * int(block_slots)
    found = decode(bytes(tree), INT64, len(values), low + 7, low + 300)
    assert_same(found, values[low + 7 : low + 300])


def _nest(tree: bytes) -> bytes:
    parts = SETTINGS.encodings[EncodingId.ZSTD].encode(
        np.zeros(1), INT64, Recipe(EncodingId.ZSTD, (PLAIN,)), SETTINGS
    )
    raw = b"".join(parts)
    frame = compress(tree, 1)
    length = 8 + len(frame)
    length += -length % 8
    return (
        raw[:4]
        + length.to_bytes(4, "little")
        + len(tree).to_bytes(8, "little")
        + frame.ljust(length - 8, b"\0")
    )


def test_a_tree_deeper_than_the_limit_is_refused() -> None:
    values = np.arange(100)
    tree = encode(values, INT64, PLAIN)
    for _ in range(NODE_DEPTH_MAX - 1):
        tree = _nest(tree)
    assert_same(decode(tree, INT64, 100, 0, 100), values)
    with pytest.raises(InvalidFileError, match="at most 4 levels"):
        decode(_nest(tree), INT64, 100, 0, 100)


def test_an_unknown_encoding_is_named() -> None:
    tree = bytearray(encode(np.arange(9), INT64, PLAIN))
    tree[0] = 99
    with pytest.raises(UnsupportedEncodingError, match="99"):
        decode(bytes(tree), INT64, 9, 0, 9)


def test_unknown_flags_are_refused() -> None:
    tree = bytearray(encode(np.arange(9), INT64, PLAIN))
    tree[3] = 128
    with pytest.raises(UnsupportedEncodingError, match="flags 0x80"):
        decode(bytes(tree), INT64, 9, 0, 9)


@pytest.mark.parametrize("physical", [TYPES[0], INT64, FLOATS[2], FIXED[4], BINARY])
def test_an_encoding_of_another_type_is_refused(physical: PhysicalType) -> None:
    """Trees of every encoding, read as a type that they do not hold."""
    wrong = {"plain": BINARY, "constant": INT64}
    for name, (recipe, types) in RECIPES.items():
        if (
            physical in types
            or name in wrong
            or "zstd" in name
            or "lz4" in name
            or "byte_stream" in name
        ):
            continue
        tree = encode(make_values(types[0], 500, "few", 1), types[0], recipe)
        with pytest.raises(InvalidFileError):
            decode(tree, physical, 500, 0, 500)


def test_the_registry_names_every_encoding_by_its_id() -> None:
    """Entries are text until they are asked for, which no type checker looks into."""
    assert all(encoding.id == number for number, encoding in ENCODINGS.items())
