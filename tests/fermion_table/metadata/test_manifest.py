"""Manifests and their references: bounds that hold, and what entries inherit."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.metadata.manifest import (
    BatchRange,
    DeletionVector,
    Entry,
    FieldStatistics,
    PartitionRange,
    decode_manifest,
    encode_manifest,
    field_id_runs,
    partition_range,
    reference_to,
)
from fermion_table.metadata.manifest_store import MetadataWriter, manifest_entries, read_manifest
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from tests.kit.stores import MemoryStore, made_up_entry, made_up_schema

FULL = made_up_entry(
    "full",
    tail_length=5,
    schema_id=2,
    partition=("x", None, 3),
    bucket=1,
    level=2,
    min_key=[1],
    max_key=[9],
    delete_rows=1,
    sequence_offset=3,
    batch=BatchRange(min=4, max=9, count=3, sorted=True),
    columns=((1, 4), (7, 7)),
    stats={1: FieldStatistics(1, 2, 0, 7), 7: FieldStatistics(None, None, 10, 0)},
    deletion_vector=DeletionVector(path="deletion/a.dv", offset=4, size=9, rows=1, hash="ab"),
    source="compact",
    created_ms=17,
    file_id="0123456789abcdef" * 2,
)


def inherited(entry: Entry, snapshot_id: int = 1) -> Entry:
    return entry.inherit(snapshot_id=snapshot_id, sequence_start=10, row_id_start=1000)


def test_an_entry_comes_back_with_the_names_of_the_specification() -> None:
    data = encode_manifest([FULL])
    assert decode_manifest(data, "m").entries == (FULL,)
    raw = msgspec.json.decode(data)["entries"][0]
    assert raw["stats"] == {"1": [1, 2, 0, 7], "7": [None, None, 10, 0]}
    assert raw["columns"] == [[1, 4], [7, 7]]
    assert raw["batch"] == {"min": 4, "max": 9, "count": 3, "sorted": True}
    assert raw["partition"] == ["x", None, 3]


def test_an_entry_inherits_once() -> None:
    entry = made_up_entry("a", sequence_offset=2, row_offset=30)
    mine = entry.inherit(snapshot_id=5, sequence_start=10, row_id_start=1000)
    assert (mine.added_snapshot, mine.sequence_number, mine.row_id_base) == (5, 12, 1030)
    assert mine.inherit(snapshot_id=9, sequence_start=90, row_id_start=9000) == mine


def test_a_start_that_an_entry_has_is_not_replaced() -> None:
    entry = made_up_entry("a", sequence_start=3, row_id_base=7)
    mine = entry.inherit(snapshot_id=5, sequence_start=10, row_id_start=1000)
    assert (mine.added_snapshot, mine.sequence_number, mine.row_id_base) == (5, 3, 7)


def test_the_sequence_number_of_an_uncommitted_entry_is_no_number() -> None:
    with pytest.raises(ValueError, match="inherited"):
        _ = made_up_entry("a").sequence_number


def test_columns_say_where_data_is() -> None:
    assert [FULL.has_column(field_id) for field_id in range(9)] == [
        field_id in {1, 2, 3, 4, 7} for field_id in range(9)
    ]
    assert made_up_entry("a").has_column(99)


@given(st.sets(st.integers(0, 60)))
def test_runs_hold_exactly_their_ids(field_ids: set[int]) -> None:
    runs = field_id_runs(field_ids)
    assert {x for first, last in runs for x in range(first, last + 1)} == field_ids
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(runs))
    entry = made_up_entry("a", columns=runs)
    assert {x for x in range(62) if entry.has_column(x)} == field_ids


@given(
    st.lists(st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=2)), max_size=6)
)
def test_partition_bounds_hold_every_value(partitions: list[tuple[Any, ...]]) -> None:
    bounds = partition_range(partitions)
    for partition in partitions:
        for low, high, nulls, value in zip(
            bounds.min, bounds.max, bounds.nulls, partition, strict=True
        ):
            assert nulls if value is None else low <= value <= high


def test_values_that_do_not_compare_have_no_bounds() -> None:
    assert partition_range([(1, 5), ("a", 6)]) == PartitionRange(
        min=(None, 5), max=(None, 6), nulls=(False, False)
    )
    assert partition_range([(), ()]) == PartitionRange()


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 9), st.none() | st.integers(0, 50)),
        min_size=1,
        max_size=8,
    )
)
def test_a_reference_bounds_its_entries(numbers: list[tuple[int, int, int | None]]) -> None:
    entries = [
        inherited(
            made_up_entry(
                str(index),
                rows=rows,
                level=level,
                sequence_offset=index,
                batch=None if batch is None else BatchRange(min=batch, max=batch + 3, count=2),
            ),
            snapshot_id=index,
        )
        for index, (rows, level, batch) in enumerate(numbers)
    ]
    reference = reference_to(entries, path="m", hash="h", size=1)
    assert reference.entries == reference.live_entries == len(entries)
    assert reference.rows == sum(entry.rows for entry in entries)
    assert reference.bytes == sum(entry.size for entry in entries)
    for entry in entries:
        for bounds, value in (
            (reference.level, entry.level),
            (reference.sequence, entry.sequence_number),
            (reference.added_snapshot, entry.added_snapshot),
        ):
            assert value is not None
            assert bounds[0] <= value <= bounds[1]
        if entry.batch is not None:
            assert reference.batch_id is not None
            assert reference.batch_id[0] <= entry.batch.min
            assert entry.batch.max <= reference.batch_id[1]
    assert (reference.batch_id is None) == all(entry.batch is None for entry in entries)


def test_a_manifest_gives_its_live_entries_with_what_they_inherit() -> None:
    store = MemoryStore()
    written = [made_up_entry(name, row_offset=10 * at) for at, name in enumerate("abc")]
    stored = MetadataWriter(store).write_manifest(written)
    reference = reference_to(
        [inherited(entry, 4) for entry in written],
        path=stored.path,
        hash=stored.hash,
        size=stored.size,
        sequence_start=10,
        row_id_start=1000,
    )
    expected = [inherited(entry, 4) for entry in written]
    assert manifest_entries(store, reference) == expected
    without = msgspec.structs.replace(reference, dead=(1,))
    assert manifest_entries(store, without) == [expected[0], expected[2]]


def test_a_writer_stores_the_same_content_once_and_discards_all_but_what_is_kept() -> None:
    store = MemoryStore()
    writer = MetadataWriter(store)
    first = writer.write_manifest([FULL])
    assert writer.write_manifest([FULL]) == first
    second = writer.write_manifest([])
    json = made_up_schema(1).data
    schema = writer.write_schema(1, json)
    assert writer.write_schema(1, json) == schema
    assert {item.path for item in store.list()} == {first.path, second.path, schema.path}
    writer.discard(keep={second.path})
    assert [item.path for item in store.list()] == [second.path]


@pytest.mark.parametrize("count", [1, 500, 2000])
def test_a_manifest_that_is_not_what_its_reference_says_is_named(count: int) -> None:
    store = MemoryStore()
    names = [f"{at:0200d}" for at in range(count)]
    entries = [inherited(made_up_entry(name, created_ms=at)) for at, name in enumerate(names)]
    stored = MetadataWriter(store).write_manifest(entries)
    endings = {1: ".json", 500: ".json.zst", 2000: ".index.fermion"}
    assert stored.path.endswith(endings[count])
    reference = reference_to(
        entries, path=stored.path, hash=stored.hash, size=stored.size, kind=stored.kind
    )
    assert len(read_manifest(store, reference)) == count
    shared_cache.clear()
    data = store.objects[stored.path]
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    damages = [(data[:-1], "bytes"), (bytes(flipped), "hash"), (None, "no such object")]
    for damaged, found in damages:
        store.delete(stored.path)
        if damaged is not None:
            store.write(stored.path, damaged)
        with pytest.raises(CorruptMetadata, match=found) as caught:
            read_manifest(store, reference)
        assert caught.value.path == stored.path
    store.delete(stored.path)
    store.write(stored.path, data)
    wrong_count = msgspec.structs.replace(reference, entries=count + 1)
    with pytest.raises(CorruptMetadata, match=f"expected {count + 1} entries"):
        read_manifest(store, wrong_count)


def test_another_format_and_a_newer_version_are_refused() -> None:
    data = encode_manifest([])
    with pytest.raises(CorruptMetadata, match="fermion-manifest"):
        decode_manifest(data.replace(b"fermion-manifest", b"other"), "m")
    with pytest.raises(UnsupportedFeature, match="version 2"):
        decode_manifest(data.replace(b'"format_version":1', b'"format_version":2'), "m")


def test_removed_entries_carry_no_statistics() -> None:
    slim = FULL.without_statistics()
    assert slim.file == FULL.file
    assert slim.deletion_vector == FULL.deletion_vector
    assert len(json_codec.encode(slim)) < len(json_codec.encode(FULL))
    assert not slim.stats
