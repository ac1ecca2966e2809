"""One suite over the compiled kernels and their NumPy twins."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion import kernels as compiled
from fermion.io.checksum import checksum
from fermion.layout import INT64_MAX, INT64_MIN, ChecksumKind
from tests.kit.numpy_kernels import functions as reference

BOTH = pytest.mark.parametrize("k", [compiled, reference], ids=["compiled", "reference"])
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NUMBERS = [*INTEGERS, "f2", "f4", "f8"]
FIXED = [*NUMBERS, "V1", "V3", "V4", "V8", "V12", "V16", "V32"]

# A quarter of the profile's examples for tests that already run once a type.
few = settings(max_examples=settings.default.max_examples // 4)
seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 130, 300])


def random_fixed(rng: np.random.Generator, dtype: str, count: int, distinct: int) -> np.ndarray:
    """Draw values from a small pool of random bytes, so that some repeat."""
    pool = np.frombuffer(rng.bytes(distinct * np.dtype(dtype).itemsize), dtype)
    return pool[rng.integers(0, distinct, count)]


def random_bits(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw bits that are mostly set, all set, or mostly clear; a spare byte of garbage follows."""
    share = rng.choice([0.05, 0.5, 0.97, 1.0])
    flags = rng.random((count + 7) // 8 * 8) < share
    return np.append(np.packbits(flags, bitorder="little"), np.uint8(0xA5))


def random_binary(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw byte strings of few letters and of lengths around 8 and 16."""
    lengths = rng.choice([0, 1, 3, 7, 8, 9, 15, 16, 17, 40], count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, rng.choice(np.array([0, 1, 255], np.uint8), int(offsets[-1]))


def items_of(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


def awkward(array: np.ndarray) -> list[np.ndarray]:
    """Give the same values read-only, strided, and at an odd address."""
    frozen = array.copy()
    frozen.flags.writeable = False
    strided = np.repeat(array, 2)[::2]
    shifted = np.frombuffer(b"\0" + array.tobytes(), array.dtype, len(array), 1)
    return [frozen, strided, shifted]


# Checksums


@BOTH
def test_crc32c_gives_the_published_check_values(k: ModuleType):
    """RFC 3720, appendix B.4, and the check value of the CRC catalogues."""
    assert k.crc32c(b"123456789") == 0xE3069283
    assert k.crc32c(bytes(32)) == 0x8A9136AA
    assert k.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert k.crc32c(bytes(range(32))) == 0x46DD794E
    assert k.crc32c(b"") == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 3071, 3072, 3073, 6144, 10_000])
def test_crc32c_agrees_with_and_without_the_instruction_and_in_parts(size: int):
    data = np.random.default_rng(size).bytes(size)
    whole = compiled.crc32c(data)
    assert whole == compiled.crc32c(data, portable=True) == reference.crc32c(data)
    assert whole == compiled.crc32c(data[size // 3 :], compiled.crc32c(data[: size // 3]))
    assert whole == compiled.crc32c(memoryview(bytearray(b"x" + data))[1:])


def test_crc32c_takes_arrays_of_any_type_but_no_strided_ones():
    values = np.arange(100, dtype=np.float64)
    assert compiled.crc32c(values) == compiled.crc32c(values.tobytes())
    assert compiled.crc32c(values.view("V16")) == compiled.crc32c(values.tobytes())
    with pytest.raises((BufferError, ValueError)):
        compiled.crc32c(values[::2])


def test_a_checksum_kind_names_its_function():
    assert checksum(ChecksumKind.NONE, b"abc") == 0
    assert checksum(ChecksumKind.CRC32, b"abc") == zlib.crc32(b"abc")
    assert checksum(ChecksumKind.CRC32C, b"abc") == compiled.crc32c(b"abc")
    whole = xxhash.xxh3_64_intdigest(b"abc")
    assert checksum(ChecksumKind.XXH3, b"abc") == whole >> 32 ^ whole & 0xFFFF_FFFF


@pytest.mark.parametrize("kind", list(ChecksumKind))
@pytest.mark.parametrize("size", [0, 1, 16, 240, 241, 5_000])
def test_a_checksum_of_parts_is_that_of_the_whole(kind: ChecksumKind, size: int):
    data = np.random.default_rng(size).bytes(size)
    parts = data[: size // 3], memoryview(data)[size // 3 : size // 2], bytearray(data[size // 2 :])
    assert checksum(kind, *parts) == checksum(kind, data)
    assert checksum(kind) == checksum(kind, b"")


# Bits


@BOTH
@given(seed=seeds, size=sizes)
def test_bits_are_counted_and_copied_at_any_position(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    data, out = random_bits(rng, size), random_bits(rng, size + 20)
    start = int(rng.integers(0, size + 1))
    count = int(rng.integers(0, size - start + 1))
    to = int(rng.integers(0, 20))
    flags = np.unpackbits(data, bitorder="little")
    expected = np.unpackbits(out, bitorder="little")
    expected[to : to + count] = flags[start : start + count]
    assert k.count_bits(data, start, count) == flags[start : start + count].sum()
    k.copy_bits(data, start, out, to, count)
    assert np.array_equal(np.unpackbits(out, bitorder="little"), expected)


@BOTH
@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 17), (17, 0), (16, 1), (3, -1)])
def test_bits_outside_of_the_bytes_are_refused(k: ModuleType, start: int, count: int):
    two = np.zeros(2, np.uint8)
    with pytest.raises(ValueError):
        k.count_bits(two, start, count)
    with pytest.raises(ValueError):
        k.copy_bits(np.zeros(9, np.uint8), 0, two, start, count)
    with pytest.raises(ValueError):
        k.copy_bits(two, start, np.zeros(9, np.uint8), 0, count)


# Bounds


def bounds_of(k: ModuleType, values: np.ndarray, bits: np.ndarray | None, cuts: list[int]) -> list:
    """Call `page_bounds` and give (min, max, nulls, nans) of each page."""
    found = [np.full(len(cuts) - 1, 77, np.int64) for _ in range(4)]
    k.page_bounds(values, bits, np.array(cuts, np.int64), *found)
    return list(zip(*(column.tolist() for column in found), strict=True))


def place(value: float) -> int:
    """The place of a float64 in the total order, from its bytes."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else bits ^ INT64_MAX


@BOTH
@pytest.mark.parametrize("dtype", NUMBERS)
@few
@given(seed=seeds, size=sizes)
def test_bounds_are_those_of_the_valid_numbers(k: ModuleType, dtype: str, seed: int, size: int):
    """The model takes each page's values one by one in Python."""
    rng = np.random.default_rng(seed)
    values = random_fixed(rng, dtype, size, 40)
    if rng.random() < 0.5:
        values = (values.view(f"u{values.itemsize}") % 50).astype(dtype)
    cuts = [0, *np.sort(rng.integers(0, size + 1, 3)).tolist(), size]
    bits = random_bits(rng, size) if rng.random() < 0.7 else None
    valid = np.unpackbits(bits, bitorder="little") if bits is not None else np.ones(size, np.uint8)
    expected = []
    for start, stop in pairwise(cuts):
        page = [values[i].item() for i in range(start, stop) if valid[i]]
        nulls = stop - start - len(page)
        numbers = [value for value in page if value == value]
        low, high = INT64_MAX, INT64_MIN
        if numbers and dtype[0] == "f":
            low, high = place(min(numbers) or -0.0), place(max(numbers) or 0.0)
        elif numbers:
            shift = 2**63 if dtype == "u8" else 0
            low, high = min(numbers) - shift, max(numbers) - shift
        expected.append((low, high, nulls, len(page) - len(numbers)))
    assert bounds_of(k, values, bits, cuts) == expected


@BOTH
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_has_no_place_and_zero_has_two(k: ModuleType, dtype: str):
    nan, inf = float("nan"), float("inf")
    values = np.array([nan, nan, 0.0, 0.0, -0.0, nan, inf, -inf, nan, 1.5] + [nan] * 40, dtype)
    zero = (place(-0.0), place(0.0), 0)
    assert bounds_of(k, values, None, [0, 2, 2, 3, 5, 6, 10, 50]) == [
        (INT64_MAX, INT64_MIN, 0, 2),
        (INT64_MAX, INT64_MIN, 0, 0),
        (*zero, 0),
        (*zero, 0),
        (INT64_MAX, INT64_MIN, 0, 1),
        (place(-inf), place(inf), 0, 1),
        (INT64_MAX, INT64_MIN, 0, 40),
    ]


@BOTH
def test_half_floats_keep_their_subnormals(k: ModuleType):
    values = np.array([6e-8, 3e-5, -6e-5, 65504, 1], np.float16)
    expected = [(place(float(value)), place(float(value)), 0, 0) for value in values]
    assert bounds_of(k, values, None, [0, 1, 2, 3, 4, 5]) == expected


@BOTH
def test_extreme_integers_are_told_from_a_page_without_any(k: ModuleType):
    values = np.array([INT64_MIN, INT64_MAX], np.int64)
    assert bounds_of(k, values, None, [0, 1, 2]) == [
        (INT64_MIN, INT64_MIN, 0, 0),
        (INT64_MAX, INT64_MAX, 0, 0),
    ]
    assert bounds_of(k, values.view("M8[us]"), None, [0, 2]) == [(INT64_MIN, INT64_MAX, 0, 0)]


@BOTH
@given(seed=seeds, size=sizes)
def test_binary_bounds_name_the_first_smallest_and_greatest(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    offsets, data = random_binary(rng, size)
    items = items_of(offsets, data)
    cuts = np.array([0, *np.sort(rng.integers(0, size + 1, 3)).tolist(), size], np.int64)
    bits = random_bits(rng, size) if rng.random() < 0.7 else None
    low, high, nulls = (np.full(4, 77, np.int64) for _ in range(3))
    k.page_bounds_binary(offsets, data, bits, cuts, low, high, nulls)
    for page, (start, stop) in enumerate(pairwise(cuts.tolist())):
        slots = [i for i in range(start, stop) if bits is None or bits[i // 8] >> i % 8 & 1]
        assert low[page] == min(slots, key=lambda i: items[i], default=-1)
        assert high[page] == max(slots, key=lambda i: items[i], default=-1)
        assert nulls[page] == stop - start - len(slots)


@BOTH
@pytest.mark.parametrize("cuts", [[], [0, 5], [-1, 3], [0, 3, 2], [5]])
def test_cuts_must_divide_the_values(k: ModuleType, cuts: list[int]):
    cut_array = np.array(cuts, np.int64)
    found = [np.zeros(max(len(cuts) - 1, 0), np.int64) for _ in range(4)]
    with pytest.raises(ValueError):
        k.page_bounds(np.zeros(4, np.int32), None, cut_array, *found)
    offsets = np.zeros(5, np.int64)
    with pytest.raises(ValueError):
        k.page_bounds_binary(offsets, np.empty(0, np.uint8), None, cut_array, *found[:3])


@BOTH
def test_bounds_need_enough_bits_room_and_a_number(k: ModuleType):
    cuts, one, two = np.array([0, 9]), np.zeros(1, np.int64), np.zeros(2, np.int64)
    values = np.zeros(9, np.int32)
    with pytest.raises(ValueError):
        k.page_bounds(values, np.zeros(1, np.uint8), cuts, one, one, one, one)
    with pytest.raises(ValueError):
        k.page_bounds(values, None, cuts, one, two, one, one)
    with pytest.raises(TypeError):
        k.page_bounds(np.zeros(9, "V16"), None, cuts, one, one, one, one)


# Dictionaries


def model_dictionary(items: list[bytes]) -> tuple[list[int], list[int]]:
    """Codes and first appearances, by a Python dict."""
    first: dict[bytes, int] = {}
    for i, item in enumerate(items):
        first.setdefault(item, i)
    order = {item: code for code, item in enumerate(first)}
    return [order[item] for item in items], list(first.values())


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize(("count", "distinct"), [(0, 1), (1, 1), (300, 5), (3000, 2500)])
def test_a_dictionary_lists_values_as_they_first_appear(
    k: ModuleType, dtype: str, count: int, distinct: int
):
    """2,500 distinct values make the hash table grow."""
    values = random_fixed(np.random.default_rng(count), dtype, count, distinct)
    codes, first = model_dictionary([value.tobytes() for value in values])
    for array in [values, *awkward(values)]:
        found = k.build_dictionary(array, len(first))
        assert found is not None
        assert found[0].dtype == np.uint32
        assert found[0].tolist() == codes
        assert found[1].tolist() == first
    assert (k.build_dictionary(values, len(first) - 1) is None) if count else True


@BOTH
@given(seed=seeds, size=sizes)
def test_binary_dictionaries_and_their_gathering_undo_each_other(
    k: ModuleType, seed: int, size: int
):
    offsets, data = random_binary(np.random.default_rng(seed), size)
    codes, first = model_dictionary(items_of(offsets, data))
    found = k.build_dictionary_binary(offsets, data, len(first))
    assert found is not None
    assert found[0].tolist() == codes
    assert found[1].tolist() == first
    if first:
        assert k.build_dictionary_binary(offsets, data, len(first) - 1) is None
    out_offsets = np.empty(size + 1, np.int64)
    source = found[1][found[0]].astype(np.uint32)
    total = k.gather_binary(offsets, data, source, out_offsets)
    out = np.empty(total, np.uint8)
    k.gather_binary_data(offsets, data, source, out_offsets, out)
    assert np.array_equal(out_offsets, offsets)
    assert np.array_equal(out, data)


@BOTH
def test_equal_means_equal_bytes(k: ModuleType):
    """Two NaNs of different payload and the two zeros are four values."""
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0, 1 << 63], np.uint64)
    codes, first = k.build_dictionary(np.tile(bits, 2).view(np.float64), 10)
    assert codes.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert first.tolist() == [0, 1, 2, 3]
    assert k.count_runs(np.array([0.0, -0.0, -0.0])) == 2


@BOTH
def test_limits_and_objects_are_refused(k: ModuleType):
    with pytest.raises(ValueError):
        k.build_dictionary(np.arange(3), -1)
    with pytest.raises(TypeError):
        k.build_dictionary(np.array([None]), 1)


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
def test_gathering_looks_values_up_by_code(k: ModuleType, dtype: str):
    rng = np.random.default_rng(1)
    dictionary = random_fixed(rng, dtype, 50, 1000)
    codes = rng.integers(0, 50, 333).astype(np.uint32)
    for values, indices in zip(awkward(dictionary), awkward(codes), strict=True):
        out = np.empty(333, dtype)
        k.gather_fixed(values, indices, out)
        assert out.tobytes() == dictionary[codes].tobytes()
    k.gather_fixed(np.empty(0, dtype), np.empty(0, np.uint32), np.empty(0, dtype))


@BOTH
def test_codes_outside_of_a_dictionary_are_refused_before_any_write(k: ModuleType):
    codes, out = np.array([0, 3], np.uint32), np.full(2, 7, np.int32)
    with pytest.raises(ValueError):
        k.gather_fixed(np.arange(3, dtype=np.int32), codes, out)
    assert out.tolist() == [7, 7]
    offsets, data, ends = np.array([0, 1, 2, 3]), np.zeros(3, np.uint8), np.full(3, 7)
    with pytest.raises(ValueError):
        k.gather_binary(offsets, data, codes, ends)
    assert ends.tolist() == [7, 7, 7]
    with pytest.raises(ValueError):
        k.gather_binary_data(offsets, data, codes, ends, np.zeros(2, np.uint8))


@BOTH
def test_gathering_needs_room_that_fits(k: ModuleType):
    offsets, data = np.array([0, 30, 31]), np.zeros(31, np.uint8)
    codes, ends = np.array([1, 0, 1], np.uint32), np.empty(4, np.int64)
    assert k.gather_binary(offsets, data, codes, ends) == 32
    for room in (0, 15, 31, 33):
        with pytest.raises(ValueError):
            k.gather_binary_data(offsets, data, codes, ends, np.zeros(room, np.uint8))
    with pytest.raises(ValueError):
        k.gather_binary(offsets, data, codes, ends[:3])
    with pytest.raises(ValueError):
        k.gather_fixed(np.zeros(2, np.int32), codes, np.zeros(3, np.int64))
    with pytest.raises(ValueError):
        k.gather_fixed(np.zeros(2, np.int32), codes, np.zeros(2, np.int32))


@BOTH
@pytest.mark.parametrize("offsets", [[], [0, 5], [-1, 2], [0, 3, 2]])
def test_offsets_must_lie_within_the_bytes(k: ModuleType, offsets: list[int]):
    ends, data, codes = np.array(offsets, np.int64), np.zeros(4, np.uint8), np.zeros(1, np.uint32)
    with pytest.raises(ValueError):
        k.build_dictionary_binary(ends, data, 10)
    with pytest.raises(ValueError):
        k.gather_binary(ends, data, codes, np.zeros(2, np.int64))


# Lengths and ranges


@BOTH
@pytest.mark.parametrize("dtype", INTEGERS)
def test_offsets_are_running_totals_of_lengths(k: ModuleType, dtype: str):
    lengths = np.random.default_rng(3).integers(0, 127, 1000).astype(dtype)
    for array in [lengths, *awkward(lengths), lengths[:0]]:
        out = np.empty(len(array) + 1, np.int64)
        assert k.lengths_to_offsets(array, out) == array.sum(dtype=np.int64)
        assert np.array_equal(out, np.append(0, np.cumsum(array, dtype=np.int64)))


@BOTH
def test_lengths_that_have_no_offsets_are_refused(k: ModuleType):
    out = np.empty(3, np.int64)
    for lengths in ([1, -1], [INT64_MAX, 1], [INT64_MIN, INT64_MIN]):
        with pytest.raises(ValueError):
            k.lengths_to_offsets(np.array(lengths), out)
    with pytest.raises(ValueError):
        k.lengths_to_offsets(np.array([2**63, 0], np.uint64), out)
    with pytest.raises(ValueError):
        k.lengths_to_offsets(np.array([1]), out)
    with pytest.raises(TypeError):
        k.lengths_to_offsets(np.array([1.0, 2.0]), out)


@BOTH
@given(seed=seeds, size=sizes)
def test_ranges_are_joined(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    values, bits = random_fixed(rng, "V3", size, 20), random_bits(rng, size)
    pairs = np.sort(rng.integers(0, size + 1, (4, 2)), axis=1)
    starts, stops = pairs[:, 0].copy(), pairs[:, 1].copy()
    slots = np.concatenate([np.arange(a, b) for a, b in pairs]).astype(int)
    out, packed = np.empty(len(slots), "V3"), random_bits(rng, len(slots))
    k.gather_ranges(values, starts, stops, out)
    k.gather_ranges_bits(bits, starts, stops, packed)
    assert out.tobytes() == values[slots].tobytes()
    flags = np.unpackbits(bits, bitorder="little")
    assert np.array_equal(np.unpackbits(packed, count=len(slots), bitorder="little"), flags[slots])


@BOTH
@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 9), (9, 9)])
def test_ranges_outside_of_the_slots_are_refused(k: ModuleType, start: int, stop: int):
    starts, stops = np.array([start]), np.array([stop])
    with pytest.raises(ValueError):
        k.gather_ranges(np.arange(8), starts, stops, np.zeros(max(stop - start, 0), np.int64))
    with pytest.raises(ValueError):
        k.gather_ranges_bits(np.zeros(1, np.uint8), starts, stops, np.zeros(9, np.uint8))


# Fixed-width values


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 500])
def test_nulls_are_filled_with_the_value_before_them(k: ModuleType, dtype: str, size: int):
    rng = np.random.default_rng(size)
    values, bits = random_fixed(rng, dtype, size, 1000).copy(), random_bits(rng, size)
    expected, last = [], bytes(values.itemsize)
    for i, value in enumerate(values):
        last = value.tobytes() if bits[i // 8] >> i % 8 & 1 else last
        expected.append(last)
    k.fill_nulls(values, bits)
    assert values.tobytes() == b"".join(expected)


@BOTH
@pytest.mark.parametrize("width", [16, 32])
def test_wide_integers_narrow_if_they_fit(k: ModuleType, width: int):
    numbers = [0, 1, -1, INT64_MAX, INT64_MIN]
    wide = np.frombuffer(b"".join(n.to_bytes(width, "little", signed=True) for n in numbers), "V8")
    wide, out = wide.view(f"V{width}"), np.empty(5, np.int64)
    assert k.narrow_fixed(wide, out)
    assert out.tolist() == numbers
    back = np.empty(5, f"V{width}")
    k.widen_fixed(out, back)
    assert back.tobytes() == wide.tobytes()
    for number in (INT64_MAX + 1, INT64_MIN - 1, 1 << (8 * width - 2)):
        big = np.frombuffer(number.to_bytes(width, "little", signed=True), f"V{width}")
        assert not k.narrow_fixed(big, np.empty(1, np.int64))
    with pytest.raises(ValueError):
        k.narrow_fixed(np.zeros(1, "V8"), np.empty(1, np.int64))
    with pytest.raises(ValueError):
        k.widen_fixed(np.zeros(1, np.int64), np.empty(2, f"V{width}"))
