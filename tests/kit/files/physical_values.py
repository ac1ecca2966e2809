"""Hypothesis strategies for physical values of every type, and how to compare and cut them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from fermion.columns.types import (
    BINARY,
    BITS,
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    number,
    slice_values,
)
from fermion.pages.pages import EncodedChunk, PageSlice, decode_pages

INTEGERS = [number(PhysicalKind(kind)) for kind in range(PhysicalKind.INT8, PhysicalKind.FLOAT16)]
FLOATS = [number(PhysicalKind(kind)) for kind in range(PhysicalKind.FLOAT16, PhysicalKind.FIXED)]
FIXED = [PhysicalType(PhysicalKind.FIXED, width) for width in (0, 1, 3, 12, 16, 32)]
TYPES = [BITS, *INTEGERS, *FLOATS, *FIXED, BINARY]
# Bounds of blocks, of pcodec's batches and of bytes, and what lies beside them.
COUNTS = [1, 2, 7, 8, 9, 63, 255, 256, 257, 1023, 1024, 1025, 2049, 4095, 4096, 4097, 9000]
SHAPES = ["random", "small", "sorted", "runs", "few", "constant", "extremes"]


def special_floats(dtype: np.dtype) -> np.ndarray:
    """Zeros of both signs, infinities, subnormals, and NaNs that differ in sign and payload."""
    width = dtype.itemsize
    bits = np.dtype(f"<u{width}")
    infinity = int(np.array(np.inf, dtype).view(bits))
    sign = 1 << (8 * width - 1)
    quiet = infinity | (infinity >> 1) & ~infinity | 1 << (8 * width - 2)
    patterns = [0, sign, 1, sign | 1, infinity, sign | infinity, infinity | 1, infinity | 3]
    patterns += [sign | infinity | 5, quiet, sign - 1, 2 * sign - 1, infinity - 1]
    return np.array(patterns, bits).view(dtype)


def make_values(physical: PhysicalType, count: int, shape: str, seed: int) -> Values:
    """Values of a type, of one of `SHAPES`; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    if physical.kind is PhysicalKind.BITS:
        density = {"random": 0.5, "constant": seed % 2, "runs": 0.5}.get(shape, 0.03)
        flags = rng.random(count) < density
        return Bits.pack(np.sort(flags) if shape in ("sorted", "runs") else flags)
    if physical.kind is PhysicalKind.BINARY:
        return _make_strings(rng, count, shape)
    dtype = physical.dtype
    size = count * dtype.itemsize
    if physical.kind is PhysicalKind.FIXED:
        return _make_fixed(rng, count, shape, dtype)
    if shape == "random":
        return rng.integers(0, 256, size, np.uint8).view(dtype)
    if shape == "extremes":
        if dtype.kind == "f":
            return rng.choice(special_floats(dtype).view(f"<u{dtype.itemsize}"), count).view(dtype)
        limits = np.iinfo(dtype)
        return rng.choice(np.array([limits.min, limits.max, 0, 1], dtype), count)
    small = _small_numbers(rng, count, shape)
    return (small / 4).astype(dtype) if dtype.kind == "f" else small.astype(dtype)


