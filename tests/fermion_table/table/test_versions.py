"""Undoing one commit: it takes back what that commit did, and never a row of somebody else."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table, VersionNotFound
from fermion_table.commit.commit import Commit
from tests.kit.tables.crash_operations import AT_ONCE


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 3 append the rows 1 to 3."""
    made = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    for value in range(1, 4):
        made.append({"a": [value]})
    return made


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    """Snapshot 1 makes the keys 1 to 3, with the values 10 to 30."""
    properties = {"bucket": "1", "num_sorted_run.compaction_trigger": "100"}
    made = Table.create(tmp_path / "keyed", SCHEMA, primary_key="k", properties=properties)
    made.upsert({"k": [1, 2, 3], "v": [10, 20, 30]})
    return made


def rows(table: Table) -> list[Any]:
    columns = table.scan().to_arrow().to_pydict()
    return sorted(zip(*columns.values(), strict=True))


def values(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["a"].to_pylist())


def test_undo_takes_back_the_newest_commit_of_this_object(table: Table) -> None:
    snapshot = table.undo()
    assert (snapshot.id, snapshot.kind) == (4, "restore")
    assert snapshot.message == "undo snapshot 3 (append)"
    assert values(table) == values(Table.open(table.location)) == [1, 2]
    assert table.tags.list() == []
    assert table.verify(data=True).ok


def test_an_undo_of_an_undo_brings_back_what_it_took(table: Table) -> None:
    table.undo()
    table.undo(message="again")
    assert values(table) == [1, 2, 3]
    assert table.snapshot.message == "again"
    table.undo()
    assert values(table) == [1, 2]


def test_restore_of_a_relative_name_on_a_handle_that_is_behind_takes_nothing(table: Table) -> None:
    other = Table.open(table.location)
    other.append({"a": [4]}, message="of another")
    with pytest.raises(CommitConflict, match=r"sees snapshot 3, .*snapshot 4 \(append.*of another"):
        table.restore("main~1")
    assert values(Table.open(table.location)) == [1, 2, 3, 4]
    assert table.tags.list() == []
    table.refresh()
    table.restore("main~1")
    assert values(table) == [1, 2, 3]


@pytest.mark.parametrize("version", ["main~2", "main", "side~0", "side"])
def test_every_name_that_follows_commits_is_refused_on_a_handle_that_is_behind(
    table: Table, version: str
) -> None:
    table.branches.create("side")
    Table.open(table.location).append({"a": [4]})
    with pytest.raises(CommitConflict, match="relative to the latest"):
        table.restore(version)
    assert values(Table.open(table.location)) == [1, 2, 3, 4]


def test_a_snapshot_a_tag_and_what_is_before_a_tag_are_restored_whatever_came(table: Table) -> None:
    table.tags.create("good")
    for version, expected in ((1, [1]), ("2", [1, 2]), ("good", [1, 2, 3]), ("good~1", [1, 2])):
        Table.open(table.location).append({"a": [9]})
        table.restore(version)
        assert values(table) == expected


def test_undo_refuses_where_another_object_has_committed_since(table: Table) -> None:
    other = Table.open(table.location)
    other.append({"a": [4]}, message="of another")
    with pytest.raises(CommitConflict, match=r"snapshot 4 \(append.*of another.*undo\(commit=3\)"):
        table.undo()
    table.refresh()
    with pytest.raises(CommitConflict, match="snapshot 4"):
        table.undo()
    assert values(Table.open(table.location)) == [1, 2, 3, 4]
    assert table.tags.list() == []
    table.undo(commit=3)
    assert values(table) == [1, 2, 4]


def test_an_object_that_has_committed_nothing_says_which_commit_it_sees(table: Table) -> None:
    other = Table.open(table.location)
    with pytest.raises(InvalidArgumentError, match=r"undo\(commit=3\)"):
        other.undo()
    other.compact()
    with pytest.raises(InvalidArgumentError, match="no commit was made through this object"):
        other.undo()
    assert values(other) == [1, 2, 3]


