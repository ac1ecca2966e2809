"""Options of queries on a catalog's tables: they choose what is read and written, or are errors."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion_table import Table
from spark_ext.versions import OPTIONS_OF_TABLES
from tests.kit.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(OPTIONS_OF_TABLES)]


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory) -> str:
    """`optional.t`: id 1, which is also tag ``first`` and branch ``dev``, then id 2, column x."""
    directory = tmp_path_factory.mktemp("warehouse")
    spark_ext.install_catalog(spark, "optional", directory)
    made = str(directory / "t")
    table = Table.create(made, pa.schema([("id", pa.int64())]))
    table.append({"id": [1]})
    table.tags.create("first")
    table.branches.create("dev")
    table.append({"id": [2]})
    table.add_columns({"x": pa.int64()})
    return made


def ids(path: str, branch: str) -> list[int]:
    found = Table.open(path, branch=branch).scan(columns=["id"]).to_arrow()
    return sorted(found["id"].to_pylist())


def test_options_of_a_catalog_read_choose_the_snapshot_or_are_refused(spark, path):
    """Rows, counts from metadata, columns of that snapshot, and one query over two of them."""

    def read(**options: object):
        return spark.read.options(**options).table("optional.t")

    for options, rows in (
        ({"snapshotId": 0}, []),
        ({"tag": "first"}, [(1,)]),
        ({"BRANCH": "dev"}, [(1,)]),
        ({"asOf": "2999-01-01"}, [(1, None), (2, None)]),
        ({"branch": "dev", "filter": "id = 2"}, []),
    ):
        assert sorted(map(tuple, read(**options).collect())) == rows
        assert read(**options).count() == len(rows)
    assert read(snapshotId=1).join(read(), "id", "full").count() == 2

    for options, said in (
        ({"columns": "id"}, "columns has no meaning.*the query names the columns"),
        ({"maxFilesPerTrigger": 1}, "maxFilesPerTrigger has no meaning in a batch read of"),
        ({"commitUser": "me"}, "commitUser has no meaning"),
        ({"brnch": "dev"}, "did you mean 'branch'"),
        ({"branch": "other"}, "no branch 'other'"),
        ({"snapshotId": 7}, "snapshot 7"),
    ):
        for query in ("SELECT *", "SELECT count(*)"):  # the second is answered from metadata
            given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
            with pytest.raises(PySparkException, match=said):
                spark.sql(f"{query} FROM optional.t WITH ({given})").collect()
    with pytest.raises(PySparkException, match="AS OF with options"):
        spark.sql("SELECT * FROM optional.t VERSION AS OF 1 WITH ('branch' = 'dev')")


def test_the_option_branch_of_a_catalog_write_writes_to_that_branch_or_the_write_is_refused(
    spark, path
):
    main = ids(path, "main")
    frame = spark.range(10, 12)
    frame.writeTo("optional.t").option("branch", "dev").append()
    assert ids(path, "dev") == [1, 10, 11]
    writer = spark.range(12, 13).writeTo("optional.t").option("branch", "dev")
    writer.overwrite(functions.col("id") >= 10)
    assert ids(path, "dev") == [1, 12]
    frame.write.mode("overwrite").option("branch", "dev").insertInto("optional.t")
    assert ids(path, "dev") == [10, 11]
    before = Table.open(path, branch="dev").snapshot.id
    for option, value, said in (
        ("branch", "other", "no branch 'other'"),
        ("snapshotId", 1, "option snapshotId has no meaning"),
        ("brnch", "dev", "did you mean 'branch'"),
        ("commitUser", "me", "needs both or neither, found only commitUser"),
    ):
        with pytest.raises(PySparkException, match=said):
            frame.writeTo("optional.t").options(**{"branch": "dev", option: value}).append()
    assert Table.open(path, branch="dev").snapshot.id == before
    commit = "'branch' = 'dev', 'commitUser' = 'me', 'commitIdentifier' = "
    spark.sql(f"DELETE FROM optional.t WITH ({commit} '1') WHERE id = 10")  # by the driver
    spark.sql(f"UPDATE optional.t WITH ({commit} '2') SET id = 12 WHERE id = 11")
    assert ids(path, "dev") == [12]
    commits = Table.open(path, branch="dev").snapshots()[-2:]
    assert [each.commit_identifier for each in commits] == ["1", "2"]
    assert ids(path, "main") == main


@pytest.mark.long
def test_tables_of_a_catalog_are_read_and_written_as_streams(spark, path, tmp_path):
    """`readStream.table` and `toTable`, with options: the rows of one branch, each once."""
    source = Table.create(f"{path}_from", pa.schema([("id", pa.int64())]))
    source.append({"id": [1, 2]})
    source.branches.create("dev")
    source.append({"id": [3]})
    Table.open(source.location, branch="dev").append({"id": [4]})
    target = Table.create(f"{path}_to", pa.schema([("id", pa.int64())]))
    target.branches.create("copy")

    def copy(**options: object) -> None:
        stream = spark.readStream.options(**options).table("optional.t_from")
        writer = (
            stream.writeStream.trigger(availableNow=True).queryName("q").option("branch", "copy")
        )
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.toTable("optional.t_to").awaitTermination(120)

    copy(branch="dev", filter="id <> 1")
    assert ids(target.location, "copy") == [2, 4]
    Table.open(source.location, branch="dev").append({"id": [5, 1]})
    copy(branch="dev", filter="id <> 1")
    assert ids(target.location, "copy") == [2, 4, 5]
    assert ids(target.location, "main") == []
    with pytest.raises(PySparkException, match="startingSnapshotId says where a stream begins"):
        copy(snapshotId=0)
