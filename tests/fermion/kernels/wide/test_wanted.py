"""Sets and ranges that filters ask for, tested on pages: what Python's own sets and order say."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fermion
from fermion import kernels
from fermion.encodings.decoding import decode_numbers
from fermion.io.compression import decompress_padded
from tests.kit.paged_columns import written

WIDTHS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
TEXTS = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda middle, end: b"https://" + middle + b".example" + end,
        st.binary(max_size=12),
        st.sampled_from([b"", b"\0", b"\xff"]),
    ),
)


def pages_of(values: pa.Array, encoding: str) -> tuple[list[bytes], np.ndarray]:
    """The pages of a column's values, without checksums, and how many slots each has."""
    data = written(
        pa.table({"a": values}), page_rows_max=100, encodings={"a": encoding}, checksum="none"
    )
    with fermion.open(data) as file:
        (chunk,) = file.column("a").streams[1].chunks
    pages = [data[page.offset : page.offset + page.length] for page in chunk.pages]
    return pages, np.array([page.slots for page in chunk.pages], np.int64)


def matches(values: pa.Array, encoding: str, letter: str, width: int, wanted: object) -> list[bool]:
    pages, counts = pages_of(values, encoding)
    out = np.full(len(values), 7, np.uint8)
    assert kernels.match_pages(
        pages,
        counts,
        np.zeros(len(pages), np.int64),
        kernels.PageTest(ord(letter), width, np.zeros(2, np.int64), np.zeros(0, np.uint8), wanted),
        kernels.PageReader(decode_numbers, decompress_padded, False, 0),
        out,
    )
    assert set(out.tolist()) <= {0, 1}
    return out.view(bool).tolist()


@given(st.data(), st.sampled_from([1, 2, 4, 8]))
def test_numbers_of_a_set_are_found(data, width):
    """Also those that differ from one of the set in bits that a narrow value does not have."""
    limit = 2 ** (8 * width - 1)
    near = st.integers(0, 40).map(lambda n: n - 20)
    number = st.one_of(near, st.integers(-limit, limit - 1))
    values = data.draw(st.lists(number, min_size=1, max_size=300))
    chosen = data.draw(st.sets(st.one_of(number, st.sampled_from(values)), min_size=1, max_size=50))
    wanted = kernels.wanted_numbers(np.array(sorted(chosen), np.int64), width)
    array = pa.array(np.array(values, WIDTHS[width]))
    encoding = data.draw(st.sampled_from(["plain", "for_bitpack", "rle"]))
    assert matches(array, encoding, "i", width, wanted) == [each in chosen for each in values]


@given(st.lists(TEXTS, min_size=1, max_size=200), st.data())
def test_strings_of_a_set_are_found(values, data):
    """Also among many that start and end alike."""
    chosen = data.draw(st.sets(st.one_of(TEXTS, st.sampled_from(values)), min_size=1, max_size=40))
    wanted = kernels.wanted_texts(list(chosen))
    encoding = data.draw(st.sampled_from(["plain", "fsst", "split_lengths"]))
    found = matches(pa.array(values, pa.binary()), encoding, "s", 4, wanted)
    assert found == [each in chosen for each in values]


@given(st.lists(TEXTS, min_size=1, max_size=200), TEXTS, st.none() | TEXTS)
@example([b"abcdefgh", b"abcdefg", b"abcdefgh\0", b""], b"abcdefgh", b"abcdefgh\0")
@example([b"\xff" * 8, b"\xff" * 9, b"\xfe"], b"\xff" * 8, None)
def test_strings_of_a_range_are_found(values, low, high):
    wanted = kernels.wanted_text_range(low, high)
    found = matches(pa.array(values, pa.binary()), "plain", "s", 4, wanted)
    assert found == [each >= low and (high is None or each < high) for each in values]


def test_a_large_set_has_no_value_too_many():
    random = np.random.default_rng(1)
    chosen = np.unique(random.integers(-(2**62), 2**62, 100_000))
    values = np.concatenate([chosen[::2], chosen[1::2] + 1, -chosen])
    found = matches(pa.array(values), "plain", "i", 8, kernels.wanted_numbers(chosen, 8))
    assert found == np.isin(values, chosen).tolist()


def test_numbers_are_not_tested_against_strings_nor_strings_against_numbers():
    """Such pages are not known."""
    numbers = kernels.wanted_numbers(np.array([1], np.int64), 8)
    for values, letter, width, wanted in (
        (pa.array([b"a", b"b"]), "s", 4, numbers),
        (pa.array([1, 2]), "i", 8, kernels.wanted_texts([b"a"])),
        (pa.array([1.0, 2.0]), "f", 8, numbers),
    ):
        with pytest.raises(AssertionError):
            matches(values, "plain", letter, width, wanted)


def test_sets_that_cannot_be_made_are_refused():
    for values, width in (([], 8), ([2, 1], 8), ([1, 1], 8), ([1], 3)):
        with pytest.raises(ValueError):
            kernels.wanted_numbers(np.array(values, np.int64), width)
    for values in (np.array([1], np.int32), np.array([1.0]), np.array(["a"])):
        with pytest.raises((TypeError, ValueError)):
            kernels.wanted_numbers(values, 8)
    for texts in ([], ["a"], [b"a", None]):
        with pytest.raises(ValueError):
            kernels.wanted_texts(texts)
    for limits in ((None, b"a"), ("a", None), (b"a", "b")):
        with pytest.raises((TypeError, ValueError)):
            kernels.wanted_text_range(*limits)


def test_a_set_outlives_the_values_that_it_was_made_of():
    values = [bytes([n]) * 30 for n in range(100)]
    wanted = kernels.wanted_texts(values)
    asked = pa.array([*values, b"x"], pa.binary())
    del values
    assert sum(matches(asked, "plain", "s", 4, wanted)) == 100
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(wanted)
