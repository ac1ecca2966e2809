"""Rows become files, files of a checkpoint one snapshot, however often they are committed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fermion.columns.exchange import convert
from fermion_table import Table
from fermion_table.engine import WriterMessage
from flink_ext.types import arrow_field, flink_type
from tests.kit.arrow_samples import every_type
from tests.kit.flink_worker import Conversation, Refused, ask

COLUMNS = [["id", "BIGINT"], ["city", "STRING"]]
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("city", pa.string())])
KIND = "kind"


@pytest.fixture
def table(tmp_path) -> Table:
    return Table.create(tmp_path / "t", SCHEMA)


@pytest.fixture
def keyed(tmp_path) -> Table:
    return Table.create(tmp_path / "k", SCHEMA, primary_key="id", properties={"bucket": "2"})


def rows_of(*ids: int, city: str = "c") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "city": [city] * len(ids)})


def written(table: Table, *epochs: pa.Table | None, **fields: Any) -> list[Any]:
    """The messages of each epoch; None: an epoch without rows."""
    conversation = Conversation()
    conversation.ask("open_sink", path=table.location, **{"columns": COLUMNS, **fields})
    for rows in epochs:
        if rows is not None:
            conversation.ask("write", rows)
        conversation.ask("prepare")
    answers = conversation.end()
    for answer in answers:
        if "error" in answer:
            raise Refused(answer["error"])
    return [answer["messages"] for answer in answers if "messages" in answer]


def commit(table: Table, identifier: int, messages: list[Any], **fields: Any) -> Any:
    request = {"path": table.location, "user": "job", "identifier": identifier}
    return ask("commit", **request, messages=messages, **fields)


def ids(table: Table) -> list[int]:
    return sorted(Table.open(table.location).scan().to_arrow()["id"].to_pylist())


def files(table: Table) -> set[Path]:
    return set(Path(table.location).rglob("*.fermion"))


def test_the_rows_of_a_checkpoint_are_one_snapshot(table: Table):
    first, second = written(table, rows_of(1, 2), rows_of(3))
    assert commit(table, 1, first) == {"snapshot": 1, "again": False}
    assert commit(table, 2, second) == {"snapshot": 2, "again": False}
    assert ids(table) == [1, 2, 3]
    snapshot = Table.open(table.location).snapshot
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("job", 2)


def test_messages_of_many_writers_are_committed_together(table: Table):
    messages = [*written(table, rows_of(1))[0], *written(table, rows_of(2))[0]]
    assert commit(table, 1, messages)["snapshot"] == 1
    assert ids(table) == [1, 2]


def test_a_repeated_commit_is_harmless(table: Table):
    """Also after others, and where its snapshot has expired."""
    first, second = written(table, rows_of(1), rows_of(2))
    assert not commit(table, 1, first)["again"]
    assert commit(table, 1, first) == {"snapshot": 1, "again": True}
    commit(table, 2, second)
    assert commit(table, 1, first) == {"snapshot": 1, "again": True}
    table.refresh()
    table.expire_snapshots(retain_last=1, older_than="2999-01-01")
    assert [snapshot.id for snapshot in table.snapshots()] == [2]
    assert commit(table, 1, first)["again"]
    assert ids(table) == [1, 2]


def test_a_checkpoint_without_rows_has_no_files(table: Table):
    nothing, some, nothing_more = written(table, None, rows_of(1), rows_of())
    assert (nothing, nothing_more) == ([], [])
    assert len(some) == 1


def test_a_commit_after_other_writers_keeps_their_rows(table: Table):
    (messages,) = written(table, rows_of(1))
    table.append(rows_of(2))
    table.compact()
    commit(table, 1, messages)
    assert ids(table) == [1, 2]


def test_writers_of_two_schemas_commit_in_one_checkpoint(table: Table):
    """One has begun before a column was added, and one after; a repetition is harmless."""
    (old,) = written(table, rows_of(1))
    table.add_columns({"n": pa.int32()})
    (new,) = written(table, rows_of(2))
    assert not commit(table, 7, [*old, *new])["again"]
    assert commit(table, 7, [*old, *new])["again"]
    assert ids(table) == [1, 2]


def test_a_crash_between_the_snapshots_of_two_schemas_loses_nothing(table: Table):
    """The first one is there, and the commit is made again."""
    (old,) = written(table, rows_of(1))
    table.add_columns({"n": pa.int32()})
    (new,) = written(table, rows_of(2))
    messages = msgspec.json.decode(json.dumps(old), type=list[WriterMessage])
    table.commit(messages, commit_user="job", commit_identifier="7/0")
    commit(table, 7, [*old, *new])
    assert ids(table) == [1, 2]


def test_rows_that_no_checkpoint_has_are_deleted_when_the_worker_ends(table: Table):
    conversation = Conversation()
    conversation.ask("open_sink", path=table.location, columns=COLUMNS)
    conversation.ask("write", rows_of(1))
    conversation.end()
    assert files(table) == set()


def test_prepared_files_stay_when_the_worker_ends(table: Table):
    (messages,) = written(table, rows_of(1))
    assert len(files(table)) == len(messages) == 1


def test_rows_of_a_key_replace_each_other_by_their_kinds(keyed: Table):
    """Kinds have Flink's numbers: +I, -U, +U, -D."""
    rows = rows_of(1, 2, 3, 1, 2).append_column(KIND, pa.array([0, 0, 0, 2, 3], pa.int8()))
    (messages,) = written(keyed, rows, kinds=KIND)
    commit(keyed, 1, messages)
    assert ids(keyed) == [1, 3]


