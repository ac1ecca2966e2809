"""Each option has a meaning in some uses of a table, and is an error in the others."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table, VersionNotFound
from spark_ext.datasource.batch import FermionReader
from spark_ext.datasource.source import FermionDataSource
from spark_ext.datasource.stream import FermionStreamReader
from spark_ext.opening import open_version, scan_of
from spark_ext.options import (
    OPTIONS,
    READS,
    SourceOptions,
    Use,
    known_options,
    parse_options,
    table_options,
)
from spark_ext.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])
BOUNDS = ("startingSnapshotId", "endingSnapshotId")
"""Options of a batch read only where it reads changes."""


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "day": [each // 10 for each in ids]}, SCHEMA)


def ids(path, branch: str) -> list[int]:
    found = Table.open(path, branch=branch).scan(columns=["id"]).to_arrow()
    return sorted(found["id"].to_pylist())


@pytest.fixture
def path(tmp_path) -> str:
    """A table of ids 1, 2 and 11; branch ``dev`` leaves it there, then main gets 21."""
    made = str(tmp_path / "t")
    table = Table.create(made, SCHEMA, partition_by="day")
    table.append(rows(1, 2, 11))
    table.tags.create("first")
    table.branches.create("dev")
    table.append(rows(21))
    return made


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_taken_where_it_has_a_meaning_and_refused_elsewhere(option):
    """In any case of letters; the refusal says the use, and names all where it is allowed."""
    for use, spelled in itertools.product(Use, (option, option.upper())):
        if use in OPTIONS[option]:
            feed = {"readChangeFeed": "true"} if option in BOUNDS and use in READS else {}
            assert known_options({spelled: "x", **feed}, use) == {option: "x", **feed}
            if feed:
                with pytest.raises(InvalidArgumentError, match="needs readChangeFeed=true"):
                    known_options({spelled: "x"}, use)
        else:
            with pytest.raises(InvalidArgumentError, match=f"option {option} has no meaning") as e:
                known_options({spelled: "x"}, use)
            assert all(each.value in str(e.value) for each in (use, *OPTIONS[option]))


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("brnch", "branch"), ("SNAPSHOTID_", "snapshotId"), ("commit_user", "commitUser")],
)
def test_an_unknown_option_is_refused_with_the_nearest_in_every_use(given, nearest):
    for use in Use:
        with pytest.raises(InvalidArgumentError, match=f"did you mean '{nearest}'"):
            known_options({given: "x"}, use)


@pytest.mark.parametrize(
    ("given", "use", "said"),
    [
        ({"snapshotId": "-1"}, Use.READ, "integer of 0 or more"),
        ({"snapshotId": "1", "tag": "a"}, Use.READ, "snapshotId and tag: expected one"),
        ({"tag": "a", "branch": "b"}, Use.READ, "tag and branch: expected one"),
        ({"commitUser": "a"}, Use.WRITE, "needs both or neither, found only commitUser"),
        ({"commitIdentifier": "1"}, Use.WRITE, "found only commitIdentifier"),
        ({"replaceWhere": "id = 1", "partitionOverwriteMode": "dynamic"}, Use.WRITE, "one of them"),
        ({"maxFilesPerTrigger": "0"}, Use.STREAM_READ, "integer of 1 or more"),
        ({"maxFilesPerTrigger": "1_0"}, Use.STREAM_READ, "integer of 1 or more"),
        ({"startingSnapshotId": "-1"}, Use.STREAM_READ, "integer of 0 or more"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(given, use, said):
    with pytest.raises(InvalidArgumentError, match=said):
        parse_options({"path": "t", **given}, use)


def test_the_format_checks_its_options_for_what_it_is_used_for(path):
    """What both kinds of reads refuse is refused with the schema; the rest with the reader."""
    schema = spark_schema(SCHEMA, where="test")
    with pytest.raises(InvalidArgumentError, match="option commitUser has no meaning"):
        FermionDataSource({"path": path, "commitUser": "me"}).schema()
    stream = FermionDataSource({"path": path, "skipRewrites": "true"})
    stream.schema()
    assert isinstance(stream.streamReader(schema), FermionStreamReader)
    with pytest.raises(InvalidArgumentError, match="option skipRewrites has no meaning"):
        stream.reader(schema)
    batch = FermionDataSource({"path": path, "snapshotId": "1"})
    batch.schema()
    assert isinstance(batch.reader(schema), FermionReader)
    with pytest.raises(InvalidArgumentError, match="startingSnapshotId says where a stream begins"):
        batch.streamReader(schema)
    for make in (lambda: batch.writer(schema, True), lambda: batch.streamWriter(schema, False)):
        with pytest.raises(InvalidArgumentError, match="option snapshotId has no meaning"):
            make()
    with pytest.raises(InvalidArgumentError, match="option mergeSchema has no meaning"):
        FermionDataSource({"path": path, "mergeSchema": "true"}).streamWriter(schema, False)


@pytest.mark.parametrize(
    ("options", "overwrite", "left"),
    [
        ({}, False, [1, 2, 11, 12]),
        ({}, True, [12]),
        ({"replaceWhere": "id < 2"}, True, [2, 11, 12]),
        ({"partitionOverwriteMode": "dynamic"}, True, [1, 2, 12]),
        ({"mergeSchema": "true"}, False, [1, 2, 11, 12]),
        ({"mergeSchema": "true"}, True, [12]),
    ],
)
def test_a_write_to_a_branch_changes_that_branch_alone(path, options, overwrite, left):
    """The writer's three steps run here, as Spark runs them in the driver and the tasks."""
    source = FermionDataSource({"path": path, "branch": "dev", **options})
    writer = source.writer(spark_schema(SCHEMA, where="test"), overwrite)
    writer.commit([writer.write(iter(rows(12).to_batches()))])
    assert ids(path, "dev") == left
    assert ids(path, "main") == [1, 2, 11, 21]
    assert Table.open(path).snapshot.id == 2


