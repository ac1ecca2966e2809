"""Sorted runs as files: what the entries say is what the files hold."""

from __future__ import annotations

import gc
import itertools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion.reading.inspection import describe_statistics
from fermion_table import Table
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.incoming_rows import UNPARTITIONED, Partition
from fermion_table.writing.tree_writer import TreeWriter
from fermion_table.writing.writer_message import WriteSettings
from tests.kit.tables.trees import (
    KIND,
    data_files,
    file_of,
    key_of,
    keyed_table,
    rows_of,
)


def tree_writer(owned: OwnedFiles, table: Table, **options: object) -> TreeWriter:
    return TreeWriter(owned, table.schema, key_of(table), settings=WriteSettings(**options))


@contextmanager
def writer_of(table: Table, **options: object) -> Iterator[TreeWriter]:
    """A writer whose files are deleted in the end."""
    with OwnedFiles(table.store) as owned:
        yield tree_writer(owned, table, **options)


def batch_of(table: Table, keys: list, kinds: list[int] | None = None):
    arrow = table.schema.to_arrow()
    columns = [pa.array(keys, arrow.field("k").type), pa.array(map(str, keys), pa.string())]
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow)
    return rows, key_of(table).keys(rows), None if kinds is None else np.array(kinds, np.int8)


def refused(message: str):
    return pytest.raises(InvalidArgumentError, match=message)


@pytest.fixture
def table(tmp_path) -> Table:
    return keyed_table(tmp_path / "t", properties={"bucket": "4"})


def test_the_entry_says_what_the_file_holds(table):
    with OwnedFiles(table.store) as owned:
        writer = tree_writer(owned, table, source="import")
        batches = [batch_of(table, [-5, 1, 1], [0, 1, 2]), batch_of(table, [1, 7], [3, 0])]
        (entry,) = writer.write_run(UNPARTITIONED, 3, 0, batches, has_kinds=True, sequence_offset=6)
        owned.release()
    assert rows_of(table, entry) == [
        *((-5, "-5", 0), (1, "1", 1), (1, "1", 2), (1, "1", 3), (7, "7", 0))
    ]
    field = file_of(table, entry).schema.field(KIND)
    assert (field.type, field.nullable, field.metadata) == (pa.int8(), False, None)
    assert entry.path.startswith("data/bucket-3/")
    assert (entry.bucket, entry.level, entry.sequence_offset) == (3, 0, 6)
    assert (entry.rows, entry.retractions, entry.keys_repeated) == (5, 2, 2)
    assert entry.min_key == "7ffffffffffffffb"
    assert entry.max_key == "8000000000000007"
    assert entry.columns is None
    assert sorted(entry.stats) == [1, 2]
    assert entry.source == "import"


def test_a_file_without_kinds_has_the_columns_of_the_table_alone(table):
    with writer_of(table, source="compact") as writer:
        (entry,) = writer.write_run(UNPARTITIONED, 0, 2, [batch_of(table, [1, 2])], has_kinds=False)
        assert file_of(table, entry).schema.names == ["k", "v"]
    assert (entry.level, entry.retractions, entry.source) == (2, 0, "compact")


def test_columns_without_values_do_not_show_in_an_entry_with_kinds(table):
    arrow = table.schema.to_arrow()
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1, pa.string())], schema=arrow)
    with writer_of(table) as writer:
        batch = rows, key_of(table).keys(rows), np.array([3], np.int8)
        (entry,) = writer.write_run(UNPARTITIONED, 0, 0, [batch], has_kinds=True)
    assert entry.columns == ((1, 1),)


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=60).map(sorted),
    cut=st.integers(1, 9),
    size=st.sampled_from([1, 20, 60, 100_000]),
)
def test_rows_of_a_key_are_never_in_two_files(tmp_path_factory, keys, cut, size):
    """Of any batches and any target size; a target of a byte makes a file of each key."""
    table = keyed_table(tmp_path_factory.mktemp("run") / "t")
    batches = [batch_of(table, keys[at : at + cut]) for at in range(0, len(keys), cut)]
    with writer_of(table, target_file_bytes=size) as writer:
        entries = writer.write_run(UNPARTITIONED, 0, 0, batches, has_kinds=False)
        found = [[row[0] for row in rows_of(table, entry)] for entry in entries]
    assert [key for each in found for key in each] == keys
    for one, other in itertools.pairwise(found):
        assert one[-1] < other[0]
    for one, other in itertools.pairwise(entries):
        assert one.max_key < other.min_key
    assert sum(entry.keys_repeated for entry in entries) == len(keys) - len(set(keys))
    for entry, each in zip(entries, found, strict=True):
        assert entry.keys_repeated == len(each) - len(set(each))
    if size == 1:
        assert len(entries) == len(set(keys))


def test_a_run_has_several_files_of_the_target_size(table):
    texts = np.random.default_rng(5).bytes(8 * 40_000).hex()
    arrow = table.schema.to_arrow()
    values = pa.array([texts[at : at + 16] for at in range(0, len(texts), 16)])
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(40_000)), values], schema=arrow)
    batches = [(rows, key_of(table).keys(rows), None)]
    with writer_of(table, target_file_bytes=50_000) as writer:
        first = writer.write_run(UNPARTITIONED, 0, 0, batches, has_kinds=False)
        entries = writer.write_run(UNPARTITIONED, 0, 0, batches, has_kinds=False)
    assert len(first) > 1
    assert len(entries) > 4
    assert all(35_000 < entry.size < 65_000 for entry in entries[:-1])