def test_compactions_do_not_count_as_commits_since(table: Table) -> None:
    table.delete("a = 1")
    Table.open(table.location).compact()
    table.compact()
    table.undo()
    assert values(table) == [1, 2, 3]
    assert table.verify(data=True).ok


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda t: t.append({"a": [9]}), [1, 2, 3, 9]),
        (lambda t: t.delete("a = 2"), [1, 3]),
        (lambda t: t.update("a = 2", {"a": 20}), [1, 3, 20]),
        (lambda t: t.overwrite({"a": [7]}), [7]),
        (lambda t: t.merge({"a": [3, 8]}, on=["a"]).when_not_matched_insert().execute(), None),
        (lambda t: t.restore(1), [1]),
        (lambda t: t.append({"a": [9], "b": ["x"]}, schema_mode="merge"), [1, 2, 3, 9]),
        (lambda t: t.add_columns({"b": pa.int64()}, defaults={"b": 7}), [1, 2, 3]),
        (lambda t: t.rename_column("a", "c"), None),
        (lambda t: t.set_properties({"target_file_size": "64MB"}), [1, 2, 3]),
        (lambda t: t.fill_columns({"a": [1], "b": [5]}, on="a"), [1, 2, 3]),
        (lambda t: Table.create(t.location, pa.schema({"z": pa.int8()}), mode="overwrite"), None),
    ],
    ids=[
        "append",
        "delete",
        "update",
        "overwrite",
        "merge",
        "restore",
        "evolve",
        "add",
        "rename",
        "set",
        "fill",
        "replace",
    ],
)
def test_every_kind_of_commit_is_undone_and_redone(
    table: Table, change: Callable[[Table], Any], after: list[int] | None
) -> None:
    before, schema = rows(table), table.schema.fields
    replaced = change(table)
    if isinstance(replaced, Table):
        table = replaced
    changed, changed_schema = rows(table), table.schema
    assert after is None or values(table) == after
    table.undo()
    assert rows(table) == before
    assert (table.schema.fields, table.properties) == (schema, {})
    table.undo()
    assert rows(table) == changed
    assert table.schema.fields == changed_schema.fields
    assert table.properties == dict(changed_schema.properties)
    assert table.verify(data=True).ok


def test_a_transaction_is_undone_as_one(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append({"a": [9]})
        transaction.delete("a = 1")
    table.undo()
    assert values(table) == [1, 2, 3]


def test_the_rows_that_a_table_was_made_with_are_undone_and_no_more(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "rows", {"a": [1]})
    made.undo()
    assert made.scan().count() == 0
    with pytest.raises(InvalidArgumentError, match="snapshot 0 made the table"):
        made.undo(commit=0)
    empty = Table.create(tmp_path / "empty", pa.schema({"a": pa.int64()}))
    with pytest.raises(InvalidArgumentError, match="no commit was made"):
        empty.undo()


def test_a_commit_that_changed_nothing_leaves_nothing_to_undo(table: Table) -> None:
    table.append({"a": pa.array([], pa.int64())}, message="empty")
    assert table.undo().id == 4


def test_an_earlier_commit_is_undone_alone(table: Table) -> None:
    other = Table.open(table.location)
    assert other.undo(commit=2).message == "undo snapshot 2 (append)"
    assert values(other) == [1, 3]
    other.delete("a = 3")
    other.append({"a": [4]})
    other.undo(commit=5)
    assert values(other) == [1, 3, 4]
    assert other.verify(data=True).ok


def test_an_overwrite_is_undone_under_a_later_append(table: Table) -> None:
    table.overwrite({"a": [7]})
    table.append({"a": [8]})
    table.undo(commit=4)
    assert values(table) == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (lambda t: t.delete("a = 40"), "changed the same files"),
        (lambda t: t.update("a = 40", {"a": 41}), "changed the same files"),
        (lambda t: (t.append({"a": [5]}), t.compact()), "changed the same files"),
        (lambda t: t.undo(commit=4), "changed the same files"),
        (lambda t: t.overwrite({"a": [5]}), "changed the same files"),
        (lambda t: t.fill_columns({"a": [40], "b": [1]}, on="a"), "changed the same files"),
    ],
    ids=["delete", "update", "compact", "undo", "overwrite", "fill"],
)
def test_a_commit_that_later_ones_rest_on_is_not_undone(
    table: Table, later: Callable[[Table], Any], reason: str
) -> None:
    table.append({"a": [40, 50]})
    later(table)
    table.append({"a": [60]})
    before, newest = rows(table), table.snapshot.id
    with pytest.raises(CommitConflict, match=reason) as caught:
        table.undo(commit=4)
    assert caught.value.files
    assert caught.value.mine == "undo"
    assert rows(Table.open(table.location)) == before
    assert table.refresh().id == newest


