"""LZ4 blocks: both twins decode what Arrow's codec wrote, damage is refused, files choose it."""

from __future__ import annotations

import io
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import kernels as compiled
from fermion.columns.types import INT64
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedEncodingError
from fermion.io import compression
from fermion.io.compression import pack, unpack
from fermion.layout import Codec, EncodingId
from fermion.options import WriteOptions
from fermion.pages.pages import encode_chunk
from tests.kit.equality import assert_logically_equal
from tests.kit.files.physical_values import assert_slots_same
from tests.kit.numpy_kernels import lz4 as reference_lz4

BOTH = pytest.mark.parametrize("k", [compiled, reference_lz4], ids=["compiled", "reference"])
few = settings(max_examples=settings.default.max_examples // 4)


def decoded(k: ModuleType, block: bytes, size: int) -> tuple[int, bytes]:
    out = np.empty(size, np.uint8)
    return k.lz4_decode(np.frombuffer(block, np.uint8), out), out.tobytes()


@BOTH
@few
@given(
    period=st.sampled_from([1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 300, 70_000]),
    count=st.sampled_from([0, 1, 4, 12, 13, 100, 255, 3000]),
    noise=st.integers(0, 40),
    level=st.sampled_from([1, 9]),
    seed=st.integers(0, 100),
)
def test_blocks_of_any_repeats_decode_to_what_they_were_made_of(
    k: ModuleType, period: int, count: int, noise: int, level: int, seed: int
):
    """Repeats of every distance, near and far, between bytes that never repeat."""
    rng = np.random.default_rng(seed)
    word = rng.bytes(min(period, 400))
    raw = (word * (count // len(word) + 1))[:count] + rng.bytes(noise) + word[: count // 2]
    block = pack(Codec.LZ4, raw, level)
    assert decoded(k, block, len(raw)) == (len(block), raw)
    assert decoded(k, block + b"\0\0\0", len(raw)) == (len(block), raw)
    assert bytes(unpack(Codec.LZ4, block, len(raw))) == raw


@BOTH
def test_long_repeats_and_long_literals_have_lengths_of_many_bytes(k: ModuleType):
    rng = np.random.default_rng(0)
    raw = rng.bytes(1000) + b"x" * 1000 + rng.bytes(15) + b"abc" * 90 + rng.bytes(271)
    block = pack(Codec.LZ4, raw, 1)
    assert decoded(k, block, len(raw)) == (len(block), raw)


@BOTH
@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"", 0),
        (b"", 5),
        (b"\x10", 1),
        (b"\x10a", 2),
        (b"\x20ab", 1),
        (b"\xf0", 20),
        (b"\xf0\xff\xff", 600),
        (b"\x10a\x01", 9),
        (b"\x10a\x01\x00", 5),
        (b"\x10a\x00\x00\x00", 9),
        (b"\x10a\x02\x00\x00", 9),
        (b"\x00\x01\x00\x00", 4),
        (b"\x14a\x01\x00\x00", 8),
        (b"\x1fa\x01\x00", 30),
        (b"\x1fa\x01\x00\xff\xff", 3000),
    ],
)
def test_damaged_blocks_are_refused(k: ModuleType, block: bytes, size: int):
    with pytest.raises(ValueError):
        decoded(k, block, size)


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_random_damage_gives_the_same_from_both(seed: int):
    """The same bytes and the same place, or an error from both."""
    rng = np.random.default_rng(seed)
    raw = rng.choice(np.array([97, 98], np.uint8), 300).tobytes() + b"c" * 60
    block = bytearray(pack(Codec.LZ4, raw, 1))
    for _ in range(int(rng.integers(0, 4))):
        block[int(rng.integers(0, len(block)))] = int(rng.choice([0, 1, 15, 31, 240, 255]))
    size = int(rng.choice([len(raw), len(raw) - 1, len(raw) + 1, 20]))
    found = []
    for k in (compiled, reference_lz4):
        try:
            found.append(decoded(k, bytes(block), size))
        except ValueError:
            found.append(None)
    assert found[0] == found[1]


def test_a_block_must_hold_exactly_the_bytes_that_are_expected():
    block = pack(Codec.LZ4, b"abcabcabcabcabcabcabc" * 5, 1)
    assert len(unpack(Codec.LZ4, block + b"\0\0", 105, padded=True)) == 105
    for data, size in ((block, 104), (block, 106), (block + b"\0", 105), (block[:-1], 105)):
        with pytest.raises(InvalidFileError, match="lz4 block"):
            unpack(Codec.LZ4, data, size)


