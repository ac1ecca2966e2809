"""Deletion vectors: packing, damage, and readers that leave deleted rows out."""

from __future__ import annotations

import pickle
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from fermion.predicate import RowRanges
from fermion_table import Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.deletion_vector import (
    bitmap_of,
    pack,
    ranges_of,
    read_vector,
    unpack,
    write_vectors,
)
from fermion_table.metadata.manifest import DeletionVector
from tests.kit.stores import MemoryStore

ROW_SETS = st.one_of(
    st.frozensets(st.integers(0, 5_000), max_size=40),
    st.builds(
        lambda start, length: frozenset(range(start, start + length)),
        st.integers(0, 200_000),
        st.integers(0, 70_000),
    ),
    st.frozensets(st.integers(2**32 - 5, 2**32 + 5), max_size=5),
)


@settings(max_examples=40)
@given(st.lists(ROW_SETS, max_size=4))
def test_packed_vectors_come_back(row_sets):
    data, places = pack([BitMap64(rows) for rows in row_sets])
    for rows, (offset, size) in zip(row_sets, places, strict=True):
        vector = DeletionVector(path="x.dv", offset=offset, size=size, rows=len(rows))
        assert set(unpack(data[offset : offset + size], vector, 2**40)) == rows
    end = places[-1][0] + places[-1][1] if places else 4
    assert len(data) == end


@given(ROW_SETS)
def test_bitmaps_and_ranges_are_the_same_sets(rows):
    ranges = RowRanges.from_indices(np.array(sorted(rows), np.int64))
    bitmap = bitmap_of(ranges)
    assert set(bitmap) == rows
    assert ranges_of(bitmap) == ranges


def test_every_damaged_byte_of_a_vector_is_noticed():
    data, ((offset, size),) = pack([BitMap64([1, 5, 70_000])])
    vector = DeletionVector(path="x.dv", offset=offset, size=size, rows=3)
    record = data[offset:]
    assert len(unpack(record, vector, 70_001)) == 3
    for place in range(size):
        damaged = record[:place] + bytes([record[place] ^ 0x41]) + record[place + 1 :]
        with pytest.raises(CorruptMetadata, match=r"x\.dv"):
            unpack(damaged, vector, 70_001)
    for cut in range(size):
        with pytest.raises(CorruptMetadata):
            unpack(record[:cut], vector, 70_001)


def test_a_vector_must_mark_as_many_rows_as_its_entry_says_and_none_past_the_end():
    data, ((offset, size),) = pack([BitMap64([1, 5])])
    vector = DeletionVector(path="x.dv", offset=offset, size=size, rows=2)
    with pytest.raises(CorruptMetadata, match="3 deleted rows"):
        unpack(data[offset:], msgspec.structs.replace(vector, rows=3), 6)
    with pytest.raises(CorruptMetadata, match="rows below 5"):
        unpack(data[offset:], vector, 5)


def test_vectors_of_a_commit_share_a_file():
    store = MemoryStore()
    vectors = write_vectors(
        store, {"a": BitMap64([1]), "b": BitMap64(range(100))}, {"a": 100, "b": 100}
    )
    assert {vector.path for vector in vectors.values()} == set(store.objects)
    assert [vectors[file].rows for file in "ab"] == [1, 100]
    assert write_vectors(store, {}, {}) == {}


def test_a_missing_file_of_vectors_is_corrupt_metadata(tmp_path):
    vector = DeletionVector(path="deletion/gone.dv", size=9, rows=1)
    with pytest.raises(CorruptMetadata, match="no such file"):
        read_vector(str(tmp_path / "gone.dv"), vector, 10)


def mark(table: Table, *row_sets: set[int]) -> None:
    """Delete rows of the table's files, by number, beneath every public call."""
    entries = table.scan().entries[0]
    chosen = {
        entry.file: BitMap64(rows) for entry, rows in zip(entries, row_sets, strict=True) if rows
    }
    vectors = write_vectors(table.store, chosen, {each.file: each.rows for each in entries})
    removed = [entry for entry in entries if entry.file in chosen]
    added = [
        msgspec.structs.replace(
            entry,
            deletion_vector=vectors[entry.file],
            delete_rows=vectors[entry.file].rows,
        )
        for entry in removed
    ]
    request = CommitRequest(kind="delete", added=added, removed=removed, base=table.snapshot)
    commit(table.store, request)
    table.refresh()