def test_rows_do_not_come_back_under_another_schema(table: Table) -> None:
    table.delete("a = 2")
    table.alter_column("a", comment="now another schema")
    with pytest.raises(CommitConflict, match="older schema than snapshot 5"):
        table.undo(commit=4)
    table.undo(commit=3)  # it only takes rows away
    assert values(table) == [1]


def test_a_change_of_schema_or_properties_is_undone_only_as_the_newest(table: Table) -> None:
    table.set_properties({"target_file_size": "64MB"})
    table.append({"a": [4]})
    with pytest.raises(CommitConflict, match="changed the schema or properties"):
        table.undo(commit=4)
    assert values(table) == [1, 2, 3, 4]


def test_commits_of_branches_are_undone_there(table: Table) -> None:
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    dev.append({"a": [9]})
    dev.undo(commit=2)  # from before the branch left
    assert values(dev) == [1, 3, 9]
    dev.undo(commit=4)
    assert values(dev) == [1, 3]
    assert values(Table.open(table.location)) == [1, 2, 3]
    table.branches.fast_forward("dev")
    assert values(table) == [1, 3]
    table.undo()
    assert values(table) == [1, 2, 3]


def test_what_is_opened_at_a_version_undoes_nothing(table: Table) -> None:
    table.tags.create("good")
    with pytest.raises(InvalidArgumentError, match="can only be read"):
        Table.open(table.location, version="good").undo(commit=3)


def test_a_commit_that_has_expired_or_never_was_is_not_undone(table: Table) -> None:
    with pytest.raises(VersionNotFound, match="no snapshot 99"):
        table.undo(commit=99)
    table.append({"a": [4]})
    table.expire_snapshots(older_than=AT_ONCE, retain_last=2)
    with pytest.raises(VersionNotFound, match="snapshot 2"):
        table.undo(commit=3)
    with pytest.raises(VersionNotFound):
        table.undo(commit=1)
    assert values(table) == [1, 2, 3, 4]
    table.undo()
    assert values(table) == [1, 2, 3]


@pytest.mark.parametrize("commit", ["3", 2.5, True, [3], -1, 10**30])
def test_what_is_no_id_is_refused(table: Table, commit: Any) -> None:
    with pytest.raises((TypeError, InvalidArgumentError, VersionNotFound)):
        table.undo(commit=commit)
    assert values(Table.open(table.location)) == [1, 2, 3]


