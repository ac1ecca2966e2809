"""Clones and restores that die at any storage call, or meet another writer, break nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fermion_table import CommitConflict
from fermion_table.checks.verify import verify
from fermion_table.commit import restore
from fermion_table.commit.clone import clone_table
from fermion_table.commit.commit import Commit, Publisher, commit, create_table
from fermion_table.commit.request import CommitRequest, NewSchema
from fermion_table.commit.schema_versions import changed_schema
from fermion_table.metadata.history import latest, load_snapshot, table_exists
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import list_tags
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import encode_schema
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import Crash, CrashingStore, MemoryStore, made_up_entry, made_up_schema


@pytest.fixture
def store() -> MemoryStore:
    """Snapshots 1 to 4 add a file each, under two versions of the schema."""
    store = MemoryStore("source")
    first = schema_from_arrow(pa.schema({"a": pa.int64()}))
    create_table(store, NewSchema(0, encode_schema(first)))
    append(store, "a")
    append(store, "b")
    publisher = Publisher(store)
    wider = changed_schema(
        publisher.store,
        latest(store),
        [lambda schema: msgspec.structs.replace(schema, properties={"target_file_size": "1MB"})],
    )
    assert wider is not None
    commit(store, CommitRequest(kind="schema", schema=NewSchema(1, encode_schema(wider))))
    append(store, "c", schema_id=1)
    return store


def append(store: AtomicStore, name: str, **fields: Any) -> Snapshot:
    entry = made_up_entry(name, rows=1, **fields)
    store.write(entry.path, b"." * entry.size)
    return commit(store, CommitRequest(kind="append", added=[entry]))


def files(store: AtomicStore, snapshot: Snapshot | None = None) -> list[str]:
    entries = live_entries(store, snapshot or latest(store))
    return [entry.file.rpartition("/")[2].removesuffix(".fermion") for entry in entries]


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(store.location)
    copy.objects = dict(store.objects)
    return copy


def test_a_crash_at_any_call_leaves_a_whole_clone_an_empty_one_or_none(store: MemoryStore) -> None:
    expected = files(store)
    outcomes = set()
    for calls in range(1, 1000):
        source, target = copy_of(store), MemoryStore("target")
        try:
            clone_table(source, latest(source), CrashingStore(target, calls))
        except Crash:
            assert verify(source).ok
            assert files(source) == expected
        else:
            assert files(target) == expected
            break
        if table_exists(target):
            assert verify(target, external=False).ok
            outcomes.add(tuple(files(target)))
            if files(target):
                assert list_tags(source)
    else:
        pytest.fail("never finished")
    assert outcomes == {(), tuple(expected)}


def test_a_crash_in_the_source_leaves_no_clone(store: MemoryStore) -> None:
    for calls in range(1, 1000):
        source, target = copy_of(store), MemoryStore("target")
        try:
            clone_table(CrashingStore(source, calls), latest(source), target)
        except Crash:
            assert not table_exists(target)
            assert verify(source).ok
        else:
            break
    else:
        pytest.fail("never finished")


def test_a_crash_at_any_call_of_a_restore_leaves_the_old_state_or_the_new(
    store: MemoryStore,
) -> None:
    before, target = files(store), load_snapshot(store, 1)
    outcomes = set()
    for calls in range(1, 1000):
        copy = copy_of(store)
        try:
            restore.restore(Publisher(CrashingStore(copy, calls)), latest(copy), target)
        except Crash:
            outcomes.add(tuple(files(copy)))
            assert verify(copy).ok
            append(copy, "next")
            assert files(copy)[-1] == "next"
        else:
            assert files(copy) == ["a"]
            assert list_tags(copy) == []
            break
    else:
        pytest.fail("never finished")
    assert outcomes == {tuple(before), ("a",)}


def test_a_restore_is_computed_again_where_another_commit_came_first(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file added, and the schema changed, between the restore's look and its commit."""
    known, target = latest(store), load_snapshot(store, 2)

    real = Commit._publish

    def late(self: Commit, *given: Any) -> Snapshot | None:
        monkeypatch.setattr(Commit, "_publish", real)
        append(store, "d", schema_id=1)
        changed = changed_schema(
            store,
            latest(store),
            [lambda schema: msgspec.structs.replace(schema, properties={"x": "y"})],
        )
        assert changed is not None
        new = NewSchema(changed.id, encode_schema(changed))
        commit(store, CommitRequest(kind="schema", schema=new))
        return real(self, *given)

    monkeypatch.setattr(Commit, "_publish", late)
    snapshot = restore.restore(Publisher(store), known, target)
    assert (snapshot.id, snapshot.schema.id) == (7, 3)
    assert files(store) == files(store, target) == ["a", "b"]
    assert verify(store).ok


def test_a_clone_loses_to_a_table_made_meanwhile(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryStore("target")
    real = MemoryStore.create_if_absent

    def late(self: MemoryStore, path: str, data: bytes) -> Any:
        if self is target and path.startswith("snapshot/"):
            monkeypatch.setattr(MemoryStore, "create_if_absent", real)
            create_table(target, made_up_schema())
        return real(self, path, data)

    monkeypatch.setattr(MemoryStore, "create_if_absent", late)
    with pytest.raises(FileExistsError):
        clone_table(store, latest(store), target)
    assert list_tags(store) == []
    assert latest(target).properties == {}


def test_a_restore_of_a_table_that_was_replaced_is_refused(store: MemoryStore) -> None:
    known, target = latest(store), load_snapshot(store, 1)
    other = MemoryStore("source")
    create_table(other, made_up_schema())
    store.objects = dict(other.objects)
    with pytest.raises((CommitConflict, LookupError)):
        restore.restore(Publisher(store), known, target)
    assert latest(store).id == 0
