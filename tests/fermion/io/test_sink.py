"""Local files that are written: whose name, links and permissions they get, and who cleans up."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from fermion import InvalidArgumentError

TABLE = pa.table({"a": [1, 2, 3]})

DROP = """
import os, sys, fermion, pyarrow as pa
writer = fermion.Writer(sys.argv[1], pa.schema([("a", pa.int64())]))
writer.write({"a": [1]})
"""
FORK = """
import gc, os, sys, fermion, pyarrow as pa
writer = fermion.Writer(sys.argv[1], pa.schema([("a", pa.int64())]))
writer.write({"a": [1]})
child = os.fork()
if not child:
    del writer
    gc.collect()
    sys.exit()  # which runs finalizers and flushes files
assert os.waitpid(child, 0)[1] == 0
writer.write({"a": [2]})
writer.close()
"""


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def mask():
    old = os.umask(0o027)
    yield
    os.umask(old)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o400, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mask, mode):
    """Whatever the umask says; and in place of a file changed in place."""
    path = tmp_path / "x.fermion"
    path.touch()
    path.chmod(mode)
    fermion.write_table(TABLE, path)
    assert permissions(path) == mode
    fermion.add_columns(path, {"b": [1, 2, 3]})
    assert permissions(path) == mode
    fermion.to_parquet(path, path)
    assert permissions(path) == mode


def test_a_temporary_file_is_never_more_open_than_the_file_it_replaces(tmp_path: Path, mask):
    path = tmp_path / "x.fermion"
    path.touch()
    path.chmod(0o600)
    with fermion.Writer(path, TABLE.schema) as writer:
        assert {permissions(each) for each in tmp_path.iterdir()} == {0o600}
        writer.write(TABLE)


def test_a_new_file_has_the_permissions_that_open_gives(tmp_path: Path, mask):
    fermion.write_table(TABLE, tmp_path / "x.fermion")
    assert permissions(tmp_path / "x.fermion") == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_written_through(tmp_path: Path, exists):
    """In another directory, by a relative link to a link; the file may not be there yet."""
    (tmp_path / "data").mkdir()
    file, link, outer = tmp_path / "data" / "file", tmp_path / "link", tmp_path / "outer"
    link.symlink_to("data/file")
    outer.symlink_to("link")
    if exists:
        file.write_bytes(b"old")
        file.chmod(0o600)
    fermion.write_table(TABLE, outer)
    assert outer.is_symlink()
    assert link.is_symlink()
    assert not file.is_symlink()
    assert fermion.read_table(file).equals(TABLE)
    assert permissions(file) == 0o600 or not exists
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["file"]


def test_a_link_in_a_circle_is_an_error(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(OSError, match="link"):
        fermion.write_table(TABLE, link)
    assert link.is_symlink()


def test_a_pipe_is_not_replaced(tmp_path: Path):
    """Nor is a socket, or what else is no file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgumentError, match="expected a regular file"):
        fermion.write_table(TABLE, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        with pytest.raises(InvalidArgumentError, match="expected a regular file"):
            fermion.write_table(TABLE, tmp_path / "s")
    assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_a_file_with_a_long_name_is_written(tmp_path: Path):
    """255 bytes are what most file systems take; the temporary file's name is not longer."""
    for name in ("x" * 255, "ä" * 127):
        fermion.write_table(TABLE, tmp_path / name)
        assert fermion.read_table(tmp_path / name).equals(TABLE)


def test_a_writer_that_is_open_when_its_process_ends_leaves_no_file(tmp_path: Path):
    path = tmp_path / "x.fermion"
    subprocess.run([sys.executable, "-c", DROP, path], check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_neither_ends_nor_writes_its_parents_file(tmp_path: Path):
    """The child drops its copy of the writer, and ends as any program does."""
    path = tmp_path / "x.fermion"
    subprocess.run([sys.executable, "-c", FORK, path], check=True, timeout=60)
    assert fermion.read_table(path)["a"].to_pylist() == [1, 2]
    with fermion.open(path) as file:
        assert file.verify().ok


def test_messages_about_targets_name_them(tmp_path: Path):
    """Not the hidden temporary file."""
    missing, folder = tmp_path / "no" / "x.fermion", tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"no such folder.*no'.*no/x\.fermion'") as found:
        fermion.write_table(TABLE, missing)
    assert found.value.filename == str(missing)
    with pytest.raises(IsADirectoryError, match=r"expected a file, found a directory.*folder"):
        fermion.write_table(TABLE, folder)
    with pytest.raises(IsADirectoryError, match=r"expected a file, found a directory.*folder/"):
        fermion.write_table(TABLE, f"{folder}/")
    with pytest.raises(InvalidArgumentError, match="path=''"):
        fermion.write_table(TABLE, "")
