"""Streams of changes: read in micro-batches of any size they lead from one state to the other."""

from __future__ import annotations

import pickle
import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, VersionNotFound
from spark_ext.datasource.changes import ChangeStreamReader
from spark_ext.datasource.offsets import StreamOffset, next_offset
from spark_ext.datasource.source import FermionDataSource
from spark_ext.errors import StreamSourceChanged, UnsupportedBySpark
from spark_ext.versions import ReadAllAvailable, ReadMaxFiles
from tests.kit.tables.change_histories import KINDS, SCHEMA, commit, random_table
from tests.kit.tables.keyed_versions import replayed

Rows = list[dict[str, Any]]


def stream_of(table: Table, **options: Any) -> ChangeStreamReader:
    given = {"path": table.location, "readChangeFeed": "true", **options}
    source = FermionDataSource({name: str(value) for name, value in given.items()})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeStreamReader)
    return reader


def read(reader: ChangeStreamReader, start: dict, end: dict) -> Rows:
    """The rows of a micro-batch, read as tasks do."""
    tasks = pickle.loads(pickle.dumps(list(reader.partitions(start, end))))
    reader = pickle.loads(pickle.dumps(reader))
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def follow(reader: ChangeStreamReader, offset: dict, files: int | None) -> tuple[list[Rows], dict]:
    """Read micro-batches up to the newest snapshot."""
    found = []
    limit = ReadAllAvailable() if files is None else ReadMaxFiles(files)
    while (end := reader.latestOffset(offset, limit)) != offset:
        found.append(read(reader, offset, end))
        assert read(reader, offset, end) == found[-1]
        offset = end
    return found, offset


def shown(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


def state(table: Table) -> Rows:
    table.refresh()
    return table.scan().to_arrow().to_pylist()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "input"])
def test_micro_batches_of_random_histories_lead_from_state_to_state(table_path, kind):
    """With new queries for old checkpoints; of an append table, whose rows have no key, by rows."""
    table = random_table(table_path, kind, commits=2, seed=4)
    key = ["k", "p", "v", "s"] if kind == "append table" else ["p", "k"]
    chosen = random.Random(kind)
    rows: Rows = []
    offset = stream_of(table).initialOffset()
    for files in (2, None, 3):
        batches, offset = follow(stream_of(table), offset, files)
        for batch in batches:
            if kind == "append table":
                rows = counted(rows, batch)
            else:
                rows = replayed(rows, batch, key)
        assert shown(rows) == shown(state(table))
        for _ in range(2):
            commit(table, kind, chosen)
    assert StreamOffset(**offset).snapshot < table.snapshot.id


def counted(rows: Rows, changes: Rows) -> Rows:
    """Rows after changes, where equal rows may be there more than once."""
    found = [{**row} for row in rows]
    for change in changes:
        kind, *_ = (change.pop(name) for name in [*change][-3:])
        found.append(change) if kind == "insert" else found.remove(change)
    return found


def test_a_stream_begins_with_insertions_and_divides_them_by_trees(table_path):
    settings = {"bucket": "4"}
    table = Table.create(table_path, SCHEMA, primary_key=["k"], properties=settings)
    for v in (1, 2):
        table.upsert({"p": [0] * 40, "k": range(40), "v": [v] * 40, "s": ["x"] * 40})
    reader = stream_of(table, columns="k,v")
    batches, offset = follow(reader, reader.initialOffset(), 3)
    assert offset == {"snapshot": 2, "table": table.snapshot.table_uuid}
    assert [len(batch) > 0 for batch in batches] == [True, True, True]
    rows = [row for batch in batches for row in batch]
    assert {row["_change_type"] for row in rows} == {"insert"}
    assert {row["_commit_version"] for row in rows} == {2}
    assert sorted((row["k"], row["v"]) for row in rows) == [(k, 2) for k in range(40)]
    table.upsert({"p": [0] * 40, "k": range(40), "v": [3] * 40, "s": ["x"] * 40})
    table.delete_keys([1])
    ((whole), (deleted)), _ = follow(reader, offset, 1)  # a commit is not divided
    assert len(whole) == 80
    assert [(row["_change_type"], row["k"], row["v"]) for row in deleted] == [("delete", 1, 3)]


