"""Bytes from the wrong place are refused: checksums are bound to the file and the offset."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import ChecksumError, InvalidFileError
from fermion.kernels import _compiled as compiled
from fermion.layout import FOOTER, HEAD, Incompat
from fermion.metadata.footer import FileIdentity
from tests.kit.files.file_anatomy import Anatomy, repair
from tests.kit.files.identities import one_identity
from tests.kit.files.independent_crc import place_of
from tests.kit.numpy_kernels import places as reference_places

BOTH = pytest.mark.parametrize("k", [compiled, reference_places], ids=["compiled", "reference"])
KINDS = pytest.mark.parametrize("kind", ["crc32", "crc32c", "xxh3"])
ROWS = 300
LITTLE = fermion.ReadOptions(prefetch_bytes=HEAD.itemsize + FOOTER.itemsize)


@BOTH
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
def test_a_place_is_what_the_specification_says(k: Any, key: int, offset: int) -> None:
    assert k.place_of(key, offset) == place_of(key, offset)
    data = bytearray(range(12))
    k.bind_checksum(data, 5, key, offset)
    (bound,) = struct.unpack_from("<I", data, 5)
    assert bound == struct.unpack_from("<I", bytes(range(12)), 5)[0] ^ place_of(key, offset)
    k.bind_checksum(data, 5, key, offset)
    assert data == bytes(range(12))


@BOTH
def test_a_checksum_outside_of_its_bytes_is_refused(k: Any) -> None:
    for at in (-1, 1, 4):
        with pytest.raises(ValueError, match="outside of 4 bytes"):
            k.bind_checksum(bytearray(4), at, 1, 16)


@BOTH
def test_many_checksums_are_bound_as_one_by_one(k: Any) -> None:
    data, expected = bytearray(range(32)), bytearray(range(32))
    places, offsets = np.array([3, 28, 8]), np.array([2**40, 0, 16])
    k.bind_checksums(data, places, 77, offsets)
    for at, offset in zip(places.tolist(), offsets.tolist(), strict=True):
        k.bind_checksum(expected, at, 77, offset)
    assert data == expected
    for at in (-1, 29):
        with pytest.raises(ValueError, match="outside of 32 bytes"):
            k.bind_checksums(data, np.array([3, at]), 77, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="offsets"):
        k.bind_checksums(data, places, 77, offsets[:2])
    assert data == expected


def test_the_documented_places() -> None:
    """The numbers that `docs/format.md` gives."""
    assert compiled.place_of(0x0123_4567_89AB_CDEF, 16) == 0x4AA2_0F54
    assert compiled.place_of(0x0123_4567_89AB_CDEF, 2**40 + 8) == 0xF20F_F7AE


def table(seed: int) -> pa.Table:
    """Numbers, strings, lists; some seeds differ in values alone."""
    random = np.random.default_rng(seed)
    numbers = [random.integers(100_000, 999_999, ROWS) for _ in range(3)]
    validity = np.arange(ROWS) % 7 == 0
    return pa.table(
        {
            "a": numbers[0],
            "b": numbers[1],
            "s": [str(each) for each in numbers[2]],
            "n": pa.array(numbers[0], mask=validity),
            "l": [[int(each), 1] for each in numbers[1]],
        }
    )


ENCODINGS = {"a": "plain", "b": "plain", "s": "plain", "n": "plain", "l": "plain"}


def written(seed: int, **options: Any) -> bytes:
    target = io.BytesIO()
    fermion.write_table(table(seed), target, **{"encodings": ENCODINGS, **options})
    return target.getvalue()


def opened(folder: Path, data: bytes) -> fermion.FermionFile:
    """A local file with these bytes, of which all metadata but CMBs were read."""
    path = folder / "a.fermion"
    path.write_bytes(data)
    file = fermion.open(path, options=LITTLE)
    file.index.tail.verify_all()
    return file


def overwrite(folder: Path, data: bytes) -> None:
    """Other bytes, as many, in the same file."""
    path = folder / "a.fermion"
    assert path.stat().st_size == len(data)
    with path.open("r+b") as file:
        file.write(data)


def reads_of(file: fermion.FermionFile) -> dict[str, Any]:
    """Everything that reads pages, by name."""
    return {
        "read": lambda: file.read(),
        "a column": lambda: file.read(["b"]),
        "rows": lambda: file.read(rows=(20, 230)),
        "take": lambda: file.take([3, 170, 299]),
        "batches": lambda: list(file.iter_batches(batch_size=90)),
        "filter": lambda: file.read(filter="b > 500000"),
        "count": lambda: file.count("b > 500000"),
    }


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pages": {"page_rows_max": 50},
    "stripes": {"stripe_rows": 64},
    "no_column_index": {"column_index": False},
    "aligned": {"align": 64},
    "dictionaries": {"encodings": {**ENCODINGS, "b": "dictionary"}},
}


@KINDS
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_object_replaced_under_an_open_file_gives_no_values_of_the_other(
    layout: str, kind: str, tmp_path: Path
) -> None:
    """The other file has the same size and layout, so only the key tells its bytes."""
    mine, other = (written(seed, checksum=kind, **LAYOUTS[layout]) for seed in (1, 2))
    assert len(mine) == len(other)
    for name in reads_of(fermion.open(mine)):
        with opened(tmp_path, mine) as file:
            overwrite(tmp_path, other)
            with pytest.raises(InvalidFileError, match="checksum"):
                reads_of(file)[name]()


@KINDS
def test_the_same_range_of_another_file_is_a_wrong_checksum(kind: str, tmp_path: Path) -> None:
    """CMBs were read before the file was replaced: the error names a page's offset."""
    mine, other = (written(seed, checksum=kind) for seed in (1, 2))
    for name in reads_of(fermion.open(mine)):
        with opened(tmp_path, mine) as file:
            file.index.blocks(range(file.num_columns))
            overwrite(tmp_path, other)
            with pytest.raises(ChecksumError, match=r"page at offset \d+: checksum"):
                reads_of(file)[name]()


