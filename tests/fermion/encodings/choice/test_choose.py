"""The choice of encodings: what it picks, what it remembers, and what it does not spend."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fermion.columns.types import (
    BINARY,
    BITS,
    INT32,
    INT64,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    number,
)
from fermion.encodings import ChoiceMemory
from fermion.encodings.choice import choose as selection
from fermion.encodings.choice import search as candidates
from fermion.encodings.choice.choose import choose, describe_recipe
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.choice.search import Search
from fermion.encodings.encoding import Recipe
from fermion.encodings.registry import selectable_names
from fermion.errors import InvalidArgumentError
from fermion.layout import NODE_DEPTH_MAX, EncodingId
from fermion.options import PROFILES, WriteOptions
from fermion.pages.pages import EncodedChunk, encode_chunk
from tests.kit.arrow_samples import WORDS
from tests.kit.files.physical_values import (
    SHAPES,
    TYPES,
    assert_slots_same,
    binary_values,
    cuts_of,
    make_values,
)

FLOAT64 = number(PhysicalKind.FLOAT64)
DECIMAL = PhysicalType(PhysicalKind.FIXED, 16)
COUNT = 40_000


def decimals(values: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(values), 2), np.int64)
    wide[:, 0] = values
    wide[:, 1] = values >> 63
    return wide.reshape(-1).view("V16")


def typical(name: str, seed: int = 0) -> tuple[Values, PhysicalType]:
    """Columns as they occur."""
    rng = np.random.default_rng(seed)
    cents = np.round(rng.gamma(2, 20_000, COUNT)).astype(np.int64)
    if name == "comments":
        picks = rng.integers(0, len(WORDS), (COUNT // 4, 7)).tolist()
        return binary_values([b" ".join(WORDS[k] for k in pick) for pick in picks]), BINARY
    if name == "modes":
        modes = [b"AIR", b"RAIL", b"TRUCK", b"SHIP", b"MAIL", b"FOB", b"REG AIR"]
        return binary_values([modes[k] for k in rng.integers(0, 7, COUNT)]), BINARY
    arrays: dict[str, tuple[Values, PhysicalType]] = {
        "keys": (rng.integers(0, 200_000, COUNT), INT64),
        "sorted keys": (np.cumsum(rng.integers(0, 4, COUNT)), INT64),
        "dates": (rng.integers(8000, 10_500, COUNT).astype(np.int32), INT32),
        "sorted dates": (np.sort(rng.integers(8000, 8100, COUNT)).astype(np.int32), INT32),
        "money": (cents / 100, FLOAT64),
        "measures": (rng.normal(size=COUNT), FLOAT64),
        "decimals": (decimals(cents), DECIMAL),
        "hashes": (rng.integers(0, 2**63 - 1, 5000)[rng.integers(0, 5000, COUNT)], INT64),
        "noise": (rng.integers(0, 256, COUNT * 8, np.uint8).view(np.int64), INT64),
        "rare": (Bits.pack(np.repeat(rng.random(COUNT) < 0.01, 8)), BITS),
        "coins": (Bits.pack(rng.random(8 * COUNT) < 0.5), BITS),
    }
    return arrays[name]


COLUMNS = [
    "keys", "sorted keys", "dates", "sorted dates", "money", "measures", "decimals", "hashes",
    "noise", "rare", "coins", "comments", "modes",
]  # fmt: skip


def encode(
    name: str,
    profile: str = "balanced",
    pages: int = 1,
    memory: ChoiceMemory | None = None,
    seed: int = 0,
) -> EncodedChunk:
    values, physical = typical(name, seed)
    options = WriteOptions(profile=profile)
    cuts = cuts_of(len(values), pages)
    return encode_chunk(values, physical, cuts, options=options, memory=memory)


@pytest.mark.parametrize(
    ("name", "profile", "expected"),
    [
        ("keys", "balanced", "for_bitpack"),
        ("sorted keys", "balanced", "pcodec"),
        ("sorted keys", "fast", "delta(for_bitpack)"),
        ("dates", "balanced", "for_bitpack"),
        ("sorted dates", "fast", "rle(for_bitpack, for_bitpack)"),
        ("money", "balanced", "alp(for_bitpack)"),
        ("money", "compact", "pcodec"),
        ("measures", "balanced", "pcodec"),
        ("measures", "fast", "plain"),
        ("decimals", "fast", "narrow(for_bitpack)"),
        ("hashes", "balanced", "dictionary_local(for_bitpack, for_bitpack)"),
        ("noise", "compact", "plain"),
        ("coins", "compact", "bitmap"),
        ("comments", "balanced", "split_lengths(pcodec, zstd(plain))"),
        ("comments", "fast", "fsst(for_bitpack)"),
        ("comments", "random", "fsst(for_bitpack)"),
        ("modes", "fast", "dictionary_local(for_bitpack, split_lengths(plain, plain))"),
    ],
)
def test_typical_columns_get_the_encoding_that_suits_them(
    name: str, profile: str, expected: str
) -> None:
    assert encode(name, profile).encodings == expected


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("keys", 18.3),
        ("sorted keys", 2.3),
        ("dates", 12.2),
        ("sorted dates", 0.2),
        ("money", 18.5),
        ("decimals", 18.5),
        ("hashes", 21.3),
        ("noise", 64.1),
        ("rare", 0.6),
        ("coins", 8.1),
        ("modes", 3.2),
    ],
)
def test_typical_columns_need_no_more_bits_than_known(name: str, bits: float) -> None:
    """Bits a value in one page; "rare" and "coins" hold eight booleans a value."""
    size = sum(map(len, encode(name).pages))
    assert size * 8 / COUNT <= bits


@pytest.mark.parametrize("name", COLUMNS)
def test_fast_uses_no_entropy_coding_and_random_no_frames_of_whole_pages(name: str) -> None:
    fast = encode(name, "fast").encodings
    assert "pcodec" not in fast
    assert "zstd" not in fast
    pages = encode(name, "random").pages
    assert all(page[1] == 0 and page[2] != EncodingId.ZSTD for page in pages)


@pytest.mark.parametrize("name", COLUMNS)
def test_compact_is_never_larger_than_fast(name: str) -> None:
    compact, fast = encode(name, "compact"), encode(name, "fast")
    assert sum(map(len, compact.pages)) <= 1.01 * sum(map(len, fast.pages))


@pytest.mark.parametrize("name", COLUMNS)
def test_the_same_chunk_gets_the_same_choice(name: str) -> None:
    assert encode(name, pages=3) == encode(name, pages=3)


@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_choice_is_deeper_than_a_tree_may_be(physical: PhysicalType, shape: str) -> None:
    for profile in PROFILES:
        values = make_values(physical, 9000, shape, 1)
        choice = choose(values, physical, 3, options=WriteOptions(profile=profile))
        assert depth(choice.recipe) <= NODE_DEPTH_MAX


def depth(recipe: Recipe) -> int:
    return 1 + max(map(depth, recipe.children), default=0)


class CountedSearches:
    """Counts how often the best candidate was looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = Search.best

        def best(search: Search, values: Values, physical: PhysicalType) -> object:
            self.count += not search.nested
            return original(search, values, physical)

        monkeypatch.setattr(Search, "best", best)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> CountedSearches:
    return CountedSearches(monkeypatch)