@pytest.mark.parametrize("memory", [False, True])
def test_scans_leave_deleted_rows_out(table_path, memory, request):
    path = f"memory://{request.node.name}" if memory else table_path
    table = Table.create(path, pa.schema([("a", pa.int64()), ("b", pa.string())]))
    table.append({"a": range(100), "b": [str(n % 3) for n in range(100)]})
    table.append({"a": range(100, 200), "b": ["x"] * 100})
    mark(table, {0, 1, 50, 99}, set(range(10)))
    expected = [n for n in range(200) if n not in {0, 1, 50, 99, *range(100, 110)}]
    scan = table.scan()
    assert scan.to_arrow().column("a").to_pylist() == expected
    assert scan.count() == len(expected)
    assert scan.plan().rows == len(expected)
    assert table.snapshot.totals.rows_deleted == 14
    assert table.scan(columns=[]).to_arrow().num_rows == len(expected)
    filtered = table.scan(filter="a < 110 AND b <> '1'", columns=["a"])
    wanted = [n for n in expected if n < 100 and n % 3 != 1]
    assert filtered.to_arrow().column("a").to_pylist() == wanted
    assert filtered.count() == len(wanted)
    assert table.scan(filter="b = 'x'").count() == 90
    assert table.scan(limit=3).to_arrow().column("a").to_pylist() == [2, 3, 4]
    assert table.scan(filter="a = 50").count() == 0


def test_columns_that_old_files_lack_are_asked_about_live_rows_alone(table_path):
    """The filter on the new column can't be pushed into the file."""
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    table.append({"a": range(10)})
    table.add_columns({"c": pa.int64()}, defaults={"c": 7})
    table.append({"a": [10], "c": [8]})
    mark(table, {3, 4}, set())
    assert table.scan(filter="c = 7 AND a > 2").to_arrow().column("a").to_pylist() == [
        5,
        6,
        7,
        8,
        9,
    ]
    assert table.scan(filter="c = 7").count() == 8
    assert table.scan(filter="c IS NULL").count() == 0


def test_batches_are_looked_up_without_their_deleted_rows(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    table.append_batches(
        (number, {"a": [10 * number + n for n in range(4)]}) for number in range(5)
    )
    mark(table, {0, 5, 12, 13, 14, 15})
    assert table.lookup_batch(0).column("a").to_pylist() == [1, 2, 3]
    assert table.lookup_batch(1).column("a").to_pylist() == [10, 12, 13]
    assert table.lookup_batch(3).num_rows == 0
    assert table.lookup_batch(4).num_rows == 4


@pytest.mark.parametrize("in_batches", [False, True])
def test_compaction_drops_deleted_rows_for_good(table_path, in_batches):
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    for start in (0, 10):
        data = {"a": range(start, start + 10)}
        if in_batches:
            table.append_batch(start, data)
        else:
            table.append(data)
    mark(table, {0, 9}, {5})
    expected = [n for n in range(20) if n not in (0, 9, 15)]
    result = table.compact()
    assert (result.files_before, result.files_after, result.rows) == (2, 1, 17)
    assert table.scan().to_arrow().column("a").to_pylist() == expected
    totals = table.snapshot.totals
    assert (totals.rows, totals.rows_deleted) == (17, 0)
    if in_batches:
        assert table.lookup_batch(10).column("a").to_pylist() == expected[8:]


def test_a_file_with_many_deleted_rows_is_compacted_alone(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    table.append({"a": range(10)})
    mark(table, {1})
    assert table.plan_compaction() == []
    mark(table, {1, 2, 3})
    table.compact()
    assert table.scan().to_arrow().column("a").to_pylist() == [0, 4, 5, 6, 7, 8, 9]
    assert table.scan().entries[0][0].deletion_vector is None


def test_splits_with_deleted_rows_pickle_and_read_elsewhere(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    table.append({"a": range(10)})
    mark(table, {0, 2})
    scan = table.scan()
    reader, split = pickle.loads(pickle.dumps((scan.reader, scan.plan().splits[0])))
    assert [v for batch in reader.read(split) for v in batch.column("a").to_pylist()] == [
        1, *range(3, 10)
    ]  # fmt: skip
    half = replace(split, row_range=(0, 5))
    assert [v for batch in reader.read(half) for v in batch.column("a").to_pylist()] == [1, 3, 4]
    assert reader.count(half) == 3
