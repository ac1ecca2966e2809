"""Packed manifests: columns say what entries say, and planning reads only those it needs."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion_table import CorruptMetadata, Table
from fermion_table.commit import next_snapshot
from fermion_table.commit.next_snapshot import merged_reference, rewrite_manifests
from fermion_table.errors import UnreadableMetadata
from fermion_table.metadata import manifest_store, packed_manifest
from fermion_table.metadata.file_columns import NUMBERS, ListedFiles
from fermion_table.metadata.manifest import (
    BatchRange,
    DeletionVector,
    Entry,
    FieldStatistics,
    ManifestReference,
    decode_manifest,
    reference_to,
)
from fermion_table.metadata.manifest_store import (
    MetadataWriter,
    manifest_entries,
    manifest_files,
    read_manifest,
)
from fermion_table.metadata.packed_manifest import (
    PackedFiles,
    can_pack,
    decode_packed,
    packed_table,
    write_packed,
)
from fermion_table.storage.cache import shared_cache
from tests.kit.stores import MemoryStore
from tests.kit.table_machine import CheckedTableMachine

GOLDEN = Path(__file__).parents[2] / "golden" / "table_v1"
NUMBER = st.integers(0, 2**40)
BOUND = st.none() | st.integers(-(2**63), 2**63 - 1)
STATISTICS = st.builds(FieldStatistics, BOUND, BOUND, st.none() | NUMBER, st.integers(0, 2**20))
VALUE = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.booleans()
ENTRIES = st.lists(
    st.builds(
        Entry,
        path=st.text("abc/", max_size=4),
        external_path=st.none() | st.text("xyz", min_size=1, max_size=3),
        size=NUMBER,
        rows=NUMBER,
        tail_length=NUMBER,
        schema_id=st.integers(0, 3),
        partition=st.lists(VALUE, max_size=2).map(tuple),
        bucket=st.none() | st.integers(0, 9),
        level=st.integers(0, 3),
        min_key=VALUE,
        max_key=VALUE,
        delete_rows=NUMBER,
        sequence_offset=NUMBER,
        sequence_start=st.none() | NUMBER,
        row_offset=NUMBER,
        row_id_base=st.none() | NUMBER,
        added_snapshot=st.none() | NUMBER,
        batch=st.none() | st.builds(BatchRange, NUMBER, NUMBER, NUMBER, st.booleans()),
        columns=st.none() | st.lists(st.tuples(NUMBER, NUMBER), max_size=2).map(tuple),
        stats=st.dictionaries(st.integers(1, 4), STATISTICS, max_size=3),
        deletion_vector=st.none()
        | st.builds(DeletionVector, path=st.text("d", min_size=1), size=NUMBER, rows=NUMBER),
        source=st.sampled_from(["append", "compact", "import", "clone"]),
        created_ms=NUMBER,
        file_id=st.none() | st.text("0123456789abcdef", min_size=32, max_size=32),
        unknown=st.dictionaries(st.text("u", min_size=1, max_size=2), VALUE, max_size=1),
    ),
    min_size=1,
    max_size=12,
)


def packed(entries: list[Entry]) -> PackedFiles:
    data = write_packed(packed_table(entries))
    shared_cache.clear()
    return PackedFiles("m", "hash", len(entries), lambda: fermion.open(memoryview(data)))


def same(one: Any, other: Any) -> bool:
    """Whether numbers agree where they are known, and are known in the same places."""
    known = np.array_equal(one.known, other.known)
    return known and np.array_equal(one.values[one.known], other.values[other.known])


@settings(max_examples=30, deadline=None)
@given(ENTRIES)
def test_columns_say_what_the_entries_say(entries: list[Entry]) -> None:
    """Whole, at any ordinals, and column by column as the entries in memory do."""
    assert decode_packed(write_packed(packed_table(entries)), "m") == tuple(entries)
    files, listed = packed(entries), ListedFiles(entries)
    for name in NUMBERS:
        assert same(files.numbers(name), listed.numbers(name))
    for field_id in range(1, 5):
        assert np.array_equal(files.has_column(field_id), listed.has_column(field_id))
        mine, theirs = files.bounds(field_id), listed.bounds(field_id)
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            for name in ("min", "max", "null_count", "flags"):
                assert same(getattr(mine, name), getattr(theirs, name))
    (codes, values), (other, others) = files.partitions(), listed.partitions()
    assert [values[code] for code in codes] == [others[code] for code in other]
    chosen = np.arange(0, len(entries), 2)
    assert files.entries(chosen) == listed.entries(chosen)
    bare = [msgspec.structs.replace(each, stats={}) for each in listed.entries(chosen)]
    for _ in range(3):  # some, then all and kept, then from what is kept
        assert files.entries(chosen, statistics=False) == bare
    everything = [msgspec.structs.replace(each, stats={}) for each in entries]
    assert files.entries(np.arange(len(entries)), statistics=False) == everything
    unique = {entry.file: at for at, entry in enumerate(entries) if entry.file}
    found = files.find(list(unique))
    assert {file: entries[at].file for file, at in found.items()} == {file: file for file in unique}


def test_statistics_that_are_no_numbers_are_not_stored() -> None:
    """Neither as columns nor as JSON: no reader would take them."""
    odd = Entry(path="a", size=1, rows=1, stats={1: FieldStatistics("a", "b")})
    assert not can_pack([odd])
    assert not can_pack([Entry(size=1, rows=1, stats={1: FieldStatistics(0, 2**63)})])
    with pytest.raises(UnreadableMetadata, match="stats"):
        MetadataWriter(MemoryStore()).write_manifest([odd] * 600)


def test_a_packed_manifest_has_as_many_bytes_as_entries() -> None:
    """Entries that are all alike, of which readers take no more than bytes."""
    alike = [Entry(path="data/a.fermion", size=1, rows=1, sequence_start=0)] * 6000
    store = MemoryStore()
    stored = MetadataWriter(store).write_manifest(alike)
    assert stored.kind == "packed"
    reference = reference_to(
        alike, path=stored.path, hash=stored.hash, size=stored.size, kind=stored.kind
    )
    shared_cache.clear()
    assert read_manifest(store, reference) == tuple(alike)


def many(count: int, start: int = 0) -> list[Entry]:
    return [
        Entry(
            path=f"data/{at}.fermion",
            size=at + 1,
            rows=10,
            row_offset=10 * (at - start),
            stats={number: FieldStatistics(at, at + 9, 0, 15) for number in range(1, 30)},
        )
        for at in range(start, start + count)
    ]


def stored(store: MemoryStore, entries: list[Entry], dead: tuple[int, ...] = ()) -> Any:
    made = MetadataWriter(store).write_manifest(entries)
    reference = reference_to(
        [each.inherit(snapshot_id=3, sequence_start=7, row_id_start=1000) for each in entries],
        path=made.path,
        hash=made.hash,
        size=made.size,
        kind=made.kind,
        sequence_start=7,
        row_id_start=1000,
    )
    return msgspec.structs.replace(reference, dead=dead, rows=reference.rows - 10 * len(dead))


@pytest.mark.parametrize("sizes", [(600, 3), (3, 5), (600, 700), (2, 600)])
def test_merging_keeps_live_entries_and_what_they_inherited(sizes: tuple[int, int]) -> None:
    """Packed with loose in any order; equal to merging entry by entry."""
    store = MemoryStore()
    first = stored(store, many(sizes[0]), dead=(0, 1))
    second = stored(store, many(sizes[1], 1000))
    merged = rewrite_manifests(store, [first, second], MetadataWriter(store))
    wanted = manifest_entries(store, first) + manifest_entries(store, second)
    assert manifest_entries(store, merged) == wanted
    assert merged.kind == ("packed" if sum(sizes) > 500 else "loose")
    assert (merged.entries, merged.rows, merged.dead) == (len(wanted), 10 * len(wanted), ())
    again = rewrite_manifests(store, [merged], MetadataWriter(store))
    assert manifest_entries(store, again) == wanted


def test_columns_of_a_newer_version_survive_merging() -> None:
    store = MemoryStore()
    writer = MetadataWriter(store)
    table = packed_table(many(600))
    newer = table.append_column("colour", pa.array(["red"] * 600))
    made = writer.write_packed(newer)
    reference = msgspec.structs.replace(
        stored(store, many(600)), path=made.path, hash=made.hash, size=made.size
    )
    merged = rewrite_manifests(store, [reference, stored(store, many(3))], writer)
    with fermion.open(memoryview(store.objects[merged.path])) as file:
        assert file.read(["colour"]).column(0).to_pylist() == ["red"] * 600 + [None] * 3


def test_bounds_of_a_merged_reference_cover_those_of_its_parts() -> None:
    parts = [
        ManifestReference(
            path=f"{at}", hash="", size=1, entries=5, rows=50, bytes=9,
            added_snapshot=(at, at + 1), sequence=(at, at + 4), batch_id=(at, at) if at else None,
        )
        for at in range(3)
    ]  # fmt: skip
    merged = merged_reference(parts, "m", "h", 7)
    assert (merged.entries, merged.rows, merged.bytes, merged.size) == (15, 150, 27, 7)
    assert (merged.added_snapshot, merged.sequence) == ((0, 3), (0, 6))
    assert merged.batch_id == (1, 2)


def test_planning_reads_only_the_columns_of_the_predicate() -> None:
    """Statistics of 29 columns are there; one is asked about."""
    numbers = np.random.default_rng(3).integers(0, 2**60, (20_000, 30))
    entries = [
        msgspec.structs.replace(
            entry,
            stats={at: FieldStatistics(low, low, 0, 15) for at, low in enumerate(row) if at},
        )
        for entry, row in zip(many(20_000), numbers.tolist(), strict=True)
    ]
    data = write_packed(packed_table(entries))
    file = fermion.open(memoryview(data), options=fermion.ReadOptions(eager_load_threshold=0))
    shared_cache.clear()
    files = PackedFiles("m", "hash", len(entries), lambda: file)
    assert files.bounds(7) is not None
    assert files.numbers("rows").values.sum() == 200_000
    assert file.io_stats.bytes_used < len(data) / 8
    read = file.io_stats.bytes_used
    assert files.bounds(7) is not None
    assert file.io_stats.bytes_used == read


def counted(entries: list[Entry]) -> tuple[PackedFiles, list[int]]:
    """Packed files, and a list that grows by the number of columns with each read of them."""
    data, reads = write_packed(packed_table(entries)), []

    class Counted(fermion.FermionFile):
        def read(self, columns: Any = None, **options: Any) -> pa.Table:
            reads.append(len(columns))
            return super().read(columns, **options)

        def take(self, indices: Any, *, columns: Any = None) -> pa.Table:
            reads.append(len(columns))
            return super().take(indices, columns=columns)

    shared_cache.clear()
    return PackedFiles("m", "hash", len(entries), lambda: Counted(memoryview(data))), reads


def test_what_a_plan_asks_for_is_read_in_one_go() -> None:
    files, reads = counted(many(600))
    files.prepare({7})
    assert len(reads) == 1
    assert files.bounds(7) is not None
    assert files.has_column(7).all()
    for name in ("schema_id", "rows", "delete_rows", "size"):
        files.numbers(name)
    assert len(reads) == 1
    for name in ("sequence_start", "row_offset", "added_snapshot", "row_id_base"):
        files.numbers(name)
    assert len(reads) == 2
    files.prepare({7})
    files.prepare(set())
    assert len(reads) == 2
    files.prepare({8})
    assert reads[2:] == [4]


def test_of_many_files_those_that_a_filter_leaves_are_asked_for_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_manifest, "MANY_FILES", 100)
    files, reads = counted(many(600))
    files.prepare({7})
    assert files.numbers("rows").values.sum() == 6_000
    assert len(reads) == 1
    assert files.numbers("size").values.sum() == 600 * 601 / 2
    assert len(reads) == 2


def test_entries_that_are_asked_for_again_are_decoded_once() -> None:
    """Lookups of single batches in a table that stays open."""
    files, reads = counted(many(600))
    for ordinal in range(5):
        (entry,) = files.entries(np.array([ordinal]), statistics=False)
        assert entry.path == f"data/{ordinal}.fermion"
    assert len(reads) == 2


def test_damage_is_named(tmp_path: Path) -> None:
    """Wherever a byte flips, read whole (by the hash) or in parts (by the columns' checksums)."""
    data = write_packed(packed_table(many(600)))
    wanted = decode_packed(data, "m")
    for place in range(0, len(data), max(1, len(data) // 40)):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        found: Any = None
        try:
            found = decode_packed(bytes(broken), "manifest/x.index.fermion")
        except CorruptMetadata as error:
            found = error.path
        assert found in ("manifest/x.index.fermion", wanted)
    short = PackedFiles("m", "hash", 601, lambda: fermion.open(memoryview(data)))
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match="601 entries"):
        short.numbers("rows")


def test_a_big_packed_manifest_is_read_in_parts(table_path, monkeypatch) -> None:
    monkeypatch.setattr(manifest_store, "WHOLE_BYTES_MAX", 100)
    monkeypatch.setattr(manifest_store, "PACK_ENTRIES_MIN", 5)
    table = Table.create(table_path, pa.schema([("a", pa.int64())]), durability="fast")
    with table.writer() as writer:
        writer.write(pa.table({"a": [0]}))
        (message,) = writer.prepare_commit()
    (entry,) = message.entries
    copies = tuple(
        msgspec.structs.replace(entry, path=f"data/{number}.fermion") for number in range(70)
    )
    for each in copies:
        shutil.copy(table.store.locate(entry.path), table.store.locate(each.path))
    table.commit([msgspec.structs.replace(message, entries=copies)])
    (reference,) = table.snapshot.manifests
    assert reference.kind == "packed"
    shared_cache.clear()
    assert table.scan(filter="a = 0").count() == 70
    assert table.scan(filter="a = 1").plan().splits == ()
    scan = table.scan(filter="a = 0", columns=["a"])
    assert len(scan.plan().splits) == 70
    assert pickle.loads(pickle.dumps(scan)).to_arrow().num_rows == 70
    assert len(read_manifest(table.store, reference)) == 70
    table.store.delete(reference.path)
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match="no such object"):
        manifest_files(table.store, reference).numbers("rows")


def test_few_entries_with_many_statistics_are_planned_by_the_columns_named(
    table_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight files of a wide table: packed, and no list of all columns is made to plan a scan."""
    monkeypatch.setattr(manifest_store, "PACK_STATISTICS_MIN", 80)
    names = [f"c{number}" for number in range(10)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    table = Table.create(table_path, schema, durability="fast")
    messages = []
    for number in range(15):
        with table.writer() as writer:
            writer.write(pa.table({name: [number] for name in names}))
            messages += writer.prepare_commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 1)
        table.commit(messages[:7])
        table.commit(messages[7:])
    assert [(each.kind, each.entries) for each in table.snapshot.manifests] == [
        ("loose", 7), ("packed", 8)
    ]  # fmt: skip
    shared_cache.clear()

    def refuse(file: fermion.FermionFile) -> None:
        raise AssertionError("all columns are looked at")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fermion.FermionFile, "schema", property(refuse))
        scan = Table.open(table_path).scan(filter="c7 = 12")
        assert len(scan.plan().splits) == 1
        assert Table.open(table_path).scan(filter="c7 = 99").plan().splits == ()
    assert scan.to_arrow()["c0"].to_pylist() == [12]
    assert table.verify().ok


class PackedTableMachine(CheckedTableMachine):
    """Every entry goes through packed manifests, and they are rewritten all the time."""

    PATCHES = (
        (manifest_store, "PACK_ENTRIES_MIN", 1),
        (next_snapshot, "PACK_ENTRIES_MIN", 1),
        (next_snapshot, "INLINE_ENTRIES_MAX", 1),
        (next_snapshot, "MERGE_FANOUT", 2),
    )

    def __init__(self) -> None:
        super().__init__()
        self.before = [(module, name, getattr(module, name)) for module, name, _ in self.PATCHES]
        for module, name, value in self.PATCHES:
            setattr(module, name, value)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for module, name, value in self.before:
                setattr(module, name, value)


PackedTableMachine.TestCase.settings = settings(
    max_examples=5, stateful_step_count=14, deadline=None
)
test_any_history_in_packed_manifests_agrees_with_the_model = PackedTableMachine.TestCase


def test_the_golden_file_reads_as_it_always_did() -> None:
    """Beside it lie the same entries as a loose manifest."""
    data = (GOLDEN / "packed_manifest.index.fermion").read_bytes()
    wanted = (GOLDEN / "packed_manifest.json").read_bytes()
    entries = decode_manifest(wanted, "golden", keep_unknown=True).entries
    assert len(entries) == len(json.loads(wanted)["entries"]) == 6
    assert decode_packed(data, "golden") == entries
    with fermion.open(io.BytesIO(data).getbuffer()) as file:
        assert file.schema.field("stats.3.min").type == pa.int64()