@pytest.mark.parametrize("name", ["keys", "money", "comments", "decimals", "modes"])
def test_a_choice_serves_sixteen_stripes(name: str, searches: CountedSearches) -> None:
    memory = ChoiceMemory()
    chunks = [encode(name, pages=3, memory=memory, seed=stripe) for stripe in range(16)]
    assert searches.count == 1
    assert len({chunk.encodings for chunk in chunks}) == 1
    encode(name, pages=3, memory=memory)
    assert searches.count == 2


def test_a_choice_is_made_anew_after_its_ratio_drifted(searches: CountedSearches) -> None:
    """Keys become sorted: the first such stripe keeps the old choice, the next has a better one."""
    memory = ChoiceMemory()
    first = encode("keys", memory=memory)
    encode("sorted keys", memory=memory)
    assert searches.count == 1
    last = encode("sorted keys", memory=memory)
    assert searches.count == 2
    assert (first.encodings, last.encodings) == ("for_bitpack", "pcodec")


def test_a_dictionary_that_no_longer_fits_is_given_up_at_once(searches: CountedSearches) -> None:
    memory = ChoiceMemory()
    cuts = np.array([0, COUNT // 2, COUNT])
    first = encode("modes", pages=2, memory=memory)
    assert first.has_dictionary
    unique = binary_values([b"%d" % number for number in range(COUNT)])
    second = encode_chunk(unique, BINARY, cuts, options=WriteOptions(), memory=memory)
    assert not second.has_dictionary
    assert_slots_same(second, cuts, BINARY, unique, [(0, COUNT)])


def test_a_remembered_choice_never_loses_values() -> None:
    """Stripes of any shape follow each other under one memory."""
    for physical in (INT64, FLOAT64, DECIMAL, BINARY, BITS):
        memory = ChoiceMemory()
        for stripe, shape in enumerate([*SHAPES, *reversed(SHAPES)]):
            values = make_values(physical, 3000, shape, stripe)
            cuts = cuts_of(3000, 2)
            chunk = encode_chunk(values, physical, cuts, options=WriteOptions(), memory=memory)
            assert_slots_same(chunk, cuts, physical, values, [(0, 3000), (1499, 1502)])


def test_a_constant_chunk_is_told_without_a_search(searches: CountedSearches) -> None:
    memory = ChoiceMemory()
    for value in (0, 1, 2):
        values = np.full(5000, value)
        chunk = encode_chunk(
            values, INT64, np.array([0, 5000]), options=WriteOptions(), memory=memory
        )
        assert chunk.encodings == "constant"
        assert len(chunk.pages[0]) == 32
    assert searches.count == 0


@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
def test_a_small_chunk_is_not_searched(
    physical: PhysicalType, searches: CountedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("a trial on a small chunk")

    for trial in ("pcodec_size", "packed_ratio"):
        monkeypatch.setattr(candidates, trial, refuse)
    values = make_values(physical, 100, "small", 1)
    encode_chunk(values, physical, np.array([0, 100]), options=WriteOptions())
    assert searches.count == 0


def test_small_chunks_of_low_cardinality_shrink() -> None:
    values = binary_values([WORDS[k % 3] for k in range(100)])
    chunk = encode_chunk(values, BINARY, np.array([0, 100]), options=WriteOptions())
    assert chunk.encodings == "dictionary_local(for_bitpack, plain)"
    assert len(chunk.pages[0]) < 150


@pytest.mark.parametrize("name", selectable_names())
@pytest.mark.parametrize("physical", TYPES, ids=lambda it: f"{it.kind.name}{it.width}")
@pytest.mark.parametrize("pages", [1, 3])
def test_a_forced_encoding_is_used_or_refused_with_its_name(
    name: str, physical: PhysicalType, pages: int
) -> None:
    shape = "constant" if name == "constant" else "runs"
    values = make_values(physical, 6000, shape, 1)
    cuts = cuts_of(6000, pages)
    try:
        chunk = encode_chunk(values, physical, cuts, options=WriteOptions(), forced=name)
    except InvalidArgumentError as error:
        assert f"encoding {name} cannot hold" in str(error)  # noqa: PT017
        assert name not in ("plain", "constant", "zstd", "lz4")
        return
    assert_slots_same(chunk, cuts, physical, values, [(0, 6000), (17, 5000)])
    assert name in chunk.encodings or (name, physical) == ("plain", BITS)


def test_forced_dictionaries_may_hold_any_number_of_values() -> None:
    values = np.arange(10_000) * 1_000_003
    cuts = np.array([0, 5000, 10_000])
    chunk = encode_chunk(values, INT64, cuts, options=WriteOptions(), forced="dictionary")
    assert chunk.has_dictionary
    assert_slots_same(chunk, cuts, INT64, values, [(0, 10_000)])


@pytest.mark.parametrize("name", ["keys", "money", "comments"])
def test_a_higher_level_is_taken_from_the_options(name: str) -> None:
    assert policy_for(WriteOptions(compression_level=8)).settings.level == 8
    assert policy_for(WriteOptions()).settings.level == 7
    values, physical = typical(name)
    cuts = np.array([0, len(values)])
    sizes = [
        sum(map(len, encode_chunk(values, physical, cuts, options=options).pages))
        for options in (WriteOptions(compression_level=1), WriteOptions(compression_level=15))
    ]
    assert sizes[1] <= sizes[0]


def test_recipes_are_described_as_trees() -> None:
    recipe = Recipe(EncodingId.NARROW, (Recipe(EncodingId.PCODEC),))
    assert describe_recipe(recipe) == "narrow(pcodec)"


def test_estimates_are_near_the_bytes_written() -> None:
    """Within 15 % for all columns of some size, so that choices rest on something."""
    for name in COLUMNS:
        values, physical = typical(name)
        choice = choose(values, physical, 1, options=WriteOptions())
        written = sum(map(len, encode(name).pages))
        if written > 4096:
            assert 0.85 * written <= choice.size <= 1.15 * written, name


def test_plain_sizes_are_those_of_plain_pages() -> None:
    for physical in TYPES:
        values = make_values(physical, 1001, "random", 1)
        chunk = encode_chunk(
            values, physical, np.array([0, 1001]), options=WriteOptions(), forced="plain"
        )
        assert len(chunk.pages[0]) == 16 + selection.plain_size(values, physical)


def sorted_within_groups(seed: int) -> BinaryValues:
    """Half of 2,000 names, sorted, 16 times over."""
    rng = np.random.default_rng(seed)
    names = [b"name %d" % n for n in rng.permutation(2_000)]
    groups = [sorted(names[k] for k in rng.permutation(2_000)[:1_000]) for _ in range(16)]
    return binary_values([name for group in groups for name in group])


def test_a_dictionary_is_put_in_order_where_slots_ascend() -> None:
    """By half the bytes for codes of 11 bits, also for the next stripe, which is not searched."""
    memory = ChoiceMemory()
    for stripe in range(2):
        values = sorted_within_groups(stripe)
        choice = choose(values, BINARY, 4, options=WriteOptions(), memory=memory)
        assert choice.ordered
        assert choice.codes is not None
        entries = choice.dictionary
        assert isinstance(entries, BinaryValues)
        words = [entries.data[a:b].tobytes() for a, b in pairwise(entries.offsets.tolist())]
        assert words == sorted(words)
        cuts = np.arange(5) * 4_000
        chunk = encode_chunk(values, BINARY, cuts, options=WriteOptions(), memory=memory)
        assert sum(map(len, chunk.pages[1:])) * 8 < 5.5 * len(values)
        assert_slots_same(chunk, cuts, BINARY, values, [(0, len(values)), (3_999, 4_001)])


def test_a_dictionary_stays_in_order_of_appearance_where_slots_do_not_ascend() -> None:
    rng = np.random.default_rng(3)
    words = [rng.bytes(6) for _ in range(2_000)]
    values = binary_values([words[n] for n in rng.integers(0, 2_000, 16_000)])
    choice = choose(values, BINARY, 4, options=WriteOptions())
    assert choice.recipe.encoding == EncodingId.DICTIONARY
    assert not choice.ordered
