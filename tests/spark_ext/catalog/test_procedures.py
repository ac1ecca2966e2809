"""Procedures of a catalog: arguments, results, errors, and what they do to the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Table, drop_table
from spark_ext.catalog.procedures import PROCEDURES
from spark_ext.versions import LISTED_PROCEDURES
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `procs`."""
    directory = tmp_path_factory.mktemp("procs")
    spark_ext.install_catalog(spark, "procs", directory)
    return directory


@pytest.fixture
def table(warehouse):
    """`procs.db.t`, with four small files and ids 0 to 3."""
    table = Table.create(warehouse / "db" / "t", pa.schema([("id", pa.int64())]), mode="overwrite")
    for number in range(4):
        table.append({"id": [number]})
    yield table
    drop_table(table.location)


def call(spark, arguments: str) -> dict:
    (row,) = spark.sql(f"CALL procs.system.{arguments}").collect()
    return row.asDict()


def test_compact_is_a_spark_job_that_takes_arguments_of_every_type(spark, table):
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    planned = call(spark, "compact('db.t', dry_run => true)")
    assert (planned["dry_run"], planned["files_before"], planned["snapshots"]) == (True, 4, [])
    done = call(
        spark,
        "compact(sort_by => array('id'), min_input_files => 2, target_size => '1MB', "
        "max_groups_per_commit => 1, where => 'id >= 0', table => 'procs.db.t')",
    )
    assert (done["files_before"], done["files_after"], done["rows"]) == (4, 1, 4)
    assert done["snapshots"] == [table.refresh().id]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) > jobs
    assert spark.sql("SELECT id FROM procs.db.t").count() == 4


def test_tags_and_branches_are_made_read_and_deleted(spark, table):
    newest = table.snapshot.id
    assert call(spark, "create_tag('db.t', 'v1')") == {"tag": "v1", "snapshot_id": newest}
    call(spark, "create_tag('`procs`.db.t', 'v0', '1', keep_days => 7, message => 'why')")
    kept = {tag.name: tag for tag in table.tags.list()}
    assert (kept["v0"].snapshot_id, kept["v0"].message, kept["v1"].expires_ms) == (1, "why", None)
    assert kept["v0"].expires_ms - kept["v0"].created_ms == timedelta(days=7) / timedelta(
        milliseconds=1
    )
    assert call(spark, "create_branch('db.t', 'dev', version => 'v0')")["snapshot_id"] == 1
    spark_ext.append(spark.range(10, 12), table.location, branch="dev")
    for version, rows in (("v0", 1), ("v1", 4), ("dev", 3), ("main", 4), ("main~1", 3)):
        read = spark.sql(f"SELECT count(*) FROM procs.db.t VERSION AS OF '{version}'")
        assert read.collect() == [(rows,)], version
    with pytest.raises(PySparkException, match="'main' can't be moved"):
        call(spark, "fast_forward('db.t', 'dev')")
    with pytest.raises(PySparkException, match="'v1' is a tag"):
        call(spark, "create_branch('db.t', 'v1')")
    with pytest.raises(PySparkException, match="'dev' is a branch"):
        call(spark, "create_tag('db.t', 'dev')")
    assert call(spark, "delete_branch('db.t', 'dev')") == {"branch": "dev"}
    call(spark, "create_branch('db.t', 'next')")
    spark_ext.append(spark.range(20, 21), table.location, branch="next")
    moved = call(spark, "fast_forward('db.t', 'next', message => 'release')")
    assert moved == {"branch": "main", "snapshot_id": newest + 1}
    assert table.refresh().message == "release"
    assert call(spark, "delete_tag('db.t', 'v0')") == {"tag": "v0"}
    with pytest.raises(PySparkException, match="no tag 'v0'"):
        call(spark, "delete_tag('db.t', 'v0')")


