"""Blobs in Spark: binary to read and write, and handles that functions of users read."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion.blobs import Handle
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.errors import UnsupportedBySpark
from spark_ext.versions import OPTIONS_OF_TABLES, SPARK

pytestmark = pytest.mark.spark

IMAGE = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
SCHEMA = pa.schema([pa.field("id", pa.int64()), IMAGE])
VALUES = [b"x", b"png" * 300_000, None, b""]
"""One that lies in the reference, one of several pieces, a null and an empty one."""


@pytest.fixture
def lake(spark, tmp_path):
    spark_ext.install_catalog(spark, "albums", tmp_path)
    table = Table.create(tmp_path / "photos", SCHEMA)
    table.append({"id": list(range(len(VALUES))), "image": VALUES})
    return tmp_path


def values(frame):
    rows = frame.select("id", "image").orderBy("id").collect()
    return [None if row.image is None else bytes(row.image) for row in rows]


def test_blobs_are_binary_in_each_way_to_read_and_write(spark, lake):
    path = str(lake / "photos")
    by_function = spark_ext.read_table(spark, path)
    assert by_function.schema["image"].dataType.simpleString() == "binary"
    assert values(by_function) == values(spark.table("albums.photos")) == VALUES
    assert values(spark.read.format("fermion").load(path)) == VALUES
    more = by_function.withColumn("id", functions.col("id") + 4).localCheckpoint()
    spark_ext.append(more, path)
    more.withColumn("id", more.id + 4).write.format("fermion").mode("append").save(path)
    more.withColumn("id", more.id + 8).writeTo("albums.photos").append()
    spark.sql("UPDATE albums.photos SET image = X'00' WHERE id = 15")
    assert values(spark.table("albums.photos")) == [*VALUES, *VALUES, *VALUES, *VALUES[:-1], b"\0"]
    table = Table.open(path)
    assert table.scan(blobs="handles").to_arrow()["image"].to_pylist()[1].size == 900_000
    assert table.verify().ok


def test_handles_are_structs_that_a_function_reads(spark, lake):
    path = str(lake / "photos")

    @functions.udf("binary")
    def content(image):
        return None if image is None else Handle.of(image).read(0, min(image.size, 5))

    expected = [None if value is None else value[:5] for value in VALUES]
    frames = [
        spark_ext.read_table(spark, path, blobs="handles"),
        spark.read.format("fermion").option("blobs", "handles").load(path),
    ]
    if SPARK.has(OPTIONS_OF_TABLES):
        frames.append(spark.sql("SELECT * FROM albums.photos WITH ('blobs' = 'handles')"))
    for frame in frames:
        assert values(frame.select("id", content("image").alias("image"))) == expected
        sizes = frame.where("image.size > 0").orderBy("id").selectExpr("image.size AS size")
        assert [row.size for row in sizes.collect()] == [1, 900_000]
        assert frame.where("image IS NULL").select("id").collect()[0].id == 2
        assert frame.selectExpr("count(image)").collect()[0][0] == 3


def test_handles_are_refused_where_they_have_no_meaning(spark, lake):
    path = str(lake / "photos")
    with pytest.raises(InvalidArgumentError, match="blobs='references'"):
        spark_ext.read_table(spark, path, blobs="references")
    reader = spark.read.format("fermion").option("readChangeFeed", "true")
    with pytest.raises(PySparkException, match="readChangeFeed and blobs"):
        reader.option("startingSnapshotId", "0").option("blobs", "handles").load(path).count()
    if not SPARK.has(OPTIONS_OF_TABLES):
        with pytest.raises((PySparkException, UnsupportedBySpark), match="option blobs"):
            spark.read.option("blobs", "handles").table("albums.photos").count()
    with pytest.raises(InvalidArgumentError, match="expected a struct of file, offset"):
        Handle.of({"file": "a"})


def test_sql_creates_a_table_with_blobs(spark, lake):
    spark.sql(
        "CREATE TABLE albums.made TBLPROPERTIES ('fermion.blob' = 'image', 'a.b' = 'c') "
        "AS SELECT * FROM albums.photos"
    )
    assert values(spark.table("albums.made")) == VALUES
    assert list((lake / "made" / "data").glob("*.blob"))
    with pytest.raises(PySparkException, match="is for new tables"):
        spark.sql("ALTER TABLE albums.made SET TBLPROPERTIES ('fermion.blob' = 'image')")
