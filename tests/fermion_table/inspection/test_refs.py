"""Tags, branches and versions of a table: what they name, what writing on a branch leaves alone."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table, VersionNotFound


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 4 append the rows 1 to 4."""
    made = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    for value in range(1, 5):
        append(made, value)
    return made


def append(table: Table, *values: int) -> None:
    table.append(pa.table({"a": pa.array(values, pa.int64())}))


def rows(table: Table, **version: Any) -> list[int]:
    return table.scan(**version).to_arrow()["a"].to_pylist()


def reopened(table: Table, **version: Any) -> Table:
    return Table.open(table.location, durability="fast", **version)


def test_a_tag_names_the_snapshot_that_the_table_sees(table: Table) -> None:
    older = reopened(table, version=2)
    tag = older.tags.create("v1", message="first release")
    assert (tag.name, tag.snapshot_id, tag.message) == ("v1", 2, "first release")
    assert [each.name for each in table.tags.list()] == ["v1"]
    assert "v1" in repr(tag)
    assert "2" in repr(tag)
    assert rows(table, tag="v1") == [1, 2]
    assert rows(reopened(table, version="v1")) == [1, 2]


@pytest.mark.parametrize("version", [3, "3", "main~1", "three"])
def test_a_tag_takes_every_form_of_version(table: Table, version: Any) -> None:
    table.tags.create("three", version=3)
    assert table.tags.create("again", version=version).snapshot_id == 3


def test_a_tag_goes_when_it_is_deleted(table: Table) -> None:
    table.tags.create("v1")
    table.tags.delete("v1")
    assert table.tags.list() == []
    with pytest.raises(VersionNotFound, match="'v1'"):
        table.tags.delete("v1")
    with pytest.raises(VersionNotFound, match="no tag 'v1'"):
        table.scan(tag="v1")


def test_a_tag_lasts_as_long_as_it_was_told_to(table: Table) -> None:
    tag = table.tags.create("brief", keep=timedelta(days=1))
    assert tag.expires_ms == tag.created_ms + 86_400_000
    assert table.tags.create("long").expires_ms is None


def test_names_are_given_once(table: Table) -> None:
    table.tags.create("v1")
    table.branches.create("dev")
    for what, name in (("tags", "v1"), ("tags", "dev"), ("branches", "dev"), ("branches", "v1")):
        with pytest.raises(InvalidArgumentError, match=name):
            getattr(table, what).create(name)
    for what in ("tags", "branches"):
        for name in ("main", "12", "a~1", "a/b", ""):
            with pytest.raises(InvalidArgumentError):
                getattr(table, what).create(name)


def test_writing_on_a_branch_leaves_the_other_alone(table: Table) -> None:
    table.branches.create("dev", version=2)
    dev = reopened(table, branch="dev")
    append(dev, 100)
    append(table, 5)
    assert rows(dev) == [1, 2, 100]
    assert rows(reopened(table, branch="dev")) == [1, 2, 100]
    assert rows(reopened(table)) == rows(table) == [1, 2, 3, 4, 5]
    assert rows(table, branch="dev") == [1, 2, 100]
    assert rows(table, branch="dev", snapshot_id=1) == [1]
    assert [snapshot.id for snapshot in dev.snapshots()] == [0, 1, 2, 3]


def test_schemas_of_branches_go_their_own_ways(table: Table) -> None:
    table.branches.create("dev")
    dev = reopened(table, branch="dev")
    dev.add_columns({"b": pa.string()})
    table.add_columns({"c": pa.float64()})
    assert dev.schema.names == ["a", "b"]
    assert reopened(table).schema.names == ["a", "c"]
    assert table.scan(branch="dev").to_arrow().column_names == ["a", "b"]


def test_a_branch_of_a_branch_leaves_that_one(table: Table) -> None:
    table.branches.create("dev")
    dev = reopened(table, branch="dev")
    head = dev.branches.create("early")  # dev has no commit of its own yet
    assert head.parent == "dev"
    append(dev, 100)
    assert dev.branches.create("late").parent == "dev"
    assert table.branches.create("other", version="dev~1").parent == "dev"
    assert table.branches.create("plain", version=4).parent == "main"
    assert rows(table, branch="late") == [1, 2, 3, 4, 100]
    with pytest.raises(InvalidArgumentError, match="early, late, other"):
        table.branches.delete("dev")


