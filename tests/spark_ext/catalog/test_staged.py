"""Replacing tables through the catalog: one snapshot, and nothing is lost when the query fails."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

import spark_ext
from fermion_table import Table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `swap`."""
    directory = tmp_path_factory.mktemp("swap")
    spark_ext.install_catalog(spark, "swap", directory)
    return directory


@pytest.fixture
def old(spark, warehouse):
    """`swap.t`: an append of ids 0 to 4 over a creation."""
    table = Table.create(
        warehouse / "t", spark_ext.types.exchange_schema(spark.range(1).schema), mode="overwrite"
    )
    table.append({"id": [0, 1, 2, 3, 4]})
    return table


def ids(spark, query):
    return sorted(row[0] for row in spark.sql(query).collect())


@pytest.mark.long
def test_a_table_is_replaced_by_a_query_that_reads_it(spark, old):
    """By SQL, `writeTo` and `saveAsTable`: each is one snapshot, and the history goes on."""
    uuid, before = old.snapshot.table_uuid, old.snapshot.id
    spark.sql(
        "CREATE OR REPLACE TABLE swap.t PARTITIONED BY (part) TBLPROPERTIES ('a.team' = 'us')"
        " AS SELECT id * 10 AS ten, id % 2 AS part FROM swap.t"
    )
    table = old.refresh() and old
    assert (table.snapshot.id, table.snapshot.kind) == (before + 1, "overwrite")
    assert table.snapshot.table_uuid == uuid
    assert table.properties == {"a.team": "us"}
    assert [each.name for each in table.schema.partition_by] == ["part"]
    assert ids(spark, "SELECT ten FROM swap.t WHERE part = 1") == [10, 30]
    assert ids(spark, f"SELECT id FROM swap.t VERSION AS OF {before}") == [0, 1, 2, 3, 4]
    frame = spark.table("swap.t").selectExpr("ten + 1 AS more")
    frame.writeTo("swap.t").option("commitUser", "me").option("commitIdentifier", "1").replace()
    assert ids(spark, "SELECT more FROM swap.t") == [1, 11, 21, 31, 41]
    spark.table("swap.t").where("more > 30").write.mode("overwrite").saveAsTable("swap.t")
    assert ids(spark, "SELECT more FROM swap.t") == [31, 41]
    spark.sql("REPLACE TABLE swap.t (other STRING)")
    assert ids(spark, "SELECT other FROM swap.t") == []
    kinds = [each.kind for each in table.refresh() and table.snapshots()[before + 1 :]]
    assert kinds == ["overwrite"] * 4
    assert table.snapshots()[before + 2].commit_user == "me"
    assert table.verify(data=True).ok


def test_a_query_that_fails_leaves_the_table_as_it_was(spark, warehouse, old):
    """Late, after rows that were good, and whether or not the table existed before."""
    before = old.snapshot.id
    files = {path for path in (warehouse / "t").rglob("*") if path.is_file()}
    bad = "SELECT if(id = 9, raise_error('no good'), id) AS id FROM range(0, 10, 1, 1)"
    failing = spark.sql(bad)
    for replace in (
        lambda: spark.sql(f"CREATE OR REPLACE TABLE swap.t AS {bad}"),
        lambda: failing.write.mode("overwrite").saveAsTable("swap.t"),
    ):
        with pytest.raises(PySparkException, match="no good"):
            replace()
    with pytest.raises(PySparkException, match="option mergeSchema has no meaning"):
        spark.range(3).writeTo("swap.t").option("mergeSchema", "true").replace()
    assert old.refresh().id == before
    assert ids(spark, "SELECT id FROM swap.t") == [0, 1, 2, 3, 4]
    assert {path for path in (warehouse / "t").rglob("*") if path.is_file()} == files
    with pytest.raises(PySparkException, match="no good"):
        spark.sql(f"CREATE OR REPLACE TABLE swap.broken AS {bad}")
    assert not (warehouse / "broken").exists()


def test_a_table_appears_with_its_rows(spark, warehouse):
    spark.sql("CREATE OR REPLACE TABLE swap.fresh AS SELECT id FROM range(4)")
    assert ids(spark, "SELECT id FROM swap.fresh") == [0, 1, 2, 3]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE TABLE swap.fresh AS SELECT 1 AS a")
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        spark.sql("REPLACE TABLE swap.nowhere AS SELECT 1 AS a")
    spark.sql("CREATE TABLE swap.empty AS SELECT id FROM range(4) WHERE id > 10")
    assert ids(spark, "SELECT id FROM swap.empty") == []
    assert Table.open(warehouse / "fresh").verify(data=True).ok
