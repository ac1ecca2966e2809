"""Mapped local files: the same rows and errors as files that are read, and no bytes copied."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ReadOptions
from fermion.errors import ChecksumError, FermionError, InvalidFileError, TruncatedFileError
from fermion.io.source import LocalSource, MappedSource
from tests.kit.processes import in_fork

MAPPED = ReadOptions(memory_map=True)


def table(rows: int = 3_000) -> pa.Table:
    random = np.random.default_rng(2)
    return pa.table(
        {
            "number": random.integers(0, 2**40, rows),
            "text": [f"text {n % 31}" * (n % 5) for n in range(rows)],
            "maybe": pa.array(random.normal(size=rows), mask=random.random(rows) < 0.3),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mapped.fermion"
    fermion.write_table(table(), path, page_rows_max=400, durable=False)
    return path


def test_every_way_to_read_gives_the_same_and_reads_nothing(path, monkeypatch):
    """`os.preadv` is not called; what is counted as asked for is the same."""
    reads = {
        "all": lambda file: file.read(),
        "rows": lambda file: file.read(rows=(700, 1_900)),
        "taken": lambda file: file.take([2_999, 5, 1_000]),
        "filtered": lambda file: file.read(["text"], filter="number < 100000000000"),
        "batches": lambda file: pa.Table.from_batches(file.iter_batches(batch_size=100)),
        "metadata": lambda file: repr(file.column("text")),
    }
    with fermion.open(path) as file:
        expected = {name: read(file) for name, read in reads.items()}
        asked = file.io_stats
        assert file.verify().ok
    with fermion.open(path, options=MAPPED) as file, monkeypatch.context() as patch:
        patch.setattr(os, "preadv", None)
        assert {name: read(file) for name, read in reads.items()} == expected
        assert file.io_stats == asked
    with fermion.open(path, options=MAPPED) as file:
        assert file.verify().ok


def test_plain_values_lie_in_the_mapping_and_outlive_the_file(tmp_path):
    path = tmp_path / "plain.fermion"
    numbers = pa.table({"x": np.arange(5_000)})
    fermion.write_table(numbers, path, align=64, encodings={"x": "plain"}, durable=False)
    with fermion.open(path, options=MAPPED) as file:
        view = file.index.source.source.read(0, 8)
        start = np.frombuffer(view, np.uint8).ctypes.data
        found = file.read()
    address = found["x"].chunk(0).buffers()[1].address
    assert start < address < start + path.stat().st_size
    path.unlink()
    assert found.equals(numbers)


def test_a_closed_file_a_pickled_one_and_a_forked_process(path):
    with fermion.open(path, options=MAPPED) as file:
        assert pickle.loads(pickle.dumps(file)).read().equals(table())
        assert in_fork(lambda: file.take([7]).to_pylist()) == table().slice(7, 1).to_pylist()
        source = file.index.source.source
        assert isinstance(source, MappedSource)
    with pytest.raises(fermion.InvalidArgumentError, match="closed"):
        file.read()
    with pytest.raises(fermion.InvalidArgumentError, match="closed"):
        source.read(0, 1)
    source.close()


def test_damage_is_told_as_of_a_file_that_is_read(path):
    data = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(InvalidFileError, match="0 bytes"):
        fermion.open(path, options=MAPPED)
    path.write_bytes(data[:-9])
    with pytest.raises(FermionError) as mapped:
        fermion.open(path, options=MAPPED)
    with pytest.raises(type(mapped.value)) as read:
        fermion.open(path)
    assert str(mapped.value) == str(read.value)
    with fermion.open(data) as file:
        place = file.column("number").streams[1].chunks[0].offset + 40
    damaged = bytearray(data)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with (
        fermion.open(path, options=MAPPED) as file,
        pytest.raises(ChecksumError, match="page at offset"),
    ):
        file.read()
    with pytest.raises(TruncatedFileError, match="ends past the end"):
        MappedSource(path).read(len(data) - 1, 2)


def test_other_files_are_read_as_without_the_option(path):
    url = f"memory://{uuid.uuid4().hex}.fermion"
    with fsspec.open(url, "wb") as file:
        file.write(path.read_bytes())
    for place in (url, path.read_bytes()):
        with fermion.open(place, options=MAPPED) as opened:
            assert opened.read().equals(table())
            assert not isinstance(opened.index.source.source, LocalSource)
