"""Tables whose files clones share are not dropped unasked, and dropped clones leave no tags."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table, TableNotFound, drop_table
from fermion_table.storage.paths import tag_path


@pytest.fixture
def source(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "source", pa.schema({"a": pa.int64()}), durability="fast")
    made.append({"a": [1, 2, 3]})
    made.append({"a": [4]})
    return made


def rows(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["a"].to_pylist())


@pytest.mark.parametrize("where", ["local", "memory"])
def test_a_table_with_clones_is_not_dropped(where, tmp_path):
    """The error names them and the way to go ahead; nothing is deleted. Then all go in turn."""
    root = str(tmp_path) if where == "local" else f"memory://{tmp_path.name}"
    source = Table.create(f"{root}/source", pa.schema({"a": pa.int64()}))
    source.append({"a": [1, 2]})
    clones = [source.clone(f"{root}/clone{number}") for number in range(2)]
    before = sorted(item.path for item in source.store.list())
    with pytest.raises(InvalidArgumentError, match=r"clone0, .*clone1.*ignore_clones=True"):
        drop_table(source.location)
    assert sorted(item.path for item in source.store.list()) == before
    planned = drop_table(source.location, dry_run=True)
    assert planned.clones == tuple(clone.store.location for clone in clones)
    assert planned.files == len(before)
    for clone in clones:
        assert rows(clone) == [1, 2]
        drop_table(clone.location)
    assert source.tags.list() == []
    drop_table(source.location)
    assert not Table.exists(source.location)


def test_a_table_is_dropped_for_all_its_clones_on_request(source, tmp_path):
    clone = source.clone(tmp_path / "clone")
    drop_table(source.location, ignore_clones=True)
    with pytest.raises(FileNotFoundError):
        rows(clone)
    drop_table(clone.location)  # whose source is gone
    with pytest.raises((TypeError, ValueError), match="ignore_clones"):
        drop_table(source.location, ignore_clones="yes")


def test_clones_that_went_by_themselves_do_not_count(source, tmp_path):
    """Deleted without the table's help, or another table, or another clone, in their place."""
    for place in ("gone", "another", "again"):
        clone = source.clone(tmp_path / place)
        shutil.rmtree(clone.location)
    Table.create(tmp_path / "another", source.schema)
    (tmp_path / "gone").write_text("a file")
    source.clone(tmp_path / "again")
    assert drop_table(source.location, dry_run=True).clones == (str(tmp_path / "again"),)
    drop_table(tmp_path / "again")
    assert len(source.tags.list()) == 3
    drop_table(source.location)


def test_a_clone_that_shares_no_file_of_the_table_does_not_keep_it(source, tmp_path):
    """A clone of an empty table, or of a clone whose files are all its source's."""
    empty = Table.create(tmp_path / "empty", source.schema)
    empty.clone(tmp_path / "of_empty")
    drop_table(empty.location)
    middle = source.clone(tmp_path / "middle")
    last = middle.clone(tmp_path / "last")
    drop_table(middle.location)
    source.compact()
    source.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    source.remove_orphan_files(older_than=timedelta(days=-1))
    assert rows(last) == [1, 2, 3, 4]
    with pytest.raises(InvalidArgumentError, match="last"):
        drop_table(source.location)


def test_deletion_vectors_of_the_table_keep_it(source, tmp_path):
    """All data files are those of the source's own source; only which rows are deleted is not."""
    middle = source.clone(tmp_path / "middle")
    middle.delete("a = 1")
    last = middle.clone(tmp_path / "last")
    with pytest.raises(InvalidArgumentError, match="last"):
        drop_table(middle.location)
    assert rows(last) == [2, 3, 4]


def test_a_dropped_clone_of_a_clone_deletes_its_tags_in_all_sources(source, tmp_path):
    middle = source.clone(tmp_path / "middle")
    middle.append({"a": [5]})
    last = middle.clone(tmp_path / "last")
    (own,) = middle.tags.list()
    with pytest.raises(InvalidArgumentError, match="last"):
        drop_table(middle.location)
    drop_table(last.location)
    assert middle.tags.list() == []
    assert own.name not in {tag.name for tag in source.tags.list()}
    assert rows(middle) == [1, 2, 3, 4, 5]
    assert len(source.tags.list()) == 1


def test_dropping_a_copy_of_a_clone_leaves_the_tag_of_the_clone(source, tmp_path):
    """The files of the clone itself stay after expiry of the source."""
    clone = source.clone(tmp_path / "clone")
    shutil.copytree(clone.location, tmp_path / "copy")
    drop_table(tmp_path / "copy")
    assert len(source.tags.list()) == 1
    source.compact()
    source.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    source.remove_orphan_files(older_than=timedelta(days=-1))
    assert rows(clone) == [1, 2, 3, 4]


def test_damaged_clones_and_tags_count(source, tmp_path):
    """What can't be read may be a clone: the table stays, and the error says which it is."""
    clone = source.clone(tmp_path / "clone")
    first = Path(clone.location) / "snapshot" / f"{0:020d}.json"
    first = first if first.exists() else sorted((Path(clone.location) / "snapshot").iterdir())[0]
    first.write_bytes(b"{}")
    assert drop_table(source.location, dry_run=True).clones == (clone.location,)
    (tag,) = source.tags.list()
    (Path(source.location) / tag_path(tag.name)).write_bytes(b"{}")
    with pytest.raises(InvalidArgumentError, match=tag.name):
        drop_table(source.location)
    drop_table(source.location, ignore_clones=True)


def test_tags_of_users_do_not_keep_a_table(source):
    """Not even one with the name of a clone's tag; and tags.create may say what it likes."""
    source.tags.create("clone-mine")
    source.tags.create("clone-other", message=f"keeps the files of {source.location}")
    source.tags.create("mine", message="keeps the files of /nowhere")
    drop_table(source.location)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_clone_is_dropped_where_its_source_can_not_be_written(source, tmp_path):
    clone = source.clone(tmp_path / "clone")
    tags = Path(source.location) / "tags"
    tags.chmod(0o500)
    try:
        drop_table(clone.location)
    finally:
        tags.chmod(0o700)
    assert len(source.tags.list()) == 1


def test_a_clone_is_dropped_though_deleting_its_tag_fails(source, tmp_path, monkeypatch):
    """The storage refuses: what is left is a tag that counts for nothing."""
    clone = source.clone(tmp_path / "clone")

    def refuse(store, name):
        raise PermissionError(name)

    monkeypatch.setattr("fermion_table.metadata.clone_links.delete_tag", refuse)
    drop_table(clone.location)
    with pytest.raises(TableNotFound):
        Table.open(clone.location)
    assert len(source.tags.list()) == 1
    drop_table(source.location)
