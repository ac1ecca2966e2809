"""``format("fermion")`` creates the table that it writes to; sessions that have catalogs."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import _parse_datatype_string

import spark_ext
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import SchemaMismatch, Table
from spark_ext.catalog import configured
from spark_ext.datasource import batch
from spark_ext.datasource.batch import FermionWriter
from spark_ext.datasource.source import FermionDataSource
from spark_ext.writing import new_table


def save(frame, path, mode: str = "append", **options: object) -> None:
    frame.write.format("fermion").mode(mode).options(**options).save(str(path))


def write(path, ddl: str, overwrite: bool = False, **options: str) -> FermionWriter:
    """What Spark begins with, on the driver."""
    source = FermionDataSource({"path": str(path), **options})
    return source.writer(_parse_datatype_string(ddl), overwrite)


def commit(writer: FermionWriter, rows: dict) -> None:
    """The rest, in this process: a task that writes rows, and the commit."""
    columns = pa.schema([(name, pa.int64()) for name in rows])
    made = pa.record_batch(list(rows.values()), schema=columns)
    writer.commit([writer.write(iter([made]))])


@pytest.mark.spark
def test_a_write_to_a_new_path_creates_the_table(spark, tmp_path):
    """Fields are nullable, and the next write fits; with overwrite too."""
    for mode in ("append", "overwrite"):
        path = tmp_path / mode
        save(spark.sql("SELECT 1 AS id, named_struct('x', 2) AS s"), path, mode)
        table = Table.open(path)
        assert [field.nullable for field in table.schema.to_arrow()] == [True, True]
        assert table.schema.to_arrow().field("s").type.field("x").nullable
        assert [each.kind for each in table.snapshots()] == ["create", mode]
    save(spark.sql("SELECT CAST(NULL AS INT) AS id, NULL AS s"), path)
    assert table.refresh().totals.rows == 2


@pytest.mark.spark
def test_a_job_that_fails_leaves_an_empty_table(spark, tmp_path):
    """It was created before the tasks."""
    failing = spark.sql("SELECT CAST(raise_error('no') AS BIGINT) AS id")
    with pytest.raises(PySparkException, match="no"):
        save(failing, tmp_path / "t")
    table = Table.open(tmp_path / "t")
    assert (table.snapshot.id, table.scan().count()) == (0, 0)


def test_options_define_a_new_table_and_must_agree_with_one_that_is_there(spark, tmp_path):
    """The session is there to parse types."""
    path, ddl = tmp_path / "t", "id BIGINT NOT NULL, day DATE, v STRING"
    layout = {"partitionBy": "month(day), bucket(4, id)", "primaryKey": '["id", "day"]'}
    for _ in range(2):
        write(path, ddl, tableProperties='{"bucket": "2"}', **layout)
    write(path, ddl, overwrite=True, partitionBy=layout["partitionBy"])
    table = Table.open(path)
    assert [table.schema.by_id[each].name for each in table.schema.primary_key] == ["id", "day"]
    assert [each.transform for each in table.schema.partition_by] == ["month", "bucket"]
    assert table.properties["bucket"] == "2"
    write(tmp_path / "sorted", ddl, sortBy="day, id")
    assert len(Table.open(tmp_path / "sorted").schema.sort_by) == 2
    for where, given, said in (
        ("t", {"partitionBy": "day"}, r"partitionBy.*month\(day\), bucket\(4, id\)"),
        ("t", {"primaryKey": "id"}, "primaryKey.*id, day"),
        ("t", {"primaryKey": "other"}, "other"),
        ("sorted", {"sortBy": "v"}, "sortBy.*day, id"),
        ("sorted", {"primaryKey": "id"}, "primaryKey.*none"),
        ("t", {"tableProperties": '{"bucket": "3"}'}, "tableProperties.*bucket=2"),
        ("t", {"tableProperties": '{"bucket": 2}'}, "tableProperties: bucket: expected a text"),
        ("t", {"tableProperties": "bucket"}, "tableProperties: expected a JSON object"),
    ):
        with pytest.raises(FermionError, match=said):
            write(tmp_path / where, ddl, **given)
    assert table.refresh().id == 0
    with pytest.raises(InvalidArgumentError, match="primaryKey has no meaning"):
        FermionDataSource({"path": str(path), "primaryKey": "id"}).schema()


def test_what_can_not_be_a_table_leaves_nothing(spark, tmp_path):
    """Wrong options and columns are found before the table is created."""
    Table.create(tmp_path / "outer", pa.schema([("a", pa.int64())]))
    for ddl, where, overwrite, given, said in (
        ("id INT", "t", False, {"branch": "dev"}, "no table here"),
        ("id INT", "t", False, {"replaceWhere": "id = 1"}, "need mode overwrite"),
        ("id INT", "t", True, {"replaceWhere": "other = 1"}, "other"),
        ("id INT", "t", False, {"partitionBy": "other"}, "other"),
        ("id INT", "t", False, {"tableProperties": '{"target_file_size": "x"}'}, "target_file_"),
        ("id INT", "outer/t", False, {}, "lies inside"),
        ("id INT, iD INT", "t", False, {}, "(?i)id"),
        ("id INTERVAL YEAR", "t", False, {}, "interval year"),
    ):
        with pytest.raises((FermionError, KeyError), match=said):
            write(tmp_path / where, ddl, overwrite, **given)
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]


def test_of_jobs_that_begin_at_once_each_appends_if_its_rows_fit(spark, tmp_path, monkeypatch):
    """One creates the table, the others find it; rows with other columns are refused."""
    ready = threading.Barrier(3)
    outcomes: list[str] = []

    def together(staged, options, create=new_table.created):
        ready.wait()
        return create(staged, options)

    monkeypatch.setattr(batch, "created", together)

    def job(name: str) -> None:
        try:
            commit(write(tmp_path / "t", f"{name} BIGINT NOT NULL"), {name: [1, 2]})
            outcomes.append(name)
        except SchemaMismatch:
            outcomes.append("refused")

    threads = [threading.Thread(target=job, args=[name]) for name in ("id", "id", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) in (["id", "id", "refused"], ["other", "refused", "refused"])
    rows = 2 * sum(outcome != "refused" for outcome in outcomes)
    assert Table.open(tmp_path / "t").scan().count() == rows


@pytest.mark.spark
def test_a_configured_builder_installs_catalogs(spark, tmp_path, monkeypatch):
    """Once in a session, also through settings made later; the session of this folder serves."""
    installed = []
    install = configured.install_catalog
    monkeypatch.setattr(
        configured,
        "install_catalog",
        lambda *args, **named: (installed.append(args[1]), install(*args, **named)),
    )
    catalogs = {"first": tmp_path / "1", "second": {"warehouse": tmp_path / "2", "access": None}}
    builder = spark_ext.configure(SparkSession.builder, catalogs=catalogs)
    assert builder.config("spark.sql.shuffle.partitions", "2").getOrCreate() is spark
    assert builder.getOrCreate() is spark
    assert installed == ["first", "second"]
    spark.sql("CREATE TABLE first.db.t AS SELECT 1 AS a")
    spark.sql("CREATE TABLE second.db.t AS SELECT * FROM first.db.t")
    assert Table.open(tmp_path / "2" / "db" / "t").scan().count() == 1
    for wrong, error in (
        ({"a": 1}, InvalidArgumentError),
        ({"": "x"}, InvalidArgumentError),
        ({"a": {"path": "x"}}, InvalidArgumentError),
        ({"a": {"warehouse": "x", "storage_options": 1}}, TypeError),
        ({"a": {"warehouse": "x", "access": 1}}, InvalidArgumentError),
        ([("a", "x")], TypeError),
        ({1: "x"}, TypeError),
    ):
        with pytest.raises(error, match=r"catalogs|access"):
            spark_ext.configure(SparkSession.builder, catalogs=wrong)
