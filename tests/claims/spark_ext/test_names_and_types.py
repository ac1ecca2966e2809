"""Names in any case and types without a place, through every way of writing from Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.errors import UnsupportedBySpark
from spark_ext.session import settings

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))])


def test_merging_matches_names_in_any_case_unless_spark_minds_it(spark, table_path):
    """By `append` and by the format: rows land in the table's columns, down into structs."""
    Table.create(table_path, SCHEMA)
    frame = spark.sql("SELECT 1L AS Id, named_struct('X', 2L, 'z', 3) AS S, 4L AS More")
    spark_ext.append(frame, table_path, schema_mode="merge")
    save = frame.write.format("fermion").option("mergeSchema", "true").mode("append")
    save.save(str(table_path))
    table = Table.open(table_path)
    assert table.schema.names == ["id", "s", "More"]
    row = {"id": 1, "s": {"x": 2, "y": None, "z": 3}, "More": 4}
    assert table.scan().to_arrow().to_pylist() == [row, row]
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        both = spark.sql("SELECT 1L AS Id, 2L AS id")
        spark_ext.append(both, table_path, schema_mode="merge")
    table.refresh()
    assert table.schema.names == ["id", "s", "More", "Id"]
    with pytest.raises(InvalidArgumentError, match="the table has 'id' and 'Id'"):
        spark_ext.append(spark.sql("SELECT 1L AS ID"), table_path)


def test_a_type_without_a_place_is_refused_before_anything_is_made(spark, tmp_path):
    spark_ext.install_catalog(spark, "gate", tmp_path / "gate")
    (tmp_path / "gate").mkdir()
    bad = spark.sql("SELECT 1 AS k, named_struct('v', INTERVAL '1' YEAR) AS c")
    spark.sql("CREATE TABLE gate.t (k INT)")
    for refused in (
        lambda: bad.writeTo("gate.made").create(),
        lambda: bad.writeTo("gate.t").createOrReplace(),
        lambda: spark.sql("CREATE TABLE gate.made (c STRUCT<v: INTERVAL YEAR>)"),
        lambda: spark.sql("ALTER TABLE gate.t ADD COLUMN c STRUCT<v: INTERVAL YEAR>"),
        lambda: spark_ext.write(bad, tmp_path / "gate" / "made"),
        lambda: spark_ext.append(bad, tmp_path / "gate" / "t", schema_mode="merge"),
    ):
        with pytest.raises((PySparkException, UnsupportedBySpark), match=r"'c'\.v.* interval year"):
            refused()
    assert [path.name for path in (tmp_path / "gate").iterdir()] == ["t"]
    assert Table.open(tmp_path / "gate" / "t").snapshot.id == 0
    for text in ("c CHAR(5)", "c STRING COLLATE UTF8_LCASE", "c INTERVAL HOUR TO MINUTE"):
        with pytest.raises(PySparkException, match="column 'c': tables cannot hold"):
            spark.sql(f"CREATE TABLE gate.made ({text})")
