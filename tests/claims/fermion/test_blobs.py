"""Columns of blobs: values outside of pages, in the file itself or in blob files."""

from __future__ import annotations

import io
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.blobs import REFERENCE
from fermion.cli.program import main
from fermion.io.source import BufferSource
from fermion.layout import BLOB_PIECE_BYTES, Incompat
from fermion.reading.layout_map import layout_map

NOTED = {"fermion:blob": "true"}
IMAGE = pa.field("image", pa.large_binary(), metadata=NOTED)
SCHEMA = pa.schema([pa.field("id", pa.int64()), IMAGE])


def table_of(values: list[bytes | None], field: pa.Field = IMAGE) -> pa.Table:
    arrays = [pa.array(range(len(values)), pa.int64()), pa.array(values, field.type)]
    return pa.table(arrays, schema=pa.schema([SCHEMA.field(0), field]))


def stored(table: pa.Table, blob_sink: Any = None, **options: Any) -> bytes:
    target, chosen = io.BytesIO(), fermion.WriteOptions(**options)
    with fermion.Writer(target, table.schema, options=chosen, blob_sink=blob_sink) as writer:
        writer.write(table)
    return target.getvalue()


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


class BlobFile:
    """A blob file in memory: a sink, and what opens it."""

    def __init__(self) -> None:
        self.data, self.opened = bytearray(b"head"), 0

    def write_blob(self, value: memoryview) -> tuple[str, int]:
        self.data += value
        return "one.blob", len(self.data) - len(value)

    def open_blob_file(self, name: str) -> BufferSource:
        assert name == "one.blob"
        self.opened += 1
        return BufferSource(bytes(self.data), name)

    def blob_path(self, name: str) -> str:
        return f"memory://blobs/{name}"


@given(
    st.lists(st.none() | st.binary(max_size=40), max_size=30),
    st.integers(0, 20),
    st.integers(1, 9),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.booleans(),
)
def test_any_values_survive_the_round_trip(values, inline, rows, dtype, in_file):
    """Whole, in batches, by row numbers with repeats; the schema is the one given."""
    table = table_of(values, IMAGE.with_type(dtype))
    blobs = None if in_file else BlobFile()
    data = stored(table, blobs, blob_inline_bytes=inline, stripe_rows=rows)
    with fermion.open(data, blob_files=blobs) as file:
        assert file.schema.equals(table.schema, check_metadata=True)
        assert file.read().equals(table)
        assert pa.Table.from_batches(file.iter_batches(batch_size=4), table.schema).equals(table)
        chosen = pa.array([len(values) - 1, 0, len(values) - 1] if values else [], pa.int64())
        assert file.take(chosen).equals(table.take(chosen))
        assert file.verify().problems == ()
        assert pa.table(file).equals(table)


def test_values_of_several_pieces_have_a_checksum_for_each():
    sizes = [BLOB_PIECE_BYTES - 1, BLOB_PIECE_BYTES, BLOB_PIECE_BYTES + 1, 3 * BLOB_PIECE_BYTES]
    table = table_of([noise(size, size) for size in sizes])
    data = stored(table)
    with fermion.open(data) as file:
        references = file.read(blobs="references")["image"].to_pylist()
        assert [len(each["checksums"]) for each in references] == [1, 1, 2, 3]
        assert [each["size"] for each in references] == sizes
        assert all(each["offset"] % 64 == 0 for each in references)
        assert file.read().equals(table)
    damaged = bytearray(data)
    damaged[references[2]["offset"] + BLOB_PIECE_BYTES] ^= 1
    with fermion.open(bytes(damaged)) as file:
        assert file.take([0, 1, 3]).equals(table.take([0, 1, 3]))
        with pytest.raises(fermion.ChecksumError, match="piece 1: expected checksum"):
            file.read()
        assert "piece 1" in file.verify().problems[0]
    with fermion.open(bytes(damaged), options=fermion.ReadOptions(verify_checksums=False)) as file:
        assert file.read().num_rows == 4