def test_files_that_are_not_bound_show_what_the_binding_is_for(monkeypatch, tmp_path) -> None:
    """Without a key the values of the other file come: these tests can fail."""
    monkeypatch.setattr(FileIdentity, "new", lambda: FileIdentity(bytes(16), 0))
    mine, other = written(1), written(2)
    with opened(tmp_path, mine) as file:
        file.index.blocks(range(file.num_columns))
        overwrite(tmp_path, other)
        assert file.read().equals(table(2))
        assert file.file_id is None


def pages_of(data: bytes) -> dict[str, tuple[int, int]]:
    """Offset and length of the DATA page of each column of one page."""
    with fermion.open(data) as file:
        found = {}
        for name in ("a", "b"):
            (chunk,) = file.column(name).streams[1].chunks
            found[name] = chunk.offset, chunk.length
    return found


@KINDS
def test_a_reply_with_the_page_of_another_column_is_a_wrong_checksum(kind: str) -> None:
    """Both are plain pages of 300 int64, each with a right checksum at its own place."""
    data = bytearray(written(1, checksum=kind))
    places = pages_of(bytes(data))
    (to, size), (start, other_size) = places["b"], places["a"]
    assert size == other_size
    data[to : to + size] = data[start : start + size]
    with fermion.open(bytes(data)) as file:
        for name, read in reads_of(file).items():
            with pytest.raises(ChecksumError, match=f"<buffer>: page at offset {to}: checksum"):
                read()
            assert file.read(["a"]).equals(table(1).select(["a"])), name
        report = file.verify()
    assert not report.ok
    assert any(f"page at offset {to}" in each for each in report.problems)


@pytest.mark.parametrize("options", [{}, {"column_index": False}, {"stripe_rows": 100}])
def test_a_reply_with_the_metadata_of_another_column_is_a_wrong_checksum(options) -> None:
    """The CMBs of two columns of one type are equal in size and shape."""
    data = bytearray(written(1, **options))
    blocks = Anatomy(bytes(data)).blocks
    (start, size), (to, other_size) = blocks[0], blocks[1]
    assert size == other_size
    data[to : to + size] = data[start : start + size]
    with fermion.open(bytes(data)) as file:
        assert file.read(["a"]).equals(table(1).select(["a"]))
        with pytest.raises(ChecksumError, match=f"column 'b': CMB at offset {to}: checksum"):
            file.read(["b"])
        assert any(f"CMB at offset {to}" in each for each in file.verify().problems)


def test_lengths_of_metadata_without_an_index_are_bound_too(tmp_path: Path) -> None:
    """One file has values in `a` and none in `b`, the other the other way round."""
    nothing = pa.nulls(ROWS, pa.int64())
    values = pa.array(range(ROWS))
    files = []
    for columns in ({"a": values, "b": nothing}, {"a": nothing, "b": values}):
        target = io.BytesIO()
        fermion.write_table(pa.table(columns), target, column_index=False)
        files.append(target.getvalue())
    with opened(tmp_path, files[0]) as file:
        overwrite(tmp_path, files[1])
        for name in ("a", "b"):
            with pytest.raises(ChecksumError, match="length of a CMB"):
                file.read([name])


def test_a_length_of_metadata_that_changed_is_refused_in_files_with_and_without_places() -> None:
    data = bytearray(written(1, column_index=False))
    (at, *_) = Anatomy(bytes(data)).lengths
    data[at + 5] ^= 1
    with fermion.open(bytes(data)) as file, pytest.raises(ChecksumError, match=f"offset {at}"):
        file.read()


