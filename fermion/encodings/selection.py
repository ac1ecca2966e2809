"""Which encoding a chunk gets: statistics first, trials on samples where they pay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fermion.encodings.constant import is_constant
from fermion.encodings.protocol import (
    BITMAP,
    CONSTANT,
    NODE_HEADER_SIZE,
    PLAIN,
    EncodeSettings,
    Recipe,
    encoding_name,
)
from fermion.encodings.registry import ENCODINGS
from fermion.errors import InvalidArgumentError
from fermion.layout import align
from fermion.options import WriteOptions
from fermion.values import BinaryValues, Bits, PhysicalKind, PhysicalType, Values


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """How a chunk is encoded.

    Attributes
    ----------
    recipe
        For every page, or, with ``codes``, (codes, dictionary values).
    compress_page
        Whether pages go through zstd as a whole, where that saves 5 %.
    codes, dictionary
        The chunk's dictionary and the ``uint32`` code of each slot, where it has one.
    """

    recipe: Recipe
    compress_page: bool = False
    codes: np.ndarray | None = None
    dictionary: Values | None = None

    def describe(self) -> str:
        """The choice for people."""
        return ("zstd page of " if self.compress_page else "") + describe_recipe(self.recipe)


@dataclass(slots=True)
class ChoiceMemory:
    """What was chosen for one stream in earlier stripes."""

    choice: Choice | None = None
    ratio: float = 0.0
    age: int = field(default=0)

    def record(self, choice: Choice, size: int, values: Values, physical: PhysicalType) -> None:
        """Remember a choice and the bytes it led to."""


def describe_recipe(recipe: Recipe) -> str:
    """A recipe for people: ``split_lengths(for_bitpack)``."""
    name = encoding_name(recipe.encoding)
    if not recipe.children:
        return name
    return f"{name}({', '.join(map(describe_recipe, recipe.children))})"


def settings_for(options: WriteOptions) -> EncodeSettings:
    """The numbers that encoders need, by profile."""
    return EncodeSettings(ENCODINGS)


def plain_recipe(physical: PhysicalType) -> Recipe:
    """What holds any values of this type."""
    return BITMAP if physical.kind is PhysicalKind.BITS else PLAIN


def plain_size(values: Values, physical: PhysicalType) -> int:
    """Bytes of the tree that `plain_recipe` makes, node header included."""
    if isinstance(values, Bits):
        return NODE_HEADER_SIZE + align((values.length + 7) // 8)
    if isinstance(values, BinaryValues):
        return NODE_HEADER_SIZE + align(4 * len(values)) + align(int(values.offsets[-1]))
    return NODE_HEADER_SIZE + align(values.nbytes)


def choose(
    values: Values,
    physical: PhysicalType,
    cuts: np.ndarray,
    *,
    options: WriteOptions,
    forced: str | None = None,
    memory: ChoiceMemory | None = None,
) -> Choice:
    """Choose how to encode a chunk."""
    if forced not in (None, "plain", "constant", "bitmap"):
        raise InvalidArgumentError(f"encoding {forced!r} is not known")
    if forced != "plain" and is_constant(values):
        return Choice(CONSTANT)
    return Choice(plain_recipe(physical))
