"""`OwnedFiles`: one owner of each file that no snapshot names, known to all of a process."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest

from fermion_table.storage import owned_files
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import data_path, final_path, temporary_name, unique_name
from tests.kit.stores import MemoryStore


class Message:
    """Names files."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def made(store: MemoryStore, owned: OwnedFiles, count: int = 1) -> list[str]:
    """Files, each noted before it is stored."""
    paths = [data_path(unique_name()) for _ in range(count)]
    for path in paths:
        owned.add(path)
        store.write(path, b"rows")
    return paths


def test_files_go_with_their_owner_unless_it_has_released_them(store: MemoryStore) -> None:
    for ends in ("lost", "left", "deleted"):
        owned = OwnedFiles(store)
        made(store, owned, 3)
        if ends == "left":
            with owned:
                pass
        elif ends == "deleted":
            owned.delete()
        del owned
        gc.collect()
        assert store.objects == {}
    with OwnedFiles(store) as owned:
        paths = made(store, owned)
        owned.release()
    del owned
    gc.collect()
    assert list(store.objects) == paths


def test_an_operation_has_the_files_of_its_writers(store: MemoryStore) -> None:
    operation = OwnedFiles(store)
    first, second = OwnedFiles(store, operation), OwnedFiles(store, operation)
    (lost,), (kept,) = made(store, first), made(store, second)
    assert operation.paths == {lost, kept}
    first.delete()
    assert operation.paths == {kept}
    assert owned_files.deleted(store, [lost, kept]) == [lost]
    second.release()
    operation.delete()
    assert store.objects == {}


def test_a_file_has_one_owner_and_stays_where_one_that_has_taken_it_is_lost(
    store: MemoryStore,
) -> None:
    writer, taker = OwnedFiles(store), OwnedFiles(store)
    (path,) = made(store, writer)
    taker.take([path])
    assert (writer.paths, taker.paths) == (frozenset(), {path})
    writer.delete()
    assert list(store.objects) == [path]
    del taker
    gc.collect()
    assert list(store.objects) == [path]
    again = OwnedFiles(store)
    again.take([path])
    again.delete()
    assert store.objects == {}


def test_what_was_deleted_is_not_taken(store: MemoryStore) -> None:
    writer, taker = OwnedFiles(store), OwnedFiles(store)
    paths = made(store, writer)
    writer.delete()
    taker.take(paths)
    assert taker.paths == frozenset()
    assert owned_files.deleted(store, paths) == paths
    assert owned_files.owned(paths) == set()
    assert owned_files.deleted(MemoryStore("elsewhere"), paths) == []


def test_files_that_a_snapshot_may_name_are_deleted_by_nobody(store: MemoryStore) -> None:
    for end in ("deleted", "taken", "lost"):
        writer, other = OwnedFiles(store), OwnedFiles(store)
        named, free = made(store, writer, 2)
        owned_files.hold([named])
        assert owned_files.owned([named, free]) == {named, free}
        if end == "taken":
            other.take([named])
            other.delete()
        if end != "lost":
            writer.delete()
        del writer, other
        gc.collect()
        assert list(store.objects) == [named]
        store.delete(named)


def test_a_commit_that_has_lost_gives_files_back_to_their_owner(store: MemoryStore) -> None:
    writer = OwnedFiles(store)
    paths = made(store, writer)
    owned_files.hold(paths)
    owned_files.hold(paths, False)
    writer.delete()
    assert store.objects == {}


def test_files_are_known_as_long_as_a_message_names_them(store: MemoryStore) -> None:
    writer, message = OwnedFiles(store), Message()
    paths = made(store, writer)
    writer.release(message)
    del writer
    gc.collect()
    assert owned_files.owned(paths) == set(paths)
    del message
    gc.collect()
    assert owned_files.owned(paths) == set()
    assert list(store.objects) == paths


def test_what_can_not_be_deleted_is_no_error(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = OwnedFiles(store)
    paths, aborted = made(store, owned, 3), []

    class Writer:
        def abort(self) -> None:
            aborted.append(self)
            raise OSError(5, "no disk")

    owned.add(paths[0], Writer())
    real = store.delete

    def delete(path: str) -> None:
        if path == paths[1]:
            raise OSError(5, "no disk")
        real(path)

    monkeypatch.setattr(store, "delete", delete)
    owned.delete()
    assert list(store.objects) == [paths[1]]
    assert len(aborted) == 1


def test_an_owner_is_not_copied(store: MemoryStore) -> None:
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(OwnedFiles(store))


@pytest.mark.parametrize("name", ["data/k=a.b/0.fermion", "deletion/0.dv", "snapshot/1.json"])
def test_a_temporary_file_says_what_it_is_to_become(name: str) -> None:
    folder, _, file = name.rpartition("/")
    assert final_path(f"{folder}/{temporary_name(file, unique_name())}") == name
    assert final_path(name) == name


def test_sizes_are_asked_for_one_by_one(store: MemoryStore) -> None:
    asked: list[Any] = []
    real = store.size
    store.size = lambda path: (asked.append(path), real(path))[1]  # type: ignore[method-assign]
    owned = OwnedFiles(store)
    paths = [*made(store, owned, 5), "data/missing.fermion"]
    found = owned_files.sizes(store, paths)
    assert list(found) == paths
    assert list(found.values()) == [4] * 5 + [None]
    assert sorted(asked) == sorted(paths)
