"""Files that are read back before they get their name."""

from __future__ import annotations

import io
import uuid

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import InvalidArgumentError, InvalidFileError
from fermion.encodings.plain import Plain
from fermion.io import sink
from tests.kit.equality import assert_logically_equal
from tests.kit.files.file_anatomy import unprotected

TABLE = pa.table({"a": [5, 1, None, 3], "b": ["x", "yy", None, "zzz"]})


@pytest.fixture
def damaging(monkeypatch):
    """Has local files get one byte that is not the one written; gives the function for which."""
    write = sink.LocalSink.write
    state = {"at": -1, "done": 0}

    def damaged(self, data):
        at = state["at"] - state["done"]
        state["done"] += len(data)
        if 0 <= at < len(data):
            changed = bytearray(data)
            changed[at] ^= 0x10
            data = bytes(changed)
        write(self, data)

    monkeypatch.setattr(sink.LocalSink, "write", damaged)
    return lambda at: state.update(at=at, done=0)


def test_a_byte_that_changes_on_the_way_is_noticed_wherever_it_is(tmp_path, damaging):
    """Every fifth byte flipped between the writer and the disk, but for those without a use."""
    path = tmp_path / "x.fermion"
    size = fermion.write_table(TABLE, path, read_back=True, durable=False).size
    before = path.read_bytes()
    for at in sorted({*range(0, size, 5)} - unprotected(before)):
        damaging(at)
        with pytest.raises(InvalidFileError, match=r"x\.fermion: read back after writing: "):
            fermion.write_table(TABLE, path, read_back=True, durable=False)
        assert [each.name for each in tmp_path.iterdir()] == ["x.fermion"]
        assert path.read_bytes() == before


def test_damage_stays_where_nobody_reads_back(tmp_path, damaging):
    """The damage of the other tests is such that it would get into a file."""
    path = tmp_path / "x.fermion"
    fermion.write_table(TABLE, path, durable=False)
    damaging(100)
    fermion.write_table(TABLE, path, durable=False)
    with fermion.open(path) as file:
        assert not file.verify().ok


def test_an_encoder_that_stores_other_values_is_noticed(tmp_path, monkeypatch):
    """Checksums agree then, but bounds, which come from the values themselves, do not."""
    encode = Plain.encode

    def wrong(self, values, *others):
        changed = values + 1 if isinstance(values, np.ndarray) else values
        return encode(self, changed, *others)

    monkeypatch.setattr(Plain, "encode", wrong)
    table = pa.table({"a": np.arange(100) * 7919})
    with pytest.raises(InvalidFileError, match="read back after writing: expected no problems"):
        fermion.write_table(table, tmp_path / "x.fermion", encodings={"a": "plain"}, read_back=True)
    assert list(tmp_path.iterdir()) == []


def test_a_sound_file_is_read_back_and_appears(tmp_path):
    """Of two stripes, in batch mode and with what else lies beside the columns."""
    path, options = tmp_path / "x.fermion", fermion.WriteOptions(read_back=True, stripe_rows=4)
    with fermion.Writer(path, TABLE.schema, options=options) as writer:
        writer.append_batch(1, TABLE)
        writer.append_batch(2, TABLE)
    assert_logically_equal(fermion.read_table(path), pa.concat_tables([TABLE, TABLE]))


@pytest.mark.parametrize("sound", [True, False])
def test_other_file_systems_are_read_after_the_upload(sound, monkeypatch):
    """A sound file stays, one that comes back otherwise is removed."""
    system, url = fsspec.filesystem("memory"), f"memory://{uuid.uuid4().hex}/x.fermion"
    if not sound:
        read = system.cat_file

        def wrong(*arguments, **others):
            return read(*arguments, **others).replace(b"FERMION1", b"FERMION2")

        monkeypatch.setattr(system, "cat_file", wrong)
        with pytest.raises(InvalidFileError, match=r"read back after writing: .*FERMION"):
            fermion.write_table(TABLE, url, read_back=True)
        assert not system.exists(url)
        return
    fermion.write_table(TABLE, url, read_back=True)
    assert_logically_equal(fermion.read_table(url), TABLE)


def test_an_object_that_cannot_be_read_is_refused_before_anything_is_written():
    target = io.BytesIO()
    with pytest.raises(InvalidArgumentError, match="read_back: expected a path or a URL"):
        fermion.write_table(TABLE, target, read_back=True)
    assert target.getvalue() == b""


def test_columns_that_are_added_are_read_back_too(tmp_path, damaging):
    """Changed in place: after damage on the way the file is the one that it was."""
    path = tmp_path / "x.fermion"
    fermion.write_table(TABLE, path)
    before, more = path.read_bytes(), pa.table({"c": [1.5, 2.5, 3.5, 4.5]})
    damaging(40)  # of the bytes written anew, of which the first are a page
    with pytest.raises(InvalidFileError, match="read back after writing: "):
        fermion.add_columns(path, more, read_back=True)
    assert path.read_bytes() == before
    damaging(-1)
    fermion.add_columns(path, more, read_back=True)
    assert_logically_equal(fermion.read_table(path), TABLE.append_column("c", more["c"]))
