"""What each profile asks of the choice of encodings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from fermion.columns.values import PhysicalType
from fermion.encodings.encoding import EncodeSettings, Encoding
from fermion.encodings.registry import ENCODINGS
from fermion.layout import EDITIONS, Codec, EncodingId
from fermion.options import Profile, WriteOptions


@dataclass(frozen=True, slots=True)
class Policy:
    """Numbers of one profile.

    Attributes
    ----------
    entropy_ratio
        pcodec is taken where it needs at most this part of the best light encoding's bytes;
        0 never takes it.
    numbers_lz_ratio, strings_lz_ratio
        The same for zstd or LZ4, over numbers and bits, and over the bytes of strings.
    symbols_ratio
        FSST is taken where it needs at most this part of the bytes of strings; 0 never takes it.
        A codec is then compared with what FSST needs.
    entropy_saving
        Bytes a value that pcodec has to save as well, in chunks that are not small.
    strings_lz_saving
        The same for a codec over strings that FSST holds: bytes a byte of them.
    strings_lz_limit
        FSST stays in place of a codec only where it needs at most so many times its bytes.
    dictionary_bytes_max
        Bytes of values that a chunk's dictionary may hold: readers need all of it for one slot.
    settings
        What encoders need.
    """

    entropy_ratio: float
    numbers_lz_ratio: float
    strings_lz_ratio: float
    symbols_ratio: float
    dictionary_bytes_max: int
    settings: EncodeSettings
    entropy_saving: float = 0
    strings_lz_saving: float = 0
    strings_lz_limit: float = 0
    _estimating: dict[PhysicalType, tuple[Encoding, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def estimating(self, physical: PhysicalType) -> tuple[Encoding, ...]:
        """The encodings that estimate what values of a type need, in the registry's order."""
        found = self._estimating.get(physical)
        if found is None:
            found = self._estimating[physical] = tuple(
                each
                for each in self.settings.encodings.values()
                if type(each).estimate is not Encoding.estimate and each.holds(physical)
            )
        return found

    @property
    def decimals(self) -> bool:
        """Whether floats that are decimals are taken as integers (ALP)."""
        return EncodingId.ALP in self.settings.encodings


_WHOLE_PAGE = 2**40
_KIB = 1024
_LZ4_LEVELS: dict[Profile, int] = {"compact": 9}
# Profiles without a codec of their own take LZ4, where it is asked for, only if it saves much.
_LZ4_RATIO = 0.75
# The balanced profile weighs bytes against the time to read them. pcodec takes 4 to 6 ns a value
# and zstd 1 ns a byte; packed numbers take 0.5 ns and symbols (FSST) 0.3 ns, and single rows of
# them are read without the rest of a block. So pcodec has to save half a byte a value, and zstd a
# ninth of the bytes of strings, or more than 0.4 times its own bytes.
_POLICIES: dict[Profile, Policy] = {
    "balanced": Policy(
        0.92,
        0.92,
        0.92,
        0.85,
        1024 * _KIB,
        EncodeSettings(ENCODINGS, 7, 4096, 128 * _KIB, symbols_bytes=_KIB),
        entropy_saving=0.5,
        strings_lz_saving=1 / 9,
        strings_lz_limit=1.4,
    ),
    "compact": Policy(
        1.0, 1.0, 1.0, 0, 4096 * _KIB, EncodeSettings(ENCODINGS, 11, 4096, _WHOLE_PAGE)
    ),
    "fast": Policy(0, 0, 0, 0.85, 1024 * _KIB, EncodeSettings(ENCODINGS, 1, 4096, 64 * _KIB)),
    "random": Policy(
        0.5,
        0,
        0.5,
        0.85,
        128 * _KIB,
        EncodeSettings(ENCODINGS, 3, 1024, 16 * _KIB, symbols_bytes=_KIB),
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
        if not found.strings_lz_ratio:
            found = replace(found, numbers_lz_ratio=_LZ4_RATIO, strings_lz_ratio=_LZ4_RATIO)
    return replace(found, settings=settings if level is None else replace(settings, level=level))


def _of_edition(policy: Policy, edition: str) -> Policy:
    """A policy that takes no encoding but those of an edition; encoders find no other either.

    The newest edition has those too that no edition lists yet.
    """
    allowed: frozenset[int] = EDITIONS[edition]
    if edition == next(reversed(EDITIONS)):
        listed: frozenset[int] = frozenset().union(*EDITIONS.values())
        allowed |= ENCODINGS.keys() - listed
    return replace(
        policy,
        entropy_ratio=policy.entropy_ratio if EncodingId.PCODEC in allowed else 0,
        symbols_ratio=policy.symbols_ratio if EncodingId.FSST in allowed else 0,
        settings=replace(
            policy.settings,
            encodings={number: each for number, each in ENCODINGS.items() if number in allowed},
        ),
    )
