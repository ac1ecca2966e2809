"""The list of tables in a warehouse is true, whoever makes, renames and drops them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Catalog, Table
from fermion_table.engine import WarehouseNames

SCHEMA = pa.schema([("a", pa.int32())])


def test_a_table_that_another_client_lists_or_renames_first_is_left_alone(tmp_path, monkeypatch):
    """Between the moment when a table is there and the one when it gets its row."""
    catalog = Catalog.open(tmp_path)
    catalog.create_table("db.first", SCHEMA)
    directory = WarehouseNames(str(tmp_path))
    for name, meanwhile in (
        ("x", catalog.repair),
        ("y", lambda: catalog.rename_table("db.y", "db.z")),
    ):
        made = Table.create(directory.place(["db", name], None), SCHEMA)
        assert not directory.is_named(made.location)
        meanwhile()
        assert directory.is_named(made.location)
    directory.register(["db", "x"], f"{tmp_path}/db/x")
    assert catalog.tables() == ["db.first", "db.x", "db.z"]


@pytest.mark.long
@pytest.mark.spark
def test_the_list_of_the_catalog_and_that_of_spark_are_the_same(spark, tmp_path):
    """Also of tables that a statement makes together with their rows, without any repair."""
    spark_ext.install_catalog(spark, "both", tmp_path)
    catalog = Catalog.open(tmp_path)

    def listed() -> list[str]:
        spaces = [row.namespace for row in spark.sql("SHOW NAMESPACES IN both").collect()]
        assert spaces == catalog.namespaces()
        found = [
            f"{space}.{row.tableName}"
            for space in spaces
            for row in spark.sql(f"SHOW TABLES IN both.{space}").collect()
        ]
        assert sorted(found) == catalog.tables()
        assert spark.sql("SHOW TABLES IN both").collect() == []
        return catalog.tables()

    spark.sql("CREATE TABLE both.db.t0 (a INT)")
    assert listed() == ["db.t0"]  # of directories: there is no list yet
    catalog.create_table("db.python", SCHEMA).append({"a": [7]})
    assert (tmp_path / "_catalog").is_dir()
    assert spark.table("both.db.python").collect() == [(7,)]
    spark.sql("CREATE TABLE both.db.t1 (a INT)")
    spark.sql("CREATE TABLE both.db.t2 AS SELECT 1 AS a")
    spark.sql("CREATE OR REPLACE TABLE both.other.t3 AS SELECT 1 AS a")
    spark.sql("CREATE TABLE both.db.t4 LIKE both.db.t2")
    spark.range(1).writeTo("both.db.t5").create()
    spark.range(1).write.saveAsTable("both.db.t6")
    spark.sql(f"CREATE TABLE both.db.t7 (a INT) LOCATION '{tmp_path}/db/t7'")
    names = [f"db.t{number}" for number in (0, 1, 2, 4, 5, 6, 7)]
    assert listed() == ["db.python", *names, "other.t3"]
    assert not catalog.repair(dry_run=True).actions
    spark.sql("CREATE OR REPLACE TABLE both.db.t2 AS SELECT 2 AS b")
    spark.sql("ALTER TABLE both.db.t1 RENAME TO other.t1")
    catalog.rename_table("db.t0", "other.t0")
    spark.sql("CREATE TABLE both.db.t0 AS SELECT 5 AS a")  # its directory is taken
    for name in ("db.t4", "db.t5", "db.t6", "db.t7"):
        spark.sql(f"DROP TABLE both.{name}")
    catalog.drop_table("db.python")
    assert listed() == ["db.t0", "db.t2", "other.t0", "other.t1", "other.t3"]
    spark.sql("DROP NAMESPACE both.other CASCADE")
    assert listed() == ["db.t0", "db.t2"]
    for statement in (
        "SHOW TABLES IN both._catalog",
        "SELECT * FROM both._catalog.tables",
        "CREATE TABLE both._catalog (a INT)",
        "CREATE TABLE both._catalog.t (a INT)",
        "CREATE NAMESPACE both._catalog",
        "DROP NAMESPACE both._catalog CASCADE",
        "DROP TABLE both._catalog.tables",
    ):
        with pytest.raises(PySparkException, match="the catalog itself lies there"):
            spark.sql(statement).collect()
    assert listed() == ["db.t0", "db.t2"]
