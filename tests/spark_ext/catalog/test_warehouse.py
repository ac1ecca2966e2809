"""Dropping tables and namespaces: only what is the tables' goes, and tables hold nothing else."""

from __future__ import annotations

import logging

import pytest
from pyspark.errors import AnalysisException, PySparkException

import spark_ext
from fermion_table import Table
from spark_ext.types import exchange_schema

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `drops`."""
    directory = tmp_path_factory.mktemp("drops")
    spark_ext.install_catalog(spark, "drops", directory)
    return directory


@pytest.fixture
def table(spark, warehouse):
    """`drops.db.t`, with a row."""
    schema = exchange_schema(spark.range(1).schema)
    table = Table.create(warehouse / "db" / "t", schema, mode="overwrite")
    table.append({"id": [1]})
    return table


def test_nothing_is_made_inside_a_table(spark, warehouse, table):
    """Neither tables nor namespaces; and a table's own folders are no namespaces."""
    before = sorted((warehouse / "db").rglob("*"))
    for statement in (
        "CREATE TABLE drops.db.t.inner (a INT)",
        "CREATE OR REPLACE TABLE drops.db.t.data AS SELECT 1 AS a",
        "CREATE TABLE drops.db (a INT)",
        "CREATE NAMESPACE drops.db.t.space",
        "CREATE NAMESPACE drops.db.t.data.space",
    ):
        with pytest.raises(PySparkException, match=r"lies inside|anything else"):
            spark.sql(statement)
    for statement in ("DROP NAMESPACE drops.db.t.data CASCADE", "SHOW TABLES IN drops.db.t.data"):
        with pytest.raises(AnalysisException, match="NOT_FOUND"):
            spark.sql(statement)
    assert sorted((warehouse / "db").rglob("*")) == before


def test_dropping_a_table_leaves_what_is_not_its_own(spark, warehouse, table, tmp_path, caplog):
    """Files and folders among its own, and what a link leads to; a warning names them."""
    root = warehouse / "db" / "t"
    (tmp_path / "mine.txt").write_text("mine")
    (root / "data" / "notes.txt").write_text("mine")
    (root / "own").mkdir()
    (root / "data" / "link").symlink_to(tmp_path, target_is_directory=True)
    with caplog.at_level(logging.WARNING):
        spark.sql("DROP TABLE drops.db.t")
    assert "data/link, data/notes.txt, own" in caplog.text
    assert (tmp_path / "mine.txt").read_text() == (root / "data" / "notes.txt").read_text()
    assert sorted(path.name for path in root.rglob("*")) == ["data", "link", "notes.txt", "own"]
    (warehouse / "linked").symlink_to(warehouse / "other", target_is_directory=True)
    spark.sql("CREATE TABLE drops.other.t AS SELECT 1 AS a")
    for statement in ("DROP TABLE drops.linked.t", "DROP NAMESPACE drops.linked CASCADE"):
        with pytest.raises(PySparkException, match="symbolic link"):
            spark.sql(statement)
    assert spark.table("drops.other.t").count() == 1


def test_a_namespace_with_foreign_files_is_not_dropped_at_all(spark, warehouse):
    """Wherever they lie: beside the tables, or inside one. Without them it goes."""
    spark.sql("CREATE TABLE drops.space.inner.t AS SELECT 1 AS a")
    for name in ("space/notes.txt", "space/inner/t/data/notes.txt"):
        (warehouse / name).write_text("mine")
        with pytest.raises(PySparkException, match=f"{name} belong to no table"):
            spark.sql("DROP NAMESPACE drops.space CASCADE")
        assert spark.table("drops.space.inner.t").count() == 1
        (warehouse / name).unlink()
    with pytest.raises(PySparkException, match="own directory can't be dropped"):
        spark.sql("DROP NAMESPACE drops CASCADE")
    spark.sql("DROP NAMESPACE drops.space CASCADE")
    assert not (warehouse / "space").exists()


def test_a_table_with_clones_is_not_dropped_by_spark(spark, warehouse):
    """The error names the clone; a namespace stays only for clones elsewhere."""
    spark.sql("CREATE TABLE drops.origin.t AS SELECT 1 AS a")
    table = Table.open(warehouse / "origin" / "t")
    inside = table.clone(warehouse / "origin" / "inside")
    outside = table.clone(warehouse / "elsewhere" / "outside")
    for statement in ("DROP TABLE drops.origin.t", "DROP TABLE drops.origin.t PURGE"):
        with pytest.raises(PySparkException, match=r"outside.*inside.*ignore_clones"):
            spark.sql(statement)
    with pytest.raises(PySparkException, match=r"origin\.t.*outside; drop these first"):
        spark.sql("DROP NAMESPACE drops.origin CASCADE")
    assert spark.table("drops.origin.t").count() == spark.table("drops.origin.inside").count() == 1
    spark.sql("DROP TABLE drops.elsewhere.outside")
    assert not Table.exists(outside.location)
    spark.sql("DROP NAMESPACE drops.origin CASCADE")
    assert not Table.exists(table.location)
    assert not Table.exists(inside.location)