def test_no_more_is_allocated_than_a_block_could_hold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compression.np, "empty", None)
    with pytest.raises(InvalidFileError, match="100 bytes cannot hold"):
        unpack(Codec.LZ4, bytes(100), 255 * 100 + 1)


def test_a_codec_holds_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compression, "PACKED_BYTES_MAX", 9)
    for codec in (Codec.ZSTD, Codec.LZ4):
        assert bytes(unpack(codec, pack(codec, b"123456789", 1), 9)) == b"123456789"
        with pytest.raises(InvalidArgumentError, match="expected at most 9"):
            pack(codec, b"1234567890", 1)


def test_levels_are_clamped_to_those_that_there_are():
    raw = b"carefully final deposits " * 100
    for level in (-100, 0, 1, 12, 10**6):
        assert bytes(unpack(Codec.LZ4, pack(Codec.LZ4, raw, level), len(raw))) == raw


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.fixture
def repetitive() -> pa.Table:
    rng = np.random.default_rng(0)
    count = 20_000
    lines = [f'{{"user": {i % 50}, "action": "open", "target": "/a/b/c"}}' for i in range(count)]
    pattern = rng.integers(0, 2**60, 700)
    return pa.table(
        {
            "text": [f"{line}{number}" for number, line in enumerate(lines)],
            "number": np.resize(pattern, count),
            "noise": rng.integers(0, 2**63, count),
            "fixed": pa.array([rng.bytes(4) + bytes(8) for _ in range(count)], pa.binary(12)),
            "flag": np.repeat(rng.random(count // 10) < 0.5, 10),
        }
    )


@pytest.mark.parametrize("profile", ["balanced", "compact", "fast", "random"])
def test_a_file_with_lz4_has_no_zstd_page_and_reads_the_same(repetitive: pa.Table, profile: str):
    data = stored(repetitive, profile=profile, codec="lz4")
    with fermion.open(data) as file:
        assert_logically_equal(file.read(), repetitive)
        assert_logically_equal(file.take([7, 19_999]), repetitive.take([7, 19_999]))
        assert file.verify().problems == ()
        described = str([file.column(name) for name in repetitive.column_names])
    assert "zstd" not in described


def test_the_fast_profile_compresses_only_with_lz4(repetitive: pa.Table):
    """What repeats shrinks by half at least, noise stays as it is."""
    sizes = {
        codec: {
            name: len(stored(repetitive.select([name]), profile="fast", codec=codec))
            for name in repetitive.column_names
        }
        for codec in ("zstd", "lz4")
    }
    assert sizes["lz4"]["text"] < sizes["zstd"]["text"]
    assert sizes["lz4"]["fixed"] < sizes["zstd"]["fixed"] * 0.75
    assert sizes["lz4"]["noise"] <= sizes["zstd"]["noise"]


def test_a_forced_codec_makes_nodes_of_it():
    values, cuts = np.tile(np.arange(7) * 10**15, 700), np.array([0, 2450, 4900])
    for name, wanted in (("lz4", EncodingId.LZ4), ("zstd", EncodingId.ZSTD)):
        chunk = encode_chunk(values, INT64, cuts, options=WriteOptions(), forced=name)
        assert {int.from_bytes(page[2:4], "little") for page in chunk.pages} == {wanted}
        assert_slots_same(chunk, cuts, INT64, values, [(0, 4900), (2449, 2451)])


def test_small_pages_are_compressed_as_a_whole():
    raw = pa.array([bytes([i % 3] * 12) for i in range(300)], pa.binary(12))
    data = stored(pa.table({"a": raw}), codec="lz4")
    assert data[16:18] == bytes([1, Codec.LZ4])
    assert fermion.read_table(data)["a"].to_pylist() == raw.to_pylist()


def test_an_unknown_codec_is_refused():
    with pytest.raises(InvalidArgumentError, match="expected 'zstd' or 'lz4'"):
        WriteOptions(codec="gzip")
    data = bytearray(stored(pa.table({"a": [1]}), checksum="none"))
    data[17] = 3
    with pytest.raises(UnsupportedEncodingError, match="codec id 3"):
        fermion.read_table(data)
