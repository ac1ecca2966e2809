"""Parquet files of other programs: they survive both ways, or are refused and leave nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from tests.conftest import SHARED_DATA
from tests.kit.equality import assert_logically_equal
from tests.kit.files.conversions import (
    QUICK,
    as_stored,
    parquet,
    quietly_read,
    read,
    read_parquet,
    to_fermion,
)

FILES = sorted(
    path.relative_to(SHARED_DATA).as_posix()
    for path in SHARED_DATA.rglob("*.parquet*")
    if path.is_file() and "variant" not in path.as_posix()  # see test_variants.py
)
# What these are called says nothing, and a reader that takes them for sound is wrong.
DAMAGED = [
    "duckdb-parquet/afl/1.parquet",
    "duckdb-parquet/afl/5.parquet",
    "duckdb-parquet/broken/broken_date.parquet",
    "duckdb-parquet/broken/duckdb_fuzzer_4384.parquet",
    "duckdb-parquet/broken/internal_6129.parquet",
    "duckdb-parquet/page_size_corruption.parquet",
    "duckdb-parquet/parquet_column_num_values_mismatch.parquet",
    "duckdb-parquet/plaintext_footer_crypto_metadata.parquet",
    "parquet-testing/bad_data/ARROW-GH-41317.parquet",
    "parquet-testing/bad_data/ARROW-GH-47662.parquet",
    "parquet-testing/bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet",
    "parquet-testing/bad_data/PARQUET-1481.parquet",
    "parquet-testing/data/uniform_encryption.parquet.encrypted",
]
WRONG_CHECKSUM = "parquet-testing/data/rle-dict-uncompressed-corrupt-checksum.parquet"


def test_there_are_files_to_convert(shared_data):
    assert len(FILES) > 140
    assert set(DAMAGED) | {WRONG_CHECKSUM} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore::fermion.ConversionWarning")
def test_a_file_of_another_program_survives_both_ways_or_is_refused(name, tmp_path):
    """pyarrow is the oracle: what it reads comes back, what it refuses leaves nothing."""
    source, middle, back = SHARED_DATA / name, tmp_path / "x.fermion", tmp_path / "x.parquet"
    expected = quietly_read(source)
    if expected is None:
        with pytest.raises(fermion.FermionError, match=source.name):
            fermion.from_parquet(source, middle, options=QUICK)
        assert list(tmp_path.iterdir()) == []
        return
    info = fermion.from_parquet(source, middle, options=QUICK)
    assert info.num_rows == expected.num_rows
    assert_logically_equal(fermion.read_table(middle), as_stored(expected))
    info = fermion.to_parquet(middle, back)
    assert (info.num_rows, info.size) == (expected.num_rows, back.stat().st_size)
    assert_logically_equal(as_stored(read_parquet(back)).cast(expected.schema), expected)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_and_leaves_nothing(name, shared_data, tmp_path):
    """Also when a file is there already: it stays what it was."""
    target = tmp_path / "x.fermion"
    target.write_bytes(b"before")
    with pytest.raises(fermion.InvalidFileError, match=Path(name).name):
        fermion.from_parquet(shared_data / name, target)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("x.fermion", b"before")
    ]


def test_pages_that_miss_their_checksums_are_read_with_a_warning(shared_data):
    with pytest.warns(fermion.ConversionWarning, match="row group 0: CRC checksum"):
        found = to_fermion(shared_data / WRONG_CHECKSUM)
    assert_logically_equal(read(found), read_parquet(shared_data / WRONG_CHECKSUM))


def test_after_a_wrong_checksum_no_row_is_lost_or_read_twice(monkeypatch):
    """A page in the middle of a row group is damaged where it cannot be noticed but by its CRC."""
    values = np.arange(50_000)
    table = pa.table({"a": values, "b": values * 2})
    options = {"use_dictionary": False, "compression": "none", "data_page_size": 8_000}
    data = bytearray(parquet(table, write_page_checksum=True, row_group_size=20_000, **options))
    place = data.index(np.int64(33_333).tobytes())
    data[place : place + 8] = np.int64(7).tobytes()
    monkeypatch.setattr("fermion.parquet.source.BATCH_BYTES", 16 * 1_000)
    with pytest.warns(fermion.ConversionWarning, match="row group 1"):
        found = read(to_fermion(bytes(data)))
    values[33_333] = 7
    assert found["a"].to_numpy().tolist() == values.tolist()
    assert found["b"].equals(table["b"])