def test_references_are_copied_without_values():
    """A file of references to a blob file is written again; the blob file is not opened."""
    table, blobs = table_of([noise(50, seed) for seed in range(9)] + [None, b"x"]), BlobFile()
    data = stored(table, blobs, blob_inline_bytes=8)
    size = len(blobs.data)
    with fermion.open(data, blob_files=blobs) as file:
        references = file.read(blobs="references")
        assert references["image"].type == REFERENCE
        again = stored(references.take([8, 9, 10, 3]), blobs)
        assert (blobs.opened, len(blobs.data)) == (0, size)
    with fermion.open(again, blob_files=blobs) as file:
        assert file.schema.equals(table.schema, check_metadata=True)
        assert file.read()["image"].equals(table["image"].take([8, 9, 10, 3]))
    with (
        fermion.open(again) as file,
        pytest.raises(fermion.InvalidArgumentError, match=r"lies in the blob file 'one\.blob'"),
    ):
        file.read()


def test_references_to_another_fermion_file_are_refused():
    with fermion.open(stored(table_of([noise(9000)]))) as file:
        references = file.read(blobs="references")
    with pytest.raises(fermion.InvalidArgumentError, match="found one to a value within the file"):
        stored(references)
    wrong = references.set_column(
        1, references.schema.field(1), pa.array([{"offset": 5, "file": "a"}], REFERENCE)
    )
    with pytest.raises(fermion.InvalidArgumentError, match="its size is missing"):
        stored(wrong)


def test_other_columns_and_sizes_and_nulls_need_no_value():
    table = table_of([noise(100_000, seed) if seed % 3 else None for seed in range(30)])
    with fermion.open(stored(table)) as file:
        before = file.io_stats.bytes_requested
        assert file.read(["id"]).equals(table.select(["id"]))
        sizes = file.read(["image.size"])["image"].to_pylist()
        assert [each and each["size"] for each in sizes] == [
            100_000 if seed % 3 else None for seed in range(30)
        ]
        assert file.count("image IS NULL") == 10
        assert file.count("image.size > 5") == 20
        assert file.count("octet_length(image) > 5 AND id < 10") == 6
        assert file.count("length(image) / 2 = 50000 OR image IS NULL") == 30
        for wrong in ("image = 'x'", "image IN ('x')", "md5(image) = 'x'", "image LIKE 'x%'"):
            with pytest.raises(fermion.InvalidArgumentError, match="column 'image' holds blobs"):
                file.count(wrong)
        assert file.io_stats.bytes_requested - before < 50_000


def test_a_stripe_of_large_values_comes_in_several_batches():
    table = table_of([bytes(9 << 20)] * 5)
    with fermion.open(stored(table)) as file:
        assert [batch.num_rows for batch in file.iter_batches()] == [3, 2]
        assert file.read().equals(table)


def test_files_without_blobs_lack_the_feature_and_load_nothing_more(tmp_path: Path):
    fermion.write_table(table_of([b"x"], IMAGE.remove_metadata()), tmp_path / "a.fermion")
    with fermion.open(tmp_path / "a.fermion") as file:
        assert not file.index.footer.incompat & Incompat.BLOBS
        assert file.version == (1, 1)


def test_only_binary_columns_are_blobs_and_none_is_sorted_by():
    with pytest.raises(fermion.UnsupportedTypeError, match="expected the type binary or large"):
        stored(table_of(["a"], IMAGE.with_type(pa.string())))
    with pytest.raises(fermion.InvalidArgumentError, match="sorted_by names the blob column"):
        stored(table_of([b"a"]), sorted_by=["image"])
    with (
        fermion.open(stored(table_of([b"a"]))) as file,
        pytest.raises(fermion.InvalidArgumentError, match="blobs='x': expected"),
    ):
        file.read(blobs="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"offset": 2**60}, "expected one from 16"),
        ({"offset": 0}, "expected one from 16"),
        ({"size": 2**60}, "other checksums than its size"),
        ({"size": 2**60, "checksums": None}, "expected one from 16"),
        ({"size": -1}, "its size is none"),
        ({"size": None}, "its size is missing"),
        ({"offset": -(2**60)}, "its offset is none"),
        ({"offset": None}, "bytes and an offset, or neither"),
        ({"inline": b"x"}, "other bytes than its size"),
        ({"checksums": [1, 2]}, "other checksums than its size"),
    ],
)
def test_hostile_references_are_refused_before_memory_is_taken(monkeypatch, changed, message):
    from fermion.blobs import writing

    table = table_of([noise(9000)])
    honest = writing.BlobWriter.written

    def hostile(self: Any, array: pa.Array, put: Any) -> pa.StructArray:
        rows = [each | changed for each in honest(self, array, put).to_pylist()]
        return pa.array(rows, REFERENCE)

    monkeypatch.setattr(writing.BlobWriter, "written", hostile)
    with fermion.open(stored(table)) as file:
        with pytest.raises(fermion.InvalidFileError, match=message):
            file.read()
        with pytest.raises(fermion.InvalidFileError, match=message):
            list(file.iter_batches())
        assert message in file.verify().problems[0]


