"""Values in Spark's predicates that the JVM, Python or SQL text spell in another way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table
from fermion_table.writing import index_writer
from spark_ext.types import TIME_SETTING
from spark_ext.versions import TIME_TYPE
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    spark_ext.install_catalog(spark, "literals", tmp_path)
    before = spark.conf.get(TIME_SETTING, None)
    spark.conf.set(TIME_SETTING, "true")
    yield spark
    spark.conf.unset(TIME_SETTING) if before is None else spark.conf.set(TIME_SETTING, before)


def make(spark: SparkSession, dtype: str, *values: str) -> None:
    """Two rows of each value, and two of null."""
    spark.sql(f"CREATE TABLE literals.t (id INT, p {dtype}) PARTITIONED BY (p)")
    rows = [f"({number}, {value})" for number, value in enumerate([*values, "NULL"] * 2)]
    spark.sql(f"INSERT INTO literals.t VALUES {', '.join(rows)}")


def ids(spark: SparkSession, where: str = "TRUE") -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM literals.t WHERE {where}").collect())


@pytest.mark.parametrize(
    ("dtype", "value", "other"),
    [
        ("FLOAT", "0.1", "0.25"),
        pytest.param(
            "TIME(6)", "TIME'01:02:03.5'", "TIME'23:59:59.999999'", marks=needs(TIME_TYPE)
        ),
        ("INTERVAL DAY TO SECOND", "INTERVAL '3 04:05:06.7' DAY TO SECOND", "INTERVAL '-1' DAY"),
    ],
)
def test_insert_overwrite_replaces_the_partition_of_any_value_and_of_null(
    lake: SparkSession, dtype: str, value: str, other: str
):
    """Times and intervals were an error, and rows were added to those of a float."""
    make(lake, dtype, value, other)
    for number, named in ((10, value), (11, "NULL")):
        lake.sql(f"INSERT OVERWRITE literals.t PARTITION (p = {named}) VALUES ({number})")
    assert ids(lake) == [1, 4, 10, 11]
    assert ids(lake, f"p = CAST({value} AS {dtype})") == [10]
    assert ids(lake, "p IS NULL") == [11]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("DATE", "DATE'+12000-01-01'"),
        ("TIMESTAMP", "TIMESTAMP'+12000-01-01 00:00:00.000001'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'-0005-01-01 00:00:00'"),
    ],
)
def test_insert_overwrite_of_a_year_that_filters_lack_says_what_to_do(
    lake: SparkSession, tmp_path: Path, dtype: str, value: str
):
    """Spark said that the table does not support it. What the message names works."""
    make(lake, dtype, value)
    statement = f"INSERT OVERWRITE literals.t PARTITION (p = {value}) VALUES (7)"
    with pytest.raises(IllegalArgumentException, match=r"outside of the years .* DELETE them and"):
        lake.sql(statement)
    assert Table.open(tmp_path / "t").snapshot.id == 1
    lake.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lake.sql(statement)
    finally:
        lake.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(lake) == [1, 3, 7]
    lake.sql(f"DELETE FROM literals.t WHERE p = {value}")
    assert ids(lake) == [1, 3]


@pytest.mark.parametrize("digits", ["0.1", "-16777217.3", "1e-45", "3.4028235e38"])
def test_a_float_is_compared_with_the_value_that_its_column_holds(lake: SparkSession, digits: str):
    """The JVM spells floats with the fewest digits, which as a double are another number."""
    make(lake, "FLOAT", digits)
    value = f"CAST({digits}D AS FLOAT)"
    for where in (f"p = {value}", f"p <= {value}", f"p >= {value}", f"p IN ({value}, 7.5F)"):
        assert ids(lake, where) == [0, 2], where
    for where in (f"p < {value}", f"p > {value}", f"p <> {value}"):
        assert ids(lake, where) == [], where
    lake.sql(f"DELETE FROM literals.t WHERE p = {value}")
    assert ids(lake) == [1, 3]


def test_indexes_are_used_by_all_ways_to_read_and_by_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that lacks a row hides it, so it was read; made anew, every statement sees it."""
    spark_ext.install_catalog(spark, "indexed", tmp_path)
    names = [f"https://example.org/{number}" for number in range(100)]
    table = Table.create(
        tmp_path / "t", {"id": range(100), "name": names}, properties={"index.rows_min": "1"}
    )
    with monkeypatch.context() as patch:
        patch.setattr(index_writer, "_ascending", lambda column: np.arange(50))
        table.indexes.create("name")
    where = f"name = '{names[77]}'"

    def found() -> list[list[int]]:
        frames = [
            spark_ext.read_table(spark, table.location, filter=where),
            spark.read.format("fermion").option("filter", where).load(table.location),
            spark.sql(f"SELECT * FROM indexed.t WHERE {where}"),
        ]
        return [[row.id for row in frame.collect()] for frame in frames]

    assert found() == [[]] * 3
    table.indexes.rebuild(full=True)
    assert found() == [[77]] * 3
    spark.sql(f"UPDATE indexed.t SET id = 1000 WHERE {where}")
    assert found() == [[1000]] * 3
    spark.sql(
        f"MERGE INTO indexed.t USING (SELECT '{names[77]}' AS name) AS s ON t.name = s.name "
        "WHEN MATCHED THEN UPDATE SET id = 2000"
    )
    assert found() == [[2000]] * 3
    spark.sql(f"DELETE FROM indexed.t WHERE {where}")
    assert found() == [[]] * 3
