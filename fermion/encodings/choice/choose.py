"""Which encoding a chunk gets: the forced one, the last stripe's, or the best found."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fermion.columns.types import BinaryValues, Bits, PhysicalKind, PhysicalType, Values
from fermion.encodings.choice.policy import DICTIONARY_ENTRIES_MAX, LIMITS, Policy, policy_for
from fermion.encodings.choice.search import Candidate, Search, values_bytes
from fermion.encodings.constant import is_constant
from fermion.encodings.dictionary import build_dictionary, in_order
from fermion.encodings.encoding import (
    BITMAP,
    CONSTANT,
    FOR_BITPACK,
    NODE_HEADER_SIZE,
    PLAIN,
    Recipe,
    plain_recipe,
)
from fermion.encodings.registry import encoding_label, selectable
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.layout import EncodingId, align
from fermion.options import WriteOptions

REUSED_STRIPES_MAX = 16
DRIFT_MAX = 0.1

_DECIMALS = Recipe(EncodingId.ALP, (FOR_BITPACK,))
_SMALL_STRINGS = Recipe(EncodingId.SPLIT_LENGTHS, (FOR_BITPACK, PLAIN))

Choice = Candidate


@dataclass(slots=True)
class ChoiceMemory:
    """What was chosen for one stream in earlier stripes.

    choice: The last choice, without its dictionary; None before the first.
    ratio: Encoded bytes over plain bytes when it was chosen.
    age: Stripes encoded with it.
    """

    choice: Choice | None = None
    ratio: float = 0.0
    age: int = 0

    def recall(self, values: Values, policy: Policy) -> Choice | None:
        """The last choice, made fit for these values; None where a new one is due."""
        choice = self.choice
        if choice is None or self.age >= REUSED_STRIPES_MAX:
            return None
        if choice.recipe.encoding == EncodingId.CONSTANT:
            return None
        if choice.recipe.encoding != EncodingId.DICTIONARY:
            return choice
        built = build_dictionary(values, min(DICTIONARY_ENTRIES_MAX, len(values) // 2))
        if built is None or values_bytes(built[1]) > policy.dictionary_bytes_max:
            return None
        codes, entries = built
        if choice.ordered and isinstance(entries, BinaryValues):
            codes, entries = in_order(codes, entries)
        return replace(choice, codes=codes, dictionary=entries)

    def record(self, choice: Choice, encoded_bytes: int, plain_bytes: int) -> None:
        """Note what a choice achieved; forget it where that drifted from what it achieved first."""
        ratio = encoded_bytes / max(plain_bytes, 1)
        if self.choice is not None and self.choice.recipe == choice.recipe and self.age:
            self.age += 1
            if abs(ratio - self.ratio) > DRIFT_MAX * self.ratio or self.age >= REUSED_STRIPES_MAX:
                self.choice = None
            return
        self.choice = replace(choice, codes=None, dictionary=None, symbols=None)
        self.ratio, self.age = ratio, 1


def choose(
    values: Values,
    physical: PhysicalType,
    pages: int,
    *,
    options: WriteOptions,
    forced: str | None = None,
    memory: ChoiceMemory | None = None,
) -> Choice:
    """Choose how to encode a chunk; the same input gives the same choice.

    values: All values of the chunk.
    pages: Pages that it will be cut into.
    forced: One of `registry.selectable_names`; None for a free choice.
    memory: The stream's earlier choices, asked but not updated.
    Raises InvalidArgumentError: ``forced`` is not a name, or not one for such values.
    """
    policy = policy_for(options)
    if forced is not None:
        return _forced(forced, values, physical, Search(policy, pages))
    if not len(values):
        return Choice(0, plain_recipe(physical))
    if is_constant(values):
        return Choice(0, CONSTANT)
    size = plain_size(values, physical)
    if size < LIMITS.search_bytes_min:
        return _small(values, physical, size, policy, pages)
    recalled = memory.recall(values, policy) if memory is not None else None
    return recalled or Search(policy, pages).best(values, physical)


def choose_codes(codes: np.ndarray, pages: int, *, options: WriteOptions) -> Choice:
    """Choose how to encode a chunk's codes into the dictionary that stripes share.

    codes: ``uint32``, one for each value of the chunk.
    pages: Pages that it will be cut into.
    """
    return Search(policy_for(options), pages).shared_codes(codes)


def _small(values: Values, physical: PhysicalType, size: int, policy: Policy, pages: int) -> Choice:
    """The choice for a chunk so small that looking at it closely costs more than it saves."""
    lz = policy.rules.codec.ratio > 0 and size >= LIMITS.codec_bytes_min * pages
    if isinstance(values, Bits):
        return Choice(size, BITMAP)
    if isinstance(values, BinaryValues):
        return _small_strings(values, size, lz, pages)
    if values.dtype.kind in "iu" and values.dtype.itemsize > 1:
        return Choice(size, FOR_BITPACK)
    if policy.has(EncodingId.ALP) and physical.kind in (PhysicalKind.FLOAT32, PhysicalKind.FLOAT64):
        # Where they are no decimals after all, each page falls back to plain.
        return Choice(size, _DECIMALS, compress_page=lz)
    return Choice(size, PLAIN, compress_page=lz)


def _small_strings(values: BinaryValues, size: int, lz: bool, pages: int) -> Choice:
    slots = len(values) // max(pages, 1)
    if slots < LIMITS.split_slots_min:
        return Choice(size, PLAIN, compress_page=lz)
    built = build_dictionary(values, slots // 2) if pages == 1 else None
    if built is not None:
        entries = PLAIN if len(built[1]) < LIMITS.split_slots_min else _SMALL_STRINGS
        recipe = Recipe(EncodingId.DICTIONARY_LOCAL, (FOR_BITPACK, entries))
        return Choice(size, recipe, compress_page=lz)
    return Choice(size, _SMALL_STRINGS, compress_page=lz)


def _forced(name: str, values: Values, physical: PhysicalType, search: Search) -> Choice:
    """The choice for an encoding by name; the children of strings are chosen freely."""
    check_forced(name, physical)
    if not len(values):
        return Choice(0, plain_recipe(physical))
    if name == "dictionary":
        return _forced_dictionary(values, physical, search)
    if name == "split_lengths":
        assert isinstance(values, BinaryValues)
        return Choice(0, search.split_lengths(values, search.lengths(values)).recipe)
    if name == "fsst":
        assert isinstance(values, BinaryValues)
        return Choice(0, Recipe(EncodingId.FSST, (search.lengths(values).recipe,)))
    return Choice(0, selectable(name).recipe(physical, search.policy.settings.codec))


def check_forced(name: str, physical: PhysicalType) -> None:
    """Refuse an encoding that no option may name, or that holds no values of this type.

    Raises InvalidArgumentError.
    """
    if not selectable(name).holds(physical):
        raise InvalidArgumentError(
            f"encoding {name} cannot hold values of type {physical.kind.name.lower()}"
        )


def _forced_dictionary(values: Values, physical: PhysicalType, search: Search) -> Choice:
    built = build_dictionary(values, 0xFFFF_FFFF)
    assert built is not None
    codes, dictionary = built
    return search.dictionary(codes, dictionary, physical)


def plain_size(values: Values, physical: PhysicalType) -> int:
    """Bytes of the tree that `plain_recipe` makes, node header included."""
    if isinstance(values, Bits):
        return NODE_HEADER_SIZE + align((values.length + 7) // 8)
    if isinstance(values, BinaryValues):
        return NODE_HEADER_SIZE + align(align(4 * len(values)) + int(values.offsets[-1]))
    return NODE_HEADER_SIZE + align(values.nbytes)


@lru_cache(maxsize=1024)
def describe_recipe(recipe: Recipe) -> str:
    """A recipe for people: ``split_lengths(for_bitpack, plain)``."""
    name = encoding_label(recipe.encoding)
    if not recipe.children:
        return name
    return f"{name}({', '.join(map(describe_recipe, recipe.children))})"
