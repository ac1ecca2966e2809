"""Columns that jobs of changed rows add for themselves: a table may have columns of every name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import spark_ext
from fermion_table import Table

pytestmark = pytest.mark.spark

NAMES = [
    *("operation", "ROW", "kind", "old_id", "Old_s", "unused_1", "unused_4", "position"),
    *("partition_0", "Bucket", "has_target", "has_source", "CLAUSE", "message"),
    *("_row_id", "_file", "_pos", "_sequence_s", "batch_id", "index_in_batch"),
    # What they were called once: names that a table written then may still have.
    *("__fermion_operation__", "__fermion_row__", "__fermion_kind__", "__fermion_old_id__"),
    *("__fermion_position__", "__fermion_partition_0__", "__FERMION_BUCKET__"),
    *("__fermion_target__", "__fermion_source__", "__fermion_clause__", "__fermion_unused_1__"),
]
"""Those of jobs, of scans, and of columns that rows have without storing them."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.int32())])
for each in NAMES:
    SCHEMA = SCHEMA.append(pa.field(each, pa.int32()))


def row(number: int, **values: int) -> dict[str, int]:
    """Return a row of which every value tells its column."""
    made = {"id": number, "s": 0}
    made |= {name: 1000 * number + place for place, name in enumerate(NAMES)}
    return made | values


def content(table: Table) -> list[dict]:
    table.refresh()
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda found: found["id"])


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `changed`."""
    directory = tmp_path_factory.mktemp("changed")
    spark_ext.install_catalog(spark, "changed", directory)
    return directory


@pytest.mark.parametrize("kind", ["append", "keyed"])
def test_columns_may_have_the_names_of_columns_that_jobs_add(spark, warehouse, kind):
    """UPDATE wrote the number of its operation into a column that was named like that."""
    properties = {"bucket": "2", "sequence.field": "s"}
    layout = {"partition_by": ["s"]} if kind == "append" else {"primary_key": ["id"]}
    settings = {} if kind == "append" else {"properties": properties}
    table = Table.create(warehouse / kind, SCHEMA, **layout, **settings)
    table.append(pa.Table.from_pylist([row(number) for number in (1, 2, 3, 4)], SCHEMA))
    expected = {number: row(number) for number in (1, 2, 3, 4)}

    spark.sql(f"UPDATE changed.{kind} SET operation = -1, _row_id = -2 WHERE id % 2 = 1")
    expected |= {number: row(number, operation=-1, _row_id=-2) for number in (1, 3)}
    assert content(table) == list(expected.values())

    spark.createDataFrame([(2, 7), (5, 7)], "id long, n int").createOrReplaceTempView("source")
    columns = ", ".join(f"`{name}`" for name in SCHEMA.names)
    values = ", ".join(f"5000 + {place}" for place in range(len(NAMES)))
    spark.sql(
        f"MERGE INTO changed.{kind} t USING source ON t.id = source.id "
        "WHEN MATCHED THEN UPDATE SET kind = n, s = 1 "
        f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES (source.id, 0, {values})"
    )
    expected |= {2: row(2, kind=7, s=1), 5: row(5)}
    assert content(table) == list(expected.values())

    spark.sql(f"DELETE FROM changed.{kind} WHERE id % 3 = 0")
    del expected[3]
    assert content(table) == list(expected.values())

    rows = pa.Table.from_pylist([row(2, s=2), row(6)], SCHEMA)
    source = spark.createDataFrame(rows)
    merge = spark_ext.merge(spark, table.location, source, on=["id"])
    merge.when_matched_update(condition="source.message = target.message")
    merge.when_not_matched_insert().when_not_matched_by_source_delete("target.`ROW` = 4001")
    merge.execute()
    expected |= {2: row(2, s=2), 6: row(6)}
    del expected[4]
    assert content(table) == list(expected.values())

    added = spark.createDataFrame(pa.Table.from_pylist([row(7), row(8)], SCHEMA))
    (spark_ext.append if kind == "append" else spark_ext.upsert)(added, table.location)
    expected |= {7: row(7), 8: row(8)}
    assert content(table) == list(expected.values())


def test_the_id_of_a_row_has_another_name_beside_a_column_of_its_name(spark, warehouse):
    """Also where the column's name differs in case alone, as Spark does not tell them apart."""
    table = Table.create(warehouse / "ids", pa.schema([("_ROW_ID", pa.int64())]))
    table.append({"_ROW_ID": [7, 8, 9]})
    found = spark.sql("SELECT _row_id, _row_id_, _pos FROM changed.ids ORDER BY 1").collect()
    assert [tuple(each) for each in found] == [(7, 0, 0), (8, 1, 1), (9, 2, 2)]
    spark.sql("UPDATE changed.ids SET _row_id = _row_id + 10 WHERE _row_id % 2 = 0")
    table.refresh()
    assert sorted(table.scan().to_arrow()["_ROW_ID"].to_pylist()) == [7, 9, 18]


def test_a_column_that_spark_would_overwrite_is_refused(spark, warehouse):
    """Spark's plans have a column of this name, and find the table's by its name."""
    columns, by_key = "id BIGINT NOT NULL, `__ROW_operation` INT", "primary_key='id', bucket='1'"
    for name, properties in (("plain", ""), ("by_key", f"TBLPROPERTIES ({by_key})")):
        spark.sql(f"CREATE TABLE changed.{name} ({columns}) {properties}")
        spark.sql(f"INSERT INTO changed.{name} VALUES (1, 10)")
        with pytest.raises(IllegalArgumentException, match="'__ROW_operation': in the plans"):
            spark.sql(f"UPDATE changed.{name} SET id = 2 WHERE id % 2 = 1")
        assert spark.table(f"changed.{name}").collect() == [(1, 10)]
