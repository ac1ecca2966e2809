"""`FermionFile.verify` of a file that is open: what is stored now counts, not what was read."""

from __future__ import annotations

import io
import uuid
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

import fermion
from tests.kit.files.file_anatomy import unprotected

TABLE = pa.table({"a": [5, 1, None, 3], "b": ["x", "yy", None, "zzz"]})


def stored(table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    return sink.getvalue()


def test_damage_after_opening_is_found_wherever_it_is(tmp_path: Path):
    """Every seventh byte flipped in place under an open handle, which has read all of it."""
    path, data = tmp_path / "x.fermion", stored()
    path.write_bytes(data)
    with fermion.open(path) as file, path.open("r+b", buffering=0) as stream:
        assert file.read().equals(TABLE)
        assert file.verify().ok
        for at in sorted({*range(0, len(data), 7)} - unprotected(data)):
            stream.seek(at)
            stream.write(bytes([data[at] ^ 0x10]))
            assert not file.verify().ok, at
            stream.seek(at)
            stream.write(data[at : at + 1])
        assert file.verify().ok


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_is_cut_after_opening_is_no_sound_file(tmp_path: Path, remote):
    path, data = tmp_path / "x.fermion", stored()
    url = f"memory://{uuid.uuid4().hex}/x.fermion" if remote else str(path)
    system, inner = fsspec.core.url_to_fs(url)
    system.pipe_file(inner, data)
    with fermion.open(url) as file:
        for length in (len(data) - 1, 100, 0):
            if remote:
                system.pipe_file(inner, data[:length])
            else:
                path.open("r+b").truncate(length)
            report = file.verify()
            assert not report.ok
            assert "x.fermion" in report.problems[0]


def test_an_object_replaced_after_opening_is_another_one():
    """Sound by itself, but not what the handle's index speaks of."""
    system, folder = fsspec.filesystem("memory"), uuid.uuid4().hex
    system.pipe_file(f"/{folder}/x", stored())
    with fermion.open(f"memory://{folder}/x") as file:
        assert file.verify().ok
        system.pipe_file(f"/{folder}/x", stored(TABLE.slice(1)))
        (problem,) = file.verify().problems
        assert "another file than when it was opened" in problem


def test_a_local_file_that_was_replaced_is_checked_as_it_is_open(tmp_path: Path):
    path = tmp_path / "x.fermion"
    fermion.write_table(TABLE, path)
    with fermion.open(path) as file:
        fermion.write_table(TABLE.slice(1), path)
        assert file.verify().ok
        assert file.read().equals(TABLE)
        assert file.verify().ok
