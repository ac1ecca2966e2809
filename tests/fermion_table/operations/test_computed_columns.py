"""Columns that a function computes: what it is given, failures, other commits, crashes, upkeep."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion import col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import ColumnFunctionError, Table
from fermion_table.errors import CommitConflict
from fermion_table.operations import computed_columns
from fermion_table.operations.column_expressions import ColumnExpressions
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash, CrashingStore, ForgetfulStore, LostReplies

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
NEW = pa.schema([("w", pa.int64())])
AT_ONCE = timedelta(days=-1)


def double(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"w": pc.multiply(rows["v"], 2)}


def add(table: Table, function: Callable[[pa.RecordBatch], Any] = double, **options: Any) -> Any:
    return table.add_columns_with(function, read=["v"], schema=NEW, **options)


def made(path: Path, files: int = 2, rows: int = 10) -> Table:
    """Files of ten rows each, 0 to 19; the first has lost row 3."""
    table = Table.create(path, SCHEMA, partition_by=["k"], durability="fast")
    values = list(range(files * rows))
    table.append({"k": [f"{value // rows:03}" for value in values], "v": values})
    table.delete("v = 3")
    return table


def pairs(table: Table, **options: Any) -> dict[int, Any]:
    rows = table.scan(columns=["v", "w"], **options).to_arrow().to_pylist()
    return {row["v"]: row["w"] for row in rows}


def doubled(*values: int, without: Any = ()) -> dict[int, Any]:
    return {each: None if each in without else 2 * each for each in values if each != 3}


def column_files(table: Table) -> set[str]:
    return {each.path for each in table.store.list("data") if "/columns-" in each.path}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "t"
    made(path)
    return path


@pytest.fixture
def table(template: Path, tmp_path: Path) -> Table:
    shutil.copytree(template, tmp_path / "t")
    return Table.open(tmp_path / "t", durability="fast")


def test_the_function_sees_the_rows_that_are_not_deleted(table: Table) -> None:
    seen: list[list[int]] = []
    done: list[tuple[int, int]] = []

    def function(rows: pa.RecordBatch) -> pa.Array:
        assert rows.schema.names == ["v"]
        seen.append(rows["v"].to_pylist())
        return pc.multiply(rows["v"], 2)

    snapshot = add(
        table, function, batch_rows=4, threads=1, message="doubled",
        progress=lambda *each: done.append(each),
    )  # fmt: skip
    assert sorted(chain.from_iterable(seen)) == [each for each in range(20) if each != 3]
    assert max(map(len, seen)) <= 4
    assert done == [(1, 2), (2, 2)]
    assert pairs(table) == doubled(*range(20))
    assert (snapshot.kind, snapshot.message, snapshot.totals.rows) == ("upsert", "doubled", 20)
    assert pairs(Table.open(table.location, version=snapshot.id)) == doubled(*range(20))
    assert "w" not in table.scan(snapshot_id=snapshot.id - 1).schema.names
    assert [str(each) for each in table.diff(snapshot.id - 1).schema_changes]
    changes = table.scan_changes(snapshot.id - 1, columns=["v", "w"]).to_arrow()
    assert changes["_change_type"].to_pylist().count("insert") == 19
    assert table.scan_changes(snapshot.id - 1, columns=["v"]).count() == 0  # v did not change


def test_expressions_in_place_of_a_function(table: Table) -> None:
    """Cast to the columns' types, also from a pickle; what does not fit names file and rows."""
    columns = pa.schema([("w", pa.int64()), ("same", pa.float64())])
    given = {"same": col("v"), "w": pc.field("v") * 2}
    function = ColumnExpressions(given, columns, "here")
    batch = pa.record_batch({"v": [1, None]})
    found = pickle.loads(pickle.dumps(function))(batch)
    assert found.to_pylist() == [{"w": 2, "same": 1.0}, {"w": None, "same": None}]
    with pytest.raises(
        TypeError, match=r"column 'w': expected SQL, lit, fermion\.col or a pyarrow"
    ):
        table.add_columns_with({"w": 2}, read=["v"], schema=NEW)
    with pytest.raises(InvalidArgumentError, match=r"expected expressions for \['w'\], found \[\]"):
        table.add_columns_with({}, read=["v"], schema=NEW)
    with pytest.raises(ColumnFunctionError, match="no_such"):
        table.add_columns_with({"w": pc.field("no_such")}, read=["v"], schema=NEW)
    small = pa.schema([("w", pa.int8())])
    with pytest.raises(ColumnFunctionError, match="rows 0 to 9 of"):
        table.add_columns_with({"w": pc.field("v") * 200}, read=["v"], schema=small, threads=1)
    table.add_columns_with(given, read=["v"], schema=columns)
    assert pairs(table) == doubled(*range(20))
    assert table.schema.names == ["k", "v", "w", "same"]


