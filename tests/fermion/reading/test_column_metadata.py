"""What `FermionFile.column` says of pages is verified as values are that are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from fermion.errors import ChecksumError, InvalidFileError
from fermion.reading import column_metadata


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Several pages a column."""
    table = pa.table({"a": range(5000), "b": [f"text {i % 7}" for i in range(5000)]})
    options = fermion.WriteOptions(page_rows_max=1024)
    fermion.write_table(table, tmp_path / "f.fermion", options=options)
    return tmp_path / "f.fermion"


def pages(path: Path, name: str) -> list[column_metadata.PageMetadata]:
    with fermion.open(path) as file:
        streams = file.column(name).streams
    return [page for stream in streams for chunk in stream.chunks for page in chunk.pages]


def test_every_flip_of_a_page_header_is_found(path):
    """In the first 16 bytes of each page of a column, one bit at a time."""
    whole = path.read_bytes()
    for page in pages(path, "a") + pages(path, "b"):
        for at in range(page.offset, page.offset + 16):
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            with fermion.open(bytes(damaged)) as file, pytest.raises(ChecksumError, match="offset"):
                [file.column(name) for name in ("a", "b")]


def test_a_page_from_another_place_is_refused(path):
    """Its checksum is right, but for its place; without checksums it is taken as it is."""
    whole = bytearray(path.read_bytes())
    same = [page for page in pages(path, "a") if page.length == pages(path, "a")[0].length]
    first, second = same[:2]
    moved = whole[second.offset : second.offset + second.length]
    whole[first.offset : first.offset + first.length] = moved
    with fermion.open(bytes(whole)) as file, pytest.raises(ChecksumError, match="page at offset"):
        file.column("a")
    unverified = fermion.ReadOptions(verify_checksums=False)
    with fermion.open(bytes(whole), options=unverified) as file:
        assert file.column("a").name == "a"


def test_metadata_verified_in_small_groups_are_the_same(path, monkeypatch):
    with fermion.open(path) as file:
        expected = [file.column(name) for name in ("a", "b")]
        monkeypatch.setattr(column_metadata, "VERIFIED_AT_ONCE_BYTES", 1)
        assert [file.column(name) for name in ("a", "b")] == expected


@pytest.mark.parametrize("kind", ["path", "buffer", "file"])
def test_a_fermion_file_given_as_a_parquet_file_is_named(path, kind, tmp_path):
    source = {"path": path, "buffer": path.read_bytes(), "file": path.open("rb")}[kind]
    with pytest.raises(InvalidFileError, match=r"is a Fermion file, which fermion\.open reads"):
        fermion.from_parquet(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    with pytest.raises(InvalidFileError, match="not a valid Parquet file"):
        fermion.from_parquet(path.read_bytes()[:-8] + b"12345678", tmp_path / "target")
