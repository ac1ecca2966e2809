"""Candidates for a chunk's encoding and the bytes each would need.

Light encodings are estimated in closed form; pcodec, FSST and codecs by a trial on a sample. A
heavy one has to be smaller than the best light one by what the policy asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from fermion import kernels
from fermion.columns.types import (
    BINARY,
    BITS,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
)
from fermion.encodings.bitpack import sample_blocks
from fermion.encodings.byte_stream_split import split_bytes
from fermion.encodings.choice.policy import (
    DICTIONARY_ENTRIES_MAX,
    LIMITS,
    SMALL_BYTES_MAX,
    SMALL_STRINGS_MAX,
    Policy,
    Rule,
)
from fermion.encodings.choice.sampling import (
    packed_ratio,
    pcodec_size,
    sample_contiguous,
    sample_middle,
    sample_runs,
)
from fermion.encodings.compressed import packed_recipe
from fermion.encodings.delta import BLOCK_SLOTS, DELTA_FOR, differences
from fermion.encodings.dictionary import build_dictionary, in_order
from fermion.encodings.encoding import (
    BITMAP,
    FOR_BITPACK,
    NODE_HEADER_SIZE,
    PLAIN,
    Estimate,
    Recipe,
)
from fermion.encodings.fsst import Learnt, learn
from fermion.encodings.unsigned import UNSIGNED, narrowest
from fermion.exports import dataclass
from fermion.layout import EncodingId

# A dictionary in order is tried from so many entries on, and taken where it saves this much.
_ORDERED_ENTRIES_MIN = 1024
_ORDERED_RATIO = 0.95
# To put strings together costs as much as to decode their lengths and codes by pcodec.
_NESTED_SAVING = 0.5

PCODEC = Recipe(EncodingId.PCODEC)
SPLIT_PLAIN = Recipe(EncodingId.BYTE_STREAM_SPLIT, (PLAIN,))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A way to encode a chunk.

    size: Bytes of all pages, estimated.
    recipe: How; with ``codes`` its children are for (codes, dictionary).
    compress_page: Whether whole pages go through the codec.
    codes, dictionary: The chunk's dictionary and the ``uint32`` code of each slot, where it has
        one.
    penalty: Bytes that it has to save beside a candidate that decodes faster.
    ordered: Whether the chunk's dictionary is in the order of its bytes.
    symbols: Symbols that a trial found, where the recipe is FSST.
    """

    size: float
    recipe: Recipe
    compress_page: bool = False
    codes: np.ndarray | None = None
    dictionary: Values | None = None
    penalty: float = 0
    ordered: bool = False
    symbols: Learnt | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for the best candidate for one chunk.

    pages: Pages that the chunk is cut into.
    nested: Whether the values are a child of another encoding, which then bars dictionaries and
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

    def child_numbers(self, values: np.ndarray, physical: PhysicalType) -> Estimate:
        """See `Chooser`."""
        found = self.child().numbers(values, physical)
        return Estimate(found.size, found.recipe)

    def child_integers(self, sample: np.ndarray, scale: float) -> Estimate:
        """See `Chooser`."""
        light = Candidate(kernels.bitpack_size(sample) * scale, FOR_BITPACK)
        found = _pick(light, [_Heavy(self.policy.rules.delta, self._delta(sample, scale))])
        return Estimate(found.size, found.recipe)

    @property
    def overhead(self) -> int:
        """Bytes of a node's headers in all pages."""
        return NODE_HEADER_SIZE * self.pages

    def _light(self, values: Values, physical: PhysicalType) -> list[Candidate]:
        """What the encodings themselves estimate, in the registry's order."""
        found = []
        for encoding in self.policy.estimating(physical):
            estimate = encoding.estimate(values, physical, self)
            if estimate is not None:
                found.append(Candidate(estimate.size, estimate.recipe))
        return found

    def numbers(self, values: np.ndarray, physical: PhysicalType) -> Candidate:
        """The best candidate for integers or floats."""
        light = min(self._light(values, physical), key=_size)
        best = _pick(light, self._heavy(values, light.size), nested=self.nested)
        rule = self.policy.rules.dictionary
        if self.nested or _has_few_bits(values, light.size, rule):
            return best
        return self._with_dictionary(values, physical, best, rule.ratio)

    def _heavy(self, values: np.ndarray, light: float) -> list[_Heavy]:
        """What may be taken in place of a light candidate of so many bytes."""
        found: list[_Heavy] = []
        entropy, follows = math.inf, False  # follows: a value tells something about the next
        for rule in self.policy.rules.numbers:
            if values.nbytes < rule.bytes_min or _has_few_bits(values, light, rule):
                continue
            if rule.encoding == EncodingId.DELTA:
                if values.dtype.kind not in "iu":
                    continue
                sample = sample_blocks(values)
                candidate = self._delta(sample, len(values) / len(sample))
                follows = candidate.size < light
            elif rule.encoding == EncodingId.PCODEC:
                candidate = self._entropy_coded(values, follows)
                entropy = candidate.size
            else:
                candidate = self._packed(values, PLAIN)
                if candidate.size > rule.beside * entropy:
                    continue
            saving = rule.saving * len(values) * (_NESTED_SAVING if self.nested else 1)
            found.append(_Heavy(rule, candidate, saving))
        return found

    def _delta(self, blocks: np.ndarray, scale: float) -> Candidate:
        """Differences; ``scale`` times as many values as in ``blocks``."""
        packed = kernels.bitpack_size(differences(blocks))
        bases = len(blocks) / BLOCK_SLOTS * blocks.dtype.itemsize
        return Candidate((packed + bases) * scale + 2 * self.overhead, DELTA_FOR)

    def _entropy_coded(self, values: np.ndarray, follows: bool) -> Candidate:
        sample = sample_middle(values) if follows else sample_runs(values)
        size = pcodec_size(values, sample, self.pages, self.policy.settings.block_slots)
        return Candidate(size, PCODEC)

    def fixed(self, values: np.ndarray, physical: PhysicalType) -> Candidate:
        """The best candidate for fixed-width bytes, among them wide decimals."""
        light = self._light(values, physical)
        narrow = any(each.recipe.encoding == EncodingId.NARROW for each in light)
        heavy, rule = [], self.policy.rules.codec
        if rule.ratio and values.nbytes >= rule.bytes_min and not narrow:
            heavy = [_Heavy(rule, self._packed(values, it)) for it in (PLAIN, SPLIT_PLAIN)]
        best = _pick(min(light, key=_size), heavy)
        if self.nested:
            return best
        return self._with_dictionary(values, physical, best, self.policy.rules.dictionary.ratio)

    def bits(self, values: Bits) -> Candidate:
        """The best candidate for booleans."""
        light, rule = min(self._light(values, BITS), key=_size), self.policy.rules.codec
        size = values.length / 8 + self.overhead
        if not rule.ratio or size < rule.bytes_min:
            return light
        sample = sample_contiguous(values)
        assert isinstance(sample, Bits)
        ratio = packed_ratio(sample.data, self.policy.settings)
        return _pick(light, [_Heavy(rule, Candidate(size * ratio, BITMAP, compress_page=True))])

    def strings(self, values: BinaryValues) -> Candidate:
        """The best candidate for strings."""
        lengths = self.lengths(values)
        split = self.split_lengths(values, lengths, self._symbols(values, lengths))
        best = min([split, *self._light(values, BINARY)], key=_size)
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
        extra = lengths.size + 2 * self.overhead
        light = Candidate(extra + total, Recipe(EncodingId.SPLIT_LENGTHS, (lengths.recipe, PLAIN)))
        policy, rule = self.policy, self.policy.rules.strings_codec
        if symbols is not None and symbols.size - extra <= policy.rules.symbols.ratio * total:
            light = symbols
        if not rule.ratio or total < rule.bytes_min:
            return light
        sample = sample_contiguous(values)
        assert isinstance(sample, BinaryValues)
        data = sample.data[: int(sample.offsets[-1])]
        packed = total * packed_ratio(data, policy.settings)
        if packed > rule.ratio * (light.size - extra):
            return light
        saving = rule.saving * total if total >= SMALL_STRINGS_MAX else 0
        # Symbols decode faster.
        is_near = saving > light.size - extra - packed
        if light is symbols and is_near and light.size - extra <= policy.symbols_limit * packed:
            return light
        recipe = packed_recipe(policy.settings.codec)
        return Candidate(
            extra + packed,
            Recipe(EncodingId.SPLIT_LENGTHS, (lengths.recipe, recipe)),
            penalty=saving,
        )

    def _symbols(self, values: BinaryValues, lengths: Candidate) -> Candidate | None:
        """Lengths apart and bytes as symbols, by a trial on a sample; None where not allowed."""
        total, rule = int(values.offsets[-1]), self.policy.rules.symbols
        if not rule.ratio or total < rule.bytes_min:
            return None
        sample = sample_contiguous(values)
        assert isinstance(sample, BinaryValues)
        found = learn(sample)
        size = found.ratio * total + found.table_bytes * self.pages
        recipe = Recipe(EncodingId.FSST, (lengths.recipe,))
        return Candidate(lengths.size + size + 2 * self.overhead, recipe, symbols=found)

    def dictionary(
        self, codes: np.ndarray, dictionary: Values, physical: PhysicalType
    ) -> Candidate:
        """A dictionary, with the best encodings for its codes and its values."""
        inner = replace(self.child(), pages=1).best(dictionary, physical)
        coded = self._codes(codes)
        size = inner.size + coded.size + self.overhead
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
        return Candidate(coded.size + self.overhead, recipe, codes=codes)

    def _codes(self, codes: np.ndarray) -> Candidate:
        narrow = narrowest(codes)
        return self.child().numbers(narrow, UNSIGNED[narrow.dtype.itemsize])

    def _with_dictionary(
        self, values: Values, physical: PhysicalType, best: Candidate, ratio: float = 1.0
    ) -> Candidate:
        """A dictionary where one is possible and needs less than ``ratio`` of ``best``'s bytes, or
        little more in place of a codec."""
        policy = self.policy
        limit = min(DICTIONARY_ENTRIES_MAX, len(values) // LIMITS.entry_slots_min)
        allowed = min(best.size + best.penalty, max(policy.symbols_limit, 1) * best.size)
        code_bits = ratio * allowed * 8 / len(values)
        if code_bits < DICTIONARY_ENTRIES_MAX.bit_length():
            limit = min(limit, int(2**code_bits))  # with more entries codes alone need too much
        built = build_dictionary(values, limit) if limit else None
        if built is None or values_bytes(built[1]) > policy.dictionary_bytes_max:
            return best
        found = self.dictionary(*built, physical)
        codes, entries = built
        if self._is_worth_ordering(entries):
            ordered = replace(self.dictionary(*in_order(codes, entries), physical), ordered=True)
            found = ordered if ordered.size <= _ORDERED_RATIO * found.size else found
        return found if found.size < ratio * allowed else best

    def _is_worth_ordering(self, entries: Values) -> TypeGuard[BinaryValues]:
        """Whether a chunk's dictionary in order may give codes that pcodec makes smaller."""
        return (
            self.pages > 1
            and self.policy.rules.entropy.ratio > 0
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
        return Candidate(values.nbytes * ratio + 2 * self.overhead, packed)


def values_bytes(values: Values) -> int:
    """Bytes of fixed-width values, or of all strings together."""
    assert not isinstance(values, Bits)
    return int(values.offsets[-1]) if isinstance(values, BinaryValues) else values.nbytes


def _size(candidate: Candidate) -> float:
    return candidate.size


def _has_few_bits(values: np.ndarray, size: float, rule: Rule) -> bool:
    """Whether a rule leaves values as they are, of which a light candidate has so many bytes."""
    return size * 8 < rule.bits_min * len(values)


@dataclass(frozen=True, slots=True, eq=False)
class _Heavy:
    """A candidate that decodes more slowly than light ones.

    saving: Bytes that it has to save as well, beside a light one that is not small.
    """

    rule: Rule
    candidate: Candidate
    saving: float = 0

    def is_worth(self, light: float, best: float) -> bool:
        """Whether it may stand in place of the best light one and the best without a saving.

        light, best: Bytes of both.
        """
        saving = self.saving if best >= SMALL_BYTES_MAX else 0
        return self.candidate.size <= min(self.rule.ratio * light, best - saving)


def _pick(light: Candidate, heavy: Sequence[_Heavy], *, nested: bool = False) -> Candidate:
    """The smallest heavy candidate that is small enough beside the best light one, or that one.

    Nested values save beside light ones alone.
    """
    best = light
    for slow in (False, True):  # first those that have nothing more to save
        known = [each for each in heavy if (each.saving > 0) is slow]
        other = light if nested else best
        fit = [each.candidate for each in known if each.is_worth(light.size, other.size)]
        best = min([*fit, best], key=_size)
    return best