def test_an_empty_table_gets_the_columns_alone(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    assert add(table).kind == "schema"
    assert table.schema.names == ["k", "v", "w"]
    assert table.snapshot.reader_features == ()


WRONG: dict[str, tuple[Callable[[pa.RecordBatch], Any], str]] = {
    "too few rows": (lambda rows: {"w": [1]}, "expected 10 rows, found 1"),
    "another type": (lambda rows: {"w": pc.cast(rows["v"], pa.float64())}, "expected type int64"),
    "another name": (lambda rows: {"x": rows["v"]}, "expected columns ['w'], found ['x']"),
    "one more column": (lambda rows: {"w": rows["v"], "x": rows["v"]}, "found ['w', 'x']"),
    "nothing": (lambda rows: None, "the function returned None"),
    "no data": (lambda rows: 7, "InvalidArgumentError"),
    "an exception": (lambda rows: 1 / 0, "ZeroDivisionError: division by zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_gives_something_else_publishes_nothing(table: Table, name: str) -> None:
    wrong, message = WRONG[name]
    before = table.snapshot

    def function(rows: pa.RecordBatch) -> Any:
        return wrong(rows) if 15 in rows["v"].to_pylist() else double(rows)

    with pytest.raises(ColumnFunctionError) as caught:
        add(table, function)
    second = next(each.file for each in table.scan().entries[0] if "001" in each.file)
    assert message in str(caught.value)
    assert caught.value.file == second in str(caught.value)
    assert caught.value.rows == (0, 10)
    assert Table.open(table.location).snapshot == before
    assert len(column_files(table)) == len(caught.value.finished) <= 1


def test_the_57th_of_100_files_fails_and_the_rest_is_computed_later(tmp_path: Path) -> None:
    """Also from a pickle, by another process; what has been removed meanwhile is computed again."""
    table = made(tmp_path / "t", files=100, rows=4)
    calls: list[int] = []
    lock = threading.Lock()

    def function(rows: pa.RecordBatch) -> Any:
        with lock:
            calls.append(rows["v"][0].as_py() // 4)
        if fails and calls[-1] == 56:
            raise RuntimeError("no values")
        return double(rows)

    fails = True
    with pytest.raises(ColumnFunctionError, match=r"rows 0 to 1 of data/k=056/") as caught:
        add(table, function, threads=1, batch_rows=2)
    finished = caught.value.finished
    assert len(finished) == 56
    assert isinstance(caught.value.__cause__, RuntimeError)
    fails, calls = False, []
    lost = finished.files[7]
    table.store.delete(lost.made.path)
    with pytest.raises(InvalidArgumentError, match="resume: expected the read"):
        table.add_columns_with(
            function, read=["k", "v"], schema=NEW, resume=pickle.loads(pickle.dumps(finished))
        )
    table.delete("v = 21")  # of file 5, which is finished
    add(table, function, resume=pickle.loads(pickle.dumps(finished)))
    assert set(calls) == {7, *range(56, 100)}
    assert pairs(table) == {key: value for key, value in doubled(*range(400)).items() if key != 21}
    assert table.verify(data=True).ok
    with pytest.raises(InvalidArgumentError, match="'w' is there already"):
        add(table, function, resume=finished)
    assert pairs(table)[4] == 8  # the files of the commit stay


def test_what_a_failed_try_has_made_can_be_discarded_and_grows_old(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(rows: pa.RecordBatch) -> Any:
        return double(rows) if rows["v"][0].as_py() < 10 else 1 / 0

    for _ in range(2):
        with pytest.raises(ColumnFunctionError) as caught:
            add(table, function, threads=1)
    assert len(column_files(table)) == 2
    caught.value.finished.discard(table.store)
    assert len(column_files(table)) == 1
    removed = table.remove_orphan_files(older_than=AT_ONCE)
    assert len(removed.paths) == 1
    assert not column_files(table)
    with pytest.raises(ColumnFunctionError) as caught:
        add(table, function, threads=1)
    monkeypatch.setattr(computed_columns, "RESUME_MS_MAX", -1)
    calls: list[int] = []
    add(table, lambda rows: calls.append(1) or double(rows), resume=caught.value.finished)
    assert len(calls) == 2


CONCURRENT: dict[str, tuple[Callable[[Table], Any], dict[int, Any], int]] = {
    # what another writer does after the first call, the rows afterwards, and the calls
    "append": (
        lambda t: t.append({"k": ["z"], "v": [99]}), doubled(*range(20), 99, without={99}), 2,
    ),
    "delete": (lambda t: t.delete("v IN (5, 15)"), doubled(*{*range(20)} - {5, 15}), 2),
    "delete a file": (lambda t: t.delete("v >= 10"), doubled(*range(10)), 2),
    "compact": (
        lambda t: (t.append({"k": ["000"], "v": [30]}), t.compact()), doubled(*range(20), 30), 3,
    ),
    "update": (lambda t: t.update("v = 5", {"v": 105}), doubled(*{*range(20), 105} - {5}), 3),
    "overwrite": (lambda t: t.overwrite({"k": ["z"], "v": [7]}), doubled(7), 3),
    "fill": (lambda t: t.fill_columns({"v": [5], "k2": ["x"]}, on="v"), doubled(*range(20)), 2),
    "fill what is read": (
        lambda t: t.fill_columns({"_row_id": [5], "v": [105]}),
        doubled(*{*range(20), 105} - {5}), 3,
    ),
    "restore deleted rows": (lambda t: t.restore(1), {**doubled(*range(20)), 3: 6}, 3),
    "rename": (lambda t: t.rename_column("k", "key"), doubled(*range(20)), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CONCURRENT)
def test_commits_of_others_meanwhile(table: Table, name: str) -> None:
    other, after, calls_expected = CONCURRENT[name]
    calls: list[int] = []

    def function(rows: pa.RecordBatch) -> Any:
        calls.append(1)
        if len(calls) == 1:
            other(Table.open(table.location, durability="fast"))
        return double(rows)

    add(table, function, threads=1)
    assert pairs(table) == after
    assert len(calls) == calls_expected
    assert table.verify(data=True).ok
    live = {file.path for each in table.scan().entries[0] for file in each.column_files}
    others = {"k2"} & {*table.schema.names}
    assert len(column_files(table) - live) == 0 or others


@pytest.mark.parametrize("read", [["v"], [("s", "a")], ["_row_id", "v"]], ids=str)
def test_a_column_that_is_renamed_while_a_function_reads_it_keeps_its_name_for_it(
    table_path: Path, read: list[Any]
) -> None:
    """What is finished is not computed again; a column inside a struct may be renamed, too."""
    struct = pa.struct({"a": pa.int64(), "b": pa.int64()})
    columns = {"v": pa.int64(), "s": struct}
    table = Table.create(table_path, pa.schema(columns), durability="fast")
    for start in (0, 10):
        rows = [{"v": v, "s": {"a": v, "b": 0}} for v in range(start, start + 10)]
        table.append(pa.Table.from_pylist(rows, pa.schema(columns)))
    calls: list[list[str]] = []

    def function(rows: pa.RecordBatch) -> Any:
        calls.append(rows.schema.names)
        if len(calls) == 2:
            with Table.open(table.location, durability="fast").update_schema() as update:
                update.rename_column("v", "value")
                update.rename_column(("s", "a"), "first")
                update.rename_column("s", "struct")
        values = rows.column("s").field("a") if "s" in rows.schema.names else rows.column("v")
        return {"w": pc.multiply(values, 2)}

    table.add_columns_with(function, read=read, schema=NEW, threads=1)
    names = [each if isinstance(each, str) else each[0] for each in read]
    assert calls == [names] * 2
    found = table.scan(columns=["value", "w"]).to_arrow().to_pylist()
    assert sorted((row["value"], row["w"]) for row in found) == [(v, 2 * v) for v in range(20)]


def test_a_column_that_is_dropped_while_a_function_reads_it_is_a_conflict(table: Table) -> None:
    def function(rows: pa.RecordBatch) -> Any:
        other = Table.open(table.location, durability="fast")
        if "v" in other.schema.names:
            other.drop_columns("v")
        return double(rows)

    with pytest.raises(CommitConflict, match="'v', which the function reads, was dropped"):
        add(table, function, threads=1)
    assert not column_files(table)


def test_a_column_that_another_commit_has_added_is_a_conflict(table: Table) -> None:
    def function(rows: pa.RecordBatch) -> Any:
        if "w" not in Table.open(table.location).schema.names:
            Table.open(table.location, durability="fast").add_columns(NEW)
        return double(rows)

    with pytest.raises(CommitConflict, match="'w' is there already, added by another commit"):
        add(table, function, threads=1)
    assert not column_files(table)
    table.refresh()
    with pytest.raises(InvalidArgumentError, match="with fill_columns or update"):
        add(table)


def test_others_redo_what_rests_on_files_that_got_columns(table: Table) -> None:
    """The other side: a delete, a compaction and an append that began before."""
    table.append({"k": ["001"], "v": [30]})
    tasks = table.plan_compaction()
    base = table.snapshot
    rewritten = [task.rewrite() for task in tasks]
    assert rewritten
    with table.transaction() as late, Table.open(table.location).writer() as writer:
        late.delete("v = 12")
        writer.write({"k": ["z"], "v": [50]})
        messages = writer.prepare_commit()
        add(Table.open(table.location, durability="fast"))
    assert pairs(table) == doubled(*{*range(20), 30} - {12})
    result = table.commit_compaction(rewritten, base)
    assert result.groups_dropped == len(tasks)
    table.commit(messages)
    assert pairs(table) == {**doubled(*{*range(20), 30} - {12}), 50: None}
    assert table.verify().ok


def test_a_crash_leaves_the_table_without_the_columns_or_with_them(
    template: Path, tmp_path: Path
) -> None:
    outcomes = []
    for calls in range(1, 100):
        path = tmp_path / f"crash-{calls}"
        shutil.copytree(template, path)
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, Table.open(path).snapshot)
        store.calls_left = calls
        try:
            add(table, threads=1)
        except Crash:
            found = Table.open(path, durability="fast")
            there = "w" in found.schema.names
            outcomes.append(there)
            if there:
                assert pairs(found) == doubled(*range(20)), calls
            else:
                add(found)
            assert pairs(found) == doubled(*range(20)), calls
            assert found.verify().ok
            continue
        break
    assert pairs(Table.open(path)) == doubled(*range(20))
    assert outcomes == sorted(outcomes)
    assert {False, True} <= set(outcomes)
    for lost in (LostReplies(after_success={1}), LostReplies(before_trying={1})):
        path = tmp_path / f"lost-{bool(lost.after_success)}"
        shutil.copytree(template, path)
        add(
            Table(
                ForgetfulStore(LocalStore(str(path), durability="fast"), lost),
                Table.open(path).snapshot,
            )
        )
        assert pairs(Table.open(path)) == doubled(*range(20))


def test_an_interrupt_leaves_no_file(table: Table) -> None:
    def function(rows: pa.RecordBatch) -> Any:
        if rows["v"][0].as_py() >= 10:
            raise KeyboardInterrupt
        return double(rows)

    with pytest.raises(KeyboardInterrupt):
        add(table, function, threads=1)
    assert not column_files(table)


def test_upkeep_knows_column_files(table: Table, tmp_path: Path) -> None:
    """Tags, branches, clones, expiry, orphans, compaction, repair."""
    add(table)
    with_w = table.snapshot.id
    table.tags.create("with_w")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev", durability="fast")
    dev.fill_columns({"v": [1], "w": [-1]}, on="v")
    clone = table.clone(tmp_path / "clone")
    clone.fill_columns({"v": [2], "w": [-2]}, on="v")
    again = clone.clone(tmp_path / "again")
    table.fill_columns({"v": [12], "w": [-12]}, on="v")
    assert (pairs(table)[12], pairs(table)[1]) == (-12, 2)
    table.branches.merge("dev")
    table.refresh()
    assert (pairs(table)[12], pairs(table)[1]) == (-12, -1)
    assert table.verify(data=True).ok
    table.compact(column_files_max=0)
    assert not any(each.column_files for each in table.scan().entries[0])
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert pairs(Table.open(table.location, version="with_w")) == doubled(*range(20))
    for each, changed in ((clone, {2: -2}), (again, {2: -2}), (dev, {1: -1})):
        assert pairs(Table.open(each.location, branch=each.branch)) == doubled(*range(20)) | changed
        assert Table.open(each.location).verify(data=True).ok
    assert table.repair().ok
    assert pairs(table) == doubled(*range(20)) | {1: -1, 12: -12}
    for name in ("with_w", *(tag.name for tag in table.tags.list() if tag.name != "with_w")):
        table.tags.delete(name)
    table.branches.delete("dev")
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert not column_files(table)
    assert with_w < table.snapshot.id


def test_compaction_folds_too_many_column_files(table: Table) -> None:
    table.set_properties({"target_file_size": "10", "column_files_max": "2"})
    for number in range(3):
        name = f"c{number}"
        table.add_columns_with(
            lambda rows, name=name: {name: rows["v"]}, read=["v"],
            schema=pa.schema([(name, pa.int64())]),
        )  # fmt: skip
        assert bool(table.plan_compaction()) == (number == 2)
    rows = table.scan().to_arrow().sort_by("v")
    assert table.compact().groups == 2
    assert table.scan().to_arrow().sort_by("v") == rows
    assert not any(each.column_files for each in table.scan().entries[0])
    with pytest.raises(InvalidArgumentError, match="column_files_max"):
        table.set_properties({"column_files_max": "-1"})


def test_a_restored_state_has_the_column_files_of_then(table: Table) -> None:
    before = table.snapshot.id
    add(table)
    first = table.snapshot.id
    table.fill_columns({"v": [1], "w": [-1]}, on="v")
    table.restore(first)
    assert pairs(table) == doubled(*range(20))
    table.restore(before)
    assert table.schema.names == ["k", "v"]
    table.restore(first)
    assert pairs(table) == doubled(*range(20))
    assert table.verify(data=True).ok


def test_arguments_that_can_not_be_are_refused(table: Table, tmp_path: Path) -> None:
    keyed = Table.create(tmp_path / "k", SCHEMA, primary_key="k")
    with pytest.raises(InvalidArgumentError, match="partial_update"):
        add(keyed)
    with pytest.raises(InvalidArgumentError, match="partial_update"):
        keyed.fill_columns({"k": ["a"], "v": [1]}, on="k")
    schema = pa.schema([pa.field("w", pa.int64(), nullable=False)])
    with pytest.raises(InvalidArgumentError, match="'w' is NOT NULL"):
        table.add_columns_with(double, read=["v"], schema=schema)
    with pytest.raises(ColumnNotFoundError):
        table.add_columns_with(double, read=["gone"], schema=NEW)
    with pytest.raises(InvalidArgumentError, match="'w' is there twice"):
        table.add_columns_with(double, read=["v"], schema=pa.schema([*NEW, *NEW]))
    with pytest.raises(InvalidArgumentError, match="at least one column"):
        table.add_columns_with(double, read=["v"], schema=pa.schema([]))
    old = Table.open(table.location, version=1)
    with pytest.raises(InvalidArgumentError, match="opened at version 1"):
        add(old)
