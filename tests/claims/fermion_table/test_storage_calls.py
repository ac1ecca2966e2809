"""What an operation costs in calls of the storage, counted."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import CommitConflict, Table
from fermion_table.metadata.history import latest
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_path
from tests.kit.stores import WrappedStore

DATA = pa.table({"a": pa.array(range(1000), pa.int64())})
READS = {"read", "exists", "size"}


class CountingStore(WrappedStore):
    """Notes every call."""

    def __init__(self, path: Any) -> None:
        super().__init__(LocalStore(path, durability="fast"))
        self.calls: list[tuple[str, Any]] = []

    def call(self, operation: str, *arguments: Any) -> Any:
        self.calls.append((operation, arguments[0] if arguments else None))
        return super().call(operation, *arguments)

    def taken(self) -> list[str]:
        names = [name for name, _ in self.calls]
        self.calls.clear()
        return names


@pytest.fixture
def store(table_path):
    Table.create(table_path, DATA.schema, durability="fast")
    return CountingStore(table_path)


@pytest.fixture
def table(store):
    return Table(store, latest(store))


def test_a_small_append_looks_twice_and_writes_one_slot_and_one_hint(store, table):
    """From the second append on; the data file itself is written beside the store."""
    table.append(DATA)
    for _ in range(70):
        store.taken()
        snapshot = table.append(DATA)
        writes = [path for name, path in store.calls if name in ("write", "create_if_absent")]
        names = store.taken()
        assert sum(name in READS for name in names) <= 2
        assert names.count("overwrite_hint") == 1
        assert not {"list", "delete"} & set(names)
        slot = snapshot_path(snapshot.id)
        is_flush = len(snapshot.tail) == 1  # the tail was full, and is a manifest now
        assert writes == [slot] if not is_flush else writes[1:] == [slot]


def test_opening_a_table_of_many_snapshots_reads_three_times(store, table):
    for _ in range(30):
        table.append(DATA.slice(0, 1))
    store.taken()
    assert latest(store).id == 30
    assert store.taken() == ["read", "exists", "read"]


def test_an_append_after_others_sees_their_schema(store, table):
    """The table remembers that its snapshot was the latest, and still looks."""
    table.append(DATA)
    other = Table(store, latest(store))
    other.add_columns({"b": pa.int64()})
    table.append(pa.table({"a": [1], "b": [2]}))
    assert table.scan(filter="b = 2").to_arrow().to_pylist() == [{"a": 1, "b": 2}]


def test_a_commit_that_finds_its_slot_taken_looks_again(store, table):
    """Both build on the same snapshot; nobody's rows are lost."""
    table.append(DATA)
    with table.writer() as writer:
        writer.write(DATA)
        messages = writer.prepare_commit()
    Table(store, latest(store)).append(DATA)
    assert table.commit(messages).id == 3
    assert table.scan().count() == 3000


def test_a_commit_found_by_its_identity_does_not_count_as_the_latest(store, table):
    words = {"commit_user": "job", "commit_identifier": 1}
    table.append(DATA, **words)
    other = Table(store, latest(store))
    other.append(DATA)
    assert table.append(DATA, **words).id == 1
    assert table.append(DATA).id == 3


def test_a_handle_of_a_table_that_was_deleted_leaves_the_new_one_alone(table_path):
    """It remembers its snapshot as the latest, and the next slot is empty; but not the parent's."""
    old = Table.create(table_path, DATA.schema, durability="fast")
    old.append(DATA)
    shutil.rmtree(table_path)
    new = Table.create(table_path, DATA.schema, durability="fast")
    new.append(DATA)
    with pytest.raises(CommitConflict, match="replaced by another"):
        old.append(DATA)
    again = Table.open(table_path)
    assert again.scan().count() == 1000
    again.append(DATA)
    assert again.verify().ok


def test_a_commit_is_one_record_of_the_log(store, table, caplog):
    """What it did and how long it took are attributes of the record."""
    stale = Table(store, latest(store))
    stale.append(DATA)
    table.append(DATA)
    with stale.writer() as writer:
        writer.write(DATA)
        messages = writer.prepare_commit()
    with caplog.at_level(logging.INFO, logger="fermion_table.commit.commit"):
        logging.getLogger("fermion_table.commit.commit").disabled = False
        stale.commit(messages)
    (record,) = caplog.records
    said = {"kind": "append", "snapshot_id": 3, "files_added": 1, "rows_added": 1000, "retries": 1}
    assert {name: getattr(record, name) for name in said} == said
    assert record.seconds > 0
