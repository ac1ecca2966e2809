"""The balanced profile weighs bytes against the time to decode them; others do not."""

from __future__ import annotations

import numpy as np
import pytest

from fermion.columns.types import BINARY, INT32, INT64, PhysicalType, Values
from fermion.encodings.choice.choose import choose, describe_recipe
from fermion.options import WriteOptions
from tests.kit.arrow_samples import WORDS
from tests.kit.files.physical_values import binary_values

COUNT = 300_000


def column(name: str, count: int = COUNT) -> tuple[Values, PhysicalType]:
    rng = np.random.default_rng(4)
    if name == "comments":
        more = [bytes(rng.integers(97, 123, 6, np.uint8)) for _ in range(60)]
        words = [*WORDS, *more]
        picks = rng.integers(0, len(words), (count // 8, 5)).tolist()
        return binary_values([b" ".join(words[k] for k in pick) for pick in picks]), BINARY
    if name == "repeated texts":
        line = b"a line of a log that says the same as all others do, and a number: "
        return binary_values([line + b"%d" % n for n in rng.integers(0, 10**6, count // 8)]), BINARY
    if name == "flags":
        return binary_values([b"NARO"[n : n + 1] for n in rng.integers(0, 3, 2 * count)]), BINARY
    if name == "skewed dates":
        return (9_000 + np.round(rng.normal(0, 300, count))).astype(np.int32), INT32
    if name == "sorted keys":
        return np.cumsum(rng.integers(0, 4, count)), INT64
    # Values of very different size, of which pcodec saves far more than half a byte each.
    return np.round(np.exp(rng.normal(0, 6, count)) * 100).astype(np.int64), INT64


def chosen(name: str, profile: str, count: int = COUNT) -> str:
    values, physical = column(name, count)
    return describe_recipe(
        choose(values, physical, 4, options=WriteOptions(profile=profile)).recipe
    )


@pytest.mark.parametrize(
    ("name", "balanced", "compact"),
    [
        ("comments", "fsst(pcodec)", "split_lengths(pcodec, zstd(plain))"),
        (
            "repeated texts",
            "split_lengths(pcodec, zstd(plain))",
            "split_lengths(pcodec, zstd(plain))",
        ),
        ("skewed dates", "for_bitpack", "pcodec"),
        ("sorted keys", "delta(for_bitpack)", "pcodec"),
        ("sizes", "pcodec", "pcodec"),
    ],
)
def test_a_slow_encoding_has_to_save_what_it_costs(name, balanced, compact):
    assert chosen(name, "balanced") == balanced
    assert chosen(name, "compact") == compact


@pytest.mark.parametrize("name", ["skewed dates", "sorted keys"])
def test_of_a_small_chunk_only_the_bytes_count(name):
    """So that small tables stay as small as they are: decoding them costs next to no time."""
    assert chosen(name, "balanced", 20_000) == "pcodec"


def test_flags_are_codes_of_a_dictionary_and_not_compressed_bytes():
    assert chosen("flags", "balanced").startswith("dictionary(for_bitpack")
    assert "dictionary" in chosen("flags", "fast")
