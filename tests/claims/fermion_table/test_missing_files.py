"""No commit publishes a file that is gone: it is looked for, and orphan removal knows its owner."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, CommitStateUnknown, Table
from fermion_table.commit import commit as commit_module
from fermion_table.engine import CompactionTask, WriterMessage, compact_group, stage_table
from fermion_table.storage import owned_files
from fermion_table.storage.cache import shared_cache
from tests.kit.processes import in_fork
from tests.kit.stores import WrappedStore

AT_ONCE = timedelta(days=-1)
KEYED = {"bucket": "2", "changelog-producer": "input"}
KINDS = ["append", "keyed"]
Commit = Callable[[Table, list[WriterMessage]], Any]


def in_transaction(table: Table, messages: list[WriterMessage]) -> None:
    with table.transaction() as transaction:
        transaction.append_written(messages)


def as_overwrite(table: Table, messages: list[WriterMessage]) -> None:
    with table.transaction() as transaction:
        transaction.overwrite_written(messages)


COMMITS: dict[str, Commit] = {
    "commit": lambda table, messages: table.commit(messages),
    "transaction": in_transaction,
    "overwrite": as_overwrite,
}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of one row."""
    is_keyed = request.param == "keyed"
    made = Table.create(
        tmp_path / "t",
        pa.schema([pa.field("id", pa.int64(), nullable=not is_keyed), ("v", pa.int64())]),
        primary_key="id" if is_keyed else None,
        properties=KEYED if is_keyed else None,
        durability="fast",
    )
    made.append(rows(0))
    return made


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": list(ids)})


def written(table: Table, *ids: int) -> list[WriterMessage]:
    """Messages, as those of a writer of another process: nobody here knows of its files."""
    with table.writer() as writer:
        writer.write(rows(*ids))
        sent = pickle.dumps(writer.prepare_commit())
    del writer
    gc.collect()
    return pickle.loads(sent)


def paths(messages: list[WriterMessage]) -> list[str]:
    return [entry.path for message in messages for entry in message.entries]


def ids(table: Table) -> list[int]:
    """Read anew from storage."""
    shared_cache.clear()
    opened = Table.open(table.location)
    assert opened.verify(data=True).ok
    return sorted(opened.scan().to_arrow()["id"].to_pylist())


@contextmanager
def refused(table: Table, match: str) -> Iterator[None]:
    """Nothing is published."""
    before = Table.open(table.location).snapshot
    with pytest.raises(InvalidArgumentError, match=match):
        yield
    assert Table.open(table.location).snapshot == before


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("how", COMMITS)
def test_the_messages_of_an_aborted_writer_are_refused(
    table: Table, how: str, is_sent: bool
) -> None:
    """They were published, and the table could not be read any more."""
    writer = table.writer()
    writer.write(rows(1))
    messages = writer.prepare_commit()
    if is_sent:
        messages = pickle.loads(pickle.dumps(messages))
    writer.abort()
    with refused(table, "the writer was aborted, and has deleted its files"):
        COMMITS[how](table, messages)
    del writer
    gc.collect()
    with refused(table, "the writer was aborted|not stored any more"):
        COMMITS[how](table, messages)
    assert ids(table) == [0]


@pytest.mark.parametrize("how", COMMITS)
@pytest.mark.parametrize("cut", [False, True])
def test_messages_of_another_process_whose_files_are_gone_are_refused(
    table: Table, how: str, cut: bool
) -> None:
    messages = written(table, 1, 2, 3)
    lost = Path(table.location, paths(messages)[-1])
    if cut:
        lost.write_bytes(lost.read_bytes()[:-1])
    else:
        lost.unlink()
    with refused(table, f"{lost.name}: not stored any more"):
        COMMITS[how](table, messages)
    assert ids(table) == [0]


@pytest.mark.parametrize("how", COMMITS)
def test_files_that_orphan_removal_has_deleted_are_not_published(table: Table, how: str) -> None:
    messages = written(table, 1)
    assert set(table.remove_orphan_files(older_than=AT_ONCE).paths) == set(paths(messages))
    with refused(table, "not stored any more"):
        COMMITS[how](table, messages)
    assert ids(table) == [0]


@pytest.mark.parametrize("how", COMMITS)
def test_orphan_removal_keeps_the_files_of_a_writer_and_of_its_messages(
    table: Table, how: str
) -> None:
    writer = table.writer()
    writer.write(rows(1))
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    messages = writer.prepare_commit()
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    del writer
    gc.collect()
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    COMMITS[how](table, messages)
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    assert ids(table) == ([1] if how == "overwrite" else [0, 1])


