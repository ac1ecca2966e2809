"""Checksums of bytes, compiled and in NumPy."""

from __future__ import annotations

import zlib
from types import ModuleType

import numpy as np
import pytest
import xxhash

from fermion import kernels as compiled
from fermion.io.checksum import checksum
from fermion.layout import ChecksumKind
from tests.kit.kernel_cases import BOTH
from tests.kit.numpy_kernels import functions as reference


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
