"""Handles: values that are read when they are asked for, and how much of the file that takes."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.blobs import Handle, HandleType, handle
from fermion.io.source import open_source
from fermion.layout import BLOB_PIECE_BYTES

FIELD = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
SIZES = [0, 10, None, 5000, BLOB_PIECE_BYTES, 3 * BLOB_PIECE_BYTES + 77, 100_000]
VALUES = [None if size is None else np.random.default_rng(size).bytes(size) for size in SIZES]
LONG = VALUES[5]
TABLE = pa.table([pa.array(VALUES, pa.large_binary())], schema=pa.schema([FIELD]))


def handles_of(path: Any, **options: Any) -> list[Handle | None]:
    fermion.write_table(TABLE, path, **options)
    with fermion.open(path) as file:
        return file.read(blobs="handles")["image"].to_pylist()


@pytest.fixture
def reads(monkeypatch) -> list[tuple[int, int]]:
    """Every request of handles: offset and bytes."""
    found: list[tuple[int, int]] = []

    def counted(*arguments: Any) -> Any:
        source = open_source(*arguments)
        read = source.read
        source.read = lambda at, size: (found.append((at, size)), read(at, size))[1]
        return source

    monkeypatch.setattr(handle, "open_source", counted)
    return found


def test_handles_read_their_values(tmp_path: Path):
    for kind in ("crc32c", "none"):
        for found, value in zip(
            handles_of(tmp_path / "a.fermion", checksum=kind), VALUES, strict=True
        ):
            if value is None:
                assert found is None
                continue
            assert found.size == len(value)
            assert found.read() == found.open().read() == value
            assert pickle.loads(pickle.dumps(found)).read() == value


def test_a_value_is_one_request_and_a_range_reads_two_pieces_at_most(tmp_path: Path, reads):
    """Of 64 KiB at any place: at most 1.1 MB, however long the value is."""
    found = handles_of(tmp_path / "a.fermion")[5]
    assert found.read() == LONG
    assert [size for _, size in reads] == [len(LONG)]
    for start in range(0, len(LONG) - 65_536, 100_003):
        reads.clear()
        assert found.read(start, 65_536) == LONG[start : start + 65_536]
        assert len(reads) == 1
        assert reads[0][1] <= 1_100_000


def test_handles_are_those_of_any_rows_and_batches(tmp_path: Path):
    found = handles_of(tmp_path / "a.fermion", stripe_rows=2)
    with fermion.open(tmp_path / "a.fermion") as file:
        assert file.take([6, 0, 6], blobs="handles")["image"].to_pylist() == [
            found[6],
            found[0],
            found[6],
        ]
        batches = list(file.iter_batches(batch_size=3, blobs="handles"))
        assert [each for batch in batches for each in batch["image"].to_pylist()] == found
        assert isinstance(batches[0].schema.field("image").type, HandleType)
        assert file.read(filter="image IS NULL", blobs="handles")["image"].to_pylist() == [None]
    assert len({*found, *found}) == len(VALUES)


def test_a_handle_opens_as_a_file(tmp_path: Path, reads):
    """Any reads and seeks agree with a file in memory; the rest is read in one request."""
    found = handles_of(tmp_path / "a.fermion")[5]
    random, known = np.random.default_rng(5), io.BytesIO(LONG)
    with found.open() as file:
        assert file.seekable()
        assert file.readable()
        assert not file.writable()
        for _ in range(200):
            place = int(random.integers(0, len(LONG) + 50))
            assert file.seek(place) == known.seek(place)
            size = int(random.integers(0, 3000))
            assert file.read(size) == known.read(size)
        assert file.seek(-10, os.SEEK_END) == len(LONG) - 10
        assert file.read() == LONG[-10:]
        file.seek(0)
        reads.clear()
        assert file.read() == LONG
        assert len(reads) <= 2
    inline = handles_of(tmp_path / "a.fermion")[1]
    assert inline.path is None
    assert inline.open().read() == VALUES[1]


def test_handles_of_remote_files(tmp_path: Path):
    for found, value in zip(handles_of("memory://handles/a.fermion"), VALUES, strict=True):
        assert (found and found.read()) == value if value != b"" else found.read() == b""
    fsspec.filesystem("memory").rm("/handles", recursive=True)
    with pytest.raises(FileNotFoundError, match=r"handles/a\.fermion"):
        found.read()


def test_errors_of_handles_say_what_is_wrong(tmp_path: Path):
    path = tmp_path / "a.fermion"
    found = handles_of(path)[5]
    assert repr(found) == f"<Handle: 1,572,941 bytes at {found.offset} of '{path}'>"
    for wrong in ((-1, 5), (0, len(LONG) + 1), (len(LONG) + 1, 0), (0, -1)):
        with pytest.raises(fermion.InvalidArgumentError):
            found.read(*wrong)
    with pytest.raises(TypeError, match="offset"):
        found.read("a")  # type: ignore[arg-type]
    data = bytearray(path.read_bytes())
    data[found.offset + 2 * BLOB_PIECE_BYTES] ^= 1
    path.write_bytes(data)
    assert found.read(5, 100) == LONG[5:105]
    with pytest.raises(fermion.ChecksumError, match="piece 2: expected checksum"):
        found.read(2 * BLOB_PIECE_BYTES - 5, 100)
    path.write_bytes(data[:5000])
    with pytest.raises(fermion.TruncatedFileError):
        found.read()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.fermion"):
        found.read()


def test_files_in_memory_have_no_handles(tmp_path: Path):
    handles_of(tmp_path / "a.fermion")
    with (
        fermion.open((tmp_path / "a.fermion").read_bytes()) as file,
        pytest.raises(fermion.InvalidArgumentError, match="has no path or URL"),
    ):
        file.read(blobs="handles")


def test_storage_options_stay_out_of_arrow_data(tmp_path: Path):
    """A pickled handle has them; a type that was sent to another process has none."""
    fermion.write_table(TABLE, "memory://handles/b.fermion")
    options = {"skip_instance_cache": True}
    with fermion.open("memory://handles/b.fermion", storage_options=options) as file:
        column = file.read(blobs="handles")["image"]
    assert pickle.loads(pickle.dumps(column[3].as_py()))._storage_options == options
    sent = pa.ipc.open_stream(ipc_of(column)).read_all()["image"]
    assert sent.to_pylist() == column.to_pylist()
    assert b"skip_instance_cache" not in ipc_of(column)


def ipc_of(column: pa.ChunkedArray) -> bytes:
    table, sink = pa.table({"image": column}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_taking_many_values_joins_requests(tmp_path: Path):
    """Neighbours share a request; what lies apart has one each, in the order of the file."""
    values = [np.random.default_rng(each).bytes(20_000) for each in range(400)]
    table = pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([FIELD]))
    fermion.write_table(table, tmp_path / "a.fermion")
    rows = np.random.default_rng(1).permutation(400)[:256]
    with fermion.open(tmp_path / "a.fermion") as file:
        file.take([0], columns=["image.size"])
        before = file.io_stats.requests
        assert file.take(rows)["image"].to_pylist() == [values[row] for row in rows]
        assert file.io_stats.requests - before < 130


def test_structs_of_other_libraries_become_handles(tmp_path: Path):
    """As dicts, with checksums as numbers of Python or in an array."""
    for found in handles_of(tmp_path / "a.fermion"):
        if found is not None:
            sums = np.array(found._checksums, np.uint32)
            struct = {"file": found.path, "offset": found.offset, "size": found.size}
            struct |= {"checksums": sums, "inline": found._inline}
            assert Handle.of(struct) == found
            assert Handle.of(struct).read() == found.read()
    assert Handle.of({**struct, "checksums": None, "inline": bytearray(b"x")}).read(0, 1) == b"x"