def test_files_that_nobody_holds_any_more_are_orphans(table: Table) -> None:
    held = table.writer()
    held.write(rows(1))
    messages = held.prepare_commit()
    expected = set(paths(messages))
    del held, messages
    gc.collect()
    assert set(table.remove_orphan_files(older_than=AT_ONCE).paths) == expected


def test_orphan_removal_keeps_the_files_of_an_open_transaction(tmp_path: Path) -> None:
    """Data files, deletion vectors, column files, and files of writers that it has taken over."""
    columns = [f"c{number}" for number in range(9)]
    table = Table.create(
        tmp_path / "t", pa.schema([(name, pa.int64()) for name in columns]), durability="fast"
    )
    for start in (0, 10):
        table.append({name: list(range(start, start + 10)) for name in columns})
    sent = pickle.dumps(written_wide(table, columns))
    with table.transaction() as transaction:
        transaction.append({name: [30] for name in columns})
        transaction.delete("c0 = 3")
        transaction.update("c0 >= 10 AND c0 < 20", {"c1": 5})
        transaction.append_written(pickle.loads(sent))
        assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    table.refresh()
    assert table.verify(data=True).ok
    assert table.scan(filter="c1 = 5").count() == 11
    assert table.scan().count() == 21
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()


def written_wide(table: Table, columns: list[str]) -> list[WriterMessage]:
    with table.writer() as writer:
        writer.write(pa.table({name: [40] for name in columns}))
        return writer.prepare_commit()


@pytest.mark.parametrize("mode", ["create", "replace"])
def test_a_staged_table_is_not_published_without_its_files(tmp_path: Path, mode: Any) -> None:
    """A new table is taken back, and one that is to be replaced stays as it is."""
    path, schema = tmp_path / "t", pa.schema([("a", pa.int64())])
    if mode == "replace":
        Table.create(path, schema, durability="fast").append({"a": [1]})
    staged = stage_table(path, schema, mode=mode)
    with staged.writer() as writer:
        writer.write({"a": [2]})
        messages = writer.prepare_commit()
    writer.abort()
    with pytest.raises(InvalidArgumentError, match="the writer was aborted"):
        staged.commit(messages)
    assert Table.exists(path) is (mode == "replace")
    if mode == "replace":
        assert Table.open(path).scan().to_arrow()["a"].to_pylist() == [1]


def planned(table: Table) -> list[CompactionTask]:
    """All files of the table, to be rewritten."""
    if table.schema.primary_key:
        return table.plan_compaction(full=True)
    return table.plan_compaction()


def test_orphan_removal_keeps_what_a_compaction_has_written(table: Table) -> None:
    table.append(rows(1))
    messages = [compact_group(task) for task in planned(table)]
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    table.commit_compaction(messages, table.snapshot)
    assert table.snapshot.kind == "compact"
    assert ids(table) == [0, 1]


def test_rewritten_groups_whose_files_are_gone_are_refused(table: Table) -> None:
    table.append(rows(1))
    sent = pickle.dumps([compact_group(task) for task in planned(table)])
    gc.collect()
    assert table.remove_orphan_files(older_than=AT_ONCE).paths
    with refused(table, "not stored any more"):
        table.commit_compaction(pickle.loads(sent), table.snapshot)
    assert ids(table) == [0, 1]


def test_orphan_removal_keeps_column_files_that_can_still_be_used(tmp_path: Path) -> None:
    """Of a call that failed: it goes on with them."""
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]), durability="fast")
    for number in range(3):
        table.append({"a": [number]})
    calls: list[int] = []

    def doubled(batch: pa.RecordBatch) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no")
        return {"b": [2 * each.as_py() for each in batch["a"]]}

    schema = pa.schema([("b", pa.int64())])
    with pytest.raises(Exception, match="no") as raised:
        table.add_columns_with(doubled, read=["a"], schema=schema, threads=1)
    finished = raised.value.finished
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    table.add_columns_with(doubled, read=["a"], schema=schema, threads=1, resume=finished)
    assert len(calls) == 4
    assert table.scan().to_arrow()["b"].to_pylist() == [0, 2, 4]
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()


