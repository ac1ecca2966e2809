"""Where a stream stands: each file once under any limit, and never on with another table."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.datasource.offsets import (
    BEFORE_ALL,
    Portion,
    StreamOffset,
    next_offset,
    parse_offset,
    portions,
)
from spark_ext.datasource.source import FermionDataSource
from spark_ext.datasource.stream import FermionStreamReader, FermionStreamWriter, StreamMessage
from spark_ext.errors import StreamSourceChanged, UnsupportedBySpark
from spark_ext.options import Use, parse_options
from spark_ext.types import spark_schema
from spark_ext.versions import READ_LIMITS, ReadAllAvailable, ReadMaxFiles
from tests.kit.spark.versions import needs

SCHEMA = pa.schema([("id", pa.int64())])
COLUMNS = spark_schema(SCHEMA, where="test")


def reader(table: Table, **options: object) -> FermionStreamReader:
    given = {name: str(value) for name, value in options.items()}
    made = parse_options({"path": table.location, **given}, Use.STREAM_READ)
    return FermionStreamReader(made, COLUMNS)


def micro_batches(table: Table, **options: object) -> list[list[int]]:
    """The ids of each micro-batch until nothing is new, as Spark asks for them."""
    stream, found = reader(table, **options), []
    start = stream.initialOffset()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        end = json.loads(json.dumps(end))
        again = [rows_of(reader(table, **options), start, end) for _ in range(2)]
        assert again[0] == again[1]  # a micro-batch that is planned again is the same
        found.append(again[0])
        start = end
    return found


def rows_of(stream: FermionStreamReader, start: dict, end: dict) -> list[int]:
    parts = stream.partitions(start, end)
    batches = [batch for part in parts for batch in stream.read(part)]
    return [row for batch in batches for row in batch["id"].to_pylist()]


@pytest.fixture
def table(tmp_path) -> Table:
    """Five appends, ids 0 to 4: the last snapshot is 5."""
    made = Table.create(tmp_path / "t", SCHEMA)
    for number in range(5):
        made.append({"id": [number]})
    return made


@given(
    files=some.lists(some.integers(0, 4), min_size=1, max_size=6),
    limit=some.none() | some.integers(1, 5),
    begin=some.integers(BEFORE_ALL, 5),
    newest=some.lists(some.integers(0, 5), max_size=4),
)
def test_micro_batches_hold_each_file_once_and_no_more_than_the_limit(files, limit, begin, newest):
    """Snapshot i adds files[i] files; the table grows while it is read, and is read to its end."""
    last = len(files) - 1
    begin = min(begin, last)

    def files_in(snapshot: int, initial: bool) -> int:
        return sum(files[: snapshot + 1]) if initial else files[snapshot]

    def listed(portion: Portion) -> list[tuple[int, int]]:
        firsts = range(portion.snapshot + 1) if portion.initial else [portion.snapshot]
        names = [(each, place) for each in firsts for place in range(files[each])]
        return names[portion.start : portion.stop]

    offset, read = StreamOffset(begin, "u"), []
    for seen in [*sorted(max(begin, min(each, last)) for each in newest), *[last] * 50]:
        if seen == BEFORE_ALL:
            continue
        end = next_offset(offset, seen, limit, "u", files_in)
        batch = [name for part in portions(offset, end) for name in listed(part)]
        assert limit is None or len(batch) <= limit
        assert parse_offset(json.loads(json.dumps(end.to_json()))) == end
        read, offset = read + batch, end
    assert offset == StreamOffset(last, "u")
    expected = [(each, i) for each in range(begin + 1, last + 1) for i in range(files[each])]
    assert sorted(read) == expected


@needs(READ_LIMITS)
def test_a_limit_bounds_the_first_micro_batch_and_commits_of_many_files_too(table):
    assert micro_batches(table) == [[0, 1, 2, 3, 4]]
    assert micro_batches(table, maxFilesPerTrigger=2) == [[0, 1], [2, 3], [4]]
    with table.transaction() as transaction:  # a commit of three files
        for number in (5, 6, 7):
            transaction.append({"id": [number]})
    assert table.snapshot.deltas.files_added == 3
    assert micro_batches(table, maxFilesPerTrigger=2, startingSnapshotId=4) == [[4, 5], [6, 7]]
    assert micro_batches(table, maxFilesPerTrigger=3, filter="id IN (0, 2, 4, 6)") == [
        [0, 2],
        [4],
        [6],
    ]


def test_a_table_made_again_at_the_same_place_ends_a_stream_with_an_error(table):
    """Not one of its rows is skipped: without the uuid, snapshots up to 5 would be."""
    stream = reader(table)
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert start == {"snapshot": 5, "table": table.snapshot.table_uuid}
    shutil.rmtree(table.location)
    again = Table.create(table.location, SCHEMA)
    for number in range(7):
        again.append({"id": [number]})
    for limit in (ReadAllAvailable(), ReadMaxFiles(1)):
        with pytest.raises(StreamSourceChanged, match="dropped and created again"):
            reader(again).latestOffset(start, limit)
    with pytest.raises(StreamSourceChanged, match="dropped and created again"):
        reader(again).partitions(start, {"snapshot": 6, "table": again.snapshot.table_uuid})


def test_an_offset_of_an_earlier_version_is_accepted(table):
    """It has no uuid, and gets it with the next micro-batch; beyond the newest it is an error."""
    stream = reader(table)
    assert stream.latestOffset({"snapshot": 5}, ReadAllAvailable()) == {"snapshot": 5}
    end = stream.latestOffset({"snapshot": 3}, ReadAllAvailable())
    assert end == {"snapshot": 5, "table": table.snapshot.table_uuid}
    assert rows_of(stream, {"snapshot": 3}, end) == [3, 4]
    assert rows_of(stream, {"snapshot": -1}, {"snapshot": 5}) == [0, 1, 2, 3, 4]
    with pytest.raises(StreamSourceChanged, match="up to snapshot 9, and the newest is 5"):
        stream.latestOffset({"snapshot": 9}, ReadAllAvailable())


@pytest.mark.parametrize(
    "offset",
    [{}, {"snapshot": "5"}, {"snapshot": -2}, {"snapshot": 5, "files": -1}, {"snapshot": True}],
)
def test_an_offset_of_another_source_is_refused(table, offset):
    with pytest.raises(StreamSourceChanged, match="start the query with a new checkpoint"):
        reader(table).latestOffset(offset, ReadAllAvailable())


def test_a_stream_begins_at_a_snapshot_of_a_branch_that_exists(table):
    assert reader(table, startingSnapshotId=5).initialOffset()["snapshot"] == 5
    with pytest.raises(InvalidArgumentError, match=r"startingSnapshotId=6: the newest .* is 5"):
        reader(table, startingSnapshotId=6).initialOffset()
    with pytest.raises(Exception, match="no branch 'other'"):
        reader(table, branch="other").initialOffset()


def test_streams_with_the_same_commit_user_append_each_of_their_micro_batches(table):
    """Two queries number their micro-batches alike; a repeated one is still appended once."""
    made = {"path": table.location, "commitUser": "me"}
    sink = FermionDataSource(made).streamWriter(COLUMNS, False)
    assert isinstance(sink, FermionStreamWriter)

    def commit(query: str | None, number: int) -> None:
        messages = sink.write(iter(pa.table({"id": [number]}, SCHEMA).to_batches()))
        sink.commit([StreamMessage(messages.messages, query)], 0)

    for query, number in (("a", 10), ("b", 20), ("a", 10), ("b", 20)):
        commit(query, number)
    assert sorted(Table.open(table.location).scan().to_arrow()["id"].to_pylist())[5:] == [10, 20]
    assert table.refresh().commit_user == "me"
    with pytest.raises(UnsupportedBySpark, match=r"no sql\.streaming\.queryId"):
        commit(None, 30)
