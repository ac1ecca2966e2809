"""`spark_ext.merge`: the clauses of `Table.merge`, as a join of Spark and tasks that write."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import CommitConflict, SchemaMismatch, Table, lit
from spark_ext.jobs import merge as job
from spark_ext.merging import builder as run
from tests.kit.spark.merging_rows import KEYED, PLAIN, content, make_target, source_rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def source(spark):
    return spark.createDataFrame(
        [tuple(row.values()) for row in source_rows()], "key long, part string, n int, text string"
    )


def merged_by_table(table: Table):
    """All clauses by `Table.merge`."""
    n, low = pc.field("source", "n"), pc.field("target", "id") < 14
    rows = pa.Table.from_pylist(source_rows()).cast(
        pa.schema([("key", "int64"), ("part", "string"), ("n", "int32"), ("text", "string")])
    )
    return (
        table.merge(rows, on={"id": "key"})
        .when_matched_delete("source.n IS NULL")
        .when_matched_update({"n": pc.add(n, pc.field("target", "id").cast("int32"))}, low)
        .when_matched_update(condition=pc.field("target", "id") < 19)
        .when_not_matched_insert({"id": "source.key", "text": lit("new")}, n > 125)
        .when_not_matched_insert(condition=n < 124)
        .when_not_matched_by_source_delete(pc.field("target", "id") == 1)
        .when_not_matched_by_source_update({"text": "target.part"}, pc.field("target", "id") < 4)
        .execute()
    )


def merged_by_spark(spark, table: Table, source):
    """The same by SQL expressions."""
    return (
        spark_ext.merge(spark, table.location, source, on={"id": "key"})
        .when_matched_delete("source.n IS NULL")
        .when_matched_update({"n": "source.n + cast(target.id AS int)"}, "target.id < 14")
        .when_matched_update(condition=functions.col("target.id") < 19)
        .when_not_matched_insert({"id": "source.key", "text": lit("new")}, "source.n > 125")
        .when_not_matched_insert(condition="source.n < 124")
        .when_not_matched_by_source_delete("target.id = 1")
        .when_not_matched_by_source_update({"text": "target.part"}, "target.id < 4")
        .execute()
    )


@pytest.mark.parametrize("is_upsert", [False, True])
def test_a_row_that_a_deletion_of_a_later_sequence_hides_is_not_counted_as_inserted(
    spark, tmp_path, is_upsert
):
    """Keys 1 and 2 are new, and of 1 a deletion is there already; with key 3 all is as ever."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
    settings = {"sequence.field": "at", "bucket": "1"}
    table = Table.create(tmp_path / "t", schema, primary_key="id", properties=settings)
    old = {"id": [1, 3], "at": [10, 1], "v": [0, 0], "op": ["-D", "+I"]}
    table.upsert(old, change_type="op")
    source = spark.createDataFrame([(1, 5, 1), (2, 5, 1), (3, 5, 1)], "id long, at long, v long")
    builder = spark_ext.merge(spark, table.location, source, on="id")
    condition = None if is_upsert else "source.v = 1"
    result = builder.when_matched_update(condition=condition).when_not_matched_insert().execute()
    table.refresh()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [2, 3]
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 0)


@pytest.mark.parametrize("options", [PLAIN, KEYED], ids=["append", "primary key"])
def test_a_merge_of_frames_is_that_of_the_table(spark, source, tmp_path, options):
    """The same rows, counts and kinds of commits."""
    one, other = make_target(tmp_path / "one", **options), make_target(tmp_path / "two", **options)
    expected, result = merged_by_table(one), merged_by_spark(spark, other, source)
    assert content(other) == content(one)
    for name in ("rows_inserted", "rows_updated", "rows_deleted"):
        assert getattr(result, name) == getattr(expected, name), name
    assert result.rows_inserted > 0 < result.rows_deleted
    assert (other.snapshot.kind, other.snapshot.id) == (one.snapshot.kind, one.snapshot.id)
    assert other.verify(data=True).ok
    pickle.loads(pickle.dumps(result))


def test_an_upsert_by_merge_reads_nothing_of_the_table(spark, source, tmp_path, monkeypatch):
    """It is counted when asked; a key that the source has twice is an error."""
    table = make_target(tmp_path / "t", **KEYED)
    before = content(table)
    rows = source.withColumnRenamed("key", "id")
    with monkeypatch.context() as patched:
        patched.setattr(run.FrameMerge, "target", lambda *_: 1 / 0)
        builder = spark_ext.merge(spark, table.location, rows, on="id")
        result = builder.when_matched_update().when_not_matched_insert().execute()
    replaced = {row["id"]: row for row in before} | {
        row["key"]: {"id": row["key"], **{k: v for k, v in row.items() if k != "key"}}
        for row in source_rows()
    }
    assert {row["id"]: row for row in content(table)} == replaced
    assert (result.rows_inserted, result.rows_updated) == (9, 11)
    twice = spark_ext.merge(spark, table.location, rows.union(rows.limit(1)), on="id")
    with pytest.raises(PySparkException, match="two rows of this statement have one key"):
        twice.when_matched_update().when_not_matched_insert().execute()