class Watched(WrappedStore):
    """A storage that is not local, and counts what it is asked."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    def call(self, operation: str, *arguments: Any) -> Any:
        self.asked[operation] += 1
        return super().call(operation, *arguments)


def watched(table: Table) -> tuple[Table, Watched]:
    store = Watched(table.store)
    return Table(store, table.snapshot), store


def test_files_that_this_process_has_just_made_are_not_looked_for(table: Table) -> None:
    seen, store = watched(table)
    seen.append(rows(1))
    with seen.writer() as writer:
        writer.write(rows(2))
        messages = writer.prepare_commit()
    seen.commit(pickle.loads(pickle.dumps(messages)))
    with seen.transaction() as transaction:
        transaction.append(rows(3))
    seen.overwrite(rows(4, 5))
    seen.append(rows(6))
    seen.compact()
    assert store.asked["size"] == 0
    assert ids(table) == [4, 5, 6]


def test_files_of_another_process_are_looked_for_once(table: Table) -> None:
    messages = [message for number in range(5) for message in written(table, number)]
    seen, store = watched(table)
    seen.commit(messages)
    assert store.asked["size"] == len(paths(messages))
    assert store.asked["list"] == 0


def test_own_files_are_looked_for_once_they_are_old(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have removed them since, if it was told to remove young ones."""
    seen, store = watched(table)
    with seen.transaction() as transaction:
        transaction.append(rows(1))
        monkeypatch.setattr(owned_files, "FRESH_S", -1.0)
    assert store.asked["size"] == len(seen.snapshot.tail[1:]) + (table.schema.primary_key != ())


def test_a_local_file_that_another_process_removed_is_missed_at_once(table: Table) -> None:
    with refused(table, "not stored any more"), table.transaction() as transaction:
        transaction.append(rows(1))
        (path,) = in_fork(lambda: removed_elsewhere(table.location))
        assert not Path(table.location, path).exists()
    assert ids(table) == [0]


def removed_elsewhere(location: str) -> tuple[str, ...]:
    owned_files._owners.clear()
    found = Table.open(location).remove_orphan_files(older_than=AT_ONCE)
    return tuple(path for path in found.paths if "changelog" not in path)


def test_a_writer_deletes_no_file_that_was_committed(table: Table) -> None:
    """By whomever: here, in a copy of the message, or by a transaction that has taken it over."""
    for commit in (COMMITS["commit"], COMMITS["transaction"]):
        for number, copied in enumerate((lambda each: each, copy_of), start=1):
            writer = table.writer()
            writer.write(rows(number))
            commit(table, copied(writer.prepare_commit()))
            writer.abort()
    assert set(ids(table)) == {0, 1, 2}


def copy_of(messages: list[WriterMessage]) -> list[WriterMessage]:
    copied: list[WriterMessage] = pickle.loads(pickle.dumps(messages))
    return copied


def test_a_writer_that_is_aborted_leaves_what_a_transaction_has_taken_over(table: Table) -> None:
    writer = table.writer()
    writer.write(rows(1))
    with table.transaction() as transaction:
        transaction.append_written(writer.prepare_commit())
        writer.abort()
    assert ids(table) == [0, 1]


def test_a_writer_deletes_no_file_that_may_have_been_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer()
    writer.write(rows(1))
    messages = writer.prepare_commit()
    real = commit_module.create_snapshot_file

    def create(*given: Any) -> Any:
        real(*given)
        raise CommitStateUnknown("no reply")

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "create_snapshot_file", create)
        with pytest.raises(CommitStateUnknown):
            table.commit(messages)
    writer.abort()
    del writer, messages
    gc.collect()
    assert ids(table) == [0, 1]


def test_a_writer_owns_its_files_until_the_commit_has_certainly_lost(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After another error they can be committed again, or given up."""
    writer = table.writer()
    writer.write(rows(1))
    messages = writer.prepare_commit()

    def failing(error: Exception) -> Callable[..., Any]:
        def fail(*given: Any, **named: Any) -> Any:
            raise error

        return fail

    for error in (OSError(5, "no disk"), CommitConflict("lost")):
        with monkeypatch.context() as patch:
            patch.setattr(commit_module, "next_snapshot", failing(error))
            with pytest.raises(type(error)):
                table.commit(messages)
        is_kept = isinstance(error, OSError)
        assert all(Path(table.location, each).exists() is is_kept for each in paths(messages))
    with refused(table, "the writer was aborted|not stored any more"):
        table.commit(messages)
    writer.abort()


def test_a_forked_process_deletes_no_file_of_its_parent(table: Table) -> None:
    """Nor does it trust what its parent may have deleted since."""
    writer = table.writer()
    writer.write(rows(1))
    messages = writer.prepare_commit()

    def child() -> None:
        nonlocal writer
        writer.abort()
        del writer
        gc.collect()

    in_fork(child)
    assert all(Path(table.location, each).exists() for each in paths(messages))
    for each in paths(messages):
        Path(table.location, each).unlink()
    with refused(table, "not stored any more"):
        in_fork(lambda: Table(Watched(table.store), table.snapshot).commit(messages))


def test_an_aborted_writer_has_no_messages(table: Table) -> None:
    """It gave one without files, and nothing was committed."""
    for is_prepared in (False, True):
        writer = table.writer()
        writer.write(rows(1))
        if is_prepared:
            writer.prepare_commit()
        writer.abort()
        with pytest.raises(InvalidArgumentError, match="the writer was aborted"):
            writer.prepare_commit()