def overtake(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another writer append 4 once, right before the next commit is published."""
    original = Commit._publish
    others: list[Table] = []

    def late(*arguments: Any, **settings: Any) -> Any:
        if not others:
            others.append(Table.open(table.location))
            others[0].append({"a": [4]})
        return original(*arguments, **settings)

    monkeypatch.setattr(Commit, "_publish", late)


@pytest.mark.parametrize("commit", [None, 3])
def test_a_writer_that_comes_first_loses_no_row(
    table: Table, monkeypatch: pytest.MonkeyPatch, commit: int | None
) -> None:
    """It commits after the undo was planned, and before it is published."""
    overtake(table, monkeypatch)
    if commit is None:
        with pytest.raises(CommitConflict, match=r"snapshot 4 \(append"):
            table.undo()
        assert values(Table.open(table.location)) == [1, 2, 3, 4]
    else:
        table.undo(commit=commit)
        assert values(Table.open(table.location)) == [1, 2, 4]
    assert table.tags.list() == []


def test_a_restore_of_a_relative_name_that_a_writer_overtakes_takes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtake(table, monkeypatch)
    with pytest.raises(CommitConflict, match=r"snapshot 4 \(append"):
        table.restore("main~1")
    assert values(Table.open(table.location)) == [1, 2, 3, 4]


def test_pickled_and_forked_objects_undo_once(table: Table) -> None:
    copied = pickle.loads(pickle.dumps(table))
    context = multiprocessing.get_context("fork")
    process = context.Process(target=table.undo)
    process.start()
    process.join()
    assert process.exitcode == 0
    for stale in (copied, table):
        with pytest.raises(CommitConflict, match=r"snapshot 4 \(restore"):
            stale.undo()
    assert values(Table.open(table.location)) == [1, 2]


def test_upserts_are_undone_with_compactions_between(keyed: Table) -> None:
    keyed.upsert({"k": [2, 4], "v": [21, 41]})
    keyed.compact(full=True)
    keyed.undo()
    assert rows(keyed) == [(1, 10), (2, 20), (3, 30)]
    keyed.undo()
    assert rows(keyed) == [(1, 10), (2, 21), (3, 30), (4, 41)]
    keyed.delete_keys([1, 4])
    keyed.undo()
    assert rows(keyed) == [(1, 10), (2, 21), (3, 30), (4, 41)]
    assert keyed.verify(data=True).ok


def test_an_earlier_upsert_is_undone_under_later_runs(keyed: Table) -> None:
    keyed.upsert({"k": [2, 3], "v": [21, 31]})
    keyed.upsert({"k": [3, 4], "v": [32, 42]})
    keyed.undo(commit=2)
    assert rows(keyed) == [(1, 10), (2, 20), (3, 32), (4, 42)]
    keyed.delete("k = 1")
    keyed.upsert({"k": [5], "v": [53]})
    keyed.undo(commit=keyed.snapshot.id - 1)
    assert rows(keyed) == [(1, 10), (2, 20), (3, 32), (4, 42), (5, 53)]
    assert keyed.verify(data=True).ok


def test_an_upsert_that_was_compacted_with_later_ones_is_not_undone(keyed: Table) -> None:
    keyed.upsert({"k": [2], "v": [21]})
    keyed.upsert({"k": [4], "v": [42]})
    keyed.compact(full=True)
    before = rows(keyed)
    with pytest.raises(CommitConflict, match="changed the same files"):
        keyed.undo(commit=2)
    assert rows(Table.open(keyed.location)) == before


def test_runs_do_not_come_back_beside_later_ones_of_their_level(keyed: Table) -> None:
    """An overwrite removes a compacted run, and another one is compacted since."""
    keyed.compact(full=True)
    keyed.overwrite({"k": [9], "v": [90]})
    keyed.upsert({"k": [2], "v": [22]})
    keyed.compact(full=True)
    keyed.upsert({"k": [5], "v": [55]})
    before = rows(keyed)
    with pytest.raises(CommitConflict, match="changed the same files"):
        keyed.undo(commit=3)
    assert rows(Table.open(keyed.location)) == before
    assert keyed.verify(data=True).ok


SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "drop", "undo", "undo", "compact"]), st.integers(0, 7)
    ),
    min_size=3,
    max_size=9,
)


Row = tuple[int, int]


@given(actions=ACTIONS)
def test_what_is_left_is_what_the_other_commits_did(actions: list[tuple[str, int]]) -> None:
    """The model adds and takes away the rows that each commit did, one after the other."""

    def apply(before: list[Row], added: list[Row], gone: set[Row]) -> list[Row]:
        return [row for row in before if row not in gone] + added

    with tempfile.TemporaryDirectory() as directory:
        table = Table.create(Path(directory) / "t", SCHEMA, durability="fast")
        _do(table, actions, apply)


@given(actions=ACTIONS)
def test_what_is_left_of_upserts_is_what_the_other_commits_make(
    actions: list[tuple[str, int]],
) -> None:
    """The model merges by key what each commit wrote, one after the other."""

    def apply(before: list[Row], added: list[Row], gone: set[Row]) -> list[Row]:
        keys = {key for key, _ in (*added, *gone)}
        return [row for row in before if row[0] not in keys] + added

    with tempfile.TemporaryDirectory() as directory:
        settings = {"bucket": "1"}
        table = Table.create(
            Path(directory) / "t", SCHEMA, primary_key="k", properties=settings, durability="fast"
        )
        _do(table, actions, apply)


def _do(
    table: Table,
    actions: list[tuple[str, int]],
    apply: Callable[[list[Row], list[Row], set[Row]], list[Row]],
) -> None:
    commits: dict[int, tuple[list[Row], set[Row]]] = {}
    for step, (action, number) in enumerate(actions):
        newest, before = table.refresh().id, rows(table)
        added: list[Row] = []
        if action == "put":
            added = [(number, step), (number + 10, step)]
            table.append({"k": [number, number + 10], "v": [step, step]})
        elif action == "drop":
            table.delete(f"k = {number}")
        elif action == "compact":
            table.compact()
        elif commits:
            undone = sorted(commits)[number % len(commits)]
            with contextlib.suppress(CommitConflict):
                table.undo(commit=undone)
                del commits[undone]
        if table.snapshot.id > newest and action in ("put", "drop"):
            gone = {row for row in before if action == "drop" and row[0] == number}
            commits[newest + 1] = added, gone
        left: list[Row] = []
        for commit in commits.values():
            left = apply(left, *commit)
        assert rows(table) == sorted(left)
    assert table.verify(data=True).ok
