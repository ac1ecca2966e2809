"""FOR_BITPACK: values survive, sizes are as told, blocks stand alone, broken bytes are refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion import kernels
from fermion.encodings import bitpack
from fermion.errors import FermionError, InvalidArgumentError, InvalidFileError
from tests.kit.numpy_kernels import functions as reference
from tests.kit.numpy_kernels import picks as reference_picks

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
TYPES = pytest.mark.parametrize("dtype", DTYPES)
few = settings(max_examples=settings.default.max_examples // 4)
seeds = st.integers(0, 2**32 - 1)


def decode(payload: bytes, dtype: str, count: int, start: int = 0, stop: int | None = None):
    """Decode into a new array that is followed by a guard."""
    stop = count if stop is None else stop
    room = np.full(stop - start + 8, 0x5A, dtype)
    bitpack.decode(payload, dtype, count, start, stop, room[: stop - start])
    assert (room[stop - start :] == 0x5A).all()
    return room[: stop - start]


def packed(base: int, width: int, count: int, seed: int, dtype: str) -> np.ndarray:
    """Draw values whose offsets from ``base`` need ``width`` bits, modulo the type."""
    bits = 8 * np.dtype(dtype).itemsize
    offsets = np.random.default_rng(seed).integers(0, 2**width, count, np.uint64, endpoint=False)
    return (offsets + np.uint64(base % 2**64)).astype(f"u{bits // 8}").view(dtype)


def some_values(dtype: str, count: int, seed: int) -> np.ndarray:
    """Draw values of one of the shapes that blocks take: narrow, full, constant, with outliers."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.max], dtype)
    shape = rng.integers(0, 5)
    if shape == 0:
        return rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    if shape == 1:
        return rng.choice(ends, count)
    narrow = rng.integers(0, rng.integers(1, 100), count).astype(dtype)
    if shape == 2:
        return narrow
    outlier = rng.random(count) < rng.choice([0.001, 0.01, 0.3])
    return np.where(outlier, rng.integers(0, limits.max, count, dtype=dtype), narrow)


def test_the_documented_example_has_the_documented_bytes():
    payload = bitpack.encode(np.array([7, 9, 8, 7, 10], np.uint8))
    expected = "08 00 00 00 05 00 00 00 07 00 00 00 02 00 00 00 07 18 03 00 00 00 00 00"
    assert payload == bytes.fromhex(expected)


@TYPES
def test_every_width_survives_at_both_ends_of_the_type(dtype: str):
    """Full blocks and partial ones, based at the smallest value and so as to end at the largest."""
    limits = np.iinfo(dtype)
    for width in range(limits.bits + 1):
        for base in (limits.min, limits.max - 2**width + 1):
            values = packed(base, width, 1024 + 77, width, dtype)
            payload = bitpack.encode(values)
            assert np.array_equal(decode(payload, dtype, len(values)), values)
            block = 4 + limits.bits // 8
            assert len(payload) <= 8 + 2 * (4 + block) + 128 * width + (77 * width + 7) // 8 + 7