def test_a_branch_that_does_not_exist_is_an_error_in_every_use(path):
    schema = spark_schema(SCHEMA, where="test")
    source = FermionDataSource({"path": path, "branch": "other"})
    for make in (
        source.schema,
        lambda: source.reader(schema),
        lambda: source.writer(schema, False),
        lambda: source.writer(schema, True),
        lambda: source.streamWriter(schema, False),
    ):
        with pytest.raises(VersionNotFound, match="no branch 'other'"):
            make()
    with pytest.raises(InvalidArgumentError, match="branch name ''"):
        FermionDataSource({"path": path, "branch": ""}).schema()


def test_options_choose_the_snapshot_that_a_catalog_reads(path):
    def chosen(**options: str) -> tuple[str, int]:
        found = open_version(parse_options({"path": path, **options}))
        return found.branch, found.snapshot.id

    assert chosen() == ("main", 2)
    assert chosen(snapshotId="0") == ("main", 0)
    assert chosen(tag="first") == ("main", 1)
    assert chosen(branch="dev") == ("dev", 1)
    with pytest.raises(InvalidArgumentError, match="tag and branch"):
        scan_of(SourceOptions(path=path, tag="first", branch="dev"))
    with pytest.raises(VersionNotFound, match="no tag 'dev'"):
        chosen(tag="dev")


def test_storage_options_are_handed_on_as_json_or_refused_without_their_values():
    assert table_options("s3://b/t", None) == {"path": "s3://b/t"}
    handed = table_options("s3://b/t", {"key": "k", "client_kwargs": {"verify": False}})
    assert parse_options(handed).storage_options == {"key": "k", "client_kwargs": {"verify": False}}
    with pytest.raises(InvalidArgumentError, match="have to be JSON") as caught:
        table_options("s3://b/t", {"key": b"hunter2"})
    assert "hunter2" not in str(caught.value)
