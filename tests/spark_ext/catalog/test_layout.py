"""Properties of CREATE TABLE that name columns, and statements that replace columns."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as st

import spark_ext
from fermion_table import Table
from spark_ext.catalog.descriptions import Description
from spark_ext.catalog.layout import names_text

SCHEMA = st.StructType([st.StructField(name, st.LongType()) for name in ("Id", "a,b", "[c")])


@pytest.mark.parametrize("case_sensitive", [False, True])
def test_properties_name_columns_in_any_case_unless_the_session_tells_cases_apart(case_sensitive):
    made = Description(SCHEMA, [], {"primary_key": "iD", "sort_by": "Id"}, case_sensitive)
    assert made.definition("create").primary_key == ["iD" if case_sensitive else "Id"]
    assert made.definition("create").sort_by == ["Id"]


def test_names_with_commas_are_listed_as_json_and_shown_so():
    """What a table shows makes the same table again."""
    for names in (["Id", "a,b"], ["[c", "Id"], ["Id"]):
        made = Description(SCHEMA, [], {"sort_by": names_text(names)})
        assert made.definition("create").sort_by == names
    assert names_text(["Id", "x"]) == "Id, x"


@pytest.mark.spark
def test_replace_columns_keeps_the_values_of_names_that_stay(spark, tmp_path):
    """In the order of the statement; what can't become the new type changes nothing."""
    spark_ext.install_catalog(spark, "replaced", tmp_path)
    spark.sql("CREATE TABLE replaced.t (a INT NOT NULL, b STRING, p INT) PARTITIONED BY (p)")
    spark.sql("INSERT INTO replaced.t VALUES (1, 'x', 7)")
    spark.sql("ALTER TABLE replaced.t REPLACE COLUMNS (n DOUBLE, p INT, A BIGINT COMMENT 'key')")
    assert [row.asDict() for row in spark.table("replaced.t").collect()] == [
        {"n": None, "p": 7, "a": 1}
    ]
    assert spark.table("replaced.t").dtypes == [("n", "double"), ("p", "int"), ("a", "bigint")]
    described = {row.col_name: row.comment for row in spark.sql("DESCRIBE replaced.t").collect()}
    assert described["a"] == "key"
    spark.sql("INSERT INTO replaced.t VALUES (2.5, 8, NULL)")
    before = Table.open(tmp_path / "t").snapshot.id
    for columns in ("a BIGINT", "n STRING, p INT", "p INT, n DOUBLE NOT NULL"):
        with pytest.raises(PySparkException):  # a partition column, types, and nulls
            spark.sql(f"ALTER TABLE replaced.t REPLACE COLUMNS ({columns})")
    assert Table.open(tmp_path / "t").snapshot.id == before
    spark.sql("CREATE TABLE replaced.other (a INT, b STRING)")
    spark.sql("INSERT INTO replaced.other VALUES (1, 'x')")
    spark.sql("ALTER TABLE replaced.other REPLACE COLUMNS (c STRUCT<d: INT>)")
    assert [row.asDict() for row in spark.table("replaced.other").collect()] == [{"c": None}]