def test_every_page_and_block_of_a_file_has_another_place() -> None:
    """Equal pages, one after the other, have different checksums."""
    target = io.BytesIO()
    columns = {name: pa.array([7] * 100) for name in ("a", "b", "c")}
    fermion.write_table(pa.table(columns), target, encodings=dict.fromkeys(columns, "plain"))
    data = target.getvalue()
    anatomy = Anatomy(data)
    crcs = {data[offset + 12 : offset + 16] for offset, _ in anatomy.pages}
    assert len(crcs) == len(anatomy.pages) == 3
    rest = {data[at : at + 12] + data[at + 16 : at + size] for at, size in anatomy.pages}
    assert len(rest) == 1


def test_batches_of_another_file_are_refused(tmp_path: Path) -> None:
    """The pages of the system column are bound as those of the user's columns are."""
    files = []
    for first in (1_000_000, 2_000_000):
        target = io.BytesIO()
        with fermion.Writer(target, pa.schema([("a", pa.int64())])) as writer:
            for number in range(4):
                ids = pa.array(range(first + number, first + number + 9))
                writer.append_batch(first + number, pa.table({"a": ids}))
        files.append(target.getvalue())
    with opened(tmp_path, files[0]) as file:
        file.index.blocks([0, 1])
        overwrite(tmp_path, files[1])
        with pytest.raises(ChecksumError, match="page at offset"):
            file.read_batch(1_000_001)


def test_a_file_whose_columns_changed_keeps_its_key_and_gets_an_identity(tmp_path) -> None:
    """What was copied stays bound, new pages are bound with the same key, nothing is unbound."""
    path = tmp_path / "a.fermion"
    info = fermion.write_table(table(1), path)
    with fermion.open(path) as file:
        before = file.index.footer
        assert file.file_id == info.file_id
    fermion.add_columns(path, pa.table({"z": range(ROWS)}))
    with fermion.open(path) as file:
        after = file.index.footer
        assert file.read().equals(table(1).append_column("z", pa.array(range(ROWS))))
        assert file.verify().problems == ()
    assert after.place_key == before.place_key != 0
    assert after.file_id != before.file_id
    fermion.drop_columns(path, ["a"])
    with fermion.open(path) as file:
        assert file.index.footer.place_key == before.place_key
        assert file.file_id not in (None, before.file_id, after.file_id)
        assert file.verify().problems == ()


def test_a_file_of_version_1_0_whose_columns_changed_stays_unbound(tmp_path, monkeypatch) -> None:
    """Its copied pages have no places; the file has an identity from now on."""
    path = tmp_path / "a.fermion"
    with monkeypatch.context() as patch:
        patch.setattr(FileIdentity, "new", lambda: FileIdentity(bytes(16), 0))
        assert fermion.write_table(table(1), path).file_id is None
    fermion.add_columns(path, pa.table({"z": range(ROWS)}))
    with fermion.open(path) as file:
        assert file.index.footer.place_key == 0
        assert not file.index.footer.incompat & Incompat.PLACED
        assert file.file_id is not None
        assert file.read(["z", "a"]).num_rows == ROWS
        assert file.verify().problems == ()


def test_no_two_files_share_an_identity() -> None:
    found = [fermion.write_table(table(1), io.BytesIO()).file_id for _ in range(3)]
    assert len(set(found)) == 3
    assert all(each is not None and len(each) == 32 for each in found)


def test_a_bound_file_without_a_key_is_refused() -> None:
    """A `place_key` of 0 would bind nothing; one without PLACED is a problem for verification."""
    data = bytearray(written(1))
    at = len(data) - FOOTER.itemsize
    for changed, message in (("place_key", "wrong place key"), ("incompat", "")):
        other = bytearray(data)
        kind, offset = (FOOTER.fields or {})[changed][:2]
        other[at + offset : at + offset + kind.itemsize] = bytes(kind.itemsize)
        repair(other)
        if message:
            with pytest.raises(InvalidFileError, match=message):
                fermion.open(bytes(other))
        else:
            with fermion.open(bytes(other)) as file:
                assert file.read().equals(table(1))
                assert "place_key without the feature PLACED" in " ".join(file.verify().problems)


def test_one_identity_for_tests_is_what_the_document_shows() -> None:
    with one_identity() as identity:
        data = written(1)
    footer = np.frombuffer(data, FOOTER, 1, len(data) - FOOTER.itemsize)[0]
    assert bytes(footer["file_id"]) == identity.file_id
    assert int(footer["place_key"]) == identity.place_key
