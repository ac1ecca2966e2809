"""Finding snapshots: the latest without a listing, by id, by time, by name, by ancestry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CorruptMetadata, TableNotFound, VersionNotFound
from fermion_table.metadata.history import (
    earliest_id,
    latest,
    load_parent,
    load_snapshot,
    table_exists,
    walk,
)
from fermion_table.metadata.references import create_tag
from fermion_table.metadata.snapshot import encode_snapshot
from fermion_table.metadata.versions import resolve_version
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import latest_hint_path, snapshot_path
from tests.kit.stores import MemoryStore, WrappedStore, made_up_entry, made_up_schema

START_MS = 1_700_000_000_000


class NotingStore(WrappedStore):
    """Notes every call."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.calls: list[str] = []

    def call(self, operation: str, *arguments: Any) -> Any:
        self.calls.append(operation)
        return super().call(operation, *arguments)


def history_of(count: int, *, expired: int = 0) -> MemoryStore:
    """A table of snapshots 0 to `count`, one second apart; 1 to `expired` are gone."""
    store = MemoryStore()
    snapshot = create_table(store, made_up_schema())
    store.delete(snapshot_path(0))
    parent = None
    for snapshot_id in range(count + 1):
        snapshot = msgspec.structs.replace(
            snapshot, id=snapshot_id, parent=parent, time_ms=START_MS + 1000 * snapshot_id
        )
        store.write(snapshot_path(snapshot_id), encode_snapshot(snapshot))
        parent = load_snapshot(store, snapshot_id).reference
    for snapshot_id in range(1, expired + 1):
        store.delete(snapshot_path(snapshot_id))
    store.delete(latest_hint_path())
    return store


def moment(snapshot_id: float) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000 + snapshot_id, UTC)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.none() | st.integers(0, 45),
    st.none() | st.integers(0, 45) | st.sampled_from([b"", b"x", b"9" * 30, b"-1"]),
)
def test_the_latest_is_found_from_any_hint_and_any_start(
    count: int, expired: int, start: int | None, hint: Any
) -> None:
    store = history_of(count, expired=min(expired, max(count - 1, 0)))
    if hint is not None:
        store.overwrite_hint(latest_hint_path(), b"%d" % hint if isinstance(hint, int) else hint)
    assert latest(store, start=start).id == count


def test_the_latest_is_found_without_listing_in_a_logarithm_of_looks() -> None:
    store = history_of(1000)
    for hint in (1, 500, 999, 1000):
        store.overwrite_hint(latest_hint_path(), b"%d" % hint)
        noting = NotingStore(store)
        assert latest(noting).id == 1000
        assert "list" not in noting.calls
        assert noting.calls.count("exists") <= 20
        assert noting.calls.count("read") == 2


def test_a_snapshot_that_expires_while_being_looked_for_is_looked_for_again() -> None:
    store = history_of(9)

    class ExpiringStore(WrappedStore):
        done = False

        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "read" and arguments == (snapshot_path(3),) and not self.done:
                self.done = True
                for snapshot_id in range(1, 6):
                    store.delete(snapshot_path(snapshot_id))
            if operation == "exists" and not self.done:
                return arguments[0] <= snapshot_path(3)
            return super().call(operation, *arguments)

    assert latest(ExpiringStore(store), start=2).id == 9


def test_no_table_is_told_from_a_table() -> None:
    store = MemoryStore("nowhere")
    assert not table_exists(store)
    with pytest.raises(TableNotFound, match="nowhere"):
        latest(store)
    assert table_exists(history_of(0))


def test_a_missing_id_is_answered_with_the_earliest_and_the_latest() -> None:
    store = history_of(9, expired=4)
    for missing in (1, 4, 10, -1, 2**70):
        with pytest.raises(VersionNotFound, match=r"earliest 5 of 2023-.*, latest 9 of 2023-"):
            load_snapshot(store, missing)
    assert load_snapshot(store, 0).id == 0
    assert load_snapshot(store, 5).id == 5


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_earliest_is_the_first_of_the_contiguous_ids(count: int, expired: int) -> None:
    expired = min(expired, max(count - 1, 0))
    store = history_of(count, expired=expired)
    assert earliest_id(store, count) == (expired + 1 if expired else 0)


def test_a_walk_goes_back_to_the_creation_or_to_what_has_expired() -> None:
    store = history_of(5)
    assert [snapshot.id for snapshot in walk(store, latest(store))] == [5, 4, 3, 2, 1, 0]
    store = history_of(5, expired=2)
    shared_cache.clear()
    assert [snapshot.id for snapshot in walk(store, latest(store))] == [5, 4, 3]


def test_a_parent_of_another_hash_is_corrupt() -> None:
    store = history_of(3)
    other = msgspec.structs.replace(load_snapshot(store, 2), message="forged")
    store.delete(snapshot_path(2))
    store.write(snapshot_path(2), encode_snapshot(other))
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match="the parent of snapshot 3"):
        load_parent(store, load_snapshot(store, 3))


def test_a_slot_that_holds_another_id_is_corrupt() -> None:
    store = history_of(3)
    store.write(snapshot_path(4), store.read(snapshot_path(2)))
    with pytest.raises(CorruptMetadata, match="expected snapshot 4, found snapshot 2"):
        load_snapshot(store, 4)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, 9),
        (0, 0),
        (7, 7),
        ("7", 7),
        ("main", 9),
        ("main~0", 9),
        ("main~3", 6),
        ("main~9", 0),
        ("7~2", 5),
        ("main~2~2", 5),
        (moment(4), 4),
        (moment(4.999), 4),
        (moment(100), 9),
        (moment(4).isoformat(), 4),
        (moment(4).astimezone(timezone(timedelta(hours=5))), 4),
        (moment(4).replace(tzinfo=None), 4),
        ("release", 2),
        ("release~1", 1),
    ],
)
def test_a_version_names_a_snapshot(version: Any, expected: int) -> None:
    store = history_of(9)

    create_tag(store, "release", load_snapshot(store, 2))
    assert resolve_version(store, version).id == expected


@pytest.mark.parametrize(
    "version",
    [10, "10", "main~10", "nobody", "nobody~1", "", "~1", moment(-1), "2001-01-01", "../x", "a b"],
)
def test_a_version_that_is_not_there_is_answered_with_what_is(version: Any) -> None:
    with pytest.raises(VersionNotFound, match=r"earliest 0 of .*latest 9 of"):
        resolve_version(history_of(9), version)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(-2000, 25_000))
def test_a_time_names_the_latest_snapshot_that_was_there_and_is_still(
    count: int, expired: int, milliseconds: int
) -> None:
    expired = min(expired, max(count - 1, 0))
    store = history_of(count, expired=expired)
    time = moment(0) + timedelta(milliseconds=milliseconds)
    kept = range(expired + 1 if expired else 0, count + 1)
    there = [at for at in kept if 1000 * at <= milliseconds]
    if there:
        assert resolve_version(store, time).id == there[-1]
    else:
        with pytest.raises(VersionNotFound):
            resolve_version(store, time)


def test_the_time_of_every_commit_names_it() -> None:
    store = MemoryStore()
    create_table(store, made_up_schema())
    for at in range(20):
        commit(store, CommitRequest(kind="append", added=[made_up_entry(f"{at}")]))
    for snapshot in walk(store, latest(store)):
        time = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
        assert resolve_version(store, time) == snapshot