def test_a_merge_that_fails_leaves_nothing(spark, source, tmp_path):
    """An expression that fails in a task, and several rows of the source for one of the table."""
    table = make_target(tmp_path / "t")
    files = {file.name for file in (tmp_path / "t" / "data").iterdir()}
    doubled = source.union(source)
    for frame, value, said in (
        (source, "if(source.key = 15, raise_error('boom'), 1)", "boom"),
        (doubled, "source.n", "changed twice"),
    ):
        builder = spark_ext.merge(spark, table.location, frame, on={"id": "key"})
        with pytest.raises((PySparkException, InvalidArgumentError), match=said):
            builder.when_matched_update({"n": value}).execute()
    builder = spark_ext.merge(spark, table.location, doubled, on={"id": "key"})
    with pytest.raises((PySparkException, InvalidArgumentError), match="changed twice"):
        builder.when_matched_delete().execute()
    assert table.refresh().id == 3
    assert {file.name for file in (tmp_path / "t" / "data").iterdir()} == files


def test_a_merge_is_committed_once(spark, source, tmp_path, monkeypatch):
    """By its identity; and not after a commit that matters to it."""
    table = make_target(tmp_path / "t")

    def builder():
        named = {"commit_user": "job", "commit_identifier": 7, "message": "night"}
        made = spark_ext.merge(spark, table.location, source, on={"id": "key"}, **named)
        return made.when_matched_delete()

    first = builder().execute()
    assert first.rows_deleted == 11
    assert builder().execute().snapshot.id == first.snapshot.id == table.refresh().id
    assert table.snapshot.message == "night"
    run_changes = run.run_changes

    def late(*arguments, **named):
        done = run_changes(*arguments, **named)
        Table.open(table.location).append(pa.Table.from_pylist([{"id": 30}]))
        return done

    monkeypatch.setattr(run, "run_changes", late)
    merge = spark_ext.merge(spark, table.location, source, on={"id": "key"})
    with pytest.raises(CommitConflict, match="run the statement again"):
        merge.when_not_matched_insert({"id": "source.key"}).execute()


def test_wrong_arguments_are_named(spark, source, tmp_path):
    table = make_target(tmp_path / "t")

    def merge(on=("id",), frame=None):
        rows = source.withColumnRenamed("key", "id") if frame is None else frame
        return spark_ext.merge(spark, table.location, rows, on)

    for call, error, said in (
        (lambda: merge(on=[]), InvalidArgumentError, "on: expected at least one"),
        (lambda: merge(on="nowhere"), ColumnNotFoundError, "on: the table"),
        (lambda: merge(frame=source), ColumnNotFoundError, "on: the source"),
        (lambda: merge(frame=[1]), InvalidArgumentError, "merge: source"),
        (lambda: merge().execute(), InvalidArgumentError, "nothing to do"),
        (lambda: merge().when_matched_update({}), InvalidArgumentError, "set: expected"),
        (lambda: merge().when_matched_update({"x": "1"}), ColumnNotFoundError, "'x'"),
        (lambda: merge().when_matched_update({"n": "source.x"}), PySparkException, "source"),
        (lambda: merge().when_matched_delete("target.n"), InvalidArgumentError, "not boolean"),
        (lambda: merge().when_not_matched_by_source_update(None), InvalidArgumentError, "set=None"),
        (
            lambda: merge().when_matched_delete().when_matched_delete(),
            InvalidArgumentError,
            "takes every row",
        ),
        (
            lambda: merge(frame=source.selectExpr("key AS id")).when_matched_update(),
            SchemaMismatch,
            "the source has no column 'part'",
        ),
        (
            lambda: (
                merge(frame=source.selectExpr("*", "key AS id")).when_not_matched_insert().execute()
            ),
            SchemaMismatch,
            "no column 'key'",
        ),
    ):
        with pytest.raises(error, match=said):
            call()
    done = merge().when_not_matched_by_source_delete("target.id > 1000")
    assert "when_not_matched_by_source_delete" in repr(done)
    assert done.execute().snapshot.id == 3
    with pytest.raises(InvalidArgumentError, match="executed before"):
        done.execute()


def test_the_program_merges_files(spark, source, tmp_path):
    """Its clauses are arguments; a dry run checks them."""
    table = make_target(tmp_path / "t")
    source.write.parquet(str(tmp_path / "source"))
    arguments = [
        table.location,
        str(tmp_path / "source"),
        "--on=id=key",
        "--delete-when=source.n IS NULL",
        "--update-set=n=source.n",
        "--insert",
        "--delete-not-matched-by-source=target.id < 3",
        "--message=nightly",
    ]
    planned = job.merge(spark, job.parser().parse_args([*arguments, "--dry-run"]))
    assert planned["clauses"] == [
        "when_matched_delete",
        "when_matched_update",
        "when_not_matched_insert",
        "when_not_matched_by_source_delete",
    ]
    assert table.refresh().id == 3
    done = job.merge(spark, job.parser().parse_args(arguments))
    assert (done["rows_inserted"], done["rows_updated"], done["rows_deleted"]) == (9, 10, 4)
    assert table.refresh().message == "nightly"