def test_rows_of_every_type_are_stored_as_the_table_has_them(tmp_path):
    """They arrive in the type in which they travel."""
    rows = every_type()
    table = Table.create(tmp_path / "t", rows.schema)
    columns = [(field.name, flink_type(field.type, field.name)) for field in rows.schema]
    arriving = [
        convert(rows[name].chunk(0), arrow_field(name, text).type) for name, text in columns
    ]
    (messages,) = written(table, pa.table(arriving, rows.schema.names), columns=columns)
    commit(table, 1, messages)
    stored = Table.open(table.location).scan().to_arrow()
    for name in rows.schema.names:
        assert stored[name].to_pylist() == rows[name].to_pylist(), rows.schema.field(name)


def test_columns_that_a_statement_leaves_out_are_null(table: Table):
    (messages,) = written(table, rows_of(1).select(["id"]), columns=[["id", "BIGINT"]])
    commit(table, 1, messages)
    assert Table.open(table.location).scan().to_arrow()["city"].to_pylist() == [None]


def test_an_overwrite_replaces_all_rows_even_by_none(table: Table):
    table.append(rows_of(1, 2))
    overwrite = {"partition": {}}
    (messages,) = written(table, rows_of(3), overwrite=overwrite)
    commit(table, 1, messages, overwrite=overwrite)
    assert ids(table) == [3]
    assert commit(table, 1, messages, overwrite=overwrite)["again"]
    commit(table, 2, [], overwrite=overwrite)
    assert ids(table) == []


def test_an_overwrite_replaces_partitions(tmp_path):
    """Those that rows fall into, or the one that the statement names, even by no rows."""
    table = Table.create(tmp_path / "p", SCHEMA, partition_by=["city"])
    for number, city in enumerate("abc"):
        table.append(rows_of(number, city=city))
    (messages,) = written(table, rows_of(10, city="a"), overwrite={})
    commit(table, 1, messages, overwrite={})
    assert ids(table) == [1, 2, 10]
    commit(table, 2, [], overwrite={"partition": {"city": "b"}})
    assert ids(table) == [2, 10]
    commit(table, 3, [], overwrite={})
    assert ids(table) == [2, 10]


def test_a_user_whose_commits_are_there_is_refused_for_a_new_job(table: Table):
    request = {"path": table.location, "user": "job"}
    assert ask("check_user", **request) == {}
    (messages,) = written(table, rows_of(1))
    commit(table, 1, messages)
    with pytest.raises(Refused, match="has made snapshot 1, and this job does not go on"):
        ask("check_user", **request)
    assert ask("check_user", **{**request, "user": "other"}) == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"columns": [["nothing", "INT"]]}, r"has no columns \['nothing'\]"),
        ({"columns": [["id", "VARCHAR(3)"]]}, "use STRING"),
        ({"columns": "id"}, "Expected `array`"),
        ({"overwrite": {"part": {}}}, "unknown field `part`"),
    ],
)
def test_a_sink_that_does_not_fit_the_table_is_refused(table: Table, fields, expected):
    with pytest.raises(Refused, match=expected):
        ask("open_sink", **{"path": table.location, "columns": COLUMNS, **fields})


@pytest.mark.parametrize("op", ["write", "prepare"])
def test_nothing_is_written_before_a_sink_is_open(op):
    with pytest.raises(Refused, match="open_sink"):
        ask(op)


def test_null_where_none_may_be_is_refused_and_nothing_is_left(table: Table):
    rows = pa.table({"id": pa.array([None], pa.int64()), "city": ["c"]})
    with pytest.raises(Refused, match="id"):
        written(table, rows)
    assert files(table) == set()


@pytest.mark.parametrize(
    "change",
    [{"entries": 1}, {"entries": [{"path": 1}]}, {"schema_id": "0"}],
)
def test_messages_that_are_none_are_refused_and_nothing_is_published(table: Table, change):
    ((message,),) = written(table, rows_of(1))
    with pytest.raises(Refused, match="BadRequest"):
        commit(table, 1, [{**message, **change}])
    assert Table.open(table.location).snapshot.id == 0


def test_messages_of_another_table_are_refused(table: Table, keyed: Table):
    ((message,),) = written(table, rows_of(1))
    with pytest.raises(Refused, match="another table"):
        commit(keyed, 1, [message])
    assert Table.open(keyed.location).snapshot.id == 0


def test_messages_are_text_that_java_may_keep(table: Table):
    """The answer's own bytes are read again, in any order of keys."""
    ((message,),) = written(table, rows_of(1))
    shuffled = json.loads(json.dumps(message, sort_keys=True))
    commit(table, 1, [shuffled])
    assert ids(table) == [1]
    assert io.StringIO(json.dumps(message)).read(1) == "{"
