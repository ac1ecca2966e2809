"""Names of tables in SQL: RENAME, LOCATION, and formats and keys of what gets a name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import spark_ext
from fermion_table import Table


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `named`."""
    directory = tmp_path_factory.mktemp("named")
    spark_ext.install_catalog(spark, "named", directory)
    return directory


def tables(spark, space: str) -> list[str]:
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN named.{space}").collect())


def test_sql_renames_a_table(spark, warehouse):
    """Every spelling of the new name; a view and a cached frame of the old name; then CREATE."""
    spark.sql("CREATE TABLE named.db.t AS SELECT 1 AS a")
    for place, new, found in (
        ("db", "u", "db.u"),
        ("db.u", "other.v", "other.v"),
        ("other.v", "named.db.w", "db.w"),
    ):
        old = "db.t" if place == "db" else place
        spark.sql(f"ALTER TABLE named.{old} RENAME TO {new}")
        assert spark.table(f"named.{found}").collect() == [(1,)]
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.table(f"named.{old}")
    for statement, said in (
        ("ALTER TABLE named.db.w RENAME TO spark_catalog.default.w", "can't move from catalog"),
        ("ALTER TABLE named.db.none RENAME TO w2", "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.sql(statement)
    spark.sql("CREATE TABLE named.db.t AS SELECT 2 AS a")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("ALTER TABLE named.db.t RENAME TO w")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE TABLE named.db.w (a INT)")
    spark.sql("INSERT INTO named.db.w VALUES (3)")
    spark.sql("CREATE OR REPLACE TABLE named.db.t AS SELECT a + 1 AS b FROM named.db.w")
    assert sorted(spark.table("named.db.t").collect()) == [(2,), (4,)]
    assert spark.sql("SELECT count(*) FROM named.db.w.snapshots").collect() == [(3,)]
    assert tables(spark, "db") == ["t", "w"]
    spark.sql("DROP TABLE named.db.t")
    spark.sql("DROP TABLE named.db.w")
    assert tables(spark, "db") == []
    assert not [path for path in warehouse.rglob("*.fermion") if "_catalog" not in path.parts]


def test_sql_registers_a_table_elsewhere_or_makes_it_there(spark, warehouse, tmp_path):
    made = Table.create(tmp_path / "r", pa.schema([("a", pa.int32())]), partition_by=["a"])
    made.append({"a": [1]})
    there = f"LOCATION '{tmp_path}/r'"
    spark.sql(f"CREATE TABLE named.ext.r {there}")
    spark.sql("INSERT INTO named.ext.r VALUES (2)")
    assert made.refresh().totals.rows == 2
    (shown,) = spark.sql("SHOW CREATE TABLE named.ext.r").collect()[0]
    assert there in shown
    for statement, said in (
        ("CREATE TABLE named.ext.s (a INT) LOCATION 's3://key:secret@b/t'", "storage_options"),
        (f"CREATE TABLE named.ext.s (a INT) LOCATION 'file:{warehouse}/x'", "in the warehouse"),
        (f"CREATE TABLE named.ext.s (a STRING) {there}", "columns: expected"),
        (
            f"CREATE TABLE named.ext.s (a INT) PARTITIONED BY (bucket(2, a)) {there}",
            "PARTITIONED BY: expected",
        ),
        (
            f"CREATE TABLE named.ext.s TBLPROPERTIES ('x.x' = '1') {there}",
            "property x.x: expected 1",
        ),
        (f"CREATE TABLE named.ext.s {there} AS SELECT 1 AS a", "exists here"),
        (
            f"CREATE OR REPLACE TABLE named.ext.s {there} AS SELECT 1 AS a",
            "exists here",
        ),
        (
            f"CREATE OR REPLACE TABLE named.ext.r LOCATION '{tmp_path}/s' AS SELECT 1 AS a",
            "the table lies in",
        ),
        (f"ALTER TABLE named.ext.r SET LOCATION '{tmp_path}/s'", "location can't be set"),
        ("DROP TABLE named.ext.r PURGE", "is registered"),
    ):
        with pytest.raises(PySparkException, match=said) as caught:
            spark.sql(statement)
        assert "secret" not in str(caught.value)
    query = "AS SELECT * FROM named.ext.r"
    spark.sql(f"CREATE OR REPLACE TABLE named.ext.r PARTITIONED BY (a) {there} {query}")
    spark.sql("DROP TABLE named.ext.r")
    assert made.refresh().totals.rows == 2
    spark.sql(shown)
    assert spark.table("named.ext.r").count() == 2
    spark.sql(f"CREATE TABLE named.ext.new (a INT) LOCATION '{tmp_path}/a b/new'")
    spark.sql(f"CREATE TABLE named.ext.rows LOCATION '{tmp_path}/rows' AS SELECT 7 AS a")
    spark.sql("ALTER TABLE named.ext.rows RENAME TO named.ext.rows2")
    assert spark.table("named.ext.rows2").collect() == [(7,)]
    assert Table.exists(tmp_path / "a b" / "new")
    assert tables(spark, "ext") == ["new", "r", "rows2"]
    spark.sql("DROP NAMESPACE named.ext CASCADE")
    assert [Table.exists(tmp_path / each) for each in ("r", "rows", "a b/new")] == [True] * 3


def test_tables_of_another_format_are_refused(spark, warehouse):
    """But Spark itself names its default format where the user has named none."""
    for statement, said in (
        ("CREATE TABLE named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE TABLE IF NOT EXISTS named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE TABLE named.db.p USING parquet AS SELECT 1 AS a", "USING parquet"),
        ("CREATE OR REPLACE TABLE named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE OR REPLACE TABLE named.db.p USING delta AS SELECT 1 AS a", "USING delta"),
        ("CREATE TABLE named.db.p (a INT) STORED AS ORC", "STORED AS ORC"),
        ("CREATE TABLE named.db.p (a INT) ROW FORMAT SERDE 'x'", "STORED AS x"),
    ):
        with pytest.raises(PySparkException, match=f"{said}: this catalog has fermion tables only"):
            spark.sql(statement)
    with pytest.raises(PySparkException, match="USING orc"):
        spark.range(1).write.format("orc").saveAsTable("named.db.p")
    assert not Table.exists(warehouse / "db" / "p")
    spark.catalog.createTable("named.db.p2", schema=spark.range(1).schema)
    spark.sql("SELECT 1 AS id").write.saveAsTable("named.db.p")
    spark.range(2).write.format("fermion").mode("overwrite").saveAsTable("named.db.p")
    spark.sql("CREATE OR REPLACE TABLE named.db.p USING Fermion AS SELECT 1 AS a")
    spark.sql("DROP TABLE named.db.p")


def test_a_primary_key_is_a_property_and_create_table_like_copies_it(spark, warehouse):
    spark.sql(
        "CREATE TABLE named.db.k (id BIGINT, day DATE, v INT COMMENT 'words') "
        "PARTITIONED BY (day) TBLPROPERTIES ('primary_key' = 'id, day', 'bucket' = '2')"
    )
    spark.sql("INSERT INTO named.db.k VALUES (1, date'2026-01-01', 1)")
    spark.sql("INSERT INTO named.db.k VALUES (1, date'2026-01-01', 2)")
    assert [row.v for row in spark.table("named.db.k").collect()] == [2]
    spark.sql("CREATE TABLE named.db.like LIKE named.db.k TBLPROPERTIES ('bucket' = '4')")
    like, made = (Table.open(warehouse / "db" / name) for name in ("like", "k"))
    assert like.schema.to_arrow() == made.schema.to_arrow()
    assert like.schema.primary_key == made.schema.primary_key
    assert like.schema.partition_by == made.schema.partition_by
    assert (like.properties["bucket"], like.scan().count()) == ("4", 0)
    for statement in (
        "SET TBLPROPERTIES ('primary_key' = 'id')",
        "UNSET TBLPROPERTIES ('sort_by')",
    ):
        with pytest.raises(PySparkException, match="is chosen by CREATE TABLE"):
            spark.sql(f"ALTER TABLE named.db.k {statement}")
    spark.sql("CREATE TABLE named.db.rows TBLPROPERTIES ('primary_key' = 'a') AS SELECT 1 AS a")
    assert Table.open(warehouse / "db" / "rows").schema.primary_key
    with pytest.raises(PySparkException, match="USING parquet"):
        spark.sql("CREATE TABLE named.db.l2 LIKE named.db.k USING parquet")
