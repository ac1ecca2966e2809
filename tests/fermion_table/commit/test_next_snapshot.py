"""Which manifests are merged, and which go into lists."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest

from benchmarks.counting_store import CountingStore
from fermion_table import Table
from fermion_table.checks.repair import repair_table
from fermion_table.commit import next_snapshot
from fermion_table.commit.commit import Commit
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.metadata import snapshot as snapshots
from fermion_table.metadata.manifest import ManifestReference, decode_manifest_list, reference_to
from fermion_table.metadata.manifest_store import MetadataWriter, listed_manifests
from fermion_table.metadata.snapshot import decode_snapshot, encode_snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import MAIN, snapshot_path
from tests.kit.stores import made_up_entry

SCHEMA = pa.schema({"day": pa.int32(), "id": pa.int64()})
SMALL = {
    "INLINE_ENTRIES_MAX": 1,
    "MERGE_INPUT_ENTRIES_MAX": 0,
    "LISTED_MANIFESTS_MIN": 3,
    "LISTED_MANIFESTS_MAX": 5,
}


@pytest.fixture
def small_lists() -> Iterator[None]:
    """Every manifest stays as it is, and three of them go into a list."""
    with mock.patch.multiple(next_snapshot, **SMALL):
        yield


def test_manifests_have_a_class_where_no_entry_may_be_inline() -> None:
    """The bound of the first class was 0 then, and never grew: the search had no end."""
    reference = mock.Mock(spec=ManifestReference, live_entries=5, entries=5, dead=())
    with mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 0):
        assert next_snapshot.plan_merges([reference]) == []
        assert len(next_snapshot.plan_merges([reference] * next_snapshot.MERGE_FANOUT)) == 1


@pytest.mark.usefixtures("small_lists")
def test_manifests_in_lists_are_those_of_the_table(tmp_path: Path) -> None:
    """Appends and deletes, and after each of them the rows, the checks, and what may be deleted."""
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by="day", durability="fast")
    rows: set[int] = set()
    for number in range(24):
        table.append({"day": [number % 5], "id": [number]})
        rows.add(number)
        if number % 6 == 5:
            table.delete(f"id in ({number - 5}, {number - 1})")
            rows -= {number - 5, number - 1}
        assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(rows)
    references = table.snapshot.manifests
    assert max(each.entries for each in references if each.kind == "list") == 5
    assert any(each.dead for each in references if each.kind == "list")
    assert sum(each.rows for each in references) + len(table.snapshot.tail) == len(rows)
    listed = listed_manifests(CountingStore(table.location), references)
    assert table.inspect.manifests().num_rows == len(listed) + bool(table.snapshot.tail)
    plan = table.scan(filter="day = 3").plan()
    assert plan.steps[0].before == len(listed)
    assert plan.steps[0].after == sum(each.partition.min[0] == 3 for each in listed)
    assert table.verify().ok
    table.expire_snapshots(retain_last=1, older_than="0d")
    assert table.remove_orphan_files(older_than="0d", dry_run=True).paths == ()
    assert table.verify().ok
    assert table.clone(str(tmp_path / "c")).to_arrow().num_rows == len(rows)


@pytest.mark.usefixtures("small_lists")
def test_a_lost_list_is_told_and_its_snapshots_are_set_aside(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, durability="fast")
    while not any(each.kind == "list" for each in table.snapshot.manifests):
        table.append({"day": [1], "id": [1]})
    head = table.snapshot
    Path(table.location, head.manifests[0].path).unlink()
    shared_cache.clear()
    table = Table.open(table.location)
    with pytest.raises(CorruptMetadata, match="no such object"):
        table.to_arrow()
    assert any(head.manifests[0].path in str(each) for each in table.verify().problems)
    assert repair_table(table.location).ok
    assert Table.open(table.location).snapshot.id == head.id - 1


@pytest.mark.usefixtures("small_lists")
def test_software_that_does_not_know_lists_refuses_them(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, durability="fast")
    while not any(each.kind == "list" for each in table.snapshot.manifests):
        assert "manifest-lists" not in table.snapshot.reader_features
        table.append({"day": [1], "id": [1]})
    data = encode_snapshot(table.snapshot)
    known = snapshots.KNOWN_READER_FEATURES - {snapshots.MANIFEST_LISTS}
    with (
        mock.patch.object(snapshots, "KNOWN_READER_FEATURES", known),
        pytest.raises(UnsupportedFeature, match="manifest-lists"),
    ):
        decode_snapshot(data, "here")
    bare = msgspec.structs.replace(table.snapshot, reader_features=())
    with pytest.raises(CorruptMetadata, match="manifest-lists"):
        encode_snapshot(bare)
    (inside,) = (each for each in table.snapshot.manifests if each.kind == "list")
    nested = msgspec.json.encode({"format": "fermion-manifest-list", "manifests": [inside]})
    with pytest.raises(CorruptMetadata, match="a list of them"):
        decode_manifest_list(nested, "here")
    with pytest.raises(CorruptMetadata, match="format"):
        decode_manifest_list(b'{"format":"fermion-manifest"}', "here")


def test_a_small_commit_to_a_table_of_100_million_files_writes_20_kilobytes_at_most(
    tmp_path: Path,
) -> None:
    """Most manifests are made up: commits do not read them. Counts bytes of metadata and data."""
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by="day", durability="fast")
    store = CountingStore(table.location, durability="fast")
    entries = [made_up_entry("e", partition=(1,), added_snapshot=0, sequence_start=0)]
    stored = MetadataWriter(store).write_manifest(entries)
    one = reference_to(entries, path=stored.path, hash=stored.hash, size=stored.size)
    references = tuple(
        msgspec.structs.replace(
            one,
            path=f"manifest/{secrets.token_hex(16)}.index.fermion",
            hash=secrets.token_hex(32),
            size=750_000,
            kind="packed",
            entries=32_768,
            rows=32_768 * 1_000_000,
            bytes=32_768 * 128_000_000,
            added_snapshot=(10_000 + day, 20_000 + day),
            sequence=(10_000 + day, 20_000 + day),
            partition=msgspec.structs.replace(one.partition, min=(day,), max=(day,)),
        )
        for day in range(3_052)
    )
    made = msgspec.structs.replace(table.snapshot, manifests=references)
    Path(table.location, snapshot_path(0, MAIN)).write_bytes(encode_snapshot(made))
    table = store.open()
    written = []
    for number in range(40):
        store.forget()
        table.append({"day": [1], "id": [number]})
        written.append(store.bytes_written)
    assert max(written[1:]) < 20_000
    assert written[0] < 400_000  # the lists, once
    assert len(table.snapshot.manifests) < 20
    assert len(listed_manifests(store, table.snapshot.manifests)) >= 3_052


@pytest.mark.usefixtures("small_lists")
def test_a_commit_reads_no_manifest_after_it_is_published(tmp_path: Path, monkeypatch) -> None:
    """A read that failed then made a published commit look as if it had failed."""
    published = []
    create, read = Commit._create, LocalStore.read

    def created(commit: Commit, *given: Any, **named: Any) -> Any:
        result = create(commit, *given, **named)
        published.append(True)
        return result

    def reading(store: LocalStore, path: str, *given: Any, **named: Any) -> Any:
        assert not (published and path.startswith("manifest/")), path
        return read(store, path, *given, **named)

    monkeypatch.setattr(Commit, "_create", created)
    monkeypatch.setattr(LocalStore, "read", reading)
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    for at in range(20):
        table.append({"id": [at]})
        published.clear()
    assert any(each.kind == "list" for each in table.snapshot.manifests)
    assert table.to_arrow().num_rows == 20
    assert not table.verify().problems