def test_a_limit_counts_the_files_of_whole_commits():
    sizes = {1: 3, 2: 0, 3: 1, 4: 7, 5: 1}

    def ends(limit: int) -> list[int]:
        found, offset = [], StreamOffset(0)
        while True:
            end = next_offset(
                offset, 5, limit, "t", lambda number, _: sizes[number], divides_commits=False
            )
            if end.snapshot == offset.snapshot:
                return found
            assert end.files is None
            offset = end
            found.append(end.snapshot)

    assert ends(1) == [1, 3, 4, 5]
    assert ends(4) == [3, 4, 5]
    assert ends(5) == [3, 4, 5]
    assert ends(100) == [5]


def test_a_stream_of_input_gives_what_writers_wrote(table_path):
    table = random_table(table_path, "input", commits=3)
    first = table.snapshot.id
    table.upsert({"p": [0, 0], "k": [1, 1], "v": [5, 6], "s": ["x", "y"]})
    reader = stream_of(table, startingSnapshotId=first, filter="v > 5")
    (rows,), _ = follow(reader, reader.initialOffset(), None)
    assert [(row["k"], row["v"], row["_change_type"]) for row in rows] == [(1, 6, "insert")]


def test_what_a_stream_of_changes_can_not_read_is_said(table_path):
    table = random_table(table_path, "deduplicate", commits=3)
    uuid = table.snapshot.table_uuid
    reader = stream_of(table)
    now = {"snapshot": table.snapshot.id, "table": uuid}
    with pytest.raises(StreamSourceChanged, match="made without readChangeFeed"):
        reader.partitions({"snapshot": 1, "table": uuid, "files": 1}, now)
    table.compact(full=True)
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    newest = reader.latestOffset(now, ReadAllAvailable())
    with pytest.raises(VersionNotFound, match="has read up to snapshot 1: start the query with"):
        reader.partitions({"snapshot": 1, "table": uuid}, newest)
    table.add_columns({"later": pa.int8()})
    table.append({"p": [1], "k": [1], "v": [1], "s": ["x"]})
    newest = reader.latestOffset(newest, ReadAllAvailable())
    assert len(read(reader, {**newest, "snapshot": newest["snapshot"] - 1}, newest)) in (1, 2)
    table.drop_columns(["s"])
    table.append({"p": [1], "k": [2], "v": [2]})
    end = reader.latestOffset(newest, ReadAllAvailable())
    with pytest.raises(ColumnNotFoundError, match="'s'"):
        reader.partitions(newest, end)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"skipRewrites": "true"}, "readChangeFeed and skipRewrites: expected one"),
        ({"batchId": "1"}, "readChangeFeed and batchId: expected one"),
        ({"readChangeFeed": "yes"}, "readChangeFeed='yes': expected true or false"),
        ({"startingSnapshotId": "9"}, "startingSnapshotId=9: the newest snapshot"),
        ({"readChanges": "true"}, "did you mean 'readChangeFeed'"),
    ],
)
def test_options_that_have_no_meaning_for_changes_are_refused(table_path, options, said):
    table = random_table(table_path, "deduplicate", commits=1)
    with pytest.raises(InvalidArgumentError, match=said):
        stream_of(table, **options).initialOffset()


def test_a_schema_of_the_users_own_ends_with_the_columns_of_a_change(table_path):
    table = random_table(table_path, "deduplicate", commits=1)
    source = FermionDataSource({"path": table.location, "readChangeFeed": "true"})
    schema = source.schema()
    reader = source.streamReader(type(schema)(schema.fields[1:]))
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    assert [*read(reader, start, end)[0]] == schema.names[1:]
    with pytest.raises(InvalidArgumentError, match="ends with _change_type, _commit_version"):
        source.streamReader(type(schema)(schema.fields[:-1]))


def test_a_keyed_table_without_the_change_feed_is_refused(table_path):
    table = random_table(table_path, "deduplicate", commits=1)
    source = FermionDataSource({"path": table.location})
    with pytest.raises(UnsupportedBySpark, match="readChangeFeed=true"):
        source.streamReader(source.schema()).initialOffset()