def _small_numbers(rng: np.random.Generator, count: int, shape: str) -> np.ndarray:
    if shape == "constant":
        return np.full(count, rng.integers(0, 100))
    if shape == "few":
        return rng.integers(0, 100, 5)[rng.integers(0, 5, count)]
    if shape == "runs":
        return np.repeat(rng.integers(0, 100, count // 20 + 1), 20)[:count]
    numbers = rng.integers(0, 100, count)
    return np.sort(numbers) if shape == "sorted" else numbers


def _make_fixed(rng: np.random.Generator, count: int, shape: str, dtype: np.dtype) -> np.ndarray:
    width = dtype.itemsize
    if shape in ("random", "extremes"):
        return rng.integers(0, 256, count * width, np.uint8).view(dtype)
    rows = np.zeros((count, width), np.uint8)
    numbers = _small_numbers(rng, count, shape) - 50 * (width in (16, 32))
    low = numbers.astype("<i8").view(np.uint8).reshape(count, 8)
    rows[:] = np.where(numbers < 0, 255, 0)[:, None]
    rows[:, : min(width, 8)] = low[:, : min(width, 8)]
    return rows.reshape(-1).view(dtype)


def _make_strings(rng: np.random.Generator, count: int, shape: str) -> BinaryValues:
    if shape in ("few", "runs", "constant", "sorted"):
        words = [b"", b"a", b"carefully final", b"\x00\xff" * 20, b"deposits sleep"]
        codes = np.minimum(_small_numbers(rng, count, shape) // 20, 4)
        if shape == "constant":
            codes[:] = codes[0] if count else 0
        items = [words[code] for code in codes.tolist()]
    else:
        lengths = rng.integers(0, 300 if shape == "extremes" else 12, count)
        if shape == "extremes":
            lengths[rng.random(count) < 0.9] = 0
        alphabet = 256 if shape == "random" else 4
        text = rng.integers(0, alphabet, int(lengths.sum()), np.uint8).tobytes()
        ends = np.append(0, np.cumsum(lengths)).tolist()
        items = [text[low:high] for low, high in pairwise(ends)]
    return binary_values(items)


def binary_values(items: list[bytes]) -> BinaryValues:
    """Byte strings as `BinaryValues`."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return BinaryValues(offsets, np.frombuffer(b"".join(items), np.uint8))


@st.composite
def values_of(draw: Callable, physical: PhysicalType, *, min_count: int = 1) -> Values:
    """Values of one type in a drawn shape and number."""
    counts = st.one_of(st.sampled_from(COUNTS), st.integers(min_count, 3000))
    count = max(draw(counts), min_count)
    return make_values(
        physical, count, draw(st.sampled_from(SHAPES)), draw(st.integers(0, 2**32 - 1))
    )


@st.composite
def typed_values(draw: Callable) -> tuple[PhysicalType, Values]:
    """A type and values of it."""
    physical = draw(st.sampled_from(TYPES))
    return physical, draw(values_of(physical))


def cuts_of(count: int, pages: int) -> np.ndarray:
    """Cuts into at most this many pages of uneven sizes, none of them empty."""
    inner = (np.arange(1, pages) * count) // pages + np.arange(1, pages) % 3
    return np.unique(np.concatenate([[0], inner[(inner > 0) & (inner < count)], [count]]))


def page_slices(chunk: EncodedChunk, cuts: np.ndarray) -> tuple[list[PageSlice], PageSlice | None]:
    """All slots of a chunk's pages, and its dictionary page, at offsets as in a file."""
    offset, pages, dictionary = 16, list(chunk.pages), None
    if chunk.has_dictionary:
        dictionary = PageSlice(memoryview(pages[0]), offset, 0, 0, 0)
        offset += len(pages.pop(0))
    slices = []
    for page, (start, stop) in zip(pages, pairwise(cuts.tolist()), strict=True):
        slices.append(PageSlice(memoryview(page), offset, stop - start, 0, stop - start))
        offset += len(page)
    return slices, dictionary


def read_slots(
    chunk: EncodedChunk, cuts: np.ndarray, physical: PhysicalType, start: int, stop: int
) -> Values:
    """Slots ``start`` to ``stop`` of a chunk, through the pages that hold them."""
    slices, dictionary = page_slices(chunk, cuts)
    wanted = []
    for page, low in zip(slices, cuts.tolist(), strict=False):
        first, last = max(start - low, 0), min(stop - low, page.slot_count)
        if first < last:
            wanted.append(PageSlice(page.buffer, page.offset, page.slot_count, first, last))
    return decode_pages(wanted, physical, dictionary=dictionary, where="a.fermion")


def assert_same(found: Values, expected: Values) -> None:
    """Fail unless both hold the same values, bit by bit."""
    assert type(found) is type(expected)
    assert len(found) == len(expected)
    if isinstance(expected, Bits):
        np.testing.assert_array_equal(found.unpack(), expected.unpack())
    elif isinstance(expected, BinaryValues):
        np.testing.assert_array_equal(found.offsets, expected.offsets)
        assert found.data.dtype == np.uint8
        np.testing.assert_array_equal(found.data, expected.data[: expected.offsets[-1]])
    else:
        assert found.dtype == expected.dtype
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def assert_slots_same(
    chunk: EncodedChunk,
    cuts: np.ndarray,
    physical: PhysicalType,
    values: Values,
    bounds: list[tuple[int, int]],
) -> None:
    """Fail unless each slice of the chunk reads as the same slice of ``values``."""
    for start, stop in bounds:
        found = read_slots(chunk, cuts, physical, start, stop)
        assert_same(found, slice_values(values, start, stop))
