"""The files of a writer are committed once: never twice, nor again after they were removed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table, TableError, UnsafeStorage
from fermion_table.commit.commit import Commit, commit
from fermion_table.commit.request import CommitRequest
from fermion_table.engine import WriterMessage, compact_group, stage_table
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import snapshot_path
from tests.kit.stores import WrappedStore, made_up_entry

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append({"id": [0]})
    return table


def written(table: Table, *ids: int) -> list[WriterMessage]:
    with table.writer() as writer:
        writer.write({"id": list(ids)})
        return writer.prepare_commit()


def rows(table: Table) -> list[int]:
    """Read anew from storage."""
    shared_cache.clear()
    return sorted(Table.open(table.location).scan().to_arrow()["id"].to_pylist())


def refused(table: Table, call: Callable[[], Any], match: str = "only once") -> None:
    """The call fails, and changes neither the latest snapshot nor any object."""
    before = {item.path: item.size for item in table.store.list()}
    newest = Table.open(table.location).snapshot
    with pytest.raises(InvalidArgumentError, match=match):
        call()
    assert {item.path: item.size for item in table.store.list()} == before
    assert Table.open(table.location).snapshot == newest


def in_transaction(table: Table, *parts: list[WriterMessage], **words: Any) -> None:
    with table.transaction(**words) as transaction:
        for messages in parts:
            transaction.append_written(messages)


COMMITS: dict[str, Callable[[Table, list[WriterMessage]], Any]] = {
    "commit": lambda t, m: t.commit(m),
    "commit with an identity": lambda t, m: t.commit(m, commit_user="u", commit_identifier=2),
    "append in a transaction": lambda t, m: in_transaction(t, m),
    "from another process": lambda t, m: Table.open(t.location).commit(
        pickle.loads(pickle.dumps(m))
    ),
}


@pytest.mark.parametrize("how", COMMITS)
def test_messages_that_were_committed_are_refused(table: Table, how: str) -> None:
    """The rows are there once, and a later delete loses none."""
    messages = written(table, 1, 2)
    table.commit(messages)
    refused(table, lambda: COMMITS[how](table, messages), "snapshot 2 has added it before")
    table.append({"id": [3]})
    refused(table, lambda: COMMITS[how](table, messages))
    table.delete("id = 1")
    assert rows(table) == [0, 2, 3]


@pytest.mark.parametrize("how", COMMITS)
@pytest.mark.parametrize("remove", ["delete", "compact", "restore", "overwrite"])
def test_messages_whose_files_were_removed_since_are_refused(
    table: Table, how: str, remove: str
) -> None:
    """A retry never brings back what was deleted, nor doubles what was compacted."""
    messages = written(table, 1, 2)
    table.commit(messages)
    if remove == "delete":
        table.delete("id > 0")
    elif remove == "compact":
        table.compact()
    elif remove == "restore":
        table.restore(1)
    else:
        table.overwrite({"id": [9]})
    before = rows(table)
    refused(table, lambda: COMMITS[how](table, messages))
    assert rows(table) == before


def test_a_message_twice_in_one_commit_is_refused(table: Table) -> None:
    """In one list, in two of a transaction, and within one message."""
    (message,) = messages = written(table, 1)
    refused(table, lambda: table.commit([message, message]), "2 times")
    (entry,) = message.entries
    twice = msgspec.structs.replace(message, entries=(entry, entry))
    refused(table, lambda: table.commit([twice]), "2 times")
    other = written(table, 2)
    with pytest.raises(InvalidArgumentError, match="2 times"):
        in_transaction(table, other, other)
    table.commit(messages)
    assert rows(table) == [0, 1]


def test_messages_overwrite_once(table: Table) -> None:
    messages = written(table, 1)
    with table.transaction() as transaction:
        transaction.overwrite_written(messages)
    assert rows(table) == [1]

    def again() -> None:
        with table.transaction() as transaction:
            transaction.overwrite_written(messages)

    refused(table, again)
    assert rows(table) == [1]


def test_the_same_pair_still_gives_the_same_commit(table: Table) -> None:
    """Also after a schema change that the files would not fit, and in transactions."""
    identity: dict[str, Any] = {"commit_user": "u", "commit_identifier": 1}
    messages = written(table, 1)
    first = table.commit(messages, **identity)
    assert table.commit(messages, **identity).id == first.id
    with table.transaction(**identity) as transaction:
        transaction.append_written(messages)
    assert table.refresh().id == first.id
    with table.update_schema() as update:
        update.add_column("x", pa.int64(), default=1, nullable=False)
    with table.update_schema() as update:
        update.drop_column("id")
    assert table.commit(messages, **identity).id == first.id
    assert Table.open(table.location).scan().count() == 2


def test_bug_a_conflict_deleted_files_that_an_earlier_commit_had_published(table: Table) -> None:
    """The same messages, after a schema change that they do not fit, with and without identity."""
    messages = written(table, 1)
    table.commit(messages, commit_user="u", commit_identifier=1)
    with table.update_schema() as update:
        update.add_column("x", pa.int64())
    with table.update_schema() as update:
        update.drop_column("id")
    for identity in ({}, {"commit_user": "u", "commit_identifier": 2}):
        with pytest.raises((CommitConflict, InvalidArgumentError)):
            Table.open(table.location).commit(messages, **identity)
        with pytest.raises((CommitConflict, InvalidArgumentError)):
            in_transaction(table, messages, **identity)
    assert all(table.store.exists(entry.path) for entry in messages[0].entries)
    assert Table.open(table.location).verify(data=True).ok


def test_bug_giving_up_deleted_files_that_another_commit_had_published(table: Table) -> None:
    """A transaction that fails after others have committed its messages."""
    messages = written(table, 1)
    transaction = table.transaction()
    transaction.append_written(messages)
    Table.open(table.location).commit(messages)
    transaction.abort()
    assert rows(table) == [0, 1]
    identity: dict[str, Any] = {"commit_user": "u", "commit_identifier": 1}
    table.commit(written(table, 2), **identity)
    table.commit(messages, **identity)  # the other commit of that name comes back
    assert rows(table) == [0, 1, 2]


def test_of_two_that_race_with_the_same_messages_one_wins(table: Table) -> None:
    """The other has published them between its look at the table and its try for the slot."""
    messages = written(table, 1)

    class Overtaken(WrappedStore):
        done = False

        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent" and not self.done:
                self.done = True
                Table.open(table.location).commit(messages)
            return super().call(operation, *arguments)

    late = Table(Overtaken(table.store), table.snapshot)
    with pytest.raises(InvalidArgumentError, match="snapshot 2 has added it before"):
        late.commit(messages)
    assert rows(table) == [0, 1]


def test_a_compaction_is_committed_once(table: Table) -> None:
    """Twice in one list, and again later, when its inputs are gone; its files stay."""
    for value in range(1, 4):
        table.append({"id": [value]})
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction()]
    refused(table, lambda: table.commit_compaction(messages * 2, base))
    table.commit_compaction(messages, base)
    refused(table, lambda: table.commit_compaction(messages, base))
    table.append({"id": [4]})
    refused(table, lambda: table.commit_compaction(messages, base))
    assert rows(table) == [0, 1, 2, 3, 4]


def test_a_staged_table_commits_its_messages_once(tmp_path: Path) -> None:
    """A new one and a replacement; a second try deletes nothing that was published."""
    for mode in ("create", "replace"):
        staged = stage_table(tmp_path / "s", SCHEMA, mode=mode)  # type: ignore[arg-type]
        with staged.writer() as writer:
            writer.write({"id": [5]})
            messages = writer.prepare_commit()
        staged.commit(messages)
        with pytest.raises((InvalidArgumentError, TableError)):
            staged.commit(messages)
        assert rows(Table.open(tmp_path / "s")) == [5]


@pytest.mark.usefixtures("small_tail")
def test_files_in_manifests_are_found(table: Table) -> None:
    """Loose and packed ones, of a commit of many files."""
    for count in (5, 600):
        entries = [made_up_entry(f"{count}-{at}") for at in range(count)]
        for entry in entries:
            table.store.write(entry.path, bytes(entry.size))
        (message,) = written(table)
        many = msgspec.structs.replace(message, entries=tuple(entries))
        table.commit([many])
        assert table.snapshot.delta.added
        one = msgspec.structs.replace(message, entries=(entries[-1],))
        refused(table, lambda one=one: table.commit([one]))
        table.restore(1)
        refused(table, lambda one=one: table.commit([one]))


def test_messages_that_do_not_say_what_they_were_written_for_are_checked_against_all(
    table: Table,
) -> None:
    """Made by hand, of another branch, or of a snapshot that is not there yet."""
    messages = written(table, 1)
    table.commit(messages)
    for changes in ({"base_id": None}, {"branch": "dev"}, {"base_id": 99}):
        other = [msgspec.structs.replace(each, **changes) for each in messages]
        refused(table, lambda other=other: table.commit(other))


def test_where_the_commits_have_expired_live_and_missing_files_are_refused(table: Table) -> None:
    live, gone, fresh = written(table, 1), written(table, 2), written(table, 3)
    table.commit(live)
    table.commit(gone)
    table.delete("id = 2")
    for value in range(10, 13):
        table.append({"id": [value]})
    table.expire_snapshots(older_than=datetime(2200, 1, 1, tzinfo=UTC), retain_last=1)
    for number in range(1, 7):  # an hour later these are gone too
        table.store.delete(snapshot_path(number))
    shared_cache.clear()
    refused(table, lambda: table.commit(live), "it is live")
    refused(table, lambda: table.commit(gone), "not stored")
    table.commit(fresh)
    assert rows(table) == [0, 1, 3, 10, 11, 12]


def test_a_commit_reads_only_the_commits_since_its_writer_began(table: Table) -> None:
    """Of many snapshots none but those after the one that the writer has seen."""
    for value in range(1, 20):
        table.append({"id": [value]})
    messages = written(table, 20)
    table.append({"id": [21]})
    shared_cache.clear()
    asked: list[str] = []

    class Watched(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "read":
                asked.append(arguments[0])
            return super().call(operation, *arguments)

    Table(Watched(table.store), table.snapshot).commit(messages)
    assert not [path for path in asked if path.startswith("snapshot/0") and path[-8:-5] < "020"]


def test_an_append_of_rows_looks_for_no_files(table: Table) -> None:
    """Nobody else can know of its files: it does not read what others have committed."""
    request = CommitRequest(kind="append", added=[made_up_entry("x")], base=table.snapshot)
    assert request.written is None
    seen: list[CommitRequest] = []
    real = Commit._publish
    with pytest.MonkeyPatch.context() as patch:

        def watched(self: Commit, *given: Any) -> Any:
            seen.append(self.request)
            return real(self, *given)

        patch.setattr(Commit, "_publish", watched)
        table.append({"id": [1]})
    assert [each.written for each in seen] == [None]


def test_a_file_named_twice_below_the_public_calls_is_refused(table: Table) -> None:
    entry = made_up_entry("x")
    with pytest.raises(InvalidArgumentError, match="2 times"):
        commit(table.store, CommitRequest(kind="append", added=[entry, entry]))


@pytest.mark.parametrize(
    "path", ["../x.fermion", "/etc/passwd", "data/../../x", "s3://other/x", ""]
)
def test_a_message_whose_file_lies_outside_is_refused(table: Table, path: str) -> None:
    (message,) = written(table, 1)
    moved = msgspec.structs.replace(message.entries[0], path=path)
    with pytest.raises(UnsafeStorage):
        table.commit([msgspec.structs.replace(message, entries=(moved,))])


def test_what_is_no_message_is_refused(table: Table) -> None:
    refused_types: list[Any] = [5, "x", table.snapshot, written(table, 1)]
    for wrong in refused_types:
        with pytest.raises(TypeError, match="messages"):
            table.commit([wrong])
