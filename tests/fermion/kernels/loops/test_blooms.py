"""Hashes and bloom filters: published values, the twin, and no false negatives."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion import kernels as compiled
from tests.kit.numpy_kernels import blooms as reference

BOTH = pytest.mark.parametrize("k", [compiled, reference], ids=["compiled", "reference"])
STRINGS = st.lists(st.binary(max_size=80), max_size=20)


def binary(items: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate(([0], np.cumsum([len(item) for item in items]))).astype(np.int64)
    return offsets, np.frombuffer(b"".join(items), np.uint8)


@BOTH
def test_xxh64_gives_the_published_values(k: ModuleType):
    """The values of the xxHash project's own test programs."""
    items = [b"", b"a", b"abc", b"xxhash", b"Nobody inspects the spammish repetition"]
    out = np.empty(len(items), np.uint64)
    k.hash_binary(*binary(items), out)
    assert [f"{value:016x}" for value in out.tolist()] == [
        "ef46db3751d8e999",
        "d24ec4f1a98c6e5b",
        "44bc2cf5ad770999",
        "32dd38952c4bc720",
        "fbcea83c8a378bf1",
    ]


@given(STRINGS)
def test_the_compiled_hashes_agree_with_the_twin(items):
    mine, theirs = np.empty(len(items), np.uint64), np.empty(len(items), np.uint64)
    compiled.hash_binary(*binary(items), mine)
    reference.hash_binary(*binary(items), theirs)
    assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["<u1", "<i8", "<f8", "V16", "V32"])
def test_fixed_values_hash_as_their_bytes(dtype):
    values = np.frombuffer(np.random.default_rng(0).bytes(20 * np.dtype(dtype).itemsize), dtype)
    mine, theirs = np.empty(20, np.uint64), np.empty(20, np.uint64)
    compiled.hash_fixed(values, mine)
    compiled.hash_binary(*binary([values[i : i + 1].tobytes() for i in range(20)]), theirs)
    assert mine.tolist() == theirs.tolist()
    reference.hash_fixed(values, theirs)
    assert mine.tolist() == theirs.tolist()


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
    st.integers(1, 5),
)
def test_filters_agree_with_the_twin_and_forget_nothing(added, others, blocks):
    added, asked = np.array(added, np.uint64), np.array([*added, *others], np.uint64)
    mine, theirs = np.zeros(8 * blocks, np.uint32), np.zeros(8 * blocks, np.uint32)
    compiled.bloom_insert(added, mine)
    reference.bloom_insert(added, theirs)
    assert mine.tolist() == theirs.tolist()
    found, expected = np.empty(len(asked), np.uint8), np.empty(len(asked), np.uint8)
    compiled.bloom_contains(asked, mine, found)
    reference.bloom_contains(asked, theirs, expected)
    assert found.tolist() == expected.tolist()
    assert found[: len(added)].all()


@BOTH
def test_a_filter_of_another_size_is_refused(k: ModuleType):
    for size in (0, 7, 12):
        with pytest.raises(ValueError, match="multiple of 8"):
            k.bloom_insert(np.zeros(1, np.uint64), np.zeros(size, np.uint32))
