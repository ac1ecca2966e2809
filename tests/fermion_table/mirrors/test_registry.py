"""Mirrors as a table offers them: made, listed, dropped; what is refused."""

from __future__ import annotations

import datetime
import re
from importlib.util import find_spec

import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CorruptMetadata, Table, drop_table


@pytest.fixture
def table(tmp_path):
    made = Table.create(tmp_path / "t", {"id": [1, 2]}, durability="fast")
    return Table.open(made.location, durability="fast")


def test_mirrors_are_listed_by_name_and_forgotten_by_it(table, tmp_path):
    made = table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.create("Delta", tmp_path / "e", name="a-second", history=True)
    assert [each.name for each in table.mirrors] == ["a-second", "delta"]
    assert made in table.mirrors.list()
    assert "delta" in table.mirrors
    assert re.search(r"\n  delta, kind delta, location .", repr(table.mirrors))
    again = Table.open(table.location).mirrors.list()
    assert [each.history for each in again] == [True, False]
    table.mirrors.publish("delta")
    table.mirrors.drop("delta")
    assert [each.name for each in table.mirrors] == ["a-second"]
    assert (tmp_path / "d/_delta_log").is_dir()


def test_a_dropped_mirror_goes_on_where_it_was_when_it_is_made_again(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    table.mirrors.drop("delta")
    table.append({"id": [3]})
    table.mirrors.create("delta", tmp_path / "d", name="again")
    (done,) = table.mirrors.publish()
    assert done.snapshots == tuple(range(table.snapshot.id - 2, table.snapshot.id + 1))
    assert done.files_added == 1


def test_restoring_a_snapshot_from_before_a_mirror_keeps_the_mirror(table, tmp_path):
    before = table.snapshot.id
    table.mirrors.create("delta", tmp_path / "d")
    table.append({"id": [3]})
    table.mirrors.publish()
    table.restore(before)
    assert "delta" in table.mirrors
    assert table.mirrors.publish()[0].snapshots == (table.snapshot.id,)


def test_undoing_the_commit_that_made_a_mirror_takes_it_away(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.undo()
    assert not table.mirrors.list()


def test_a_mirror_belongs_to_the_branch_of_the_table_that_made_it(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev", durability="fast")
    assert not dev.mirrors.list()
    dev.mirrors.create("delta", tmp_path / "e", name="of-dev")
    dev.append({"id": [9]})
    assert [each.name for each in dev.mirrors.publish()] == ["of-dev"]
    assert [each.name for each in table.mirrors] == ["delta"]
    with pytest.raises(InvalidArgumentError, match="no mirror of this table's branch 'main'"):
        table.mirrors.create("delta", tmp_path / "e", name="other")


def test_a_clone_has_no_say_in_the_mirror_of_its_source(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    clone = table.clone(tmp_path / "clone")
    if clone.mirrors.list():
        with pytest.raises(InvalidArgumentError, match="no mirror of this table's"):
            clone.mirrors.publish()


def test_a_table_made_again_at_its_place_does_not_take_up_the_mirror(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    drop_table(table.location)
    again = Table.create(table.location, {"id": [5]})
    with pytest.raises(InvalidArgumentError, match="no mirror of this table's"):
        again.mirrors.create("delta", tmp_path / "d")


def test_a_replaced_table_goes_on_with_its_mirror_when_it_is_made_again(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    other = Table.create(table.location, {"name": ["x"]}, mode="overwrite")
    assert not other.mirrors.list()
    other.mirrors.create("delta", tmp_path / "d")
    assert other.mirrors.publish()[0].snapshot_id == other.snapshot.id


def test_expired_snapshots_are_skipped(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    for number in range(3, 6):
        table.append({"id": [number]})
    table.expire_snapshots(older_than=datetime.timedelta(0), retain_last=2)
    first = table.snapshot.id - 1
    assert table.mirrors.publish()[0].snapshots == tuple(range(first, table.snapshot.id + 1))


@pytest.mark.parametrize(
    ("kind", "place", "more", "match"),
    [
        ("detla", "x", {}, "kind 'detla': expected one of.*did you mean 'delta'"),
        ("delta", "t", {}, "outside of the table"),
        ("delta", "t/inside", {}, "outside of the table"),
        ("delta", ".", {}, "outside of the table"),
        ("delta", "x", {"name": "a b"}, "mirror name 'a b'"),
        ("delta", "x", {"name": "n", "codec": "lz4"}, "codec='lz4': is no option"),
        ("delta", "d", {"name": "other"}, "this location"),
        ("delta", "x", {"name": "delta"}, "this name"),
    ],
)
def test_what_can_not_be_a_mirror_is_refused(table, tmp_path, kind, place, more, match):
    table.mirrors.create("delta", tmp_path / "d")
    before = table.snapshot.id
    with pytest.raises((InvalidArgumentError, TypeError), match=match):
        table.mirrors.create(kind, (tmp_path / place).resolve(), **more)
    assert Table.open(table.location).snapshot.id == before


@pytest.mark.skipif(find_spec("pypaimon") is not None, reason="pypaimon is installed")
def test_a_kind_whose_library_is_missing_says_what_to_install(table, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"needs .*: pip install 'fermion\[paimon\]'"):
        table.mirrors.create("paimon", tmp_path / "d")
    assert not table.mirrors.list()


def test_an_unknown_mirror_is_named_with_those_that_there_are(table, tmp_path):
    table.mirrors.create("delta", tmp_path / "d", name="lake")
    for call in (table.mirrors.publish, table.mirrors.drop):
        with pytest.raises(InvalidArgumentError, match=r"no mirror 'lak'.*lake; did you mean"):
            call("lak")


def test_a_property_that_is_no_mirror_is_told(table):
    table.set_properties({"fermion.mirror.bad": "5"})
    with pytest.raises(CorruptMetadata, match=r"fermion\.mirror\.bad"):
        table.mirrors.list()


def test_a_mirror_that_is_ahead_of_its_table_is_refused(table, tmp_path):
    """The table was put back from a backup, and has other commits now."""
    import shutil

    table.mirrors.create("delta", tmp_path / "d")
    shutil.copytree(table.location, tmp_path / "backup")
    table.append({"id": [3]})
    table.mirrors.publish()
    shutil.rmtree(table.location)
    shutil.copytree(tmp_path / "backup", table.location)
    back = Table.open(table.location)
    with pytest.raises(InvalidArgumentError, match=r"shows snapshot 3 .* the newest .* is 2"):
        back.mirrors.publish()
    back.append({"id": [4]})
    back.append({"id": [5]})
    with pytest.raises(InvalidArgumentError, match="has another snapshot of this id"):
        back.mirrors.publish()