def test_one_value_for_many_rows_is_refused(monkeypatch):
    """A small file can't claim to hold more bytes than it has."""
    from fermion.blobs import writing

    honest = writing.BlobWriter.written

    def hostile(self: Any, array: pa.Array, put: Any) -> pa.StructArray:
        first = honest(self, array, put).to_pylist()[0]
        return pa.array([first] * len(array), REFERENCE)

    monkeypatch.setattr(writing.BlobWriter, "written", hostile)
    with fermion.open(stored(table_of([noise(9000)] * 50))) as file:
        with pytest.raises(fermion.InvalidFileError, match="blobs overlap"):
            file.read()
        assert "blobs overlap" in file.verify().problems[0]
    with fermion.open(stored(table_of([noise(9000)] * 2), stripe_rows=1)) as file:
        assert "blobs overlap" in file.verify().problems[0]


def test_take_reads_all_of_its_values_at_once(tmp_path: Path):
    """Batches of 32 MiB are for those who read in batches."""
    table = table_of([bytes([seed]) * (9 << 20) for seed in range(9)])
    fermion.write_table(table, tmp_path / "a.fermion")
    with fermion.open(tmp_path / "a.fermion") as file:
        assert file.take([8, 0, 3, 3]).equals(table.take([8, 0, 3, 3]))
        assert file.take([8, 0, 3])["image"].num_chunks == 1


def test_values_that_are_written_do_not_wait_in_memory():
    """Of a stream of batches in one stripe, at most three are alive at a time."""
    alive, most = set[int](), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(60):
            memory = np.full(100_000, number, np.uint8)
            alive.add(number)
            weakref.finalize(memory, alive.discard, number)
            most = max(most, len(alive))
            ends = pa.py_buffer(np.array([0, len(memory)], np.int64))
            buffers = [None, ends, pa.py_buffer(memory)]
            image = pa.Array.from_buffers(pa.large_binary(), 1, buffers)
            yield pa.record_batch([pa.array([number]), image], schema=SCHEMA)
            del memory, buffers, image

    target = io.BytesIO()
    with fermion.Writer(target, SCHEMA) as writer:
        writer.write(batches())
    assert most <= 3
    with fermion.open(target.getvalue()) as file:
        assert file.num_stripes == 1
        assert [each[0] for each in file.read()["image"].to_pylist()] == list(range(60))


def test_parquet_has_the_values(tmp_path: Path):
    """Both ways, batch by batch; the column is one of blobs again."""
    table = table_of([noise(3_000_000, seed) for seed in range(12)] + [None, b"x", b""])
    fermion.write_table(table, tmp_path / "a.fermion")
    fermion.to_parquet(tmp_path / "a.fermion", tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(table)
    fermion.from_parquet(tmp_path / "a.parquet", tmp_path / "b.fermion")
    with fermion.open(tmp_path / "b.fermion") as file:
        assert file.index.footer.has_blobs
        assert file.schema.equals(table.schema, check_metadata=True)
        assert file.read().equals(table)


def test_the_command_line_and_the_page_show_blobs_and_not_their_bytes(tmp_path: Path, capsys):
    path = tmp_path / "a.fermion"
    fermion.write_table(table_of([b"\xab" * 70_000, None, b"\xcd" * 30_000]), path)
    for command, shown in {
        "inspect": "blobs: 97.7 KiB in all",
        "head": "70000 bytes",
        "stats": "image.size",
        "schema": "image: large_binary",
        "verify": "OK",
    }.items():
        assert main([command, str(path)]) == 0
        found = capsys.readouterr().out
        assert shown in found
        assert "checksums.item" not in found or command == "inspect"
        assert "abab" not in found
    assert main(["inspect", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["columns"][1]["blob_bytes"] == 100_000
    with fermion.open(path) as file:
        assert "100,000 bytes of blobs" in file.layout_html()
        assert "large_binary" in file._repr_html_()
        assert file.column("image").blob_bytes == 100_000
        parts = dict(layout_map(file.index)["parts"])
        assert 100_000 <= parts["blobs, padding"] < 101_000