def test_branches_are_listed_with_where_they_stand(table: Table) -> None:
    table.branches.create("dev", version=2, message="try")
    append(reopened(table, branch="dev"), 100)
    main, dev = table.branches.list()
    assert (main.name, main.snapshot_id, main.parent) == ("main", 4, None)
    assert (dev.name, dev.snapshot_id, dev.parent, dev.left_after) == ("dev", 3, "main", 2)
    assert dev.message == "try"
    assert dev.created is not None
    assert abs(dev.created - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_deleted_branch_is_gone(table: Table) -> None:
    table.branches.create("dev")
    append(reopened(table, branch="dev"), 100)
    table.branches.delete("dev")
    assert [each.name for each in table.branches.list()] == ["main"]
    with pytest.raises(VersionNotFound, match="dev"):
        reopened(table, branch="dev")
    table.branches.create("dev")
    assert rows(table, branch="dev") == [1, 2, 3, 4]


def test_fast_forward_moves_main_and_the_table_with_it(table: Table) -> None:
    table.branches.create("dev")
    dev = reopened(table, branch="dev")
    append(dev, 100)
    append(dev, 101)
    snapshot = table.branches.fast_forward("dev", message="publish")
    assert table.snapshot == snapshot
    assert (snapshot.id, snapshot.message) == (5, "publish")
    assert rows(table) == rows(reopened(table)) == [1, 2, 3, 4, 100, 101]
    append(table, 5)
    with pytest.raises(CommitConflict, match="dev"):
        dev.branches.fast_forward("dev")


def test_fast_forward_of_another_branch_does_not_move_the_table(table: Table) -> None:
    table.branches.create("dev")
    dev = reopened(table, branch="dev")
    append(dev, 100)
    dev.branches.fast_forward("dev")
    assert dev.branch == "dev"
    assert dev.snapshot.id == 5
    assert dev.snapshot.branch == "dev"
    assert rows(dev) == rows(reopened(table)) == [1, 2, 3, 4, 100]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, []),
        (2, [1, 2]),
        ("2", [1, 2]),
        ("main", [1, 2, 3, 4]),
        ("main~1", [1, 2, 3]),
        ("main~4", []),
        ("v1", [1]),
        ("v1~1", []),
        ("dev", [1, 2, 100]),
        ("dev~1", [1, 2]),
        ("dev~2", [1]),
        ("on-dev", [1, 2, 100]),
    ],
)
def test_a_version_opens_its_snapshot(table: Table, version: Any, expected: list[int]) -> None:
    table.tags.create("v1", version=1)
    table.branches.create("dev", version=2)
    append(reopened(table, branch="dev"), 100)
    table.tags.create("on-dev", version="dev")
    opened = reopened(table, version=version)
    assert rows(opened) == expected
    assert [each.id for each in opened.snapshots()] == list(range(opened.snapshot.id + 1))
    assert opened.branch == ("dev" if "dev" in str(version) else "main")
    if not str(version).isdigit():
        assert rows(table, as_of=version) == expected


def test_a_time_gives_the_latest_snapshot_then(table: Table) -> None:
    time.sleep(0.002)
    moment = datetime.now(UTC)
    time.sleep(0.002)
    append(table, 5)
    naive = moment.replace(tzinfo=None)
    for form in (moment, moment.isoformat(), naive, naive.isoformat()):
        assert rows(table, as_of=form) == [1, 2, 3, 4]
    assert rows(reopened(table, version=moment)) == [1, 2, 3, 4]
    assert rows(reopened(table, version=moment.isoformat())) == [1, 2, 3, 4]
    with pytest.raises(VersionNotFound, match="earliest 0"):
        table.scan(as_of="2001-01-01")


@pytest.mark.parametrize("version", [5, -1, "nothing", "main~5", "main~", "v1~1~1", ""])
def test_a_version_that_is_not_there_is_refused(table: Table, version: Any) -> None:
    with pytest.raises(VersionNotFound, match="latest 4"):
        reopened(table, version=version)


def test_a_table_opened_at_a_version_appends_once_it_is_refreshed(table: Table) -> None:
    """To the end of the version's branch, not to main."""
    table.branches.create("dev", version=2)
    append(reopened(table, branch="dev"), 100)
    for version, value in (("dev~1", 101), (1, 5)):
        opened = reopened(table, version=version)
        with pytest.raises(InvalidArgumentError, match="can only be read"):
            append(opened, value)
        opened.refresh()
        append(opened, value)
    assert rows(reopened(table, branch="dev")) == [1, 2, 100, 101]
    assert rows(reopened(table)) == [1, 2, 3, 4, 5]


def test_tags_and_branches_list_themselves(table: Table) -> None:
    """As iterables, by `len` and `in`, at a prompt and in a notebook."""
    assert (list(table.tags), repr(table.tags)) == ([], "Tags: 0")
    kept = table.tags.create("v1", version=2, message="first\x1b[2J\n<b>release</b>", keep="5d")
    table.branches.create("dev", version=3)
    assert list(table.tags) == table.tags.list() == [kept]
    assert [each.name for each in table.branches] == ["main", "dev"]
    assert (len(table.tags), len(table.branches)) == (1, 2)
    assert "v1" in table.tags
    assert kept in table.tags
    assert "v2" not in table.tags
    assert None not in table.tags
    assert Table.create(f"{table.location}2", table.schema).tags, "it has methods, if no tag"
    shown = repr(table.tags)
    wanted = r"v1, snapshot 2, message first\x1b[2J <b>release</b>, expires 2"
    assert shown.startswith(f"Tags: 1\n  {wanted}")
    assert repr(table.branches) == (
        "Branches: 2\n  main, snapshot 4\n  dev, snapshot 3, from main after 3"
    )
    assert "&lt;b&gt;release&lt;/b&gt;" in table.tags._repr_html_()
    assert "<th>from</th>" in table.branches._repr_html_()
    for number in range(40):
        table.tags.create(f"t{number:02}")
    assert repr(table.tags).endswith("\n  ... 31 more")
    assert len(repr(table.tags).splitlines()) == 12
    assert "... 21 more" in table.tags._repr_html_()


def test_a_list_of_names_that_cannot_be_read_says_so_at_a_prompt(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debugger that shows variables gets no traceback."""

    def failing(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr("fermion_table.metadata.references.list_tags", failing)
    assert repr(table.tags) == "<Tags, not readable: [Errno 13] not allowed>"
    with pytest.raises(PermissionError):
        list(table.tags)
