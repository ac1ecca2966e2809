"""Appending: any data in, files of a size, batches, two phases, many processes."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion_table import CommitConflict, CommitStateUnknown, SchemaMismatch, Table, WriteSettings
from fermion_table.commit.commit import Commit
from fermion_table.storage import owned_files
from fermion_table.writing.data_writer import DataWriter
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import tables

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
DATA = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}, schema=SCHEMA)


def data_files(table):
    return [each for each in table.store.list("data") if each.path.endswith(".fermion")]


@settings(max_examples=40)
@given(tables())
def test_any_arrow_table_survives_an_append(tmp_path_factory, data):
    """Every type, nullability and layout, the schema with its metadata included."""
    assume(message_can_hold(data.schema) and data.num_columns)
    assume("batch_id" not in data.column_names)
    path = tmp_path_factory.mktemp("append") / "table"
    table = Table.create(path, data.schema, durability="fast")
    table.append(data)
    assert_logically_equal(table.scan().to_arrow(), data)
    assert table.scan().count() == data.num_rows


class Stream:
    def __arrow_c_stream__(self, requested_schema=None):
        return DATA.__arrow_c_stream__(requested_schema)


PRODUCERS = {
    "table": lambda: DATA,
    "record batch": lambda: DATA.to_batches()[0],
    "reader": DATA.to_reader,
    "batches": lambda: iter(DATA.to_batches(max_chunksize=2)),
    "pandas": DATA.to_pandas,
    "polars": lambda: pl.DataFrame(pl.from_arrow(DATA)),
    "stream": Stream,
    "dict": DATA.to_pydict,
    "other order": lambda: DATA.select(["b", "a"]),
    "narrower types": lambda: DATA.cast(pa.schema([("a", pa.int8()), ("b", pa.string_view())])),
}


@pytest.mark.parametrize("name", PRODUCERS)
def test_every_arrow_producer_is_taken(table_path, name):
    table = Table.create(table_path, SCHEMA)
    table.append(PRODUCERS[name]())
    assert table.scan().to_arrow().equals(DATA)


def test_missing_columns_are_null_and_pandas_nan_is_null(table_path):
    table = Table.create(table_path, SCHEMA)
    table.append({"b": ["only b"]})
    table.append(pd.DataFrame({"a": [1.0, np.nan], "b": ["x", None]}))
    assert table.scan().to_arrow().to_pydict() == {"a": [None, 1, None], "b": ["only b", "x", None]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"c": [1]}, r"\+ c: int64: not in the table"),
        ({"a": ["x"]}, "~ a: the table has int64, the data has string"),
        (pa.table({"a": [1.5]}), "does not fit int64"),
    ],
)
def test_data_that_does_not_fit_leaves_nothing(table_path, data, says):
    table = Table.create(table_path, SCHEMA)
    with pytest.raises(SchemaMismatch, match=says):
        table.append(pa.table(data))
    assert table.refresh().id == 0
    assert data_files(table) == []


def test_an_iterator_that_fails_half_way_leaves_nothing(table_path):
    table = Table.create(table_path, SCHEMA)

    def batches():
        yield DATA.to_batches()[0]
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        table.append(batches())
    assert data_files(table) == []


def test_files_have_about_the_size_asked_for_and_keep_the_order(table_path):
    rng = np.random.default_rng(1)
    data = pa.table({"a": np.arange(300_000), "b": rng.random(300_000)})
    properties = {"target_file_size": "256KB"}
    table = Table.create(table_path, data.schema, properties=properties)
    table.append(data)
    sizes = [file.size for file in data_files(table)]
    assert len(sizes) > 3
    assert max(sizes) < 3 * 256 * 1024
    assert table.scan().to_arrow().equals(data)


def test_entries_say_what_is_needed_without_opening_files(table_path):
    names = [f"c{i}" for i in range(40)]
    schema = pa.schema([("p", pa.string()), *((name, pa.int32()) for name in names)])
    table = Table.create(
        table_path, schema, partition_by="p", properties={"statistics_columns": "c39"}
    )
    data = {name: pa.array([1, 2], pa.int32()) for name in names} | {"p": ["x", "x"]}
    data["c0"] = pa.nulls(2, pa.int32())
    table.append(pa.table(data))
    (entry,) = table.scan().entries[0]
    ids = {name: table.schema.find(name).id for name in schema.names}
    assert entry.rows == 2
    assert entry.partition == ("x",)
    assert entry.schema_id == 0
    assert entry.size == data_files(table)[0].size
    assert 0 < entry.tail_length < entry.size
    assert not entry.has_column(ids["c0"])
    assert entry.has_column(ids["c1"])
    assert ids["p"] in entry.stats
    assert ids["c39"] in entry.stats
    assert ids["c31"] in entry.stats
    assert ids["c32"] not in entry.stats
    assert (entry.stats[ids["c1"]].min, entry.stats[ids["c1"]].max) == (1, 2)


def test_messages_are_small_pickle_and_are_committed_together(table_path):
    table = Table.create(table_path, SCHEMA)
    messages = []
    for start in range(3):
        with table.writer() as writer:
            writer.write(pa.table({"a": range(start * 1000, start * 1000 + 1000)}))
            messages += writer.prepare_commit()
    data = pickle.dumps(messages)
    assert len(data) < 3_000
    snapshot = table.commit(pickle.loads(data), message="three")
    assert (snapshot.id, snapshot.totals.files, snapshot.message) == (1, 3, "three")
    assert table.scan().count() == 3000


def test_a_writer_that_is_given_up_deletes_its_own_files_and_no_others(table_path):
    table = Table.create(table_path, SCHEMA)
    table.append(DATA)
    settings = WriteSettings(target_file_bytes=1)
    with pytest.raises(RuntimeError), table.writer(settings=settings) as writer:  # noqa: PT012
        writer.write(DATA)
        assert len(data_files(table)) > 1
        raise RuntimeError
    assert len(data_files(table)) == 1
    assert table.scan().to_arrow().equals(DATA)


def test_a_writer_takes_rows_or_batches_and_nothing_after_it_has_finished(table_path):
    table = Table.create(table_path, SCHEMA)
    writer = table.writer()
    writer.write(DATA)
    with pytest.raises(InvalidArgumentError, match="batches or plain rows"):
        writer.append_batch(1, DATA)
    writer.abort()
    with pytest.raises(InvalidArgumentError, match="finished"):
        writer.write(DATA)


def test_messages_of_another_table_are_refused(table_path):
    table = Table.create(table_path / "one", SCHEMA)
    other = Table.create(table_path / "two", SCHEMA)
    with other.writer() as writer:
        writer.write(DATA)
        messages = writer.prepare_commit()
    with pytest.raises(InvalidArgumentError, match="another table"):
        table.commit(messages)


def test_the_same_commit_twice_is_one_commit_and_leaves_no_second_file(table_path):
    table = Table.create(table_path, SCHEMA)
    first = table.append(DATA, commit_user="job", commit_identifier=7)
    table.append(DATA)
    again = table.append(DATA, commit_user="job", commit_identifier=7)
    assert again.id == first.id
    assert table.refresh().totals.files == len(data_files(table)) == 2


@pytest.mark.parametrize("error", [CommitStateUnknown, OSError, KeyboardInterrupt])
def test_files_stay_unless_it_is_proven_that_nobody_names_them(table_path, monkeypatch, error):
    table = Table.create(table_path, SCHEMA)

    def fail(self, *given):
        self.may_be_published = True
        owned_files.hold(self.request.unsure)
        raise error

    monkeypatch.setattr(Commit, "_publish", fail)
    with pytest.raises(error):
        table.append(DATA)
    assert len(data_files(table)) == 1


def test_files_go_once_the_commit_has_certainly_lost(table_path, monkeypatch):
    table = Table.create(table_path, SCHEMA)

    def lose(*args, **options):
        raise CommitConflict("lost")

    monkeypatch.setattr(Commit, "_publish", lose)
    with pytest.raises(CommitConflict):
        table.append(DATA)
    assert data_files(table) == []


def test_merging_adds_unknown_columns_in_the_same_snapshot(table_path):
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int8())]))])
    table = Table.create(table_path, schema)
    table.append({"a": [1], "s": [{"x": 1}]})
    new = pa.table(
        {"a": [2], "n": ["new"], "s": pa.array([{"y": 5}], pa.struct([("y", pa.int8())]))}
    )
    snapshot = table.append(new, schema_mode="merge")
    assert (snapshot.id, snapshot.schema.id) == (2, 1)
    assert table.scan().to_arrow().to_pylist() == [
        {"a": 1, "s": {"x": 1, "y": None}, "n": None},
        {"a": 2, "s": {"x": None, "y": 5}, "n": "new"},
    ]
    assert table.append(new, schema_mode="merge").schema.id == 1
    with pytest.raises(SchemaMismatch, match="~ n"):
        table.append(pa.table({"n": [1]}), schema_mode="merge")


@pytest.mark.parametrize(
    ("theirs", "conflicts"),
    [({"k": pa.int8()}, False), ({"n": pa.int64()}, False), ({"n": pa.string()}, True)],
)
def test_merging_while_another_commit_changes_the_schema(
    table_path, monkeypatch, theirs, conflicts
):
    """The other commit takes the version that the files were written with."""
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    prepare = DataWriter.prepare_commit

    def other_first(writer):
        monkeypatch.setattr(DataWriter, "prepare_commit", prepare)
        Table.open(table_path).add_columns(theirs)
        return prepare(writer)

    monkeypatch.setattr(DataWriter, "prepare_commit", other_first)
    data = pa.table({"a": [1], "n": [2]})
    if conflicts:
        with pytest.raises(CommitConflict, match="'n' was changed"):
            table.append(data, schema_mode="merge")
        assert data_files(table) == []
        return
    table.append(data, schema_mode="merge")
    names = [*dict.fromkeys(["a", *theirs, "n"])]
    row = {"a": 1, "n": 2}
    assert table.scan().to_arrow().to_pylist() == [{name: row.get(name) for name in names}]
    assert table.scan(filter="n = 2").count() == 1
    assert table.scan(filter="n = 3").plan().splits == ()


def test_a_type_that_no_file_can_hold_is_refused_when_the_table_is_made(table_path):
    union = pa.dense_union([pa.field("x", pa.int8())])
    with pytest.raises(UnsupportedTypeError):
        Table.create(table_path, pa.schema([("u", union)]))
    assert not Table.exists(table_path)


WRITER = """
import sys
import pyarrow as pa
from fermion_table import Table
table = Table.open(sys.argv[1])
for commit in range(int(sys.argv[3])):
    table.append({"writer": [int(sys.argv[2])] * 3, "commit": [commit] * 3})
