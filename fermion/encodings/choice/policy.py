"""What the choice of encodings goes by: one table of rules, for the search and for the kernel.

`encodings.choice.search` estimates what encodings need, for chunks of any size and type.
`kernels.encode_flat` tries them on small flat columns, thousands in a call. Both go through the
rules of a profile in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Literal

from fermion.columns.types import PhysicalType
from fermion.encodings.alp import SAMPLE_PART_MIN, SAMPLE_VALUES
from fermion.encodings.encoding import EncodeSettings, Encoding
from fermion.encodings.registry import ENCODINGS
from fermion.encodings.rle import RUN_SLOTS_MIN
from fermion.exports import NamedTuple, dataclass
from fermion.layout import EDITIONS, Codec, EncodingId
from fermion.options import Profile, WriteOptions

SMALL_BYTES_MAX = 64 * 1024
"""Bytes of a small chunk, which any encoding decodes in next to no time."""
SMALL_STRINGS_MAX = 512 * 1024
DICTIONARY_ENTRIES_MAX = 262_144


class Rule(NamedTuple):
    """When an encoding is tried, and taken in place of the best one that decodes faster.

    encoding: Its id; of a codec, that of zstd.
    ratio: It needs at most this part of the other one's bytes; 0: it is never tried.
    bytes_min: Values of fewer bytes are left as they are.
    saving: Bytes that it saves for each value, or for each byte of strings, in a chunk that is not
        small.
    bits_min: A margin of estimates, which a trial of all values does not need: values of which the
        other one needs fewer bits each are left as they are.
    beside: Another one: it needs at most this part of the entropy coder's bytes.
    """

    encoding: EncodingId
    ratio: float
    bytes_min: int = 0
    saving: float = 0
    bits_min: int = 0
    beside: float = 1


class Limits(NamedTuple):
    """Numbers that all profiles share.

    search_bytes_min: Bytes of a chunk as plain values; of one with fewer nothing but the type is
        looked at.
    run_slots_min: Slots of a run, on average, for an encoding of runs.
    entry_slots_min: Slots of a distinct value, on average, for a dictionary.
    sample_values, sample_part_min: Floats that are looked at for a power of ten, and the part that
        has to become integers.
    split_slots_min: Strings of a page, where chunks are not searched: of fewer, lengths and bytes
        stay together.
    codec_bytes_min: Bytes of a page as plain values, where chunks are not searched: fewer are not
        compressed.
    page_bytes_min, page_ratio: Bytes of a page as encoded: fewer are not compressed, nor those that
        keep more than a part.
    """

    search_bytes_min: int = 4096
    run_slots_min: int = RUN_SLOTS_MIN
    entry_slots_min: int = 4
    sample_values: int = SAMPLE_VALUES
    sample_part_min: float = SAMPLE_PART_MIN
    split_slots_min: int = 32
    codec_bytes_min: int = 512
    page_bytes_min: int = 256
    page_ratio: float = 0.95


LIMITS = Limits()


class Rules(NamedTuple):
    """The rules of one profile.

    delta, entropy, codec, dictionary: Of numbers, in the order in which they are tried:
        differences, pcodec, zstd or LZ4 (over booleans and fixed-width bytes too), and codes of a
        dictionary in place of what won.
    symbols, strings_codec: Of the bytes of strings: FSST, and zstd or LZ4 in place of what won.
    """

    delta: Rule
    entropy: Rule
    codec: Rule
    dictionary: Rule
    symbols: Rule
    strings_codec: Rule

    @property
    def numbers(self) -> tuple[Rule, ...]:
        """What is tried on numbers beside light encodings, in this order."""
        return tuple(rule for rule in (self.delta, self.entropy, self.codec) if rule.ratio)

    def without(self, *names: str) -> Rules:
        """Rules of which some never try anything."""
        return self._replace(**{name: getattr(self, name)._replace(ratio=0) for name in names})


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one profile, and what else it asks of the choice.

    rules: What is tried and taken.
    dictionary_bytes_max: Bytes of values that a chunk's dictionary may hold: readers need all of it
        for one slot.
    symbols_limit: FSST stays in place of a codec only where it needs at most so many times its
        bytes.
    """

    rules: Rules
    settings: EncodeSettings
    dictionary_bytes_max: int
    symbols_limit: float = 0
    _estimating: dict[PhysicalType, tuple[Encoding, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def estimating(self, physical: PhysicalType) -> tuple[Encoding, ...]:
        """The encodings that estimate what values of a type need, in the registry's order."""
        found = self._estimating.get(physical)
        if found is None:
            found = self._estimating[physical] = tuple(
                encoding
                for encoding in self.settings.encodings.values()
                if type(encoding).estimate is not Encoding.estimate and encoding.holds(physical)
            )
        return found

    def has(self, encoding: EncodingId) -> bool:
        """Whether an edition of the format has an encoding."""
        return encoding in self.settings.encodings


_WHOLE_PAGE = 2**40
_KIB = 1024
_LZ4_LEVELS: dict[Profile, int] = {"compact": 9}
# Profiles without a codec of their own take LZ4, where it is asked for, only if it saves much.
_LZ4_RATIO = 0.75
# To train symbols takes about a millisecond, however few bytes there are.
_RULES = Rules(
    Rule(EncodingId.DELTA, 0, bits_min=3),
    Rule(EncodingId.PCODEC, 0, 4 * _KIB),
    Rule(EncodingId.ZSTD, 0, 4 * _KIB, beside=0.95),
    Rule(EncodingId.DICTIONARY, 0, bits_min=3),
    Rule(EncodingId.FSST, 0, 64 * _KIB),
    Rule(EncodingId.ZSTD, 0, 1 * _KIB),
)


def _rules(*ratios: float, savings: Sequence[float] = (0,) * len(_RULES)) -> Rules:
    """The rules with the numbers of a profile."""
    numbers = zip(_RULES, ratios, savings, strict=True)
    return Rules(*(rule._replace(ratio=ratio, saving=saving) for rule, ratio, saving in numbers))


# The balanced profile weighs bytes against the time to read them. pcodec takes 4 to 6 ns a value
# and zstd 1 ns a byte; packed numbers take 0.5 ns and symbols (FSST) 0.3 ns, and single rows of
# them are read without the rest of a block. So pcodec has to save half a byte a value, and zstd a
# ninth of the bytes of strings, or more than 0.4 times its own bytes.
_POLICIES: dict[Profile, Policy] = {
    "balanced": Policy(
        _rules(0.92, 0.92, 0.92, 0.92, 0.85, 0.92, savings=(0, 0.5, 0.5, 0, 0, 1 / 9)),
        EncodeSettings(ENCODINGS, 7, 4096, 128 * _KIB, symbols_bytes=_KIB),
        1024 * _KIB,
        symbols_limit=1.4,
    ),
    "compact": Policy(
        _rules(0.92, 1, 1, 0.92, 0, 1),
        EncodeSettings(ENCODINGS, 11, 4096, _WHOLE_PAGE),
        4096 * _KIB,
    ),
    "fast": Policy(
        _rules(0.92, 0, 0, 0.92, 0.85, 0),
        EncodeSettings(ENCODINGS, 1, 4096, 64 * _KIB),
        1024 * _KIB,
    ),
    "random": Policy(
        _rules(0.92, 0.5, 0, 0.92, 0.85, 0.5),
        EncodeSettings(ENCODINGS, 3, 1024, 16 * _KIB, symbols_bytes=_KIB),
        128 * _KIB,
    ),
}


def policy_for(options: WriteOptions) -> Policy:
    """The policy of these options."""
    return _policy(options.profile, options.compression_level, options.codec, options.edition)


@lru_cache(maxsize=64)
def _policy(
    profile: Profile, level: int | None, codec: Literal["zstd", "lz4"], edition: str
) -> Policy:
    found = _of_edition(_POLICIES[profile], edition)
    settings = found.settings
    if codec == "lz4":
        settings = replace(settings, codec=Codec.LZ4, level=_LZ4_LEVELS.get(profile, 1))
        rules = found.rules
        if not rules.strings_codec.ratio:
            rules = rules._replace(
                codec=rules.codec._replace(ratio=_LZ4_RATIO),
                strings_codec=rules.strings_codec._replace(ratio=_LZ4_RATIO),
            )
            found = replace(found, rules=rules)
    return replace(found, settings=settings if level is None else replace(settings, level=level))


def _of_edition(policy: Policy, edition: str) -> Policy:
    """A policy that takes no encoding but those of an edition; encoders find no other either.

    The newest edition has those too that no edition lists yet.
    """
    allowed: frozenset[int] = EDITIONS[edition]
    if edition == next(reversed(EDITIONS)):
        listed: frozenset[int] = frozenset().union(*EDITIONS.values())
        allowed |= ENCODINGS.keys() - listed
    missing = [
        name for name, rule in policy.rules._asdict().items() if rule.encoding not in allowed
    ]
    return replace(
        policy,
        rules=policy.rules.without(*missing),
        settings=replace(
            policy.settings,
            encodings={number: each for number, each in ENCODINGS.items() if number in allowed},
        ),
    )