def test_going_back_and_cleaning_up(spark, table):
    newest = table.snapshot.id
    moved = call(spark, "rollback_to_snapshot('db.t', 2)")
    assert moved == {"previous_snapshot_id": newest, "current_snapshot_id": newest + 1}
    assert spark.table("procs.db.t").count() == 2
    call(spark, "restore('db.t', 'main~1', message => 'forward')")
    assert (spark.table("procs.db.t").count(), table.refresh().message) == (4, "forward")
    table.delete("id = 0")

    kept = call(spark, "expire_snapshots('db.t')")
    assert (kept["snapshots"], kept["dry_run"]) == (0, False)
    planned = call(spark, "expire_snapshots('db.t', current_timestamp(), 1, true)")
    assert (planned["snapshots"] > 3, planned["dry_run"]) == (True, True)
    assert len(table.snapshots()) == table.snapshot.id + 1
    done = call(spark, "expire_snapshots('db.t', retain_last => 1, older_than => now())")
    assert (done["snapshots"], done["paths"]) == (planned["snapshots"], planned["paths"])
    assert len(planned["paths"]) == planned["data_files"] == 1
    assert len(table.snapshots()) < 3

    orphan = f"{table.location}/data/{'0' * 32}.fermion"
    with open(orphan, "wb") as stream:
        stream.write(b"x")
    later = f"TIMESTAMP '{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%d %H:%M:%S}Z'"
    assert call(spark, "remove_orphan_files('db.t')")["paths"] == []
    removal = f"remove_orphan_files(table => 'db.t', older_than => {later}"
    assert call(spark, removal + ", dry_run => true)")["data_files"] == 1
    done = call(spark, removal + ")")
    assert (done["paths"], done["bytes"]) == ([f"data/{'0' * 32}.fermion"], 1)


@needs(LISTED_PROCEDURES)
def test_procedures_are_shown_and_described(spark, table):
    for place in ("procs", "procs.system"):
        rows = spark.sql(f"SHOW PROCEDURES IN {place}").collect()
        assert [row.procedure_name for row in rows] == list(PROCEDURES)
    described = spark.sql("DESCRIBE PROCEDURE procs.system.Compact").collect()
    assert "in a Spark job" in described[1][0]
    catalog = spark.catalog.currentCatalog()
    try:
        spark.sql("USE procs.db")
        assert spark.sql("CALL system.create_tag('t', 'here')").collect()[0].tag == "here"
    finally:
        spark.catalog.setCurrentCatalog(catalog)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("system.compakt('db.t')", r"no procedure system\.compakt; there are system\.compact, "),
        ("other.compact('db.t')", r"no procedure other\.compact"),
        ("system.compact()", "parameter named `table` is required"),
        ("system.compact(NULL)", "argument table: expected a value, found NULL"),
        ("system.compact('db.none')", "TableNotFound: .*db/none"),
        ("system.compact('db.t', tabel => 'x')", "argument named `tabel`.*`table`"),
        ("system.compact('db.t', full => 'perhaps')", r"'perhaps'.*BOOLEAN"),
        ("system.compact('db.t', full => NULL)", "argument full: expected a value"),
        ("system.compact('db.t', min_input_files => 1)", "min_input_files=1: expected at least 2"),
        ("system.compact('db.t', target_size => 'big')", "target_size='big'"),
        ("system.compact('db.t', where => 'no = 1')", "'no'"),
        ("system.compact('db.t', sort_by => array('id', NULL))", "sort_by: expected no NULL"),
        ("system.compact('db.t', '1', '2', 3, array('id'), true, 1, true, 4)", "8] parameters"),
        ("system.create_tag('db.t', '1')", "'1'"),
        ("system.create_tag('db.t', 'v', keep_days => 0)", "keep_days=0: expected at least 1"),
        ("system.expire_snapshots('db.t', retain_last => 0)", "retain_last"),
        ("system.rollback_to_snapshot('db.t', 99)", "no snapshot 99"),
        ("system.rollback_to_snapshot('db.t', 'x')", "'x'.*BIGINT"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_does_nothing(spark, table, statement, said):
    before = table.snapshot.id
    with pytest.raises(PySparkException, match=f"(?s){said}"):
        spark.sql(f"CALL procs.{statement}")
    assert table.refresh().id == before
