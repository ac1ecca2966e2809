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


@pytest.mark.parametrize("case_sensitive", [False, True])
def test_settings_name_columns_in_any_case_in_their_values_and_names(case_sensitive):
    """Fields of items, texts, and settings that are not ours stay as they are."""
    given = {
        "primary_key": "id",
        "bucket-key": "iD",
        "sequence.field": " ID , other",
        "statistics_columns": "id,A,B",
        "record_level.time_field": "ID",
        "fields.ID.aggregate_function": "ID",
        "fields.ID,x.sequence_group": "iD",
        "fields.ID.nested_key": "ID",
        "fields.default_aggregate_function": "ID",
        "comment": "ID, iD",
        "mine": "ID",
    }
    changed = {
        "bucket-key": "Id",
        "sequence.field": " Id , other",
        "statistics_columns": "Id,A,B",
        "record_level.time_field": "Id",
        "fields.Id.aggregate_function": "ID",
        "fields.Id,x.sequence_group": "Id",
        "fields.Id.nested_key": "ID",
    }
    made = Description(SCHEMA, [], given, case_sensitive).definition("create").properties
    if not case_sensitive:
        given = {k: v for k, v in given.items() if not k.startswith("fields.ID")} | changed
    del given["primary_key"]
    assert made == given


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


@pytest.mark.spark
def test_sql_names_columns_of_a_layout_in_any_case_and_shows_a_statement_that_makes_it_again(
    spark, tmp_path
):
    """Key, buckets, sequence and sort order, with a comma in a name."""
    spark_ext.install_catalog(spark, "laid", tmp_path)
    spark.sql(
        "CREATE TABLE laid.t (Id INT, Day INT, V INT) PARTITIONED BY (DAY) TBLPROPERTIES ("
        "'primary_key' = 'id, dAY', 'bucket_key' = 'ID', 'bucket' = '2', 'sequence.field' = 'v')"
    )
    spark.sql("INSERT INTO laid.t VALUES (1, 1, 5), (2, 1, 5)")
    spark.sql("INSERT INTO laid.t VALUES (1, 1, 4)")
    spark.sql("CREATE TABLE laid.s (Id INT, `a,b` INT) TBLPROPERTIES ('sort_by' = '[\"A,b\"]')")
    spark.sql("ALTER TABLE laid.s SET TBLPROPERTIES ('statistics_columns' = 'ID')")
    shown = {name: Table.open(tmp_path / name) for name in ("t", "s")}
    assert shown["t"].properties["bucket_key"] == "Id"
    assert shown["t"].properties["sequence.field"] == "V"
    assert shown["s"].properties["statistics_columns"] == "Id"
    for name, table in shown.items():
        statement = spark.sql(f"SHOW CREATE TABLE laid.{name}").first()[0]
        spark.sql(statement.replace(f"laid.{name} ", f"laid.{name}_again ", 1))
        again = Table.open(tmp_path / f"{name}_again")
        assert again.schema.to_arrow(field_ids=False) == table.schema.to_arrow(field_ids=False)
        assert (again.properties, again.schema.sort_by, again.schema.primary_key) == (
            table.properties,
            table.schema.sort_by,
            table.schema.primary_key,
        )
    assert sorted(spark.table("laid.t").collect()) == [(1, 1, 5), (2, 1, 5)]
