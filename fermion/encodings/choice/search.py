"""Candidates for a chunk's encoding and the bytes each would need.

Light encodings are estimated in closed form; pcodec, FSST and codecs by a trial on a sample. A
heavy one has to be smaller than the best light one by what the policy asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from fermion import kernels
from fermion.columns.values import (
    BINARY,
    INT64,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
)
from fermion.encodings.alp import (
    EXCEPTIONS_PART_MAX,
    decimal_exponent,
    to_integers,
)
from fermion.encodings.byte_stream_split import split_bytes
from fermion.encodings.choice.policy import Policy
from fermion.encodings.choice.sampling import (
    packed_ratio,
    pcodec_size,
    sample_blocks,
    sample_contiguous,
    sample_middle,
    sample_runs,
)
from fermion.encodings.delta import BLOCK_SLOTS, differences
from fermion.encodings.dictionary import build_dictionary, in_order
from fermion.encodings.encoding import BITMAP, PLAIN, Recipe
from fermion.encodings.fsst import Learnt, learn
from fermion.encodings.narrow import WIDTHS
from fermion.encodings.rle import run_starts
from fermion.encodings.tree import NODE_HEADER_SIZE
from fermion.encodings.unsigned import UNSIGNED, narrowest
from fermion.layout import Codec, EncodingId

TRIAL_BYTES_MIN = 4096
STRINGS_TRIAL_BYTES_MIN = 1024
# Training costs about a millisecond, however little there is to encode.
SYMBOLS_TRIAL_BYTES_MIN = 64 * 1024
DICTIONARY_ENTRIES_MAX = 262_144
# Fewer slots a distinct value than this do not make a dictionary.
_SLOTS_PER_ENTRY_MIN = 4
_RUN_SLOTS_MIN = 4
# Delta and dictionaries of numbers decode more slowly than frames of reference.
_DELTA_RATIO = 0.92
_NUMBERS_DICTIONARY_RATIO = 0.92
# A dictionary in order is tried from so many entries on, and taken where it saves this much.
_ORDERED_ENTRIES_MIN = 1024
_ORDERED_RATIO = 0.95
# Unlike pcodec, codecs decode whole pages only.
_LZ_OVER_ENTROPY_RATIO = 0.95
_LOOKUP_BITS_MIN = 3

FOR_BITPACK = Recipe(EncodingId.FOR_BITPACK)
PCODEC = Recipe(EncodingId.PCODEC)
SPLIT_PLAIN = Recipe(EncodingId.BYTE_STREAM_SPLIT, (PLAIN,))
_PACKED = {Codec.ZSTD: EncodingId.ZSTD, Codec.LZ4: EncodingId.LZ4}
DELTA_FOR = Recipe(EncodingId.DELTA, (FOR_BITPACK,))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A way to encode a chunk.

    Attributes
    ----------
    size
        Bytes of all pages, estimated.
    recipe
        How; with ``codes`` its children are for (codes, dictionary).
    compress_page
        Whether whole pages go through the codec.
    codes, dictionary
        The chunk's dictionary and the ``uint32`` code of each slot, where it has one.
    ordered
        Whether the chunk's dictionary is in the order of its bytes.
    symbols
        Symbols that a trial found, where the recipe is FSST.
    """

    size: float
    recipe: Recipe
    compress_page: bool = False
    codes: np.ndarray | None = None
    dictionary: Values | None = None
    ordered: bool = False
    symbols: Learnt | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for the best candidate for one chunk.

    Attributes
    ----------
    pages
        Pages that the chunk is cut into.
    nested
        Whether the values are a child of another encoding, which then bars dictionaries and
        runs: trees stay shallow.
    """

    policy: Policy
    pages: int
    nested: bool = False

    def best(self, values: Values, physical: PhysicalType) -> Candidate:
        """The best candidate for values that are not constant."""
        if isinstance(values, Bits):
            return self.bits(values)
        if isinstance(values, BinaryValues):
            return self.strings(values)
        if physical.kind is PhysicalKind.FIXED:
            return self.fixed(values, physical)
        return self.numbers(values, physical)

    def child(self) -> Search:
        """The search for a child's values."""
        return replace(self, nested=True)

    def numbers(self, values: np.ndarray, physical: PhysicalType) -> Candidate:
        """The best candidate for integers or floats."""
        light = self._light_numbers(values)
        compressible = min(light, key=_size).size * 8 >= _LOOKUP_BITS_MIN * len(values)
        heavy: list[tuple[float, Candidate]] = []
        follows = False
        if compressible and values.dtype.kind in "iu":
            blocks = sample_blocks(values, BLOCK_SLOTS)
            delta = self._delta(blocks, len(values) / len(blocks))
            heavy.append((_DELTA_RATIO, delta))
            follows = delta.size < min(light, key=_size).size
        if values.nbytes >= TRIAL_BYTES_MIN:
            heavy.extend(self._trials(values, follows))
        best = _pick(light, heavy)
        if self.nested or not compressible:
            return best
        return self._with_dictionary(values, physical, best, _NUMBERS_DICTIONARY_RATIO)

    def _light_numbers(self, values: np.ndarray) -> list[Candidate]:
        found = [Candidate(values.nbytes + self._overhead(), PLAIN)]
        integers = values.dtype.kind in "iu"
        if integers:
            found.append(Candidate(for_size(values) + self._overhead(), FOR_BITPACK))
        elif self.policy.decimals and values.dtype.itemsize > 2:
            found.extend(self._decimals(values))
        if not self.nested and kernels.count_runs(values) * _RUN_SLOTS_MIN <= len(values):
            found.append(self._runs(values, integers))
        return found

    def _decimals(self, values: np.ndarray) -> list[Candidate]:
        """Floats as decimals, where a sample says that they are."""
        exponent = decimal_exponent(values)
        if exponent is None:
            return []
        sample = sample_blocks(values, BLOCK_SLOTS)
        integers, exceptions = to_integers(sample, exponent)
        if len(exceptions) > EXCEPTIONS_PART_MAX * len(sample):
            return []
        scale = len(values) / len(sample)
        extra = len(exceptions) * (4 + values.dtype.itemsize) * scale + 2 * self._overhead()
        child = [Candidate(kernels.bitpack_size(integers) * scale, FOR_BITPACK)]
        child.append(self._delta(integers, scale))
        best = _pick(child[:1], [(_DELTA_RATIO, child[1])])
        return [Candidate(best.size + extra, Recipe(EncodingId.ALP, (best.recipe,)))]

    def _delta(self, blocks: np.ndarray, scale: float) -> Candidate:
        """Differences; ``scale`` times as many values as in ``blocks``."""
        packed = kernels.bitpack_size(differences(blocks))
        bases = len(blocks) / BLOCK_SLOTS * blocks.dtype.itemsize
        return Candidate((packed + bases) * scale + 2 * self._overhead(), DELTA_FOR)

    def _trials(self, values: np.ndarray, follows: bool) -> list[tuple[float, Candidate]]:
        """pcodec and the codec, as far as the policy allows them.

        ``follows``: whether a value tells something about the next.
        """
        found = []
        if self.policy.entropy_ratio:
            sample = sample_middle(values) if follows else sample_runs(values)
            size = pcodec_size(values, sample, self.pages, self.policy.settings.block_slots)
            found.append((self.policy.entropy_ratio, Candidate(size, PCODEC)))
        if self.policy.numbers_lz_ratio:
            packed = self._packed(values, PLAIN)
            if not found or packed.size <= _LZ_OVER_ENTROPY_RATIO * found[0][1].size:
                found.append((self.policy.numbers_lz_ratio, packed))
        return found

    def _runs(self, values: np.ndarray, integers: bool) -> Candidate:
        starts = run_starts(values)
        lengths = narrowest(np.diff(starts, append=len(values)))
        size = for_size(lengths) + 3 * self._overhead()
        plain = len(starts) * values.dtype.itemsize
        packed = for_size(values[starts]) if integers else plain
        child = FOR_BITPACK if packed < plain else PLAIN
        return Candidate(size + min(packed, plain), Recipe(EncodingId.RLE, (FOR_BITPACK, child)))

    def fixed(self, values: np.ndarray, physical: PhysicalType) -> Candidate:
        """The best candidate for fixed-width bytes, among them wide decimals."""
        light = [Candidate(values.nbytes + self._overhead(), PLAIN)]
        narrow = np.empty(len(values), np.int64)
        if values.dtype.itemsize in WIDTHS and kernels.narrow_fixed(values, narrow):
            best = self.child().numbers(narrow, INT64)
            recipe = Recipe(EncodingId.NARROW, (best.recipe,))
            light.append(Candidate(best.size + self._overhead(), recipe))
        heavy = []
        if values.nbytes >= TRIAL_BYTES_MIN and self.policy.numbers_lz_ratio and len(light) == 1:
            ratio = self.policy.numbers_lz_ratio
            heavy = [(ratio, self._packed(values, it)) for it in (PLAIN, SPLIT_PLAIN)]
        if not self.nested and kernels.count_runs(values) * _RUN_SLOTS_MIN <= len(values):
            light.append(self._runs(values, integers=False))
        best = _pick(light, heavy)
        if self.nested:
            return best
        return self._with_dictionary(values, physical, best, _NUMBERS_DICTIONARY_RATIO)

    def bits(self, values: Bits) -> Candidate:
        """The best candidate for booleans."""
        size = values.length / 8 + self._overhead()
        plain = Candidate(size, BITMAP)
        if not self.policy.numbers_lz_ratio or size < TRIAL_BYTES_MIN:
            return plain
        sample = sample_contiguous(values)
        assert isinstance(sample, Bits)
        ratio = packed_ratio(sample.data, self.policy.settings)
        packed = Candidate(size * ratio, BITMAP, compress_page=True)
        return _pick([plain], [(self.policy.numbers_lz_ratio, packed)])

    def strings(self, values: BinaryValues) -> Candidate:
        """The best candidate for strings."""
        lengths = self.lengths(values)
        best = self.split_lengths(values, lengths, self._symbols(values, lengths))
        return best if self.nested else self._with_dictionary(values, BINARY, best)

    def lengths(self, values: BinaryValues) -> Candidate:
        """How to encode the lengths of strings."""
        widths = narrowest(values.lengths)
        return self.child().numbers(widths, UNSIGNED[widths.dtype.itemsize])

    def split_lengths(
        self, values: BinaryValues, lengths: Candidate, symbols: Candidate | None = None
    ) -> Candidate:
        """Lengths and bytes apart: whether symbols, where given, or a codec help the bytes.

        Ratios are asked of the bytes alone, as lengths cost the same either way.
        """
        total = int(values.offsets[-1])
        extra = lengths.size + 2 * self._overhead()
        light = Candidate(extra + total, Recipe(EncodingId.SPLIT_LENGTHS, (lengths.recipe, PLAIN)))
        if symbols is not None and symbols.size - extra <= self.policy.symbols_ratio * total:
            light = symbols
        if not self.policy.strings_lz_ratio or total < STRINGS_TRIAL_BYTES_MIN:
            return light
        sample = sample_contiguous(values)
        assert isinstance(sample, BinaryValues)
        data = sample.data[: int(sample.offsets[-1])]
        packed = total * packed_ratio(data, self.policy.settings)
        if packed > self.policy.strings_lz_ratio * (light.size - extra):
            return light
        recipe = Recipe(
            EncodingId.SPLIT_LENGTHS, (lengths.recipe, packed_recipe(self.policy.settings.codec))
        )
        return Candidate(extra + packed, recipe)

    def _symbols(self, values: BinaryValues, lengths: Candidate) -> Candidate | None:
        """Lengths apart and bytes as symbols, by a trial on a sample; None where not allowed."""
        total = int(values.offsets[-1])
        if not self.policy.symbols_ratio or total < SYMBOLS_TRIAL_BYTES_MIN:
            return None
        sample = sample_contiguous(values)
        assert isinstance(sample, BinaryValues)
        found = learn(sample)
        size = found.ratio * total + found.table_bytes * self.pages
        recipe = Recipe(EncodingId.FSST, (lengths.recipe,))
        return Candidate(lengths.size + size + 2 * self._overhead(), recipe, symbols=found)

    def dictionary(
        self, codes: np.ndarray, dictionary: Values, physical: PhysicalType
    ) -> Candidate:
        """A dictionary, with the best encodings for its codes and its values."""
        inner = replace(self.child(), pages=1).best(dictionary, physical)
        coded = self._codes(codes)
        size = inner.size + coded.size + self._overhead()
        recipes = (coded.recipe, inner.recipe)
        if self.pages == 1:
            return Candidate(size, Recipe(EncodingId.DICTIONARY_LOCAL, recipes))
        return Candidate(
            size, Recipe(EncodingId.DICTIONARY, recipes), codes=codes, dictionary=dictionary
        )

    def shared_codes(self, codes: np.ndarray) -> Candidate:
        """Codes into the dictionary that stripes share, with the best encoding for them."""
        coded = self._codes(codes)
        recipe = Recipe(EncodingId.GLOBAL_DICTIONARY, (coded.recipe,))
        return Candidate(coded.size + self._overhead(), recipe, codes=codes)

    def _codes(self, codes: np.ndarray) -> Candidate:
        narrow = narrowest(codes)
        return self.child().numbers(narrow, UNSIGNED[narrow.dtype.itemsize])

    def _with_dictionary(
        self, values: Values, physical: PhysicalType, best: Candidate, ratio: float = 1.0
    ) -> Candidate:
        """A dictionary where one is possible and needs less than ``ratio`` of ``best``'s bytes."""
        limit = min(DICTIONARY_ENTRIES_MAX, len(values) // _SLOTS_PER_ENTRY_MIN)
        code_bits = ratio * best.size * 8 / len(values)
        if code_bits < DICTIONARY_ENTRIES_MAX.bit_length():
            limit = min(limit, int(2**code_bits))  # with more entries codes alone need too much
        built = build_dictionary(values, limit) if limit else None
        if built is None or values_bytes(built[1]) > self.policy.dictionary_bytes_max:
            return best
        found = self.dictionary(*built, physical)
        codes, entries = built
        if self._is_worth_ordering(entries):
            ordered = replace(self.dictionary(*in_order(codes, entries), physical), ordered=True)
            found = ordered if ordered.size <= _ORDERED_RATIO * found.size else found
        return found if found.size < ratio * best.size else best

    def _is_worth_ordering(self, entries: Values) -> TypeGuard[BinaryValues]:
        """Whether a chunk's dictionary in order may give codes that pcodec makes smaller."""
        return (
            self.pages > 1
            and self.policy.entropy_ratio > 0
            and isinstance(entries, BinaryValues)
            and len(entries) >= _ORDERED_ENTRIES_MIN
        )

    def _packed(self, values: np.ndarray, recipe: Recipe) -> Candidate:
        sample = sample_contiguous(values)
        assert isinstance(sample, np.ndarray)
        if recipe is SPLIT_PLAIN:
            data = split_bytes(sample)
        else:
            data = np.ascontiguousarray(sample).view(np.uint8)
        ratio = packed_ratio(data, self.policy.settings)
        packed = packed_recipe(self.policy.settings.codec, recipe)
        return Candidate(values.nbytes * ratio + 2 * self._overhead(), packed)

    def _overhead(self) -> int:
        return NODE_HEADER_SIZE * self.pages


def packed_recipe(codec: Codec, recipe: Recipe = PLAIN) -> Recipe:
    """The recipe of a node that holds another one compressed."""
    return Recipe(_PACKED[codec], (recipe,))


def for_size(values: np.ndarray) -> float:
    """Bytes of integers as frames of reference: exact for 64 blocks, by a sample beyond."""
    blocks = sample_blocks(values, 1024)
    return kernels.bitpack_size(blocks) * (len(values) / max(len(blocks), 1))


def values_bytes(values: Values) -> int:
    """Bytes of fixed-width values, or of all strings together."""
    assert not isinstance(values, Bits)
    return int(values.offsets[-1]) if isinstance(values, BinaryValues) else values.nbytes


def _size(candidate: Candidate) -> float:
    return candidate.size


def _pick(light: Sequence[Candidate], heavy: Sequence[tuple[float, Candidate]]) -> Candidate:
    """The smallest light candidate, or the smallest heavy one that is small enough beside it."""
    best = min(light, key=_size)
    allowed = [candidate for ratio, candidate in heavy if candidate.size <= ratio * best.size]
    return min([*allowed, best], key=_size)
