"""What `verify` finds: everything that the metadata say of the values, and that is not so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.layout import (
    FILE_STATISTICS_ENTRY,
    FULL_CHUNK_DESC,
    PAGE_META,
    SECTION_ENTRY,
    STRIPE_META,
    ChunkFlag,
    StreamType,
)
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, put, repair


def problems(data: bytes | bytearray) -> tuple[str, ...]:
    with fermion.open(data) as file:
        return file.verify().problems


def places(data: bytes, dtype: np.dtype) -> list[int]:
    return [place.offset for place in Anatomy(data).places if place.dtype == dtype]


def with_field(data: bytes, place: int, dtype: np.dtype, field: str, value: int) -> bytearray:
    """The file with a field of a struct changed, and right checksums."""
    out = bytearray(data)
    kind, offset, *_ = dtype.fields[field]
    put(out, place + offset, value % (1 << 8 * kind.itemsize), kind.itemsize)
    repair(out)
    return out


def get(data: bytes, place: int, dtype: np.dtype, field: str) -> int:
    return int(np.frombuffer(data, dtype, 1, place)[field][0])


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_a_sound_file_has_no_problems(name):
    assert problems(FEATURES[name]().stored()) == ()


def numbers() -> bytes:
    """Three pages, every number there: bounds and flags are exact."""
    table = pa.table({"a": [3, 1, 2, 9, 7, 8, 5, 4, None, 6]})
    return Feature(table, {"page_rows_max": 4}).stored()


# Structs, their fields, and what is added to them to make them untrue.
CLAIMS = [
    (FULL_CHUNK_DESC, "chunkMin", 1),
    (FULL_CHUNK_DESC, "chunkMin", -1),
    (FULL_CHUNK_DESC, "chunkMax", -1),
    (FULL_CHUNK_DESC, "chunkMax", 1),
    (FULL_CHUNK_DESC, "nullCount", 1),
    (PAGE_META, "minVal", 1),
    (PAGE_META, "maxVal", -1),
    (STRIPE_META, "rowCount", 1),
    (FILE_STATISTICS_ENTRY, "min", -1),
    (FILE_STATISTICS_ENTRY, "max", 1),
    (FILE_STATISTICS_ENTRY, "nullCount", 1),
    (FILE_STATISTICS_ENTRY, "ordinal", 1),
]


@pytest.mark.parametrize(("dtype", "field", "change"), CLAIMS)
def test_a_claim_that_does_not_hold_is_a_problem(dtype, field, change):
    """The last struct of its kind in the file: the DATA chunk, its last page."""
    data = numbers()
    place = places(data, dtype)[-1]
    value = get(data, place, dtype, field) + change
    assert len(problems(with_field(data, place, dtype, field, value))) == 1


@pytest.mark.parametrize("flag", [ChunkFlag.SORTED_ASC, ChunkFlag.SORTED_DESC])
def test_values_that_are_not_sorted_as_claimed_are_a_problem(flag):
    data = numbers()
    place = places(data, FULL_CHUNK_DESC)[-1]
    flags = get(data, place, FULL_CHUNK_DESC, "flags") | flag
    (problem,) = problems(with_field(data, place, FULL_CHUNK_DESC, "flags", flags))
    assert "claim too much" in problem


def test_a_prefix_that_is_called_exact_is_a_problem():
    data = Feature(pa.table({"s": ["carefully final", "deposits sleep"]})).stored()
    (place,) = places(data, FULL_CHUNK_DESC)
    flags = get(data, place, FULL_CHUNK_DESC, "flags") | ChunkFlag.MIN_EXACT
    (problem,) = problems(with_field(data, place, FULL_CHUNK_DESC, "flags", flags))
    assert "claim too much" in problem


def test_a_nan_that_is_denied_is_a_problem():
    data = Feature(pa.table({"f": [1.0, float("nan"), 2.0]})).stored()
    (place,) = places(data, FULL_CHUNK_DESC)
    flags = get(data, place, FULL_CHUNK_DESC, "flags") & ~int(ChunkFlag.HAS_NAN)
    (problem,) = problems(with_field(data, place, FULL_CHUNK_DESC, "flags", flags))
    assert "NaN" in problem


def test_pages_that_miscount_nulls_and_lists_that_miscount_elements_are_problems():
    """Of VALIDITY the null counts, of OFFSETS the child slots."""
    table = pa.table({"l": [[i] * (i % 3) if i % 4 else None for i in range(30)]})
    data = Feature(table, {"page_rows_max": 10}).stored()
    with fermion.open(data) as file:
        kinds = [stream.type for stream in file.column("l").streams]
    assert kinds[:2] == [StreamType.VALIDITY, StreamType.OFFSETS]
    validity, offsets, *_ = places(data, FULL_CHUNK_DESC)
    (page, *_) = places(data, PAGE_META)
    for place, dtype, field in (
        (validity, FULL_CHUNK_DESC, "nullCount"),
        (page, PAGE_META, "minVal"),
        (offsets, FULL_CHUNK_DESC, "chunkMax"),
        (offsets, FULL_CHUNK_DESC, "chunkMin"),
    ):
        value = get(data, place, dtype, field) + 1
        assert len(problems(with_field(data, place, dtype, field, value))) == 1


def test_a_bloom_filter_that_lacks_a_value_is_a_problem():
    data = bytearray(FEATURES["bloom_filters"]().stored())
    for _, offset, length in Anatomy(data).records:
        data[offset : offset + length] = bytes(length)
    repair(data)
    found = problems(data)
    assert len(found) == 4
    assert all("lacks a value" in each for each in found)


def test_file_statistics_of_odd_length_are_a_problem():
    data = numbers()
    for place in places(data, SECTION_ENTRY):
        if get(data, place, SECTION_ENTRY, "kind") == 4:
            length = get(data, place, SECTION_ENTRY, "length") - 8
            (problem,) = problems(with_field(data, place, SECTION_ENTRY, "length", length))
    assert "file statistics of 24 bytes" in problem


def test_every_problem_of_every_column_is_reported():
    data = bytearray(FEATURES["integers"]().stored())
    pages = Anatomy(data).pages
    for offset, length in pages:
        data[offset + length - 1] ^= 1
    with fermion.open(data) as file:
        report = file.verify()
    assert not report.ok
    assert report.columns == len(report.problems) == 8
    assert all("checksum" in each for each in report.problems)


@pytest.mark.parametrize(
    ("offset", "message"),
    [(125, "byte 125 is reserved"), (235, "byte 235 is reserved"), (99, "unknown settings 0x")],
)
def test_reserved_parts_of_the_footer_that_are_not_zero_are_a_problem(offset, message):
    """Readers ignore them, as later versions may give them a meaning; verification does not."""
    data = bytearray(numbers())
    data[len(data) - 256 + offset] = 0x40
    repair(data)
    (problem,) = problems(data)
    assert message in problem
    with fermion.open(data) as file:
        assert file.num_rows == 10
        assert file.read().num_rows == 10