@pytest.mark.parametrize("level", [0, 1])
def test_keys_have_bloom_filters_from_level_1_on(table, level):
    options = fermion.WriteOptions(bloom_filters=["v"])
    with writer_of(table, file_options=options) as writer:
        batches = [batch_of(table, list(range(1000)))]
        (entry,) = writer.write_run(UNPARTITIONED, 0, level, batches, has_kinds=False)
        leaves = describe_statistics(file_of(table, entry).index)
    assert {leaf.path[0]: leaf.has_bloom_filter for leaf in leaves} == {"k": level == 1, "v": True}


def test_a_key_of_bytes_is_in_the_entry_as_hexadecimal_digits(tmp_path):
    table = keyed_table(tmp_path / "t", pa.schema([("k", pa.string()), ("v", pa.string())]))
    with writer_of(table) as writer:
        batches = [batch_of(table, ["", "a"]), batch_of(table, ["a", "é"])]
        (entry,) = writer.write_run(UNPARTITIONED, 0, 0, batches, has_kinds=False)
    assert (entry.min_key, entry.max_key, entry.keys_repeated) == ("", "c3a9", 1)


def test_the_partition_is_in_path_and_entry(tmp_path):
    table = keyed_table(
        tmp_path / "t",
        pa.schema([("k", pa.int64()), ("v", pa.string())]),
        primary_key=["k", "v"],
        partition_by=["v"],
    )
    with writer_of(table) as writer:
        partition = Partition(("1",), (("v", "1"),))
        (entry,) = writer.write_run(partition, 0, 0, [batch_of(table, [1])], has_kinds=False)
    assert entry.partition == ("1",)
    assert entry.path.startswith("data/v=1/bucket-0/")


def test_no_rows_make_no_file(table):
    with writer_of(table) as writer:
        assert writer.write_run(UNPARTITIONED, 0, 0, [], has_kinds=True) == []
        empty = [batch_of(table, [])]
        assert writer.write_run(UNPARTITIONED, 0, 0, empty, has_kinds=False) == []
        assert data_files(table) == set()


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([([2, 1], None)], "sorted by key"),
        ([([1, 2], None), ([1], None)], "sorted by key"),
        ([([1, 2], [0, 3])], "has_kinds=False"),
        ([([1, 2], [0])], "2 keys and 1 kinds"),
    ],
)
def test_bad_batches_are_refused_and_leave_no_file(table, batches, message):
    made = [batch_of(table, keys, kinds) for keys, kinds in batches]
    with (
        OwnedFiles(table.store) as owned,
        pytest.raises(InvalidArgumentError, match=message),
    ):
        tree_writer(owned, table).write_run(UNPARTITIONED, 0, 0, made, has_kinds=False)
    assert data_files(table) == set() == owned.paths


def test_other_columns_than_the_tables_are_refused(table):
    rows = pa.record_batch({"k": [1]})
    batch = rows, key_of(table).keys(rows), None
    with writer_of(table) as writer, pytest.raises(InvalidArgumentError, match="'k', 'v'"):
        writer.write_run(UNPARTITIONED, 0, 0, [batch], has_kinds=False)
    with writer_of(table) as writer, pytest.raises(InvalidArgumentError, match="bucket"):
        writer.write_run(UNPARTITIONED, -1, 0, [], has_kinds=False)
    with writer_of(table) as writer, pytest.raises(TypeError, match="level"):
        writer.write_run(UNPARTITIONED, 0, "top", [], has_kinds=False)  # type: ignore[arg-type]


def test_a_run_that_fails_halfway_leaves_no_file(table):
    def failing():
        yield batch_of(table, list(range(5000)))
        yield batch_of(table, list(range(5000, 9000)))
        raise OSError("gone")

    with OwnedFiles(table.store) as owned:
        writer = tree_writer(owned, table, target_file_bytes=3000)
        with pytest.raises(OSError, match="gone"):
            writer.write_run(UNPARTITIONED, 0, 0, failing(), has_kinds=False)
        seen = len(owned.paths)
    assert seen > 1
    assert data_files(table) == set() == owned.paths


def test_files_of_a_forgotten_writer_are_deleted_and_released_ones_stay(table):
    writer = tree_writer(OwnedFiles(table.store), table)
    writer.write_run(UNPARTITIONED, 0, 0, [batch_of(table, [1])], has_kinds=False)
    assert len(data_files(table)) == 1
    del writer
    gc.collect()
    assert data_files(table) == set()
    with OwnedFiles(table.store) as owned:
        writer = tree_writer(owned, table)
        (entry,) = writer.write_run(UNPARTITIONED, 0, 0, [batch_of(table, [1])], has_kinds=False)
        owned.release()
    del writer, owned
    gc.collect()
    assert data_files(table) == {entry.path}


def test_a_tree_writer_is_not_pickled(table):
    with writer_of(table) as writer, pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(writer)