@TYPES
@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 2048, 5000])
def test_any_count_survives_and_is_estimated_exactly(dtype: str, count: int):
    for seed in range(8):
        values = some_values(dtype, count, seed)
        payload = bitpack.encode(values)
        assert len(payload) == kernels.bitpack_size(values)
        assert len(payload) % 8 == 0
        assert np.array_equal(decode(payload, dtype, count), values)
        assert len(payload) <= values.nbytes + 16 + 16 * (count // 1024 + 1)


@few
@given(dtype=st.sampled_from(DTYPES), seed=seeds, count=st.integers(0, 2300))
def test_the_kernel_and_its_twin_write_the_same_bytes(dtype: str, seed: int, count: int):
    values = some_values(dtype, count, seed)
    payload = bitpack.encode(values)
    twin = reference.bitpack_encode(values)
    assert payload == twin.tobytes()
    start, stop = np.sort(np.random.default_rng(seed).integers(0, count + 1, 2)).tolist()
    out = np.empty(stop - start, dtype)
    reference.bitpack_decode(twin, count, start, stop, out)
    assert np.array_equal(out, values[start:stop])


@given(dtype=st.sampled_from(DTYPES), seed=seeds, count=st.integers(1, 5000), data=st.data())
def test_any_slice_is_decoded_alone(dtype: str, seed: int, count: int, data: st.DataObject):
    values = some_values(dtype, count, seed)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    found = decode(bitpack.encode(values), dtype, count, start, stop)
    assert np.array_equal(found, values[start:stop])


@given(dtype=st.sampled_from(DTYPES), seed=seeds, count=st.integers(1, 5000), data=st.data())
def test_any_slots_are_picked_alone(dtype: str, seed: int, count: int, data: st.DataObject):
    """By both twins."""
    values = some_values(dtype, count, seed)
    payload = np.frombuffer(bitpack.encode(values), np.uint8)
    chosen = data.draw(st.sets(st.integers(0, count - 1), max_size=20))
    slots = np.array(sorted(chosen), np.int64)
    for k in (kernels, reference_picks):
        out = np.empty(len(slots), dtype)
        k.bitpack_pick(payload, count, slots, out)
        assert np.array_equal(out, values[slots])


def test_picked_slots_need_only_their_own_blocks_and_are_checked():
    """The blocks of no slot are overwritten with bytes that cannot be decoded."""
    values = np.arange(4 * 1024, dtype=np.int64) ** 2
    payload = np.frombuffer(bitpack.encode(values), np.uint8).copy()
    ends = [24 + end for end in struct.unpack_from("<4I", payload, 8)]
    payload[ends[0] : ends[1]] = 0xFF
    slots = np.array([3, 1023, 2048, 4095])
    for k in (kernels, reference_picks):
        out = np.empty(4, np.int64)
        k.bitpack_pick(payload, 4096, slots, out)
        assert np.array_equal(out, values[slots])
        for wrong in ([3, 1024, 2048, 4095], [3, 3, 4, 5], [4, 3, 5, 6], [-1, 0, 1, 2]):
            with pytest.raises(ValueError):
                k.bitpack_pick(payload, 4096, np.array(wrong), out)
        for wrong_count, size in ((4095, 4), (4096, 3)):
            with pytest.raises(ValueError):
                k.bitpack_pick(payload, wrong_count, slots[:4], np.empty(size, np.int64))
        with pytest.raises(ValueError):
            k.bitpack_pick(payload[:7], 4096, slots, out)
    with pytest.raises(InvalidFileError, match="block 1"):
        bitpack.pick(payload, 4096, np.array([1, 2047]), np.empty(2, np.int64))


def test_a_slice_needs_only_its_own_blocks():
    """All other blocks are overwritten with bytes that cannot be decoded."""
    values = np.arange(4 * 1024, dtype=np.int64) ** 2
    payload = bytearray(bitpack.encode(values))
    ends = [24 + end for end in struct.unpack_from("<4I", payload, 8)]
    payload[24 : ends[1]] = b"\xff" * (ends[1] - 24)
    payload[ends[2] :] = b"\xff" * (len(payload) - ends[2])
    assert np.array_equal(decode(bytes(payload), "i8", 4096, 2100, 2900), values[2100:2900])
    with pytest.raises(InvalidFileError, match="block 3"):
        decode(bytes(payload), "i8", 4096, 2100, 3100)


@TYPES
def test_a_payload_may_lie_at_any_address(dtype: str):
    values = some_values(dtype, 1500, 4)
    payload = bitpack.encode(values)
    for shift in range(8):
        moved = memoryview(b"\0" * shift + payload)[shift:]
        out = np.empty(1500, dtype)
        bitpack.decode(moved, dtype, 1500, 0, 1500, out)
        assert np.array_equal(out, values)


def test_read_only_and_strided_values_are_packed_alike():
    values = np.arange(3000, dtype=np.int32)
    frozen = values.copy()
    frozen.flags.writeable = False
    assert bitpack.encode(frozen) == bitpack.encode(np.repeat(values, 2)[::2])
    assert bitpack.encode(frozen) == bitpack.encode(values)


@pytest.mark.parametrize("outliers", [1, 20, 255])
def test_outliers_become_patches_when_that_is_smaller(outliers: int):
    """8 bits instead of 40, and 2 + 4 bytes an outlier."""
    values = np.random.default_rng(5).integers(0, 256, 1024)
    values[np.random.default_rng(6).permutation(1024)[:outliers]] = 1 << 39
    payload = bitpack.encode(values)
    assert tuple(payload[12:16]) == (8, outliers, 4, 0)
    assert len(payload) == 12 + 12 + 1024 + outliers * 6 + (-outliers * 6) % 8
    assert np.array_equal(decode(payload, "i8", 1024), values)


def test_more_outliers_than_a_block_can_patch_widen_it():
    values = np.zeros(1024, np.int64)
    values[:256] = 1 << 39
    assert tuple(bitpack.encode(values)[12:16]) == (40, 0, 0, 0)


def test_a_block_of_one_value_takes_no_bits():
    assert len(bitpack.encode(np.full(1024, -7, np.int64))) == 24


def test_only_whole_numbers_are_packed():
    with pytest.raises(TypeError):
        bitpack.encode(np.zeros(3))
    with pytest.raises(TypeError):
        kernels.bitpack_size(np.zeros(3, "V8"))


def test_arguments_that_do_not_fit_together_are_refused():
    payload = bitpack.encode(np.arange(10, dtype=np.int32))
    out = np.empty(4, np.int32)
    for start, stop in ((-1, 3), (8, 12), (5, 1), (0, 5)):
        with pytest.raises(InvalidArgumentError):
            bitpack.decode(payload, "i4", 10, start, stop, out)
    with pytest.raises(InvalidArgumentError):
        bitpack.decode(payload, "i8", 10, 0, 4, out)


def test_a_payload_of_another_type_or_count_is_refused():
    payload = bitpack.encode(np.arange(10, dtype=np.int32))
    for dtype, count in (("i8", 10), ("i2", 10), ("i4", 9), ("i4", 11), ("i4", 2**31)):
        with pytest.raises(InvalidFileError):
            bitpack.decode(payload, dtype, count, 0, 0, np.empty(0, dtype))


def corruption_cases() -> list[tuple[str, np.ndarray]]:
    """Payloads with a full block, a partial one, and patches in both."""
    rng = np.random.default_rng(7)
    values = rng.integers(0, 4, 1100)
    values[[3, 500, 1023, 1050]] = 120
    wide = values.astype(np.int64)
    wide[[4, 1060]] = np.iinfo(np.int64).max
    return [("u1", values.astype(np.uint8)), ("i8", wide)]


@pytest.mark.parametrize(("dtype", "values"), corruption_cases(), ids=["u1", "i8"])
def test_a_changed_byte_gives_our_error_or_some_values(dtype: str, values: np.ndarray):
    """Every byte takes five other values; the guard behind the output must stay as it was."""
    payload = bytearray(bitpack.encode(values))
    refused = 0
    for at in range(len(payload)):
        kept = payload[at]
        for changed in {0, 0xFF, kept ^ 1, kept ^ 0x80, (kept + 1) % 256} - {kept}:
            payload[at] = changed
            try:
                decode(bytes(payload), dtype, len(values))
            except FermionError:
                refused += 1
        payload[at] = kept
    assert refused > 60


def test_the_kernel_and_its_twin_refuse_the_same_bytes():
    """Each bit of a small payload is flipped; both give equal values or both an error."""
    values = np.array([3, 1, 0, 2, 90, 1, 0, 3, 3, 2, 1, 0, 2, 2, 1, 0, 3] * 3, np.uint16)
    payload = bitpack.encode(values)
    assert payload[13] == 3, "expected patches"
    for bit in range(8 * len(payload)):
        changed = np.frombuffer(payload, np.uint8).copy()
        changed[bit // 8] ^= 1 << bit % 8
        found = []
        for k in (kernels, reference):
            out = np.zeros(len(values), np.uint16)
            try:
                k.bitpack_decode(changed, len(values), 0, len(values), out)
            except ValueError:
                out[:] = 0xFFFF
            found.append(out.tolist())
        assert found[0] == found[1]


@pytest.mark.parametrize(("dtype", "values"), corruption_cases(), ids=["u1", "i8"])
def test_a_payload_cut_short_is_refused(dtype: str, values: np.ndarray):
    """But for the padding, which decoding does not need."""
    payload = bitpack.encode(values)
    needed = 16 + struct.unpack_from("<2I", payload, 8)[1]
    for length in range(needed):
        with pytest.raises(InvalidFileError):
            decode(payload[:length], dtype, len(values))


@few
@given(body=st.binary(max_size=400), dtype=st.sampled_from(DTYPES), count=st.integers(0, 2100))
def test_random_bytes_after_a_sound_header_give_our_error_or_some_values(
    body: bytes, dtype: str, count: int
):
    bits = 8 * np.dtype(dtype).itemsize
    ends = [len(body) * k // 3 for k in range(1, 4)][: -(-count // 1024)]
    header = struct.pack(f"<B3xI{len(ends)}I", bits, count, *ends)
    try:
        decode(header + body, dtype, count)
    except FermionError as error:
        assert isinstance(error, InvalidFileError)  # noqa: PT017 - either outcome is right
