"""Rows of primary-key tables on their way to files: what is flushed, what is refused, and when."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table, WriteSettings
from fermion_table.engine import DataWriter, KeyWriter
from fermion_table.merging.fold import fold
from fermion_table.merging.merge_reader import merge_runs
from fermion_table.metadata.manifest import Entry
from tests.kit.tables.trees import (
    KIND,
    data_files,
    entries_of,
    file_of,
    key_of,
    keyed_table,
    rows_of,
    run_of,
)

TYPES = ["insert", "update_preimage", "update_postimage", "delete"]


def written(table: Table, *data: Any, change_type: str | None = None) -> list[Entry]:
    """Return the entries of one writer that got some data; nothing is committed."""
    with table.writer() as writer:
        assert isinstance(writer, KeyWriter)
        for each in data:
            writer.write(each, change_type)
        return entries_of(writer.prepare_commit())


@pytest.fixture
def table(tmp_path) -> Table:
    return keyed_table(tmp_path / "t")


def test_a_flush_is_sorted_and_holds_the_last_row_of_each_key(table):
    (entry,) = written(table, {"k": [3, 1, 3], "v": ["a", "b", "c"]}, {"k": [1], "v": ["d"]})
    assert rows_of(table, entry) == [(1, "d", 0), (3, "c", 0)]
    assert KIND not in file_of(table, entry).schema.names
    assert (entry.bucket, entry.level, entry.sequence_offset) == (0, 0, 0)
    assert (entry.min_key, entry.max_key) == ("8000000000000001", "8000000000000003")
    assert (entry.retractions, entry.keys_repeated, entry.source) == (0, 0, "append")


def test_retractions_are_kept_with_their_kinds(table):
    data = {
        "k": [1, 2, 2, 3, 3, 4],
        "v": list("abcdef"),
        "op": ["+I", "-D", "+I", "+I", "-D", "-U"],
    }
    (entry,) = written(table, data, change_type="op")
    assert rows_of(table, entry) == [(1, "a", 0), (2, "c", 0), (3, "e", 3), (4, "f", 1)]
    assert entry.retractions == 2


def test_rows_lie_in_the_file_of_their_partition_and_bucket(tmp_path):
    schema = pa.schema([("p", pa.string()), ("k", pa.int64())])
    table = keyed_table(
        tmp_path / "t",
        schema,
        primary_key=["p", "k"],
        partition_by=["p"],
        properties={"bucket": "3", "bucket_key": "k"},
    )
    rows = {"p": [("x", "y")[n % 2] for n in range(100)], "k": list(range(100))}
    entries = written(table, rows)
    key = key_of(table)
    assert sorted((entry.partition, entry.bucket) for entry in entries) == [
        ((p,), bucket) for p in "xy" for bucket in range(3)
    ]
    assert sum(entry.rows for entry in entries) == 100
    for entry in entries:
        found = file_of(table, entry).read()
        assert set(found.column("p").to_pylist()) == set(entry.partition)
        assert set(key.buckets(found.to_batches()[0])) == {entry.bucket}
        assert entry.path.startswith(f"data/p={entry.partition[0]}/bucket-{entry.bucket}/")


def test_every_flush_of_a_tree_is_a_run_of_its_own(tmp_path):
    """A pool of one byte is flushed after each write: numbers ascend tree by tree."""
    table = keyed_table(tmp_path / "t", properties={"bucket": "2", "write_buffer_size": "1"})
    entries = written(
        table, *({"k": [key], "v": [str(n)]} for n, key in enumerate([0, 0, 1, 0, 1]))
    )
    trees: dict[int, list[tuple[int, Any]]] = {}
    for entry in entries:
        (row,) = rows_of(table, entry)
        trees.setdefault(entry.bucket, []).append((entry.sequence_offset, row[1]))
    values = sorted([value for _, value in found] for found in trees.values())
    assert values in ([["0", "1", "3"], ["2", "4"]], [["0", "1", "2", "3", "4"]])
    for found in trees.values():
        assert [number for number, _ in found] == list(range(len(found)))


def test_files_of_one_flush_share_their_run(table):
    settings = WriteSettings(target_file_bytes=1)
    with table.writer(settings=settings) as writer:
        writer.write({"k": [3, 1, 2], "v": ["a", "b", "c"]})
        entries = entries_of(writer.prepare_commit())
    assert [rows_of(table, entry)[0][0] for entry in entries] == [1, 2, 3]
    assert {entry.sequence_offset for entry in entries} == {0}


def test_rows_are_ordered_by_the_sequence_field_before_time(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("at", pa.int32())])
    table = keyed_table(tmp_path / "t", schema, properties={"sequence.field": "at"})
    (entry,) = written(table, {"k": [1, 1, 2, 2], "at": [5, 3, None, 4]})
    assert rows_of(table, entry) == [(1, 5, 0), (2, 4, 0)]


def test_aggregates_are_folded_and_what_can_not_be_stays_apart(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("v", pa.string())])
    properties = {
        "merge_engine": "aggregation",
        "fields.n.aggregate_function": "sum",
    }
    table = keyed_table(tmp_path / "t", schema, properties=properties)
    rows = {
        "k": [1, 2, 1, 2],
        "n": [1, 10, 2, 20],
        "v": ["a", "b", None, "d"],
        "op": ["+I", "+I", "+I", "-D"],
    }
    (entry,) = written(table, rows, change_type="op")
    assert rows_of(table, entry) == [(1, 3, "a", 0), (2, 10, "b", 0), (2, 20, "d", 3)]
    assert (entry.retractions, entry.keys_repeated) == (1, 1)


def test_single_rows_go_through_the_merge_engine_too(tmp_path):
    """A file without equal keys is read as it is, so what a fold makes of one row is in it."""
    schema = pa.schema([("k", pa.int64()), ("s", pa.int64()), ("a", pa.string())])
    properties = {"merge_engine": "partial_update", "fields.s.sequence_group": "a"}
    table = keyed_table(tmp_path / "t", schema, properties=properties)
    (entry,) = written(table, {"k": [1, 2], "s": [None, 1], "a": ["x", "y"]})
    assert rows_of(table, entry) == [(1, None, None, 0), (2, 1, "y", 0)]


def test_ignore_delete_drops_retractions_before_anything_else(tmp_path):
    properties = {"merge_engine": "first_row", "ignore_delete": "true"}
    table = keyed_table(tmp_path / "t", properties=properties)
    rows = {"k": [1, 1, 2], "v": ["a", "b", "c"], "op": ["delete", "insert", "update_preimage"]}
    (entry,) = written(table, rows, change_type="op")
    assert rows_of(table, entry) == [(1, "b", 0)]
    assert written(table, {"k": [1], "v": ["a"], "op": ["-D"]}, change_type="op") == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"merge_engine": "first_row"}, "ignore_delete"),
        ({"merge_engine": "partial_update"}, "remove_record_on_delete"),
        (
            {"merge_engine": "aggregation", "fields.v.aggregate_function": "max"},
            "fields.v.ignore_retract",
        ),
    ],
)
def test_retractions_that_the_engine_does_not_take_are_refused_before_writing(
    tmp_path, properties, message
):
    table = keyed_table(tmp_path / "t", properties={"write_buffer_size": "1"} | properties)
    with table.writer() as writer:
        with pytest.raises(InvalidArgumentError, match=message):
            writer.write({"k": [1, 2], "v": ["a", "b"], "op": ["+I", "-D"]}, "op")
        assert data_files(table) == set()


@pytest.mark.parametrize("names", [TYPES, ["+I", "-U", "+U", "-D"]])
@pytest.mark.parametrize("is_dictionary", [False, True])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_change_types_are_text_or_dictionaries(table, names, is_dictionary, dtype):
    texts = pa.array(names, dtype)
    if is_dictionary:
        texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.uint32()), texts)
    rows = pa.table({"_change_type": texts, "v": ["a", "b", "c", "d"], "k": [0, 1, 2, 3]})
    (entry,) = written(table, rows, change_type="_change_type")
    assert [row[2] for row in rows_of(table, entry)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("data", "change_type", "error", "message"),
    [
        ({"k": [1, None], "v": ["a", "b"]}, None, SchemaMismatch, "'k' is NOT NULL"),
        ({"k": [1.5], "v": ["a"]}, None, InvalidArgumentError, "k"),
        (pa.table({"k": [1.5], "v": ["a"]}), None, SchemaMismatch, "k"),
        ({"v": ["a"]}, None, SchemaMismatch, "- k"),
        (pa.table([[1], [2]], names=["k", "k"]), None, SchemaMismatch, "more than one column"),
        ({"k": [1], "w": [2]}, None, SchemaMismatch, "not in the table"),
        ({"k": [1], KIND: [3]}, None, SchemaMismatch, "not in the table"),
        ({"k": [1], "op": ["insert"]}, None, SchemaMismatch, "not in the table"),
        ({"k": [1]}, "op", InvalidArgumentError, "found 0 among"),
        (
            pa.table([[1], ["a"], ["a"]], names=["k", "o", "o"]),
            "o",
            InvalidArgumentError,
            "found 2",
        ),
        ({"k": [1], "v": ["insert"]}, "v", InvalidArgumentError, "beside those of the table"),
        (
            {"k": [1, 2], "op": ["insert", "upsert"]},
            "op",
            InvalidArgumentError,
            "row 1: .*'upsert'",
        ),
        ({"k": [1], "op": [None]}, "op", InvalidArgumentError, "row 0: .*None"),
        (pa.table({"k": [1], "op": [3]}), "op", InvalidArgumentError, "int64, expected text"),
        ({"k": [1]}, 5, TypeError, "change_type=5: expected text"),
        ([1], None, InvalidArgumentError, "data"),
        (5, None, InvalidArgumentError, "data"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path, data, change_type, error, message
):
    table = keyed_table(tmp_path / "t", properties={"write_buffer_size": "1"})
    with table.writer() as writer:
        with pytest.raises(error, match=message):
            writer.write(data, change_type)
        assert data_files(table) == set()
        assert entries_of(writer.prepare_commit()) == []


def test_values_that_a_function_can_not_read_are_refused_before_anything_is_written(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    settings = {"merge_engine": "aggregation", "fields.b.aggregate_function": "rbm64"}
    table = Table.create(tmp_path / "t", schema, primary_key="k", properties=settings)
    for numbers in ([1, 2], [2, 2**40]):
        table.upsert({"k": [1, 2], "b": [bytes(BitMap64(numbers).serialize()), None]})
    with pytest.raises(InvalidArgumentError, match="column 'b': rbm64 expects serialized"):
        table.upsert({"k": [3, 4], "b": [None, b"no bitmap"]})
    first, second = table.lookup([1, 2])["b"].to_pylist()
    assert (list(BitMap64.deserialize(first)), second) == ([1, 2, 2**40], None)


def test_the_row_of_a_bad_change_type_counts_from_the_first_batch(table):
    batches = [
        pa.record_batch({"k": [1, 2], "op": ["+I", "+I"]}),
        pa.record_batch({"k": [3, 4], "op": ["+I", "+i"]}),
    ]
    with table.writer() as writer, pytest.raises(InvalidArgumentError, match=r"row 3: .*'\+i'"):
        writer.write(batches, "op")


def test_batches_are_refused(table):
    with table.writer() as writer:
        with pytest.raises(InvalidArgumentError, match="no batches"):
            writer.append_batch(1, {"k": [1]})
        writer.write({"k": [1], "v": ["a"]})
        assert len(entries_of(writer.prepare_commit())) == 1


def test_a_data_writer_refuses_a_table_with_a_primary_key_and_the_other_way_round(tmp_path, table):
    with pytest.raises(InvalidArgumentError, match="KeyWriter"):
        DataWriter(table.store, table.schema)
    plain = Table.create(tmp_path / "plain", pa.schema([("k", pa.int64())]), durability="fast")
    with pytest.raises(InvalidArgumentError, match="this is an append table"):
        KeyWriter(plain.store, plain.schema)
    assert isinstance(plain.writer(), DataWriter)


def test_rows_in_order_are_not_copied(table, monkeypatch):
    """Neither taken nor put together: the files are written from the batches of the caller."""
    taken: list[int] = []
    monkeypatch.setattr(
        "fermion_table.writing.run_folding.pa.concat_batches", lambda batches: taken.append(1)
    )
    batches = [pa.record_batch({"k": pa.array(range(n, n + 9)), "v": ["x"] * 9}) for n in (0, 9)]
    (entry,) = written(table, batches)
    assert [row[0] for row in rows_of(table, entry)] == list(range(18))
    assert taken == []


def test_leaving_without_a_commit_deletes_everything(tmp_path):
    table = keyed_table(tmp_path / "t", properties={"write_buffer_size": "1"})
    with table.writer() as writer:
        writer.write({"k": [1], "v": ["a"]})
        assert len(data_files(table)) == 1
    assert data_files(table) == set()
    with pytest.raises(InvalidArgumentError, match="finished"):
        writer.write({"k": [1], "v": ["a"]})
    writer = table.writer()
    writer.write({"k": [1], "v": ["a"]})
    del writer
    gc.collect()
    assert data_files(table) == set()


def test_a_bad_batch_after_good_ones_leaves_no_file(tmp_path):
    table = keyed_table(tmp_path / "t", properties={"write_buffer_size": "1"})
    good = pa.record_batch({"k": [1], "v": ["a"]})
    bad = pa.record_batch([pa.array([None], pa.int64()), ["a"]], names=["k", "v"])
    with pytest.raises(SchemaMismatch), table.writer() as writer:
        writer.write([good, bad])
    assert data_files(table) == set()


def test_a_flush_that_fails_leaves_nothing_to_commit(table, monkeypatch):
    """Rows were lost with it: their writer gives no message any more."""

    def broken(self: object, batch: object, *, copy: bool) -> None:
        raise OSError("disk full")

    writer = table.writer()
    writer.write({"k": [1], "v": ["a"]})
    with monkeypatch.context() as patch:
        patch.setattr(fermion.Writer, "write", broken)
        with pytest.raises(OSError, match="disk full"):
            writer.prepare_commit()
    with pytest.raises(InvalidArgumentError, match=r"has failed.*disk full"):
        writer.prepare_commit()
    with pytest.raises(InvalidArgumentError, match="has failed"):
        writer.write({"k": [1], "v": ["a"]})
    writer.abort()
    assert data_files(table) == set()


def test_a_sum_out_of_range_stays_apart_until_it_is_the_oldest(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("n", pa.int8())])
    properties = {"merge_engine": "aggregation", "fields.n.aggregate_function": "sum"}
    table = keyed_table(tmp_path / "t", schema, properties=properties)
    (entry,) = written(table, {"k": [1, 1], "n": [100, 100]})
    assert rows_of(table, entry) == [(1, 100, 0), (1, 100, 0)]
    assert entry.keys_repeated == 1


def test_prepare_commit_gives_the_same_messages_again(table):
    with table.writer() as writer:
        writer.write({"k": [1], "v": ["a"]})
        first = writer.prepare_commit()
        assert writer.prepare_commit() == first
    assert pickle.loads(pickle.dumps(first)) == first
    assert data_files(table) == {entry.path for entry in entries_of(first)}


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_key_writer_is_not_copied(table, duplicate):
    with table.writer() as writer, pytest.raises(TypeError, match="KeyWriter can't be pickled"):
        duplicate(writer)


def test_columns_that_partial_updates_lack_are_null_whatever_their_default(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    table = keyed_table(tmp_path / "t", schema, properties={"merge_engine": "partial_update"})
    table.add_columns(pa.schema([("w", pa.string())]), defaults={"w": "none"})
    (entry,) = written(table, {"k": [1], "v": ["a"]})
    assert rows_of(table, entry) == [(1, "a", None, 0)]


def test_more_text_than_one_array_holds_becomes_two_runs(table, monkeypatch):
    """What Arrow can't put together is flushed in halves, the older first."""
    concat = pa.concat_batches

    def at_most_two(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) > 2:
            raise pa.ArrowInvalid("offset overflow")
        return concat(batches)

    monkeypatch.setattr("fermion_table.writing.run_folding.pa.concat_batches", at_most_two)
    entries = written(table, *({"k": [1, 0], "v": [f"{n}", "x"]} for n in range(4)))
    assert [entry.sequence_offset for entry in entries] == [0, 1]
    assert [rows_of(table, entry)[1][1] for entry in entries] == ["1", "3"]


CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.none() | st.text("ab", max_size=2), st.sampled_from(TYPES)),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    writes=st.lists(CHANGES, max_size=6),
    buckets=st.integers(1, 3),
    buffer=st.sampled_from(["1", "2KB", "1MB"]),
    target=st.sampled_from([1, 100_000]),
)
def test_merging_all_runs_gives_what_a_dict_holds(
    tmp_path_factory, writes, buckets, buffer, target
):
    """Whatever was flushed when: the files, merged from the newest run to the oldest."""
    properties = {"bucket": str(buckets), "write_buffer_size": buffer}
    table = keyed_table(tmp_path_factory.mktemp("runs") / "t", properties=properties)
    expected: dict[int, str | None] = {}
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("op", pa.string())])
    with table.writer(settings=WriteSettings(target_file_bytes=target)) as writer:
        for rows in writes:
            columns = list(zip(*rows, strict=True)) or [(), (), ()]
            writer.write(pa.table(dict(zip(schema.names, columns, strict=True)), schema), "op")
            for key, value, change in rows:
                if change in ("insert", "update_postimage"):
                    expected[key] = value
                else:
                    expected.pop(key, None)
        entries = entries_of(writer.prepare_commit())
    found: dict[int, str | None] = {}
    for bucket in {entry.bucket for entry in entries}:
        runs: dict[int, list[Entry]] = {}
        for entry in entries:
            if entry.bucket == bucket:
                runs.setdefault(entry.sequence_offset, []).append(entry)
        newest_first = [list(run_of(table, runs[number])) for number in sorted(runs, reverse=True)]
        for merged in merge_runs(newest_first):
            kinds = merged.batch.column(KIND).to_numpy()
            folded = fold(merged.batch, merged.groups, key_of(table), kinds, is_oldest=True)
            rows = folded.gather(merged.batch, ["k", "v"])
            found |= dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert found == expected


def test_keys_of_bytes_are_flushed_in_their_order(tmp_path):
    schema = pa.schema([("k", pa.string()), ("n", pa.int32())])
    table = keyed_table(tmp_path / "t", schema, primary_key=["n", "k"])
    rng = np.random.default_rng(1)
    rows = [(str(k), int(n)) for k, n in rng.integers(0, (50, 3), (200, 2))]
    (entry,) = written(table, {"k": [k for k, _ in rows], "n": [n for _, n in rows]})
    assert [(n, k) for k, n, _ in rows_of(table, entry)] == sorted({(n, k) for k, n in rows})
