"""The name index finds exactly the names that were written, in place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion import kernels as compiled
from fermion.errors import FermionError
from fermion.kernels import find_name, read_names
from fermion.metadata.cit import WHOLE_BYTES_MAX, NameIndex, build_name_index
from tests.kit.numpy_kernels import names as reference

NAMES = st.lists(st.text(max_size=40), max_size=80)


def opened(data: bytes, count: int) -> NameIndex:
    return NameIndex(lambda at, size: memoryview(data)[at : at + size], len(data), count, "file")


@given(NAMES, st.text(max_size=5))
def test_every_name_is_found_and_no_other(names, other):
    """Compares with a plain scan, duplicates included."""
    index = opened(build_name_index(names), len(names))
    for name in [*names, other]:
        assert index.find(name) == [i for i, each in enumerate(names) if each == name]
    assert index.all() == names


@given(NAMES, st.integers(1, 40), st.integers(0, 2**62))
def test_the_kernel_and_its_twin_write_the_same_names(names, interval, first):
    given = sorted(name.encode() for name in names)
    ordinals = np.arange(len(given)) + first
    found, expected = (k.write_names(given, ordinals, interval) for k in (compiled, reference))
    assert found[0] == expected[0]
    assert found[1].tolist() == expected[1].tolist()


@pytest.mark.parametrize("k", [compiled, reference], ids=["compiled", "reference"])
def test_names_that_cannot_be_written_are_refused(k):
    for names, ordinals, interval in (
        ([b"a"], [0, 1], 16), ([b"a"], [0], 0), (["a"], [0], 16), ([b"a"], [-1], 16)
    ):  # fmt: skip
        with pytest.raises(ValueError):
            k.write_names(names, np.array(ordinals), interval)


def test_long_names_with_long_common_prefixes_are_found():
    names = [f"{'x' * 600}{number}" for number in range(100)]
    index = opened(build_name_index(names), len(names))
    assert [index.find(name) for name in names] == [[number] for number in range(100)]


def test_ten_thousand_numbered_names_cost_less_than_their_characters():
    names = [f"c{number}" for number in range(10_000)]
    assert len(build_name_index(names)) < sum(map(len, names))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=40), st.data())
def test_a_damaged_index_gives_names_or_an_error(names, data):
    """Flips one byte: a lookup may miss, but nothing else than our errors comes out."""
    stored = bytearray(build_name_index(names))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        index = opened(bytes(stored), len(names))
        for name in names:
            index.find(name)
        index.all()
    except FermionError:
        pass


@given(st.lists(st.text(max_size=20), min_size=1, max_size=40), st.data())
def test_names_are_found_both_ways(names, data):
    """By the kernel and in Python: the same ordinals, or the same error of a damaged byte."""
    stored = bytearray(build_name_index(names))
    if data.draw(st.booleans()):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        index = opened(bytes(stored), len(names))
    except FermionError:
        return
    for name in [*names, data.draw(st.text(max_size=5))]:
        try:
            expected = index._find(name.encode())
        except FermionError as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                opened(bytes(stored), len(names)).find(name)
        else:
            assert index.find(name) == expected


def test_an_index_too_long_to_verify_as_a_whole_is_searched_in_place():
    """Of 200,000 names a search looks at a few: it finds the same, and views less."""
    names = [f"a feature of number {number * 7919 % 200_000:06}" for number in range(200_000)]
    data, viewed = build_name_index(names), []
    assert len(data) > WHOLE_BYTES_MAX

    def view(at: int, size: int) -> memoryview:
        viewed.append(size)
        return memoryview(data)[at : at + size]

    index = NameIndex(view, len(data), len(names), "file")
    viewed.clear()
    for place in (0, 4711, 199_999):
        assert index.find(names[place]) == [place]
    assert index.find("a feature") == []
    assert sum(viewed) < 64 * 1024


def test_a_search_that_cannot_be_is_refused():
    data = build_name_index(["a"])
    for bounds, interval, count in (([20, 23], 0, 1), ([20, 23], 1, -1), ([], 1, 1)):
        with pytest.raises(ValueError, match="cannot be"):
            find_name(data, np.array(bounds, np.int64), interval, count, b"a")
    for bounds in ([-1, 23], [20, 24], [22, 20]):
        assert find_name(data, np.array(bounds, np.int64), 1, 1, b"a") is None


@given(st.lists(st.text(max_size=20), min_size=1, max_size=40), st.data())
def test_all_names_are_read_both_ways(names, data):
    """By the kernel and one by one: the same names, or the same error of a damaged byte."""
    stored = bytearray(build_name_index(names))
    if data.draw(st.booleans()):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        index = opened(bytes(stored), len(names))
        expected = index._all()
    except FermionError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            opened(bytes(stored), len(names)).all()
    else:
        assert read_names(bytes(stored), index._bounds, index._interval, len(names)) == expected


def test_a_count_of_names_that_no_data_hold_needs_no_memory():
    assert read_names(bytes(9), np.array([0, 9]), 2**40, 2**40) is None
    with pytest.raises(ValueError, match="offsets 0 to 10"):
        read_names(bytes(9), np.array([0, 10]), 1, 1)
    with pytest.raises(ValueError, match="in groups of 0"):
        read_names(bytes(9), np.array([0, 9]), 0, 1)


def test_a_wrong_count_is_refused():
    with pytest.raises(FermionError, match="expected 3 names, found 2"):
        opened(build_name_index(["a", "b"]), 3)