"""


@pytest.mark.parametrize(
    ("writers", "commits"), [(3, 4), pytest.param(16, 20, marks=pytest.mark.slow)]
)
def test_appends_of_many_processes_are_all_there_once(table_path, project, writers, commits):
    """Separate interpreters; then the rows of every commit, and the chain of snapshots."""
    schema = pa.schema([("writer", pa.int32()), ("commit", pa.int32())])
    table = Table.create(table_path, schema)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(table_path), str(writer), str(commits)],
            cwd=project,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(writers)
    ]
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert ends == [("", 0)] * writers
    assert table.refresh().id == writers * commits
    counts = table.scan().to_arrow().group_by(["writer", "commit"]).aggregate([([], "count_all")])
    assert counts.num_rows == writers * commits
    assert set(counts.column("count_all").to_pylist()) == {3}
    for snapshot in table.snapshots()[1:]:
        rows = table.scan(snapshot_id=snapshot.id).count()
        assert rows == 3 * snapshot.id
    assert len(data_files(table)) == writers * commits
    assert table.verify().ok


def test_a_writer_of_a_planned_merge_publishes_the_columns_with_its_files(table_path):
    """As an engine does: files are written with the planned schema, one snapshot has both."""
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    data = pa.table({"a": [1], "n": [2]})
    merge = pickle.loads(pickle.dumps(table.plan_merge(data.schema)))
    with DataWriter(table.store, merge.schema) as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    assert table.refresh().id == 0
    assert table.commit(messages, merge=merge).id == 1
    assert table.scan().to_arrow().to_pylist() == [{"a": 1, "n": 2}]
    assert table.plan_merge(data.schema).schema == table.schema
