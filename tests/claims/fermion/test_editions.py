"""Editions: a writer that keeps to a list of encodings."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import InvalidArgumentError, WriteOptions
from fermion.layout import EDITIONS, EncodingId
from tests.kit.equality import assert_logically_equal
from tests.kit.files import independent_trees
from tests.kit.files.features import FEATURES, LARGE_FEATURES
from tests.kit.files.independent_reader import File

CORE = "core-2026"


def tempting() -> pa.Table:
    """Columns for which an unbound writer takes what the core edition lacks."""
    random = np.random.default_rng(2)
    words = np.array(["alpha", "beta", "gamma", "delta-and-more", "epsilon"])
    drawn = words[random.integers(0, 5, (20_000, 6))]
    return pa.table(
        {
            "decimals": np.round(random.random(20_000) * 1_000, 2),
            "few": pa.array([0.25, 1.5, 3.75] * 6 + [None] * 19_982),
            "walk": np.cumsum(random.normal(0, 1_000, 20_000)).astype(np.int64),
            "text": [" ".join(row) + str(at * 7919) for at, row in enumerate(drawn)],
            "money": pa.array(np.round(random.random(20_000), 2)).cast(pa.decimal128(20, 4)),
        }
    )


@pytest.fixture
def seen(monkeypatch) -> set[int]:
    """The encodings of all nodes that the independent reader meets."""
    found: set[int] = set()
    decode = independent_trees._decode

    def noting(node, *others):
        found.add(int.from_bytes(node[:2], "little"))
        return decode(node, *others)

    monkeypatch.setattr(independent_trees, "_decode", noting)
    return found


def read_all(data: bytes) -> None:
    file = File(data)
    for ordinal in range(len(file.schema)):
        file.column(ordinal)


@pytest.mark.parametrize("profile", ["balanced", "compact", "fast", "random"])
def test_a_file_uses_encodings_of_its_edition_only(seen, profile):
    """Every node of every page, by the independent reader; the last edition takes more."""
    used = {}
    for edition in EDITIONS:
        target, table = io.BytesIO(), tempting()
        fermion.write_table(table, target, profile=profile, edition=edition)
        assert_logically_equal(fermion.read_table(target.getvalue()), table)
        seen.clear()
        read_all(target.getvalue())
        used[edition] = set(seen)
        assert used[edition] <= EDITIONS[edition]
    assert EncodingId.SPLIT_LENGTHS in used[CORE]
    assert used["2026"] - EDITIONS[CORE]


@pytest.mark.parametrize("name", sorted([*FEATURES, *LARGE_FEATURES]))
def test_every_feature_but_its_encodings_can_be_written_in_the_core_edition(seen, name):
    """The features' own options, without those that ask for an encoding."""
    feature = (FEATURES | LARGE_FEATURES)[name]()
    asked = ("encodings", "codec", "global_dictionaries")
    options = {key: value for key, value in feature.options.items() if key not in asked}
    data = replace(feature, options={**options, "edition": CORE}).stored()
    with fermion.open(data) as file:
        assert_logically_equal(file.read(), feature.table)
    read_all(data)
    assert seen <= EDITIONS[CORE]


@pytest.mark.parametrize(
    ("options", "wanted", "encoding"),
    [
        ({"codec": "lz4"}, "codec='lz4'", "lz4"),
        ({"global_dictionaries": ["a"]}, "global_dictionaries", "global_dictionary"),
        ({"encodings": {"a": "pcodec"}}, "encodings: column 'a'", "pcodec"),
    ],
)
def test_what_an_edition_lacks_is_refused_by_name(options, wanted, encoding):
    """The message has the option, the edition, the encoding, and the editions that have it."""
    message = f"{wanted}: edition 'core-2026' lacks the encoding {encoding}; .* it: '2026'"
    with pytest.raises(InvalidArgumentError, match=message):
        fermion.write_table(pa.table({"a": [1, 2]}), io.BytesIO(), edition=CORE, **options)


def test_an_unknown_edition_is_refused_with_those_known():
    with pytest.raises(
        InvalidArgumentError, match="edition='1999': expected one of 'core-2026', '2026'"
    ):
        WriteOptions(edition="1999")


def test_editions_never_change():
    """Files were written for these names; a new encoding needs a new one."""
    core = {1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14}
    assert EDITIONS[CORE] == core
    assert EDITIONS["2026"] == core | {6, 15, 16, 17, 18}
    assert all(isinstance(each, EncodingId) for known in EDITIONS.values() for each in known)
