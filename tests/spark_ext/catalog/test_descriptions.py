"""DESCRIBE and SHOW CREATE TABLE: what a table says of itself, as a statement that can be run."""

from __future__ import annotations

import pytest

import spark_ext
from fermion_table import Table

pytestmark = pytest.mark.spark


def test_show_create_table_prints_a_statement_that_makes_the_same_table(spark, tmp_path):
    """Columns, comments, NOT NULL, partitions, sort order and settings; DESCRIBE shows comments."""
    spark_ext.install_catalog(spark, "told", tmp_path)
    spark.sql(
        "CREATE TABLE told.t (id BIGINT NOT NULL COMMENT 'who', s STRUCT<x: INT COMMENT 'in it'>,"
        " at TIMESTAMP, kind STRING) PARTITIONED BY (kind, days(at), bucket(4, id))"
        " COMMENT 'words' TBLPROPERTIES ('sort_by' = 'at, id', 'target_file_size' = '64MB')"
    )
    first = Table.open(tmp_path / "t")
    shown = {tuple(row)[:3] for row in spark.sql("DESCRIBE TABLE EXTENDED told.t").collect()}
    assert ("id", "bigint", "who") in shown
    assert ("Comment", "words", "") in shown
    statement = spark.sql("SHOW CREATE TABLE told.t").collect()[0][0]
    spark.sql(statement.replace("told.t", "told.again", 1))
    second = Table.open(tmp_path / "again")
    assert second.schema.fields == first.schema.fields
    assert second.schema.partition_by == first.schema.partition_by
    assert second.schema.sort_by == first.schema.sort_by
    assert [first.schema.by_id[each].name for each in first.schema.sort_by] == ["at", "id"]
    assert second.properties == first.properties
    assert first.properties == {"comment": "words", "target_file_size": "64MB"}
