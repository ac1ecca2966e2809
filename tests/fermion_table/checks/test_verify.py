"""Verifying: an intact table is OK, and every damage is found and named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fermion_table.checks.verify import verify
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import TableError, TableNotFound
from fermion_table.metadata.history import latest, load_snapshot
from fermion_table.metadata.manifest import DeletionVector, Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import encode_snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import StorageAccess
from tests.kit.stores import MemoryStore, made_up_entry, made_up_schema

pytestmark = pytest.mark.usefixtures("small_tail")


@pytest.fixture
def store() -> MemoryStore:
    """Ten snapshots with a tail, manifests, dead entries, a schema and a deletion vector."""
    store = MemoryStore()
    create_table(store, made_up_schema())
    for at in range(7):
        entry = made_up_entry(f"{at}", rows=2)
        store.write(entry.path, b"." * entry.size)
        commit(store, CommitRequest(kind="append", added=[entry]))
    commit(store, CommitRequest(kind="schema", schema=made_up_schema(1)))
    store.write("deletion/v.dv", b"." * 8)
    old = live_entries(store, latest(store))[6]
    vector = DeletionVector(path="deletion/v.dv", size=8, rows=1)
    marked = msgspec.structs.replace(old, deletion_vector=vector, delete_rows=1)
    commit(store, CommitRequest(kind="delete", removed=[old], added=[marked]))
    commit(store, CommitRequest(kind="delete", removed=["data/0.fermion"]))
    return store


def damaged(store: MemoryStore, path: str, data: bytes | None) -> MemoryStore:
    shared_cache.clear()
    copy = MemoryStore()
    copy.objects = {**store.objects}
    del copy.objects[path]
    if data is not None:
        copy.objects[path] = data
    return copy


def objects(store: MemoryStore, *directories: str) -> list[str]:
    return [item.path for item in store.list() if item.path.startswith(directories)]


def test_an_intact_table_is_ok(store: MemoryStore) -> None:
    report = verify(store)
    assert report.ok
    assert (report.snapshots, report.schemas, report.data_files) == (11, 2, 7)
    assert report.manifests == len(objects(store, "manifest/")) > 0
    assert report.data_bytes == 7 * 102
    assert "OK" in str(report)


def test_nothing_is_taken_from_a_cache(store: MemoryStore) -> None:
    path = load_snapshot(store, 4).manifests[0].path
    live_entries(store, load_snapshot(store, 4))
    store.objects[path] = store.objects[path].replace(b"data/0", b"data/1")
    assert [problem.path for problem in verify(store).problems] == [path]


def test_every_flipped_byte_of_every_metadata_object_is_found_and_named(
    store: MemoryStore,
) -> None:
    for path in objects(store, "snapshot/0", "manifest/", "schema/"):
        data = store.objects[path]
        for position in range(0, len(data), 7):
            flipped = bytearray(data)
            flipped[position] ^= 1 << (position % 8)
            report = verify(damaged(store, path, bytes(flipped)))
            assert path in {problem.path for problem in report.problems}, (path, position)


def test_every_missing_and_every_cut_object_is_found_and_named(store: MemoryStore) -> None:
    directories = ("snapshot/0", "manifest/", "schema/", "data/", "deletion/")
    newest = snapshot_path(latest(store).id)
    for path in objects(store, *directories):
        cut = damaged(store, path, store.objects[path][:-1])
        assert path in {problem.path for problem in verify(cut).problems}
        if path not in (newest, snapshot_path(1)):  # history may end earlier, and begin later
            report = verify(damaged(store, path, None))
            assert path in {problem.path for problem in report.problems}, path


def test_an_expired_history_is_ok(store: MemoryStore) -> None:
    for snapshot_id in range(1, 6):
        store.delete(snapshot_path(snapshot_id))
    report = verify(store)
    assert report.ok, report
    assert report.snapshots == 6


def test_a_forged_snapshot_does_not_fit_its_child(store: MemoryStore) -> None:
    forged = msgspec.structs.replace(load_snapshot(store, 4), message="forged")
    report = verify(damaged(store, snapshot_path(4), encode_snapshot(forged)))
    assert [problem.path for problem in report.problems] == [snapshot_path(4)]
    assert "the parent of snapshot 5" in str(report)


def test_totals_that_do_not_add_up_are_found(store: MemoryStore) -> None:
    newest = latest(store)
    totals = msgspec.structs.replace(newest.totals, rows=99)
    forged = encode_snapshot(msgspec.structs.replace(newest, totals=totals))
    report = verify(damaged(store, snapshot_path(newest.id), forged))
    assert [problem.path for problem in report.problems] == [snapshot_path(newest.id)]
    assert "99 rows in total" in str(report)


def test_a_snapshot_of_another_table_is_found(store: MemoryStore) -> None:
    newest = latest(store)
    forged = encode_snapshot(msgspec.structs.replace(newest, table_uuid="other"))
    report = verify(damaged(store, snapshot_path(newest.id), forged))
    assert "expected table other" in str(report)


def test_data_files_are_looked_into_on_request(store: MemoryStore) -> None:
    def check_file(entry: Entry) -> list[str]:
        return ["page 3 has another checksum"] if entry.path == "data/3.fermion" else []

    report = verify(store, check_file=check_file)
    assert [(problem.path, problem.found) for problem in report.problems] == [
        ("data/3.fermion", "page 3 has another checksum")
    ]


def test_files_of_other_tables_are_looked_at(store: MemoryStore, tmp_path: Path) -> None:
    other = tmp_path / "x.fermion"
    other.write_bytes(bytes(110))
    entry = made_up_entry("x", external_path=str(other))
    store.access = StorageAccess(allowed_roots=[str(tmp_path)])
    commit(store, CommitRequest(kind="append", added=[msgspec.structs.replace(entry, path="")]))
    report = verify(store)
    assert report.ok, report
    assert report.external_files == 1
    assert "1 of them in other tables" in str(report)
    assert "is broken" in str(verify(store, check_file=lambda each: [f"{each.file} is broken"]))
    other.write_bytes(b"short")
    assert f"{other}: expected 110 bytes, found 5 bytes" in str(verify(store))
    other.unlink()
    assert f"{other}: expected a file of 110 bytes, found no such object" in str(verify(store))


def test_a_manifest_that_leads_out_of_the_table_is_a_problem(store: MemoryStore) -> None:
    entry = msgspec.structs.replace(made_up_entry("x"), path="../outside.fermion")
    with pytest.raises(TableError):
        commit(LocalStore("/nonexistent"), CommitRequest(kind="append", added=[entry]))
    commit(store, CommitRequest(kind="append", added=[entry]))
    assert "../outside.fermion" in str(verify(store))


def test_no_table_is_no_sound_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        verify(LocalStore(tmp_path))
